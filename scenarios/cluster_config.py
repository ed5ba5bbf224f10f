"""Clusters as configs describe them: mappings of memory spaces, devices and links, with units.

A device with ``count: 4`` becomes ``gpu0`` ... ``gpu3``. Where its memory space says
``per_device: true``, each gets a space of its own and every link to that space is repeated for each:
four cards on four PCIe links. A link whose two ends are the same such space joins every pair.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scenarios.networks import link_bandwidth
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.units import (
    parse_bandwidth,
    parse_bytes,
    parse_power,
    parse_price,
    parse_seconds,
)
from simulator.model.weight_hit_curve import ReuseCurve, shares_taken

MOST_DEVICES, MOST_LINKS = 4096, 65_536
"""Of one cluster; more are taken for an error."""


@dataclass
class SpaceConfig:
    """A memory. ``capacity`` like ``24 GiB``, unlimited unless given.

    What tasks that run at once in it cost each other: ``bandwidth`` like ``40 GB/s`` that they share, or
    ``corun_slowdown``, the fraction of its time that each other busy slot costs a task. ``profile``
    takes the fraction that was measured with the profiles of the devices in it, the largest of them. Busy slots of other
    spaces count as well where both name the same ``bus``: memories of one machine.

    ``cache``: what the devices in it keep of weights between two uses (:mod:`simulator.devices.weight_cache`):
    ``profile`` takes what was measured with their profiles, a size like ``16 MiB`` keeps everything up to
    that reuse distance, and a mapping of distances to shares, ``{8 MiB: 1, 24 MiB: 0.2}``, is the curve.
    ``cache_taken``: of what a use does not find the share that it leaves there for the next, or a list of them for
    one use in a row after the other; null takes what was measured with the curve, or all of it.
    """

    capacity: str | None = None
    per_device: bool = False
    bandwidth: str | None = None
    corun_slowdown: Any = 0.0  # of a union in a mapping OmegaConf makes no value
    bus: str | None = None
    cache: Any = None
    cache_taken: Any = None


@dataclass
class DeviceConfig:
    """``count`` equal devices timed by ``profile`` in memory ``space``.

    ``launch_overhead`` like ``5us`` is added to every operator; the profile's own unless given.
    ``power_idle`` and ``power_busy`` (all slots executing) like ``70 W`` and ``price`` like ``0.35/h``
    are of one device; whatever is left out is unknown, and so are the energy or the cost of a run.
    A cluster's prices are in one currency. ``completion_latency`` like ``10us`` passes from an
    operator's end to the host's knowing of it; ``issue_depth`` operators for each slot may be submitted
    by then, each of which takes the host ``issue_overhead``: seconds, or ``profile`` for what launching a kernel
    took there, which is then no launch overhead.
    ``sharing``: ``slots`` (each at full rate) or ``processor``
    (the running tasks share one full rate). ``launcher`` names what launches its operators: all devices
    of one launcher are launched one at a time, as by one Python process, and a launch that had to wait
    begins ``launch_handover`` after the one before it, unless one that is awake takes it meanwhile, at most
    ``launch_passed`` times; an operator comes back to it for each of its ``launches`` kernels. ``launch_cooling``
    like ``{20us: 0.5, 5ms: 3}`` says how many times its overhead a launch takes, by the time since the last one
    on its slot ended (:mod:`simulator.model.launch_cold_start`). After ``wake_after`` of idleness an operator takes all but 1 / e of ``wake_cost``
    longer (:mod:`simulator.devices.idle_wakeup`). ``far_inputs`` like ``{4MiB: 0us, 32MiB: 15us, elsewhere: 20us}`` says what a
    megabyte of inputs takes longer, by the bytes that were touched since they were, and where another device wrote
    them (:mod:`simulator.devices.input_reuse_cost`).
    ``speed: 4`` assumes a device that takes a quarter of its profile's times. ``effects`` gives options to registered device effects by their names (:mod:`simulator.devices.effects`).
    """

    profile: str
    space: str
    count: int = 1
    slots: int = 1
    launch_overhead: str | None = None
    power_idle: str | None = None
    power_busy: str | None = None
    price: str | None = None
    issue_depth: int = 1
    completion_latency: str = "0s"
    issue_overhead: str = "0s"
    sharing: str = "slots"
    launcher: str | None = None
    launch_handover: str = "0s"
    launch_passed: int = 0
    launches: int = 1
    launch_cooling: Any = None
    wake_cost: str = "0s"
    wake_after: str = "10ms"
    far_inputs: Any = None
    effects: Any = None  # a mapping; into None OmegaConf merges no dataclass
    speed: float = 1.0


@dataclass
class LinkConfig:
    """A connection of two memories, like ``25 GB/s`` each way and ``10us``.

    ``bandwidth`` may name a network, ``3g``, ``4g`` or ``wifi``: see :mod:`scenarios.networks`.
    ``varies`` lets less than that through at times: the keys of :class:`scenarios.bandwidth.BandwidthConfig`.
    ``launcher`` names what begins its transfers and tells of their ends, as that of a device: a transfer has it for
    ``launch_overhead`` before it goes and again when it has come, and where it had to wait goes on ``launch_handover``
    behind who was before it, at most ``launch_passed`` times behind another that was awake.
    """

    ends: list[str]
    bandwidth: str
    latency: str = "0s"
    half_duplex: bool = False
    varies: Any = None  # a mapping; into None OmegaConf merges no dataclass
    launcher: str | None = None
    launch_overhead: str = "0s"
    launch_handover: str = "0s"
    launch_passed: int = 0


@dataclass
class ClusterConfig:
    """See the module docstring.

    Attributes:
        host: the memory where jobs begin and end.
        allow_datasheet: take a device's published peaks where nobody has measured it.
    """

    name: str
    spaces: dict[str, SpaceConfig]
    devices: dict[str, DeviceConfig]
    links: dict[str, LinkConfig] = field(default_factory=dict)
    host: str | None = None
    allow_datasheet: bool = False
    description: str = ""
    source: str = ""


def build_cluster(
    config: ClusterConfig,
    labels: Mapping[str, str] | None = None,
    launch_overheads: Mapping[str, float] | None = None,
    corun_slowdowns: Mapping[str, float] | None = None,
    reuse_curves: Mapping[str, ReuseCurve] | None = None,
) -> Cluster:
    """The cluster that a config describes.

    Args:
        config: plain values, quantities as text with units.
        labels: for each profile ``measured``, ``public`` or ``datasheet``.
        launch_overheads: for each profile the seconds that a device of it adds to every operator,
            unless its config says otherwise; 0 for a profile that is not there.
        corun_slowdowns: the measured fraction of each profile that has one.
        reuse_curves: the measured curve of each profile that has one.

    Raises:
        InvalidInput: an ambiguous quantity, an unknown memory space, a count below 1, a space
            ``per_device`` that two kinds of devices share, or a slowdown or a cache that was never measured.
    """
    owners: dict[str, list[str]] = {}  # space per device -> names of its copies
    devices: list[Device] = []
    for name, device in config.devices.items():
        if not 0 <= device.count <= MOST_DEVICES or device.slots < 1:
            raise InvalidInput(
                f"Device '{name}' of cluster '{config.name}' has count {device.count} and "
                f"{device.slots} slots; give a count >= 0 (at most {MOST_DEVICES}) and slots >= 1"
            )
        if len(devices) + device.count > MOST_DEVICES:
            raise InvalidInput(
                f"Cluster '{config.name}' has more than {MOST_DEVICES} devices; give fewer, or slots to each"
            )
        space = config.spaces.get(device.space)
        if space is None:
            raise InvalidInput(
                f"Device '{name}' is in memory space '{device.space}', which cluster "
                f"'{config.name}' lacks; it has {', '.join(config.spaces)}"
            )
        if space.per_device and device.space in owners:
            raise InvalidInput(
                f"Memory space '{device.space}' is per_device, so only one entry of devices may be "
                f"in it; give '{name}' a space of its own"
            )
        overhead = measured = (launch_overheads or {}).get(device.profile, 0.0)
        issue = measured
        if device.issue_overhead == "profile":
            if not measured:
                raise InvalidInput(
                    f"Device '{name}' of cluster '{config.name}' takes its issue_overhead from profile "
                    f"'{device.profile}', for which no launch was measured; give seconds, such as 10us"
                )
            overhead = 0.0
        else:
            issue = parse_seconds(device.issue_overhead, f"issue overhead of device '{name}'")
        if device.launch_overhead is not None:
            overhead = parse_seconds(device.launch_overhead, f"launch overhead of device '{name}'")
        power_idle = _known(parse_power, device.power_idle, f"idle power of device '{name}'")
        power_busy = _known(parse_power, device.power_busy, f"busy power of device '{name}'")
        price = _known(parse_price, device.price, f"price of device '{name}'")
        latency = parse_seconds(device.completion_latency, f"completion latency of device '{name}'")
        handover = parse_seconds(device.launch_handover, f"launch_handover of device '{name}'")
        cooling = _cooling(name, device)
        far_inputs = _far_inputs(name, device)
        wake_cost = parse_seconds(device.wake_cost, f"wake_cost of device '{name}'")
        wake_after = parse_seconds(device.wake_after, f"wake_after of device '{name}'")
        if not 0 < device.speed < math.inf:
            raise InvalidInput(
                f"Device '{name}' of cluster '{config.name}' has speed {device.speed}; give a number above 0, 1 for "
                "that of its profile"
            )
        if device.issue_depth < 1:
            raise InvalidInput(
                f"Device '{name}' of cluster '{config.name}' has issue_depth {device.issue_depth}; "
                "1 makes the host wait for each operator"
            )
        for number in range(device.count):
            suffix = str(number) if device.count > 1 else ""
            home = device.space + suffix if space.per_device else device.space
            if space.per_device:
                owners.setdefault(device.space, []).append(home)
            devices.append(
                Device(
                    name + suffix,
                    home,
                    device.profile,
                    device.slots,
                    overhead,
                    power_idle=power_idle,
                    power_busy=power_busy,
                    price=price,
                    issue_depth=device.issue_depth,
                    completion_latency=latency,
                    issue_overhead=issue,
                    sharing=device.sharing,
                    launcher=device.launcher,
                    launch_handover=handover,
                    launch_passed=device.launch_passed,
                    launches=device.launches,
                    launch_cooling=cooling,
                    wake_cost=wake_cost,
                    wake_after=wake_after,
                    far_inputs=far_inputs,
                    effects=device.effects,
                    speed=device.speed,
                )
            )
    spaces = []
    for name, space in config.spaces.items():
        capacity = math.inf
        if space.capacity is not None:
            capacity = parse_bytes(space.capacity, f"capacity of memory space '{name}'")
        copies = owners.get(name, []) if space.per_device else [name]
        bandwidth = _known(parse_bandwidth, space.bandwidth, f"bandwidth of memory space '{name}'")
        slowdown = _corun_slowdown(name, config, corun_slowdowns or {})
        cache = _cache(name, config, reuse_curves or {})
        spaces += [
            MemorySpace(
                copy,
                capacity,
                bandwidth=bandwidth,
                corun_slowdown=slowdown,
                bus=space.bus,
                cache=cache,
            )
            for copy in copies
        ]
    links: list[Link] = []
    for name, link in config.links.items():
        links += _links(name, link, config, owners, MOST_LINKS - len(links))
    return Cluster(config.name, spaces, devices, links, config.host, dict(labels or {}))


def _corun_slowdown(name: str, config: ClusterConfig, measured: Mapping[str, float]) -> float:
    given = config.spaces[name].corun_slowdown
    if isinstance(given, int | float) and not isinstance(given, bool):
        return given
    if given != "profile":
        raise InvalidInput(
            f"Memory space '{name}' of cluster '{config.name}' has corun_slowdown '{given}'; give a "
            "fraction such as 0.03, or profile"
        )
    profiles = [d.profile for d in config.devices.values() if d.space == name and d.count]
    for profile in profiles:
        if profile not in measured:
            raise InvalidInput(
                f"Memory space '{name}' of cluster '{config.name}' takes its corun_slowdown from "
                f"profile '{profile}', for which none was measured; give a fraction such as 0.03"
            )
    return max((measured[profile] for profile in profiles), default=0.0)


def _cache(
    name: str, config: ClusterConfig, measured: Mapping[str, ReuseCurve]
) -> ReuseCurve | None:
    found = _curve(name, config, measured)
    taken = config.spaces[name].cache_taken
    if taken is None:
        return found
    if found is None:
        raise InvalidInput(
            f"Memory space '{name}' of cluster '{config.name}' has cache_taken={taken} and no cache; give its "
            "cache, such as 16 MiB"
        )
    shares = [taken] if isinstance(taken, int | float) else taken
    if not all(isinstance(share, int | float) for share in shares):
        raise InvalidInput(
            f"Memory space '{name}' of cluster '{config.name}' has cache_taken={taken}; give a share such as 0.3, or "
            "a list of them, of one use in a row after the other"
        )
    return replace(found, taken=shares_taken(taken))


def _curve(
    name: str, config: ClusterConfig, measured: Mapping[str, ReuseCurve]
) -> ReuseCurve | None:
    given = config.spaces[name].cache
    what = f"memory space '{name}' of cluster '{config.name}'"
    if given is None:
        return None
    if isinstance(given, Mapping):
        try:
            shares = {d: float(kept) for d, kept in given.items()}
        except (TypeError, ValueError):
            raise InvalidInput(
                f"The cache of {what} maps distances to {list(given.values())}; give shares such as 0.5"
            ) from None
        points = sorted(
            (parse_bytes(str(d), f"cache of {what}"), kept) for d, kept in shares.items()
        )
        return ReuseCurve(tuple(d for d, _ in points), tuple(kept for _, kept in points))
    if given != "profile":
        return ReuseCurve((parse_bytes(str(given), f"cache of {what}"),), (1.0,))
    profiles = [d.profile for d in config.devices.values() if d.space == name and d.count]
    for profile in profiles:
        if profile not in measured:
            raise InvalidInput(
                f"The cache of {what} is that of profile '{profile}', for which none was measured; give "
                "its size, such as 16 MiB, or leave cache out"
            )
    return measured[profiles[0]] if profiles else None


def _cooling(name: str, device: DeviceConfig) -> CoolingCurve | None:
    given = device.launch_cooling
    if given is None:
        return None
    try:
        factors = {after: float(factor) for after, factor in given.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidInput(
            f"Device '{name}' has launch_cooling {given}; give times and factors such as {{20us: 0.5, 5ms: 3}}"
        ) from None
    what = f"launch_cooling of device '{name}'"
    points = sorted((parse_seconds(str(after), what), by) for after, by in factors.items())
    return CoolingCurve(tuple(after for after, _ in points), tuple(by for _, by in points))


def _far_inputs(name: str, device: DeviceConfig) -> ReadingCurve | None:
    given = device.far_inputs
    if given is None:
        return None
    what = f"far_inputs of device '{name}'"
    try:
        costs = {str(distance): str(cost) for distance, cost in given.items()}
    except AttributeError:
        costs = {}
    elsewhere = parse_seconds(costs.pop("elsewhere", "0s"), what) * 1e-6
    points = sorted((parse_bytes(d, what), parse_seconds(c, what) * 1e-6) for d, c in costs.items())
    if not points:
        raise InvalidInput(
            f"Device '{name}' has far_inputs {given}; give distances and what a megabyte takes longer there, such as "
            "{4MiB: 0us, 32MiB: 15us, elsewhere: 20us}"
        )
    return ReadingCurve(tuple(d for d, _ in points), tuple(c for _, c in points), elsewhere)


def _known(parse: Callable[[str, str], float], text: str | None, what: str) -> float | None:
    return None if text is None else parse(text, what)


def _links(
    name: str,
    link: LinkConfig,
    config: ClusterConfig,
    owners: Mapping[str, list[str]],
    most: int,
) -> list[Link]:
    if len(link.ends) != 2:
        raise InvalidInput(f"Link '{name}' must have two ends, it has {len(link.ends)}")
    for end in link.ends:
        if not isinstance(end, str) or end not in config.spaces:
            raise InvalidInput(
                f"Link '{name}' ends at memory space '{end}', which cluster '{config.name}' lacks; "
                f"it has {', '.join(config.spaces)}"
            )
    first, second = (
        owners.get(end, []) if config.spaces[end].per_device else [end] for end in link.ends
    )
    itself = link.ends[0] == link.ends[1] and config.spaces[link.ends[0]].per_device
    if (math.comb(len(first), 2) if itself else len(first) * len(second)) > most:
        raise InvalidInput(
            f"Link '{name}' of cluster '{config.name}' would make more than {MOST_LINKS} links; join "
            "the devices by way of a memory space between them"
        )
    pairs = (
        list(itertools.combinations(first, 2)) if itself else list(itertools.product(first, second))
    )
    bandwidth = link_bandwidth(link.bandwidth, f"bandwidth of link '{name}'")
    latency, overhead, handover = (
        parse_seconds(text, f"{what} of link '{name}'")
        for what, text in (
            ("latency", link.latency),
            ("launch_overhead", link.launch_overhead),
            ("launch_handover", link.launch_handover),
        )
    )
    return [
        Link(
            name + (str(number) if len(pairs) > 1 else ""),
            pair,
            bandwidth,
            latency,
            link.half_duplex,
            link.launcher,
            overhead,
            handover,
            link.launch_passed,
        )
        for number, pair in enumerate(pairs)
    ]
