"""Heterogeneous Scheduling with Improved task Priority.

Source: Wang, Wang, Liu, Guo, "HSIP: A Novel Task Scheduling Algorithm for Heterogeneous Computing",
Scientific Programming 2016, article 3676149, doi:10.1155/2016/3676149; the formula of the priority is
that of TripletRun, which has HSIP among its baselines, with the standard deviation over the devices
(divided by their number) in place of the root of the sum.

The paper also runs the entry task again on other processors where that pays. Tasks run once here, so
that part is left out: this is its priority with HEFT's choice of device. The priority adds seconds
squared (mean times standard deviation) to seconds, so that it depends on the unit, which is the second.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.priorities import rounded_all
from simulator.planners.ranking import Ranking, decreasing
from simulator.planners.ranks import mean_seconds
from simulator.schedulers._dynamic_list import RankedReadyList


def deviations(seconds: np.ndarray) -> np.ndarray:
    """Standard deviation of every operator's time over the devices that can run it; seconds
    [operators, devices].
    """
    able = np.isfinite(seconds)
    mean = np.array(mean_seconds(seconds))[:, None]
    squares = np.where(able, seconds - mean, 0.0) ** 2
    return np.sqrt(squares.sum(axis=1) / able.sum(axis=1))


def ranking(graph: DataflowGraph, seconds: np.ndarray, communication: Communication) -> Ranking:
    """Operators by decreasing rank: mean times standard deviation, mean transfer seconds to all
    successors, and the largest rank of a successor, together.
    """
    edges = mean_edge_seconds(graph, communication)
    rank = (np.array(mean_seconds(seconds)) * deviations(seconds)).tolist()
    for i in range(len(graph) - 1, -1, -1):
        if edges[i]:
            rank[i] += sum(edges[i].values()) + max(rank[j] for j in edges[i])
    ranks = rounded_all(np.array(rank))
    return Ranking(decreasing(ranks), ranks)


class Hsip(OrderedPlanner):
    """Tasks by decreasing rank, to which the spread of their times over the devices counts (ties:
    smaller id), each on the device of earliest finish (ties: smaller id), in gaps where it fits. Planned
    when a job arrives.
    """

    name: ClassVar[str] = "hsip"
    rank = staticmethod(ranking)


class DynamicHsip(RankedReadyList[Ranking]):
    """Ready tasks by decreasing rank of HSIP, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_hsip"
    rank = staticmethod(ranking)
