"""The bound of path and load together: closed forms, a naive programme, optima, any prices."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scenarios.instances import instance_from_json
from simulator.analysis import lp_bound as path_load
from simulator.analysis.bounds import critical_path, load_bound, lower_bound, workload_bound
from simulator.analysis.lp_bound import MOST_ENTRIES, path_load_bound
from simulator.model.cluster import Cluster, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.brute_force import optimum
from tests.simulator.strategies import clusters, graphs, seconds_of

ORACLES = Path(__file__).parents[1] / "oracles"
CERTIFIED: list[dict[str, Any]] = json.loads((ORACLES / "certified.json").read_text())
INF = math.inf


def test_what_is_good_for_the_path_is_bad_for_the_load() -> None:
    """A chain of two (1 s on A, 3 s on B) beside 2 s that only A can do. y seconds of the chain moved
    from A to B make the path 2 + 2 y and A's load 4 - y: T = 10/3 at y = 2/3. The path alone is 2, the
    load alone 3. That the chain's ends need not wait for one another is what is left.
    """
    graph = from_edges("three", 3, [(0, 1, 0.0)])
    seconds = np.array([[1.0, 3.0], [1.0, 3.0], [2.0, INF]])
    bounds = lower_bound(graph, seconds, fully_connected("two", 2))
    assert bounds.critical_path_s == 2
    assert bounds.load_s == pytest.approx(3)
    assert bounds.path_load_s == pytest.approx(10 / 3)
    assert bounds.bound_s == bounds.path_load_s
    assert bounds.binding == "path and load"


@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e5])
def test_what_lies_between_a_source_and_a_sink_shares_the_time_between(scale: float) -> None:
    """1 s, then four of 1 s, then 1 s, on two devices: 1 + 4/2 + 1; path and load are 3 each."""
    edges = [(0, i, 0.0) for i in range(1, 5)] + [(i, 5, 0.0) for i in range(1, 5)]
    graph = from_edges("fork-join", 6, edges)
    found = path_load_bound(graph, np.full((6, 2), scale), np.ones(2))
    assert found == pytest.approx(4 * scale, rel=1e-9)
    # The same as one device of two slots; three slots leave no window worth naming.
    assert path_load_bound(graph, np.full((6, 1), scale), np.array([2.0])) == pytest.approx(found)
    assert path_load_bound(graph, np.full((6, 1), scale), np.array([4.0])) == pytest.approx(
        3 * scale
    )


def naive(graph: DataflowGraph, seconds: np.ndarray, slots: np.ndarray) -> float:
    """The programme without windows, dense, a row for every edge: x, finishes, T."""
    tasks, devices = seconds.shape
    columns = tasks * devices + tasks + 1
    finite = np.where(np.isfinite(seconds), seconds, 0.0)
    rows, right = [], []
    for i in range(tasks):
        for j in [-1, *graph.predecessors[i]]:
            row = np.zeros(columns)
            row[i * devices : (i + 1) * devices] = finite[i]
            row[tasks * devices + i] = -1
            if j >= 0:
                row[tasks * devices + j] = 1
            rows.append(row)
        row = np.zeros(columns)
        row[tasks * devices + i], row[-1] = 1, -1
        rows.append(row)
    for p in range(devices):
        row = np.zeros(columns)
        row[p : tasks * devices : devices] = finite[:, p]
        row[-1] = -slots[p]
        rows.append(row)
    once = np.zeros((tasks, columns))
    for i in range(tasks):
        once[i, i * devices : (i + 1) * devices] = 1
    right = np.zeros(len(rows))
    upper = [1.0 if math.isfinite(s) else 0.0 for s in seconds.ravel()]
    bounds = [*((0, u) for u in upper), *[(0, None)] * (tasks + 1)]
    objective = np.zeros(columns)
    objective[-1] = 1
    return float(linprog(objective, np.array(rows), right, once, np.ones(tasks), bounds).fun)


@st.composite
def small(draw: st.DrawFn, operators: int = 8) -> tuple[DataflowGraph, Cluster, np.ndarray]:
    cluster = draw(clusters())
    graph = draw(graphs(operators=operators))
    return graph, cluster, draw(seconds_of(graph, len(cluster.devices)))


def with_overhead(cluster: Cluster, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    return seconds + overhead, np.array([float(device.slots) for device in cluster.devices])


def test_operators_without_duration_before_the_path() -> None:
    """o1, of no duration, before o2 and o4; o4 takes 1 s. Nothing else takes time."""
    graph = from_edges("zeros", 6, [(1, 2, 0.0), (1, 4, 0.0)])
    seconds = np.array([[0.0, INF]] * 6)
    seconds[4, 0] = 1.0
    assert path_load_bound(graph, seconds, np.array([3.0, 2.0])) == pytest.approx(1.0)


@settings(max_examples=examples(80), deadline=None)
@given(small())
def test_is_the_programme_and_windows_only_add(
    made: tuple[DataflowGraph, Cluster, np.ndarray],
) -> None:
    graph, cluster, seconds = made
    times, slots = with_overhead(cluster, seconds)
    plain = naive(graph, times, slots)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_load, "_ROUNDS", 1)
        assert path_load_bound(graph, times, slots) == pytest.approx(plain, rel=1e-6, abs=1e-7)
    found = path_load_bound(graph, times, slots)
    assert found is not None
    assert found >= plain * (1 - 1e-6) - 1e-7
    assert found >= critical_path(graph, times.min(axis=1).tolist()) * (1 - 1e-6)
    assert found >= load_bound(times, np.ones(len(times)), slots) * (1 - 1e-6)


@settings(max_examples=examples(60), deadline=None)
@given(small(operators=4))
def test_never_above_the_best_of_all_plans(
    made: tuple[DataflowGraph, Cluster, np.ndarray],
) -> None:
    graph, cluster, seconds = made
    best = optimum(Job(graph), cluster, CostTable({graph: GraphCosts(seconds)}))
    times, slots = with_overhead(cluster, seconds)
    found = path_load_bound(graph, times, slots)
    assert found is not None
    assert found <= best * (1 + 1e-12)


@pytest.mark.parametrize("document", CERTIFIED, ids=lambda d: f"seed{d['seed']}")
def test_certified_optima(document: dict[str, Any]) -> None:
    graph, cluster, costs = instance_from_json(document)
    seconds = costs[graph].seconds
    bounds = lower_bound(graph, seconds, cluster)
    assert bounds.path_load_s is not None
    assert bounds.path_load_s <= document["optimum"] * (1 + 1e-12)
    simple = max(bounds.critical_path_s, bounds.area_s, bounds.load_s)
    assert bounds.path_load_s >= simple * (1 - 1e-6)


def test_holds_whatever_the_solver_says() -> None:
    """Prices drawn at random, some of them zero, for random windows: a bound all the same."""
    rng = np.random.default_rng(1)
    for document in CERTIFIED:
        graph, cluster, costs = instance_from_json(document)
        seconds = costs[graph].seconds
        devices = len(cluster.devices)
        before, behind = path_load._paths(graph, seconds.min(axis=1))
        programme = path_load._Programme(
            path_load._Segments.of(graph), seconds, np.ones(devices), before, behind
        )
        values = []
        for _ in range(40):
            some = rng.integers(0, len(graph), rng.integers(0, 4)).tolist()
            windows = [(0.0, 0.0)] + [(float(before[i]), float(behind[i])) for i in some]
            raw = rng.random(programme.rows) * rng.integers(0, 2, programme.rows)
            prices = rng.random((len(windows), devices)) * rng.choice([0.0, 0.05, 1.0])
            values.append(programme._value(raw, prices, windows))
        assert 0 < max(values) <= document["optimum"]


def test_of_several_jobs_those_that_come_late_count_from_then_on() -> None:
    """Eight jobs of 3 s for two devices from 10 s on: 10 + 24/2. From the first arrival on it would
    be 24.5/2.
    """
    short, single = from_edges("short", 1, []), from_edges("single", 1, [])
    costs = CostTable(
        {short: GraphCosts(np.array([[0.5, 0.5]])), single: GraphCosts(np.array([[3.0, 3.0]]))}
    )
    workload = Workload([Job(short, 0.0), *[Job(single, 10.0)] * 8])
    bounds = workload_bound(workload, costs, fully_connected("two", 2))
    assert bounds.critical_path_s == 13
    assert bounds.load_s == pytest.approx(12.25)
    assert bounds.path_load_s == pytest.approx(22)


def test_too_large_graphs_do_without() -> None:
    count = MOST_ENTRIES // 2
    assert path_load_bound(from_edges("one", 1, []), np.ones((1, 2)), np.ones(2)) is not None
    rng = np.random.default_rng(0)
    graph = from_edges("many", count + 1, [])
    seconds = rng.random((count + 1, 2))
    bounds = lower_bound(graph, seconds, fully_connected("two", 2))
    assert bounds.path_load_s is None
    assert bounds.bound_s == max(bounds.load_s, bounds.area_s)
    assert bounds.binding == "load"
    # Equal devices count once.
    assert path_load_bound(graph, seconds[:, [0, 0]], np.ones(2)) is not None
    workload = Workload([Job(graph)])
    costs = CostTable({graph: GraphCosts(seconds)})
    stream = workload_bound(workload, costs, fully_connected("two", 2))
    assert stream.path_load_s is None
    assert stream.load_s == bounds.load_s
