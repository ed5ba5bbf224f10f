"""Transfers by the definition, in exact fractions and from scratch at every event: the reference that
the event-driven models are held against. Slow, and written without their code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from simulator.model.cluster import Route


@dataclass(frozen=True)
class Asked:
    """A transfer that is requested, and perhaps called off later."""

    moment: float
    route: Route
    size: float
    cancelled: float | None = None


def max_min(routes: Sequence[Sequence[int]], capacities: Sequence[Fraction]) -> list[Fraction]:
    """Exact max-min fair rates: raise the rates of all that can still grow by the same step, until
    the first channel is full; those on a full channel stop.
    """
    rates = [Fraction(0)] * len(routes)
    growing = set(range(len(routes)))
    while growing:
        steps = []
        for channel, capacity in enumerate(capacities):
            here = [i for i, route in enumerate(routes) if channel in route]
            climbing = growing.intersection(here)
            if climbing:
                steps.append((capacity - sum(rates[i] for i in here)) / len(climbing))
        for i in growing:
            rates[i] += min(steps)
        for channel, capacity in enumerate(capacities):
            here = [i for i, route in enumerate(routes) if channel in route]
            if sum(rates[i] for i in here) == capacity:
                growing -= set(here)
    return rates


def transfer_ends(
    contention: str,
    capacities: Sequence[float],
    asked: Sequence[Asked],
    changes: Sequence[tuple[float, int, float]] = (),
) -> list[tuple[float, float] | None]:
    """(start, end) of each transfer, None if it was called off before its end; ``changes`` are
    (moment, channel, factor), in order of time; ``asked`` is in order of request.

    An end is infinite if an outage lasts for ever.
    """
    nominal = [Fraction(c) for c in capacities]
    factor = [Fraction(1)] * len(nominal)
    count = len(asked)
    unsent = [Fraction(a.size) for a in asked]
    latency = [Fraction(a.route.latency) for a in asked]
    start: list[Fraction | None] = [None] * count
    end: list[Fraction | None] = [None] * count
    gone = [False] * count
    now = Fraction(0)
    moments = sorted(
        {Fraction(a.moment) for a in asked}
        | {Fraction(a.cancelled) for a in asked if a.cancelled is not None}
        | {Fraction(moment) for moment, _, _ in changes}
    )
    while True:
        for moment, channel, value in changes:
            if Fraction(moment) == now:
                factor[channel] = Fraction(value)
        for i, a in enumerate(asked):
            if a.cancelled is not None and Fraction(a.cancelled) == now:
                gone[i] = True
        # What ends now may let others start that end now as well.
        while True:
            alive = [
                i
                for i in range(count)
                if Fraction(asked[i].moment) <= now and not gone[i] and end[i] is None
            ]
            for i in alive:
                ahead = [j for j in alive if j < i] if contention == "fifo" else []
                if start[i] is None and not any(
                    set(asked[i].route.channels) & set(asked[j].route.channels) for j in ahead
                ):
                    start[i] = now
            ending = [i for i in alive if start[i] is not None and not latency[i] + unsent[i]]
            for i in ending:
                end[i] = now
            if not ending:
                break
        sending = [i for i in alive if start[i] is not None and not latency[i]]
        capacity = [n * f for n, f in zip(nominal, factor, strict=True)]
        if contention == "fair":
            rates = max_min([asked[i].route.channels for i in sending], capacity)
        else:
            rates = [min(capacity[c] for c in asked[i].route.channels) for i in sending]
        waits = [i for i in alive if start[i] is not None and latency[i]]
        steps = [latency[i] for i in waits]
        steps += [unsent[i] / r for i, r in zip(sending, rates, strict=True) if r]
        steps += [moment - now for moment in moments if moment > now]
        if not steps:
            break
        step = min(steps)
        now += step
        for i, rate in zip(sending, rates, strict=True):
            unsent[i] -= rate * step
        for i in waits:
            latency[i] -= step
    return [
        None
        if gone[i] and end[i] is None
        else (
            float("inf") if start[i] is None else float(start[i]),  # type: ignore[arg-type]
            float("inf") if end[i] is None else float(end[i]),  # type: ignore[arg-type]
        )
        for i in range(count)
    ]
