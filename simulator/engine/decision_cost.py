"""What a decision of the scheduler costs, in simulated time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from simulator.errors import InvalidInput


@dataclass(frozen=True)
class DecisionCost:
    """Seconds that a scheduler is busy with a decision before its verbs take effect.

    Either a stated model, the sum of the three parts, or what this machine really takes, which differs
    from run to run.

    Attributes:
        per_decision: seconds, each time it is asked.
        per_task: seconds for each ready task that is placed nowhere when it is asked; for a static
            scheduler for each task of the jobs that arrived, and each that was lost.
        per_pair: seconds for each of these tasks and each device that can run it.
        wallclock: charge the wall-clock seconds that the decision took instead.

    Raises:
        InvalidInput: a part is negative or not finite, or a part is given beside ``wallclock``.
    """

    per_decision: float = 0.0
    per_task: float = 0.0
    per_pair: float = 0.0
    wallclock: bool = False

    def __post_init__(self) -> None:
        for name in ("per_decision", "per_task", "per_pair"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InvalidInput(f"A decision cost has {name}={value} s; give 0 or more")
            if value and self.wallclock:
                raise InvalidInput(
                    f"A decision cost has {name}={value} s and charges the wall clock; give one of both"
                )

    def seconds(self, tasks: int, pairs: int, measured: float) -> float:
        """Cost of one decision about ``tasks``, on ``pairs`` of them and devices, that took
        ``measured`` seconds.
        """
        if self.wallclock:
            return measured
        return self.per_decision + self.per_task * tasks + self.per_pair * pairs

    def report(self) -> dict[str, Any]:
        """What a trace says of it."""
        if self.wallclock:
            return {"charge": "wallclock"}
        return {
            "charge": "stated",
            "per_decision_s": self.per_decision,
            "per_task_s": self.per_task,
            "per_pair_s": self.per_pair,
        }
