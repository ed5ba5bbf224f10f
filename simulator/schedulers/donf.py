"""The DONF family: the degree of a node decides its priority.

Source: Lin, Li, Jia, Liu, An, "Degree-of-Node Task Scheduling of Fine-Grained Parallel Programs on
Heterogeneous Systems", JCST 34(5):1096-1108, 2019, doi:10.1007/s11390-019-1962-4; the exact rules are
those of the first author's simulator TripletRun.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.graph import DataflowGraph
from simulator.pricing import best_device, check_pricing, estimated_finishes
from simulator.priorities import rounded_all
from simulator.scheduler import Scheduler


def weighted_out_degree(graph: DataflowGraph) -> list[float]:
    """WOD of every operator: the sum over its successors of one over their in-degree."""
    successors = graph.successors_csr
    share = 1.0 / np.maximum(graph.predecessors_csr.lengths, 1)[successors.values]
    return np.bincount(successors.row_of, weights=share, minlength=len(graph)).tolist()


class Donf(Scheduler):
    """Ready tasks by decreasing weighted out-degree, each at once to the device of least estimated
    finish (ties: the task that became ready first, then the smaller id; the device of smaller id).

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
    """

    name: ClassVar[str] = "donf"

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._ready: list[tuple[float, float, int]] = []
        self._priorities: dict[DataflowGraph, list[float]] = {}

    def priorities(self, graph: DataflowGraph) -> list[float]:
        """Priority of every operator of a graph; larger first."""
        return weighted_out_degree(graph)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        now = context.now
        for task in context.placeable:
            graph = context.jobs[context.job_of(task)].graph
            if graph not in self._priorities:
                self._priorities[graph] = rounded_all(np.array(self.priorities(graph)))
            priority = self._priorities[graph][context.operator_of(task)]
            heappush(self._ready, (-priority, now, task))
        while self._ready:
            negative, _, task = heappop(self._ready)
            able = context.able(task)
            if not context.explain:
                context.place(task, best_device(context, task, able, self.pricing))
            else:
                finishes = estimated_finishes(context, task, able, self.pricing)
                finish, device = min(finishes)
                context.place(task, device)
                name = context.cluster.devices[device].name
                others = ", ".join(f"{f:.6g}" for f, d in finishes if d != device)
                context.explain(
                    f"{context.label(task)} (priority {-negative:.6g}) -> {name}: "
                    f"{finish:.6g} < {others or 'no other'}"
                )


class Donf2(Donf):
    """DONF with one level of look-ahead: ``WOD(i) + alpha * sum of WOD over its successors``.

    Args:
        alpha: weight of the next level.
    """

    name: ClassVar[str] = "donf2"

    def __init__(self, alpha: float = 0.5, pricing: str = "per_link") -> None:
        super().__init__(pricing)
        self.alpha = alpha

    def priorities(self, graph: DataflowGraph) -> list[float]:
        """See :class:`Donf`."""
        wod = weighted_out_degree(graph)
        return [
            own + self.alpha * math.fsum(wod[j] for j in successors)
            for own, successors in zip(wod, graph.successors, strict=True)
        ]


class Adon(Donf2):
    """DONF with all levels: ``ADON(i) = WOD(i) + alpha * sum of ADON over its successors``."""

    name: ClassVar[str] = "adon"

    def priorities(self, graph: DataflowGraph) -> list[float]:
        """See :class:`Donf`."""
        priority = weighted_out_degree(graph)
        for i in range(len(graph) - 1, -1, -1):
            priority[i] += self.alpha * math.fsum(priority[j] for j in graph.successors[i])
        return priority
