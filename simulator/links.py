"""How long transfers take when they share links.

Both models here fix a transfer's end when it is requested, so that no event is needed for it:
``none`` lets every transfer have its route alone; ``fifo`` sends one at a time over each channel (one
direction of a link, or a whole half-duplex link), in order of request. A transfer over several links
holds all of them from its start to its end.
"""

from __future__ import annotations

from typing import Protocol

from simulator.cluster import Route


class TransferModel(Protocol):
    """Books transfers; ``free`` is when each channel is free, seconds, and is updated by fifo."""

    def book(self, route: Route, size: float, now: float, free: list[float]) -> tuple[float, float]:
        """Start and end in seconds of a transfer of ``size`` bytes requested ``now``."""
        ...


class Uncontended:
    """Every transfer has its route alone."""

    def book(self, route: Route, size: float, now: float, free: list[float]) -> tuple[float, float]:
        """See :class:`TransferModel`."""
        return now, now + route.seconds(size)


class Fifo:
    """One transfer at a time over each channel."""

    def book(self, route: Route, size: float, now: float, free: list[float]) -> tuple[float, float]:
        """See :class:`TransferModel`."""
        start = now
        for channel in route.channels:
            if free[channel] > start:
                start = free[channel]
        end = start + route.seconds(size)
        for channel in route.channels:
            free[channel] = end
        return start, end


def transfer_model(contention: str) -> TransferModel:
    """The model of that name: ``none`` or ``fifo``."""
    return Fifo() if contention == "fifo" else Uncontended()
