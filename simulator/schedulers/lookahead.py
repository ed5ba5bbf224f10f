"""HEFT with a look at the children.

Source: Bittencourt, Sakellariou, Madeira, "DAG Scheduling Using a Lookahead Variant of the Heterogeneous
Earliest Finish Time Algorithm", PDP 2010, pp. 27-34, doi:10.1109/PDP.2010.56: the variant that plans
all children and takes the latest of their finishes, without changing priorities.

A child's parents that are not planned yet are left out of account. Each task costs a plan of all its
children on every device, O(E P^2) evaluations in all: beyond some thousand tasks this is slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapreplace
from typing import ClassVar

import numpy as np

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.list_planner import Choice, Draft, OrderedPlanner, Score
from simulator.planners.ranking import Ranking, decreasing
from simulator.planners.ranks import upward_ranks
from simulator.schedulers._dynamic_list import RankedReadyList
from simulator.schedulers._pricing import estimated_finishes


class Children(Ranking):
    """Operators by decreasing upward rank.

    Attributes:
        children: of every operator the successors by decreasing upward rank.
    """

    def __init__(
        self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication
    ) -> None:
        ranks = upward_ranks(graph, seconds, communication)
        super().__init__(decreasing(ranks), ranks)
        self.children = [sorted(row, key=lambda j: (-ranks[j], j)) for row in graph.successors]


class Lookahead(OrderedPlanner):
    """Tasks by decreasing upward rank (ties: smaller id), each on the device from which the last of its
    children would be done first if they were planned next (ties: its own earlier finish, then smaller
    id), in gaps where it fits. Planned when a job arrives.
    """

    name: ClassVar[str] = "lookahead"
    rank = Children

    def choose(
        self, draft: Draft, ranking: Ranking, operator: int, choices: Sequence[Choice]
    ) -> Choice:
        """See :class:`OrderedPlanner`."""
        best, chosen = math.inf, min(choices)
        if len(choices) > 1:
            for choice in sorted(choices):
                last = self._last_child(draft, ranking, operator, choice, best)
                if last < best:
                    best, chosen = last, choice
        return chosen

    def scores(
        self, draft: Draft, ranking: Ranking, operator: int, choices: Sequence[Choice]
    ) -> list[Score]:
        """See :class:`OrderedPlanner`."""
        return [
            (self._last_child(draft, ranking, operator, choice, math.inf), choice[1])
            for choice in choices
        ]

    def _last_child(
        self, draft: Draft, ranking: Ranking, operator: int, choice: Choice, limit: float
    ) -> float:
        """When the last child would be done, if that is before ``limit``; or else some later time."""
        assert isinstance(ranking, Children)
        children = ranking.children[operator]
        if not children:
            return choice[0]
        last = 0.0
        draft.try_out(operator, choice)
        for child in children:
            best = min(draft.choices(child))
            if best[0] > last:
                last = best[0]
                if last >= limit:
                    break
            draft.try_out(child, best)
        draft.undo()
        return last


class DynamicLookahead(RankedReadyList[Children]):
    """Ready tasks by decreasing upward rank, each at once to the device from which the last of its
    children would be done first: children in order of rank, each appended where it ends first, its data
    from other parents counted as far as it is written. All slots of a device are taken to be free when
    the first is.
    """

    name: ClassVar[str] = "dynamic_lookahead"
    rank = Children

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`simulator.schedulers._dynamic_list.ReadyList`."""
        options = estimated_finishes(context, task, devices, self.pricing)
        scores = self._last_children(context, task, options)
        return min(zip(scores, options, strict=True))[1][1]

    def scores(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> list[Score]:
        """See :class:`simulator.schedulers._dynamic_list.ReadyList`."""
        options = estimated_finishes(context, task, devices, self.pricing)
        scores = self._last_children(context, task, options)
        return [(score, device) for score, (_, device) in zip(scores, options, strict=True)]

    def _last_children(
        self, context: SchedulingContext, task: int, options: Sequence[Score]
    ) -> list[float]:
        """For each finish on a device, when the last child would be done after it."""
        operator = context.operator_of(task)
        graph = context.jobs[context.job_of(task)].graph
        first = task - operator
        children = self.ranking(context, context.job_of(task)).children[operator]
        if not children:
            return [end for end, _ in options]
        cluster = context.cluster
        spaces = sorted({*cluster.space_of})
        devices = range(len(cluster.devices))
        free = context.availabilities(devices)
        sent = []  # by child: bytes of each tensor from this task
        there = []  # by child: space -> when the data of the others is there
        for child in children:
            arrival = dict.fromkeys(spaces, context.now)
            sizes = []
            inputs = context.inputs(first + child)
            for tensor, item in zip(graph.activations_read[child], inputs, strict=True):
                if graph.producer[tensor] == operator:
                    sizes.append(item.bytes)
                elif item.time < math.inf and item.space != EVERYWHERE:
                    for space in spaces:
                        time = context.copy_time(item.tensor, space)
                        if time is None:
                            took = context.transfer_seconds(item.bytes, item.space, space)
                            time = context.now + took
                        arrival[space] = max(arrival[space], time)
            sent.append(sizes)
            there.append(arrival)
        found = []
        for end, device in options:
            # That the task itself takes a slot changes nothing: its children wait for its end.
            slots = [[free[d]] * cluster.devices[d].slots for d in devices]
            home = cluster.space_of[device]
            last = 0.0
            for child, sizes, arrival in zip(children, sent, there, strict=True):
                data = {
                    space: max(
                        arrival[space],
                        *(end + context.transfer_seconds(size, home, space) for size in sizes),
                    )
                    for space in spaces
                }
                seconds = context.seconds(first + child)
                done, place = min(
                    (max(slots[d][0], data[cluster.space_of[d]]) + seconds[d], d)
                    for d in context.able(first + child)
                )
                heapreplace(slots[place], done)
                last = max(last, done)
            found.append(last)
        return found
