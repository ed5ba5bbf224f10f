"""Figures of a stream of requests: delays, goodput, success, accuracy, fairness.

Requests that were not served when the run ended count with the age that they had then, since a policy that
lets some requests starve would look good otherwise. Requests that were refused have no delay; they count
as arrived, and never as a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from simulator.analysis.queueing import PERCENTILES
from simulator.model.trace import Trace


class ModelServing(TypedDict):
    """Requests for one model; delays as in :class:`ServingMetrics`.

    Attributes:
        slowdown: the mean delay over what the model's requests take on an idle system; None: unknown.
    """

    requests: int
    mean_delay_s: float | None
    p99_delay_s: float | None
    success_rate: float
    slowdown: float | None


class ServingMetrics(TypedDict):
    """Figures of the requests that arrived in a window.

    Attributes:
        requests: how many arrived.
        rejected: how many of them were refused.
        waiting: how many were not served when the run ended.
        offered_per_s: arrivals over the time in which they arrived.
        served_per_s: requests of any arrival that finished in the window, over its length.
        goodput_per_s: those of them that met their deadline.
        success_rate: served within the deadline, of all that arrived.
        mean_delay_s, p50_delay_s, ...: from arrival to the answer, or to the end of the run; None if
            nobody waited for one.
        max_delay_s: the largest of them.
        accuracy_of_successes: mean accuracy of the models that served the successes; None: unknown.
        accuracy_of_all: the same over all requests, 0 for those without success.
        mean_batch: requests in one execution.
        fairness: Jain's index of the models' slowdowns: 1 where all are slowed equally, near 1 / models where
            one alone is; None where they are unknown.
        by_model: by name.
    """

    requests: int
    rejected: int
    waiting: int
    offered_per_s: float
    served_per_s: float
    goodput_per_s: float
    success_rate: float
    mean_delay_s: float | None
    p50_delay_s: float | None
    p95_delay_s: float | None
    p99_delay_s: float | None
    max_delay_s: float | None
    accuracy_of_successes: float | None
    accuracy_of_all: float | None
    mean_batch: float
    fairness: float | None
    by_model: dict[str, ModelServing]


def serving_metrics(
    trace: Trace,
    warm_up: float = 0.0,
    accuracies: Mapping[str, float] | None = None,
    unloaded: Mapping[str, float] | None = None,
) -> ServingMetrics:
    """The figures of the requests that arrive from ``warm_up`` seconds on.

    Args:
        trace: of a simulated or a measured run.
        warm_up: seconds from the start that do not count.
        accuracies: by the name of a served graph, 0 to 1.
        unloaded: seconds of a model's request on an idle system (:mod:`simulator.analysis.unloaded`), by the name of
            the model; None: unknown.
    """
    jobs, end = trace.jobs, trace.end
    arrival, finish, status = jobs["arrival"], jobs["finish"], jobs["status"]
    here = arrival >= warm_up
    last = float(arrival.max()) if len(arrival) else warm_up
    closes = min(end, float(trace.meta.get("horizon_s", end)))
    # Arrivals end before the run does: what is served after the last of them is no steady state.
    length = max(last - warm_up, 0.0)
    finished = status == "finished"
    inside = finished & (finish >= warm_up) & (finish <= last)
    on_time = finished & (finish <= jobs["deadline"])
    delay = np.where(finished, finish, closes) - arrival
    counts = here & (status != "rejected")
    kept = delay[counts]
    count = int(here.sum())
    success = here & on_time
    served_by = np.array([record["name"] for record in trace.meta["graphs"]])[jobs["graph"]]
    of_successes = of_all = None
    if accuracies is not None and count:
        values = np.array([accuracies.get(name, np.nan) for name in served_by])
        total = float(values[success].sum())
        of_all = total / count
        of_successes = total / int(success.sum()) if success.any() else None
    first = trace.executions["operator"] == 0
    leaders = int(first.sum())
    members = np.isin(trace.members["execution"], trace.executions["execution"][first])
    by_model, slowdowns = {}, []
    for name in np.unique(jobs["model"]).tolist():
        mine = here & (jobs["model"] == name)
        waits = delay[mine & counts]
        slowdown = slowdown_of(_mean(waits), (unloaded or {}).get(name))
        by_model[name] = ModelServing(
            requests=int(mine.sum()),
            mean_delay_s=_mean(waits),
            p99_delay_s=float(np.percentile(waits, 99)) if len(waits) else None,
            success_rate=_share(int((mine & on_time).sum()), int(mine.sum())),
            slowdown=slowdown,
        )
        if slowdown:  # not of requests that take no time
            slowdowns.append(slowdown)
    p50, p95, p99 = np.percentile(kept, PERCENTILES).tolist() if len(kept) else (None,) * 3
    return {
        "requests": count,
        "rejected": int((here & (status == "rejected")).sum()),
        "waiting": int((here & (status == "queued")).sum()),
        "offered_per_s": _share(count, length),
        "served_per_s": _share(int(inside.sum()), length),
        "goodput_per_s": _share(int((inside & on_time).sum()), length),
        "success_rate": _share(int(success.sum()), count),
        "mean_delay_s": _mean(kept),
        "p50_delay_s": p50,
        "p95_delay_s": p95,
        "p99_delay_s": p99,
        "max_delay_s": float(kept.max()) if len(kept) else None,
        "accuracy_of_successes": of_successes,
        "accuracy_of_all": of_all,
        "mean_batch": _share(int(members.sum()), leaders),
        "fairness": jain(slowdowns) if slowdowns else None,
        "by_model": by_model,
    }


def slowdown_of(mean_delay: float | None, unloaded: float | None) -> float | None:
    """How many times longer than on an idle system."""
    return mean_delay / unloaded if mean_delay is not None and unloaded else None


def jain(values: list[float]) -> float:
    """Jain's index of fairness: ``(sum x)^2 / (n sum x^2)``.

    Source: R. Jain, D. Chiu and W. Hawe, *A quantitative measure of fairness*, DEC TR-301, 1984.
    """
    x = np.asarray(values, dtype=np.float64)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
