"""Heterogeneous Critical Parent Trees.

Source: Hagras, Janecek, "A Simple Scheduling Heuristic for Heterogeneous Computing Environments",
ISPDC 2003, pp. 104-110, doi:10.1109/ISPDC.2003.1267650.

The paper has one exit task. Here several are taken to have one successor of no length that waits for
all of them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.ranking import Ranking, places
from simulator.planners.ranks import path_lengths
from simulator.schedulers._dynamic_list import RankedReadyList


class CriticalParents(Ranking):
    """Critical operators by average earliest start, each after the parents that are not listed yet."""

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        self._length, self._earliest = path_lengths(graph, seconds, communication)
        # A latest start is the longest of all paths less that from the operator on.
        longest = max(self._length)
        starts = list(zip(self._earliest, range(len(graph)), strict=True))
        critical = [i for i, length in enumerate(self._length) if length == longest]
        exits = [i for i, after in enumerate(graph.successors) if not after]
        stack = [*sorted(critical, key=starts.__getitem__), *sorted(exits, key=starts.__getitem__)]
        stack.reverse()
        # What is left of each operator's parents, the next one last.
        parents = [
            sorted(before, key=starts.__getitem__, reverse=True) for before in graph.predecessors
        ]
        listed = [False] * len(graph)
        order = []
        while stack:
            operator = stack[-1]
            left = parents[operator]
            while left and listed[left[-1]]:
                left.pop()
            if left:
                stack.append(left[-1])
                continue
            stack.pop()
            if not listed[operator]:
                listed[operator] = True
                order.append(operator)
        super().__init__(order, places(order))
        self._longest = longest

    def why(self, operator: int) -> str:
        """See :class:`Ranking`."""
        earliest = self._earliest[operator]
        latest = earliest + self._longest - self._length[operator]
        return f"average earliest start {earliest:.6g}, latest {latest:.6g}"


class Hcpt(OrderedPlanner):
    """Critical tasks by average earliest start, before each its unlisted parents, that of earliest
    start first (ties: smaller id); each on the device of earliest finish (ties: smaller id), in gaps
    where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "hcpt"
    rank = CriticalParents


class DynamicHcpt(RankedReadyList[Ranking]):
    """Ready tasks in the order of HCPT, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_hcpt"
    rank = CriticalParents
