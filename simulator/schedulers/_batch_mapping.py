"""What batch-mode schedulers share: all ready tasks are mapped together.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set

import numpy as np

from simulator.context import EVERYWHERE, InputTensor, SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.planners.priorities import rounded, rounded_all
from simulator.schedulers._pricing import check_pricing, data_ready, estimated_finishes, sees_links


class BatchMode(Scheduler):
    """Maps all tasks that are ready at an instant; each is placed at once.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
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


FEW = 16
"""Tasks up to which lists are faster than arrays: two to three times for two to four tasks on two to eight
devices, and hardly any more for 16 on eight (``python -m tests.benchmarks.few_ready``)."""


def completions(context: SchedulingContext, tasks: Sequence[int], pricing: str) -> Completions:
    """Believed completion times of a batch, kept in what is faster for its size."""
    kept_in = FewCompletions if len(tasks) <= FEW else ManyCompletions
    return kept_in(context, tasks, pricing)


class Completions(ABC):
    """Believed completion times of a batch of ready tasks on every device, while they are placed one
    by one. They are those that pricing each of them anew would give. A task is named by its row: its
    place in the batch. Its length is how many tasks are left.

    Pricing all ``n`` tasks takes ``n`` times the devices' memory spaces; after each commit only what
    it has changed is priced again: the device, and tasks that share an input with the one it got. With
    a pricing that looks at links a commit may change the way of everybody's data.
    """

    def __init__(self, context: SchedulingContext, tasks: Sequence[int], pricing: str) -> None:
        self._context = context
        self._tasks = tasks
        self._pricing = pricing
        self._devices = range(len(context.cluster.devices))
        self._aware = sees_links(pricing)
        self._readers: dict[int, list[int]] = {}  # of each tensor that lies somewhere: rows
        if not self._aware:
            for row, task in enumerate(tasks):
                for item in context.inputs(task):
                    if item.space != EVERYWHERE:
                        self._readers.setdefault(item.tensor, []).append(row)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def smallest(self) -> int:
        """Whose best completion time is the smallest (ties: the smaller row)."""

    @abstractmethod
    def largest(self) -> int:
        """Whose best completion time is the largest (ties: the smaller row)."""

    @abstractmethod
    def suffers_most(self) -> tuple[int, float]:
        """Who loses most where the best device is not to be had, and how many seconds: 0 where there is
        no other, or where all are down (ties: the smaller row).
        """

    def commit(self, row: int) -> Commit:
        """Place a task where it is done first (ties: the device of smaller id)."""
        context, task = self._context, self._tasks[row]
        finish, device = self._best(row)
        if finish == math.inf:  # all that can run it are down
            device = context.able(task)[0]
        inputs: Sequence[InputTensor] = () if self._aware else context.inputs(task)
        context.place(task, device)
        self._update(
            row, device, {r for item in inputs for r in self._readers.get(item.tensor, ())}
        )
        return task, device, finish

    @abstractmethod
    def _best(self, row: int) -> tuple[float, int]:
        """Smallest completion time of a task, seconds, and the device of it."""

    @abstractmethod
    def _update(self, row: int, device: int, sharing: Set[int]) -> None:
        """A task has been placed on a device; some share an input with it."""

    def _data_ready(self, row: int) -> list[float]:
        return data_ready(self._context, self._tasks[row], self._devices, self._pricing)


class FewCompletions(Completions):
    """In lists."""

    def __init__(self, context: SchedulingContext, tasks: Sequence[int], pricing: str) -> None:
        super().__init__(context, tasks, pricing)
        self._seconds = [context.seconds(task) for task in tasks]
        self._free = list(context.availabilities(self._devices))
        self._left = list(range(len(tasks)))
        self._ready = [self._data_ready(row) for row in self._left]
        self._times: list[list[float]] = [[]] * len(tasks)
        self._first: list[float] = [0.0] * len(tasks)
        self._compare()

    def __len__(self) -> int:
        return len(self._left)

    def smallest(self) -> int:
        """See :class:`Completions`."""
        return min(self._left, key=self._first.__getitem__)

    def largest(self) -> int:
        """See :class:`Completions`."""
        return max(self._left, key=self._first.__getitem__)

    def suffers_most(self) -> tuple[int, float]:
        """See :class:`Completions`."""
        losses = [self._loss(row) for row in self._left]
        loss = max(losses)
        return self._left[losses.index(loss)], loss

    def _loss(self, row: int) -> float:
        choices = sum(seconds < math.inf for seconds in self._seconds[row])
        first = self._first[row]
        if choices < 2 or first == math.inf:
            return 0.0
        return rounded(sorted(self._times[row])[1] - first)

    def _best(self, row: int) -> tuple[float, int]:
        first = self._first[row]
        return first, self._times[row].index(first)

    def _update(self, row: int, device: int, sharing: Set[int]) -> None:
        self._left.remove(row)
        self._free[device] = self._context.available(device)
        for r in self._left:
            if self._aware or r in sharing:
                self._ready[r] = self._data_ready(r)
        self._compare()

    def _compare(self) -> None:
        for row in self._left:
            self._times[row] = times = [
                (free if free > ready else ready) + seconds
                for free, ready, seconds in zip(
                    self._free, self._ready[row], self._seconds[row], strict=True
                )
            ]
            self._first[row] = min(times)


class ManyCompletions(Completions):
    """In arrays."""

    def __init__(self, context: SchedulingContext, tasks: Sequence[int], pricing: str) -> None:
        super().__init__(context, tasks, pricing)
        count = len(tasks)
        self._seconds = np.array([context.seconds(task) for task in tasks], dtype=np.float64)
        self._choices = np.isfinite(self._seconds).sum(axis=1)  # devices that can run each
        self._free = np.array(context.availabilities(self._devices), dtype=np.float64)
        self._ready = np.array([self._data_ready(row) for row in range(count)])
        self._times = np.maximum(self._free, self._ready) + self._seconds
        self._left = np.ones(count, dtype=bool)
        self._rows = np.arange(count)
        self._first = np.empty(count)
        self._second = np.empty(count)  # ``inf`` where one device alone can run a task
        self._device = np.empty(count, dtype=np.int64)
        self._compare(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def smallest(self) -> int:
        """See :class:`Completions`."""
        return int(self._rows[self._first[self._rows].argmin()])

    def largest(self) -> int:
        """See :class:`Completions`."""
        return int(self._rows[self._first[self._rows].argmax()])

    def suffers_most(self) -> tuple[int, float]:
        """See :class:`Completions`."""
        rows = self._rows
        first, second = self._first[rows], self._second[rows]
        suffers = (self._choices[rows] > 1) & (first < math.inf)
        losses = rounded_all(np.subtract(second, first, out=np.zeros(len(rows)), where=suffers))
        loss = max(losses)
        return int(rows[losses.index(loss)]), loss

    def _best(self, row: int) -> tuple[float, int]:
        return float(self._first[row]), int(self._device[row])

    def _update(self, row: int, device: int, sharing: Set[int]) -> None:
        self._left[row] = False
        self._rows = np.flatnonzero(self._left)
        self._free[device] = self._context.available(device)
        # Whose best two may be others now.
        moved = self._times[:, device] <= self._second
        column = np.maximum(self._free[device], self._ready[:, device]) + self._seconds[:, device]
        self._times[:, device] = column
        moved |= column <= self._second
        for r in self._rows.tolist() if self._aware else sharing:
            if self._left[r]:
                moved[r] = True
                self._ready[r] = self._data_ready(r)
                self._times[r] = np.maximum(self._free, self._ready[r]) + self._seconds[r]
        self._compare(np.flatnonzero(moved & self._left))

    def _compare(self, rows: np.ndarray) -> None:
        times = self._times[rows]
        self._device[rows] = times.argmin(axis=1)
        if times.shape[1] == 1:
            self._first[rows], self._second[rows] = times[:, 0], math.inf
        else:
            two = np.partition(times, 1, axis=1)
            self._first[rows], self._second[rows] = two[:, 0], two[:, 1]


def explain_commit(
    context: SchedulingContext, task: int, device: int, finish: float, why: str
) -> None:
    """Say where a task goes, if somebody listens."""
    if context.explain:
        name = context.cluster.devices[device].name
        context.explain(f"{context.label(task)} -> {name}: finish {finish:.6g}, {why}")
