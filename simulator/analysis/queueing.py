"""Queueing figures of a run with many jobs, over a window of its time.

Little's law holds for them: in a window that begins and ends with an empty system the mean number of
jobs there is exactly the arrival rate times the mean time they spend, and in a long window of a stable
system nearly so. In a window that ends while jobs pile up it does not hold, and nothing should be read
off it but that they pile up.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.trace import Table, Trace

PERCENTILES = (50, 95, 99)


class FlowTimes(TypedDict):
    """Flow times (finish minus arrival) of finished jobs, seconds; None where none finished.

    Percentiles interpolate linearly between jobs.
    """

    mean_flow_s: float | None
    p50_flow_s: float | None
    p95_flow_s: float | None
    p99_flow_s: float | None
    max_flow_s: float | None


class QueueingMetrics(FlowTimes):
    """Figures of the window from ``from_s`` to ``to_s``.

    Attributes:
        arrivals: jobs that arrived in it.
        arrival_rate_per_s: arrivals over the window's length.
        departures: jobs that left in it, finished or failed, whenever they arrived.
        throughput_per_s: jobs that finished in it over its length.
        goodput_per_s: those of them that met their deadline.
        mean_in_system: time average of the jobs that have arrived and not left.
        mean_time_in_system_s: of the jobs that arrived in the window and have left, failed ones
            included; None if there are none. Flow times are those of the finished ones among them.
        left_in_system: jobs that arrived in the window and had not left when the run ended.
        utilisation: busy share of all slots in the window, attempts that were lost included.
    """

    from_s: float
    to_s: float
    arrivals: int
    arrival_rate_per_s: float
    departures: int
    throughput_per_s: float
    goodput_per_s: float
    mean_in_system: float
    mean_time_in_system_s: float | None
    left_in_system: int
    utilisation: float


def queueing_metrics(
    trace: Trace, warm_up: float = 0.0, horizon: float | None = None
) -> QueueingMetrics:
    """Figures of the window from ``warm_up`` to ``horizon``.

    Args:
        trace: of a simulated or a measured run.
        warm_up: seconds; jobs that arrive before it, and busy time before it, do not count.
        horizon: seconds; jobs that arrive at it or later, and busy time from it on, do not count.
            The end of the run unless given.

    Raises:
        InvalidInput: the window has no length although the run has one.
    """
    end = trace.end
    to = end if horizon is None else min(horizon, end)
    if warm_up < 0 or (to <= warm_up and end > 0):
        raise InvalidInput(
            f"A warm-up of {warm_up:g} s leaves nothing of a run of {to:g} s; make the run longer or "
            "the warm-up shorter"
        )
    jobs, length = trace.jobs, to - warm_up
    left = np.minimum(jobs["finish"], end)
    # A window that ends with the run has the jobs in it that arrive at its very end.
    before = jobs["arrival"] <= to if to == end else jobs["arrival"] < to
    here = (jobs["arrival"] >= warm_up) & before
    gone = np.isfinite(jobs["finish"])
    leaves = gone & (left >= warm_up) & ((left <= to) if to == end else (left < to))
    finished = jobs["status"] == "finished"
    stay = (jobs["finish"] - jobs["arrival"])[here & gone]
    inside = _overlap(jobs["arrival"], left, warm_up, to)
    busy = _overlap(trace.executions["start"], trace.executions["finish"], warm_up, to)
    slots = float(sum(trace.meta["slots"]))
    return {
        "from_s": warm_up,
        "to_s": to,
        "arrivals": int(here.sum()),
        "arrival_rate_per_s": _over(float(here.sum()), length),
        "departures": int(leaves.sum()),
        "throughput_per_s": _over(float((leaves & finished).sum()), length),
        "goodput_per_s": _over(
            float((leaves & finished & (jobs["finish"] <= jobs["deadline"])).sum()), length
        ),
        "mean_in_system": _over(float(inside.sum()), length),
        "mean_time_in_system_s": float(stay.mean()) if len(stay) else None,
        "left_in_system": int((here & ~gone).sum()),
        "utilisation": min(_over(float(busy.sum()), length * slots), 1.0),
        **flow_times(jobs, here),
    }


def flow_times(jobs: Table, here: np.ndarray) -> FlowTimes:
    """Flow times of the finished jobs among ``here``, bool[jobs]."""
    flow = (jobs["finish"] - jobs["arrival"])[here & (jobs["status"] == "finished")]
    if not len(flow):
        return dict.fromkeys(FlowTimes.__annotations__)  # type: ignore[return-value]
    p50, p95, p99 = np.percentile(flow, PERCENTILES).tolist()
    return {
        "mean_flow_s": float(flow.mean()),
        "p50_flow_s": p50,
        "p95_flow_s": p95,
        "p99_flow_s": p99,
        "max_flow_s": float(flow.max()),
    }


def _overlap(start: np.ndarray, finish: np.ndarray, begin: float, end: float) -> np.ndarray:
    return np.maximum(np.minimum(finish, end) - np.maximum(start, begin), 0.0)


def _over(value: float, length: float) -> float:
    return value / length if length > 0 else 0.0
