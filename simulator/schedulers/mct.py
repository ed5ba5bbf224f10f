"""Minimum Completion Time.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import compared
from simulator.schedulers._arrival_order import ArrivalOrder
from simulator.schedulers._equal_devices import EqualDevices
from simulator.schedulers._pricing import best_device, check_pricing, estimated_finishes


class Mct(ArrivalOrder):
    """Every task at once, in the order in which they became ready, to the device on which it is
    estimated to finish first (ties: the smaller id).

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
    """

    name: ClassVar[str] = "mct"

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._equal: EqualDevices | None = None

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        self._equal = EqualDevices.of(context, self.pricing)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if self._equal:
            self._equal.look()
        super().decide(context)

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`ArrivalOrder`."""
        if self._equal:
            device = self._equal.best(task)
            self._equal.placed(device)
            return device
        return best_device(context, task, devices, self.pricing)

    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """See :class:`ArrivalOrder`."""
        finishes = estimated_finishes(context, task, devices, self.pricing)
        return f"finish {compared(device, finishes)}"
