"""Clusters: memory spaces, the devices that compute in them, and the links that join them.

A device reads and writes its memory space; tensors move between spaces, never between devices of one
space. Two CPU cores share a space, a GPU has its own.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from simulator.errors import InvalidInput
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.weight_hit_curve import ReuseCurve

SHARINGS = ("slots", "processor")
MOST_SLOTS = 65_536
"""More of one device are taken for an error."""
MOST_PAIRED = 1024
"""Devices of which each pair has a link of its own: half a million links, which take 0.3 GB."""
MOST_LATENCY, LEAST_BANDWIDTH = 1e9, 1e-6
"""Seconds, bytes per second: what lies beyond is taken for an error, and would overflow sums."""


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory that devices share.

    Attributes:
        name: unique in the cluster.
        capacity: bytes.
        bandwidth: bytes per second that all tasks running in it share, see :mod:`simulator.devices.shared_rate`;
            None: they do not slow each other by it.
        corun_slowdown: fraction of its time that a task takes longer for each other busy slot.
        bus: name of what it shares with other spaces of the cluster, a machine's memory or its host: busy slots of all
            of them count for the ``corun_slowdown`` of each; None: only its own do.
        cache: what the cache that its devices share keeps of weights between two uses
            (:mod:`simulator.devices.weight_cache`); None: every execution reads them from memory.
    """

    name: str
    capacity: float = math.inf
    bandwidth: float | None = None
    corun_slowdown: float = 0.0
    bus: str | None = None
    cache: ReuseCurve | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """Something that executes operators.

    Attributes:
        name: unique in the cluster.
        space: name of its memory space.
        profile: name of the profile that times operators on it; None in bare instances.
        slots: how many operators it runs at once (cores of a pool, streams), each at full rate
            unless ``sharing`` or its memory space says otherwise.
        launch_overhead: seconds added to every operator.
        power_idle: watts while no slot executes; None: unknown.
        power_busy: watts while all slots execute; None: unknown. In between, power grows linearly
            with the share of busy slots.
        price: of one hour, in whatever currency the whole cluster is priced in; None: unknown.
        issue_depth: for each slot, how many operators the host may have submitted without knowing
            them to be complete; of meaning where there is a ``completion_latency``.
        completion_latency: seconds from an operator's end to the host's knowing of it.
        issue_overhead: seconds that it takes the host to submit an operator, to one after the other of the
            device's; they cost nothing while the device is busy. Only where there is a
            ``completion_latency``.
        sharing: ``slots``: each slot runs at full rate; ``processor``: the tasks that run share one
            full rate equally (processor sharing).
        launcher: name of what launches operators on it, one at a time for all its devices: a host
            thread, an interpreter (:mod:`simulator.devices.host_launch_lock`); None: nothing that others wait for.
        launch_handover: seconds that it takes to go on with this device after another launch that this
            one had to wait for.
        launch_passed: how often other launches may be before one that waits while it is handed over.
        launches: kernels of one operator, launched one after the other; of meaning where there is a
            ``launcher``.
        launch_cooling: how many times its overhead a launch takes, by the time since the last one on its slot
            (:mod:`simulator.model.launch_cold_start`); None: once.
        wake_cost: seconds that an operator takes longer whose slot was idle for long before
            (:mod:`simulator.devices.idle_wakeup`).
        wake_after: seconds of idleness after which all but 1 / e of them are due.
        far_inputs: what reading inputs takes longer that are not at hand (:mod:`simulator.devices.input_reuse_cost`); None: nothing.
            Of a device of one slot.
        effects: by name, the options of registered effects (:mod:`simulator.devices.effects`); None: nothing.
        speed: how many times as fast as its profile it is assumed to be.
    """

    name: str
    space: str
    profile: str | None = None
    slots: int = 1
    launch_overhead: float = 0.0
    power_idle: float | None = None
    power_busy: float | None = None
    price: float | None = None
    issue_depth: int = 1
    completion_latency: float = 0.0
    issue_overhead: float = 0.0
    sharing: str = "slots"
    launcher: str | None = None
    launch_handover: float = 0.0
    launch_passed: int = 0
    launches: int = 1
    launch_cooling: CoolingCurve | None = None
    wake_cost: float = 0.0
    wake_after: float = 0.0
    far_inputs: ReadingCurve | None = None
    effects: Mapping[str, Any] | None = None
    speed: float = 1.0

    @property
    def least_launch(self) -> float:
        """Seconds that a launch takes at least."""
        cooling = self.launch_cooling
        return self.launch_overhead * (1.0 if cooling is None else cooling.factors[0])


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two memory spaces; both directions, each at full bandwidth.

    Attributes:
        bandwidth: bytes per second, each way.
        latency: seconds before the first byte arrives.
        half_duplex: both directions share one channel.
        launcher: name of what begins its transfers and tells of their ends, as of a device
            (:mod:`simulator.devices.launched_transfers`); None: nothing that others wait for.
        launch_overhead: seconds that each of both takes.
        launch_handover: seconds that it takes to go on with a transfer that had to wait for its launcher.
        launch_passed: how often others may be before one that waits while it is handed over.
    """

    name: str
    ends: tuple[str, str]
    bandwidth: float
    latency: float = 0.0
    half_duplex: bool = False
    launcher: str | None = None
    launch_overhead: float = 0.0
    launch_handover: float = 0.0
    launch_passed: int = 0


class LinkLaunch(NamedTuple):
    """What a route needs of the launcher of one of its links, before a transfer and again behind it."""

    launcher: str
    overhead: float
    handover: float
    passed: int


@dataclass(frozen=True, slots=True)
class Route:
    """How bytes get from one space to another.

    Attributes:
        channels: indices of the channels in order; a channel is one direction of a link, or a whole
            half-duplex link.
        bandwidth: bytes per second of the slowest.
        latency: seconds, summed, of launches too.
        launches: of the links that have a launcher, in their order.
    """

    channels: tuple[int, ...]
    bandwidth: float
    latency: float
    launches: tuple[LinkLaunch, ...] = ()

    @property
    def launching(self) -> float:
        """Seconds of its latency that are launchers'."""
        return 2 * math.fsum(launch.overhead for launch in self.launches)

    def seconds(self, size: float) -> float:
        """Time of ``size`` bytes over the idle route."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Cluster:
    """Memory spaces, devices and links.

    ``host`` is the memory where jobs of traced models begin and end; None in bare instances.

    Raises:
        InvalidInput: duplicate or unknown names, no device, or quantities out of range.
    """

    name: str
    spaces: Sequence[MemorySpace]
    devices: Sequence[Device]
    links: Sequence[Link] = ()
    host: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """For each profile: ``measured``, ``public``, ``datasheet``."""

    def __post_init__(self) -> None:
        for what, things in (
            ("memory space", self.spaces),
            ("device", self.devices),
            ("link", self.links),
        ):
            counts = Counter(thing.name for thing in things)
            for name, count in counts.items():
                if count > 1:
                    raise InvalidInput(f"Cluster '{self.name}' has two {what}s named '{name}'")
        if not self.devices:
            raise InvalidInput(f"Cluster '{self.name}' has no devices")
        known = self.space_index
        for space in self.spaces:
            if not space.capacity > 0:
                raise InvalidInput(f"Memory space '{space.name}' has capacity {space.capacity}")
            _check_sharing(space)
        for device in self.devices:
            if device.space not in known:
                raise InvalidInput(
                    f"Device '{device.name}' is in memory space '{device.space}', which cluster "
                    f"'{self.name}' lacks; it has {', '.join(known)}"
                )
            if not 1 <= device.slots <= MOST_SLOTS:
                raise InvalidInput(
                    f"Device '{device.name}' has {device.slots} slots; give 1 to {MOST_SLOTS}"
                )
            if device.sharing not in SHARINGS:
                raise InvalidInput(
                    f"Device '{device.name}' has sharing '{device.sharing}'; known: "
                    f"{', '.join(SHARINGS)}"
                )
            if not 0 <= device.launch_overhead <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}': launch overhead must be >= 0 s and at most "
                    f"{MOST_LATENCY:g} s"
                )
            if device.issue_depth < 1:
                raise InvalidInput(
                    f"Device '{device.name}' has issue depth {device.issue_depth}; 1 makes the host "
                    "wait for each operator"
                )
            if not 0 <= device.completion_latency <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}': completion latency must be >= 0 s and at most "
                    f"{MOST_LATENCY:g} s"
                )
            if not 0 <= device.issue_overhead <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}': issue overhead must be >= 0 s and at most "
                    f"{MOST_LATENCY:g} s"
                )
            if device.issue_overhead and not device.completion_latency:
                raise InvalidInput(
                    f"Device '{device.name}' has an issue_overhead and no completion_latency: a host that waits for "
                    "each operator has nothing to hide it behind; give a launch_overhead instead, or a "
                    "completion_latency"
                )
            if not 0 <= device.launch_handover <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}': launch_handover must be >= 0 s and at most "
                    f"{MOST_LATENCY:g} s"
                )
            if device.far_inputs is not None and device.slots > 1:
                raise InvalidInput(
                    f"Device '{device.name}' has far_inputs, which are of one core's caches, and {device.slots} slots; "
                    "make it that many devices (count)"
                )
            if not 0 <= device.wake_cost <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}': wake_cost must be >= 0 s and at most {MOST_LATENCY:g} s"
                )
            if device.wake_cost and not 0 < device.wake_after <= MOST_LATENCY:
                raise InvalidInput(
                    f"Device '{device.name}' has a wake_cost; give wake_after, the seconds of idleness after "
                    f"which most of it is due, above 0 s and at most {MOST_LATENCY:g} s"
                )
            if device.launch_passed < 0:
                raise InvalidInput(
                    f"Device '{device.name}' has launch_passed {device.launch_passed}; give 0 where none that waits "
                    "is passed over"
                )
            if device.launches < 1:
                raise InvalidInput(
                    f"Device '{device.name}' has launches {device.launches}; an operator is launched once "
                    "at least"
                )
            if device.launch_handover and device.launcher is None:
                raise InvalidInput(
                    f"Device '{device.name}' has a launch_handover and no launcher that would be handed "
                    "over; name one"
                )
            for what, value in (
                ("idle power", device.power_idle),
                ("busy power", device.power_busy),
                ("price", device.price),
            ):
                if value is not None and not (math.isfinite(value) and value >= 0):
                    raise InvalidInput(
                        f"Device '{device.name}' has {what} {value}; give a number >= 0, or leave it "
                        "out where it is unknown"
                    )
        for link in self.links:
            for end in link.ends:
                if end not in known:
                    raise InvalidInput(f"Link '{link.name}' ends at unknown memory space '{end}'")
            if link.ends[0] == link.ends[1]:
                raise InvalidInput(f"Link '{link.name}' joins '{link.ends[0]}' to itself")
            if not link.bandwidth >= LEAST_BANDWIDTH or not 0 <= link.latency <= MOST_LATENCY:
                raise InvalidInput(
                    f"Link '{link.name}' needs a bandwidth > 0 and a latency >= 0 (at least "
                    f"{LEAST_BANDWIDTH:g} B/s, at most {MOST_LATENCY:g} s), got {link.bandwidth} B/s "
                    f"and {link.latency} s"
                )
            _check_launcher(link)
        if self.host is not None and self.host not in known:
            raise InvalidInput(f"Cluster '{self.name}': host memory '{self.host}' does not exist")

    @cached_property
    def space_index(self) -> dict[str, int]:
        """Index of each memory space by name."""
        return {space.name: i for i, space in enumerate(self.spaces)}

    @cached_property
    def device_index(self) -> dict[str, int]:
        """Index of each device by name."""
        return {device.name: i for i, device in enumerate(self.devices)}

    @cached_property
    def space_of(self) -> tuple[int, ...]:
        """Index of each device's memory space."""
        return tuple(self.space_index[device.space] for device in self.devices)

    @cached_property
    def buses(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the memory spaces whose tasks slow each other, in the order of the first of each; every space is
        in one of them, alone if it names no ``bus``.
        """
        members: dict[str | int, list[int]] = {}
        for number, space in enumerate(self.spaces):
            members.setdefault(number if space.bus is None else space.bus, []).append(number)
        return tuple(map(tuple, members.values()))

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels: ``link:a->b`` for a direction, ``link`` for a half-duplex link."""
        names = []
        for link in self.links:
            a, b = link.ends
            names += (
                [link.name]
                if link.half_duplex
                else [f"{link.name}:{a}->{b}", f"{link.name}:{b}->{a}"]
            )
        return tuple(names)

    @cached_property
    def capacities(self) -> tuple[float, ...]:
        """Bytes per second of each channel."""
        return tuple(
            link.bandwidth for link in self.links for _ in range(1 if link.half_duplex else 2)
        )

    @cached_property
    def _hops(self) -> dict[tuple[int, int], tuple[int, Link]]:
        """(from, to) -> (channel, link), the fastest of parallel links."""
        hops: dict[tuple[int, int], tuple[int, Link]] = {}
        channel = 0
        for link in self.links:
            a, b = (self.space_index[end] for end in link.ends)
            back = channel if link.half_duplex else channel + 1
            for key, index in (((a, b), channel), ((b, a), back)):
                if key not in hops or hops[key][1].bandwidth < link.bandwidth:
                    hops[key] = (index, link)
            channel = back + 1
        return hops

    @cached_property
    def _routes(self) -> dict[tuple[int, int], Route]:
        return {}

    def joins(self, spaces: Collection[int]) -> bool:
        """Whether a link of its own joins every two of these spaces."""
        wanted = len(spaces) * (len(spaces) - 1)
        if len(self._hops) < wanted:
            return False
        return sum(a in spaces and b in spaces for a, b in self._hops) == wanted

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        """For each space the spaces that links join it to, ascending."""
        found: list[list[int]] = [[] for _ in self.spaces]
        for a, b in sorted(self._hops):
            found[a].append(b)
        return found

    @cached_property
    def twins(self) -> tuple[int, ...]:
        """For each memory space the smallest one that nothing can tell it from by its links.

        Twins have links of the same kind to the same spaces, and a link between them or none: what a
        third space sends to them takes the same time, as does what they send to it.
        """
        first: dict[int, int] = {}
        groups = []
        for space, neighbours in enumerate(self._neighbours):
            ends = [(n, self._kind(space, n)) for n in neighbours]
            # Twins without a link have the same neighbours; those with one have the same if each
            # counts as its own neighbour.
            views = [ends, *([*ends, (space, kind)] for kind in {kind for _, kind in ends})]
            found = (first.setdefault(hash(frozenset(view)), space) for view in views)
            groups.append(min(twin for twin in found if self._are_twins(twin, space)))
        return tuple(groups)

    def kind_of(self, device: int, ends: Collection[str | None]) -> tuple[str, str]:
        """Equal for devices on which the same operators, taking the same times, alone come to the same.

        Args:
            device: index.
            ends: memory spaces where jobs begin and end; devices of others are alike in twins.
        """
        own, space = self.devices[device], self.spaces[self.space_of[device]]
        if space.name not in ends:
            twin = self.spaces[self.twins[self.space_of[device]]]
            space = replace(space, name=twin.name)
        return repr(replace(own, name="", space="")), repr(space)

    def _are_twins(self, a: int, b: int) -> bool:
        neighbours = [n for n in self._neighbours[a] if n != b]
        return neighbours == [n for n in self._neighbours[b] if n != a] and all(
            self._kind(a, n) == self._kind(b, n) for n in neighbours
        )

    def _kind(self, a: int, b: int) -> tuple[object, ...]:
        link = self._hops[a, b][1]
        return link.bandwidth, link.latency, _launches([link])

    def route(self, source: int, destination: int) -> Route:
        """The route between two different spaces (indices): fewest links, then greatest bandwidth.

        Raises:
            InvalidInput: no chain of links joins them.
        """
        key = (source, destination)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._search(source, destination)
        return route

    def _search(self, source: int, destination: int) -> Route:
        direct = self._hops.get((source, destination))
        if direct is not None:
            return _route([direct])
        if self._component[source] != self._component[destination]:
            raise self._without_route(source, destination)
        neighbours = self._neighbours
        if len(neighbours[destination]) == 1:  # of a hub's many leaves none but this can matter
            (last,) = neighbours[destination]
            before, (channel, link) = self.route(source, last), self._hops[last, destination]
            after = _route([(channel, link)])
            return Route(
                (*before.channels, channel),
                min(before.bandwidth, after.bandwidth),
                before.latency + after.latency,
                (*before.launches, *after.launches),
            )
        # Breadth first; among the paths of equal length the one with the widest narrowest link.
        best: dict[int, tuple[float, tuple[int, ...]]] = {source: (math.inf, (source,))}
        frontier = [source]
        while destination not in best:
            reached: dict[int, tuple[float, tuple[int, ...]]] = {}
            for a in frontier:
                width, path = best[a]
                for b in neighbours[a]:
                    if b in best:
                        continue
                    candidate = (min(width, self._hops[a, b][1].bandwidth), (*path, b))
                    if b not in reached or candidate[0] > reached[b][0]:
                        reached[b] = candidate
            best |= reached
            frontier = sorted(reached)
        path = best[destination][1]
        return _route([self._hops[pair] for pair in itertools.pairwise(path)])

    def _without_route(self, source: int, destination: int) -> InvalidInput:
        ends = self.spaces[source].name, self.spaces[destination].name
        return InvalidInput(
            f"Cluster '{self.name}' has no route from memory space '{ends[0]}' to '{ends[1]}'; "
            "add a link between them"
        )

    @cached_property
    def _component(self) -> list[int]:
        """For each memory space the smallest one that it has a route to, or itself."""
        found = [-1] * len(self.spaces)
        for space in range(len(found)):
            frontier = [space] if found[space] < 0 else []
            while frontier:
                for a in frontier:
                    found[a] = space
                frontier = [
                    b for b in {b for a in frontier for b in self._neighbours[a]} if found[b] < 0
                ]
        return found

    def check_same_parts(self, believed: Cluster) -> None:
        """Refuse that schedulers believe in a cluster of other parts.

        Raises:
            InvalidInput: names what is another.
        """
        if believed is self:
            return
        for what, mine, theirs in (
            ("memory spaces", self.spaces, believed.spaces),
            ("devices", self.devices, believed.devices),
            ("links", self.links, believed.links),
        ):
            if [_part(one) for one in mine] != [_part(one) for one in theirs]:
                names = (
                    ", ".join(str(_part(one)) for one in some) or "none" for some in (mine, theirs)
                )
                raise InvalidInput(
                    f"Cluster '{self.name}' has other {what} than the one that schedulers are to believe in "
                    f"({' against '.join(names)}); let it differ in overheads, latencies and bandwidths alone"
                )

    def check_connected(self) -> None:
        """Refuse a cluster in which some device's memory cannot reach another's, or the host's.

        Raises:
            InvalidInput: names the two memory spaces.
        """
        used = sorted({*self.space_of} | ({self.space_index[self.host]} if self.host else set()))
        component = self._component
        for space in used:
            if component[space] != component[used[0]]:
                raise self._without_route(used[0], space)


def _route(hops: Sequence[tuple[int, Link]]) -> Route:
    links = [link for _, link in hops]
    launches = _launches(links)
    return Route(
        tuple(channel for channel, _ in hops),
        min(link.bandwidth for link in links),
        sum(link.latency for link in links) + 2 * math.fsum(launch.overhead for launch in launches),
        launches,
    )


def _launches(links: Sequence[Link]) -> tuple[LinkLaunch, ...]:
    return tuple(
        LinkLaunch(link.launcher, link.launch_overhead, link.launch_handover, link.launch_passed)
        for link in links
        if link.launcher is not None
    )


def _check_launcher(link: Link) -> None:
    for what, seconds in (
        ("launch_overhead", link.launch_overhead),
        ("launch_handover", link.launch_handover),
    ):
        if not 0 <= seconds <= MOST_LATENCY:
            raise InvalidInput(
                f"Link '{link.name}': {what} must be >= 0 s and at most {MOST_LATENCY:g} s"
            )
        if seconds and link.launcher is None:
            raise InvalidInput(
                f"Link '{link.name}' has a {what} and no launcher that would need it; name one, or make it a part "
                "of the latency"
            )
    if link.launch_passed < 0:
        raise InvalidInput(
            f"Link '{link.name}' has launch_passed {link.launch_passed}; give 0 where none that waits is passed over"
        )


def _part(thing: MemorySpace | Device | Link) -> tuple[object, ...]:
    """What cannot be believed to be otherwise."""
    if isinstance(thing, MemorySpace):
        return thing.name, thing.capacity
    if isinstance(thing, Link):
        return thing.name, *thing.ends, thing.half_duplex
    submits = thing.issue_depth if thing.completion_latency else 0
    return thing.name, thing.space, thing.slots, submits


def _check_sharing(space: MemorySpace) -> None:
    if space.bandwidth is not None and not space.bandwidth > 0:
        raise InvalidInput(f"Memory space '{space.name}' has a bandwidth of {space.bandwidth} B/s")
    if not 0 <= space.corun_slowdown < math.inf:
        raise InvalidInput(
            f"Memory space '{space.name}' has corun_slowdown {space.corun_slowdown}; give the "
            "fraction of its time that each other busy slot costs a task, e.g. 0.03"
        )
    if space.bandwidth is not None and space.corun_slowdown:
        raise InvalidInput(
            f"Memory space '{space.name}' has a bandwidth and a corun_slowdown, two models of the "
            "same thing; give one"
        )
    if space.bandwidth is not None and space.bus is not None:
        raise InvalidInput(
            f"Memory space '{space.name}' has a bandwidth, which is its own, and shares bus '{space.bus}'; give a "
            "corun_slowdown instead of the bandwidth, or no bus"
        )


def fully_connected(
    name: str, devices: int, bandwidth: float = 1.0, half_duplex: bool = False
) -> Cluster:
    """The cluster of a bare instance: one memory space per device and a link for every pair.

    At the default bandwidth of one byte per second an edge's bytes are its seconds, exactly.

    Raises:
        InvalidInput: more than :data:`MOST_PAIRED` devices, whose links would be too many.
    """
    if devices > MOST_PAIRED:
        raise InvalidInput(
            f"'{name}' has {devices} devices with a link between any two; at most {MOST_PAIRED} can be joined so. "
            "Describe more by a cluster (conf/cluster), in which memory spaces join them"
        )
    spaces = [MemorySpace(f"m{i}") for i in range(devices)]
    links = [
        Link(f"l{i}-{j}", (f"m{i}", f"m{j}"), bandwidth, half_duplex=half_duplex)
        for i in range(devices)
        for j in range(i + 1, devices)
    ]
    return Cluster(name, spaces, [Device(f"P{i + 1}", f"m{i}") for i in range(devices)], links)
