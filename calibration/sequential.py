"""A graph run operator by operator on one device: the plainest of all executions.

It is what tracing is held against, and it makes the tensors that other runners start from.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any

import torch

from calibration.kernels import build, view
from cost_models.optimizer_steps import STATE
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Tensor


def weights_of(
    module: torch.nn.Module, graph: DataflowGraph, device: str | torch.device = "cpu"
) -> dict[str, torch.Tensor]:
    """A graph's weights by name, from the module that it was traced from.

    A weight is the parameter, buffer or plain tensor attribute that its name is the path of; a
    constant that the model's code made comes from the graph itself, an optimiser's state, named
    ``<path>:<state>``, is zeros, and a part of a weight is cut from it here.

    Raises:
        InvalidInput: the module lacks a weight or has it in another shape or type.
    """
    weights: dict[str, torch.Tensor] = {}
    for index in graph.weights:
        stored = graph.tensors[index]
        if stored.value is not None:
            weights[stored.name] = _constant(stored).to(device)
            continue
        spec, part = stored.spec, stored.part
        if STATE in stored.name and spec is not None:
            dtype_of_state: torch.dtype = getattr(torch, spec.dtype)
            weights[stored.name] = torch.zeros(spec.shape, dtype=dtype_of_state, device=device)
            continue
        path = stored.name if part is None else part.of
        found: Any = module
        for step in path.split("."):
            found = getattr(found, step, None)
        if not isinstance(found, torch.Tensor):
            if all(graph.operators[o].template is None for o in graph.consumers[index]):
                raise InvalidInput(
                    f"Graph '{graph.name}' has the times of layers and no kernels, so hardware cannot execute it; "
                    "simulate it, or take another partition"
                )
            raise InvalidInput(f"The module has no weight '{path}' of graph '{graph.name}'")
        if part is not None:
            # Memories hold the part alone.
            found = view(found.detach(), part.views).clone(memory_format=torch.contiguous_format)
        dtype = str(found.dtype).removeprefix("torch.")
        if spec is not None and (tuple(found.shape), dtype) != (spec.shape, spec.dtype):
            raise InvalidInput(
                f"Weight '{stored.name}' is {dtype}{list(found.shape)} in the module and "
                f"{spec.dtype}{list(spec.shape)} in graph '{graph.name}'"
            )
        weights[stored.name] = found.detach().to(device)
    return weights


def run_graph(
    graph: DataflowGraph,
    weights: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    device: str | torch.device = "cpu",
) -> list[Any]:
    """Execute a graph in its own order; tensors are freed after their last consumer.

    Args:
        graph: a traced graph.
        weights: by name, as :func:`weights_of` gives them.
        inputs: by name (``graph.inputs``); :func:`named_inputs` names positional ones.
        device: where everything is.

    Returns:
        The model's outputs, flattened as ``torch.utils._pytree.tree_leaves`` flattens them.

    Raises:
        InvalidInput: an input or weight is missing, or the graph cannot be run.
    """
    return results_of(graph, run_tensors(graph, weights, inputs, (), device))


def run_tensors(
    graph: DataflowGraph,
    weights: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    names: Collection[str],
    device: str | torch.device = "cpu",
) -> dict[str, torch.Tensor]:
    """Execute a graph as :func:`run_graph` does and give some of its tensors.

    Args:
        graph: a traced graph.
        weights: by name.
        inputs: by name.
        names: of tensors wanted besides those of ``graph.outputs``, such as what a training step makes
            of the parameters (``fc.weight:updated``).
        device: where everything is.

    Returns:
        These tensors and the graph's outputs by name; weights and inputs among them.

    Raises:
        InvalidInput: a name, an input or a weight is missing, or the graph cannot be run.
    """
    index_of = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    for name in names:
        if name not in index_of:
            raise InvalidInput(f"Graph '{graph.name}' has no tensor '{name}'")
    values: dict[int, torch.Tensor] = {}
    changed = graph.changed
    for indices, given, what in (
        (graph.weights, weights, "weight"),
        (graph.inputs, inputs, "input"),
    ):
        for index in indices:
            name = graph.tensors[index].name
            if name not in given:
                raise InvalidInput(f"Graph '{graph.name}' needs the {what} '{name}'")
            # Whoever gave a tensor keeps it as it is.
            values[index] = given[name].clone() if index in changed else given[name]
    last = {tensor: consumers[-1] for tensor, consumers in enumerate(graph.consumers) if consumers}
    kept = {*graph.outputs, *(index_of[name] for name in names)}
    with torch.inference_mode():
        for position, operator in enumerate(graph.operators):
            reads, writes = graph.reads[position], graph.writes[position]
            try:
                written = build(operator, device)(*(values[tensor] for tensor in reads))
            except Exception as error:
                error.add_note(f"operator '{operator.name}' ({operator.target})")
                raise
            values.update(zip(writes, written, strict=True))
            for tensor in (*reads, *writes):
                if last.get(tensor, position) == position and tensor not in kept:
                    values.pop(tensor, None)
    return {graph.tensors[i].name: v for i, v in values.items()}


def results_of(graph: DataflowGraph, values: Mapping[str, torch.Tensor]) -> list[Any]:
    """A model's outputs, flattened, from the tensors (by name) that ``graph.outputs`` lists."""
    return [
        view(values[result["tensor"]], result.get("views", ()))
        if "tensor" in result
        else result["value"]
        for result in graph.results
    ]


def named_inputs(
    graph: DataflowGraph, tensors: Mapping[str, torch.Tensor] | list[Any] | tuple[Any, ...]
) -> dict[str, torch.Tensor]:
    """Positional inputs by the names that the graph has for them, in their order.

    Raises:
        InvalidInput: their number differs from the graph's.
    """
    if isinstance(tensors, Mapping):
        return dict(tensors)
    names = [graph.tensors[index].name for index in graph.inputs]
    if len(names) != len(tensors):
        raise InvalidInput(
            f"Graph '{graph.name}' has {len(names)} inputs ({', '.join(names)}), got {len(tensors)}"
        )
    return dict(zip(names, tensors, strict=True))


def _constant(stored: Tensor) -> torch.Tensor:
    assert stored.value is not None
    assert stored.spec is not None
    data = bytearray(base64.b64decode(stored.value))
    dtype: torch.dtype = getattr(torch, stored.spec.dtype)
    if not data:
        return torch.empty(stored.spec.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(stored.spec.shape)
