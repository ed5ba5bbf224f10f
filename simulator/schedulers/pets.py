"""Performance Effective Task Scheduling.

Source: Ilavarasan, Thambidurai, "Low Complexity Performance Effective Task Scheduling Algorithm for
Heterogeneous Computing Environments", Journal of Computer Science 3(2):94-103, 2007,
doi:10.3844/jcssp.2007.94.103.

The paper rounds ranks to whole units of its tables; in seconds that would level what differs by less.
Here they keep 10 digits, which gives the schedules of its comparisons all the same.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.priorities import rounded_all
from simulator.planners.ranking import Ranking, places
from simulator.planners.ranks import mean_seconds
from simulator.schedulers._dynamic_list import RankedReadyList


class Levels(Ranking):
    """Operators level by level, by decreasing rank within one.

    Attributes:
        level: of every operator, the number of edges on the longest way to it.
        rank: mean seconds, mean transfer seconds to all successors, and the largest rank of a
            predecessor, together.
    """

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        mean, edges = mean_seconds(seconds), mean_edge_seconds(graph, communication)
        self.level = [0] * len(graph)
        received = [0.0] * len(graph)
        rank = [0.0] * len(graph)
        for i, own in enumerate(mean):
            rank[i] = own + sum(edges[i].values()) + received[i]
            for j in edges[i]:
                self.level[j] = max(self.level[j], self.level[i] + 1)
                received[j] = max(received[j], rank[i])
        self.rank = rounded_all(np.array(rank))
        own_times = rounded_all(np.array(mean))
        order = sorted(
            range(len(graph)), key=lambda i: (self.level[i], -self.rank[i], own_times[i], i)
        )
        super().__init__(order, places(order))

    def why(self, operator: int) -> str:
        """See :class:`Ranking`."""
        return f"level {self.level[operator]}, rank {self.rank[operator]:.6g}"


class Pets(OrderedPlanner):
    """Tasks by level, in a level by decreasing rank (ties: smaller mean time, then smaller id), each on
    the device of earliest finish (ties: smaller id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "pets"
    rank = Levels


class DynamicPets(RankedReadyList[Ranking]):
    """Ready tasks in the order of PETS, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_pets"
    rank = Levels
