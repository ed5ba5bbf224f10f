"""The critical path: by hand, on a published schedule, and for random runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from scenarios.instances import load_instance
from simulator.analysis.critical import critical_path
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import StaticPlan
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import run

PAIR = Cluster(
    "pair",
    [MemorySpace("ram"), MemorySpace("vram")],
    [Device("cpu", "ram"), Device("gpu", "vram")],
    [Link("bus", ("ram", "vram"), 1.0)],
)


def named(trace: Trace) -> list[tuple[str, str, float, float, str, float]]:
    rows = []
    for step in critical_path(trace):
        if step.what == "execution":
            what = trace.operator(
                int(trace.executions["job"][step.row]), int(trace.executions["operator"][step.row])
            )[0]
        else:
            what = f"tensor {trace.transfers['tensor'][step.row]}"
        rows.append((step.what, what, step.start, step.finish, step.after, step.wait_s))
    return rows


def test_a_path_over_link_and_device() -> None:
    # a 0-1 sends 4 B to c, b 1-2 sends 3 B to d: 1-5, then 5-8; d 8-9 after c 5-6; e 9-11 after d
    graph = from_edges("two", 5, [(0, 2, 4.0), (1, 3, 3.0)], names=list("abcde"))
    times = np.array([[1.0, 9.0], [1.0, 9.0], [9.0, 1.0], [9.0, 1.0], [9.0, 2.0]])
    plan = StaticPlan([(0, 0.0), (0, 1.0), (1, 2.0), (1, 3.0), (1, 4.0)])
    workload = Workload([Job(graph, 2.0)])
    costs = CostTable.of(graph, times)
    trace = simulate(workload, PAIR, costs, plan, contention="fifo")
    assert named(trace) == [
        ("execution", "a", 2, 3, "arrival", 0),
        ("transfer", "tensor 0", 3, 7, "data", 0),
        ("transfer", "tensor 1", 7, 10, "link", 0),
        ("execution", "d", 10, 11, "data", 0),
        ("execution", "e", 11, 13, "device", 0),
    ]


def test_waiting_that_nothing_accounts_for() -> None:
    graph = from_edges("late", 2, [(0, 1, 2.0)], names=list("ab"))
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [9.0, 1.0]]))
    trace = simulate(graph, PAIR, costs, StaticPlan([(0, 0.0), (1, 1.0)]))
    trace.executions["start"][1] += 2.0
    trace.executions["finish"][1] += 2.0
    trace.jobs["finish"][0] += 2.0
    assert named(trace)[-1] == ("execution", "b", 5, 6, "data", 2)


def test_the_last_delivery_counts() -> None:
    graph = DataflowGraph(
        "back",
        [Operator("p", "task")],
        [Tensor("y", "activation", 3.0)],
        [[]],
        [[0]],
        [{"tensor": "y", "views": []}],
    )
    costs = CostTable.of(graph, np.array([[9.0, 1.0]]))
    workload = Workload([Job(graph, destination="ram")])
    trace = simulate(workload, PAIR, costs, StaticPlan([(1, 0.0)]))
    assert named(trace) == [
        ("execution", "p", 0, 1, "arrival", 0),
        ("transfer", "tensor 0", 1, 4, "data", 0),
    ]


def test_hefts_published_schedule() -> None:
    oracle = Path(__file__).parents[2] / "conf" / "instances" / "topcuoglu.json"
    graph, cluster, costs = load_instance(oracle)
    trace = simulate(graph, cluster, costs, create("heft"))
    path = critical_path(trace)
    assert path[0].start == 0
    assert path[-1].finish == 80
    assert sum(step.finish - step.start for step in path) == 80
    # T10 73-80 on P2 waits for T8's output, 57-62 on P1, sent 62-73
    last = [(s.what, s.start, s.finish) for s in path[-3:]]
    assert last == [("execution", 57, 62), ("transfer", 62, 73), ("execution", 73, 80)]


@settings(
    max_examples=examples(120),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases(contentions=("none", "fifo", "fair")))
def test_steps_follow_one_another_from_an_arrival_to_the_makespan(case: Case) -> None:
    trace = run(case)
    path = critical_path(trace)
    assert path[-1].finish == trace.makespan
    assert all(step.after == "arrival" for step in path[:1]) or path[0].start == path[0].finish
    before = None
    for step in path:
        if before is not None:
            assert step.start - step.wait_s == pytest.approx(before.finish, abs=1e-9)
        before = step
        # Those who place every task at its job's arrival, or as soon as it is ready, waste no time.
        if case.scheduler_name in ("heft", "donf", "adon"):
            assert step.wait_s == pytest.approx(0, abs=1e-9)
