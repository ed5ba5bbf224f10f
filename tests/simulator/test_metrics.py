"""Figures of a run, worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from simulator.analysis.idle import CAUSES
from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import StaticPlan
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import run


def test_every_figure() -> None:
    #   job 0 at 0 s: p (2 s, cpu, slot 0) --3 B--> q (1 s, gpu);  r (3 s, cpu, slot 1)
    #   job 1 at 4 s: the same;  a -> b is 1 B/s, b -> c 2 B/s; gpu is in c
    graph = from_edges("job", 3, [(0, 1, 3.0)])
    cluster = Cluster(
        "three",
        [MemorySpace("a"), MemorySpace("b"), MemorySpace("c")],
        [
            Device("cpu", "a", slots=2, power_idle=10.0, power_busy=30.0, price=3600.0),
            Device("gpu", "c", power_busy=100.0),
        ],
        [Link("ab", ("a", "b"), 1.0), Link("bc", ("b", "c"), 2.0)],
    )
    costs = CostTable.of(graph, np.array([[2.0, 9.0], [9.0, 1.0], [3.0, 9.0]]))
    workload = Workload([Job(graph, deadline=7.0), Job(graph, 4.0, deadline=9.5)])
    plan = StaticPlan([(0, 0.0), (1, 1.0), (0, 0.5)])
    found = metrics(simulate(workload, cluster, costs, plan))
    # job 0: p 0-2, transfer 2-5, q 5-6, r 0-3;  job 1: p 4-6, transfer 6-9, q 9-10, r 4-7
    assert found["makespan_s"] == 10
    assert found["utilisation"] == pytest.approx((2 + 3 + 2 + 3 + 1 + 1) / 30)
    assert (found["jobs"], found["jobs_finished"], found["jobs_late"]) == (2, 2, 1)
    assert (found["mean_flow_s"], found["max_flow_s"]) == (6, 6)
    assert (found["tasks"], found["transfers"], found["transferred_bytes"]) == (6, 2, 6)
    none = dict.fromkeys(CAUSES, 0.0)
    assert found["devices"] == {
        "cpu": {
            "busy_s": 10,
            "utilisation": 0.5,
            "tasks": 4,
            "lost_s": 0,
            "lost": 0,
            # slot 1 from 2 on waits with slot 0 from 3 on for job 1; at the end, nothing is left
            "idle_s": {**none, "no_work": 2 + 1 + 4 + 3},
            "energy_busy_j": 5 * 30,  # of ten seconds, half of the slots' time
            "energy_idle_j": 5 * 10,
            "cost": 10,
        },
        "gpu": {
            "busy_s": 2,
            "utilisation": 0.2,
            "tasks": 2,
            "lost_s": 0,
            "lost": 0,
            "idle_s": {**none, "no_work": 2, "data": 3 + 3},
            "energy_busy_j": 2 * 100,
            "energy_idle_j": None,
            "cost": None,
        },
    }
    assert (found["energy_j"], found["cost"]) == (None, None)
    assert (found["jobs_failed"], found["jobs_queued"], found["failures"]) == (0, 0, {})
    # a: job 1's p starts while job 0's output is being sent; c: one copy at a time
    assert found["spaces"] == {
        "a": {"peak_bytes": 6, "reserved_bytes": None, "capacity_bytes": None},
        "b": {"peak_bytes": 0, "reserved_bytes": None, "capacity_bytes": None},
        "c": {"peak_bytes": 3, "reserved_bytes": None, "capacity_bytes": None},
    }
    assert (found["p50_flow_s"], found["p99_flow_s"]) == (6, 6)
    used = {"busy_s": 6, "utilisation": 0.6, "bytes": 6, "transfers": 2}
    unused = {"busy_s": 0, "utilisation": 0, "bytes": 0, "transfers": 0}
    assert found["channels"] == {
        "ab:a->b": used,
        "ab:b->a": unused,
        "bc:b->c": used,
        "bc:c->b": unused,
    }
    assert json.loads(json.dumps(found)) == found


def test_transfers_at_the_same_time_are_busy_once() -> None:
    graph = from_edges("fan", 3, [(0, 1, 3.0), (0, 2, 4.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("cpu", "a"), Device("gpu", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    costs = CostTable.of(graph, np.ones((3, 2)))
    plan = StaticPlan([(0, 0.0), (1, 1.0), (1, 2.0)])
    for contention, busy in (("none", 4), ("fifo", 7)):
        found = metrics(simulate(graph, cluster, costs, plan, contention=contention))
        assert found["channels"]["ab:a->b"]["busy_s"] == busy


def test_a_run_without_time_or_transfers() -> None:
    graph = from_edges("nothing", 1, [])
    cluster = Cluster("one", [MemorySpace("a")], [Device("cpu", "a")])
    costs = CostTable.of(graph, np.zeros((1, 1)))
    found = metrics(simulate(graph, cluster, costs, StaticPlan([(0, 0.0)])))
    assert found["utilisation"] == 0
    assert found["steady_state"]["mean_in_system"] == 0
    assert found["channels"] == {}
    assert all(math.isfinite(v) for v in found.values() if isinstance(v, float))


def test_energy_and_cost_are_known_where_every_part_is() -> None:
    graph = from_edges("one", 1, [])
    devices = [
        Device("cpu", "a", power_idle=1.0, power_busy=3.0, price=0.5),
        Device("old", "a", power_idle=2.0, power_busy=9.0, price=0.0),
    ]
    costs = CostTable.of(graph, np.array([[7200.0, 1.0]]))
    cluster = Cluster("known", [MemorySpace("a")], devices)
    found = metrics(simulate(graph, cluster, costs, StaticPlan([(0, 0.0)])))
    assert found["energy_j"] == 7200 * (3 + 2)
    assert found["cost"] == 1.0


def with_faults(trace: Trace) -> Trace:
    """Six jobs of one task each: one attempt lost, one job failed, one queued at the horizon."""
    runs = dict(trace.executions)
    status = runs["status"].copy()
    status[2] = "lost"[:8]
    runs["status"] = status
    jobs = dict(trace.jobs)
    jobs["status"] = np.array(["finished", "finished", "failed", "finished", "finished", "queued"])
    jobs["reason"] = np.array(["", "", "device lost", "", "", ""])
    jobs["finish"] = np.append(jobs["finish"][:5], np.inf)
    runs = {name: column[:5] for name, column in runs.items()}
    meta = {**trace.meta, "horizon_s": 11.0}
    return dataclasses.replace(trace, executions=runs, jobs=jobs, meta=meta)


def six_jobs() -> Trace:
    graph = from_edges("one", 1, [])
    cluster = Cluster("one", [MemorySpace("a")], [Device("cpu", "a")])
    costs = CostTable.of(graph, np.array([[2.0]]))
    workload = Workload([Job(graph, float(i), deadline=i + 3.5) for i in range(6)])
    return simulate(workload, cluster, costs, create("fcfs"))


def test_what_was_lost_failed_or_left_is_counted_apart() -> None:
    # job i runs from 2 i to 2 i + 2; job 2's attempt is lost at 6; job 5 would start at 10
    found = metrics(with_faults(six_jobs()))
    assert (found["jobs"], found["jobs_finished"]) == (6, 4)
    assert (found["jobs_failed"], found["jobs_queued"]) == (1, 1)
    assert found["failures"] == {"device lost": 1}
    assert found["makespan_s"] == 10
    assert (found["tasks"], found["tasks_lost"], found["lost_s"]) == (4, 1, 2.0)
    assert found["devices"]["cpu"]["busy_s"] == 10
    assert found["utilisation"] == pytest.approx(10 / 11)
    assert found["jobs_late"] == 2  # jobs 3 and 4 take 5 and 6 s
    assert found["mean_flow_s"] == (2 + 3 + 5 + 6) / 4
    steady = found["steady_state"]
    assert (steady["arrivals"], steady["departures"], steady["left_in_system"]) == (6, 5, 1)
    assert steady["mean_time_in_system_s"] == (2 + 3 + 4 + 5 + 6) / 5
    assert steady["mean_in_system"] == pytest.approx((2 + 3 + 4 + 5 + 6 + 6) / 11)
    assert steady["throughput_per_s"] == 4 / 11
    assert steady["goodput_per_s"] == 2 / 11


def test_nothing_finished_is_unknown_and_not_zero() -> None:
    trace = with_faults(six_jobs())
    trace.jobs["status"][:] = "queued"
    trace.jobs["finish"][:] = np.inf
    found = metrics(trace)
    assert found["mean_flow_s"] is found["p99_flow_s"] is None
    assert found["steady_state"]["mean_time_in_system_s"] is None
    assert found["jobs_queued"] == 6


def test_the_window_leaves_out_the_warm_up_and_what_is_past_the_horizon() -> None:
    steady = metrics(six_jobs(), warm_up=2.0, horizon=5.0)["steady_state"]
    assert (steady["from_s"], steady["to_s"]) == (2, 5)
    assert (steady["arrivals"], steady["departures"]) == (3, 2)  # at 2, 3, 4; at 2, 4
    assert steady["mean_time_in_system_s"] == (4 + 5 + 6) / 3
    # in the system: job 1 to 4, job 2 from 2, job 3 from 3, job 4 from 4
    assert steady["mean_in_system"] == pytest.approx((2 + 3 + 2 + 1) / 3)
    assert steady["utilisation"] == 1
    trace = dataclasses.replace(six_jobs(), meta={**six_jobs().meta, "warm_up_s": 2.0})
    assert metrics(trace)["steady_state"]["from_s"] == 2
    for warm_up in (-1.0, 12.0):
        with pytest.raises(InvalidInput, match="warm-up"):
            metrics(trace, warm_up)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_littles_law_and_the_wait_of_a_single_server(load: float) -> None:
    graph = from_edges("one", 1, [])
    cluster = Cluster("one", [MemorySpace("a")], [Device("cpu", "a")])
    costs = CostTable.of(graph, np.array([[1.0]]))
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / load, 8000))
    workload = Workload([Job(graph, t) for t in arrivals.tolist()])
    trace = simulate(workload, cluster, costs, create("fcfs"))
    end = float(arrivals[-1])
    for warm_up, horizon, tolerance in ((0.0, None, 1e-9), (0.1 * end, end, 0.02)):
        steady = metrics(trace, warm_up, horizon)["steady_state"]
        assert steady["mean_time_in_system_s"] is not None
        product = steady["arrival_rate_per_s"] * steady["mean_time_in_system_s"]
        assert steady["mean_in_system"] == pytest.approx(product, rel=tolerance)
    # M/D/1: the wait is load / (2 (1 - load)) services, Pollaczek and Khinchine
    expected = 1 + load / (2 * (1 - load))
    assert steady["mean_time_in_system_s"] == pytest.approx(expected, rel=0.05)
    assert steady["utilisation"] == pytest.approx(load, rel=0.03)


@settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases(contentions=("none", "fifo", "fair")))
def test_a_loaded_trace_gives_the_same_figures(case: Case) -> None:
    trace = run(case)
    with tempfile.TemporaryDirectory() as folder:
        trace.save(folder)
        loaded = Trace.load(folder)
    assert metrics(loaded) == metrics(trace)
    found = metrics(trace)
    assert found["jobs"] == found["jobs_finished"] == len(case.workload)
    for device, figures in zip(case.cluster.devices, found["devices"].values(), strict=True):
        idle = trace.end * device.slots - figures["busy_s"]
        assert sum(figures["idle_s"].values()) == pytest.approx(idle, rel=1e-9, abs=1e-9)
        assert min(figures["idle_s"].values()) >= -1e-12
        assert figures["idle_s"]["down"] == figures["idle_s"]["memory"] == 0
        if case.scheduler_name in ("fcfs", "heft", "donf", "adon", "sufferage"):
            # Nobody goes in front of a task that could run: no other reason is left to wait.
            assert figures["idle_s"]["overhead"] == pytest.approx(0, abs=1e-9)


def test_of_very_many_channels_only_those_in_use_are_listed() -> None:
    cluster = fully_connected("many", 40)
    graph = from_edges("moved", 2, [(0, 1, 3.0)])
    seconds = np.full((2, 40), np.inf)
    seconds[0, 4] = seconds[1, 7] = 1.0
    trace = simulate(graph, cluster, CostTable.of(graph, seconds), create("fcfs"))
    assert len(trace.meta["channels"]) == 1560
    assert metrics(trace)["channels"] == {
        "l4-7:m4->m7": {"busy_s": 3.0, "utilisation": 0.6, "bytes": 3.0, "transfers": 1}
    }
