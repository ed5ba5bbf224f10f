"""Devices at random: the base line that any rule must beat."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.schedulers._arrival_order import ArrivalOrder, that_work


class RandomDevice(ArrivalOrder):
    """Every task at once to a device drawn from those that can run it and are up, each as likely as
    the others.

    Args:
        seed: of the draws; ``seed.search`` unless given.
    """

    name: ClassVar[str] = "random"

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`ArrivalOrder`."""
        return self._random.choice(that_work(context, devices))

    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """See :class:`ArrivalOrder`."""
        return f"drawn from {len(that_work(context, devices))}"
