"""First come, first served."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.schedulers._equal_devices import EqualDevices
from simulator.schedulers._pricing import best_device, check_pricing, estimated_finishes


class Fcfs(Scheduler):
    """The oldest ready task is held until a device is idle, then goes to the idle device on which it
    is estimated to finish first (ties: the smaller id).

    A task that no idle device can run does not hold up those behind it.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
        by_priority: the oldest ready task of the jobs of highest priority comes first. Nothing that
            runs is interrupted: non-preemptive priorities (Cobham, Operations Research 2(1), 1954,
            doi:10.1287/opre.2.1.70).
    """

    name: ClassVar[str] = "fcfs"

    def __init__(self, pricing: str = "per_link", by_priority: bool = False) -> None:
        self.pricing = check_pricing(pricing)
        self.by_priority = by_priority
        self._equal: EqualDevices | None = None
        self._queues: dict[int, deque[int]] = {0: deque()}  # by priority, the oldest first

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self._equal = EqualDevices.of(context, self.pricing, idle_only=True)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        if self._equal:
            self._equal.look()
        if context.lost or context.failed:
            self._queues = {
                priority: deque(task for task in queue if context.is_ready(task))
                for priority, queue in self._queues.items()
            }
        if not self.by_priority:
            queue = self._queues[0]
            queue += context.placeable
            self._serve(queue, context)
            return
        for task in context.placeable:
            priority = context.jobs[context.job_of(task)].priority
            self._queues.setdefault(priority, deque()).append(task)
        for priority in sorted(self._queues, reverse=True):
            self._serve(self._queues[priority], context)

    def _serve(self, queue: deque[int], context: SchedulingContext) -> None:
        skipped = []
        devices, equal = len(context.cluster.devices), self._equal
        while queue:
            if equal and not context.explain:
                if equal.exhausted():
                    break
                task = queue.popleft()
                device = equal.best(task)
                if device < 0:
                    skipped.append(task)
                    continue
                context.place(task, device)
                equal.placed(device)
                continue
            idle = context.idle
            if not idle:
                break
            task = queue.popleft()
            able = context.able(task)
            if len(able) < devices:
                idle = [device for device in idle if device in able]
                if not idle:
                    skipped.append(task)
                    continue
            if context.explain:
                finish, device = min(estimated_finishes(context, task, idle, self.pricing))
                name = context.cluster.devices[device].name
                context.explain(
                    f"{context.label(task)} -> {name}: oldest ready, finish {finish:.6g} "
                    f"among {len(idle)} idle"
                )
            elif len(idle) > 1:
                device = best_device(context, task, idle, self.pricing)
            else:
                device = idle[0]
            context.place(task, device)
        if skipped:
            queue.extendleft(reversed(skipped))
