"""How long transfers take when they share links: the models, by the name of a run's ``contention``.

``none`` lets every transfer have its route alone; ``fifo`` sends one at a time over each channel (one
direction of a link, or a whole half-duplex link), in order of request. A transfer over several links
holds all of them from its start to its end. ``fair`` shares every channel max-min fairly: the ends of
transfers under way move, so what it books is what schedulers believe (:mod:`simulator.links.contention` has
what happens).

A model says what a transfer would take if nothing disturbed it. Where it calls that final, the engine
makes no event for transfers. Where something may disturb them (faults, limited memory), they become flows
with events: those of ``flows``, if a model names its own, or else flows that end when they were booked to.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import TYPE_CHECKING, Protocol

from simulator.errors import InvalidInput
from simulator.model.cluster import Route

if TYPE_CHECKING:
    from simulator.clock import Clock
    from simulator.links.flows import Delivered, FlowModel


class LinkModel(Protocol):
    """How transfers share links.

    Attributes:
        final: whether a transfer that nothing disturbs ends when it was booked to, whatever is sent after it.
    """

    final: bool

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
        """Book a transfer.

        Args:
            route: its channels, bandwidth in bytes per second and latency in seconds.
            size: bytes.
            now: when it is requested, seconds.
            free: by channel, when it is free, seconds; a model may move those of the route.

        Returns:
            Start and end, seconds.
        """
        ...

    def flows(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> FlowModel:
        """The same by events, for runs that may disturb transfers.

        Args:
            clock: simulated time.
            capacities: bytes per second of every channel.
            delivered: called at the end of each flow, when ``flow.end`` is the clock's time.
        """
        ...


class Uncontended:
    """Every transfer has its route alone."""

    final = True

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
        """See :class:`LinkModel`."""
        return now, now + (route.latency + size / route.bandwidth)

    def flows(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> FlowModel:
        """See :class:`LinkModel`."""
        from simulator.links.contention import UncontendedFlows

        return UncontendedFlows(clock, capacities, delivered)


class Fifo:
    """One transfer at a time over each channel."""

    final = True

    def book(
        self, route: Route, size: float, now: float, free: MutableSequence[float]
    ) -> tuple[float, float]:
        """See :class:`LinkModel`."""
        start = now
        for channel in route.channels:
            if free[channel] > start:
                start = free[channel]
        end = start + (route.latency + size / route.bandwidth)
        for channel in route.channels:
            free[channel] = end
        return start, end

    def flows(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> FlowModel:
        """See :class:`LinkModel`."""
        from simulator.links.contention import FifoFlows

        return FifoFlows(clock, capacities, delivered)


class Fair(Uncontended):
    """Max-min fair shares; what is booked is what schedulers believe, every route alone."""

    final = False

    def flows(self, clock: Clock, capacities: Sequence[float], delivered: Delivered) -> FlowModel:
        """See :class:`LinkModel`."""
        from simulator.links.contention import FairFlows

        return FairFlows(clock, capacities, delivered)


_MODELS: dict[str, Callable[[], LinkModel]] = {
    "none": Uncontended,
    "fifo": Fifo,
    "fair": Fair,
}


def register(contention: str, model: Callable[[], LinkModel]) -> None:
    """Offer another link model under a name of its own; every run with that ``contention`` uses it.

    Raises:
        InvalidInput: the name is taken.
    """
    if contention in _MODELS:
        raise InvalidInput(f"There is a contention '{contention}' already; choose another name")
    _MODELS[contention] = model


def unregister(contention: str) -> None:
    """Offer a link model of one's own no more."""
    del _MODELS[contention]


def contentions() -> tuple[str, ...]:
    """The names of all link models."""
    return tuple(_MODELS)


def link_model(contention: str) -> LinkModel:
    """The link model of that name.

    Raises:
        InvalidInput: there is none.
    """
    if contention not in _MODELS:
        raise InvalidInput(f"Unknown contention '{contention}'; known: {', '.join(_MODELS)}")
    return _MODELS[contention]()


def flows_by_name(
    contention: str, clock: Clock, capacities: Sequence[float], delivered: Delivered
) -> FlowModel:
    """The flows of the link model of that name; see :meth:`LinkModel.flows`.

    Raises:
        InvalidInput: there is no such model.
    """
    return link_model(contention).flows(clock, capacities, delivered)
