"""Links whose bandwidth varies in time: recorded, or drawn.

What a link lets through is piecewise constant and never more than its ``bandwidth``; to the simulator it
is a series of degradations and outages (:mod:`simulator.engine.faults`), so that transfers under way slow down
and speed up with it.
"""

from __future__ import annotations

import csv
import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.networks import link_bandwidth
from simulator.engine.faults import Fault
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.units import parse_seconds

if TYPE_CHECKING:
    from scenarios.cluster_config import ClusterConfig, LinkConfig

MOST_STEPS = 1_000_000
LEAST_SHARE = 1e-3
"""A link is believed to have this share of its bandwidth at least, however long it was down."""


@dataclass
class BandwidthConfig:
    """How a link's bandwidth varies: by a ``file``, or by ``step``, ``sigma`` and ``length``.

    Attributes:
        file: CSV with columns ``time_s`` (ascending from 0) and ``bandwidth`` (bytes per second) or
            ``share`` (of the link's bandwidth, 0 to 1); the last value lasts.
        step: seconds between changes that are drawn, like ``500ms``.
        sigma: standard deviation of the log of the bandwidth over its median.
        median: share of the link's bandwidth that half the steps are below.
        memory: correlation of one step with the next, 0 to 1.
        length: until when it is drawn, like ``120s``; the full bandwidth afterwards.
    """

    file: str | None = None
    step: str | None = None
    sigma: float | None = None
    median: float = 0.6
    memory: float = 0.8
    length: str | None = None


def bandwidth_faults(config: ClusterConfig, cluster: Cluster, seed: int) -> tuple[Fault, ...]:
    """The degradations of all links of a cluster that vary.

    Args:
        config: the cluster's.
        cluster: made of it; an entry may stand for several links, each of which draws on its own.
        seed: of what is drawn.

    Raises:
        InvalidInput: a link says neither or both of a file and how to draw; a file cannot be read, or
            has more than the link's bandwidth; an entry that is unknown or of the wrong type.
    """
    found: list[Fault] = []
    for name, link in config.links.items():
        if link.varies is None:
            continue
        varies = _read(config.name, name, link.varies)
        for real in cluster.links:
            copy = real.name.removeprefix(name)
            if real.name == name or (copy.isdigit() and real.name not in config.links):
                found += _faults(real.name, _steps(config.name, real.name, link, varies, seed))
    return tuple(found)


def _read(cluster: str, name: str, given: Any) -> BandwidthConfig:
    """What a link says of how it varies, which a config holds as a mapping."""
    if isinstance(given, BandwidthConfig):
        return given
    known = [entry.name for entry in fields(BandwidthConfig)]
    what = f"Link '{name}' of cluster '{cluster}' has varies"
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"{what}={given}; write it like {{step: 500ms, sigma: 0.5, length: 60s}}"
        )
    for key, value in given.items():
        if key not in known:
            raise InvalidInput(f"{what}.{key}, which there is not; known: {', '.join(known)}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and number != (key in ("sigma", "median", "memory")):
            raise InvalidInput(
                f"{what}.{key}={value}; give {'a number' if not number else 'a text'}"
            )
    return BandwidthConfig(**given)


def _steps(
    cluster: str, name: str, link: LinkConfig, varies: BandwidthConfig, seed: int
) -> list[tuple[float, float]]:
    """(time, share) from 0 on."""
    drawn = (varies.step, varies.sigma, varies.length)
    if (varies.file is None) == all(value is None for value in drawn) or (
        varies.file is None and None in drawn
    ):
        raise InvalidInput(
            f"Link '{name}' of cluster '{cluster}' varies either by a file, or by step, sigma and length"
        )
    full = link_bandwidth(link.bandwidth, f"bandwidth of link '{name}'")
    if varies.file is not None:
        return _recorded(Path(varies.file).expanduser(), name, full)
    step = parse_seconds(varies.step or "", f"step of link '{name}'")
    length = parse_seconds(varies.length or "", f"length of link '{name}'")
    sigma = varies.sigma or 0.0
    if not (0 < step <= length and length / step <= MOST_STEPS):
        raise InvalidInput(
            f"Link '{name}' varies every {varies.step} for {varies.length}; give a step above 0 and at "
            f"most {MOST_STEPS} of them"
        )
    if not (sigma >= 0 and 0 < varies.median <= 1 and 0 <= varies.memory < 1):
        raise InvalidInput(
            f"Link '{name}' varies with sigma {sigma}, median {varies.median} and memory "
            f"{varies.memory}; sigma is at least 0, the median above 0 and up to 1, memory from 0 to below 1"
        )
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), 5])
    count = math.ceil(length / step)
    # A stationary autoregressive process of first order of the log.
    noise = rng.standard_normal(count)
    level, steps = noise[0], []
    for number in range(count):
        if number:
            level = varies.memory * level + math.sqrt(1 - varies.memory**2) * noise[number]
        steps.append((number * step, min(1.0, varies.median * math.exp(sigma * level))))
    return [*steps, (length, 1.0)]


def _recorded(path: Path, name: str, full: float) -> list[tuple[float, float]]:
    try:
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(
            f"Cannot read the bandwidth of link '{name}' from {path}: {error}"
        ) from None
    steps = [_row(row, path, line, full) for line, row in enumerate(rows, 2)]
    if not steps or steps[0][0] != 0:
        raise InvalidInput(f"{path} must begin with the bandwidth at time_s 0")
    for line, (before, after) in enumerate(itertools.pairwise(steps), 3):
        if after[0] <= before[0]:
            raise InvalidInput(f"{path}, line {line}: not later than the line above it; sort them")
    return steps


def _row(row: Mapping[str, str], path: Path, line: int, full: float) -> tuple[float, float]:
    try:
        time = float(row["time_s"])
        share = float(row["share"]) if row.get("share") else float(row["bandwidth"]) / full
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(
            f"{path}, line {line}: needs numbers in the columns time_s and bandwidth (or share)"
        ) from None
    if not (0 <= time < math.inf and 0 <= share <= 1 + 1e-9):
        raise InvalidInput(
            f"{path}, line {line}: time {time} s, {share:.3g} of the link's bandwidth; the time is at "
            "least 0, and no more than the link's own bandwidth goes through"
        )
    return time, min(share, 1.0)


def _faults(name: str, steps: list[tuple[float, float]]) -> list[Fault]:
    found = []
    for (start, share), end in zip(steps, [*(t for t, _ in steps[1:]), math.inf], strict=True):
        if share == 0:
            found.append(Fault("link_outage", name, start, end))
        elif share < 1:
            found.append(Fault("link_degradation", name, start, end, share))
    return found


def mean_bandwidths(cluster: Cluster, events: Sequence[Fault]) -> Cluster:
    """The cluster with the mean bandwidth of its links until their last change: what a planner believes of them.

    Args:
        cluster: with full bandwidths.
        events: of :func:`bandwidth_faults`.
    """
    means = {}
    for link in cluster.links:
        own = [event for event in events if event.where == link.name]
        last = max((e.end if e.end < math.inf else e.start for e in own), default=0.0)
        if last > 0:
            lost = sum((min(e.end, last) - e.start) * (1 - e.left) for e in own)
            means[link.name] = link.bandwidth * max(1 - lost / last, LEAST_SHARE)
    links = [
        replace(link, bandwidth=means.get(link.name, link.bandwidth)) for link in cluster.links
    ]
    return replace(cluster, links=links) if means else cluster
