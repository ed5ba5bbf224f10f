"""Figures of a run, from its trace alone: simulated and measured runs are judged by the same code.

Names carry their unit: ``_s`` seconds, ``_bytes`` bytes, ``_j`` joules; ratios are between 0 and 1. None
is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from simulator.analysis.dependencies import Dependencies
from simulator.analysis.idle import CAUSES, idle_seconds
from simulator.analysis.queueing import FlowTimes, QueueingMetrics, flow_times, queueing_metrics
from simulator.analysis.residency import occupancy
from simulator.model.trace import Trace

MOST_CHANNELS = 1000
"""In clusters with more, only those that carried something are listed."""


class DeviceMetrics(TypedDict):
    """One device.

    Attributes:
        busy_s: sums the executions of all its slots, lost attempts included.
        utilisation: busy time over the run's length times slots.
        tasks: executions that finished.
        lost_s: busy time of attempts that a fault took away.
        lost: how many of them.
        idle_s: the rest of the slots' time, by cause (:mod:`simulator.analysis.idle`).
        energy_busy_j, energy_idle_j: joules of its busy and its idle power; a device whose slots
            are busy in part draws in proportion. None where that power is unknown.
        cost: of having it for the whole run, in the currency of the cluster's prices; None: unknown.
    """

    busy_s: float
    utilisation: float
    tasks: int
    lost_s: float
    lost: int
    idle_s: dict[str, float]
    energy_busy_j: float | None
    energy_idle_j: float | None
    cost: float | None


class ChannelMetrics(TypedDict):
    """One channel: a direction of a link, or a half-duplex link.

    ``busy_s`` is the time during which at least one transfer was under way, so ``utilisation`` stays
    at or below 1 without contention, too.
    """

    busy_s: float
    utilisation: float
    bytes: float
    transfers: int


class SpaceMetrics(TypedDict):
    """One memory space.

    Attributes:
        peak_bytes: the most bytes that lay in it at once, as far as anybody used them
            (:mod:`simulator.analysis.residency`).
        reserved_bytes: the most bytes that the simulator kept room for at once, which cannot know who
            will use what (:mod:`simulator.memory.memory`); None where it did not count.
        capacity_bytes: None: unlimited.
    """

    peak_bytes: float
    reserved_bytes: float | None
    capacity_bytes: float | None


class Metrics(FlowTimes):
    """See :func:`metrics`."""

    makespan_s: float
    utilisation: float
    jobs: int
    jobs_finished: int
    jobs_failed: int
    jobs_queued: int
    jobs_late: int
    failures: dict[str, int]
    tasks: int
    tasks_lost: int
    lost_s: float
    transfers: int
    transferred_bytes: float
    energy_j: float | None
    cost: float | None
    idle_s: dict[str, float]
    devices: dict[str, DeviceMetrics]
    channels: dict[str, ChannelMetrics]
    spaces: dict[str, SpaceMetrics]
    steady_state: QueueingMetrics


def metrics(
    trace: Trace,
    warm_up: float | None = None,
    horizon: float | None = None,
    dependencies: Dependencies | None = None,
) -> Metrics:
    """The figures of one run.

    Args:
        trace: of a simulated or a measured run.
        warm_up: seconds left out of ``steady_state``; what the trace says (``meta["warm_up_s"]``),
            or none.
        horizon: where ``steady_state`` ends, seconds; the end of the run unless given.
        dependencies: of this trace, where somebody has them already.

    Returns:
        A JSON-ready mapping: ``makespan_s``; ``utilisation``, the mean over all slots of the share
        of the run in which it executed; how many ``jobs`` there were, ``jobs_finished``,
        ``jobs_failed`` (``failures``: how many for which reason) and ``jobs_queued``, still in the
        system at the end, which add up; ``jobs_late``, finished after their deadline; flow times of
        the finished jobs; ``tasks`` that finished; ``tasks_lost``, attempts that a fault took away,
        and the seconds ``lost_s`` spent on them; ``transfers`` and ``transferred_bytes``, where a
        transfer over several links counts once; ``energy_j`` and ``cost`` of all devices, None where
        a power or a price is unknown; ``idle_s`` of all slots by cause; then ``devices``,
        ``channels`` (of more than a thousand those that carried something) and ``spaces`` by name, and ``steady_state`` (:mod:`simulator.analysis.queueing`).

    Raises:
        InvalidInput: the warm-up leaves nothing of the run.
    """
    known = dependencies or Dependencies.of(trace)
    end, jobs, runs = trace.end, trace.jobs, trace.executions
    status = jobs["status"]
    finished = status == "finished"
    reasons, counts = np.unique(jobs["reason"][status == "failed"], return_counts=True)
    devices = _devices(trace, known, end)
    figures = list(devices.values())
    slots = float(sum(trace.meta["slots"]))
    energies = [d[key] for d in figures for key in ("energy_busy_j", "energy_idle_j")]
    started = float(trace.meta.get("warm_up_s", 0.0)) if warm_up is None else warm_up
    return {
        "makespan_s": trace.makespan,
        "utilisation": _share(sum(device["busy_s"] for device in figures), end * slots),
        "jobs": len(status),
        "jobs_finished": int(finished.sum()),
        "jobs_failed": int((status == "failed").sum()),
        "jobs_queued": int((status == "queued").sum()),
        "jobs_late": int((jobs["finish"] > jobs["deadline"])[finished].sum()),
        "failures": dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        **flow_times(jobs, np.ones(len(status), dtype=bool)),
        "tasks": len(np.unique(runs["task"][runs["status"] == "finished"])),
        "tasks_lost": sum(device["lost"] for device in figures),
        "lost_s": float(sum(device["lost_s"] for device in figures)),
        "transfers": len(known.crossings["row"]),
        "transferred_bytes": float(known.crossings["bytes"].sum()),
        "energy_j": _sum(energies),
        "cost": _sum([device["cost"] for device in figures]),
        "idle_s": {cause: sum(d["idle_s"][cause] for d in figures) for cause in CAUSES},
        "devices": devices,
        "channels": _channels(trace, end),
        "spaces": {
            name: {
                "peak_bytes": used.peak,
                "reserved_bytes": reserved,
                "capacity_bytes": capacity,
            }
            for name, used, reserved, capacity in zip(
                trace.meta["spaces"],
                occupancy(trace, known),
                trace.meta.get("peak_bytes") or [None] * known.spaces,
                trace.meta["capacities_bytes"],
                strict=True,
            )
        },
        "steady_state": queueing_metrics(trace, started, horizon),
    }


def _devices(trace: Trace, known: Dependencies, end: float) -> dict[str, DeviceMetrics]:
    runs, meta = trace.executions, trace.meta
    device, lost = runs["device"], runs["status"] == "lost"
    spent = np.minimum(runs["finish"], end) - np.minimum(runs["start"], end)
    count = len(trace.devices)
    busy = np.bincount(device, weights=spent, minlength=count).tolist()
    wasted = np.bincount(device[lost], weights=spent[lost], minlength=count).tolist()
    attempts = np.bincount(device[lost], minlength=count).tolist()
    tasks = np.bincount(device[runs["status"] == "finished"], minlength=count).tolist()
    idle = idle_seconds(trace, known).tolist()
    result: dict[str, DeviceMetrics] = {}
    for i, name in enumerate(trace.devices):
        slots = meta["slots"][i]
        share = min(busy[i] / slots, end)  # seconds of the whole device
        result[name] = {
            "busy_s": float(busy[i]),
            "utilisation": _share(busy[i], end * slots),
            "tasks": tasks[i],
            "lost_s": float(wasted[i]),
            "lost": attempts[i],
            "idle_s": dict(zip(CAUSES, idle[i], strict=True)),
            "energy_busy_j": _product(meta["power_busy_w"][i], share),
            "energy_idle_j": _product(meta["power_idle_w"][i], end - share),
            "cost": _product(meta["price_per_hour"][i], end / 3600),
        }
    return result


def _channels(trace: Trace, end: float) -> dict[str, ChannelMetrics]:
    transfers, names = trace.transfers, trace.meta["channels"]
    order = np.argsort(transfers["link"], kind="stable")
    ends = np.searchsorted(transfers["link"][order], np.arange(len(names) + 1))
    # A thousand devices joined pair by pair have a million channels, of which most carry nothing.
    used = np.flatnonzero(np.diff(ends)) if len(names) > MOST_CHANNELS else range(len(names))
    result: dict[str, ChannelMetrics] = {}
    for i in used:
        rows = order[ends[i] : ends[i + 1]]
        busy = covered(transfers["start"][rows].tolist(), transfers["finish"][rows].tolist())
        result[names[i]] = {
            "busy_s": busy,
            "utilisation": _share(busy, end),
            "bytes": float(transfers["bytes"][rows].sum()),
            "transfers": len(rows),
        }
    return result


def covered(starts: Sequence[float], finishes: Sequence[float]) -> float:
    """Length of the union of intervals after 0, seconds."""
    total, end = 0.0, 0.0
    for start, finish in sorted(zip(starts, finishes, strict=True)):
        if finish > end:
            total += finish - max(start, end)
            end = finish
    return total


def _share(part: float, whole: float) -> float:
    # A sum of many durations may pass the span that holds them by rounding alone.
    return min(part / whole, 1.0) if whole > 0 else 0.0


def _product(rate: float | None, amount: float) -> float | None:
    return None if rate is None else rate * amount


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum, unknown where a part of it is."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
