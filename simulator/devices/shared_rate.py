"""Devices on which a task's rate changes while it runs.

A task needs its seconds at full rate (1); at rate ``r`` a second of it takes ``1 / r`` seconds. Its rate
is the product of

- its device's share: 1 under ``sharing: slots``, 1 over the number of tasks that run on the device under
  ``sharing: processor``;
- its device's factor, below 1 during an interval of slowdown (:mod:`simulator.engine.faults`);
- what its memory space leaves of that: all of it; ``1 / (1 + s (k - 1))`` with ``corun_slowdown`` s and
  k busy slots in the space, or in all spaces of its ``bus``; or, with a ``bandwidth``, the max-min fair share of it over the task's
  demand, at most 1. A task's demand is the bytes that it reads and writes over its seconds, at the rate
  that its device gives it.

The launch overhead comes first and is never slowed: it is the host's time. The task counts among those
that share from its start on, overhead included.

Rates are worked out once an instant, and only tasks whose rate has changed are timed anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from simulator.devices.constant import ConstantRate, ExecutionModel
from simulator.devices.effects import affected
from simulator.devices.host_launch_lock import Launcher, launched
from simulator.devices.idle_wakeup import woken
from simulator.model.cluster import Cluster, MemorySpace


class CoRun(Protocol):
    """What tasks that run at once in one memory space leave each other."""

    def rates(
        self, given: Sequence[float], demands: Sequence[float], spaces: Sequence[int]
    ) -> list[float]:
        """Rates of all running tasks.

        Args:
            given: the rate that its device gives each task, above 0 and at most 1.
            demands: bytes per second of each task at full rate.
            spaces: the memory space that each runs in.
        """
        ...


class SlowdownPerSlot:
    """Every other busy slot costs the same fraction of a task's time, one for each memory space."""

    def __init__(self, fractions: Mapping[int, float]) -> None:
        self._fractions = fractions

    def rates(
        self, given: Sequence[float], demands: Sequence[float], spaces: Sequence[int]
    ) -> list[float]:
        """See :class:`CoRun`."""
        others = len(given) - 1
        factors = {
            space: 1.0 / (1.0 + fraction * others) for space, fraction in self._fractions.items()
        }
        return [rate * factors[space] for rate, space in zip(given, spaces, strict=True)]


class SharedBandwidth:
    """Max-min fair shares of a memory's bandwidth in bytes per second."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth

    def rates(
        self, given: Sequence[float], demands: Sequence[float], spaces: Sequence[int]
    ) -> list[float]:
        """See :class:`CoRun`."""
        wanted = [rate * demand for rate, demand in zip(given, demands, strict=True)]
        level = fair_level(wanted, self._bandwidth)
        return [
            rate if want <= level else rate * (level / want)
            for rate, want in zip(given, wanted, strict=True)
        ]


def fair_level(demands: Sequence[float], capacity: float) -> float:
    """The share at which max-min fairness cuts off demands; ``inf`` if all of them fit."""
    if math.fsum(demands) <= capacity:
        return math.inf
    left, count = capacity, len(demands)
    for demand in sorted(demands):
        if demand * count > left:
            break
        left -= demand
        count -= 1
    return left / max(count, 1)


def co_run(spaces: Mapping[int, MemorySpace]) -> CoRun:
    """The model that memory spaces ask for whose tasks slow each other: several, or one with a bandwidth."""
    for space in spaces.values():
        if space.bandwidth is not None:
            return SharedBandwidth(space.bandwidth)
    return SlowdownPerSlot({number: space.corun_slowdown for number, space in spaces.items()})


class Running:
    """A task under way."""

    __slots__ = ("demand", "device", "finish", "rate", "remaining", "since", "start", "task")

    def __init__(self, task: int, device: int, seconds: float, start: float, demand: float) -> None:
        self.task = task
        self.device = device
        self.remaining = seconds  # at full rate, as of `since`
        self.start = start
        self.since = start
        self.rate = 0.0  # none yet
        self.finish = math.inf
        self.demand = demand


class SharedRates:
    """The running tasks of one memory space, or of those that share a bus, and their rates.

    Args:
        spaces: by index; how tasks in them slow each other.
        overheads: launch overhead in seconds of each device in them.
        space_of: index of the memory space of each of those devices.
        processor_sharing: those of the devices that share one full rate.
        bytes_of: called with a task for the bytes that it reads and writes.
        finish_at: called with a task and its finish, again whenever that moves.
    """

    def __init__(
        self,
        spaces: Mapping[int, MemorySpace],
        overheads: Mapping[int, float],
        space_of: Mapping[int, int],
        processor_sharing: Collection[int],
        bytes_of: Callable[[int], float],
        finish_at: Callable[[int, float], None],
    ) -> None:
        self._co_run = co_run(spaces)
        self._overheads = overheads
        self._space_of = space_of
        self._sharing = frozenset(processor_sharing)
        self._bytes_of = bytes_of
        self._finish_at = finish_at
        self._factors = dict.fromkeys(overheads, 1.0)
        self._members: dict[int, Running] = {}
        self._changed = False

    def begin(self, device: int, task: int, seconds: float, start: float) -> None:
        """A task starts; its finish is said when the instant is settled."""
        demand = self._bytes_of(task) / seconds if seconds else 0.0
        self._members[task] = Running(task, device, seconds, start, demand)
        self._changed = True

    def end(self, task: int) -> None:
        """A task has finished, or was taken away."""
        del self._members[task]
        self._changed = True

    def set_factor(self, device: int, factor: float) -> None:
        """From now on a device runs at ``factor`` of its rate, above 0 and at most 1."""
        self._factors[device] = factor
        self._changed = True

    def settle(self, now: float) -> None:
        """Time anew the tasks whose rates have changed at this instant."""
        if not self._changed:
            return
        self._changed = False
        members = list(self._members.values())
        if not members:
            return
        share = dict(self._factors)
        for device in self._sharing:
            count = sum(member.device == device for member in members)
            share[device] /= max(count, 1)
        given = [share[member.device] for member in members]
        rates = self._co_run.rates(
            given,
            [member.demand for member in members],
            [self._space_of[member.device] for member in members],
        )
        for member, rate in zip(members, rates, strict=True):
            if rate != member.rate and member.finish > now:
                self._pace(member, rate, now)

    def _pace(self, member: Running, rate: float, now: float) -> None:
        overhead = self._overheads[member.device]
        if not member.rate:
            member.since = member.start + overhead
        elif member.since < now:
            done = member.rate * (now - member.since)
            member.remaining = max(0.0, member.remaining - done)
            member.since = now
        if not member.rate and rate == 1.0:
            # To the last bit what a constant rate gives.
            member.finish = member.start + (overhead + member.remaining)
        else:
            member.finish = member.since + member.remaining / rate
        member.rate = rate
        self._finish_at(member.task, member.finish)


class RateShared:
    """One device of a memory space whose rates change."""

    final = False

    def __init__(self, shared: SharedRates, device: int) -> None:
        self._shared = shared
        self._device = device

    def begin(self, task: int, seconds: float, start: float) -> None:
        """See :class:`ExecutionModel`."""
        self._shared.begin(self._device, task, seconds, start)

    def goes_on(self, task: int, now: float) -> bool:
        """See :class:`ExecutionModel`."""
        return False

    def end(self, task: int, now: float) -> None:
        """See :class:`ExecutionModel`."""
        self._shared.end(task)


def shares_rates(cluster: Cluster) -> bool:
    """Whether tasks of a cluster slow each other."""
    return bool(_sharing_buses(cluster))


def _sharing_buses(cluster: Cluster, slowed: Collection[int] = ()) -> list[tuple[int, ...]]:
    spaces = _sharing_spaces(cluster) | {cluster.space_of[device] for device in slowed}
    return [bus for bus in cluster.buses if not spaces.isdisjoint(bus)]


def _sharing_spaces(cluster: Cluster) -> set[int]:
    found = {
        cluster.space_of[number]
        for number, device in enumerate(cluster.devices)
        if device.sharing == "processor"
    }
    return found | {
        number
        for number, space in enumerate(cluster.spaces)
        if space.bandwidth is not None or space.corun_slowdown
    }


def execution_models(
    cluster: Cluster,
    bytes_of: Callable[[int], float],
    finish_at: Callable[[int, float], None],
    launchers: Mapping[str, Launcher],
    slowed: Collection[int] = (),
) -> tuple[list[ExecutionModel], dict[int, SharedRates]]:
    """How each device executes, and what is shared, by memory space; spaces of one bus share it.

    Args:
        cluster: says which devices and spaces share.
        bytes_of: called with a task for the bytes that it reads and writes.
        finish_at: called with a task and its finish.
        launchers: of :func:`simulator.devices.host_launch_lock.launchers_of`, which transfers may share.
        slowed: devices whose factor may change.
    """
    shared: dict[int, SharedRates] = {}
    for bus in _sharing_buses(cluster, slowed):
        inside = {
            number: device
            for number, device in enumerate(cluster.devices)
            if cluster.space_of[number] in bus
        }
        rates = SharedRates(
            {space: cluster.spaces[space] for space in bus},
            {number: device.launch_overhead for number, device in inside.items()},
            {number: cluster.space_of[number] for number in inside},
            [number for number, device in inside.items() if device.sharing == "processor"],
            bytes_of,
            finish_at,
        )
        shared |= dict.fromkeys(bus, rates)
    models: list[ExecutionModel] = [
        RateShared(shared[cluster.space_of[number]], number)
        if cluster.space_of[number] in shared
        else ConstantRate(device.launch_overhead, finish_at)
        for number, device in enumerate(cluster.devices)
    ]
    return affected(cluster, woken(cluster, launched(cluster, models, launchers))), shared
