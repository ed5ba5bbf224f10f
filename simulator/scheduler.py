"""What a scheduler is: one class, written against :class:`simulator.context.SchedulingContext`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from simulator.context import SchedulingContext


class Scheduler(ABC):
    """Base of all schedulers; the same object runs in the simulator and on hardware.

    A scheduler holds the state of one run. ``create`` makes a fresh one for each.

    Attributes:
        name: what tables call it.
        needs: abilities beyond ``place``, ``withdraw`` and ``wake_at`` that it uses (``batch``,
            ``pack``, ``evict``); a context without them refuses before the run.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()

    def begin(self, context: SchedulingContext) -> None:  # noqa: B027 - optional to override
        """Called once, before the first event; a place to refuse what it cannot schedule."""

    @abstractmethod
    def decide(self, context: SchedulingContext) -> None:
        """Called once per instant at which something happened, after all of it was applied."""
