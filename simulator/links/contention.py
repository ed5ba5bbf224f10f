"""How flows share channels, by events: alone, first come first served, or max-min fair.

These do what :mod:`simulator.links.registry` does in closed form, to the last bit where nothing is disturbed,
and what it cannot: fair sharing, channels that degrade or fail, transfers that are called off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

from simulator.clock import Clock, Moment
from simulator.links.flows import OVER, Delivered, Flow, PacedFlows, duration, seconds
from simulator.links.max_min import MaxMin
from simulator.model.cluster import Route


class UncontendedFlows(PacedFlows):
    """Every flow has its route alone."""

    def __init__(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> None:
        super().__init__(clock, capacities, delivered)
        self._flows: dict[Flow, None] = {}

    def request(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        self._flows[flow] = None
        self._launch(flow, self._clock.now)
        self._begin(flow)

    def _leave(self, flow: Flow) -> None:
        del self._flows[flow]

    def expected(self, flow: Flow) -> float:
        """See :class:`FlowModel`."""
        return flow.end

    def estimate(self, route: Route, size: float) -> float:
        """See :class:`FlowModel`."""
        return self._clock.now + seconds(route, size, self._bandwidth(route))

    def free(self, route: Route) -> float:
        """See :class:`FlowModel`."""
        return self._clock.now

    def set_capacity(self, channel: int, factor: float) -> None:
        """See :class:`FlowModel`."""
        self._degrade(channel, factor)
        for flow in self._flows:
            if channel in flow.channels:
                self._pace(flow, self._bandwidth(flow.route))
                self._arm(flow)

    def settle(self) -> None:
        """See :class:`FlowModel`; nothing waits for it."""


class FifoFlows(PacedFlows):
    """One flow at a time over each channel, in order of request.

    A flow starts when it is the first of those that have not ended on all its channels, and holds
    them all until its end. Its start and end are booked at its request, as :class:`links.Fifo` does,
    and booked again when a flow before it is called off or a channel's capacity changes.
    """

    def __init__(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> None:
        super().__init__(clock, capacities, delivered)
        self._flows: dict[Flow, None] = {}  # in order of request
        self._free = [0.0] * len(self._capacity)
        self._moved: set[int] = set()  # channels on which bookings may be wrong

    def request(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        self._flows[flow] = None
        self._book(flow, self._free)
        self._begin(flow)

    def _book(self, flow: Flow, free: list[float]) -> None:
        start = self._clock.now
        for channel in flow.channels:
            if free[channel] > start:
                start = free[channel]
        self._launch(flow, start)
        end = flow.end
        for channel in flow.channels:
            free[channel] = end

    def _leave(self, flow: Flow) -> None:
        del self._flows[flow]
        if flow.end != self._clock.now:
            self._moved.update(flow.channels)

    def expected(self, flow: Flow) -> float:
        """See :class:`FlowModel`."""
        if self._moved:
            self.settle()
        return flow.end

    def estimate(self, route: Route, size: float) -> float:
        """See :class:`FlowModel`."""
        return self.free(route) + seconds(route, size, self._bandwidth(route))

    def free(self, route: Route) -> float:
        """See :class:`FlowModel`."""
        if self._moved:
            self.settle()
        return max(self._clock.now, max(self._free[channel] for channel in route.channels))

    def set_capacity(self, channel: int, factor: float) -> None:
        """See :class:`FlowModel`."""
        self._degrade(channel, factor)
        self._moved.add(channel)
        for flow in self._flows:
            if flow.start <= self._clock.now and channel in flow.channels:
                self._pace(flow, self._bandwidth(flow.route))
                self._arm(flow)
                self._moved.update(flow.channels)

    def settle(self) -> None:
        """See :class:`FlowModel`."""
        if not self._moved:
            return
        moved = self._moved
        now = self._clock.now
        free = [0.0] * len(self._capacity)
        for flow in self._flows:
            if flow.start > now and not moved.isdisjoint(flow.channels):
                before = flow.start, flow.end
                self._book(flow, free)
                if (flow.start, flow.end) != before:
                    moved.update(flow.channels)
                    self._arm(flow)
            else:
                for channel in flow.channels:
                    free[channel] = flow.end
        self._free = free
        moved.clear()


class FairFlows(PacedFlows):
    """Latency first; then max-min fair sharing of every channel of the route, each flow counted once.

    ``start`` is the request: nothing queues. The latency takes no bandwidth.

    Ends move often here. They wait in a heap of this model's own, and only the next of them has an
    event on the clock.
    """

    def __init__(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> None:
        super().__init__(clock, capacities, delivered)
        self._sharing: MaxMin[Flow] = MaxMin(capacities)
        # (moment, number of the entry, flow); it means something if the moment is the flow's alarm.
        self._alarms: list[tuple[float, int, Flow]] = []
        self._entries = 0
        self._event_at = math.inf  # of the earliest event on the clock

    def request(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        flow.start = now = self._clock.now
        flow.since = joins = now + flow.route.latency
        if not flow.size:  # takes no bandwidth
            flow.end = joins
            self._arm(flow)
        elif joins > now:
            self._set_alarm(flow, joins)
        else:
            self._sharing.add(flow)

    def _set_alarm(self, flow: Flow, moment: float) -> None:
        flow.alarm = moment
        self._entries += 1
        heappush(self._alarms, (moment, self._entries, flow))

    def _arm(self, flow: Flow) -> None:
        if flow.end < flow.alarm:
            self._set_alarm(flow, flow.end)

    def _ring_due(self, _: Moment) -> None:
        """The latency or the transfer of some flows may be over now."""
        now = self._clock.now
        if self._event_at == now:
            self._event_at = math.inf
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            moment, _number, flow = heappop(alarms)
            if flow.alarm != moment:
                continue
            if flow.end == now:
                self._deliver(flow)
                continue
            flow.alarm = math.inf
            if flow.mark < 0:
                self._sharing.add(flow)
            else:
                self._arm(flow)

    def _leave(self, flow: Flow) -> None:
        if flow.mark >= 0:
            self._sharing.remove(flow)

    def expected(self, flow: Flow) -> float:
        """See :class:`FlowModel`; during its latency, with the rate that it would get now."""
        if flow.mark < 0 < flow.size and flow.alarm != OVER:
            return flow.since + duration(flow.size, self._sharing.prospect(flow.channels))
        self.settle()
        return flow.end

    def estimate(self, route: Route, size: float) -> float:
        """See :class:`FlowModel`; at an equal share of the narrowest channel."""
        rate = self._sharing.prospect(route.channels)
        return self._clock.now + seconds(route, size, rate)

    def free(self, route: Route) -> float:
        """See :class:`FlowModel`: a flow shares at once."""
        return self._clock.now

    def set_capacity(self, channel: int, factor: float) -> None:
        """See :class:`FlowModel`."""
        self._degrade(channel, factor)
        self._sharing.set_capacity(channel, self._capacity[channel])

    def settle(self) -> None:
        """See :class:`FlowModel`."""
        now = self._clock.now
        alarms = self._alarms
        for flow in self._sharing.update():
            if flow.end == now:  # its delivery is still to come at this instant
                continue
            rate = flow.share
            if flow.since < now:
                # The same as _pace, written out: this is where fair sharing spends its time.
                sent = flow.rate * (now - flow.since)
                flow.remaining = flow.remaining - sent if flow.remaining > sent else 0.0
                flow.since = now
                flow.rate = rate
                flow.end = now + flow.remaining / rate if rate else math.inf
            else:
                flow.rate = rate
                route = flow.route
                if rate == route.bandwidth and flow.start + route.latency == now:
                    # Unhindered from its first byte on: to the last bit the end of a flow alone.
                    flow.end = flow.start + route.seconds(flow.size)
                else:
                    flow.end = now + flow.remaining / rate if rate else math.inf
            end = flow.end
            if end < flow.alarm:
                flow.alarm = end
                self._entries += 1
                heappush(alarms, (end, self._entries, flow))
        while alarms:
            moment, _, flow = alarms[0]
            if flow.alarm != moment:
                heappop(alarms)
            elif flow.end > moment and flow.mark >= 0:  # moved away
                heappop(alarms)
                flow.alarm = math.inf
                self._arm(flow)
            else:
                if moment < self._event_at:
                    self._event_at = moment
                    self._clock.at(moment, [self._ring_due])
                return
