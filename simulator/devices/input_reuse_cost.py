"""Inputs that are not at hand.

What an operator reads was mostly written just before, on the same core, and lies in that core's own caches. Where
several jobs take turns on a core, or several cores share a job, it does not: it was driven into a farther cache or
into memory by what the core has read and written since, or lies in another core's. Reading it takes longer then, the
longer the farther it is.

How far is the *reuse distance*: the bytes that the devices of a memory space have read and written there since one of
them last read or wrote the input (R. L. Mattson et al., *Evaluation techniques for storage
hierarchies*, IBM Systems Journal 9(2), 1970). A :class:`simulator.model.input_reuse_curve.ReadingCurve` says what a byte takes longer at a
distance, and where the device has not touched it itself.
Operator times are taken to be of a job alone on its device, in the order of its graph, so an execution takes longer by
what its inputs cost beyond what they cost there, and never less than its time. What a job brings along costs nothing.
Schedulers believe in the times of a job alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.devices.weight_cache import LOOKED_UP
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph


class Reads:
    """What the operators of a graph touch, and how far their inputs are where a job has a device for itself.

    Attributes:
        inputs: of each operator, what an operator before it wrote: tensor and bytes.
        touched: bytes that each operator reads and writes.
        distances: of each of ``inputs``, in the order of the graph.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        sizes = graph.tensor_bytes.tolist()
        producer = graph.tensor_producer.tolist()
        inner = graph.inner_written or [0.0] * len(graph)
        self.inputs: list[tuple[tuple[int, float], ...]] = []
        self.touched: list[float] = []
        self.writes = graph.writes
        for operator, reads, writes, own in zip(
            graph.operators, graph.reads, graph.writes, inner, strict=True
        ):
            written = sum(sizes[t] for t in writes) + own
            read = 0.0
            for position, tensor in enumerate(reads):
                looked_up = operator.kind in LOOKED_UP and position == 0
                read += min(sizes[tensor], written) if looked_up else sizes[tensor]
            self.touched.append(read + written)
            self.inputs.append(
                tuple((t, sizes[t]) for t in dict.fromkeys(reads) if producer[t] >= 0 and sizes[t])
            )
        self.distances: list[tuple[float, ...]] = []
        marks: dict[int, float] = {}
        now = 0.0
        for operator_inputs, touched, writes in zip(
            self.inputs, self.touched, graph.writes, strict=True
        ):
            self.distances.append(tuple(now - marks[t] for t, _ in operator_inputs))
            now += touched
            marks.update(dict.fromkeys((*(t for t, _ in operator_inputs), *writes), now))


class FarInput(NamedTuple):
    """An input of an execution.

    Attributes:
        size: bytes.
        distance: bytes since it was touched last.
        elsewhere: whether that was where another device wrote it.
        alone: its distance where a job has a device for itself.
    """

    size: float
    distance: float
    elsewhere: bool
    alone: float


class InputDistances:
    """How far the inputs of executions are, by what was executed before.

    Args:
        spaces: the memory space of each device, by number.
    """

    def __init__(self, spaces: Sequence[int]) -> None:
        self._space_of = list(spaces)
        self._touched = [0.0] * (max(self._space_of) + 1)
        self._reads: dict[DataflowGraph, Reads] = {}
        self._jobs: dict[int, _Tensors] = {}

    def inputs(self, graph: DataflowGraph, job: int, operator: int, device: int) -> list[FarInput]:
        """An operator begins on a device; returns what it reads that an operator wrote."""
        reads = self._reads.get(graph)
        if reads is None:
            reads = self._reads[graph] = Reads(graph)
        tensors = self._jobs.get(job)
        if tensors is None:
            tensors = self._jobs[job] = _Tensors(len(graph))
        space = self._space_of[device]
        inputs, found = reads.inputs[operator], []
        for (tensor, size), alone in zip(inputs, reads.distances[operator], strict=True):
            mark = tensors.touched.get((tensor, space))
            # Else it has just been copied there, or was forgotten with its job, of which an operator is repeated.
            if mark is not None:
                elsewhere = (tensor, device) not in tensors.known
                found.append(FarInput(size, self._touched[space] - mark, elsewhere, alone))
        now = self._touched[space] = self._touched[space] + reads.touched[operator]
        for tensor in (*(tensor for tensor, _ in inputs), *reads.writes[operator]):
            tensors.touched[tensor, space] = now
            tensors.known.add((tensor, device))
        tensors.left -= 1
        if tensors.left <= 0:
            del self._jobs[job]
        return found


class FarInputs:
    """What the inputs of a cluster's executions cost, by what was executed before.

    Args:
        cluster: its devices have the curves.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._curves = [device.far_inputs for device in cluster.devices]
        self._distances = InputDistances(cluster.space_of)

    def execute(self, graph: DataflowGraph, job: int, operator: int, device: int) -> float:
        """An operator begins on a device; returns the seconds that it takes longer."""
        curve = self._curves[device]
        found = self._distances.inputs(graph, job, operator, device)
        if curve is None:
            return 0.0
        longer = 0.0
        for one in found:
            each = curve.cost(one.distance) - curve.cost(one.alone)
            longer += one.size * (each + curve.elsewhere if one.elsewhere else each)
        return max(0.0, longer)


class _Tensors:
    """Of a job: what had been touched in a memory space when a tensor was last, and which device has touched it."""

    __slots__ = ("known", "left", "touched")

    def __init__(self, operators: int) -> None:
        self.left = operators
        self.touched: dict[tuple[int, int], float] = {}
        self.known: set[tuple[int, int]] = set()


def reads_far(cluster: Cluster) -> bool:
    """Whether an execution may take longer because of where its inputs are."""
    return any(device.far_inputs is not None for device in cluster.devices)
