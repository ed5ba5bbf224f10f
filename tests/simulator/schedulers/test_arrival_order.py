"""Schedulers that place tasks as they come, against published matrices, loops and counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.schedulers import create
from tests.simulator.schedulers.test_sufferage import BEATS_MIN_MIN, EQUAL_MACHINES
from tests.simulator.test_properties import quick

Times = list[list[float]]


def run(times: Times, name: str, **options: object) -> Trace:
    """Independent tasks, all ready at 0."""
    rows = [[None if second == math.inf else second for second in row] for row in times]
    graph, cluster, costs = instance_from_json({"cost": rows, "edges": []})
    return simulate(graph, cluster, costs, create(name, **options))


@pytest.mark.parametrize(
    ("name", "published", "equal"), [("mct", 93, 18), ("olb", 108, 18), ("met", 197, 21)]
)
def test_matrices(name: str, published: float, equal: float) -> None:
    assert run(BEATS_MIN_MIN, name).makespan == published
    assert run(EQUAL_MACHINES, name).makespan == equal


@st.composite
def matrices(draw: st.DrawFn) -> Times:
    """Times of up to 7 tasks on up to 4 devices, some of which cannot run some."""
    devices = draw(st.integers(1, 4))
    seconds = st.sampled_from([1.0, 2.0, 3.0, 5.0, 0.1, 0.7, 3.3])
    rows = []
    for _ in range(draw(st.integers(1, 7))):
        row = [draw(seconds) for _ in range(devices)]
        if draw(st.integers(0, 3)) == 0:
            able = draw(st.sets(st.integers(0, devices - 1), min_size=1))
            row = [s if d in able else math.inf for d, s in enumerate(row)]
        rows.append(row)
    return rows


@quick
@given(matrices(), st.sampled_from(["mct", "met", "olb", "round_robin"]))
def test_rules_by_a_plain_loop(times: Times, name: str) -> None:
    free, expected, turn = [0.0] * len(times[0]), [], 0
    for row in times:
        able = [d for d, s in enumerate(row) if s < math.inf]
        if name == "round_robin":
            device = next(d % len(row) for d in range(turn, 2 * len(row)) if d % len(row) in able)
            turn = device + 1
        else:
            score = {
                "mct": lambda d, row=row: free[d] + row[d],
                "met": lambda d, row=row: row[d],
                "olb": lambda d: free[d],
            }[name]
            device = min(able, key=lambda d: (score(d), d))
        free[device] += row[device]
        expected.append(device)
    trace = run(times, name)
    assert trace.tasks["device"].tolist() == expected
    assert trace.makespan == max(free)


def test_mct_prices_the_way_of_the_data() -> None:
    """t1 reads 5 B of t0: 6 s on B lose against 4 s on A; olb and met do not care."""
    graph = from_edges("data", 2, [(0, 1, 5.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [4.0, 1.0]]))
    found = {
        name: simulate(graph, cluster, costs, create(name)).tasks["device"].tolist()
        for name in ("mct", "met", "olb")
    }
    assert found == {"mct": [0, 0], "met": [0, 1], "olb": [0, 0]}


def test_random_is_uniform_over_what_can_run_it_and_repeats_by_seed() -> None:
    able = [1.0, math.inf, 1.0, 1.0]
    devices = run([able] * 3000, "random", seed=7).tasks["device"]
    counts = np.bincount(devices, minlength=4)
    assert counts[1] == 0
    # Five standard deviations of a binomial of 3000 draws at a third.
    assert np.all(np.abs(counts[[0, 2, 3]] - 1000) < 5 * math.sqrt(3000 * 2 / 9))
    assert np.array_equal(devices, run([able] * 3000, "random", seed=7).tasks["device"])
    assert not np.array_equal(devices, run([able] * 3000, "random", seed=8).tasks["device"])


@pytest.mark.parametrize("name", ["mct", "met", "olb", "random", "round_robin", "work_stealing"])
def test_a_device_that_is_down_gets_nothing(name: str) -> None:
    """A, the fast one, is down when t1 and t2 become ready."""
    graph = from_edges("fork", 3, [(0, 1, 0.0), (0, 2, 0.0)])
    costs = CostTable.of(graph, np.array([[9.0, 1.0], [1.0, 2.0], [1.0, 2.0]]))
    cluster = fully_connected("two", 2)
    faults = Faults([Fault("device_failure", cluster.devices[0].name, 0.0, 50.0)])
    trace = simulate(graph, cluster, costs, create(name), faults=faults)
    assert trace.tasks["device"].tolist() == [1, 1, 1]
    assert trace.makespan == 5.0


@pytest.mark.parametrize("name", ["met", "random", "round_robin"])
def test_what_only_a_device_that_is_down_can_run_waits_for_it(name: str) -> None:
    graph = from_edges("one", 1, [])
    costs = CostTable.of(graph, np.array([[1.0, math.inf]]))
    cluster = fully_connected("two", 2)
    faults = Faults([Fault("device_failure", cluster.devices[0].name, 0.0, 50.0)])
    assert simulate(graph, cluster, costs, create(name), faults=faults).makespan == 51.0


def test_a_pool_is_free_while_it_has_a_slot() -> None:
    """olb: two slots of A take t0 and t1, B is free at 0, too; then A's first slot is free at 1."""
    graph = from_edges("pool", 4, [])
    cluster = Cluster("c", [MemorySpace("m")], [Device("A", "m", slots=2), Device("B", "m")])
    costs = CostTable.of(graph, np.array([[1.0, 5.0], [4.0, 5.0], [9.0, 5.0], [1.0, 1.0]]))
    trace = simulate(graph, cluster, costs, create("olb"))
    assert trace.tasks["device"].tolist() == [0, 0, 1, 0]
    assert trace.tasks["start"].tolist() == [0.0, 0.0, 0.0, 1.0]
