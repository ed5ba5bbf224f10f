"""What may go wrong while a run goes on: devices fail and slow down, links fail and degrade.

Faults are data: what happens, to whom, from when to when. They are given one by one (:class:`Fault`) or
drawn (:class:`RandomFaults`): each device or link then works for an exponential time of mean ``mtbf``,
is at fault for an exponential time of mean ``mttr``, and so on. The draws depend on the run's seed and
on the name alone, so that every scheduler meets the same faults.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from simulator.clock import Clock, Moment
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster


@dataclass(frozen=True)
class FaultKind:
    """What a kind of fault is.

    Attributes:
        hits: ``device`` or ``link``.
        partial: whether it leaves a ``factor`` of the rate or the bandwidth.
        slows: whether it changes the rate at which a device executes.
        apply: called with the run, the fault and whether it begins (or ends); None: the engine knows it.
    """

    hits: str
    partial: bool = False
    slows: bool = False
    apply: Callable[[Any, Fault, bool], None] | None = None


KINDS: dict[str, FaultKind] = {
    "device_failure": FaultKind("device"),
    "device_slowdown": FaultKind("device", partial=True, slows=True),
    "link_outage": FaultKind("link"),
    "link_degradation": FaultKind("link", partial=True),
}
"""By name, in the order in which those of one instant are applied."""


def register(what: str, kind: FaultKind) -> None:
    """Offer another kind of fault to every run.

    Raises:
        InvalidInput: the name is taken, or nothing applies it.
    """
    if what in KINDS:
        raise InvalidInput(f"There is a fault '{what}' already; choose another name")
    if kind.apply is None:
        raise InvalidInput(f"The fault '{what}' needs a function that applies it")
    KINDS[what] = kind


def unregister(what: str) -> None:
    """Offer a kind of fault no more."""
    del KINDS[what]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        what: one of ``KINDS``.
        where: name of the device or the link (both its directions).
        start: seconds.
        end: seconds; infinite if it is never mended.
        factor: what is left of the rate or the bandwidth; for slowdown and degradation.
        memory_lost: whether a device's failure takes what lies in its memory space; None: if the
            device is alone there and the space is not the cluster's host memory.
    """

    what: str
    where: str
    start: float
    end: float = math.inf
    factor: float | None = None
    memory_lost: bool | None = None

    @property
    def left(self) -> float:
        """What is left of the rate or the bandwidth."""
        return self.factor or 0.0


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Faults of one kind at random times.

    Attributes:
        what: one of ``KINDS``.
        mtbf: mean seconds from the start, or from a recovery, to the next fault.
        mttr: mean seconds from a fault to the recovery.
        where: name of the device or the link; None: each of them, on its own.
        factor, memory_lost: as of :class:`Fault`.
    """

    what: str
    mtbf: float
    mttr: float
    where: str | None = None
    factor: float | None = None
    memory_lost: bool | None = None


@dataclass(frozen=True)
class Faults:
    """All that may go wrong in a run.

    Attributes:
        events: faults at given times.
        random: faults at random times.
        max_attempts: executions of a task, and transfers of a tensor to one memory that were called off, after
            which the job fails if yet another is needed; None: no limit, so that a run may never end.
    """

    events: Sequence[Fault] = ()
    random: Sequence[RandomFaults] = ()
    max_attempts: int | None = 4

    def __bool__(self) -> bool:
        return bool(self.events or self.random)

    @property
    def sources(self) -> list[Fault | RandomFaults]:
        """All of them."""
        return [*self.events, *self.random]

    @property
    def fails_devices(self) -> bool:
        """Whether a device may fail, with what ran there and what its memory held."""
        return any(entry.what == "device_failure" for entry in self.sources)

    def check(self, cluster: Cluster) -> None:
        """Refuse what cannot be.

        Raises:
            InvalidInput: an unknown fault or name, times or a factor out of range, a fault that is to
                begin again before it has ended.
        """
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidInput(
                f"max_attempts is {self.max_attempts}; give at least 1, or null for no limit"
            )
        for fault in self.events:
            _check_kind(fault, cluster)
            if not 0 <= fault.start < math.inf or not fault.end > fault.start:
                raise InvalidInput(
                    f"The {fault.what} of '{fault.where}' lasts from {fault.start} s to {fault.end} s; "
                    "it must start at 0 s or later and end after that"
                )
        for entry in self.random:
            _check_kind(entry, cluster)
            for name in ("mtbf", "mttr"):
                if not 0 < getattr(entry, name) < math.inf:
                    raise InvalidInput(
                        f"Random {entry.what} has {name} {getattr(entry, name)} s; give mean seconds > 0"
                    )
        ordered = sorted(self.events, key=lambda f: (f.what, f.where, f.start))
        for one, two in itertools.pairwise(ordered):
            if (one.what, one.where) == (two.what, two.where) and two.start < one.end:
                raise InvalidInput(
                    f"'{one.where}' has a {one.what} from {one.start} s to {one.end} s and another "
                    f"from {two.start} s; join them, or let them follow each other"
                )

    def slowed(self, cluster: Cluster) -> set[int]:
        """Devices that a slowdown may reach."""
        found = set()
        for entry in self.sources:
            if KINDS[entry.what].slows:
                found |= {cluster.device_index[name] for name in _names(entry, cluster)}
        return found


def _names(entry: Fault | RandomFaults, cluster: Cluster) -> list[str]:
    if entry.where is not None:
        return [entry.where]
    things = cluster.devices if KINDS[entry.what].hits == "device" else cluster.links
    return [thing.name for thing in things]


def _check_kind(entry: Fault | RandomFaults, cluster: Cluster) -> None:
    if entry.what not in KINDS:
        raise InvalidInput(f"There is no fault '{entry.what}'; known: {', '.join(KINDS)}")
    device = KINDS[entry.what].hits == "device"
    known = [thing.name for thing in (cluster.devices if device else cluster.links)]
    if entry.where is not None and entry.where not in known:
        raise InvalidInput(
            f"A {entry.what} is to hit '{entry.where}'; cluster '{cluster.name}' has the "
            f"{'devices' if device else 'links'} {', '.join(known) or '(none)'}"
        )
    if KINDS[entry.what].partial:
        if entry.factor is None or not 0 < entry.factor < 1:
            raise InvalidInput(
                f"A {entry.what} needs a factor between 0 and 1, what is left of the full rate; it has "
                f"{entry.factor}"
            )
    elif entry.factor is not None:
        raise InvalidInput(f"A {entry.what} leaves nothing, so it takes no factor ({entry.factor})")
    if entry.memory_lost is not None and entry.what != "device_failure":
        raise InvalidInput(f"A {entry.what} takes no memory; memory_lost is for device_failure")


class FaultInjector:
    """Lets faults happen, a SimPy process for each and one for each device or link at random.

    Args:
        over: whether nothing is left that a fault could reach.

    Attributes:
        active: faults in force.
        happened: every fault that has begun, in that order.
    """

    def __init__(
        self, faults: Faults, cluster: Cluster, clock: Clock, seed: int, over: Callable[[], bool]
    ) -> None:
        self.active: list[Fault] = []
        self.happened: list[Fault] = []
        self._changes: list[tuple[bool, Fault]] = []
        self._clock = clock
        self._over = over
        self._waiting = 0
        for fault in faults.events:
            clock.process(self._strike(fault))
        for number, entry in enumerate(faults.random):
            for name in _names(entry, cluster):
                key = zlib.crc32(f"{entry.what} {name}".encode())
                rng = np.random.default_rng([abs(seed), key, number])
                clock.process(self._recur(entry, name, rng))

    def _moment(self, time: float) -> simpy.Event:
        """An event at exactly this time."""
        event = simpy.Event(self._clock)
        self._waiting += 1
        self._clock.at(time, [self._ring], event)
        return event

    def _ring(self, occurrence: Moment) -> None:
        self._waiting -= 1
        occurrence.subject.succeed()

    def _strike(self, fault: Fault) -> Generator[simpy.Event, Any, None]:
        yield self._moment(fault.start)
        if self._over():
            return
        self._changes.append((True, fault))
        if fault.end < math.inf:
            yield self._moment(fault.end)
            self._changes.append((False, fault))

    def _recur(
        self, entry: RandomFaults, where: str, rng: np.random.Generator
    ) -> Generator[simpy.Event, Any, None]:
        time = 0.0
        while True:
            start = time + float(rng.exponential(entry.mtbf))
            time = start + float(rng.exponential(entry.mttr))
            yield self._moment(start)
            if self._over():
                return
            fault = Fault(entry.what, where, start, time, entry.factor, entry.memory_lost)
            self._changes.append((True, fault))
            yield self._moment(time)
            self._changes.append((False, fault))

    @property
    def is_all_that_waits(self) -> bool:
        """Whether the clock holds nothing but faults to come, and none in force will end."""
        ending = any(fault.end < math.inf for fault in self.active)
        others = self._clock.waiting - self._waiting
        return not ending and not self._changes and others <= 0

    def take(self) -> list[tuple[bool, Fault]]:
        """What has changed at this instant: (begins, fault); ends first, then by kind and name."""
        order = list(KINDS)
        changes = sorted(
            self._changes, key=lambda row: (row[0], order.index(row[1].what), row[1].where)
        )
        self._changes.clear()
        for begins, fault in changes:
            if begins:
                self.active.append(fault)
                self.happened.append(fault)
            else:
                self.active.remove(fault)
        return changes

    def report(self) -> list[dict[str, Any]]:
        """What has happened, for the trace's description."""
        return [
            {
                "what": fault.what,
                "where": fault.where,
                "from": fault.start,
                "to": fault.end if fault.end < math.inf else None,
                "factor": fault.left,
            }
            for fault in self.happened
        ]
