"""Serving by deadline and accuracy: urgent requests first, by the best model that time allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from simulator.context.serving import BatchingContext
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.serving.dispatching import Choice, Dispatcher
from simulator.serving.node import Group, Node

ORDERS = ("urgency", "edf", "fcfs")
CHOICES = ("best", "fastest", "own")


@dataclass
class _Waiting:
    """A waiting request in the plan of a node."""

    job: int
    group: Group
    deadline: float
    accuracy_sensitivity: float
    options: list[tuple[float, float, DataflowGraph]]
    """Seconds, accuracy and graph of each variant that is worth having, from the fastest on."""
    urgency: float = 0.0
    chosen: int = 0

    @property
    def seconds(self) -> float:
        return self.options[self.chosen][0]


class DeadlineAccuracy(Dispatcher):
    """Requests in the order of urgency, each by the most accurate model that lets all be in time.

    Urgency is ``time sensitivity / (deadline - now - t)`` with the time ``t`` of the fastest variant that
    is accurate enough, infinite where nothing is left of it. A request that can no longer be in time is
    refused. All start with their fastest variant; then the upgrade of the largest ``accuracy sensitivity *
    gained accuracy / lost time`` is made, as long as every deadline that held before still holds. If the
    order of urgency misses deadlines that the order of deadlines meets, the latter is kept. Of requests that
    cannot all be in time those of the longest times wait behind the others (Moore and Hodgson's rule).

    Args:
        order: ``urgency``, ``edf``, or ``fcfs``: of arrival.
        variants: ``best`` as above, ``fastest`` always, or ``own``: the model that was asked for.
        drop: refuse what can no longer be in time.
        select, packing: see :class:`simulator.serving.dispatching.Dispatcher`.

    Raises:
        InvalidInput: an option is unknown.

    Source: thesis 000 (model variant and order by time and accuracy sensitivity); J. M. Moore, *An n job, one
    machine sequencing algorithm for minimizing the number of late jobs*, Management Science 15(1), 1968.
    """

    name: ClassVar[str] = "deadline_accuracy"

    def __init__(
        self,
        order: str = "urgency",
        variants: str = "best",
        drop: bool = True,
        select: str | Mapping[str, Any] = "deadline",
        packing: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(1, select, packing)
        if order not in ORDERS:
            raise InvalidInput(f"There is no order '{order}'; known: {', '.join(ORDERS)}")
        if variants not in CHOICES:
            raise InvalidInput(
                f"There is no choice of variants '{variants}'; known: {', '.join(CHOICES)}"
            )
        self.order, self.variants, self.drop = order, variants, drop

    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """See :class:`Dispatcher`."""
        waiting = self._plan(context, node, device)
        if not waiting:
            return None
        first = waiting[0]
        first.group.queue.remove(first.job)
        first.group.queue.appendleft(first.job)
        graph = first.options[first.chosen][2]
        return Choice(first.group, 1, None if graph is first.group.graph else graph)

    def _plan(self, context: BatchingContext, node: Node, device: int) -> list[_Waiting]:
        """What waits at a node in the order in which the device is to serve it, variants chosen."""
        now = context.now
        waiting = []
        for group in node.groups.values():
            for job in list(group.queue):
                entry = self._waiting(context, group, job, device)
                if entry.options[0][0] == math.inf:
                    continue
                if self.drop and now + entry.options[0][0] > entry.deadline:
                    group.queue.remove(job)
                    context.reject(job, "its deadline can no longer be met")
                    continue
                slack = entry.deadline - now - entry.options[0][0]
                sensitivity = context.jobs[job].time_sensitivity
                entry.urgency = sensitivity / slack if slack > 0 else math.inf
                waiting.append(entry)
        if self.order == "fcfs":
            waiting.sort(key=lambda w: (context.jobs[w.job].arrival, w.job))
            if self.variants == "best":
                self._upgrade(waiting, now)
            return waiting
        # The devices of a node that are free as well share the work; the plan is of one.
        by_deadline = sorted(waiting, key=lambda w: (w.deadline, w.job))
        in_time, late = moore_hodgson(
            [(w.seconds, w.deadline - now) for w in by_deadline],
            [w.accuracy_sensitivity for w in by_deadline],
        )
        ordered = [by_deadline[i] for i in in_time]
        behind = [by_deadline[i] for i in late]
        if self.order == "urgency":
            urgent = sorted(ordered, key=lambda w: (-w.urgency, w.deadline, w.job))
            if holds([(w.seconds, w.deadline - now) for w in urgent]):
                ordered = urgent
        if self.variants == "best":
            self._upgrade(ordered, now)
        return ordered + behind

    def _waiting(self, context: BatchingContext, group: Group, job: int, device: int) -> _Waiting:
        entry = context.jobs[job]
        graphs = context.variants_of(job)[: 1 if self.variants == "own" else None]
        found = [(context.serving_seconds(g)[device], context.accuracy_of(g), g) for g in graphs]
        enough = [row for row in found if row[1] >= entry.least_accuracy] or found[:1]
        options: list[tuple[float, float, DataflowGraph]] = []
        for row in sorted(enough, key=lambda row: (row[0], -row[1])):
            # Slower must be more accurate, and possible.
            if not options or (row[1] > options[-1][1] and row[0] < math.inf):
                options.append(row)
        deadline = math.inf if entry.deadline is None else entry.deadline
        return _Waiting(job, group, deadline, entry.accuracy_sensitivity, options)

    def _upgrade(self, ordered: Sequence[_Waiting], now: float) -> None:
        """Give time that is left to accuracy, where it is worth most."""
        closed: set[int] = set()
        while True:
            best: tuple[float, int] | None = None
            for number, entry in enumerate(ordered):
                if number in closed or entry.chosen + 1 == len(entry.options):
                    continue
                before, after = entry.options[entry.chosen], entry.options[entry.chosen + 1]
                lost = after[0] - before[0]
                gain = entry.accuracy_sensitivity * (after[1] - before[1])
                value = gain / lost if lost > 0 else math.inf
                if best is None or value > best[0]:
                    best = (value, number)
            if best is None:
                return
            entry = ordered[best[1]]
            entry.chosen += 1
            if not holds([(w.seconds, w.deadline - now) for w in ordered]):
                entry.chosen -= 1
                closed.add(best[1])


def holds(tasks: Sequence[tuple[float, float]]) -> bool:
    """Whether all of (seconds, deadline), run in this order from 0, are in time."""
    end = 0.0
    for seconds, deadline in tasks:
        end += seconds
        if end > deadline:
            return False
    return True


def moore_hodgson(
    tasks: Sequence[tuple[float, float]], weights: Sequence[float] | None = None
) -> tuple[list[int], list[int]]:
    """The largest set of tasks that one machine can run in time, all of them released at 0.

    Args:
        tasks: (seconds, deadline) in the order of deadlines.
        weights: of equally long ones the lightest is left out first; None: the last.

    Returns:
        Indices of those in time, in that order, and of the others.
    """
    kept: list[int] = []
    late: list[int] = []
    end = 0.0
    for number, (seconds, deadline) in enumerate(tasks):
        kept.append(number)
        end += seconds
        if end > deadline:
            longest = max(kept, key=lambda i: (tasks[i][0], -weights[i] if weights else 0.0, i))
            kept.remove(longest)
            late.append(longest)
            end -= tasks[longest][0]
    return kept, sorted(late)
