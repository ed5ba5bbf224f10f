"""What on-line list schedulers share: ready tasks by priority, each at once to a device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from simulator.context import SchedulingContext
from simulator.equal_devices import EqualDevices
from simulator.graph import DataflowGraph
from simulator.pricing import best_device, check_pricing, estimated_finishes
from simulator.priorities import rounded_all
from simulator.scheduler import Scheduler


class ReadyList(Scheduler):
    """Ready tasks by decreasing priority, each at once to the device of least estimated finish (ties:
    the task that became ready first, then the smaller id; the device of smaller id).

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
    """

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._equal: EqualDevices | None = None
        self._ready: list[tuple[float, float, int]] = []
        self._priorities: dict[DataflowGraph, list[float]] = {}

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self._equal = EqualDevices.of(context, self.pricing)

    @abstractmethod
    def priorities(self, context: SchedulingContext, job: int) -> Sequence[float]:
        """Priority of every operator of a job, larger first; asked for once a graph."""

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """The device for a task: of the smallest of :meth:`scores`."""
        if self._equal:
            return self._equal.best(task)
        return best_device(context, task, devices, self.pricing)

    def scores(
        self, context: SchedulingContext, task: int, devices: Sequence[int]
    ) -> list[tuple[float, int]]:
        """What :meth:`choose` goes by: (seconds, device)."""
        return estimated_finishes(context, task, devices, self.pricing)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        now, equal = context.now, self._equal
        if equal:
            equal.look()
        for task in context.placeable:
            job = context.job_of(task)
            graph = context.jobs[job].graph
            if graph not in self._priorities:
                self._priorities[graph] = rounded_all(np.array(self.priorities(context, job)))
            priority = self._priorities[graph][context.operator_of(task)]
            heappush(self._ready, (-priority, now, task))
        while self._ready:
            negative, _, task = heappop(self._ready)
            able = context.able(task)
            if not context.explain:
                device = self.choose(context, task, able)
                context.place(task, device)
            else:
                scores = self.scores(context, task, able)
                score, device = min(scores)
                context.place(task, device)
                name = context.cluster.devices[device].name
                others = ", ".join(f"{s:.6g}" for s, d in scores if d != device)
                context.explain(
                    f"{context.label(task)} (priority {-negative:.6g}) -> {name}: "
                    f"{score:.6g} < {others or 'no other'}"
                )
            if equal:
                equal.placed(device)
