"""Transfers that a launcher begins and whose ends it tells, where links have one.

Who copies between memories is a thread of the same host whose threads launch operators, or of the same interpreter: it
must have that before a transfer goes, and again when it has come, before anybody knows. Each takes the
``launch_overhead`` of the link, and waits while the launcher is busy (:mod:`simulator.devices.host_launch_lock`). So copies wait for
operators' launches, and these for copies.

A transfer over several such links is begun and told of by each of them in their order. One at a time (``fifo``) means
from its beginning to its being told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

from simulator.clock import Clock, Moment
from simulator.devices.host_launch_lock import Launcher
from simulator.links.flows import OVER, Delivered, Flow, FlowModel
from simulator.links.registry import flows_by_name
from simulator.model.cluster import Cluster, Route


class Crossing:
    """A transfer on its way.

    Attributes:
        flow: that was asked for.
        inner: what of it crosses now; None before and behind that.
        begun: whether it is more than asked for.
        crossed: whether it has come.
        left: seconds of launches that follow the one that it is at, on this side.
        moment: when the launch that it is at is over; ``inf`` at none.
        launch: tells that launch from others.
    """

    __slots__ = ("begun", "crossed", "flow", "inner", "launch", "left", "moment")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.inner: Flow | None = None
        self.begun = self.crossed = False
        self.left = 0.0
        self.moment = math.inf
        self.launch: object = None


class LaunchedFlows:
    """Flows of which some are launched; a :class:`simulator.links.flows.FlowModel`.

    Args:
        clock: simulated time.
        cluster: of the links.
        contention: ``none``, ``fifo`` or ``fair``.
        launchers: by name; a link whose launcher is none of them has it for itself.
        delivered: called at the end of each flow.
    """

    def __init__(
        self,
        clock: Clock,
        cluster: Cluster,
        contention: str,
        launchers: Mapping[str, Launcher],
        delivered: Delivered,
    ) -> None:
        self._clock = clock
        self._launchers = launchers
        self._delivered = delivered
        self._in_turn = contention == "fifo"
        # Who has its channels alone from before it crosses until after that has nobody to share them with.
        model = "none" if self._in_turn else contention
        self._inner = flows_by_name(model, clock, cluster.capacities, self._on_crossed)
        self._crossings: dict[Flow, Crossing] = {}  # in the order of their requests
        self._of_inner: dict[Flow, Crossing] = {}
        self._lines: list[deque[Flow]] = [deque() for _ in cluster.channels]
        self._asked = False  # whether some may begin
        self._bare: dict[Route, Route] = {}
        self._changes = 0
        self._known: tuple[float, int, dict[Flow, float], list[float]] | None = None

    def request(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        self._crossings[flow] = Crossing(flow)
        for channel in flow.channels if self._in_turn else ():
            self._lines[channel].append(flow)
        self._asked = True
        self._changes += 1

    def settle(self) -> None:
        """See :class:`FlowModel`."""
        if self._asked:
            self._asked = False
            for flow, crossing in list(self._crossings.items()):
                if not crossing.begun and self._is_next(flow):
                    crossing.begun = True
                    self._launch(crossing, 0, self._cross)
        self._inner.settle()

    def _is_next(self, flow: Flow) -> bool:
        """Whether its channels are free for it."""
        return not self._in_turn or all(self._lines[c][0] is flow for c in flow.channels)

    def _launch(self, crossing: Crossing, number: int, then: Callable[[Crossing], None]) -> None:
        """Have the launchers of a route from that number on one after the other."""
        launches = crossing.flow.route.launches
        if number == len(launches):
            crossing.moment, crossing.launch = math.inf, None
            then(crossing)
            return
        spec, clock = launches[number], self._clock
        crossing.left = math.fsum(later.overhead for later in launches[number + 1 :])
        launch = crossing.launch = object()

        def at(moment: float) -> None:
            if crossing.launch is not launch:
                return  # called off while it waited
            if not (number or crossing.crossed):
                crossing.flow.start = moment
            crossing.moment = moment + spec.overhead
            self._changes += 1
            clock.at(crossing.moment, [over])

        def over(_: Moment) -> None:
            # Not if it was to begin later after all, nor twice.
            if crossing.launch is launch and crossing.moment == clock.now:
                self._launch(crossing, number + 1, then)

        launcher = self._launchers.get(spec.launcher)
        if launcher is None:
            at(clock.now)
        else:
            at(launcher.begin(clock.now, spec.overhead, spec.handover, spec.passed, at))

    def _cross(self, crossing: Crossing) -> None:
        flow = crossing.flow
        if not flow.route.launches:
            flow.start = self._clock.now
        inner = Flow(
            flow.tensors,
            flow.source,
            flow.destination,
            self._without_launches(flow.route),
            flow.size,
            self._clock.now,
        )
        crossing.inner = inner
        self._of_inner[inner] = crossing
        self._changes += 1
        self._inner.request(inner)

    def _without_launches(self, route: Route) -> Route:
        if not route.launches:
            return route
        if route not in self._bare:
            latency = max(0.0, route.latency - route.launching)
            self._bare[route] = Route(route.channels, route.bandwidth, latency)
        return self._bare[route]

    def _on_crossed(self, inner: Flow) -> None:
        crossing = self._of_inner.pop(inner)
        crossing.inner, crossing.crossed = None, True
        if crossing.flow.route.launches:
            self._launch(crossing, 0, self._tell)
        elif (
            inner.requested == self._clock.now
        ):  # what takes no time would be told before it is waited for
            crossing.moment, crossing.launch = self._clock.now, self
            self._clock.at(self._clock.now, [self._on_told], crossing)
        else:
            self._tell(crossing)

    def _on_told(self, event: Moment) -> None:
        crossing: Crossing = event.subject
        if crossing.launch is self:
            self._tell(crossing)

    def _tell(self, crossing: Crossing) -> None:
        flow = crossing.flow
        flow.remaining = 0.0
        self._leave(flow)
        self._delivered(flow)

    def _leave(self, flow: Flow) -> None:
        flow.end, flow.alarm = self._clock.now, OVER
        del self._crossings[flow]
        for channel in flow.channels if self._in_turn else ():
            self._lines[channel].remove(flow)
        self._asked = True
        self._changes += 1

    def cancel(self, flow: Flow) -> None:
        """See :class:`FlowModel`."""
        crossing = self._crossings.get(flow)
        if crossing is None:
            return
        crossing.launch = None
        if crossing.inner is not None:
            inner = crossing.inner
            del self._of_inner[inner]
            self._inner.cancel(inner)
            flow.remaining = inner.remaining
        elif crossing.crossed:
            flow.remaining = 0.0
        self._leave(flow)

    def expected(self, flow: Flow) -> float:
        """See :class:`FlowModel`."""
        return self._expectations()[0].get(flow, flow.end)

    def estimate(self, route: Route, size: float) -> float:
        """See :class:`FlowModel`."""
        return self._inner.estimate(route, size) + (self.free(route) - self._clock.now)

    def free(self, route: Route) -> float:
        """See :class:`FlowModel`."""
        if not self._in_turn:
            return self._inner.free(route)
        free = self._expectations()[1]
        return max(self._clock.now, *(free[channel] for channel in route.channels))

    def set_capacity(self, channel: int, factor: float) -> None:
        """See :class:`FlowModel`."""
        self._inner.set_capacity(channel, factor)
        self._changes += 1

    def _expectations(self) -> tuple[dict[Flow, float], list[float]]:
        """When every flow is believed to be told of, and each channel to be free."""
        now = self._clock.now
        if self._known is None or self._known[:2] != (now, self._changes):
            ends: dict[Flow, float] = {}
            free = [0.0] * len(self._lines)
            for flow, crossing in self._crossings.items():
                start = max([now, *(free[c] for c in flow.channels)] if self._in_turn else [now])
                ends[flow] = end = self._believed_end(crossing, start)
                for channel in flow.channels:
                    free[channel] = end
            self._known = now, self._changes, ends, free
        return self._known[2], self._known[3]

    def _believed_end(self, crossing: Crossing, start: float) -> float:
        flow, inner = crossing.flow, crossing.inner
        if not crossing.begun:
            return start + flow.route.seconds(flow.size)
        telling = flow.route.launching / 2
        if inner is not None:
            return self._inner.expected(inner) + telling
        launched = max(self._clock.now, crossing.moment) + crossing.left
        if crossing.crossed:
            return launched
        return launched + self._without_launches(flow.route).seconds(flow.size) + telling


def flows_of(
    cluster: Cluster,
    contention: str,
    clock: Clock,
    launchers: Mapping[str, Launcher],
    delivered: Delivered,
) -> FlowModel:
    """The model of a cluster's links, launched where they are.

    Args:
        cluster: of the links.
        contention: ``none``, ``fifo`` or ``fair``.
        clock: simulated time.
        launchers: of :func:`simulator.devices.host_launch_lock.launchers_of`.
        delivered: called at the end of each flow, when ``flow.end`` is the clock's time.

    Raises:
        InvalidInput: there is no such contention.
    """
    if any(link.launcher is not None for link in cluster.links):
        return LaunchedFlows(clock, cluster, contention, launchers, delivered)
    return flows_by_name(contention, clock, cluster.capacities, delivered)
