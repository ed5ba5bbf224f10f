"""Heterogeneous Earliest Finish Time.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.ranking import Ranking, decreasing
from simulator.planners.ranks import upward_ranks
from simulator.schedulers._dynamic_list import RankedReadyList


def ranking(graph: DataflowGraph, seconds: np.ndarray, communication: Communication) -> Ranking:
    """Operators by decreasing upward rank."""
    ranks = upward_ranks(graph, seconds, communication)
    return Ranking(decreasing(ranks), ranks)


class Heft(OrderedPlanner):
    """Tasks by decreasing upward rank (ties: smaller id), each on the device of earliest finish
    (ties: smaller id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "heft"

    rank = staticmethod(ranking)


class DynamicHeft(RankedReadyList[Ranking]):
    """Ready tasks by decreasing upward rank, each at once to the device of least estimated finish."""

    name: ClassVar[str] = "dynamic_heft"

    rank = staticmethod(ranking)
