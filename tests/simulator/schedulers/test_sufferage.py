"""Sufferage against published and recomputed matrices."""

from __future__ import annotations

import re

import numpy as np
import pytest

from scenarios.instances import instance_from_json
from simulator.context import SchedulingContext
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Recorded

BEATS_MIN_MIN = [[40, 48, 134, 50], [50, 82, 88, 89], [55, 68, 94, 93], [52, 60, 78, 108]]
EQUAL_MACHINES = [[2, 3], [3, 4], [4, 5], [12, 14]]


@pytest.mark.parametrize(("rows", "makespan"), [(BEATS_MIN_MIN, 78), (EQUAL_MACHINES, 12)])
def test_makespan(rows: list[list[float]], makespan: float) -> None:
    graph, cluster, costs = instance_from_json({"cost": rows, "edges": []})
    assert simulate(graph, cluster, costs, create("sufferage")).makespan == makespan


def test_sufferages_of_the_first_pass() -> None:
    graph, cluster, costs = instance_from_json({"cost": BEATS_MIN_MIN, "edges": []})
    lines: list[str] = []

    def listen(context: SchedulingContext) -> None:
        context.explain = lines.append

    simulate(graph, cluster, costs, Recorded(create("sufferage"), listen))
    found = [re.search(r"(t\d) .*sufferage ([\d.]+)", line) for line in lines[:4]]
    assert [(m[1], float(m[2])) for m in found if m] == [
        ("t0", 8),
        ("t1", 32),
        ("t2", 13),
        ("t3", 8),
    ]


def test_one_machine() -> None:
    graph, cluster, costs = instance_from_json({"cost": [[3], [1], [2]], "edges": []})
    trace = simulate(graph, cluster, costs, create("sufferage"))
    assert trace.executions["task"].tolist() == [0, 1, 2]


def test_remap_takes_back_what_has_not_started() -> None:
    """q waits on A behind p; then r comes, which would suffer more from B than q does."""
    long, two = from_edges("long", 2, []), from_edges("two", 1, [])
    cluster = Cluster("cpu", [MemorySpace("a")], [Device("A", "a"), Device("B", "a")])
    table = CostTable.of(long, np.array([[4.0, 100.0], [4.0, 8.5]]))
    short = CostTable.of(two, np.array([[2.0, 50.0]]))
    costs = CostTable({**table, **short})
    workload = Workload([Job(long), Job(two, 1.0)])
    kept = simulate(workload, cluster, costs, create("sufferage"))
    mapped = simulate(workload, cluster, costs, create("sufferage", remap=True))
    assert kept.tasks["start"].tolist() == [0, 4, 8]
    assert mapped.tasks["start"].tolist() == [0, 1, 4]
    assert mapped.tasks["device"].tolist() == [0, 1, 0]
