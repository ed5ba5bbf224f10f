"""Minimum Execution Time.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import compared
from simulator.schedulers._arrival_order import ArrivalOrder, that_work


class Met(ArrivalOrder):
    """Every task at once to the device that runs it fastest, whatever stands in its queue and wherever
    the data lies (ties: the smaller id; devices that are down only if all are).
    """

    name: ClassVar[str] = "met"

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`ArrivalOrder`."""
        return min(that_work(context, devices), key=context.seconds(task).__getitem__)

    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """See :class:`ArrivalOrder`."""
        seconds = context.seconds(task)
        return f"runs {compared(device, [(seconds[d], d) for d in devices])}"
