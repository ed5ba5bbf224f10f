"""Min-Min.

Source: Maheswaran, Ali, Siegel, Hensgen, Freund, "Dynamic Mapping of a Class of Independent Tasks onto
Heterogeneous Computing Systems", JPDC 59(2):107-131, 1999, doi:10.1006/jpdc.1999.1581.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.schedulers._batch_mapping import BatchMode, completions, explain_commit


class MinMin(BatchMode):
    """Of the best completion times of all ready tasks the smallest comes first: its task is placed
    there, and so on (ties: the task that became ready first, the device of smaller id).
    """

    name: ClassVar[str] = "min_min"

    def map(self, context: SchedulingContext, tasks: list[int]) -> None:
        """See :class:`BatchMode`."""
        times = completions(context, tasks, self.pricing)
        while left := len(times):
            task, device, finish = times.commit(times.smallest())
            explain_commit(context, task, device, finish, f"the smallest of {left}")
