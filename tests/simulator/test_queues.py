"""Single-server queues beside their closed forms: M/D/1, M/M/1, and two priorities (Cobham).

Intervals are of batch means: 40 batches of a long run, waits of a first tenth left out. A closed form
must lie within 4 standard errors of the mean, which must themselves be below 5% of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.analysis.metrics import metrics
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.noise import NoiseModel
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import only_thoroughly, sample

SERVER = Cluster("server", [MemorySpace("m")], [Device("A", "m")])
URGENT, PATIENT = from_edges("urgent", 1, []), from_edges("patient", 1, [])


@dataclass(frozen=True)
class Exponential:
    """Service times around their mean as an M/M/1 queue has them."""

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        return rng.exponential(costs.seconds)


def queue(
    count: int,
    classes: list[tuple[DataflowGraph, float, float, int]],
    scheduler: Scheduler,
    actual: NoiseModel | None = None,
    horizon: float | None = None,
) -> Trace:
    """A Poisson stream of classes (graph, arrivals/s, seconds, priority) at one server."""
    rng = np.random.default_rng(7)
    rates = np.array([rate for _, rate, _, _ in classes])
    times = np.cumsum(rng.exponential(1 / rates.sum(), count))
    kinds = rng.choice(len(classes), count, p=rates / rates.sum())
    jobs = [
        Job(classes[k][0], float(t), priority=classes[k][3])
        for t, k in zip(times, kinds, strict=True)
    ]
    costs = CostTable({graph: GraphCosts(np.array([[s]])) for graph, _, s, _ in classes})
    return simulate(Workload(jobs), SERVER, costs, scheduler, actual=actual, horizon=horizon)


def check_wait(trace: Trace, expected: float, priority: int | None = None) -> None:
    waits = trace.tasks["start"] - trace.jobs["arrival"]
    kept = np.arange(len(waits)) >= len(waits) // 10
    if priority is not None:
        kept &= trace.jobs["priority"] == priority
    means = np.array([batch.mean() for batch in np.array_split(waits[kept], 40)])
    error = means.std(ddof=1) / 40**0.5
    assert error < 0.05 * expected
    assert abs(means.mean() - expected) < 4 * error


def test_m_d_1() -> None:
    """Pollaczek and Khinchine: rho s / (2 (1 - rho))."""
    trace = queue(sample(40_000), [(URGENT, 0.7, 1.0, 0)], create("fcfs"))
    check_wait(trace, 0.7 / (2 * 0.3))


def test_m_m_1() -> None:
    """rho / (mu - lambda)."""
    trace = queue(sample(60_000), [(URGENT, 0.6, 1.0, 0)], create("fcfs"), Exponential())
    check_wait(trace, 0.6 / 0.4)


@pytest.mark.parametrize("exponential", [False, True])
def test_cobham(exponential: bool) -> None:
    """Non-preemptive priorities: W_k = W_0 / ((1 - s_(k-1)) (1 - s_k)), W_0 = sum of lambda E[S^2] / 2,
    s_k the load of class k and all above it.

    Source: Cobham, Operations Research 2(1):70-76, 1954, doi:10.1287/opre.2.1.70.
    """
    classes = [(URGENT, 0.3, 1.0, 1), (PATIENT, 0.2, 2.0, 0)]
    moment = 2.0 if exponential else 1.0  # E[S^2] over the square of the mean
    residual = sum(rate * moment * s**2 for _, rate, s, _ in classes) / 2
    actual = Exponential() if exponential else None
    trace = queue(sample(60_000), classes, create("fcfs", by_priority=True), actual)
    check_wait(trace, residual / (1 - 0.3), priority=1)
    check_wait(trace, residual / ((1 - 0.3) * (1 - 0.7)), priority=0)
    if not exponential:  # first come, first served makes no difference between them
        plain = queue(sample(60_000), classes, create("fcfs"))
        for priority in (0, 1):
            check_wait(plain, residual / (1 - 0.7), priority)


SERVING = [
    ("fcfs_batching", {"max_batch": 1, "by_priority": True}),
    ("task_groups", {"max_batch": 1, "by_priority": True}),
    *only_thoroughly(("task_groups", {"max_batch": 1, "by_priority": True, "theta": 0.0})),
]


@pytest.mark.parametrize(("name", "options"), SERVING)
def test_cobham_of_requests(name: str, options: dict[str, object]) -> None:
    """Schedulers that serve: models of different priority, and requests of one model; lambda = 0.3 and
    0.4, service 1: waits 0.5 and 1.6667.
    """
    for patient in (PATIENT, URGENT):
        classes = [(URGENT, 0.3, 1.0, 1), (patient, 0.4, 1.0, 0)]
        trace = queue(sample(40_000), classes, create(name, **options))
        check_wait(trace, 0.5, priority=1)
        check_wait(trace, 0.35 / (0.7 * 0.3), priority=0)
    # Where priorities do not count everybody waits as long.
    plain = queue(sample(40_000), classes, create(name, **(options | {"by_priority": False})))
    for priority in (0, 1):
        check_wait(plain, 0.35 / 0.3, priority)


def test_withdrawing_what_is_queued_serves_in_the_order_of_held_tasks() -> None:
    """At one server it is the same discipline: nothing that runs is interrupted."""
    classes = [(URGENT, 0.3, 1.0, 1), (PATIENT, 0.2, 2.0, 0)]
    held = queue(3000, classes, create("fcfs", by_priority=True), Exponential())
    withdrawn = queue(3000, classes, create("priority"), Exponential())
    assert held.tasks["start"].tolist() == withdrawn.tasks["start"].tolist()
    waiting = queue(3000, classes, create("priority", preempt=False), Exponential())
    assert waiting.tasks["start"].tolist() != held.tasks["start"].tolist()


def test_littles_law_holds_over_a_horizon() -> None:
    """L = lambda W within 2%; over the whole run from empty to the horizon the rest are its ends."""
    count = sample(40_000)
    horizon = 1.25 * count
    trace = queue(count, [(URGENT, 0.7, 1.0, 0)], create("fcfs"), Exponential(), horizon=horizon)
    steady = metrics(trace)["steady_state"]
    flow = steady["arrival_rate_per_s"] * steady["mean_time_in_system_s"]
    assert steady["mean_in_system"] == pytest.approx(flow, rel=0.02)
    assert steady["mean_in_system"] == pytest.approx(0.7 / 0.3, rel=0.1)
