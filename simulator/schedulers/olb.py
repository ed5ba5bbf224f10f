"""Opportunistic Load Balancing.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import compared
from simulator.schedulers._arrival_order import ArrivalOrder


class Olb(ArrivalOrder):
    """Every task at once to the device that is free earliest (ties: the smaller id), however long it
    runs there and wherever its data lies.
    """

    name: ClassVar[str] = "olb"

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`ArrivalOrder`."""
        free = context.availabilities(devices)
        return devices[free.index(min(free))]

    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """See :class:`ArrivalOrder`."""
        free = context.availabilities(devices)
        return f"free at {compared(device, list(zip(free, devices, strict=True)))}"
