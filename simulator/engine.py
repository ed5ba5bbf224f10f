"""Simulating a workload: what runs it is chosen by what may happen in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from simulator.batching import SERVING
from simulator.charged import ChargedFaultySimulation, ChargedSimulation
from simulator.cluster import Cluster
from simulator.cooling import cools
from simulator.costs import CostTable, NoiseModel
from simulator.decision_cost import DecisionCost
from simulator.direct import DirectSimulation, is_routed
from simulator.errors import InvalidInput
from simulator.far_inputs import reads_far
from simulator.faults import Faults
from simulator.faulty import FaultySimulation
from simulator.graph import DataflowGraph
from simulator.launchers import shares_launchers
from simulator.memory import counts_memory
from simulator.memory_capacity import within_capacity
from simulator.node_room import within_nodes, without_batches
from simulator.planned import PlannedSimulation
from simulator.rates import shares_rates
from simulator.scheduler import Scheduler
from simulator.simulation import Setting, Simulation
from simulator.stream import Stream
from simulator.streamed_figures import StreamedFigures
from simulator.streaming import StreamedSimulation
from simulator.trace import Trace
from simulator.waking import wakes
from simulator.weight_cache import caches_weights
from simulator.whole_requests import covers
from simulator.workload import Job, Workload

S = TypeVar("S", bound=Simulation)


def simulate(
    workload: Workload | DataflowGraph,
    cluster: Cluster,
    costs: CostTable,
    scheduler: Scheduler,
    *,
    actual: CostTable | NoiseModel | None = None,
    believed: Cluster | None = None,
    movement: str = "push",
    contention: str = "none",
    seed: int = 0,
    memory: str = "unlimited",
    weights: str = "resident",
    horizon: float | None = None,
    faults: Faults | None = None,
    decision_cost: DecisionCost | None = None,
    way: str | None = None,
    explain: Callable[[str], None] | None = None,
) -> Trace:
    """Simulate a workload under a scheduler.

    Args:
        workload: jobs, or a graph for one job of it at time 0 (from and to the cluster's host
            memory, where it has one).
        cluster: devices, memory spaces and links.
        costs: seconds of every operator on every device, as the scheduler believes them.
        scheduler: a fresh scheduler (:func:`simulator.schedulers.create`).
        actual: what happens; None: what is believed. A noise model is drawn once a job.
        believed: the cluster as the scheduler is to see it, of the same devices, memory spaces and links with
            other overheads, latencies or bandwidths; None: as it is.
        movement: ``push`` or ``pull``.
        contention: ``none``, ``fifo`` or ``fair``.
        seed: of the noise.
        memory: ``limited`` keeps every memory space within its capacity (:mod:`simulator.memory`);
            ``unlimited`` ignores capacities.
        weights: ``resident``: they are where they are read; ``on_demand``: they lie in the host
            memory and cross when they are wanted.
        horizon: the run ends then, seconds: what is on a device is cut off, jobs that are not done
            stay ``queued``, later ones are not admitted; None: it ends when all is done.
        faults: what goes wrong (:mod:`simulator.faults`); None: nothing.
        decision_cost: what a decision costs in simulated time (:mod:`simulator.decision_cost`); None:
            nothing.
        way: ``general``, ``direct``, ``compiled``, ``planned`` or ``compiled_plan``: how to simulate
            where several ways give the same trace; None takes the fastest.
        explain: called with one line for each decision of a scheduler that explains itself.

    Returns:
        The trace; ``trace.makespan`` in seconds.

    Raises:
        InvalidInput: the parts do not fit together.
        SchedulingError: the scheduler broke its protocol or left tasks that can never run.
    """
    if isinstance(workload, DataflowGraph):
        host = cluster.host
        workload = Workload([Job(workload, batch=workload.batch, origin=host, destination=host)])
    end = _check_horizon(horizon, workload)
    if memory == "limited":
        if not SERVING & scheduler.needs:
            workload = without_batches(workload)
        elif weights == "resident":
            workload, costs = within_nodes(workload, cluster, costs)
        costs = within_capacity(costs, workload, cluster, weights)
    setting = Setting(
        workload,
        cluster,
        costs,
        scheduler,
        actual,
        movement,
        contention,
        seed,
        memory,
        weights,
        end,
        faults or Faults(),
        decision_cost,
        believed,
    )
    simulation = _way(setting, way)(setting)
    simulation.explain = explain
    return simulation.run()


def simulate_stream(
    workload: Workload,
    cluster: Cluster,
    costs: CostTable,
    scheduler: Scheduler,
    *,
    actual: CostTable | NoiseModel | None = None,
    movement: str = "push",
    contention: str = "none",
    seed: int = 0,
    horizon: float | None = None,
    warm_up: float = 0.0,
    way: str | None = None,
    explain: Callable[[str], None] | None = None,
) -> StreamedFigures:
    """Simulate a workload of any length: as :func:`simulate`, but requests that have left are counted and
    forgotten, and there is no trace.

    Args:
        workload: a :class:`simulator.stream.Stream`, whose jobs are drawn as they arrive, or any other.
        cluster: devices, memory spaces and links; nothing fails, memory is unlimited, weights are
            resident.
        costs: see :func:`simulate`.
        scheduler: a fresh scheduler, whose decisions take no time.
        actual: see :func:`simulate`.
        movement: ``push`` or ``pull``.
        contention: ``none``, ``fifo`` or ``fair``.
        seed: of the noise.
        horizon: see :func:`simulate`.
        warm_up: seconds from the start that figures leave out where they say so.
        way: ``general`` or ``compiled``: how to simulate where both give the same figures
            (:mod:`simulator.whole_requests` says where); None takes the faster.
        explain: see :func:`simulate`; nobody explains in the compiled way.

    Returns:
        The figures, those of the trace that :func:`simulate` would give: counts the same, means to
        rounding, percentiles within :data:`simulator.quantiles.ERROR`.

    Raises:
        InvalidInput: the parts do not fit together, or a job arrives before the one that came last.
        SchedulingError: the scheduler broke its protocol, left tasks that can never run, or asked after a
            request that has left.
    """
    end = math.inf if horizon is None else _positive_horizon(horizon)
    setting = Setting(
        workload, cluster, costs, scheduler, actual, movement, contention, seed, horizon=end
    )
    simulation = _stream_way(setting, way, explain is not None)(setting, warm_up)
    simulation.explain = explain
    return simulation.run()


def _way(setting: Setting, asked: str | None) -> type[Simulation]:
    """The fastest way that this setting allows, or the one asked for."""
    general: type[Simulation] = FaultySimulation if setting.faults else Simulation
    if setting.decision_cost is not None:
        general = ChargedFaultySimulation if setting.faults else ChargedSimulation
    possible: dict[str, type[Simulation]] = {"general": general}
    if _is_constant(setting):
        fair, planned = setting.contention == "fair", _is_planned(setting)
        if not fair:
            possible = {"direct": DirectSimulation} | possible
        pays = asked is None and _pays_to_compile(setting, planned)
        if asked == "compiled" or (pays and not planned):
            possible = (_compiled_fair if fair else _compiled)(setting) | possible
        if planned:
            possible = {"planned": PlannedSimulation} | possible
            if asked == "compiled_plan" or pays:
                possible = _compiled_plan() | possible
    return _chosen(possible, asked)


def _stream_way(setting: Setting, asked: str | None, explained: bool) -> type[StreamedSimulation]:
    """The same of a run that keeps figures alone."""
    possible: dict[str, type[StreamedSimulation]] = {"general": StreamedSimulation}
    covered = asked != "general" and not explained and covers(setting)
    if covered and (asked == "compiled" or _pays_to_stream_compiled(setting.workload)):
        from simulator.compiled_stream import CompiledStream

        possible = {"compiled": CompiledStream} | possible
    return _chosen(possible, asked)


def _chosen(possible: dict[str, type[S]], asked: str | None) -> type[S]:
    """The way that was asked for, the first one if nobody did."""
    if asked is None:
        return next(iter(possible.values()))
    if asked not in possible:
        raise InvalidInput(
            f"This run cannot be simulated in the way '{asked}'; possible: {', '.join(possible)}"
        )
    return possible[asked]


MOST_COPIES = 2**27
"""Pairs of a tensor and a memory space of which the compiled way keeps track in one table."""
MOST_SHARED_COPIES, MOST_SPACES = 2**25, 100
"""The same where links are shared, and memory spaces beyond which such tables do not pay."""
PAYS_TO_COMPILE = 200_000
"""Tasks of one run whose simulation takes some times longer than loading numba and what was compiled."""
FAIR_TAKES, PLAN_TAKES, REQUEST_TAKES = 5, 0.2, 5
"""Times longer of a task whose transfers share links, of one of a fixed plan without contention, and of a
request of a stream."""


NOISE_MARGIN = 2.0**10
"""Times shorter or longer than believed that no execution is taken to be under noise."""


def _pays_to_compile(setting: Setting, planned: bool) -> bool:
    """Whether a run is long enough to load what is compiled: its own inputs decide, not what the process
    simulated before.
    """
    if not planned and setting.contention == "none" and len(setting.cluster.spaces) > MOST_SPACES:
        return (
            False  # tables of every tensor in every space; schedulers do not look at every device
        )
    tasks: float = sum(len(job.graph) for job in setting.workload)
    if setting.contention == "fair":
        tasks *= FAIR_TAKES
    elif planned:
        tasks *= PLAN_TAKES
    return tasks >= PAYS_TO_COMPILE


def _pays_to_stream_compiled(workload: Workload) -> bool:
    """The same of a stream; where nobody knows how long it is, it is taken for short."""
    requests = workload.length if isinstance(workload, Stream) else len(workload)
    return requests is not None and requests * REQUEST_TAKES >= PAYS_TO_COMPILE


def _compiled(setting: Setting) -> dict[str, type[Simulation]]:
    """The compiled way, if it is possible; it takes over from the direct way."""
    cluster = setting.cluster
    tensors = sum(len(job.graph.tensors) for job in setting.workload)
    if tensors * len(cluster.spaces) > MOST_COPIES or is_routed(setting):
        return {}
    from simulator.compiled import CompiledSimulation

    return {"compiled": CompiledSimulation}


def _compiled_plan() -> dict[str, type[Simulation]]:
    """The compiled way of fixed plans; it takes over from the planned way."""
    from simulator.compiled_plan import CompiledPlan

    return {"compiled_plan": CompiledPlan}


def _compiled_fair(setting: Setting) -> dict[str, type[Simulation]]:
    """The compiled way with shared links, if it is possible."""
    cluster = setting.cluster
    tensors = sum(len(job.graph.tensors) for job in setting.workload)
    if tensors * len(cluster.spaces) > MOST_SHARED_COPIES or len(cluster.spaces) > MOST_SPACES:
        return {}
    from simulator.fair import FairSimulation

    return {"compiled": FairSimulation}


def _is_constant(setting: Setting) -> bool:
    """Whether nothing slows what has begun, but for shared links, every tensor crosses alone, and
    decisions take no time.
    """
    cluster = setting.cluster
    return not (
        setting.faults
        or setting.decision_cost is not None
        or setting.believed is not None
        or {"pack", "batch"} & setting.scheduler.needs
        or setting.workload.reacts
        or setting.horizon < math.inf
        or counts_memory(setting.memory, setting.weights)
        or shares_rates(cluster)
        or caches_weights(cluster)
        or shares_launchers(cluster)
        or cools(cluster)
        or wakes(cluster)
        or reads_far(cluster)
        or any(device.completion_latency for device in cluster.devices)
    )


def _is_planned(setting: Setting) -> bool:
    """Whether all that a finish sets off is known once a job is placed, and takes time on the clock."""
    if not setting.scheduler.static or setting.movement != "push" or setting.contention != "none":
        return False
    tables = [setting.costs]
    if isinstance(setting.actual, CostTable):
        tables.append(setting.actual)
    overhead = min(device.launch_overhead for device in setting.cluster.devices)
    least = overhead + min(
        float(table[graph].seconds.min()) for table in tables for graph in setting.workload.graphs
    )
    latest = _latest(setting, tables)
    if not isinstance(setting.actual, CostTable | None):
        least, latest = least / NOISE_MARGIN, latest * NOISE_MARGIN
    return bool(least >= np.spacing(latest))


def _latest(setting: Setting, tables: list[CostTable]) -> float:
    """A time in seconds after which nothing can happen: as if everything came one after the other."""
    cluster, workload = setting.cluster, setting.workload
    overhead = max(device.launch_overhead for device in cluster.devices)
    latency = sum(link.latency for link in cluster.links)
    narrowest = min((link.bandwidth for link in cluster.links), default=math.inf)
    latest = workload.jobs[-1].arrival
    for graph, times in Counter(job.graph for job in workload).items():
        tasks = max(
            np.where(np.isinf(seconds), 0.0, seconds).max(axis=1).sum()
            for seconds in (table[graph].seconds for table in tables)
        )
        copies = len(graph.tensors) * latency + float(graph.tensor_bytes.sum()) / narrowest
        latest += times * (len(graph) * overhead + tasks + len(cluster.spaces) * copies)
    return float(latest)


def _check_horizon(horizon: float | None, workload: Workload) -> float:
    first = workload.jobs[0].arrival
    if horizon is None:
        return math.inf
    _positive_horizon(horizon)
    if first > horizon:
        raise InvalidInput(
            f"The horizon is {horizon} s, but the first job arrives at {first} s: nothing would happen"
        )
    return horizon


def _positive_horizon(horizon: float) -> float:
    if not (math.isfinite(horizon) and horizon > 0):
        raise InvalidInput(
            f"The horizon is {horizon} s; give a time above 0, or none to run to the end"
        )
    return horizon


__all__ = ["simulate", "simulate_stream"]
