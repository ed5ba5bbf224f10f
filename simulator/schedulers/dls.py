"""Dynamic Level Scheduling.

Source: Sih, Lee, "A Compile-Time Scheduling Heuristic for Interconnection-Constrained Heterogeneous
Processor Architectures", IEEE TPDS 4(2):175-187, 1993, doi:10.1109/71.207593: the dynamic level for
unequal processors (its DL1). Left out are the two further terms of the paper, for the descendant that
receives most data and for the cost of not getting the preferred processor, and the reservation of links
in its starts; ``dynamic_dls`` prices links as ``pricing`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.pair_planner import PairPlanner
from simulator.planners.pairs import PairRule
from simulator.planners.priorities import rounded_all
from simulator.planners.ranks import longest_ways
from simulator.schedulers._ready_pairs import ReadyPairs


def adjusted_medians(seconds: np.ndarray) -> np.ndarray:
    """float64[operators]: median over all devices, or the largest finite time where that is infinite;
    seconds [operators, devices].
    """
    largest = np.where(np.isfinite(seconds), seconds, -np.inf).max(axis=1)
    median = np.median(seconds, axis=1)
    return np.where(np.isfinite(median), median, largest)


class DynamicLevel(PairRule):
    """The largest dynamic level first: the static level, which is the longest way to the end in median
    times without transfers, and what the device saves against the median, less the earliest start.
    """

    def levels(self, graph: DataflowGraph, seconds: np.ndarray) -> np.ndarray:
        """See :class:`PairRule`."""
        median = adjusted_medians(seconds)
        static = np.array(longest_ways(graph, median.tolist()))
        return np.array(rounded_all(static[:, None] + (median[:, None] - seconds)))

    def urgency(self, start: np.ndarray, level: np.ndarray) -> np.ndarray:
        """See :class:`PairRule`."""
        return -np.array(rounded_all(level - start))

    def compared(self, device: int, urgency: Sequence[float]) -> str:
        """See :class:`PairRule`."""
        others = [u for other, u in enumerate(urgency) if other != device and u < np.inf]
        text = ", ".join(f"{-other:.6g}" for other in others)
        relation = ">" if all(urgency[device] <= other for other in others) else "instead of"
        return f"dynamic level {-urgency[device]:.6g} {relation} {text or 'no other'}"


class Dls(PairPlanner):
    """Of all tasks whose predecessors are planned and all devices, the pair of largest dynamic level
    (ties: larger static part, smaller id, earlier finish, smaller device). Planned when a job arrives.
    """

    name: ClassVar[str] = "dls"
    rule: ClassVar[PairRule] = DynamicLevel()


class DynamicDls(ReadyPairs):
    """Of all ready tasks and all devices, the pair of largest dynamic level, until all are placed."""

    name: ClassVar[str] = "dynamic_dls"
    rule: ClassVar[PairRule] = DynamicLevel()
