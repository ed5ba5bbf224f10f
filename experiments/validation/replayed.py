"""A run's decisions made again: the same operators on the same devices, there in the same order."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.model.trace import Trace


class Replayed(Scheduler):
    """Every operator on the device, and there in the order, of a recorded run of the same jobs.

    Args:
        trace: of that run.
    """

    name: ClassVar[str] = "replayed"
    static: ClassVar[bool] = True

    def __init__(self, trace: Trace) -> None:
        rows = trace.executions
        self._placements: dict[int, list[tuple[int, int, int]]] = {}
        for rank, row in enumerate(np.argsort(rows["start"], kind="stable").tolist()):
            mine = self._placements.setdefault(int(rows["job"][row]), [])
            mine.append((int(rows["task"][row]), int(rows["device"][row]), rank))

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for job in context.arrived:
            for task, device, rank in self._placements.get(job, ()):
                context.place(task, device, rank=rank)
