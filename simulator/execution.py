"""How long a device takes for a task once it has begun.

The engine asks one question: when does a task that begins now finish? A constant rate answers at
once, so one event per task is enough. Models in which a task's rate changes while it runs will
register it instead and tell the engine when its finish moves.
"""

from __future__ import annotations

from typing import Protocol


class ExecutionModel(Protocol):
    """One device's way of executing."""

    def begin(self, task: int, seconds: float, start: float) -> float:
        """The finish of a task that starts at ``start`` and needs ``seconds`` at full rate."""
        ...


class ConstantRate:
    """Every slot runs at full rate; each task pays the device's launch overhead first."""

    def __init__(self, launch_overhead: float) -> None:
        self._overhead = launch_overhead

    def begin(self, task: int, seconds: float, start: float) -> float:
        """See :class:`ExecutionModel`."""
        return start + (self._overhead + seconds)
