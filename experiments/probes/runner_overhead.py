"""What the runner itself needs for an operator under a scheduler: completion, decision and hand-over.

Measured as the gaps between the kernels of a model (:mod:`experiments.probes.probed_model`), alone and as many times at once as
a case has jobs. What calling a kernel in the runner adds to it is part of the kernel, there as in the panel that says
how long kernels take (:mod:`experiments.probes.panel`). A chain of equal kernels says other things: of short ones
half as much, since they leave the interpreter's code in the core's caches and one operator at a time is ready; of
long ones, which push everything out, up to twice as much.

Where several workers wait for one interpreter a gap has that waiting in it, most of all beside other short operators,
while the simulation has operators wait besides (:mod:`simulator.devices.host_launch_lock`). So the overhead is the one with which
the simulated probe has the measured gap. BERT under on-line schedulers, four at once, had gaps of 47 us where that of
the probe, 50 us, which waits, would have made 100 behind operators as long as BERT's.

What counts is the mean gap of a run, since a makespan has all of them, and of the runs the 10th percentile, since that is
what is compared.

Where devices have memories of their own, what copies take beyond what their links' figures say is found in the same
runs: these figures are of an idle machine, while in a run the thread that copies has to be woken and waits, like
workers, for the interpreter, and workers wait for it. On an H200 beside two cores copies of tens of KiB took 250 us
where they take 40. How long a copy has the interpreter is that with which the simulated probe's copies take as long;
unless every core has a worker, so that copies wait for cores, too: then all of it is latency.

Devices that operators are submitted to ahead have gaps of their own (:mod:`experiments.probes.learning_ends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from experiments.probes.learning_ends import ahead_gaps, learnt_gaps, submitted_ahead
from experiments.probes.overhead import Overhead, with_overhead
from experiments.probes.probed_model import ProbedModel
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.schedulers.single_device import SingleDevice

if TYPE_CHECKING:
    from calibration.runner import Machine
    from simulator.context.scheduler import Scheduler

RUNS = 4
"""Of each scheduler and number of jobs, after one that is not counted."""
QUANTILE = 0.1
"""Of the runs."""
LEAST_GAPS = 20
"""In a run, from which a mean is taken."""
STEPS = 3
"""Of the search for what the simulated probe needs; a known overhead is found within 5% by them."""
COPY_STEPS = 6
"""Where copies need the interpreter, too; both are found within 5%, up to four jobs."""


class OverheadProbe:
    """Measures the runner's overhead on a machine.

    Args:
        machine: any; the model is loaded on it.

    Attributes:
        model: that it executes.
    """

    def __init__(self, machine: Machine) -> None:
        self.model = ProbedModel(machine)
        # Schedulers are to choose between these devices as they would: they believe in what was measured on each.
        alone = [
            [self.model.one_by_one(device, [0.0]).seconds[0] for _ in range(RUNS)]
            for device in range(len(machine.cluster.devices))
        ]
        self._beliefs = np.median(alone, axis=1).T
        self._learning, self._ahead, self._issue = self._submitting_ahead()

    def overhead(
        self,
        make_scheduler: Callable[[], Scheduler],
        jobs: int = 1,
        runs: int = RUNS,
        handover: float | None = None,
    ) -> Overhead:
        """What the runner needs.

        Args:
            make_scheduler: gives a fresh scheduler for each run.
            jobs: that run at once: deciding takes longer while others wait.
            runs: after one that is not counted.
            handover: of the interpreter, for which workers wait (:mod:`experiments.probes.handing_over`); None where they
                do not.
        """
        means, copying, learning = [], [], []
        for _ in range(runs + 1):
            trace = self.model.trace([0.0] * jobs, make_scheduler(), beliefs=self._beliefs)
            means.append(_mean(gaps(trace, self.model.graph, self.model.cluster)))
            copying.append(_mean(copies_beyond(trace, self.model.cluster)))
            learning.append(self._learnt(trace))
        gap, copy = _of_runs(means), _of_runs(copying)
        found = Overhead(gap, copy, self._ahead, self._completion(learning), self._issue)
        if handover is not None and (gap or copy):
            return self._without_waiting(found, handover, make_scheduler, jobs)
        return found

    def _learnt(self, trace: Trace) -> np.ndarray:
        graph, cluster = self.model.graph, self.model.cluster
        return learnt_gaps(trace, *_neighbours(trace, graph, cluster), cluster)

    def _completion(self, runs: Sequence[np.ndarray]) -> float | None:
        """How late ends are learnt of, from the gaps of runs; where a plan has few such gaps, from those of others."""
        if not submitted_ahead(self.model.cluster):
            return None
        counted = runs[1:]
        enough = min(map(len, counted)) >= LEAST_GAPS
        learning = _of_runs([_mean(gaps) for gaps in runs]) if enough else self._learning
        return max(0.0, learning - self._ahead - (self._issue or 0.0))

    def _submitting_ahead(self) -> tuple[float, float, float | None]:
        """Seconds until a device goes on behind an end that must be learnt of, and where the next operator is there;
        and of the host for launching one, where streams go on meanwhile.
        """
        from calibration.one_by_one import OneByOne

        model, cluster = self.model, self.model.cluster
        learning, ahead, issue = [], [], []
        for device in submitted_ahead(cluster):
            behind = [model.trace([0.0], OneByOne([device])) for _ in range(RUNS + 1)]
            learning.append(_of_runs([_mean(self._learnt(trace)) for trace in behind]))
            name = cluster.devices[device].name
            plans = [model.trace([0.0], SingleDevice(device=name)) for _ in range(RUNS + 1)]
            if "launched" in plans[0].meta:
                each = [row[2] / row[1] for t in plans for row in t.meta["launched"]]
                issue.append(_of_runs(each))
            else:
                gaps_of = [_mean(ahead_gaps(t, cluster, learning[-1])) for t in plans]
                ahead.append(_of_runs(gaps_of))
        return _mean(learning), _mean(ahead), _mean(issue) if issue else None

    def _without_waiting(
        self,
        found: Overhead,
        handover: float,
        make_scheduler: Callable[[], Scheduler],
        jobs: int,
    ) -> Overhead:
        """With the overhead per operator, and the time of the interpreter per copy, with which the simulated probe has
        the measured gap, and copies take as long beyond their links' figures.
        """
        gap = found.operator
        # Copies that wait for a core as well do not say how long they have the interpreter.
        copy = found.copy if self.model.spare_cores > 0 else 0.0
        if copy:
            found = replace(found, copy_launch=copy / 4)
        for _ in range(COPY_STEPS if copy else STEPS):
            simulated_gap, simulated_copy = self._simulated(found, handover, make_scheduler(), jobs)
            if simulated_gap > 0:
                found = replace(found, operator=found.operator * min(1.0, gap / simulated_gap))
            if found.copy_launch and simulated_copy > 0:
                found = replace(found, copy_launch=found.copy_launch * copy / simulated_copy)
        return found

    def _simulated(
        self, overhead: Overhead, handover: float, scheduler: Scheduler, jobs: int
    ) -> tuple[float, float]:
        """The mean gap of a simulated run, in which executions have the overhead and the waiting in them, and what its
        copies take beyond their links' figures, the mean.
        """
        graph, here = self.model.graph, self.model.cluster
        spaces = [replace(space, corun_slowdown=0.0, cache=None) for space in here.spaces]
        # Between the kernels of one operator nobody needs time of the interpreter's.
        devices = [replace(device, launches=1) for device in here.devices]
        cluster = with_overhead(
            replace(here, devices=devices, spaces=spaces),
            overhead,
            handover,
            cooling=[None] * len(devices),
        )
        costs = CostTable.of(graph, self._beliefs)
        workload = self.model.workload([0.0] * jobs)
        # One thread copies each way, one tensor after the other.
        trace = simulate(workload, cluster, costs, scheduler, believed=here, contention="fifo")
        rows = trace.executions
        before, after = _awaited(trace, graph, cluster)
        kernels = self._beliefs[rows["operator"][after], rows["device"][after]]
        gap = _mean(rows["finish"][after] - rows["finish"][before] - kernels)
        return gap, _mean(copies_beyond(trace, here))


def _mean(seconds: Sequence[float] | np.ndarray) -> float:
    """0 of none: where every operator waits for a copy there are no gaps."""
    return float(np.mean(seconds)) if len(seconds) else 0.0


def _of_runs(means: Sequence[float]) -> float:
    """Of runs of which the first does not count."""
    return max(0.0, float(np.quantile(means[1:], QUANTILE)))


def copies_beyond(trace: Trace, cluster: Cluster) -> list[float]:
    """Seconds that each transfer took, from when its channel was free for it, beyond what its route's figures say.

    Args:
        trace: measured.
        cluster: without the runner's overhead.
    """
    rows = trace.transfers
    free = dict.fromkeys(rows["link"].tolist(), 0.0)
    found = []
    for row in np.lexsort((rows["requested"], rows["start"])).tolist():
        link, finish = int(rows["link"][row]), float(rows["finish"][row])
        route = cluster.route(int(rows["source"][row]), int(rows["destination"][row]))
        began = max(float(rows["requested"][row]), free[link])
        found.append(finish - began - route.seconds(float(rows["bytes"][row])))
        free[link] = finish
    return found


def gaps(trace: Trace, graph: DataflowGraph, cluster: Cluster) -> np.ndarray:
    """Seconds between the end of an execution and the start of the next one on the same slot, where all that one had to
    wait for had ended, and was there, before: who waits for another worker's operator, or for a copy, needs no time
    of the runner's. Not on devices that are submitted to ahead.

    Args:
        trace: of jobs of one graph.
        graph: theirs.
        cluster: that they ran on.
    """
    before, after = _awaited(trace, graph, cluster)
    found: np.ndarray = trace.executions["start"][after] - trace.executions["finish"][before]
    return found


def _awaited(trace: Trace, graph: DataflowGraph, cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    """:func:`_neighbours` on devices whose operators are awaited one by one."""
    before, after = _neighbours(trace, graph, cluster)
    here = ~np.isin(trace.executions["device"][before], submitted_ahead(cluster))
    return before[here], after[here]


def _neighbours(
    trace: Trace, graph: DataflowGraph, cluster: Cluster
) -> tuple[np.ndarray, np.ndarray]:
    """int[gaps], int[gaps]: executions before and after each gap of :func:`gaps`."""
    rows, moves, found = trace.executions, trace.transfers, []
    arrivals: dict[tuple[int, int, int], float] = {}  # by job, tensor and memory space
    for job, tensor, space, finish in zip(
        *(moves[column].tolist() for column in ("job", "tensor", "destination", "finish")),
        strict=True,
    ):
        arrivals[job, tensor, space] = max(finish, arrivals.get((job, tensor, space), 0.0))
    ends = np.zeros((int(rows["job"].max()) + 1, len(graph)))
    ends[rows["job"], rows["operator"]] = rows["finish"]
    ready = np.array(
        [
            max(
                [
                    ends[job, graph.predecessors[operator]].max(initial=-np.inf),
                    *(arrivals.get((job, t, space), -np.inf) for t in graph.reads[operator]),
                ]
            )
            for job, operator, space in zip(
                rows["job"].tolist(),
                rows["operator"].tolist(),
                np.array(cluster.space_of)[rows["device"]].tolist(),
                strict=True,
            )
        ]
    )
    for place in np.unique(np.stack([rows["device"], rows["slot"]]), axis=1).T:
        mine = np.flatnonzero((rows["device"] == place[0]) & (rows["slot"] == place[1]))
        mine = mine[np.argsort(rows["start"][mine])]
        before, after = mine[:-1], mine[1:]
        waited = ready[after] > rows["finish"][before]
        found.append((before[~waited], after[~waited]))
    return np.concatenate([b for b, _ in found]), np.concatenate([a for _, a in found])
