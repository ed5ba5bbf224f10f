"""Event-driven transfers whose ends are known at once: a thin layer over :mod:`simulator.links`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from simulator.clock import Clock
from simulator.cluster import Route
from simulator.links import TransferModel


class Flow:
    """One message on its way from one memory space to another."""

    __slots__ = ("destination", "end", "requested", "route", "size", "source", "start", "tensors")

    def __init__(
        self,
        tensors: tuple[int, ...],
        source: int,
        destination: int,
        route: Route,
        size: float,
        requested: float,
    ) -> None:
        self.tensors = tensors
        self.source = source
        self.destination = destination
        self.route = route
        self.size = size
        self.requested = requested
        self.start = requested
        self.end = requested


class BookedFlows:
    """Transfers over links that never fail, under ``none`` or ``fifo``."""

    def __init__(
        self,
        model: TransferModel,
        clock: Clock,
        capacities: Sequence[float],
        delivered: Callable[[Flow], None],
    ) -> None:
        self._model = model
        self._clock = clock
        self._free = [0.0] * len(capacities)
        self._delivered = delivered

    def request(self, flow: Flow) -> None:
        """Start it, or queue it."""
        now = self._clock.now
        flow.start, flow.end = self._model.book(flow.route, flow.size, now, self._free)
        if flow.end == now:
            self._delivered(flow)
        else:
            self._clock.at(flow.end, self._on_end, flow)

    def _on_end(self, event: simpy.Event) -> None:
        self._delivered(event.value)

    def expected(self, flow: Flow) -> float:
        """When it will be there."""
        return flow.end

    def settle(self) -> None:
        """Nothing: every end is known."""
