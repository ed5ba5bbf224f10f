"""Simulated time: a SimPy environment that takes absolute times and cheap events."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy

TASK_ENDS = 2
"""Priority in the clock's queue of an entry that names its task and shares its event with all others of
its kind; SimPy's own priorities are 0 and 1."""
TRANSFERS_END = 3
"""The same of an entry that names nothing: some transfers may end."""


class Clock(simpy.Environment):
    """A SimPy environment that also schedules at an absolute time and knows where instants end.

    ``now + (finish - now)`` is not always ``finish`` in floating point; simulated times must be.
    """

    def at(self, moment: float, callback: Any, value: Any) -> None:
        """Call ``callback(event)`` at ``moment`` with ``event.value == value``."""
        event = Occurrence(self, [callback], value)
        heappush(self._queue, (moment, 1, next(self._eid), event))

    def run_instants(self, settle: Callable[[], None]) -> None:
        """Process all events as :meth:`step` does, and call ``settle`` after the last of each instant.

        One loop instead of a call for each event: a third of the time of a run without contention.
        """
        queue = self._queue
        while queue:
            now, _, _, event = heappop(queue)
            self._now = now
            callbacks = event.callbacks
            event.callbacks = None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
            if not queue or queue[0][0] > now:
                settle()


class Occurrence(simpy.Event):
    """An event that is triggered from the start, as a Timeout is; made in one step.

    One may stand in the queue in several entries, where these say by themselves what happens.
    """

    def __init__(self, clock: Clock, callbacks: list[Any] | None, value: Any) -> None:
        self.env = clock
        self.callbacks = callbacks
        self._value = value
        self._ok = True
