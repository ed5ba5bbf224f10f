"""Sufferage, in its original pass structure, and one task at a time.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

import math
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.planners.priorities import rounded
from simulator.schedulers._batch_mapping import BatchMode, completions, explain_commit
from simulator.schedulers._pricing import data_ready


class Sufferage(BatchMode):
    """Maps all ready tasks in passes: each device takes at most one task a pass, the one that would
    suffer most from its second-best device. Ready times change only at the end of a pass.
    """

    name: ClassVar[str] = "sufferage"

    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """See :class:`BatchMode`."""
        while tasks:
            holds, tasks = self._pass(context, tasks)
            for device in sorted(holds):
                context.place(holds[device][1], device)

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


class SufferageOne(BatchMode):
    """Of all ready tasks the one that would suffer most from its second-best device is placed on its
    best; then all sufferages are worked out anew (ties: the task that became ready first).

    That is how SAGA (ANRGUSC/saga) reads the paper; it commits one task a pass.
    """

    name: ClassVar[str] = "sufferage_one"

    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """See :class:`BatchMode`."""
        times = completions(context, tasks, self.pricing)
        while len(times):
            row, loss = times.suffers_most()
            task, device, finish = times.commit(row)
            explain_commit(context, task, device, finish, f"sufferage {loss:.6g}")
