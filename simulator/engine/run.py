"""Simulating a workload."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from simulator.analysis.streamed_figures import StreamedFigures
from simulator.context.scheduler import Scheduler
from simulator.context.serving import SERVING
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.engine import Simulation
from simulator.engine.evaluated import simulate_plan
from simulator.engine.faults import Faults
from simulator.engine.figures_recorder import FiguresRecorder
from simulator.engine.setting import Setting
from simulator.errors import InvalidInput
from simulator.memory.capacity import within_capacity
from simulator.memory.registry import usable
from simulator.memory.serving_limits import within_nodes, without_batches
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.noise import NoiseModel
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload

ENGINES = ("engine", "evaluator")
"""What can simulate; both mean the same by a run."""


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
    explain: Callable[[str], None] | None = None,
    engine: str = "engine",
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
        memory: ``limited`` keeps every memory space within its capacity (:mod:`simulator.memory.memory`);
            ``unlimited`` ignores capacities.
        weights: ``resident``: they are where they are read; ``on_demand``: they lie in the host
            memory and cross when they are wanted.
        horizon: the run ends then, seconds: what is on a device is cut off, jobs that are not done
            stay ``queued``, later ones are not admitted; None: it ends when all is done.
        faults: what goes wrong (:mod:`simulator.engine.faults`); None: nothing.
        decision_cost: what a decision costs in simulated time (:mod:`simulator.engine.decision_cost`); None:
            nothing.
        explain: called with one line for each decision of a scheduler that explains itself.
        engine: ``engine``, or ``evaluator`` for the same trace from compiled loops where a static scheduler's
            plan is whole before anything happens (:mod:`simulator.engine.evaluated`).

    Returns:
        The trace; ``trace.makespan`` in seconds.

    Raises:
        InvalidInput: the parts do not fit together.
        SchedulingError: the scheduler broke its protocol or left tasks that can never run.
    """
    if isinstance(workload, DataflowGraph):
        host = cluster.host
        workload = Workload([Job(workload, batch=workload.batch, origin=host, destination=host)])
    if engine not in ENGINES:
        raise InvalidInput(f"Unknown engine '{engine}'; known: {', '.join(ENGINES)}")
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
        _check_horizon(horizon, workload),
        faults or Faults(),
        decision_cost,
        believed,
    )
    if engine == "evaluator":
        return simulate_plan(setting, explain)
    simulation = Simulation(_within_memory(setting))
    simulation.explain = explain
    trace: Trace = simulation.run()
    return trace


def simulate_stream(
    workload: Workload,
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
    warm_up: float = 0.0,
    explain: Callable[[str], None] | None = None,
) -> StreamedFigures:
    """Simulate a workload of any length: as :func:`simulate`, but requests that have left are counted and
    forgotten, and there is no trace.

    Args:
        workload: a :class:`simulator.model.workload.Stream`, whose jobs are drawn as they arrive, or any other.
        cluster: devices, memory spaces and links.
        costs: see :func:`simulate`.
        scheduler: a fresh scheduler.
        actual: see :func:`simulate`.
        believed: see :func:`simulate`.
        movement: ``push`` or ``pull``.
        contention: ``none``, ``fifo`` or ``fair``.
        seed: of the noise.
        memory: see :func:`simulate`. Where it is limited or weights are on demand, the stream is looked through
            before the run, up to the horizon.
        weights: see :func:`simulate`.
        horizon: see :func:`simulate`.
        faults: see :func:`simulate`. Runs with faults, counted memory or decisions that take time remember
            every request.
        decision_cost: see :func:`simulate`.
        warm_up: seconds from the start that figures leave out where they say so.
        explain: see :func:`simulate`.

    Returns:
        The figures, those of the trace that :func:`simulate` would give: counts the same, means to
        rounding, percentiles within :data:`simulator.analysis.quantiles.ERROR`.

    Raises:
        InvalidInput: the parts do not fit together, or a job arrives before the one that came last.
        SchedulingError: the scheduler broke its protocol, left tasks that can never run, or asked after a
            request that has left.
    """
    end = math.inf if horizon is None else _positive_horizon(horizon)
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
    simulation = Simulation(_within_memory(setting), lambda run: FiguresRecorder(run, warm_up))
    simulation.explain = explain
    figures: StreamedFigures = simulation.run()
    return figures


def _within_memory(setting: Setting) -> Setting:
    """The setting without what finds no room where memory is limited."""
    workload, costs = setting.workload, setting.costs
    if setting.memory == "unlimited":
        return setting
    cluster = usable(setting.cluster, setting.memory)
    if not SERVING & setting.scheduler.needs:
        workload = without_batches(workload)
    elif setting.weights == "resident":
        workload, costs = within_nodes(workload, cluster, costs)
    costs = within_capacity(costs, workload, cluster, setting.weights, setting.horizon)
    return replace(setting, workload=workload, costs=costs)


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


__all__ = ["ENGINES", "simulate", "simulate_stream"]
