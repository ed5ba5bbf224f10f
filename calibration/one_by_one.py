"""Each job where it is said to run: what probes of a machine execute by."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler


class OneByOne(Scheduler):
    """Each job on a given device, its operators in the graph's order, and behind the jobs before it there.

    Args:
        devices: of the jobs, in their order.
    """

    name = "one_by_one"

    def __init__(self, devices: Sequence[int]) -> None:
        self._waiting: list[dict[int, int]] = [{} for _ in devices]
        self._placed = [0] * len(devices)
        self._turns: dict[int, deque[int]] = {}  # jobs that are not all placed, by device
        for job, device in enumerate(devices):
            self._turns.setdefault(device, deque()).append(job)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in context.ready:
            self._waiting[context.job_of(task)][context.operator_of(task)] = task
        for device, jobs in self._turns.items():
            while jobs and jobs[0] < len(context.jobs):
                job = jobs[0]
                while (task := self._waiting[job].pop(self._placed[job], -1)) >= 0:
                    context.place(task, device)
                    self._placed[job] += 1
                if self._placed[job] < len(context.tasks_of(job)):
                    break
                jobs.popleft()
