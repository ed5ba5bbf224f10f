"""Jobs by priority; those of higher priority may push queued tasks of the others back."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.schedulers._pricing import check_pricing, estimated_finishes


class Priority(Scheduler):
    """Ready tasks by their job's priority, then by age, each at once to the device on which it is
    estimated to finish first (ties: the smaller id).

    With ``preempt``, tasks that wait in queues are withdrawn when a task of a job of higher priority
    becomes ready, and placed again behind it, perhaps elsewhere. What runs, or was submitted to a
    device ahead, is never touched; data that was sent for a withdrawn task stays where it went.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
        preempt: withdraw; without it a task waits behind everything that was placed before it.
    """

    name: ClassVar[str] = "priority"

    def __init__(self, pricing: str = "per_link", preempt: bool = True) -> None:
        self.pricing = check_pricing(pricing)
        self.preempt = preempt
        self._keys: dict[int, tuple[int, int]] = {}  # of placed tasks: urgency and age
        self._seen = 0

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        waiting: list[tuple[int, int, int]] = []
        for task in context.placeable:
            self._seen += 1
            urgency = context.jobs[context.job_of(task)].priority
            heappush(waiting, (-urgency, self._seen, task))
        if not waiting:
            return
        if self.preempt:
            self._withdraw(context, waiting)
        while waiting:
            urgency, age, task = heappop(waiting)
            seconds = context.seconds(task)
            able = [device for device, time in enumerate(seconds) if time < math.inf]
            finish, device = min(estimated_finishes(context, task, able, self.pricing))
            context.place(task, device)
            self._keys[task] = (urgency, age)
            if context.explain:
                name = context.cluster.devices[device].name
                context.explain(
                    f"{context.label(task)} (priority {-urgency}) -> {name}: finish {finish:.6g}"
                )

    def _withdraw(self, context: SchedulingContext, waiting: list[tuple[int, int, int]]) -> None:
        """Let queued tasks that are less urgent than the most urgent one wait again."""
        most_urgent = waiting[0][0]
        self._keys = {task: key for task, key in self._keys.items() if context.is_queued(task)}
        for task, (urgency, age) in list(self._keys.items()):
            if urgency > most_urgent:
                context.withdraw(task)
                del self._keys[task]
                heappush(waiting, (urgency, age, task))
                if context.explain:
                    context.explain(f"{context.label(task)} (priority {-urgency}) is withdrawn")
