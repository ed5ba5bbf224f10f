"""Launches that take longer after long operators.

What a launch executes on the host (an interpreter, a dispatcher, the hand-over to a worker) lies in the caches of its
core when the last launch was microseconds ago, and has left them after an operator of milliseconds that went through
much memory. So the launch overhead of an execution may depend on the time since the last launch on its slot ended:
what was executed there in between, and the rest after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import InvalidInput
from simulator.model.log_curve import is_curve, value_at


@dataclass(frozen=True, slots=True)
class CoolingCurve:
    """How many times its device's launch overhead a launch takes, by the time since the last one on its slot.

    Linear in the logarithm of the time between the points, constant beyond them.

    Attributes:
        after: seconds, above 0, ascending.
        factors: above 0, not descending.

    Raises:
        InvalidInput: no points, or others than these.
    """

    after: tuple[float, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        positive = all(0 < factor < math.inf for factor in self.factors)
        if not is_curve(self.after, self.factors) or not positive:
            raise InvalidInput(
                "A curve of cooling launches has times in seconds that ascend and factors above 0 that do not "
                f"descend, one for each; got {list(self.after)} and {list(self.factors)}"
            )

    def factor(self, seconds: float) -> float:
        """After so many seconds without a launch."""
        return value_at(self.after, self.factors, seconds)

    def to_json(self) -> list[list[float]]:
        """Times and factors."""
        return [list(self.after), list(self.factors)]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> CoolingCurve:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: what is no curve.
        """
        after, factors = document
        return cls(tuple(after), tuple(factors))
