"""The DONF family: the degree of a node decides its priority.

Source: Lin, Li, Jia, Liu, An, "Degree-of-Node Task Scheduling of Fine-Grained Parallel Programs on
Heterogeneous Systems", JCST 34(5):1096-1108, 2019, doi:10.1007/s11390-019-1962-4; the exact rules are
those of the first author's simulator TripletRun.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.model.graph import DataflowGraph
from simulator.schedulers._dynamic_list import ReadyList


def weighted_out_degree(graph: DataflowGraph) -> list[float]:
    """WOD of every operator: the sum over its successors of one over their in-degree."""
    successors = graph.successors_csr
    share = 1.0 / np.maximum(graph.predecessors_csr.lengths, 1)[successors.values]
    return np.bincount(successors.row_of, weights=share, minlength=len(graph)).tolist()


class Donf(ReadyList):
    """Ready tasks by decreasing weighted out-degree, each at once to the device of least estimated
    finish (ties: the task that became ready first, then the smaller id; the device of smaller id).
    """

    name: ClassVar[str] = "donf"

    def priorities(self, context: SchedulingContext, job: int) -> list[float]:
        """See :class:`ReadyList`."""
        return self.degrees(context.jobs[job].graph)

    def degrees(self, graph: DataflowGraph) -> list[float]:
        """Priority of every operator of a graph."""
        return weighted_out_degree(graph)


class DonfLight(Donf):
    """DONF whose tensors each have their route alone (DONFL in TripletRun; with what the links carry
    already: ``pricing=per_edge_aware``). ``donf2`` and ``adon`` take the same pricings.
    """

    name: ClassVar[str] = "donf_light"

    def __init__(self, pricing: str = "per_edge") -> None:
        super().__init__(pricing)


class Donf2(Donf):
    """DONF with one level of look-ahead: ``WOD(i) + alpha * sum of WOD over its successors``.

    Args:
        alpha: weight of the next level.
    """

    name: ClassVar[str] = "donf2"

    def __init__(self, alpha: float = 0.5, pricing: str = "per_link") -> None:
        super().__init__(pricing)
        self.alpha = alpha

    def degrees(self, graph: DataflowGraph) -> list[float]:
        """See :class:`Donf`."""
        wod = weighted_out_degree(graph)
        return [
            own + self.alpha * math.fsum(wod[j] for j in successors)
            for own, successors in zip(wod, graph.successors, strict=True)
        ]


class Adon(Donf2):
    """DONF with all levels: ``ADON(i) = WOD(i) + alpha * sum of ADON over its successors``."""

    name: ClassVar[str] = "adon"

    def degrees(self, graph: DataflowGraph) -> list[float]:
        """See :class:`Donf`."""
        priority = weighted_out_degree(graph)
        for i in range(len(graph) - 1, -1, -1):
            priority[i] += self.alpha * math.fsum(priority[j] for j in graph.successors[i])
        return priority
