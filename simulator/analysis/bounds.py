"""Lower bounds on the makespan: how far any schedule could still be improved.

Transfers are left out, so the bounds hold for every movement and contention.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.analysis.lp_bound import path_load_bound
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Workload


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the makespan in seconds.

    Attributes:
        critical_path_s: the longest path, every operator on its fastest device; of several jobs the
            largest of arrival plus path.
        area_s: the sum of all operators' smallest times over the number of slots; several jobs
            share the devices from the first arrival on.
        load_s: the smallest time in which the devices could share the work if operators could be
            divided at will, a linear programme; never below ``area_s`` (up to rounding).
        path_load_s: the smallest time into which the longest path and the shared work both fit, see
            :mod:`simulator.analysis.lp_bound`; of several jobs the largest of arrival plus that, and the
            work of those that arrive from some time on. Never below the others (up to rounding).
            None where the graph is too large for it.
    """

    critical_path_s: float
    area_s: float
    load_s: float
    path_load_s: float | None = None

    @property
    def bound_s(self) -> float:
        """The largest of the bounds."""
        return max(self.critical_path_s, self.area_s, self.load_s, self.path_load_s or 0.0)

    @property
    def binding(self) -> str:
        """Which of the bounds is the largest: the simplest that comes within a millionth of it."""
        enough = self.bound_s * (1 - 1e-6)
        if self.critical_path_s >= enough:
            return "critical path"
        return "load" if max(self.load_s, self.area_s) >= enough else "path and load"

    def gap(self, makespan: float) -> float:
        """``makespan / bound - 1``; 0 where the schedule is proved optimal."""
        return makespan / self.bound_s - 1.0 if self.bound_s > 0 else 0.0


def critical_path(graph: DataflowGraph, fastest: Sequence[float]) -> float:
    """Length in seconds of the longest path of ``graph``; ``fastest`` has one time per operator."""
    ends: list[float] = []
    for operator, parents in enumerate(graph.predecessors):
        ends.append(max((ends[p] for p in parents), default=0.0) + fastest[operator])
    return max(ends)


def lower_bound(graph: DataflowGraph, seconds: np.ndarray, cluster: Cluster) -> Bounds:
    """Bounds for one job of ``graph`` that arrives at time 0.

    Args:
        graph: the job's graph.
        seconds: float64[operators, devices], ``inf`` where a device cannot run an operator.
        cluster: for slots and launch overheads.
    """
    times = _with_overhead(seconds, cluster)
    fastest = times.min(axis=1)
    slots = _slots(cluster)
    return Bounds(
        critical_path(graph, fastest.tolist()),
        float(fastest.sum() / slots.sum()),
        load_bound(times, np.ones(len(times)), slots),
        path_load_bound(graph, times, slots),
    )


def workload_bound(
    workload: Workload, costs: Mapping[DataflowGraph, GraphCosts], cluster: Cluster
) -> Bounds:
    """Bounds for a stream of jobs, from time 0 to the last job's finish.

    Args:
        workload: the jobs; nothing runs before the first arrives.
        costs: seconds of the operators of every graph.
        cluster: for slots and launch overheads.
    """
    times = {graph: _with_overhead(costs[graph].seconds, cluster) for graph in workload.graphs}
    path = {g: critical_path(g, t.min(axis=1).tolist()) for g, t in times.items()}
    jobs = {graph: sum(job.graph is graph for job in workload) for graph in workload.graphs}
    rows = np.concatenate([times[graph] for graph in workload.graphs])
    copies = np.concatenate([np.full(len(graph), float(jobs[graph])) for graph in workload.graphs])
    begin = workload.jobs[0].arrival
    slots = _slots(cluster)
    both = {graph: path_load_bound(graph, times[graph], slots) for graph in workload.graphs}
    alone = [both[job.graph] for job in workload]
    path_load = None
    if None not in both.values():
        path_load = max(
            _later_load(workload, times, slots),
            *(job.arrival + (value or 0.0) for job, value in zip(workload, alone, strict=True)),
        )
    return Bounds(
        max(job.arrival + path[job.graph] for job in workload),
        begin + float(rows.min(axis=1) @ copies / slots.sum()),
        begin + load_bound(rows, copies, slots),
        path_load,
    )


def _later_load(
    workload: Workload, times: Mapping[DataflowGraph, np.ndarray], slots: np.ndarray
) -> float:
    """The work of all jobs that arrive from some time on, shared from that time on; from the time
    after which their area reaches furthest.
    """
    area = {graph: float(t.min(axis=1).sum() / slots.sum()) for graph, t in times.items()}
    left, best, first = 0.0, -math.inf, 0
    for number in range(len(workload.jobs) - 1, -1, -1):
        job = workload.jobs[number]
        left += area[job.graph]
        if job.arrival + left >= best:
            best, first = job.arrival + left, number
    jobs = Counter(job.graph for job in workload.jobs[first:])
    rows = np.concatenate([times[graph] for graph in jobs])
    copies = np.concatenate([np.full(len(graph), float(jobs[graph])) for graph in jobs])
    return workload.jobs[first].arrival + load_bound(rows, copies, slots)


_MOST_SHARE = 1e9  # of the area bound


def load_bound(seconds: np.ndarray, copies: np.ndarray, slots: np.ndarray) -> float:
    """Smallest T with ``sum_p x_ip = 1`` and ``sum_i copies_i w_ip x_ip <= T slots_p``, x >= 0.

    The value returned is that of the dual solution, ``sum_i copies_i min_p(y_p w_ip)`` with y >= 0
    and ``sum_p slots_p y_p = 1``: a lower bound whatever the solver's tolerance was.

    Args:
        seconds: float64[rows, devices], ``inf`` where a device cannot run the row.
        copies: float64[rows], how often each row occurs.
        slots: float64[devices].
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    # Equal operators are one row, equal devices one column: models repeat their layers.
    seconds, row_of = np.unique(seconds, axis=0, return_inverse=True)
    copies = np.bincount(row_of.ravel(), weights=copies)
    seconds, column_of = np.unique(seconds, axis=1, return_inverse=True)
    slots = np.bincount(column_of.ravel(), weights=slots)
    rows, devices = seconds.shape
    work = copies @ seconds.min(axis=1)
    if work == 0:
        return 0.0
    # In units of the area bound, so that the solver's absolute tolerances fit microseconds, too.
    scale = work / slots.sum()
    row, column = np.nonzero(np.isfinite(seconds))
    with np.errstate(over="ignore"):
        share = seconds[row, column] * copies[row] / scale
    # The solver takes 1e15 for infinite; nothing is gained by a device so slow, and the bound below
    # is one for the true times.
    share = np.minimum(share, _MOST_SHARE)
    variables = len(row)
    load = coo_array(
        (
            np.concatenate([share, -slots]),
            (
                np.concatenate([column, np.arange(devices)]),
                np.concatenate([np.arange(variables), np.full(devices, variables)]),
            ),
        ),
        shape=(devices, variables + 1),
    )
    once = coo_array((np.ones(variables), (row, np.arange(variables))), shape=(rows, variables + 1))
    objective = np.zeros(variables + 1)
    objective[-1] = 1.0
    solution = linprog(
        objective,
        A_ub=load.tocsr(),
        b_ub=np.zeros(devices),
        A_eq=once.tocsr(),
        b_eq=np.ones(rows),
        method="highs",
    )
    if solution.status != 0:
        raise RuntimeError(f"the load bound's linear programme was not solved: {solution.message}")
    price = np.maximum(-solution.ineqlin.marginals, 0.0)
    price /= slots @ price
    with np.errstate(invalid="ignore"):
        priced = np.where(np.isfinite(seconds), seconds * price, np.inf)
    return float(copies @ priced.min(axis=1))


def _with_overhead(seconds: np.ndarray, cluster: Cluster) -> np.ndarray:
    return seconds + np.array([device.least_launch for device in cluster.devices])


def _slots(cluster: Cluster) -> np.ndarray:
    """Operators at full rate at once: one where they share a processor, however many run."""
    return np.array(
        [1 if device.sharing == "processor" else device.slots for device in cluster.devices],
        dtype=np.float64,
    )
