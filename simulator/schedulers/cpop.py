"""Critical Path On a Processor.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.

The paper has one entry task and processors that can run everything. Here the critical path begins at
the entry on the longest path (ties: smaller id). Its device is the one that can run most of it and, of
these, takes the least for that; what it cannot run, or not now because it is down, goes where it ends
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import OrderedPlanner
from simulator.planners.ranking import Option, Ranking, ready_first
from simulator.planners.ranks import path_lengths
from simulator.schedulers._dynamic_list import RankedReadyList


class CriticalPath(Ranking):
    """Priorities by the longest path through each operator.

    Attributes:
        path: operators of the critical path, in its order.
        device: that they are for.
    """

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        priorities, _ = path_lengths(graph, seconds, communication)
        super().__init__(ready_first(graph, priorities), priorities)
        entries = np.flatnonzero(graph.in_degree == 0).tolist()
        operator = min(entries, key=lambda i: (-priorities[i], i))
        self.path = [operator]
        while successors := graph.successors[operator]:
            # One of them has the priority of the entry, and none a larger one.
            operator = min(successors, key=lambda i: (-priorities[i], i))
            self.path.append(operator)
        rows = seconds[self.path]
        able = np.isfinite(rows)
        totals = np.where(able, rows, 0.0).sum(axis=0).tolist()
        counts = able.sum(axis=0).tolist()
        self.device = min(range(len(counts)), key=lambda d: (-counts[d], totals[d], d))
        self._critical = frozenset(self.path)

    def is_critical(self, operator: int) -> bool:
        """Whether an operator is on the critical path."""
        return operator in self._critical

    def why(self, operator: int) -> str:
        """See :class:`Ranking`."""
        critical = "critical, " if operator in self._critical else ""
        return f"{critical}longest path {self.priorities[operator]:.6g}"

    def choose(self, operator: int, options: Sequence[Option]) -> Option:
        """See :class:`Ranking`."""
        if operator in self._critical:
            for option in options:
                if option[1] == self.device:
                    return option
        return min(options)


class Cpop(OrderedPlanner):
    """Ready tasks by decreasing length of the longest path through them (ties: smaller id); those of
    the critical path on the one device that runs it fastest, the others on the device of earliest
    finish (ties: smaller id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "cpop"
    rank = CriticalPath


class DynamicCpop(RankedReadyList[CriticalPath]):
    """Ready tasks by decreasing length of the longest path through them; those of the critical path at
    once to the one device that runs it fastest, while that is up, the others to the device of least
    estimated finish.
    """

    name: ClassVar[str] = "dynamic_cpop"
    rank = CriticalPath

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`simulator.schedulers._dynamic_list.ReadyList`."""
        path = self.ranking(context, context.job_of(task))
        critical = path.is_critical(context.operator_of(task))
        if critical and path.device in devices and context.is_up(path.device):
            return path.device
        return super().choose(context, task, devices)
