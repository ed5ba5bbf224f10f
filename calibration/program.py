"""Graphs made runnable on a machine: kernels for its devices, weights in its memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from calibration.kernels import build
from calibration.segment_kernel import RepeatedKernel, Runnable, SegmentKernel
from simulator.errors import ExecutionError, InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import TensorSpec
from simulator.model.segments import KIND as SEGMENT
from simulator.model.segments import Segments

Tensors = Mapping[str, torch.Tensor]
Kind = tuple[str, int]
"""What a device is: its torch device, and how often it executes a kernel for one operator."""


class PlacedWeights:
    """Weights in the memories of a machine. Graphs of one module share them: a model's batches need
    its weights once.
    """

    def __init__(self) -> None:
        # The tensor that was moved is kept: its address tells it apart only as long as it lives.
        self._moved: dict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def on(self, place: str, name: str, value: torch.Tensor) -> torch.Tensor:
        """A weight on a torch device.

        Raises:
            ExecutionError: the device has no memory for it.
        """
        if value.device == torch.device(place):
            return value
        key = (place, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key not in self._moved:
            try:
                self._moved[key] = value, value.to(place)
            except torch.OutOfMemoryError as error:
                raise ExecutionError(
                    f"Weight '{name}' does not fit into the memory of {place}: "
                    f"{str(error).splitlines()[0]}"
                ) from error
        return self._moved[key][1]


class Program:
    """A graph made runnable.

    Args:
        graph: of operators, or of segments.
        weights: by name, of all operators.
        kinds: of the devices.
        memories: for each memory space the torch device that holds its tensors.
        segments: what a graph of segments is made of.
        placed: where weights lie already.

    Attributes:
        reads: for each operator the tensors that its kernel is called with.
        kernels: for each kind of device one for each operator.
        weights: for each memory space the weights by tensor.
        readers: for each tensor how many read it; a result, or what becomes of a weight, has one more,
            the job's owner, and is never freed.
        specs: of the tensors; None where a graph has none.
        changed: tensors that operators change in place, of a graph of segments the weights apart.

    Raises:
        InvalidInput: a weight is missing, or an operator cannot be made runnable.
        ExecutionError: a device has no memory for the weights.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        weights: Tensors,
        kinds: Sequence[Kind],
        memories: Sequence[str],
        segments: Segments | None,
        placed: PlacedWeights,
    ) -> None:
        self.graph = graph
        if segments is None and any(operator.kind == SEGMENT for operator in graph.operators):
            raise InvalidInput(
                f"Graph '{graph.name}' is of segments; load it with what they are made of"
            )
        fine = graph if segments is None else segments.fine
        kernels = {kind: _kernels(fine, kind) for kind in dict.fromkeys(kinds)}
        for tensor in fine.weights:
            if fine.tensors[tensor].name not in weights:
                raise InvalidInput(
                    f"Graph '{graph.name}' needs the weight '{fine.tensors[tensor].name}'"
                )

        def weights_on(place: str) -> dict[int, torch.Tensor]:
            names = {tensor: fine.tensors[tensor].name for tensor in fine.weights}
            return {t: placed.on(place, name, weights[name]) for t, name in names.items()}

        kept = {*graph.outputs, *graph.updates}
        self.changed = graph.changed
        self.readers = [
            len(consumers) + (tensor in kept) for tensor, consumers in enumerate(graph.consumers)
        ]
        self.kernels = kernels
        self.weights: list[dict[int, torch.Tensor]]
        if segments is None:
            self.reads: Sequence[Sequence[int]] = graph.reads
            self.specs: list[TensorSpec | None] = [tensor.spec for tensor in graph.tensors]
            self.weights = [weights_on(place) for place in memories]
            return
        # A segment's weights belong to its kernel: the coarse graph joins them into one tensor.
        self.reads = graph.activations_read
        index_of = {tensor.name: index for index, tensor in enumerate(fine.tensors)}
        weight = frozenset(graph.weights)
        names = [None if t in weight else tensor.name for t, tensor in enumerate(graph.tensors)]
        within = [-1 if name is None else index_of[name] for name in names]
        self.specs = [None if t < 0 else fine.tensors[t].spec for t in within]
        self.weights = [{} for _ in memories]
        self.changed = frozenset(tensor for tensor, own in enumerate(within) if own in fine.changed)
        self.kernels = {}
        for kind, single in kernels.items():
            own = weights_on(kind[0])
            own |= {t: own[t].clone() for t in fine.changed if t in own}  # the module keeps its own
            self.kernels[kind] = [
                SegmentKernel(
                    [single[operator] for operator in row],
                    [fine.reads[operator] for operator in row],
                    [fine.writes[operator] for operator in row],
                    [within[tensor] for tensor in self.reads[number]],
                    [within[tensor] for tensor in graph.writes[number]],
                    own,
                )
                for number, row in enumerate(segments.members.rows())
            ]


def _kernels(graph: DataflowGraph, kind: Kind) -> list[Runnable]:
    place, times = kind
    kernels: list[Runnable] = [build(operator, place) for operator in graph.operators]
    return kernels if times == 1 else [RepeatedKernel(kernel, times) for kernel in kernels]
