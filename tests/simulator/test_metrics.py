"""Figures of a run, worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from simulator.cluster import Cluster, Device, Link, MemorySpace
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.graph import from_edges
from simulator.metrics import metrics
from simulator.workload import Job, Workload
from tests.simulator.scripted import StaticPlan


def test_every_figure() -> None:
    #   job 0 at 0 s: p (2 s, cpu, slot 0) --3 B--> q (1 s, gpu);  r (3 s, cpu, slot 1)
    #   job 1 at 4 s: the same;  a -> b is 1 B/s, b -> c 2 B/s; gpu is in c
    graph = from_edges("job", 3, [(0, 1, 3.0)])
    cluster = Cluster(
        "three",
        [MemorySpace("a"), MemorySpace("b"), MemorySpace("c")],
        [Device("cpu", "a", slots=2), Device("gpu", "c")],
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
    assert found["devices"] == {
        "cpu": {"busy_s": 10, "utilisation": 0.5, "tasks": 4},
        "gpu": {"busy_s": 2, "utilisation": 0.2, "tasks": 2},
    }
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
    assert found["channels"] == {}
    assert all(math.isfinite(v) for v in found.values() if isinstance(v, float))
