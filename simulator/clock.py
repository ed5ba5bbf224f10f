"""Simulated time: a SimPy environment that also takes absolute times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Any

import simpy

Callbacks = Sequence[Callable[["Moment"], None]]
"""What an event calls. SimPy only reads the list, so many events may share one."""


class Clock(simpy.Environment):
    """A SimPy environment that knows where instants end.

    Attributes:
        steps: how many events it has processed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self._scheduled = 0

    @property
    def waiting(self) -> int:
        """How many events are scheduled and not processed yet."""
        return self._scheduled - self.steps

    def at(self, moment: float, callbacks: Callbacks, value: Any = None) -> None:
        """Call ``callbacks`` at ``moment`` with an event that carries a value.

        This is the one place that goes round SimPy's public interface: ``now + (moment - now)`` is not
        always ``moment`` in floating point, and simulated times must be.
        """
        self._scheduled += 1
        heappush(self._queue, (moment, 1, next(self._eid), Moment(moment, callbacks, value)))

    def schedule(self, event: simpy.Event, *args: Any, **kwargs: Any) -> None:
        """See :class:`simpy.Environment`."""
        self._scheduled += 1
        super().schedule(event, *args, **kwargs)

    def run_instants(self, settle: Callable[[float], None], until: float = math.inf) -> None:
        """Process all events up to ``until``; call ``settle`` with the time after the last of each
        instant, and again where it has scheduled more for the same instant.
        """
        step, peek = self.step, self.peek
        while (moment := peek()) <= until and moment < math.inf:
            step()
            self.steps += 1
            while peek() == moment:
                step()
                self.steps += 1
            settle(moment)


class Moment(simpy.Event):
    """An event that is triggered from the start, as a Timeout is, for :meth:`Clock.at`.

    Attributes:
        time: when it happens, seconds.
        subject: what it carries.
    """

    _ok = True

    def __init__(self, time: float, callbacks: Callbacks, subject: Any) -> None:
        self.time = time
        self.callbacks = callbacks
        self.subject = subject
