"""Figures of requests that are counted when they leave, and forgotten.

What :func:`simulator.analysis.serving_metrics.serving_metrics`, :func:`simulator.analysis.metrics.metrics` and
:func:`simulator.analysis.queueing.queueing_metrics` read off a trace, without one: counts are the same, sums are
added in the order of leaving, percentiles are within :data:`simulator.analysis.quantiles.ERROR` of the exact ones.
What needs every transfer or every start is left out: what devices were idle for, how busy links were, what
lay in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from simulator.analysis.quantiles import Spread, together
from simulator.analysis.queueing import PERCENTILES
from simulator.analysis.serving_metrics import ModelServing, ServingMetrics, jain, slowdown_of
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.trace import FINISHED, LOST
from simulator.model.workload import Job


class ModelTally:
    """Requests for one model that arrived in the window, or before it.

    Attributes:
        delays: of those that finished, seconds.
        on_time: how many of them met their deadline.
        rejected: how many were refused.
    """

    __slots__ = ("delays", "on_time", "rejected")

    def __init__(self) -> None:
        self.delays = Spread()
        self.on_time = 0
        self.rejected = 0


class StreamedFigures:
    """What a run of which no trace is kept leaves; filled by :mod:`simulator.engine.figures_recorder`.

    Args:
        cluster: where it ran.
        warm_up: seconds from the start that do not count in what is served, and in the steady state.

    Attributes:
        settings: of the run, as a trace's description has them.
        wallclock: ``decisions`` and ``deciding_seconds``.
        arrived: requests in all.
        repeated: executions that finished of tasks that had finished before.
        failures: requests that failed, by reason.
        graph_seconds: seconds of execution by graph, operator and device.
    """

    def __init__(self, cluster: Cluster, warm_up: float = 0.0) -> None:
        self.cluster, self.warm_up = cluster, warm_up
        self.settings: dict[str, Any] = {}
        self.wallclock: dict[str, float] = {}
        self.arrived = self.repeated = 0
        self.failures: dict[str, int] = {}
        self.horizon: float | None = None
        self.graph_seconds: dict[tuple[DataflowGraph, int, int], float] = {}
        self._here: dict[str, ModelTally] = {}  # by model, of those that arrived in the window
        self._early: dict[str, ModelTally] = {}
        self._queued: list[Job] = []  # in the system at the end
        self._failed: list[Job] = []
        self._last_arrival = 0.0
        self._last_execution = self._last_refusal = (
            0.0  # the ends of executions, and of requests that were not served
        )
        self._last_finish = -math.inf  # of a request
        # Finished in the window, and of these in time: up to the last arrival, and since then.
        self._inside = self._inside_on_time = 0
        self._after = self._after_on_time = 0
        self._finished = self._late = 0
        self._successes: dict[str, int] = {}  # by the name of the graph that served
        self._left_inside = self._finished_inside = self._good_inside = 0
        self._stay = self._time_in_system = (
            0.0  # of those that arrived in the window; of all, in it
        )
        self._stayed = 0
        count = len(cluster.devices)
        self._busy, self._busy_inside = [0.0] * count, 0.0
        self._lost_seconds = [0.0] * count
        self._tasks, self._lost = [0] * count, [0] * count
        self._leaders = self._served_together = 0
        self._transfers, self._bytes = 0, 0.0

    # -- what the run tells -----------------------------------------------------------------------

    def arrive(self, moment: float) -> None:
        """A request arrives; all that finished before did so while requests arrived."""
        self.arrived += 1
        self._last_arrival = moment
        if self._after:
            self._inside += self._after
            self._inside_on_time += self._after_on_time
            self._after = self._after_on_time = 0

    def finish(self, job: Job, moment: float, graph: DataflowGraph) -> None:
        """A request was served by a graph, its answer delivered."""
        arrival, deadline, start = job.arrival, job.deadline, self.warm_up
        on_time = deadline is None or moment <= deadline
        here = arrival >= start
        tallies = self._here if here else self._early
        model = job.model or job.graph.name
        tally = tallies.get(model)
        if tally is None:
            tally = tallies[model] = ModelTally()
        delay = moment - arrival
        tally.delays.add(delay)
        self._finished += 1
        if moment > self._last_finish:
            self._last_finish = moment
        if on_time:
            tally.on_time += 1
            if here:
                name = graph.name
                self._successes[name] = self._successes.get(name, 0) + 1
        else:
            self._late += 1
        if here:
            self._stay += delay
            self._stayed += 1
            self._time_in_system += delay
        elif moment > start:
            self._time_in_system += moment - start
        if moment >= start:
            self._left_inside += 1
            self._finished_inside += 1
            self._good_inside += on_time
            if moment <= self._last_arrival:
                self._inside += 1
                self._inside_on_time += on_time
            else:
                self._after += 1
                self._after_on_time += on_time

    def reject(self, job: Job, moment: float) -> None:
        """A request was refused."""
        tallies = self._here if job.arrival >= self.warm_up else self._early
        tallies.setdefault(job.model or job.graph.name, ModelTally()).rejected += 1
        self._leave(job, moment)

    def fail(self, job: Job, moment: float, reason: str) -> None:
        """A request failed."""
        self.failures[reason] = self.failures.get(reason, 0) + 1
        self._failed.append(job)
        self._leave(job, moment)

    def _leave(self, job: Job, moment: float) -> None:
        """A request leaves that was not served."""
        start = self.warm_up
        self._last_refusal = max(self._last_refusal, moment)
        if job.arrival >= start:
            self._stay += moment - job.arrival
            self._stayed += 1
        self._time_in_system += max(0.0, moment - max(job.arrival, start))
        self._left_inside += moment >= start

    def queue(self, job: Job) -> None:
        """A request was not served when the run ended."""
        self._queued.append(job)

    def execute(
        self,
        graph: DataflowGraph,
        operator: int,
        device: int,
        start: float,
        finish: float,
        requests: int,
        status: str,
    ) -> None:
        """An operator ran for so many requests; ``status`` as in a trace."""
        seconds = finish - start
        self._busy[device] += seconds
        if start >= self.warm_up:
            self._busy_inside += seconds
        elif finish > self.warm_up:
            self._busy_inside += finish - self.warm_up
        self._tasks[device] += status == FINISHED
        if status == LOST:
            self._lost[device] += 1
            self._lost_seconds[device] += seconds
        if not operator:
            self._leaders += 1
            self._served_together += requests
        key = (graph, operator, device)
        self.graph_seconds[key] = self.graph_seconds.get(key, 0.0) + seconds
        if finish > self._last_execution:
            self._last_execution = finish

    def move(self, tensors: int, size: float) -> None:
        """Tensors crossed to another memory space, of so many bytes together."""
        self._transfers += tensors
        self._bytes += size

    # -- what it was ------------------------------------------------------------------------------

    @property
    def end(self) -> float:
        """See :attr:`simulator.model.trace.Trace.end`."""
        if self.horizon is not None:
            return self.horizon
        return max(self._last_execution, self._last_refusal, self._last_finish)

    @property
    def makespan(self) -> float:
        """See :attr:`simulator.model.trace.Trace.makespan`."""
        return self._last_finish if self._finished else self._last_execution

    def serving(
        self,
        accuracies: Mapping[str, float] | None = None,
        unloaded: Mapping[str, float] | None = None,
    ) -> ServingMetrics:
        """What :func:`simulator.analysis.serving_metrics.serving_metrics` says of the trace."""
        end, last = self.end, self._last_arrival if self.arrived else self.warm_up
        length = max(last - self.warm_up, 0.0)
        # Those that wait, or failed, count with their age.
        ages: dict[str, Spread] = {}
        for job in (unserved := [*self._queued, *self._failed]):
            if job.arrival >= self.warm_up:
                ages.setdefault(job.model or job.graph.name, Spread()).add(end - job.arrival)
        by_model, slowdowns, kept = {}, [], []
        requests = on_time = rejected = 0
        late = (job.model or job.graph.name for job in unserved)
        for name in sorted({*self._here, *self._early, *late}):
            tally = self._here.get(name) or ModelTally()
            waits = together([tally.delays, *([ages[name]] if name in ages else [])])
            kept.append(waits)
            count = waits.count + tally.rejected
            found = waits.percentiles((99,))
            slowdown = slowdown_of(waits.mean, (unloaded or {}).get(name))
            by_model[name] = ModelServing(
                requests=count,
                mean_delay_s=waits.mean,
                p99_delay_s=None if found is None else found[0],
                success_rate=_share(tally.on_time, count),
                slowdown=slowdown,
            )
            if slowdown:
                slowdowns.append(slowdown)
            requests += count
            on_time += tally.on_time
            rejected += tally.rejected
        delays = together(kept)
        p50, p95, p99 = delays.percentiles(PERCENTILES) or (None,) * 3
        of_successes = of_all = None
        if accuracies is not None and requests:
            total = sum(
                count * accuracies.get(name, math.nan) for name, count in self._successes.items()
            )
            of_all = total / requests
            of_successes = total / on_time if on_time else None
        return {
            "requests": requests,
            "rejected": rejected,
            "waiting": sum(job.arrival >= self.warm_up for job in self._queued),
            "offered_per_s": _share(requests, length),
            "served_per_s": _share(self._inside, length),
            "goodput_per_s": _share(self._inside_on_time, length),
            "success_rate": _share(on_time, requests),
            "mean_delay_s": delays.mean,
            "p50_delay_s": p50,
            "p95_delay_s": p95,
            "p99_delay_s": p99,
            "max_delay_s": delays.most if delays.count else None,
            "accuracy_of_successes": of_successes,
            "accuracy_of_all": of_all,
            "mean_batch": _share(self._served_together, self._leaders),
            "fairness": jain(slowdowns) if slowdowns else None,
            "by_model": by_model,
        }

    def metrics(self) -> dict[str, Any]:
        """What :func:`simulator.analysis.metrics.metrics` says of the trace, as far as it is known."""
        end, cluster = self.end, self.cluster
        devices = {}
        for i, device in enumerate(cluster.devices):
            share = min(self._busy[i] / device.slots, end)
            devices[device.name] = {
                "busy_s": self._busy[i],
                "utilisation": min(1.0, _share(self._busy[i], end * device.slots)),
                "tasks": self._tasks[i],
                "lost_s": self._lost_seconds[i],
                "lost": self._lost[i],
                "energy_busy_j": _product(device.power_busy, share),
                "energy_idle_j": _product(device.power_idle, end - share),
                "cost": _product(device.price, end / 3600),
            }
        slots = float(sum(device.slots for device in cluster.devices))
        energies = [d[k] for d in devices.values() for k in ("energy_busy_j", "energy_idle_j")]
        return {
            "makespan_s": self.makespan,
            "utilisation": min(1.0, _share(sum(self._busy), end * slots)),
            "jobs": self.arrived,
            "jobs_finished": self._finished,
            "jobs_failed": len(self._failed),
            "jobs_queued": len(self._queued),
            "jobs_late": self._late,
            "failures": dict(sorted(self.failures.items())),
            **_flow_times(
                together(t.delays for s in (self._early, self._here) for t in s.values())
            ),
            "tasks": sum(self._tasks) - self.repeated,
            "tasks_lost": sum(self._lost),
            "lost_s": sum(self._lost_seconds),
            "transfers": self._transfers,
            "transferred_bytes": self._bytes,
            "energy_j": _sum(energies),
            "cost": _sum([d["cost"] for d in devices.values()]),
            "devices": devices,
            "steady_state": self._steady_state(end, slots),
        }

    def _steady_state(self, end: float, slots: float) -> dict[str, Any]:
        """See :class:`simulator.analysis.queueing.QueueingMetrics`."""
        start = self.warm_up
        length = end - start
        waiting = [job for job in self._queued if job.arrival >= start]
        inside = self._time_in_system + sum(end - max(job.arrival, start) for job in self._queued)
        arrivals = self._stayed + len(waiting)
        return {
            "from_s": start,
            "to_s": end,
            "arrivals": arrivals,
            "arrival_rate_per_s": _share(arrivals, length),
            "departures": self._left_inside,
            "throughput_per_s": _share(self._finished_inside, length),
            "goodput_per_s": _share(self._good_inside, length),
            "mean_in_system": _share(inside, length),
            "mean_time_in_system_s": self._stay / self._stayed if self._stayed else None,
            "left_in_system": len(waiting),
            "utilisation": min(1.0, _share(self._busy_inside, length * slots)),
            **_flow_times(together(tally.delays for tally in self._here.values())),
        }

    def extrapolated_share(self, extrapolated: Callable[[str, int], Any | None]) -> float:
        """Share of the executed time that rests on predictions outside the measured range.

        Args:
            extrapolated: of a graph's name and batch the share of each operator's time on each device,
                float64[operators, devices]; None: nothing is.
        """
        total = sum(self.graph_seconds.values())
        if not total:
            return 0.0
        found = 0.0
        for (graph, operator, device), seconds in self.graph_seconds.items():
            share = extrapolated(graph.name, graph.batch or 1)
            if share is not None:
                found += seconds * float(share[operator, device])
        return found / total


def _flow_times(flows: Spread) -> dict[str, float | None]:
    p50, p95, p99 = flows.percentiles(PERCENTILES) or (None,) * 3
    return {
        "mean_flow_s": flows.mean,
        "p50_flow_s": p50,
        "p95_flow_s": p95,
        "p99_flow_s": p99,
        "max_flow_s": flows.most if flows.count else None,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _product(rate: float | None, amount: float) -> float | None:
    return None if rate is None else rate * amount


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
