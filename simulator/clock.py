"""Simulated time: a SimPy environment that takes absolute times and cheap events."""

from __future__ import annotations

from heapq import heappush
from typing import Any

import simpy


class Clock(simpy.Environment):
    """A SimPy environment that also schedules at an absolute time.

    ``now + (finish - now)`` is not always ``finish`` in floating point; simulated times must be.
    """

    def at(self, moment: float, callback: Any, value: Any) -> None:
        """Call ``callback(event)`` at ``moment`` with ``event.value == value``."""
        event = Occurrence(self, callback, value)
        heappush(self._queue, (moment, 1, next(self._eid), event))


class Occurrence(simpy.Event):
    """An event that is triggered from the start, as a Timeout is; made in one step."""

    def __init__(self, clock: Clock, callback: Any, value: Any) -> None:
        self.env = clock
        self.callbacks = [callback]
        self._value = value
        self._ok = True
