"""Coarse graphs: operators, consecutive ones or the parts of any acyclic partition, as single ones.

Serving runs on them: a request then is one task for each segment, whose time is that of the operators in
it, one after another. Planners search on them. What a segment writes for later ones keeps its name and its bytes, as
does what its operators make of a weight or an input in place (``cache:updated``), and what becomes of a weight that
others read, too; of what only its own operators read the most that lies there at once is left, as the segment's
``inner_bytes``, and what is written in all, which goes through the cache, as its ``inner_written``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.costs import GraphCosts
from simulator.model.csr import CSR
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.topological_order import sorted_topologically

MOST_OUTSIDE = 0.1
"""Share of a segment's time that may be extrapolated for the segment to count as in range."""
KIND = "segment"
"""Kind of the operators of coarse graphs."""


@dataclass(frozen=True)
class Segments:
    """A coarse graph and what it is made of.

    Attributes:
        fine: the graph of all operators.
        graph: its segments, in topological order.
        owner: int64[operators], the segment of each operator.
    """

    fine: DataflowGraph
    graph: DataflowGraph
    owner: np.ndarray

    @cached_property
    def members(self) -> CSR:
        """For each segment its operators, ascending: the order in which they run."""
        return CSR.group(self.owner, np.arange(len(self.owner)), len(self.graph))

    def _summed(self, values: np.ndarray) -> np.ndarray:
        """float64[segments, devices]: sums of values of operators."""
        members = self.members
        sums: np.ndarray = np.add.reduceat(values[members.values], members.offsets[:-1], axis=0)
        return sums

    def costs(self, fine: GraphCosts, overhead: np.ndarray | None = None) -> GraphCosts:
        """Times of the segments: sums of their operators' times on each device.

        ``overhead`` (float64[devices]) is a launch's, which a device adds to each task: a segment, one
        task, brings along what its other operators would cost.

        A segment extrapolates where operators of more than a tenth of its time do. Spreads of operators, which are
        noise and independent of each other, add up in quadrature.
        """
        kernels = self._summed(fine.seconds)
        launching = np.zeros_like(kernels)
        if overhead is not None:
            others = self.members.lengths - 1
            launching = others[:, None] * overhead
        seconds = kernels + launching
        spread = in_range = None
        with np.errstate(invalid="ignore", divide="ignore"):
            if fine.spread is not None:
                squares = self._summed((fine.spread * fine.seconds) ** 2)
                spread = np.nan_to_num(np.sqrt(squares) / seconds)
        if fine.in_range is not None:
            in_range = ~(self.share_outside(fine) > MOST_OUTSIDE)
        cached = None
        if fine.cached is not None:
            # An operator that a device cannot run makes the segment impossible there.
            left = np.where(np.isfinite(fine.seconds), fine.cached * fine.seconds, 0.0)
            with np.errstate(invalid="ignore", divide="ignore"):
                # Launching takes as long wherever the weights are.
                cached = (self._summed(left) + launching) / seconds
            cached = np.where(cached > 0, cached, 1.0)
        return GraphCosts(seconds, spread, in_range, cached)

    def share_outside(self, fine: GraphCosts) -> np.ndarray:
        """float64[segments, devices]: share of each segment's time that is extrapolated."""
        if fine.in_range is None:
            return np.zeros((len(self.graph), fine.seconds.shape[1]))
        known = np.where(np.isfinite(fine.seconds), fine.seconds, 0.0)
        outside = self._summed(np.where(fine.in_range, 0.0, known))
        total = self._summed(known)
        share: np.ndarray = np.divide(outside, total, out=np.zeros_like(total), where=total > 0)
        return share


def coarsen(
    graph: DataflowGraph, segments: int | Sequence[int] = 1, *, parts: np.ndarray | None = None
) -> Segments:
    """Join operators.

    Args:
        graph: of all operators.
        segments: into how many segments of about equally many consecutive operators; or the index of the
            first operator of each, from 0.
        parts: int[operators], instead: the part of each operator. Segments stand in topological order,
            ties in the order of the parts' numbers.

    Raises:
        InvalidInput: fewer than one segment, or more than operators; starts that do not ascend from 0; parts of
            another number of operators, or that wait for each other.
    """
    owner = _by_starts(graph, segments) if parts is None else _by_parts(graph, parts)
    count = int(owner.max()) + 1
    weights = frozenset(graph.weights)
    kept = {*graph.outputs, *_updated(graph)}
    for tensor, weight in graph.updates.items():
        if any(owner[r] != owner[graph.producer[tensor]] for r in graph.consumers[weight]):
            kept.add(tensor)
    reads: list[list[int]] = [[] for _ in range(count)]
    writes: list[list[int]] = [[] for _ in range(count)]
    for operator in range(len(graph)):
        segment = int(owner[operator])
        for tensor in graph.reads[operator]:
            if tensor not in reads[segment] and _producer(graph, tensor, owner) != segment:
                reads[segment].append(tensor)
        for tensor in graph.writes[operator]:
            outside = any(owner[reader] != segment for reader in graph.consumers[tensor])
            if outside or tensor in kept:
                writes[segment].append(tensor)
    # Weights that the same segments read are one tensor: models of other depths then look alike. What becomes of a
    # weight is known by its name.
    written = {tensor for row in writes for tensor in row}
    changed = {weight for tensor, weight in graph.updates.items() if tensor in written}
    readers: dict[int, tuple[int, ...]] = {}
    for segment, row in enumerate(reads):
        for tensor in row:
            if tensor in weights:
                readers[tensor] = (*readers.get(tensor, ()), segment)
    groups: dict[tuple[int, ...], list[int]] = {}
    for tensor in sorted({*readers, *changed}):
        alone = (-1 - tensor,) if tensor in changed else ()
        groups.setdefault((*readers.get(tensor, ()), *alone), []).append(tensor)
    others = {t for rows in (reads, writes) for row in rows for t in row if t not in weights}
    tensors = [_plain(graph.tensors[t]) for t in sorted(others | set(graph.inputs))]
    position = {t: i for i, t in enumerate(sorted(others | set(graph.inputs)))}
    for group in groups.values():
        position |= dict.fromkeys(group, len(tensors))
        first = graph.tensors[group[0]]
        name = first.name if len(group) == 1 else f"{first.name} and {len(group) - 1} more"
        size = float(graph.tensor_bytes[group].sum())
        tensors.append(Tensor(name, "weight", size))
    operators = [Operator(f"segment{number}", KIND) for number in range(count)]
    coarse = DataflowGraph(
        graph.name,
        operators,
        tensors,
        [list(dict.fromkeys(position[t] for t in row)) for row in reads],
        [[position[t] for t in row] for row in writes],
        graph.results,
        graph.batch,
        _inner_bytes(graph, owner, writes),
        _inner_written(graph, owner, writes),
    )
    return Segments(graph, coarse, owner)


def _by_starts(graph: DataflowGraph, segments: int | Sequence[int]) -> np.ndarray:
    """int64[operators]: the segment of each operator, of consecutive ones."""
    count = len(graph)
    if isinstance(segments, int):
        if not 1 <= segments <= count:
            raise InvalidInput(
                f"Graph '{graph.name}' has {count} operators, which cannot be {segments} segments"
            )
        starts = [number * count // segments for number in range(segments)]
    else:
        starts = [int(start) for start in segments]
        ascends = all(a < b for a, b in itertools.pairwise(starts))
        if not starts or starts[0] != 0 or not ascends or starts[-1] >= count:
            raise InvalidInput(
                f"Segments of graph '{graph.name}' start at {starts}; they must ascend from 0 and stay "
                f"below {count}"
            )
    return np.searchsorted(starts, np.arange(count), side="right") - 1


def _by_parts(graph: DataflowGraph, parts: np.ndarray) -> np.ndarray:
    """int64[operators]: the parts' numbers, in topological order and without gaps."""
    if parts.shape != (len(graph),) or parts.dtype.kind not in "iu":
        raise InvalidInput(
            f"A partition of graph '{graph.name}' gives each of its {len(graph)} operators an integer, got "
            f"{parts.dtype} of shape {parts.shape}"
        )
    numbers, part = np.unique(parts, return_inverse=True)
    source, target = part[graph.edge_source], part[graph.edge_target]
    crossing = source != target
    names = [f"part {number}" for number in numbers.tolist()]
    try:
        order = sorted_topologically(names, source[crossing], target[crossing])
    except InvalidInput:
        raise InvalidInput(_cycle(graph, part, names)) from None
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position[part]


def _cycle(graph: DataflowGraph, part: np.ndarray, names: Sequence[str]) -> str:
    """Two parts that wait for each other, in a sentence."""
    import networkx as nx

    edges = zip(part[graph.edge_source].tolist(), part[graph.edge_target].tolist(), strict=True)
    between = nx.DiGraph(edge for edge in edges if edge[0] != edge[1])
    waiting = min(
        sorted(group) for group in nx.strongly_connected_components(between) if len(group) > 1
    )
    first, second = (
        f"{names[one]} ('{graph.operators[int(np.argmax(part == one))].name}', ...)"
        for one in waiting[:2]
    )
    return (
        f"This partition of graph '{graph.name}' is cyclic: {first} and {second} wait for each other; no path may "
        "leave a part and come back into it"
    )


def _updated(graph: DataflowGraph) -> set[int]:
    """What operators make of weights and inputs in place, as it is at the end."""
    if not graph.changed:
        return set()
    last = dict.fromkeys((*graph.weights, *graph.inputs), False)
    for operator, reads, writes in zip(graph.operators, graph.reads, graph.writes, strict=True):
        if operator.in_place and reads and reads[0] in last:
            del last[reads[0]]
            last[writes[0]] = True
    return {tensor for tensor, changed in last.items() if changed}


def _inner_bytes(
    graph: DataflowGraph, owner: np.ndarray, exported: Sequence[Sequence[int]]
) -> list[float]:
    """For each segment the most bytes of what only its own operators read, one operator after another."""
    outside = {tensor for row in exported for tensor in row}
    most = [0.0] * len(exported)
    used = 0.0
    ends: dict[int, list[int]] = {}  # by the last reader
    for operator in range(len(graph)):
        segment = int(owner[operator])
        for tensor in graph.writes[operator]:
            if tensor not in outside:
                used += float(graph.tensor_bytes[tensor])
                ends.setdefault(max(graph.consumers[tensor], default=operator), []).append(tensor)
        most[segment] = max(most[segment], used)
        used -= float(sum(graph.tensor_bytes[t] for t in ends.pop(operator, ())))
    return most


def _inner_written(
    graph: DataflowGraph, owner: np.ndarray, exported: Sequence[Sequence[int]]
) -> list[float]:
    """For each segment the bytes that its operators write, less those that it writes itself."""
    outside = {tensor for row in exported for tensor in row}
    written = [0.0] * len(exported)
    for operator, row in enumerate(graph.writes):
        inner = (float(graph.tensor_bytes[tensor]) for tensor in row if tensor not in outside)
        written[int(owner[operator])] += sum(inner)
    return written


def _producer(graph: DataflowGraph, tensor: int, owner: np.ndarray) -> int:
    producer = graph.producer[tensor]
    return -1 if producer < 0 else int(owner[producer])


def _plain(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.role, tensor.bytes)
