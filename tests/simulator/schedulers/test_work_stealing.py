"""Work stealing on examples worked out by hand, and what holds for any run of it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick

TWO = Cluster("two", [MemorySpace("m")], [Device("A", "m"), Device("B", "m")])
FORK = from_edges("fork", 5, [(0, i, 0.0) for i in range(1, 5)])


def rows(trace: Trace) -> list[tuple[int, float]]:
    """(device, start) of every task."""
    return list(zip(trace.tasks["device"].tolist(), trace.tasks["start"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        # t0 releases t1 to t4 to A's deque; A begins t4, then t3; B steals t1, then t2.
        ("newest", [(0, 0), (1, 1), (1, 3), (0, 3), (0, 1)]),
        # A begins t1, B steals t2; then t3 and t4 in the same way.
        ("oldest", [(0, 0), (0, 1), (1, 1), (0, 3), (1, 3)]),
    ],
)
def test_owner_and_thief_work_at_the_two_ends(
    owner: str, expected: list[tuple[int, float]]
) -> None:
    costs = CostTable.of(FORK, np.array([[1.0, 1.0]] + [[2.0, 2.0]] * 4))
    assert rows(simulate(FORK, TWO, costs, create("work_stealing", owner=owner))) == expected


@pytest.mark.parametrize(("gain", "makespan"), [(False, 21), (True, 9)])
def test_a_slow_thief_leaves_alone_what_the_victim_does_sooner(gain: bool, makespan: float) -> None:
    """B needs 20 s for what A needs 2 s for: with gain all four stay, 1 + 4 x 2."""
    costs = CostTable.of(FORK, np.array([[1.0, 20.0]] + [[2.0, 20.0]] * 4))
    assert simulate(FORK, TWO, costs, create("work_stealing", gain=gain)).makespan == makespan


@pytest.mark.parametrize(("victim", "stolen"), [("longest", 2), ("nearest", 6)])
def test_victims(victim: str, stolen: int) -> None:
    """At 1 three tasks can be stolen from A and one from B, whose memory is that of the thief C."""
    edges = [*((0, i, 0.0) for i in range(2, 6)), *((1, i, 0.0) for i in (6, 7))]
    graph = from_edges("two forks", 8, edges)
    cluster = Cluster(
        "three",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b"), Device("C", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    costs = CostTable.of(graph, np.array([[1.0] * 3] * 2 + [[10.0] * 3] * 6))
    trace = simulate(graph, cluster, costs, create("work_stealing", victim=victim))
    on_c = np.flatnonzero((trace.tasks["device"] == 2) & (trace.tasks["start"] == 1.0))
    assert on_c.tolist() == [stolen]


@pytest.mark.parametrize(("home", "device"), [("releaser", 1), ("data", 0)])
def test_homes(home: str, device: int) -> None:
    """t2 reads 10 B from A, done at 1, and 1 B from B, done at 2."""
    graph = from_edges("join", 3, [(0, 2, 10.0), (1, 2, 1.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]))
    trace = simulate(graph, cluster, costs, create("work_stealing", home=home))
    assert trace.tasks["device"].tolist() == [0, 1, device]


def test_tasks_that_nobody_released_are_dealt_in_turn_to_what_can_run_them() -> None:
    graph = from_edges("four", 4, [])
    never = math.inf
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [1.0, never], [1.0, 1.0], [1.0, 1.0]]))
    trace = simulate(graph, TWO, costs, create("work_stealing", owner="oldest"))
    assert trace.tasks["device"].tolist() == [0, 0, 1, 1]  # t3 was dealt to A, and stolen


def test_random_victims_repeat_by_seed() -> None:
    graph = from_edges("wide", 123, [(i % 3, i, 0.0) for i in range(3, 123)])
    cluster = Cluster("six", [MemorySpace("m")], [Device(f"d{i}", "m") for i in range(6)])
    rng = np.random.default_rng(0)
    costs = CostTable.of(graph, rng.uniform(1, 3, (123, 1)) * np.ones(6))
    runs = [
        rows(simulate(graph, cluster, costs, create("work_stealing", victim="random", seed=seed)))
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


def test_explained() -> None:
    costs = CostTable.of(FORK, np.array([[1.0, 1.0]] + [[2.0, 2.0]] * 4))
    lines: list[str] = []
    simulate(FORK, TWO, costs, create("work_stealing"), explain=lines.append)
    assert lines[:2] == ["t0 -> A: in turn, 1 on it", "t1 -> A: released there, 1 on it"]
    assert lines[5:] == [
        "B steals t1 from A, where 3 waited",
        "B steals t2 from A, where 1 waited",
    ]


def test_unknown_ways() -> None:
    with pytest.raises(InvalidInput, match="knows no victim=richest; known: longest, nearest"):
        create("work_stealing", victim="richest")


@settings(quick, max_examples=examples(150))
@given(
    cases(schedulers=("fcfs",), exact=True, least=0.1),
    st.sampled_from(["longest", "nearest", "random"]),
    st.sampled_from(["newest", "oldest"]),
    st.sampled_from(["releaser", "data"]),
)
def test_nobody_idles_while_a_task_waits_that_it_can_run(
    case: Case, victim: str, owner: str, home: str
) -> None:
    """In one memory space: between a task's readiness and its start every slot that can run it works."""
    space = case.cluster.spaces[0]
    devices = [dataclasses.replace(device, space=space.name) for device in case.cluster.devices]
    case.cluster = Cluster("one", [space], devices, [], None)
    case.workload = Workload(
        dataclasses.replace(job, origin=None, destination=None) for job in case.workload
    )
    scheduler = create("work_stealing", victim=victim, owner=owner, home=home, seed=case.seed)
    trace = case.run(scheduler)
    columns = (trace.tasks[k].tolist() for k in ("job", "operator", "device", "ready", "start"))
    starts, finishes = trace.tasks["start"], trace.tasks["finish"]
    for job, operator, _, ready, start in zip(*columns, strict=True):
        seconds = case.costs[case.workload.jobs[job].graph].seconds[operator]
        moments = [m for m in {ready, *finishes.tolist(), *starts.tolist()} if ready <= m < start]
        for device in np.flatnonzero(np.isfinite(seconds)).tolist():
            mine = trace.tasks["device"] == device
            for moment in moments:
                busy = int((mine & (starts <= moment) & (moment < finishes)).sum())
                assert busy == devices[device].slots
