"""On-line list schedulers: the order of ready tasks, and what explains it."""

from __future__ import annotations

import numpy as np

from simulator.engine.run import simulate
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create
from tests.simulator.scripted import Recorded


def test_dynamic_heft_places_ready_tasks_by_upward_rank() -> None:
    """0 leads to 1, 2, 3; behind 3 there is more than behind 2, and behind 1 nothing."""
    graph = from_edges("ranks", 5, [(0, 1, 0.0), (0, 2, 0.0), (0, 3, 0.0), (3, 4, 0.0)])
    costs = CostTable.of(graph, np.array([[1.0], [1.0], [2.0], [1.0], [5.0]]))
    recorded = Recorded(create("dynamic_heft"))
    trace = simulate(graph, fully_connected("one", 1), costs, recorded)
    placed = [row[0] for d in recorded.decisions for verb, row in d.verbs if verb == "place"]
    assert placed == [0, 3, 2, 1, 4]
    assert trace.makespan == 10.0


def test_dynamic_heft_prices_at_run_time() -> None:
    """Task 0 runs 1 s, not 10: 2 was planned elsewhere, and takes its device once 1 has released it."""
    graph = from_edges("late", 3, [(1, 2, 0.0)])
    cluster = fully_connected("two", 2)
    believed = CostTable.of(graph, np.array([[10.0, 30.0], [20.0, 3.0], [2.0, 4.0]]))
    actual = CostTable.of(graph, np.array([[1.0, 30.0], [20.0, 3.0], [2.0, 4.0]]))
    found = {}
    for name in ("heft", "dynamic_heft"):
        trace = simulate(graph, cluster, believed, create(name), actual=actual)
        found[name] = (int(trace.tasks["device"][2]), trace.makespan)
    assert found == {"heft": (1, 7.0), "dynamic_heft": (0, 5.0)}


def test_a_decision_is_explained_with_the_finishes_it_compared() -> None:
    graph = from_edges("said", 2, [(0, 1, 3.0)])
    costs = CostTable.of(graph, np.array([[1.0, 2.0], [4.0, 2.0]]))
    lines: list[str] = []
    simulate(graph, fully_connected("two", 2), costs, create("donf"), explain=lines.append)
    assert lines == ["t0 (priority 1) -> P1: 1 < 2", "t1 (priority 0) -> P1: 5 < 6"]
