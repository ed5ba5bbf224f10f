"""Earliest deadline first."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context.serving import BatchingContext
from simulator.serving.dispatching import Choice, Dispatcher
from simulator.serving.node import Group, Node


class EDF(Dispatcher):
    """The waiting request of the earliest deadline runs next, with those of its model that have the next
    deadlines; requests without a deadline come last, in the order of their arrival.

    On one device, without batches, and with all released at once it meets every deadline if that can be
    done.

    Args:
        max_batch: items at most in one execution.
        drop_late: refuse a request that can no longer meet its deadline alone.
        select, packing: see :class:`simulator.serving.dispatching.Dispatcher`.

    Source: J. R. Jackson, *Scheduling a production line to minimize maximum tardiness*, 1955; C. L. Liu and
    J. W. Layland, *Scheduling algorithms for multiprogramming*, JACM 20(1), 1973.
    """

    name: ClassVar[str] = "edf"

    def __init__(
        self,
        max_batch: int = 1,
        drop_late: bool = False,
        select: str | Mapping[str, Any] = "home",
        packing: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(max_batch, select, packing)
        self.drop_late = drop_late

    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """See :class:`Dispatcher`."""
        best: tuple[tuple[float, float, int], Group] | None = None
        for group in node.groups.values():
            self._drop_late(context, group, device)
            if not group.queue or not group.runs_on(context, device):
                continue
            key = _urgency(context, group.queue[0])
            if best is None or key < best[0]:
                best = (key, group)
        return None if best is None else Choice(best[1], self.fitting(context, best[1], [device]))

    def insert(self, context: BatchingContext, group: Group, job: int) -> None:
        """See :class:`Dispatcher`."""
        place = bisect_right(
            group.queue, _urgency(context, job), key=lambda j: _urgency(context, j)
        )
        group.queue.insert(place, job)

    def _drop_late(self, context: BatchingContext, group: Group, device: int) -> None:
        # The first has the least time left; but a longer one behind it may be late as well.
        if self.drop_late:
            for job in [j for j in group.queue if self._is_late(context, group, j, device)]:
                group.queue.remove(job)
                context.reject(job, "its deadline can no longer be met")

    def _is_late(self, context: BatchingContext, group: Group, job: int, device: int) -> bool:
        entry = context.jobs[job]
        seconds = group.seconds[entry.batch or 1][device]
        return entry.deadline is not None and context.now + seconds > entry.deadline


def _urgency(context: BatchingContext, job: int) -> tuple[float, float, int]:
    entry = context.jobs[job]
    return (math.inf if entry.deadline is None else entry.deadline, entry.arrival, job)
