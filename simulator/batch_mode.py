"""What batch-mode schedulers share: all ready tasks are mapped together.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from simulator.context import EVERYWHERE, InputTensor, SchedulingContext
from simulator.pricing import check_pricing, data_ready, estimated_finishes, sees_links
from simulator.scheduler import Scheduler


class BatchMode(Scheduler):
    """Maps all tasks that are ready at an instant; each is placed at once.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
        remap: take back tasks that are queued but not started and map them again, as the paper's
            batch mode does. Off by default: data already sent to a device would be sent again.
    """

    def __init__(self, pricing: str = "per_link", remap: bool = False) -> None:
        self.pricing = check_pricing(pricing)
        self.remap = remap
        self._queued: set[int] = set()

    @abstractmethod
    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """Place every one of some ready tasks, at least two, in the order in which they became ready."""

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        tasks = list(context.placeable)
        if self.remap:
            self._queued = {task for task in self._queued if context.is_queued(task)}
            for task in sorted(self._queued):
                context.withdraw(task)
            tasks = sorted([*self._queued, *tasks])
            self._queued.update(tasks)
        if len(tasks) > 1:
            self.map(context, tasks)
            return
        for task in tasks:
            finish, device = min(
                estimated_finishes(context, task, context.able(task), self.pricing)
            )
            explain_commit(context, task, device, finish, "alone")
            context.place(task, device)


Commit = tuple[int, int, float]
"""Task, device, and when it is believed to be done, seconds."""


class Completions:
    """Believed completion times of a batch of ready tasks on every device, while they are placed one
    by one. They are those that pricing each of them anew would give.

    Pricing all ``n`` tasks takes ``n`` times the devices' memory spaces; after each commit only what
    it has changed is priced again: the device, and tasks that share an input with the one it got. With
    a pricing that looks at links a commit may change the way of everybody's data.

    Attributes:
        best: float64[tasks], the smallest completion time.
        device: int64[tasks], the device of it (ties: the smaller id).
        second: float64[tasks], the second smallest; ``inf`` where one device alone can run a task.
    """

    def __init__(self, context: SchedulingContext, tasks: Sequence[int], pricing: str) -> None:
        self._context = context
        self._tasks = tasks
        self._pricing = pricing
        count, devices = len(tasks), range(len(context.cluster.devices))
        self._devices = devices
        self._seconds = np.array([context.seconds(task) for task in tasks], dtype=np.float64)
        self.choices = np.isfinite(self._seconds).sum(axis=1)
        """int64[tasks]: how many devices can run each."""
        self._free = np.array(context.availabilities(devices), dtype=np.float64)
        self._ready = np.array([data_ready(context, task, devices, pricing) for task in tasks])
        self._times = np.maximum(self._free, self._ready) + self._seconds
        self._left = np.ones(count, dtype=bool)
        self.best = np.empty(count)
        self.second = np.empty(count)
        self.device = np.empty(count, dtype=np.int64)
        self._compare(np.arange(count))
        self._aware = sees_links(pricing)
        self._readers: dict[int, list[int]] = {}  # of each tensor that lies somewhere: rows
        if not self._aware:
            for row, task in enumerate(tasks):
                for item in context.inputs(task):
                    if item.space != EVERYWHERE:
                        self._readers.setdefault(item.tensor, []).append(row)

    def rows_left(self) -> Iterator[np.ndarray]:
        """The rows of the tasks that are left, until there are none."""
        while self._left.any():
            yield np.flatnonzero(self._left)

    def commit(self, row: int) -> Commit:
        """Place a task where it is done first."""
        context, task, device = self._context, self._tasks[row], int(self.device[row])
        finish = float(self.best[row])
        if finish == math.inf:  # all that can run it are down
            device = context.able(task)[0]
        inputs: Sequence[InputTensor] = () if self._aware else context.inputs(task)
        context.place(task, device)
        self._left[row] = False
        self._free[device] = context.available(device)
        # Whose best two may be others now.
        moved = self._times[:, device] <= self.second
        column = np.maximum(self._free[device], self._ready[:, device]) + self._seconds[:, device]
        self._times[:, device] = column
        moved |= column <= self.second
        if self._aware:
            moved[:] = True
            changed = np.flatnonzero(self._left).tolist()
        else:
            changed = [r for item in inputs for r in self._readers.get(item.tensor, ())]
        for r in changed:
            if self._left[r]:
                moved[r] = True
                self._ready[r] = data_ready(context, self._tasks[r], self._devices, self._pricing)
                self._times[r] = np.maximum(self._free, self._ready[r]) + self._seconds[r]
        self._compare(np.flatnonzero(moved & self._left))
        return task, device, finish

    def _compare(self, rows: np.ndarray) -> None:
        times = self._times[rows]
        self.device[rows] = times.argmin(axis=1)
        if times.shape[1] == 1:
            self.best[rows], self.second[rows] = times[:, 0], math.inf
        else:
            two = np.partition(times, 1, axis=1)
            self.best[rows], self.second[rows] = two[:, 0], two[:, 1]


def explain_commit(
    context: SchedulingContext, task: int, device: int, finish: float, why: str
) -> None:
    """Say where a task goes, if somebody listens."""
    if context.explain:
        name = context.cluster.devices[device].name
        context.explain(f"{context.label(task)} -> {name}: finish {finish:.6g}, {why}")
