"""Queueing theory, Smith's rule, saturated batches, packing: closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from simulator.analysis.queueing import queueing_metrics
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import only_thoroughly, sample
from tests.simulator.serving.fleet import Fleet, flows, one, poisson
from tests.simulator.serving.test_two_stage import Exponential


@pytest.mark.parametrize(("load", "wait"), [*only_thoroughly((0.5, 0.5)), (0.8, 2.0)])
def test_md1(load: float, wait: float) -> None:
    fleet = Fleet([(0.0, 1.0)])
    jobs = [fleet.job(t) for t in poisson(load, sample(40_000), 1)]
    trace = fleet.run(jobs, "task_groups", max_batch=1)
    assert flows(trace).mean() - 1 == pytest.approx(wait, rel=0.06)


def test_saturated_throughput_of_one_model() -> None:
    fleet = Fleet([(0.02, 0.01)])
    jobs = [fleet.job(t) for t in poisson(200, 4000)]
    for scheduler in ("task_groups", "fcfs_batching", "dynamic_batching"):
        trace = fleet.run(jobs, scheduler)
        busy = trace.executions["start"] > 5
        served = np.isin(trace.members["execution"], np.flatnonzero(busy)).sum()
        length = trace.executions["finish"][busy].max() - trace.executions["start"][busy].min()
        assert served / length == pytest.approx(16 / (0.02 + 16 * 0.01), rel=0.02)


def test_groups_follow_smiths_rule() -> None:
    # Groups of w requests that take p: (3, 1), (1, 2), (4, 8), (2, 1).
    groups = [(3.0, 1), (1.0, 2), (4.0, 8), (2.0, 1)]
    fleet = Fleet([(p, 0.0) for p, _ in groups])
    jobs = [fleet.job(0.0, model) for model, (_, w) in enumerate(groups) for _ in range(w)]
    trace = fleet.run(jobs, "task_groups", theta=0.0)
    order = [int(trace.jobs["model"][j][1]) + 1 for j in trace.executions["job"].tolist()]
    assert order == [2, 3, 4, 1]
    assert flows(trace).sum() == 59
    assert flows(fleet.run(jobs, "fcfs_batching")).sum() == 85
    best = min(
        sum(w * sum(p for p, _ in row[: i + 1]) for i, (_, w) in enumerate(row))
        for row in itertools.permutations(groups)
    )
    assert best == 59


def test_aging_ends_starvation() -> None:
    # A cheap model that is asked for all the time, and a dear one that is asked for once.
    fleet = Fleet([(0.0, 0.01), (1.0, 0.0)])
    cheap = [fleet.job(0.00999 * i) for i in range(2000)]
    jobs = sorted([*cheap, fleet.job(0.0, 1)], key=lambda j: j.arrival)
    rare = next(i for i, j in enumerate(jobs) if j.model == "m1")

    def wait(**options: object) -> float:
        return float(flows(fleet.run(jobs, "task_groups", max_batch=1, **options))[rare])

    starved = wait(theta=0.0)
    assert starved > 19
    assert wait(theta=1.0) < 10
    assert wait(theta=0.0, starve_after="2s") == pytest.approx(3.0, abs=0.05)


def test_packing_saves_the_latencies_of_all_but_one() -> None:
    latency, bandwidth, count = 0.2, 1e4, 6
    fleet = Fleet([(0.0, 0.001)], sources=1, latency=latency, bandwidth=bandwidth)
    jobs = [fleet.job(0.0, at="user0") for _ in range(count)]

    def last(packing: dict[str, object] | None) -> float:
        trace = fleet.run(jobs, "fcfs_batching", packing=packing, max_batch=1, _contention="fifo")
        there = trace.transfers["destination"] == 0
        return float(trace.transfers["finish"][there].max())

    apart = last(None)
    assert apart == pytest.approx(count * (latency + 1000 / bandwidth))
    assert apart - last({}) == pytest.approx((count - 1) * latency)


def test_a_parcel_waits_for_its_size_or_its_age() -> None:
    fleet = Fleet([(0.0, 0.001)], sources=1, latency=0.1, bandwidth=1e6)
    jobs = [fleet.job(t, at="user0") for t in (0.0, 0.01, 0.02, 0.5)]
    packing = {"size": "3kB", "age": "50ms", "eager": False}
    trace = fleet.run(jobs, "fcfs_batching", packing=packing, _contention="fifo")
    there = trace.transfers["destination"] == 0
    requested = dict(
        zip(
            trace.transfers["job"][there].tolist(),
            trace.transfers["requested"][there].tolist(),
            strict=True,
        )
    )
    assert requested == pytest.approx({0: 0.02, 1: 0.02, 2: 0.02, 3: 0.55})


def test_round_robin_waits_less_than_random() -> None:
    """E_n/M/1 below M/M/1 (here with fixed service: E_n/D/1 below M/D/1)."""
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0] * 4, sources=1, bandwidth=1e12)
    jobs = [fleet.job(t, at="user0") for t in poisson(4 * 0.8, sample(20_000), 5)]

    def wait(select: object, count: int) -> float:
        trace = fleet.run(jobs[:count], "fcfs_batching", max_batch=1, select=select)
        return float(flows(trace).mean() - 1)

    by_chance = wait({"name": "random", "seed": 1}, len(jobs))
    assert by_chance == pytest.approx(2.0, rel=0.12)  # M/D/1 at 0.8
    in_turn, two, least = (
        wait(select, len(jobs) // 3) for select in ("round_robin", "power_of_two", "least_loaded")
    )
    assert in_turn < 0.5 * by_chance
    assert least <= two < 0.5 * by_chance


def test_round_robin_into_exponential_servers_is_e_n_m_1() -> None:
    """E_n/M/1: the share s of arrivals that wait solves s = A*(mu (1 - s)), A* the transform of the gaps of
    n arrivals; the mean wait is s / (mu (1 - s)), below rho / (mu - lambda) of M/M/1.
    """
    nodes, load = 4, 0.8
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0] * nodes, sources=1, bandwidth=1e12)
    jobs = [fleet.job(t, at="user0") for t in poisson(nodes * load, sample(40_000), 11)]
    share, rate = 0.5, nodes * load
    for _ in range(200):
        share = (rate / (rate + 1 - share)) ** nodes
    expected = share / (1 - share)
    assert expected < 0.7 * load / (1 - load)  # that of M/M/1: test_two_stage.py
    trace = fleet.run(
        jobs, "fcfs_batching", max_batch=1, select="round_robin", _actual=Exponential()
    )
    waits = flows(trace)[len(jobs) // 10 :] - 1
    means = np.array([part.mean() for part in np.array_split(waits, 40)])
    error = means.std(ddof=1) / 40**0.5
    assert error < 0.1 * expected
    assert abs(means.mean() - expected) < 4 * error


def test_stale_loads_make_requests_herd() -> None:
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0] * 8, sources=1, bandwidth=1e12)
    jobs = [fleet.job(t, at="user0") for t in poisson(8 * 0.8, 2000, 2)]

    def wait(select: object) -> float:
        return float(flows(fleet.run(jobs, "fcfs_batching", max_batch=1, select=select)).mean() - 1)

    fresh = wait("least_loaded")
    stale = wait({"name": "least_loaded", "period": 20.0})
    assert fresh < 0.5 < wait("random") < stale


def test_overload_is_uploaded_until_it_is_over() -> None:
    fleet = Fleet([(0.0, 0.1)], speeds=[1.0, 4.0], latency=0.01, bandwidth=1e6)
    jobs = [fleet.job(0.0) for _ in range(40)]
    options = {"max_batch": 1, "upload_to": "node1", "upload_above": "1s", "upload_below": "500ms"}
    trace = fleet.run(jobs, "task_groups", _contention="fifo", **options)
    there = trace.executions["device"] == 1
    assert there.sum() >= 30  # four times faster: 40 requests are done in about 0.8 s
    alone = fleet.run(jobs, "task_groups", max_batch=1, _contention="fifo")
    assert alone.makespan == pytest.approx(4.0)
    assert trace.makespan < 1.2
    # Below the mark nothing is sent.
    few = fleet.run(jobs[:9], "task_groups", _contention="fifo", **options)
    assert (few.executions["device"] == 0).all()


def test_the_limit_of_delay() -> None:
    fleet = Fleet([(0.0, 0.001)])
    trace = fleet.run(
        [fleet.job(0.0), fleet.job(0.004), fleet.job(0.5)], "dynamic_batching", delay="10ms"
    )
    assert trace.executions["start"].tolist() == pytest.approx([0.01, 0.51])
    full = fleet.run(
        [fleet.job(0.001 * i) for i in range(4)], "dynamic_batching", max_batch=4, delay="1s"
    )
    assert full.executions["start"].tolist() == pytest.approx([0.003])
    # A batch is full where no larger one is prepared.
    few = Fleet([(0.0, 0.001)], most=4)
    small = few.run([few.job(0.001 * i) for i in range(4)], "dynamic_batching", delay="1s")
    assert small.executions["start"].tolist() == pytest.approx([0.003])


def test_an_idle_device_that_cannot_run_what_is_overdue_waits() -> None:
    """Of two devices of a node one runs the second model alone, and is busy with it for 5 s."""
    first, second = one("first", 1), one("second", 1)
    cluster = Cluster("node", [MemorySpace("m")], [Device("able", "m"), Device("not", "m")])
    costs = CostTable(
        {
            first: GraphCosts(np.array([[1.0, 1.0]])),
            second: GraphCosts(np.array([[5.0, np.inf]])),
        }
    )
    jobs = [Job(second, arrival=0.0, batch=1), Job(second, arrival=0.1, batch=1)]
    trace = simulate(
        Workload(jobs), cluster, costs, create("dynamic_batching", delay="10ms", max_batch=1)
    )
    assert trace.executions["start"].tolist() == pytest.approx([0.0, 5.0])


def test_littles_law() -> None:
    fleet = Fleet([(0.02, 0.01), (0.05, 0.03)])
    rng = np.random.default_rng(0)
    jobs = [fleet.job(t, int(rng.integers(2))) for t in poisson(25, 8000)]
    figures = queueing_metrics(fleet.run(jobs, "task_groups"), 10.0)
    assert figures["mean_in_system"] == pytest.approx(
        figures["arrival_rate_per_s"] * figures["mean_time_in_system_s"], rel=0.02
    )
