"""Predict Earliest Finish Time.

Source: Arabnejad, Barbosa, "List Scheduling Algorithm for Heterogeneous Systems by an Optimistic Cost
Table", IEEE TPDS 25(3):682-694, 2014, doi:10.1109/TPDS.2013.57.

The paper has one memory for each processor. Here devices may share a memory space, and the table counts
no transfer between those that do. The rank is the mean over the devices that can run the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.priorities import rounded, rounded_all
from simulator.planners.ranking import Option, Ranking, ready_first
from simulator.planners.ranks import mean_seconds
from simulator.schedulers._dynamic_list import RankedReadyList
from simulator.schedulers._pricing import estimated_finishes


def optimistic_cost_table(
    graph: DataflowGraph, seconds: np.ndarray, communication: Communication
) -> np.ndarray:
    """float64[operators, devices]: the longest way from the end of each operator on each device to the
    end of the graph if every successor runs where its own way is shortest, seconds.
    """
    edges = mean_edge_seconds(graph, communication)
    space_of = communication.cluster.space_of
    groups = [np.flatnonzero(np.array(space_of) == space) for space in sorted({*space_of})]
    alone = len(groups) == len(space_of)
    table = np.zeros(seconds.shape)
    near = np.empty(seconds.shape)  # an operator and what follows it, run in each device's space
    anywhere = np.empty((len(graph), 1))
    for i in range(len(graph) - 1, -1, -1):
        if edges[i]:
            successors = list(edges[i])
            moved = anywhere[successors] + np.array([list(edges[i].values())]).T
            table[i] = np.minimum(near[successors], moved).max(axis=0)
        run = table[i] + seconds[i]
        anywhere[i] = run.min()
        if alone:
            near[i] = run
        else:
            for group in groups:
                near[i, group] = run[group].min()
    return table


class OptimisticCosts(Ranking):
    """Priorities by the mean of each row of the optimistic cost table.

    Attributes:
        table: [operator][device] seconds.
    """

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        table = optimistic_cost_table(graph, seconds, communication)
        able = np.where(np.isfinite(seconds), table, np.inf)
        priorities = rounded_all(np.array(mean_seconds(able)))
        super().__init__(ready_first(graph, priorities), priorities)
        self.table: list[list[float]] = table.tolist()

    def why(self, operator: int) -> str:
        """See :class:`Ranking`."""
        row = " ".join(f"{value:.6g}" for value in self.table[operator])
        return f"OCT {row}, rank {self.priorities[operator]:.6g}"

    def choose(self, operator: int, options: Sequence[Option]) -> Option:
        """See :class:`Ranking`."""
        row = self.table[operator]
        sums = [option[0] + row[option[1]] for option in options]
        limit = min(sums) * (1 + 1e-8)  # beyond it no score can be the least after rounding
        close = [option for option, total in zip(options, sums, strict=True) if total <= limit]
        if len(close) == 1:
            return close[0]
        return min(close, key=lambda option: (self.score(operator, option), option))

    def score(self, operator: int, option: Option) -> float:
        """See :class:`Ranking`."""
        return rounded(option[0] + self.table[operator][option[1]])


class Peft(OrderedPlanner):
    """Ready tasks by decreasing mean of their row of the optimistic cost table (ties: smaller id), each
    on the device where its finish plus what the table adds is least (ties: earlier finish, then smaller
    id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "peft"
    rank = OptimisticCosts


class DynamicPeft(RankedReadyList[OptimisticCosts]):
    """Ready tasks by decreasing mean of their row of the optimistic cost table, each at once to the
    device where its estimated finish plus what the table adds is least.
    """

    name: ClassVar[str] = "dynamic_peft"
    rank = OptimisticCosts

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`simulator.schedulers._dynamic_list.ReadyList`."""
        ranking = self.ranking(context, context.job_of(task))
        options = estimated_finishes(context, task, devices, self.pricing)
        return ranking.choose(context.operator_of(task), options)[1]

    def scores(
        self, context: SchedulingContext, task: int, devices: Sequence[int]
    ) -> list[tuple[float, int]]:
        """See :class:`simulator.schedulers._dynamic_list.ReadyList`."""
        ranking, operator = self.ranking(context, context.job_of(task)), context.operator_of(task)
        options = estimated_finishes(context, task, devices, self.pricing)
        return [(ranking.score(operator, option), option[1]) for option in options]
