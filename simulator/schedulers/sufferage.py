"""Sufferage, in its original pass structure.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

import math
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.pricing import check_pricing, data_ready
from simulator.priorities import rounded
from simulator.scheduler import Scheduler


class Sufferage(Scheduler):
    """Maps all ready tasks in passes: each device takes at most one task a pass, the one that would
    suffer most from its second-best device. Ready times change only at the end of a pass.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
        remap: take back tasks that are queued but not started and map them again, as the paper's
            batch mode does. Off by default: data already sent to a device would be sent again.
    """

    name: ClassVar[str] = "sufferage"

    def __init__(self, pricing: str = "per_link", remap: bool = False) -> None:
        self.pricing = check_pricing(pricing)
        self.remap = remap
        self._queued: set[int] = set()

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        unmapped = list(context.placeable)
        if self.remap:
            self._queued = {task for task in self._queued if context.is_queued(task)}
            for task in sorted(self._queued):
                context.withdraw(task)
            unmapped = sorted([*self._queued, *unmapped])
        if not unmapped:
            return
        while unmapped:
            holds, unmapped = self._pass(context, unmapped)
            for device in sorted(holds):
                context.place(holds[device][1], device)
            self._queued.update(task for _, task in holds.values())

    def _pass(
        self, context: SchedulingContext, unmapped: list[int]
    ) -> tuple[dict[int, tuple[float, int]], list[int]]:
        """One pass: what each device holds at its end as (sufferage, task), and who is left."""
        devices = range(len(context.cluster.devices))
        free = [context.available(device) for device in devices]
        holds: dict[int, tuple[float, int]] = {}
        left = set()
        for task in unmapped:
            seconds = context.seconds(task)
            able = [d for d in devices if seconds[d] < math.inf]
            ready = data_ready(context, task, able, self.pricing)
            completions = sorted(
                (max(free[d], time) + seconds[d], d) for d, time in zip(able, ready, strict=True)
            )
            best, device = completions[0]
            loss = 0.0  # also where every device is down
            if len(completions) > 1 and best < math.inf:
                loss = rounded(completions[1][0] - best)
            if context.explain:
                name = context.cluster.devices[device].name
                context.explain(
                    f"{context.label(task)} wants {name}: {best:.6g}, sufferage {loss:.6g}"
                )
            if device in holds and loss <= holds[device][0]:
                left.add(task)
                continue
            if device in holds:
                left.add(holds[device][1])
            holds[device] = (loss, task)
        return holds, [task for task in unmapped if task in left]
