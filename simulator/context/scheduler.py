"""What a scheduler is: one class, written against :class:`simulator.context.scheduling.SchedulingContext`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from simulator.context.scheduling import SchedulingContext


class Scheduler(ABC):
    """Base of all schedulers; the same object runs in the simulator and on hardware.

    A scheduler holds the state of one run. ``create`` makes a fresh one for each.

    Attributes:
        name: what tables call it.
        needs: abilities beyond ``place``, ``withdraw`` and ``wake_at`` that it uses (``batch``,
            ``pack``, ``evict``); a context without them refuses before the run.
        static: it places every task of a job when the job arrives, stands by that, and has nothing to
            say later but to what is lost; it is then asked at arrivals, losses and wake-ups only.
    """

    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    static: ClassVar[bool] = False
    proven_bound_s: float | None = None
    """A makespan below which no schedule of the run can be, seconds, where the scheduler proved one;
    of the believed times."""

    def begin(self, context: SchedulingContext) -> None:  # noqa: B027 - optional to override
        """Called once, before the first event; a place to refuse what it cannot schedule."""

    def recall(self, other: Scheduler) -> None:  # noqa: B027 - optional to override
        """Take over what another one of the same options worked out; before runs of the same jobs on
        the same cluster with the same believed times, of which only what happens differs.
        """

    @abstractmethod
    def decide(self, context: SchedulingContext) -> None:
        """Called once per instant at which something happened, after all of it was applied."""


def compared(device: int, scores: Sequence[tuple[float, int]]) -> str:
    """The score of the chosen device beside those of the others.

    Args:
        device: the chosen one.
        scores: what was compared, the smaller the better, and the device.
    """
    own = next(score for score, other in scores if other == device)
    others = [score for score, other in scores if other != device]
    relation = "<" if all(own <= score for score in others) else "instead of"
    return f"{own:.6g} {relation} {', '.join(f'{s:.6g}' for s in others) or 'no other'}"
