"""Simulating a workload: what runs it is chosen by what may happen in it."""

from __future__ import annotations

from collections.abc import Callable

from simulator.cluster import Cluster
from simulator.costs import CostTable, NoiseModel
from simulator.direct import DirectSimulation
from simulator.graph import DataflowGraph
from simulator.memory import counts_memory, within_capacity
from simulator.rates import shares_rates
from simulator.scheduler import Scheduler
from simulator.simulation import Setting, Simulation
from simulator.trace import Trace
from simulator.workload import Job, Workload


def simulate(
    workload: Workload | DataflowGraph,
    cluster: Cluster,
    costs: CostTable,
    scheduler: Scheduler,
    *,
    actual: CostTable | NoiseModel | None = None,
    movement: str = "push",
    contention: str = "none",
    seed: int = 0,
    memory: str = "unlimited",
    weights: str = "resident",
    general: bool = False,
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
        movement: ``push`` or ``pull``.
        contention: ``none`` or ``fifo``.
        seed: of the noise.
        memory: ``limited`` keeps every memory space within its capacity (:mod:`simulator.memory`);
            ``unlimited`` ignores capacities.
        weights: ``resident``: they are where they are read; ``on_demand``: they lie in the host
            memory and cross when they are wanted.
        general: take the general way even where a shorter one gives the same trace.
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
    counted = counts_memory(memory, weights)
    if memory == "limited":
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
    )
    general = general or counted or _needs_general(cluster)
    simulation = (Simulation if general else DirectSimulation)(setting)
    simulation.explain = explain
    return simulation.run()


def _needs_general(cluster: Cluster) -> bool:
    """Whether more may happen than the shorter way can foresee."""
    return shares_rates(cluster) or any(device.completion_latency for device in cluster.devices)


__all__ = ["simulate"]
