"""Shortest Job First.

Sources: Smith, "Various Optimizers for Single-Stage Production", Naval Research Logistics Quarterly
3(1-2):59-66, 1956, doi:10.1002/nav.3800030106 (shortest first minimises the mean finish on one
machine); ``hold=false`` is the ready list of TripletRun (see :mod:`simulator.schedulers.donf`).
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import compared
from simulator.schedulers._dynamic_list import ReadyList
from simulator.schedulers._pricing import best_device, estimated_finishes


class Sjf(ReadyList):
    """The shortest ready task is held until a device is idle, then goes to the idle device on which it
    is estimated to finish first (ties: the task that became ready first, then the smaller id; the
    device of smaller id).

    How long a task is, is its mean time over the devices that can run it. One that no idle device can
    run does not hold up those behind it.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
        hold: until a device is idle; otherwise ready tasks are placed at once, the shortest first.
    """

    name: ClassVar[str] = "sjf"

    def __init__(self, pricing: str = "per_link", hold: bool = True) -> None:
        super().__init__(pricing)
        self.hold = hold

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if not self.hold:
            super().begin(context)

    def priorities(self, context: SchedulingContext, job: int) -> list[float]:
        """See :class:`ReadyList`."""
        seconds = context.cost_matrix(job)
        able = np.isfinite(seconds)
        means = np.where(able, seconds, 0.0).sum(axis=1) / able.sum(axis=1)
        return (-means).tolist()

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if not self.hold:
            super().decide(context)
            return
        if context.lost or context.failed:
            self._ready = [entry for entry in self._ready if context.is_ready(entry[2])]
            heapify(self._ready)
        self._take_in(context)
        skipped = []
        while self._ready and (idle := context.idle):
            entry = heappop(self._ready)
            length, _, task = entry
            seconds = context.seconds(task)
            devices = [device for device in idle if seconds[device] < math.inf]
            if not devices:
                skipped.append(entry)
                continue
            device = best_device(context, task, devices, self.pricing)
            if context.explain:
                finishes = estimated_finishes(context, task, devices, self.pricing)
                name = context.cluster.devices[device].name
                context.explain(
                    f"{context.label(task)} (mean {length:.6g}) -> {name}: shortest ready, "
                    f"finish {compared(device, finishes)}"
                )
            context.place(task, device)
        for entry in skipped:
            heappush(self._ready, entry)
