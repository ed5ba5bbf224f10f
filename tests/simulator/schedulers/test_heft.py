"""HEFT against published schedules."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.instances import instance_from_json
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.ranks import mean_seconds, upward_rank
from simulator.schedulers import create

ORACLES = Path(__file__).parents[2] / "oracles"
CLASSIC: dict[str, Any] = json.loads((ORACLES / "classic.json").read_text())
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())

TOPCUOGLU = [
    ("P3", 0, 9),
    ("P1", 27, 40),
    ("P3", 9, 28),
    ("P2", 18, 26),
    ("P3", 28, 38),
    ("P2", 26, 42),
    ("P3", 38, 49),
    ("P1", 57, 62),
    ("P2", 56, 68),
    ("P2", 73, 80),
]
"""Topcuoglu et al. 2002, figure 3(a), task by task."""


def test_topcuoglu_schedule_task_by_task() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    trace = simulate(graph, cluster, costs, create("heft"))
    tasks = trace.tasks
    found = [
        (trace.devices[device], start, finish)
        for device, start, finish in zip(
            tasks["device"], tasks["start"].tolist(), tasks["finish"].tolist(), strict=True
        )
    ]
    assert found == TOPCUOGLU


def test_upward_ranks_of_topcuoglu() -> None:
    document = CLASSIC["topcuoglu2002"]
    graph, cluster, costs = instance_from_json(document)
    edges = mean_edge_seconds(graph, Communication(cluster))
    ranks = upward_rank(mean_seconds(costs[graph].seconds), edges)
    assert ranks == pytest.approx(document["rank_u"], abs=5e-4)


@pytest.mark.parametrize("name", sorted(CLASSIC))
def test_classic(name: str) -> None:
    document = CLASSIC[name]
    graph, cluster, costs = instance_from_json(document, name)
    assert (
        simulate(graph, cluster, costs, create("heft")).makespan == document["recomputed"]["heft"]
    )


@pytest.mark.parametrize("document", CERTIFIED, ids=lambda d: f"seed{d['seed']}")
def test_certified(document: dict[str, Any]) -> None:
    graph, cluster, costs = instance_from_json(document)
    makespan = simulate(graph, cluster, costs, create("heft")).makespan
    assert makespan == document["heft"]
    assert makespan >= document["optimum"]


def test_duplicate_job_uses_what_the_first_leaves() -> None:
    """The same graph again at 10 s, onto the first schedule, ends at 109 s."""
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    workload = Workload([Job(graph), Job(graph, 10.0)])
    trace = simulate(workload, cluster, costs, create("heft"))
    assert trace.jobs["finish"].tolist() == [80, 109]
    assert trace.tasks["finish"].tolist()[:10] == [row[2] for row in TOPCUOGLU]


@pytest.mark.parametrize(("insertion", "second"), [(True, (3.0, 5.0)), (False, (14.0, 16.0))])
def test_a_later_job_runs_in_a_gap(insertion: bool, second: tuple[float, float]) -> None:
    chain = from_edges("chain", 3, [(0, 1, 2.0), (1, 2, 2.0)])
    single = from_edges("single", 1, [])
    # P1: p 0-2; P2: q 4-10; P1: r 12-14. The single task (2 s on P1) arrives at 3 s.
    cluster = fully_connected("pair", 2)
    never = math.inf
    costs = CostTable(
        {
            chain: GraphCosts(np.array([[2, never], [never, 6], [2, never]])),
            single: GraphCosts(np.array([[2, never]])),
        }
    )
    workload = Workload([Job(chain), Job(single, 3.0)])
    trace = simulate(workload, cluster, costs, create("heft", insertion=insertion))
    tasks = trace.tasks
    assert [tasks["start"][2], tasks["finish"][2]] == [12.0, 14.0]
    assert (tasks["start"][3], tasks["finish"][3]) == second


def test_the_first_job_is_not_delayed_by_a_later_plan() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["arabnejad2014_peft"])
    alone = simulate(graph, cluster, costs, create("heft"))
    both = simulate(
        Workload([Job(graph), Job(graph, 5.0), Job(graph, 5.0)]), cluster, costs, create("heft")
    )
    first = both.tasks["job"] == 0
    assert both.tasks["finish"][first].tolist() == alone.tasks["finish"].tolist()


def test_a_pool_has_a_timeline_for_each_slot() -> None:
    graph = from_edges("four", 4, [])
    cluster = Cluster("pool", [MemorySpace("a")], [Device("A", "a", slots=2)])
    costs = CostTable.of(graph, np.array([[4.0], [3.0], [2.0], [1.0]]))
    assert simulate(graph, cluster, costs, create("heft")).makespan == 5


def test_equal_ranks_go_by_task_not_by_rounding() -> None:
    """0.1 + 0.2 and 0.3 are one rank: tasks 0 and 2 tie, and 0 goes first."""
    graph = from_edges("tie", 3, [(0, 1, 0.0)])
    cluster = Cluster("one", [MemorySpace("a")], [Device("A", "a")])
    costs = CostTable.of(graph, np.array([[0.2], [0.1], [0.1 + 0.2]]))
    trace = simulate(graph, cluster, costs, create("heft"))
    assert trace.executions["task"].tolist() == [0, 2, 1]
