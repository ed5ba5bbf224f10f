"""Where the error of a simulated makespan comes from: a waterfall of signed steps that add up.

Each step replaces one more ingredient of the simulation by what was measured:

``decisions``
    operators on the devices and in the order of the measured run, everything else as simulated;
``operators``
    their times measured alone (all operators of the model on one device, the others idle);
``co-run``
    their times in the measured run itself, the other workers being busy, instead of times alone and
    whatever slowdown the cluster's memory spaces state;
``transfers``
    from the writing of a tensor to its arrival elsewhere as in the measured run, waiting for links and
    for its consumer's placement included;
``dispatch``
    what passes in the measured run between the moment at which an operator could start and its start,
    instead of the modelled launch overhead: completion, decisions, hand-over, waking;
``repeats``
    the statistic over all repeats, instead of the one run that was taken apart.

With the last but one nothing simulated is left, so the steps sum to measured minus simulated makespan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from heapq import heapify, heapreplace

import numpy as np

from simulator.devices.host_launch_lock import LaunchClock
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.noise import NoiseModel
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.model.workload import Workload
from simulator.schedulers.planned import Planned

STEPS = ("decisions", "operators", "co-run", "transfers", "dispatch", "repeats")


class _JobTimes:
    """What happens: for each job in turn its own times, of operators where they ran."""

    def __init__(self, trace: Trace, jobs: int) -> None:
        rows = trace.executions
        seconds = rows["finish"] - rows["start"]
        self._mine = [
            (rows["operator"][mine], rows["device"][mine], seconds[mine])
            for mine in (rows["job"] == job for job in range(jobs))
        ]
        self._next = 0

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`simulator.model.noise.NoiseModel`."""
        operator, device, seconds = self._mine[self._next]
        self._next += 1
        found = costs.seconds.copy()
        found[operator, device] = seconds
        return found


class ErrorSteps(Mapping[str, float]):
    """Steps of a case, worked out once somebody asks for one: that takes three simulations.

    Args:
        take_apart: gives them.
    """

    def __init__(self, take_apart: Callable[[], Mapping[str, float]]) -> None:
        self._steps = cache(take_apart)

    def __getitem__(self, step: str) -> float:
        return self._steps()[step]

    def __iter__(self) -> Iterator[str]:
        return iter(STEPS)

    def __len__(self) -> int:
        return len(STEPS)


def error_steps(
    workload: Workload,
    cluster: Cluster,
    costs: CostTable,
    simulated_s: float,
    measured: Trace,
    measured_s: float,
    alone: Mapping[DataflowGraph, np.ndarray],
    movement: str = "push",
    contention: str = "none",
) -> dict[str, float]:
    """Take the difference of measured runs and their simulation apart, by one run of them.

    Args:
        workload: the jobs of both.
        cluster: with the launch overhead that the simulation had.
        costs: predicted seconds.
        simulated_s: predicted makespan.
        measured: one run.
        measured_s: the makespan that stands for all.
        alone: of each graph float64[operators, devices] measured seconds with the other workers idle;
            NaN where there is none, which then counts as predicted.
        movement: as in the simulation.
        contention: as in the simulation.

    Returns:
        Signed seconds for each of ``STEPS``; their sum is ``measured_s`` minus ``simulated_s``.

    Raises:
        InvalidInput: the measured run is not of these jobs.
    """
    if len(measured.jobs["job"]) != len(workload):
        raise InvalidInput(
            f"The measured run is of {len(measured.jobs['job'])} jobs, the simulated one of "
            f"{len(workload)}"
        )

    def replay(where: Cluster, actual: CostTable | NoiseModel) -> float:
        return simulate(
            workload,
            where,
            costs,
            Planned(Plan.executed(measured, [job.graph for job in workload])),
            actual=actual,
            movement=movement,
            contention=contention,
        ).makespan

    filled = {
        graph: GraphCosts(
            np.where(np.isnan(alone[graph]), costs[graph].seconds, alone[graph])
            if graph in alone
            else costs[graph].seconds
        )
        for graph in workload.graphs
    }
    own = replay(_without_slowdown(cluster), _JobTimes(measured, len(workload)))
    moved = own
    if len(measured.transfers["start"]):
        moved = replayed_makespan(workload, cluster, measured)
    levels = [
        simulated_s,
        replay(cluster, costs),
        replay(_without_cache(cluster), CostTable(filled)),
        own,
        moved,
        measured.makespan,
        measured_s,
    ]
    return {
        step: after - before
        for step, (before, after) in zip(STEPS, itertools.pairwise(levels), strict=True)
    }


def _without_slowdown(cluster: Cluster) -> Cluster:
    """The cluster whose tasks do not slow each other: the times in question say already how much.

    They contain the waiting for the interpreter, too: a kernel has ended when its worker has it again; and what
    waking its worker cost, and reading what was not at hand.
    """
    spaces = [
        replace(space, bandwidth=None, corun_slowdown=0.0, cache=None) for space in cluster.spaces
    ]
    devices = [
        replace(device, launcher=None, launch_handover=0.0, wake_cost=0.0, far_inputs=None)
        for device in cluster.devices
    ]
    return replace(cluster, spaces=spaces, devices=devices)


def _without_cache(cluster: Cluster) -> Cluster:
    """The cluster whose operators find their weights where those of the times in question did."""
    return replace(cluster, spaces=[replace(space, cache=None) for space in cluster.spaces])


def replayed_makespan(workload: Workload, cluster: Cluster, measured: Trace) -> float:
    """The makespan of a measured run whose dispatching alone is as the cluster says.

    Operators on their slots' devices in the measured order with their measured times and after the
    measured delays of what they read; each device begins them in order, after its launch overhead.

    Args:
        workload: the jobs that ran.
        cluster: its launch overheads count.
        measured: the run.
    """
    rows, moves = measured.executions, measured.transfers
    finish_of = {
        (job, operator): finish
        for job, operator, finish in zip(
            *(rows[column].tolist() for column in ("job", "operator", "finish")), strict=True
        )
    }
    arrivals = measured.jobs["arrival"].tolist()
    jobs = workload.jobs

    def written(job: int, tensor: int, finishes: Mapping[tuple[int, int], float]) -> float:
        producer = int(jobs[job].graph.tensor_producer[tensor])
        return arrivals[job] if producer < 0 else finishes[job, producer]

    # (job, tensor, memory space) -> seconds from its writing to its arrival there.
    delays: dict[tuple[int, int, int], float] = {}
    for job, tensor, space, end in zip(
        moves["job"].tolist(),
        moves["tensor"].tolist(),
        moves["destination"].tolist(),
        moves["finish"].tolist(),
        strict=True,
    ):
        delay = max(0.0, end - written(job, tensor, finish_of))
        key = (job, tensor, space)
        delays[key] = max(delay, delays.get(key, 0.0))  # the last link of a route counts

    done: dict[tuple[int, int], float] = {}
    free = [[0.0] * device.slots for device in cluster.devices]
    for slots in free:
        heapify(slots)
    last = [0.0] * len(cluster.devices)
    clocks = [LaunchClock(device) for device in cluster.devices]
    order = np.lexsort((rows["finish"], rows["start"])).tolist()
    for row in order:
        job, operator = int(rows["job"][row]), int(rows["operator"][row])
        device = int(rows["device"][row])
        space = cluster.space_of[device]
        ready = max(
            (
                written(job, tensor, done) + delays.get((job, tensor, space), 0.0)
                for tensor in jobs[job].graph.reads[operator]
                if jobs[job].graph.tensors[tensor].role != "weight"
            ),
            default=arrivals[job],
        )
        start = max(ready, free[device][0], last[device], arrivals[job])
        last[device] = start
        seconds = float(rows["finish"][row] - rows["start"][row])
        launch = clocks[device].seconds(row, start)
        clocks[device].launched(row, start + launch)
        clocks[device].left(row)
        done[job, operator] = start + launch + seconds
        heapreplace(free[device], done[job, operator])
    delivered = [
        written(job, tensor, done) + delays.get((job, tensor, int(destination)), 0.0)
        for job, destination in enumerate(measured.jobs["destination"].tolist())
        for tensor in jobs[job].graph.outputs
    ]
    return max([*done.values(), *delivered], default=0.0)


def mean_steps(
    steps: Sequence[Mapping[str, float]], measured_s: Sequence[float]
) -> dict[str, float]:
    """Mean over cases of each step's share of the measured makespan."""
    return {
        step: float(np.mean([case[step] / m for case, m in zip(steps, measured_s, strict=True)]))
        for step in STEPS
    }
