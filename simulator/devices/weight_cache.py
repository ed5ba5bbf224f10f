"""Weights that an execution finds cached because something used them a short while ago.

Operator times are of executions that find their weights in memory. An unrolled recurrent layer reads the same
weights at every step, several jobs of one model read them in turn: if little else was touched in between, they
still lie in the cache that the devices of a memory space share, and the execution takes less.

How much of an operator's weights is still there depends on their *reuse distance*: the bytes of its own weights,
of all other weights used in this space since, each once, and of all that was written there since. (R. L. Mattson
et al., *Evaluation techniques for storage hierarchies*, IBM Systems Journal 9(2), 1970.) A
:class:`simulator.model.weight_hit_curve.ReuseCurve` gives the share that is kept at a distance; an execution takes ``1 - kept * (1 - cached)`` of
its time, with ``cached`` the part of it that is left when all its weights are there
(:attr:`simulator.model.costs.GraphCosts.cached`). Shares of several weights are averaged by their bytes.

The curve's shares are of weights that are used at that distance again and again. Of what a use does not find it
leaves a share ``taken`` in the cache, a small one the first time, more when it comes back: weights that were driven out,
or are used for the first time, are there again only after some uses in a row. What was left, and that it was used,
survives the distance to the next use or does not (:meth:`simulator.model.weight_hit_curve.ReuseCurve.survival`). An operator of
several launches uses its weights as often; the first of them finds what was kept.

What is written, within a segment too, counts every time, as if no memory were used twice, and nothing is cached when a run begins: both
err towards the time from memory. Schedulers believe in that time.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.weight_hit_curve import ReuseCurve
from simulator.model.workload import Workload

LOOKED_UP = frozenset({"embedding", "embedding_bag", "gather", "index", "index_select"})
"""Kinds that read of their first tensor no more than they write: which rows, nobody knows beforehand."""

Weight = tuple[str, str, float]
"""Graph, name and bytes: the same for all graphs of a model (:mod:`simulator.analysis.residency`)."""


class WeightCaches:
    """The caches of a cluster's memory spaces, filled by what is executed.

    Args:
        cluster: its spaces have the curves.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._numbers: dict[Weight, int] = {}
        sizes: list[float] = []
        self._sizes = sizes
        self._stacks = [
            None if space.cache is None else _Stack(space.cache, sizes) for space in cluster.spaces
        ]
        self._launches = [device.launches for device in cluster.devices]
        self._space_of = [cluster.space_index[device.space] for device in cluster.devices]
        self._touched: dict[DataflowGraph, _Touched] = {}

    def execute(self, costs: GraphCosts, graph: DataflowGraph, operator: int, device: int) -> float:
        """An operator begins on a device; returns the part of its time that it takes."""
        kept = self.use(graph, operator, device)
        if not kept or costs.cached is None:
            return 1.0
        return 1.0 - kept * (1.0 - float(costs.cached[operator, device]))

    def use(self, graph: DataflowGraph, operator: int, device: int) -> float:
        """An operator begins on a device; returns which share of its weights it finds."""
        stack = self._stacks[self._space_of[device]]
        if stack is None:
            return 0.0
        touched = self._touched_by(graph)
        weights, own = touched.weights[operator], touched.own[operator]
        kept = stack.use(weights, own, self._launches[device])
        stack.written += touched.written[operator]
        return kept

    def kept(self, graph: DataflowGraph, operator: int, space: int) -> float:
        """Which share of its weights an operator would find if it began in a memory space now."""
        stack = self._stacks[space]
        if stack is None:
            return 0.0
        touched = self._touched_by(graph)
        return stack.found(touched.weights[operator], touched.own[operator])

    def _touched_by(self, graph: DataflowGraph) -> _Touched:
        touched = self._touched.get(graph)
        if touched is None:
            touched = self._touched[graph] = _Touched(graph, self._number)
        return touched

    def _number(self, weight: Weight) -> int:
        """The number of a weight, by which stacks know it and its size."""
        number = self._numbers.setdefault(weight, len(self._sizes))
        if number == len(self._sizes):
            self._sizes.append(weight[2])
        return number


def shortest(costs: CostTable, workload: Workload, cluster: Cluster) -> CostTable:
    """The least seconds that executions can take: with all weights cached where somebody else reads them."""
    cached = [cluster.spaces[s].cache is not None for s in cluster.space_of]
    if not any(cached):
        return costs
    graphs = Counter(job.graph.name for job in workload)
    entries = {}
    for graph, entry in costs.items():
        if entry.cached is not None:
            again = np.array(_read_again(graph, graphs[graph.name] > 1))
            left = np.where(again[:, None] & np.array(cached), entry.cached, 1.0)
            entry = replace(entry, seconds=entry.seconds * left)
        entries[graph] = entry
    return CostTable(entries)


def _read_again(graph: DataflowGraph, several: bool) -> list[bool]:
    """For each operator whether something else reads one of its weights; ``several`` jobs do."""
    weights = set(graph.weights)
    return [
        any(t in weights and (several or len(graph.consumers[t]) > 1) for t in row)
        for row in graph.reads
    ]


class _Stack:
    """One cache: weights, the last used last, and what was written in between.

    Args:
        curve: what it keeps.
        sizes: of weights by number, bytes; may grow.
    """

    def __init__(self, curve: ReuseCurve, sizes: Sequence[float]) -> None:
        self.written = 0.0  # bytes, since the run began
        self._curve = curve
        self._farthest = curve.distances[-1]
        self._sizes = sizes
        # By weight the number of its last use, what was written before it, and what it left missing.
        self._used: OrderedDict[int, tuple[int, float, tuple[float, ...]]] = OrderedDict()
        self._uses = 0
        self._bytes = 0.0  # of all of these
        # What was found of weights that somebody asked for since then: many operators read the same.
        self._asked: dict[tuple[int, ...], float] = {}
        self._asked_at = (0, 0.0)

    def use(self, weights: Sequence[int], own: float, uses: int = 1) -> float:
        """Use weights of so many bytes, so often at once; returns which share of them the first use found."""
        if not weights:
            return 0.0
        missing = self._missing(weights, own)
        self._uses += 1
        for weight in weights:
            if weight not in self._used:
                self._bytes += self._sizes[weight]
            now = missing.get(weight, self._curve.unused)
            self._used[weight] = (self._uses, self.written, self._curve.left(now, uses))
            self._used.move_to_end(weight)
        self._forget()
        return self._found(missing, own)

    def found(self, weights: tuple[int, ...], own: float) -> float:
        """Which share of their bytes a use of these weights would find."""
        if not weights:
            return 0.0
        now = (self._uses, self.written)
        if now != self._asked_at:
            self._asked_at = now
            self._asked.clear()
        share = self._asked.get(weights)
        if share is None:
            share = self._asked[weights] = self._found(self._missing(weights, own), own)
        return share

    def _found(self, missing: Mapping[int, tuple[float, ...]], own: float) -> float:
        if not missing:
            return 0.0
        found = sum(self._sizes[weight] * (1.0 - sum(now)) for weight, now in missing.items())
        return max(0.0, found / own)

    def _forget(self) -> None:
        """Drop the weights of the oldest uses, which nothing can find any more."""
        while True:
            first = next(iter(self._used.values()))[0]
            together = list(itertools.takewhile(lambda w: self._used[w][0] == first, self._used))  # noqa: B023
            size = sum(self._sizes[weight] for weight in together)
            if self._bytes - size <= self._farthest:
                return
            for weight in together:
                del self._used[weight]
            self._bytes -= size

    def _missing(self, weights: Sequence[int], own: float) -> dict[int, tuple[float, ...]]:
        """Of weights of which anything is still there what is missing."""
        used = self._used
        known = sum(weight in used for weight in weights)
        found: dict[int, tuple[float, ...]] = {}
        between = beside = 0.0
        use = self._uses
        for weight in reversed(used) if known else ():
            number, written, left = used[weight]
            if number != use:  # weights that were used together are not between each other's uses
                between, beside, use = between + beside, 0.0, number
                if own + between > self._farthest:
                    break
            if weight in weights:
                distance = own + between + self.written - written
                found[weight] = self._curve.survivors(left, self._curve.survival(distance))
                known -= 1
                if not known:
                    break
            else:
                beside += self._sizes[weight]
        return found


class _Touched:
    """What the operators of a graph touch: weights, and bytes that they write.

    Args:
        graph: theirs.
        number: of a weight.

    Attributes:
        weights: of each operator, by number.
        own: bytes of these together.
        written: bytes that each writes.
    """

    def __init__(self, graph: DataflowGraph, number: Callable[[Weight], int]) -> None:
        weights, self.own, self.written = _touched_bytes(graph)
        self.weights = [tuple(map(number, different)) for different in weights]


@lru_cache(maxsize=32)  # every draw of a run asks for the same graphs
def _touched_bytes(
    graph: DataflowGraph,
) -> tuple[list[tuple[Weight, ...]], list[float], list[float]]:
    """The weights that each operator reads, their bytes together, and the bytes that it writes; not to be changed."""
    sizes = graph.tensor_bytes.tolist()
    weights = set(graph.weights)
    inner = graph.inner_written or [0.0] * len(graph)
    written = [
        sum(sizes[t] for t in row) + own for row, own in zip(graph.writes, inner, strict=True)
    ]
    read: list[tuple[Weight, ...]] = []
    for operator, row in zip(graph.operators, graph.reads, strict=True):
        found = []
        for position, tensor in enumerate(row):
            if tensor not in weights or not sizes[tensor]:
                continue
            if operator.kind in LOOKED_UP and position == 0:
                continue
            found.append((graph.name, graph.tensors[tensor].name, sizes[tensor]))
        read.append(tuple(dict.fromkeys(found)))
    return read, [sum(weight[2] for weight in different) for different in read], written


def caches_weights(cluster: Cluster) -> bool:
    """Whether executions may find weights cached in any of the memory spaces."""
    return any(space.cache is not None for space in cluster.spaces)
