"""Which node serves a request: the baselines of edge-node selection.

A request that arises in the memory of a node is served there, unless ``move`` is set. The others go to
one of the nodes of ``among`` (all nodes that can run the request and can be reached, unless given).

Sources: M. Mitzenmacher, *The power of two choices in randomized load balancing*, IEEE TPDS 12(10), 2001,
and *How useful is old information?*, IEEE TPDS 11(1), 2000 (loads seen with a delay make requests herd to
the same node; ties are broken at random).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context.serving import BatchingContext
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.serving.node import Node, Nodes

REFUSED = -1
"""Chosen for a request that is to be refused."""


class Selection(ABC):
    """Base of the selections.

    Args:
        among: names of memory spaces; None: every node.
        move: whether requests that arise at a node may leave it.
        seed: of what is drawn.
    """

    name: ClassVar[str] = ""

    def __init__(
        self, among: Sequence[str] | None = None, move: bool = False, seed: int = 0
    ) -> None:
        self.among = None if among is None else tuple(among)
        self.move = move
        self.rng = np.random.default_rng([seed, 7])

    def begin(self, dispatcher: Nodes) -> None:
        """Called once, before the first request."""
        self._possible: dict[tuple[int, int], list[int]] = {}  # by origin and graph

    def observe(self, context: BatchingContext, dispatcher: Nodes) -> None:  # noqa: B027 - optional to override
        """Called when a decision begins: nothing has changed since the last one ended."""

    def settle(self, context: BatchingContext, dispatcher: Nodes) -> None:  # noqa: B027 - optional to override
        """Called when a decision ends."""

    def choose(self, context: BatchingContext, dispatcher: Nodes, job: int) -> int:
        """The memory space of the node that serves a request that has just arrived, or ``REFUSED``.

        Raises:
            InvalidInput: no node can.
        """
        nodes = dispatcher.nodes
        entry = context.jobs[job]
        origin = -1 if entry.origin is None else context.cluster.space_index[entry.origin]
        if origin in nodes and not self.move and _is_able(context, job, nodes[origin]):
            return origin
        key = (origin, id(entry.graph))
        possible = self._possible.get(key)
        if possible is None:
            possible = self._possible[key] = self._candidates(context, dispatcher, job, origin)
        if context.may_fail:
            up = [s for s in possible if any(map(context.is_up, nodes[s].devices))]
            possible = up or possible
        return self.among_several(context, dispatcher, job, origin, possible)

    @abstractmethod
    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """One of several nodes (memory spaces, ascending) for a request that arose in ``origin``."""

    def _candidates(
        self, context: BatchingContext, dispatcher: Nodes, job: int, origin: int
    ) -> list[int]:
        cluster = context.cluster
        if self.among is None:
            spaces = sorted(dispatcher.nodes)
        else:
            unknown = [name for name in self.among if name not in cluster.space_index]
            if unknown:
                raise InvalidInput(
                    f"Selection '{self.name}' is among '{unknown[0]}', which is no memory space of "
                    f"cluster '{cluster.name}'; it has {', '.join(cluster.space_index)}"
                )
            spaces = [cluster.space_index[name] for name in self.among]
        nodes = dispatcher.nodes
        found = [s for s in spaces if s in nodes and _is_able(context, job, nodes[s])]
        if not found:
            raise InvalidInput(
                f"No node can serve requests of '{context.jobs[job].graph.name}' that arise in "
                f"'{context.jobs[job].origin}'"
            )
        return found

    def randomly(self, values: Sequence[float], possible: Sequence[int]) -> int:
        """The space of the smallest value, ties at random."""
        least = min(values)
        best = [space for space, value in zip(possible, values, strict=True) if value == least]
        return best[0] if len(best) == 1 else best[int(self.rng.integers(len(best)))]


def _is_able(context: BatchingContext, job: int, node: Node) -> bool:
    seconds = context.serving_seconds(context.jobs[job].graph)
    return any(seconds[device] < math.inf for device in node.devices)


class Home(Selection):
    """Where the request arises if devices are there, else the first node."""

    name: ClassVar[str] = "home"

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        return possible[0]


class RandomNode(Selection):
    """Any node, all with the same probability."""

    name: ClassVar[str] = "random"

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        return possible[int(self.rng.integers(len(possible)))]


class RoundRobinNode(Selection):
    """One node after the other."""

    name: ClassVar[str] = "round_robin"

    def begin(self, dispatcher: Nodes) -> None:
        """See :class:`Selection`."""
        super().begin(dispatcher)
        self._next = 0

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        chosen = possible[self._next % len(possible)]
        self._next += 1
        return chosen


class LeastLoaded(Selection):
    """The node with the least work ahead, as it was known when loads were last told.

    Args:
        period: seconds between two tellings of all nodes' loads; 0: always fresh.
        choices: of how many nodes, drawn anew for each request, the least loaded is taken; None: of all.
        among, move, seed: see :class:`Selection`.
    """

    name: ClassVar[str] = "least_loaded"

    def __init__(
        self,
        period: float = 0.0,
        choices: int | None = None,
        among: Sequence[str] | None = None,
        move: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(among, move, seed)
        if not 0 <= period < math.inf:
            raise InvalidInput(f"Loads cannot be told every {period} s; give 0 or more")
        if choices is not None and choices < 1:
            raise InvalidInput(
                f"The least loaded of {choices} nodes does not exist; give at least 1"
            )
        self.period, self.choices = period, choices

    def begin(self, dispatcher: Nodes) -> None:
        """See :class:`Selection`."""
        super().begin(dispatcher)
        self._told: dict[int, float] = dict.fromkeys(dispatcher.nodes, 0.0)
        self._told_at = 0.0

    def observe(self, context: BatchingContext, dispatcher: Nodes) -> None:
        """See :class:`Selection`."""
        if self.period and context.now >= self._told_at + self.period:
            # What was told at the last multiple of the period; nothing has changed since then but
            # what this decision brought.
            self._told_at = math.floor(context.now / self.period) * self.period
            for space, node in dispatcher.nodes.items():
                self._told[space] = dispatcher.backlog_seconds(context, node)

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        if self.choices is not None and self.choices < len(possible):
            drawn = self.rng.choice(len(possible), self.choices, replace=False)
            possible = [possible[int(i)] for i in drawn]
        if self.period:
            return self.randomly([self._told[space] for space in possible], possible)
        nodes = dispatcher.nodes
        loads = [
            dispatcher.backlog_seconds(context, nodes[space]) + dispatcher.coming_seconds(space)
            for space in possible
        ]
        return self.randomly(loads, possible)


class PowerOfTwo(LeastLoaded):
    """The less loaded of two nodes drawn for each request."""

    name: ClassVar[str] = "power_of_two"

    def __init__(
        self,
        period: float = 0.0,
        among: Sequence[str] | None = None,
        move: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(period, 2, among, move, seed)


class EarliestFinish(Selection):
    """The node that is believed to answer first: its way there, the work ahead of it, its own time.

    What :mod:`simulator.schedulers.mct` does for single tasks. ``among``, ``move``, ``seed``: see
    :class:`Selection`.
    """

    name: ClassVar[str] = "earliest_finish"

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        finishes = [
            believed_finish(context, dispatcher, job, origin, space)[0] for space in possible
        ]
        return self.randomly(finishes, possible)


def believed_finish(
    context: BatchingContext,
    dispatcher: Nodes,
    job: int,
    origin: int,
    space: int,
    graphs: Sequence[DataflowGraph] | None = None,
) -> tuple[float, float, float]:
    """When a request would be answered by a node, the seconds of work ahead of it there, and its own.

    It arose in the memory space ``origin`` (-1: everywhere); the fastest of ``graphs`` serves it, its own
    unless given.
    """
    entry = context.jobs[job]
    node = dispatcher.nodes[space]
    fastest = min(
        context.serving_seconds(graph)[device]
        for graph in graphs or (entry.graph,)
        for device in node.devices
    )
    backlog = dispatcher.backlog_seconds(context, node) + dispatcher.coming_seconds(space)
    arrives, back = context.now, 0.0
    if origin >= 0 and origin != space:
        sizes = entry.graph.tensor_bytes
        into = float(sum(sizes[t] for t in entry.graph.inputs))
        out = float(sum(sizes[t] for t in entry.graph.outputs))
        arrives = context.transfer_end(into, origin, space)
        back = context.transfer_seconds(out, space, origin)
    return max(arrives, context.now + backlog) + fastest + back, backlog, fastest


class DeadlineAware(Selection):
    """The least loaded node, for its speed, of those that are believed to answer in time.

    ``EFT = now + upload + backlog + execution + return`` by the fastest variant that is accurate enough.
    Of the nodes with ``EFT <= deadline`` the one with the least work ahead relative to its speed, which
    keeps fast nodes free for tight deadlines; ties by EFT. If there is none: the earliest EFT, or with
    ``admission`` the request is refused at once.

    Args:
        admission: refuse what no node is believed to answer in time.
        among, move, seed: see :class:`Selection`.

    Source: thesis 000 (offloading by server load, server performance and deadline).
    """

    name: ClassVar[str] = "deadline"

    def __init__(
        self,
        admission: bool = False,
        among: Sequence[str] | None = None,
        move: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(among, move, seed)
        self.admission = admission

    def among_several(
        self,
        context: BatchingContext,
        dispatcher: Nodes,
        job: int,
        origin: int,
        possible: Sequence[int],
    ) -> int:
        """See :class:`Selection`."""
        entry = context.jobs[job]
        deadline = math.inf if entry.deadline is None else entry.deadline
        graphs = context.variants_of(job)
        rows = []
        for space in possible:
            finish, backlog, fastest = believed_finish(
                context, dispatcher, job, origin, space, graphs
            )
            # Backlog and speed are both relative to this request: how many of it lie ahead.
            rows.append((backlog / fastest if fastest else 0.0, finish, space))
        in_time = [row for row in rows if row[1] <= deadline]
        if in_time:
            return min(in_time)[2]
        if self.admission and deadline < math.inf:
            return REFUSED
        return min(rows, key=lambda row: (row[1], row[2]))[2]
