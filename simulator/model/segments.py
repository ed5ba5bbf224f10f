"""Coarse graphs: consecutive operators, up to the whole model, as single ones.

Serving runs on them: a request then is one task for each segment, whose time is that of the operators in
it, one after another. What a segment writes for later ones keeps its name and its bytes; of what only its
own operators read the most that lies there at once is left, as the segment's ``inner_bytes``, and what is written
in all, which goes through the cache, as its ``inner_written``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor

MOST_OUTSIDE = 0.1
"""Share of a segment's time that may be extrapolated for the segment to count as in range."""
KIND = "segment"
"""Kind of the operators of coarse graphs."""


@dataclass(frozen=True)
class Segments:
    """A coarse graph and what it is made of.

    Attributes:
        fine: the graph of all operators.
        graph: its segments.
        starts: index of each segment's first operator, ascending from 0.
    """

    fine: DataflowGraph
    graph: DataflowGraph
    starts: tuple[int, ...]

    def costs(self, fine: GraphCosts, overhead: np.ndarray | None = None) -> GraphCosts:
        """Times of the segments: sums of their operators' times on each device.

        ``overhead`` (float64[devices]) is a launch's, which a device adds to each task: a segment, one
        task, brings along what its other operators would cost.

        A segment extrapolates where operators of more than a tenth of its time do. Spreads of operators, which are
        noise and independent of each other, add up in quadrature.
        """
        kernels = np.add.reduceat(fine.seconds, self.starts, axis=0)
        launching = np.zeros_like(kernels)
        if overhead is not None:
            others = np.diff([*self.starts, len(self.fine)]) - 1
            launching = others[:, None] * overhead
        seconds = kernels + launching
        spread = in_range = None
        with np.errstate(invalid="ignore", divide="ignore"):
            if fine.spread is not None:
                squares = np.add.reduceat((fine.spread * fine.seconds) ** 2, self.starts, axis=0)
                spread = np.nan_to_num(np.sqrt(squares) / seconds)
        if fine.in_range is not None:
            in_range = ~(self.share_outside(fine) > MOST_OUTSIDE)
        cached = None
        if fine.cached is not None:
            # An operator that a device cannot run makes the segment impossible there.
            left = np.where(np.isfinite(fine.seconds), fine.cached * fine.seconds, 0.0)
            with np.errstate(invalid="ignore", divide="ignore"):
                # Launching takes as long wherever the weights are.
                cached = (np.add.reduceat(left, self.starts, axis=0) + launching) / seconds
            cached = np.where(cached > 0, cached, 1.0)
        return GraphCosts(seconds, spread, in_range, cached)

    def share_outside(self, fine: GraphCosts) -> np.ndarray:
        """float64[segments, devices]: share of each segment's time that is extrapolated."""
        if fine.in_range is None:
            return np.zeros((len(self.starts), fine.seconds.shape[1]))
        known = np.where(np.isfinite(fine.seconds), fine.seconds, 0.0)
        outside = np.add.reduceat(np.where(fine.in_range, 0.0, known), self.starts, axis=0)
        total = np.add.reduceat(known, self.starts, axis=0)
        share: np.ndarray = np.divide(outside, total, out=np.zeros_like(total), where=total > 0)
        return share


def coarsen(graph: DataflowGraph, segments: int | Sequence[int] = 1) -> Segments:
    """Join consecutive operators.

    Args:
        graph: of all operators.
        segments: into how many segments of about equally many operators; or the index of the first
            operator of each, from 0.

    Raises:
        InvalidInput: fewer than one segment, or more than operators; starts that do not ascend from 0.
    """
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
    owner = np.searchsorted(starts, np.arange(count), side="right") - 1
    weights = frozenset(graph.weights)
    reads: list[list[int]] = [[] for _ in starts]
    writes: list[list[int]] = [[] for _ in starts]
    for operator in range(count):
        segment = int(owner[operator])
        for tensor in graph.reads[operator]:
            if tensor not in reads[segment] and _producer(graph, tensor, owner) != segment:
                reads[segment].append(tensor)
        for tensor in graph.writes[operator]:
            outside = any(owner[reader] != segment for reader in graph.consumers[tensor])
            if outside or tensor in graph.outputs:
                writes[segment].append(tensor)
    # Weights that the same segments read are one tensor: models of other depths then look alike.
    readers: dict[int, tuple[int, ...]] = {}
    for segment, row in enumerate(reads):
        for tensor in row:
            if tensor in weights:
                readers[tensor] = (*readers.get(tensor, ()), segment)
    groups: dict[tuple[int, ...], list[int]] = {}
    for tensor in sorted(readers):
        groups.setdefault(readers[tensor], []).append(tensor)
    others = {t for rows in (reads, writes) for row in rows for t in row if t not in weights}
    tensors = [_plain(graph.tensors[t]) for t in sorted(others | set(graph.inputs))]
    position = {t: i for i, t in enumerate(sorted(others | set(graph.inputs)))}
    for group in groups.values():
        position |= dict.fromkeys(group, len(tensors))
        first = graph.tensors[group[0]]
        name = first.name if len(group) == 1 else f"{first.name} and {len(group) - 1} more"
        size = float(graph.tensor_bytes[group].sum())
        tensors.append(Tensor(name, "weight", size))
    operators = [Operator(f"segment{number}", KIND) for number in range(len(starts))]
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
    return Segments(graph, coarse, tuple(starts))


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
