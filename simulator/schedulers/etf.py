"""Earliest Task First.

Source: Hwang, Chow, Anger, Lee, "Scheduling Precedence Graphs in Systems with Interprocessor
Communication Times", SIAM Journal on Computing 18(2):244-257, 1989, doi:10.1137/0218016.

The paper has equal processors and leaves ties to a list of priorities. Here that list is the static
level, the longest way to the end in mean times without transfers; and of devices where a task could
start as early, that of earliest finish takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context.scheduler import compared
from simulator.model.graph import DataflowGraph
from simulator.planners.pair_planner import PairPlanner
from simulator.planners.pairs import PairRule
from simulator.planners.priorities import rounded_all
from simulator.planners.ranks import longest_ways, mean_seconds
from simulator.schedulers._ready_pairs import ReadyPairs


class EarliestStart(PairRule):
    """The earliest start first."""

    def levels(self, graph: DataflowGraph, seconds: np.ndarray) -> np.ndarray:
        """See :class:`PairRule`."""
        static = rounded_all(np.array(longest_ways(graph, mean_seconds(seconds))))
        return np.repeat(np.array(static)[:, None], seconds.shape[1], axis=1)

    def urgency(self, start: np.ndarray, level: np.ndarray) -> np.ndarray:
        """See :class:`PairRule`."""
        return start

    def compared(self, device: int, urgency: Sequence[float]) -> str:
        """See :class:`PairRule`."""
        able = [(start, other) for other, start in enumerate(urgency) if start < np.inf]
        return f"start {compared(device, able)}"


class Etf(PairPlanner):
    """Of all tasks whose predecessors are planned and all devices, the pair that can start first (ties:
    larger static level, smaller id, earlier finish, smaller device). Planned when a job arrives.
    """

    name: ClassVar[str] = "etf"
    rule: ClassVar[PairRule] = EarliestStart()


class DynamicEtf(ReadyPairs):
    """Of all ready tasks and all devices, the pair that can start first, until all are placed."""

    name: ClassVar[str] = "dynamic_etf"
    rule: ClassVar[PairRule] = EarliestStart()
