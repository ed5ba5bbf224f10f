"""First come, first served."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.pricing import check_pricing, estimated_finishes
from simulator.scheduler import Scheduler


class Fcfs(Scheduler):
    """The oldest ready task is held until a device is idle, then goes to the idle device on which it
    is estimated to finish first (ties: the smaller id).

    A task that no idle device can run does not hold up those behind it.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
        by_priority: the oldest ready task of the jobs of highest priority comes first. Nothing that
            runs is interrupted: non-preemptive priorities (Cobham, Operations Research 2(1), 1954,
            doi:10.1287/opre.2.1.70).
    """

    name: ClassVar[str] = "fcfs"

    def __init__(self, pricing: str = "per_link", by_priority: bool = False) -> None:
        self.pricing = check_pricing(pricing)
        self.by_priority = by_priority
        self._queue: list[tuple[int, int, int]] = []  # a heap by priority, age, task
        self._arrived = 0

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in (*context.lost, *context.ready):
            urgency = context.jobs[context.job_of(task)].priority if self.by_priority else 0
            self._arrived += 1
            heappush(self._queue, (-urgency, self._arrived, task))
        idle = context.idle
        skipped = []
        while self._queue and idle:
            entry = heappop(self._queue)
            task = entry[2]
            seconds = context.seconds(task)
            able = [device for device in idle if seconds[device] < math.inf]
            if not able:
                skipped.append(entry)
                continue
            finish, device = min(estimated_finishes(context, task, able, self.pricing))
            context.place(task, device)
            if context.explain:
                name = context.cluster.devices[device].name
                context.explain(
                    f"{context.label(task)} -> {name}: oldest ready, finish {finish:.6g} "
                    f"among {len(able)} idle"
                )
            idle = context.idle
        for entry in skipped:
            heappush(self._queue, entry)
