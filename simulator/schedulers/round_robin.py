"""Devices in turn: the base line that knows nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.schedulers._arrival_order import ArrivalOrder, that_work


class RoundRobin(ArrivalOrder):
    """Every task at once to the next device, in the order of the cluster, that can run it and is up;
    the turn then is with the one after it.
    """

    name: ClassVar[str] = "round_robin"

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """See :class:`ArrivalOrder`."""
        turn = self._turn
        device = _next(devices, turn)
        if not context.is_up(device):
            device = _next(that_work(context, devices), turn)
        self._turn = (device + 1) % len(context.cluster.devices)
        return device

    def reason(
        self, context: SchedulingContext, task: int, devices: Sequence[int], device: int
    ) -> str:
        """See :class:`ArrivalOrder`."""
        return f"in turn among {len(devices)} that can run it"


def _next(devices: Sequence[int], turn: int) -> int:
    """The first of ascending devices from ``turn`` on, round and round."""
    place = bisect_left(devices, turn)
    return devices[place if place < len(devices) else 0]
