"""One training step as a graph: forward kernels, loss, backward kernels and the optimiser's steps.

The joint graph of forward and backward comes from ``aot_export_joint_with_descriptors`` on tensors
without data, without decompositions: its calls are those that autograd makes in eager PyTorch
(``convolution_backward``, ``threshold_backward``, ``native_layer_norm_backward``, ...). Linear layers
appear as the products that autograd sees (``addmm``, ``mm``), scaled dot product attention as the kernel
that the CPU chooses: the flash kernel, or products and a softmax where it drops out.

* The graph has the inputs of ``forward`` and, unless the loss needs none, ``target``. Its only result is
  the loss: what becomes of parameters goes where they are read and nowhere else.
* Parameters, buffers and states of the optimiser are weights, states named ``fc.weight:exp_avg``. What
  becomes of them is written by operators whose tensors end in ``:updated`` (``fc.weight:updated``);
  batch normalisation's statistics among them.
* An activation that a backward kernel reads lives until then, like any tensor with a consumer.
* Every parameter has a step of its own (:mod:`cost_models.optimizer_steps`), after the backward kernels.
* Kernels that eager PyTorch runs in place make new tensors here: they move as many bytes.

The exporting function is private to torch. It is asked for in one place, which says so if it is not
there or has changed.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils import _pytree as pytree

from cost_models.optimizer_steps import STATE, UPDATED, Optimizer, optimizer_of
from scenarios.kernel_graph import MODULE_PATH, GraphBuilder, Seen, content_of, spec_of
from scenarios.outputs import leaves_of
from scenarios.refusals import check_module, reason_of
from scenarios.tracing import (
    arguments_of,
    canonical_names,
    family_of,
    quiet,
    register_fake_attributes,
)
from scenarios.verification import check_training, set_aside
from simulator.errors import InvalidInput
from simulator.model.family import GraphFamily
from simulator.model.graph import DataflowGraph
from simulator.model.operator import TensorSpec

TESTED_TORCH = ("2.13",)
"""Releases of torch whose joint graphs were held against autograd."""

Loss = Callable[..., torch.Tensor]


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
}
"""By name: of the model's first output and a target. ``cross_entropy`` takes the last dimension for the
classes and their numbers for the target, the others a target like the output."""


def loss_of(name: str) -> Loss:
    """The loss of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in LOSSES:
        raise InvalidInput(f"There is no loss '{name}'; known: {', '.join(LOSSES)}")
    return LOSSES[name]


def trace_training(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    loss: str | Loss = "cross_entropy",
    target: torch.Tensor | None = None,
    optimizer: str = "sgd",
    name: str | None = None,
    batch: int | None = None,
    check: bool = True,
) -> DataflowGraph:
    """Trace one training step of a module into a graph of its kernels.

    Args:
        module: any module, with or without data (built under ``FakeTensorMode``); it stays as it is.
            The step is that of the module in training mode: dropout drops, batch normalisation takes
            the batch's statistics.
        example_inputs: a tensor, a sequence of positional arguments, or a mapping of arguments by
            name.
        kwargs: further arguments by name.
        loss: a name of :data:`LOSSES`, or a function of the module's output and of ``target`` if that
            is given, whose result is a scalar.
        target: what the loss compares with; made to fit by the losses with a name.
        optimizer: ``sgd``, ``sgd_momentum``, ``adam`` or ``adamw``.
        name: the graph's name; the class's name unless given.
        batch: the batch size that the inputs have, recorded in the graph.
        check: execute graph and step on small inputs and compare loss, gradients and buffers
            (:mod:`scenarios.verification`); where that is not possible ``graph.unchecked`` says why.

    Raises:
        InvalidInput: this torch cannot export training steps, it refuses this module (its reason is
            quoted), no parameter asks for a gradient, the step has a call that is no ATen operator, or
            its graph computes something else than autograd does.
    """
    name = name or type(module).__name__
    chosen = optimizer_of(optimizer)
    function = loss_of(loss) if isinstance(loss, str) else loss
    args, named = arguments_of(example_inputs, kwargs)
    check_module(module, (args, named, target), name)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InvalidInput(f"Model '{name}' has no parameter that asks for a gradient")
    given = (args, named, target)
    with quiet():
        mode = mode_of(module, (args, named))
        try:
            with mode:
                copied = without_data(module, mode).train()
                args, named, target = faked(mode, (args, named, target))
                step = _Step(copied, function)
                if isinstance(loss, str):
                    step = named_step = _NamedLoss(copied, function)
                    if target is None:
                        target = _target_for(loss, named_step.first(args, named))
                graph = _joint_graph(step, (args, named, target))
        except InvalidInput:
            raise
        except Exception as error:  # torch raises dozens of types here, user code any other
            raise InvalidInput(f"Model '{name}' cannot be trained: {reason_of(error)}") from error
    labels = _labels(module, args, named, target)
    if given[2] is None:
        given = (*given[:2], target)
    try:
        made = _Converter(graph, copied, labels, chosen, name, batch).graph()
        if check:
            executed = set_aside(module)
            if not isinstance(executed, str):
                executed.train()
            made.unchecked = check_training(
                made, executed, partial(type(step), loss=function), given
            )
        return made
    except InvalidInput as error:
        raise InvalidInput(f"Model '{name}' cannot be traced: {error}") from error


def trace_training_family(
    make: Callable[[int], tuple[torch.nn.Module, tuple[Sequence[Any], Mapping[str, Any]]]],
    name: str | None = None,
    batches: tuple[int, int, int] = (2, 3, 5),
    *,
    loss: str = "cross_entropy",
    optimizer: str = "sgd",
) -> GraphFamily:
    """Trace training steps at three batch sizes into those at all of them.

    Arguments as of :func:`scenarios.tracing.trace_family` and :func:`trace_training`.

    Raises:
        InvalidInput: the step cannot be exported, or its graph is not affine in the batch.
    """

    def trace(batch: int, check: bool = True) -> DataflowGraph:
        module, (args, kwargs) = make(batch)
        return trace_training(
            module,
            args,
            kwargs=kwargs,
            loss=loss,
            optimizer=optimizer,
            name=name,
            batch=batch,
            check=check,
        )

    return family_of(trace, batches)


# -- torch's side -----------------------------------------------------------------------------


class _Step(torch.nn.Module):
    """A module and a loss: inputs and target to the loss."""

    def __init__(self, module: torch.nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], target: torch.Tensor | None
    ) -> torch.Tensor:
        output = self.module(*args, **kwargs)
        return self.loss(output) if target is None else self.loss(output, target)


class _NamedLoss(_Step):
    """The same with the module's first output alone."""

    def first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        output = self.module(*args, **kwargs)
        for leaf in leaves_of(output):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dim():
                return leaf
        raise InvalidInput("the model gives no floating-point tensor that a loss could be taken of")

    def forward(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], target: torch.Tensor | None
    ) -> torch.Tensor:
        return self.loss(self.first(args, kwargs), target)


def _target_for(loss: str, output: torch.Tensor) -> torch.Tensor:
    if loss == "cross_entropy":
        return torch.zeros(output.shape[:-1], dtype=torch.int64)
    return torch.zeros(output.shape, dtype=output.dtype)


def mode_of(module: torch.nn.Module, inputs: Any) -> FakeTensorMode:
    """The mode of the tensors without data among a module's and its inputs; a new one if there are none."""
    tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves(inputs)]
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def without_data(module: torch.nn.Module, mode: FakeTensorMode) -> torch.nn.Module:
    """A copy of a module whose tensors have no data; tied ones stay tied."""
    replaced: dict[int, Any] = {}
    held = [*module.parameters(), *module.buffers()]
    for part in module.modules():
        held += [value for value in vars(part).values() if isinstance(value, torch.Tensor)]
    for tensor in held:
        if id(tensor) in replaced:
            continue
        fake = tensor
        if not isinstance(tensor, FakeTensor):
            fake = mode.from_tensor(tensor.detach(), static_shapes=True)
            if isinstance(tensor, torch.nn.Parameter):
                fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
        replaced[id(tensor)] = fake
    copied: torch.nn.Module = copy.deepcopy(module, replaced)
    register_fake_attributes(copied)
    return copied


def faked(mode: FakeTensorMode, values: Any) -> Any:
    """Inputs, their tensors without data."""

    def fake(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return mode.from_tensor(value.detach(), static_shapes=True)
        return value

    return pytree.tree_map(fake, values)


def _joint_graph(step: torch.nn.Module, args: tuple[Any, ...]) -> torch.fx.Graph:
    """Forward and backward calls of a module whose result is a loss.

    Raises:
        InvalidInput: this torch does not have the private function, or has another one.
    """
    try:
        from torch._functorch._aot_autograd import descriptors
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors as export
        from torch.fx.traceback import annotate

        known = {"stack", "mod", "args"} <= set(inspect.signature(export).parameters)
        for kind in ("PlainAOTInput", "TangentAOTInput", "GradAOTOutput", "InputMutationAOTOutput"):
            known &= hasattr(descriptors, kind)
    except ImportError:
        known = False
    if not known:
        raise _other_torch()
    with contextlib.ExitStack() as stack:
        for path, part in step.named_modules():
            # The loss's own calls have no module but the step.
            stack.enter_context(_annotated(part, path.removeprefix("module").lstrip("."), annotate))
        joint = export(stack, step, args)
        graph = getattr(getattr(joint, "graph_module", None), "graph", None)
    if not isinstance(graph, torch.fx.Graph) or not all(
        "desc" in node.meta for node in graph.nodes if node.op in ("placeholder", "output")
    ):
        raise _other_torch()
    return graph


def _other_torch() -> InvalidInput:
    return InvalidInput(
        "Training graphs rest on torch's private aot_export_joint_with_descriptors, which torch "
        f"{torch.__version__} does not have in the known form; tested with torch "
        f"{', '.join(TESTED_TORCH)}"
    )


@contextlib.contextmanager
def _annotated(part: torch.nn.Module, path: str, annotate: Callable[..., Any]) -> Iterator[None]:
    """Note at every call that a module makes its path."""
    entered: list[Any] = []

    def before(*_: Any) -> None:
        context = annotate({MODULE_PATH: path})
        context.__enter__()
        entered.append(context)

    def after(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    handles = [
        part.register_forward_pre_hook(before),
        part.register_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _labels(module: torch.nn.Module, args: Any, kwargs: Any, target: Any) -> list[str]:
    """Names of the step's flattened inputs, as ``forward`` names them."""
    try:
        bound: Mapping[str, Any] = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {"input": (args, kwargs)}
    found: dict[int, str] = {}
    for name, value in bound.items():
        leaves = pytree.tree_leaves(value)
        for number, leaf in enumerate(leaves):
            found.setdefault(id(leaf), name if len(leaves) == 1 else f"{name}_{number}")
    labels = [found.get(id(leaf), "input") for leaf in pytree.tree_leaves((args, kwargs))]
    return [*labels, "target"]


# -- conversion -------------------------------------------------------------------------------


class _Converter(GraphBuilder):
    """Turns one joint graph into a graph with the optimiser's steps."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        module: torch.nn.Module,
        labels: Sequence[str],
        optimizer: Optimizer,
        name: str,
        batch: int | None,
    ) -> None:
        super().__init__(name, batch, clones=True)
        self._nodes = list(graph.nodes)
        self._module = module
        self._labels = labels
        self._optimizer = optimizer
        self._weights: dict[str, int] = {}

    def graph(self) -> DataflowGraph:
        (output,) = (node for node in self._nodes if node.op == "output")
        values, described = list(output.args[0]), output.meta["desc"]
        (loss,) = (
            value
            for value, description in zip(values, described, strict=True)
            if type(description).__name__ == "PlainAOTOutput"
        )
        if not isinstance(loss, torch.fx.Node):
            raise InvalidInput("its loss is a constant")
        tangents = self._add_inputs(loss)
        for node in self._nodes:
            if node.op == "get_attr":
                self._add_constant(node)
            elif node.op == "call_function":
                self.call(node)
            if node is loss:
                self._begin_backward(loss, tangents)
        kept: list[int] = []
        gradients: dict[str, list[torch.fx.Node]] = {}
        canonical = canonical_names(self._module)
        for value, description in zip(values, described, strict=True):
            if not isinstance(value, torch.fx.Node) or description is None:
                continue
            kind = type(description).__name__
            if kind == "GradAOTOutput":
                path = self._path(description.grad_of)
                gradients.setdefault(canonical.get(path, path), []).append(value)
            elif kind == "InputMutationAOTOutput":
                kept += self.updated(self._path(description.mutated_input), value)
        for parameter, parts in gradients.items():
            kept += self._step(parameter, self._accumulated(parameter, parts))
        return self.pruned([self.result(loss)], kept)

    def _add_inputs(self, loss: torch.fx.Node) -> list[torch.fx.Node]:
        """Note placeholders; returns those that stand for the gradient of the loss."""
        canonical = canonical_names(self._module)
        tangents = []
        for node in self._nodes:
            if node.op != "placeholder":
                continue
            description, value = node.meta["desc"], node.meta.get("val")
            kind = type(description).__name__
            if kind == "TangentAOTInput":
                tangents.append(node)
            elif not isinstance(value, torch.Tensor):
                self._values[node] = value
            elif kind == "PlainAOTInput":
                label = self._labels[description.idx]
                self._values[node] = Seen(self.add_tensor(label, "input", spec_of(value)))
            else:
                path = self._path(description)
                path = canonical.get(path, path)
                if path not in self._weights:
                    self._weights[path] = self.add_tensor(path, "weight", spec_of(value))
                self._values[node] = Seen(self._weights[path])
        return tangents

    @staticmethod
    def _path(description: Any) -> str:
        """A parameter's or buffer's path in the module."""
        if type(description).__name__ not in ("ParamAOTInput", "BufferAOTInput"):
            raise InvalidInput(f"its step takes or changes what it cannot name ({description})")
        return str(description.target).removeprefix("module.")

    def _add_constant(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        stored = getattr(node.graph.owning_module, str(node.target), None)
        if not isinstance(stored, torch.Tensor):
            return  # part of a call that is refused
        spec = spec_of(value if isinstance(value, torch.Tensor) else stored)
        content = content_of(stored, str(node.target))
        self._values[node] = Seen(self.add_tensor(str(node.target), "weight", spec, content))

    def _begin_backward(self, loss: torch.fx.Node, tangents: Sequence[torch.fx.Node]) -> None:
        """The gradient of the loss by itself, as ``loss.backward()`` makes it."""
        if loss.meta["val"].numel() != 1:
            raise InvalidInput(f"its loss has the shape {list(loss.meta['val'].shape)}, no number")
        seen: Seen = self._values[loss]
        (written,) = self.add_operator(
            "aten.ones_like.default",
            [(seen, spec_of(loss.meta["val"]))],
            {"memory_format": {"memory_format": "preserve_format"}},
            "loss",
            (spec_of(loss.meta["val"]),),
        )
        for node in tangents:
            self._values[node] = Seen(written)

    def _accumulated(
        self, parameter: str, parts: Sequence[torch.fx.Node]
    ) -> tuple[Seen, TensorSpec]:
        """The sum of a tied parameter's gradients, as autograd adds them."""
        seen, spec = self._values[parts[0]], spec_of(parts[0].meta["val"])
        for part in parts[1:]:
            other = (self._values[part], spec_of(part.meta["val"]))
            made = TensorSpec(spec.shape, spec.dtype)
            (total,) = self.add_operator(
                "aten.add.Tensor", [(seen, spec), other], {}, parameter, (made,)
            )
            seen, spec = Seen(total), made
        return seen, spec

    def _step(self, parameter: str, gradient: tuple[Seen, TensorSpec]) -> list[int]:
        """The optimiser's step for one parameter; returns what it writes."""
        weight = self._weights[parameter]
        spec = self._tensors[weight].spec
        assert spec is not None  # every tensor of a traced graph has one
        dense = TensorSpec(spec.shape, spec.dtype)
        leaves, names = [(Seen(weight), spec), gradient], [parameter]
        for state in self._optimizer.states:
            shape = TensorSpec(()) if state == "step" else dense
            names.append(f"{parameter}{STATE}{state}")
            leaves.append((Seen(self.add_tensor(names[-1], "weight", shape)), shape))
        specs = tuple(dense if i < 1 else leaves[i + 1][1] for i in range(len(names)))
        written = self.add_operator(
            self._optimizer.target, leaves, dict(self._optimizer.constants), parameter, specs
        )
        for tensor, name in zip(written, names, strict=True):
            self.rename(tensor, f"{name}{UPDATED}")
        return written
