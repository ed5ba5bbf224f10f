"""Heterogeneous Earliest Finish Time.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.graph import DataflowGraph
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.list_planner import Draft, ListPlanner
from simulator.planners.ranks import mean_seconds, upward_rank
from simulator.priorities import rounded_all
from simulator.ready_list import ReadyList


def upward_ranks(
    graph: DataflowGraph, seconds: np.ndarray, communication: Communication
) -> list[float]:
    """Upward rank of every operator, rounded; seconds [operators, devices]."""
    edges = mean_edge_seconds(graph, communication)
    return rounded_all(np.array(upward_rank(mean_seconds(seconds), edges)))


class Heft(ListPlanner):
    """Tasks by decreasing upward rank (ties: smaller id), each on the device of earliest finish
    (ties: smaller id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "heft"

    def plan(self, draft: Draft) -> None:
        """See :class:`ListPlanner`."""
        graph = draft.graph
        ranks = upward_ranks(graph, np.array(draft.seconds), draft.communication)
        for operator in sorted(range(len(graph)), key=lambda i: (-ranks[i], i)):
            choices = draft.choices(operator)
            best = min(choices)
            draft.book(operator, best)
            draft.explain(operator, f"rank {ranks[operator]:.6g}", best, choices)


class DynamicHeft(ReadyList):
    """Ready tasks by decreasing upward rank, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_heft"

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.scheduler.Scheduler`."""
        super().begin(context)
        self._communication = Communication(context.cluster)

    def priorities(self, context: SchedulingContext, job: int) -> list[float]:
        """See :class:`ReadyList`."""
        return upward_ranks(context.jobs[job].graph, context.cost_matrix(job), self._communication)
