"""How long a device takes for a task once it has begun.

A constant rate knows the finish at once. Models in which a task's rate changes while it runs
(:mod:`simulator.devices.shared_rate`) register it and say its finish anew whenever that moves; what was said before
then no longer counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ExecutionModel(Protocol):
    """One device's way of executing.

    Attributes:
        final: whether an execution takes its launch overhead and its seconds, whenever it begins and whatever else
            runs.
    """

    final: bool

    def begin(self, task: int, seconds: float, start: float) -> None:
        """A task that needs ``seconds`` at full rate starts at ``start``."""
        ...

    def goes_on(self, task: int, now: float) -> bool:
        """Whether a task has more to do at the moment that was said to be its end; another is said then."""
        ...

    def end(self, task: int, now: float) -> None:
        """A task that has begun has finished, or was taken from the device."""
        ...


class ConstantRate:
    """Every slot runs at full rate; each task pays the device's launch overhead first.

    Args:
        launch_overhead: seconds.
        finish_at: called with a task and its finish.
    """

    final = True

    def __init__(self, launch_overhead: float, finish_at: Callable[[int, float], None]) -> None:
        self._overhead = launch_overhead
        self._finish_at = finish_at

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`ExecutionModel`."""
        self._finish_at(task, start + (self._overhead + seconds))

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`ExecutionModel`."""
        return False

    def end(self, task: int, now: float) -> None:
        """See :class:`ExecutionModel`; tasks do not know of each other."""
