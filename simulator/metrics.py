"""Figures of a run, from its trace alone: simulated and measured runs are judged by the same code.

Names carry their unit: ``_s`` seconds, ``_bytes`` bytes; ratios are between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from simulator.trace import Trace


class DeviceMetrics(TypedDict):
    """One device.

    ``busy_s`` sums the executions of all its slots; ``utilisation`` is busy time over the makespan
    of all slots; ``tasks`` counts executions.
    """

    busy_s: float
    utilisation: float
    tasks: int


class ChannelMetrics(TypedDict):
    """One channel: a direction of a link, or a half-duplex link.

    ``busy_s`` is the time during which at least one transfer was under way, so ``utilisation`` stays
    at or below 1 without contention, too.
    """

    busy_s: float
    utilisation: float
    bytes: float
    transfers: int


class Metrics(TypedDict):
    """See :func:`metrics`."""

    makespan_s: float
    utilisation: float
    jobs: int
    jobs_finished: int
    jobs_late: int
    mean_flow_s: float
    max_flow_s: float
    tasks: int
    transfers: int
    transferred_bytes: float
    devices: dict[str, DeviceMetrics]
    channels: dict[str, ChannelMetrics]


def metrics(trace: Trace) -> Metrics:
    """The figures of one run.

    Args:
        trace: of a simulated or a measured run.

    Returns:
        A JSON-ready mapping: ``makespan_s``; ``utilisation``, the mean over all slots of the share
        of the makespan in which it executed; ``jobs``, how many finished, how many of those after
        their deadline; mean and largest flow time (finish minus arrival) of the finished jobs;
        ``tasks`` executed; ``transfers`` and ``transferred_bytes``, where a transfer over several
        links counts once; then ``devices`` and ``channels`` by name.
    """
    makespan = trace.makespan
    jobs = trace.jobs
    finished = jobs["status"] == "finished"
    flow = (jobs["finish"] - jobs["arrival"])[finished]
    devices = _devices(trace, makespan)
    slots = np.array(trace.meta["slots"], dtype=np.float64)
    busy = np.array([device["busy_s"] for device in devices.values()])
    crossings = _crossings(trace)
    return {
        "makespan_s": makespan,
        "utilisation": _share(float(busy.sum()), makespan * float(slots.sum())),
        "jobs": len(finished),
        "jobs_finished": int(finished.sum()),
        "jobs_late": int((jobs["finish"] > jobs["deadline"])[finished].sum()),
        "mean_flow_s": float(flow.mean()) if len(flow) else 0.0,
        "max_flow_s": float(flow.max()) if len(flow) else 0.0,
        "tasks": len(trace.tasks["task"]),
        "transfers": len(crossings),
        "transferred_bytes": float(trace.transfers["bytes"][crossings].sum()),
        "devices": devices,
        "channels": _channels(trace, makespan),
    }


def _devices(trace: Trace, makespan: float) -> dict[str, DeviceMetrics]:
    executions = trace.executions
    count = len(trace.devices)
    spent = executions["finish"] - executions["start"]
    busy = np.bincount(executions["device"], weights=spent, minlength=count)
    tasks = np.bincount(executions["device"], minlength=count)
    return {
        name: {
            "busy_s": float(busy[i]),
            "utilisation": _share(float(busy[i]), makespan * trace.meta["slots"][i]),
            "tasks": int(tasks[i]),
        }
        for i, name in enumerate(trace.devices)
    }


def _channels(trace: Trace, makespan: float) -> dict[str, ChannelMetrics]:
    transfers = trace.transfers
    result: dict[str, ChannelMetrics] = {}
    for i, name in enumerate(trace.meta["channels"]):
        rows = np.flatnonzero(transfers["link"] == i)
        busy = _covered(transfers["start"][rows].tolist(), transfers["finish"][rows].tolist())
        result[name] = {
            "busy_s": busy,
            "utilisation": _share(busy, makespan),
            "bytes": float(transfers["bytes"][rows].sum()),
            "transfers": len(rows),
        }
    return result


def _crossings(trace: Trace) -> np.ndarray:
    """One row of the transfers for each (job, tensor, destination), whatever the links it took."""
    transfers = trace.transfers
    keys = np.stack([transfers[k].astype(np.int64) for k in ("job", "tensor", "destination")])
    return np.sort(np.unique(keys, axis=1, return_index=True)[1])


def _covered(starts: Sequence[float], finishes: Sequence[float]) -> float:
    """Length of the union of intervals, seconds."""
    total, end = 0.0, 0.0
    for start, finish in sorted(zip(starts, finishes, strict=True)):
        if finish > end:
            total += finish - max(start, end)
            end = finish
    return total


def _share(part: float, whole: float) -> float:
    # A sum of many durations may pass the span that holds them by rounding alone.
    return min(part / whole, 1.0) if whole > 0 else 0.0
