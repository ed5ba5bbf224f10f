"""Everything on one device: the base line that any heterogeneous schedule must beat."""

from __future__ import annotations

import math
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput


class SingleDevice(Scheduler):
    """Runs each job's operators one after the other on one device.

    Args:
        device: its name; None takes for each job the device with the smallest sum of operator times.
    """

    name: ClassVar[str] = "single_device"
    static: ClassVar[bool] = True

    def __init__(self, device: str | None = None) -> None:
        self.device = device
        self._device_of: dict[int, int] = {}

    def begin(self, context: SchedulingContext) -> None:
        """Refuse a device that the cluster lacks."""
        if self.device is not None and self.device not in context.cluster.device_index:
            raise InvalidInput(
                f"Scheduler 'single_device' is to use device '{self.device}'; cluster "
                f"'{context.cluster.name}' has {', '.join(context.cluster.device_index)}"
            )

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for job in context.arrived:
            totals = context.cost_matrix(job).sum(axis=0)
            if self.device is not None:
                device = context.cluster.device_index[self.device]
            else:
                device = int(totals.argmin())
            if totals[device] == math.inf:
                able = context.cluster.devices[device].name if self.device else "no single device"
                raise InvalidInput(
                    f"'{context.jobs[job].graph.name}' cannot run whole on one device: "
                    f"{able} lacks times for some of its operators"
                )
            if context.explain:
                name = context.cluster.devices[device].name
                context.explain(f"job {job} -> {name}: {totals[device]:.6g} s of operators")
            self._device_of[job] = device
            for task in context.tasks_of(job):
                context.place(task, device)
        for task in context.lost:  # until its device is back
            context.place(task, self._device_of[context.job_of(task)])
