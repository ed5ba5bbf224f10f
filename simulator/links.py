"""How long transfers take when they share links, where a transfer's end is known when it is requested.

``none`` lets every transfer have its route alone; ``fifo`` sends one at a time over each channel (one
direction of a link, or a whole half-duplex link), in order of request. A transfer over several links
holds all of them from its start to its end.

These are what schedulers believe of links, and what happens on links that never fail and whose
transfers do not slow each other down. Transfers whose ends are not known in advance are in
:mod:`simulator.flows`.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Protocol

from simulator.cluster import Route


class TransferModel(Protocol):
    """Books transfers; ``free`` is when each channel is free, seconds, and is updated by fifo."""

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
        """Start and end in seconds of a transfer of ``size`` bytes requested ``now``."""
        ...


class Uncontended:
    """Every transfer has its route alone."""

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
        """See :class:`TransferModel`."""
        return now, now + route.seconds(size)


class Fifo:
    """One transfer at a time over each channel."""

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
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
    """What is believed under a contention: ``fifo`` queues, the others have every route alone."""
    return Fifo() if contention == "fifo" else Uncontended()
