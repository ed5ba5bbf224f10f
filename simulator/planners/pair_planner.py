"""What static schedulers share that choose task and device together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import Draft, ListPlanner
from simulator.planners.pairs import PairRule, Pairs


class PairPlanner(ListPlanner[np.ndarray]):
    """Of all tasks whose predecessors are planned and all devices, the most urgent pair is planned next.

    A booking changes the starts on its device alone, so only these are worked out again: O(V W P) simple
    steps for W ready tasks at a time, done by columns.

    Args:
        insertion: use gaps between tasks planned already; otherwise append, as the papers do.
    """

    rule: ClassVar[PairRule]

    def __init__(self, insertion: bool = False) -> None:
        super().__init__(insertion)

    def rank(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> np.ndarray:
        """See :class:`ListPlanner`."""
        return self.rule.levels(graph, seconds)

    def plan(self, draft: Draft, ranking: np.ndarray) -> None:
        """See :class:`ListPlanner`."""
        graph, levels = draft.graph, ranking
        successors, pending = graph.successors, graph.in_degree.tolist()
        space_of = np.array(draft.communication.cluster.space_of)
        devices = range(len(space_of))
        pairs = Pairs(len(devices), self.rule)
        released = [operator for operator, count in enumerate(pending) if not count]
        ends = np.array([draft.end(device) for device in devices])
        while released or pairs.count:
            for operator in released:
                data = np.array(draft.data_at(operator))[space_of]
                seconds = np.array(draft.possible(operator))
                row = pairs.add(operator, seconds, levels[operator], data)
                starts = np.maximum(data, ends)
                if self.insertion:
                    for device in np.flatnonzero(seconds < np.inf).tolist():
                        starts[device] = draft.option(operator, device, data[device])[3]
                pairs.set_starts(row, slice(None), starts)
            row, device = pairs.next()
            operator = int(pairs.task[row])
            choice = draft.option(operator, device, float(pairs.data[row, device]))
            if draft.explained:
                level = f"level {levels[operator, device]:.6g}"
                text = self.rule.compared(device, pairs.urgency(row))
                draft.explain(operator, level, choice, text)
            draft.book(operator, choice)
            pairs.remove(row)
            ends[device] = draft.end(device)
            if pairs.count:
                rows = slice(pairs.count)
                data = pairs.data[rows, device]
                starts = np.maximum(data, ends[device])
                if self.insertion:
                    able = np.flatnonzero(pairs.seconds[rows, device] < np.inf)
                    for other in able.tolist():
                        waiting, ready = int(pairs.task[other]), float(data[other])
                        starts[other] = draft.option(waiting, device, ready)[3]
                pairs.set_starts(rows, device, starts)
            released = []
            for successor in successors[operator]:
                pending[successor] -= 1
                if not pending[successor]:
                    released.append(successor)
