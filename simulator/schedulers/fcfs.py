"""First come, first served."""

from __future__ import annotations

import math
from collections import deque
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
    """

    name: ClassVar[str] = "fcfs"

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._queue: deque[int] = deque()

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self._queue.extend(context.lost)
        self._queue.extend(context.ready)
        idle = context.idle
        skipped = []
        while self._queue and idle:
            task = self._queue.popleft()
            seconds = context.seconds(task)
            able = [device for device in idle if seconds[device] < math.inf]
            if not able:
                skipped.append(task)
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
        self._queue.extendleft(reversed(skipped))
