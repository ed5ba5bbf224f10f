"""Transfers whose ends move while they are under way: what the models of :mod:`simulator.links.contention`
have in common.

The believed end of a flow is in ``flow.end``. An end that moves away costs nothing: the event that was
set for it looks at the flow again and sets another. Only an end that draws nearer needs a new event at
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from simulator.clock import Clock, Moment
from simulator.errors import InvalidInput
from simulator.model.cluster import Route

OVER = -math.inf
"""Alarm of a flow that was delivered or called off: no event means it any more."""


class Flow:
    """One message from one memory space to another.

    Attributes:
        tensors: the (global) tensors it carries; several when they were packed into one message.
        source, destination: memory spaces.
        route: channels, bandwidth and latency.
        size: bytes, of all its tensors together.
        requested: when it was asked for, seconds; the engine may have held it back since then.
        start: from when on it holds its links, latency included; believed until then.
        end: when it is delivered; believed until then, ``inf`` while an outage stops it.
        remaining: bytes not yet sent as of ``since``; of a flow that was called off, bytes not sent.
        rate: bytes per second from ``since`` on.
        since: when ``rate`` began to hold; the end of the latency at the earliest.
        alarm: the time of the earliest event that is set for it.
    """

    __slots__ = (
        "alarm",
        "channels",
        "destination",
        "end",
        "mark",
        "rate",
        "remaining",
        "requested",
        "route",
        "share",
        "since",
        "size",
        "source",
        "start",
        "tensors",
    )

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
        self.channels = route.channels
        self.size = self.remaining = size
        self.requested = requested
        self.start = self.end = self.alarm = self.since = math.inf
        self.rate = 0.0
        self.share = -1.0
        self.mark = -1

    @property
    def carried(self) -> float:
        """Share of its bytes that it has carried; less than 1 of one that was called off."""
        return 1.0 - self.remaining / self.size if self.size else 1.0


class FlowModel(Protocol):
    """How flows share channels."""

    def request(self, flow: Flow) -> None:
        """A flow may go from now on; those of one instant stand in the order of these calls."""
        ...

    def cancel(self, flow: Flow) -> None:
        """A flow is called off and frees what it holds; nothing if it has ended."""
        ...

    def expected(self, flow: Flow) -> float:
        """When a requested flow is believed to be delivered if nothing else comes; ``inf`` if an
        outage stops it.
        """
        ...

    def estimate(self, route: Route, size: float) -> float:
        """When ``size`` bytes requested now are believed to be delivered."""
        ...

    def free(self, route: Route) -> float:
        """When a transfer requested now is believed to start; never before now."""
        ...

    def set_capacity(self, channel: int, factor: float) -> None:
        """From now on a channel has ``factor`` of its capacity: 1 is nominal, 0 an outage.

        Raises:
            InvalidInput: the factor is not between 0 and 1.
        """
        ...

    def settle(self) -> None:
        """Apply what has happened at this instant. To be called when all events, requests,
        cancellations and changes of an instant are done, and again if more come after it.
        """
        ...


Delivered = Callable[[Flow], None]


class PacedFlows:
    """What the models share: bytes, rates, ends and the events for them."""

    def __init__(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> None:
        self._clock = clock
        self._nominal = list(capacities)
        self._capacity = list(capacities)
        self._degraded = 0  # channels below their nominal capacity
        self._delivered = delivered
        self._on_ring = [self._ring]

    def _leave(self, flow: Flow) -> None:
        """A flow was delivered or called off."""
        raise NotImplementedError

    def _bandwidth(self, route: Route) -> float:
        """Bytes per second of a route that a flow has to itself."""
        if self._degraded:
            return min(self._capacity[channel] for channel in route.channels)
        return route.bandwidth

    def _degrade(self, channel: int, factor: float) -> None:
        if not 0 <= factor <= 1:
            raise InvalidInput(
                f"A channel's capacity can be set to between 0 and 1 of its nominal one, not {factor}"
            )
        capacity = self._nominal[channel] * factor if factor else 0.0
        nominal = self._nominal[channel]
        self._degraded += (capacity < nominal) - (self._capacity[channel] < nominal)
        self._capacity[channel] = capacity

    def _launch(self, flow: Flow, start: float) -> None:
        """A flow holds its route from ``start`` on, which may be believed, at today's bandwidth."""
        route = flow.route
        flow.start = start
        flow.since = start + route.latency
        flow.rate = rate = self._bandwidth(route)
        if rate == route.bandwidth:
            flow.end = start + route.seconds(flow.size)
        else:
            flow.end = _end(flow)

    def _pace(self, flow: Flow, rate: float) -> None:
        """A flow under way goes on at another rate from now on."""
        now = self._clock.now
        if flow.end <= now:  # its event is still to come at this instant
            return
        if flow.since < now:
            flow.remaining = _unsent(flow, now)
            flow.since = now
        flow.rate = rate
        flow.end = _end(flow)

    def _begin(self, flow: Flow) -> None:
        """A flow whose end was worked out is on its way, or there if that takes no time: who waits for
        it can start at this very instant, before anything else happens.
        """
        if flow.end == self._clock.now:
            self._deliver(flow)
        else:
            self._arm(flow)

    def _arm(self, flow: Flow) -> None:
        """Make sure that an event comes at a flow's end or before."""
        if flow.end < flow.alarm:
            flow.alarm = flow.end
            self._clock.at(flow.end, self._on_ring, flow)

    def _ring(self, event: Moment) -> None:
        """A flow's end was once believed to be now."""
        flow: Flow = event.subject
        now = self._clock.now
        if flow.alarm != now:
            return
        if flow.end == now:
            self._deliver(flow)
        else:
            flow.alarm = math.inf
            self._arm(flow)

    def _deliver(self, flow: Flow) -> None:
        flow.alarm = OVER
        flow.remaining = 0.0
        self._leave(flow)
        self._delivered(flow)

    def cancel(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        if flow.alarm == OVER:
            return
        now = self._clock.now
        if flow.since < now:
            flow.remaining = _unsent(flow, now)
        flow.alarm = OVER
        self._leave(flow)
        flow.end = now


def _unsent(flow: Flow, now: float) -> float:
    return max(0.0, flow.remaining - flow.rate * (now - flow.since))


def _end(flow: Flow) -> float:
    return flow.since + duration(flow.remaining, flow.rate)


def duration(size: float, rate: float) -> float:
    """Seconds of ``size`` bytes at a rate, which may be 0."""
    if rate:
        return size / rate
    return math.inf if size else 0.0


def seconds(route: Route, size: float, rate: float) -> float:
    """Seconds of ``size`` bytes over an idle route at a rate."""
    return route.latency + duration(size, rate)
