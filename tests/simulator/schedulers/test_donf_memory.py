"""DONF that looks after memory: hand-drawn cases, and DONF itself where memory is plentiful."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.engine.run import simulate
from simulator.errors import HetsimError, InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import COLUMNS
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick


@settings(quick, max_examples=examples(150))
@given(cases(schedulers=("fcfs",), contentions=("none", "fifo", "fair")))
def test_donf_where_memory_is_plentiful(case: Case) -> None:
    found, expected = case.run(create("donf_memory")), case.run(create("donf"))
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(found, table)[column], getattr(expected, table)[column])


def tight(capacity: float, devices: int) -> Cluster:
    """Devices of one memory of so many bytes."""
    named = [Device(f"d{i}", "m") for i in range(devices)]
    return Cluster("tight", [MemorySpace("m", capacity)], named)


@pytest.mark.parametrize(("threshold", "first"), [(0.5, "q"), (0.6, "r"), (0.9, "r")])
def test_who_lets_most_go_comes_first_while_memory_is_full(threshold: float, first: str) -> None:
    """p writes x, 6 of 10 bytes, read by q alone, and y, which r and u read; r leads on to s."""
    graph = DataflowGraph(
        "release",
        [Operator(name, "task") for name in "pqrus"],
        [
            Tensor("x", "activation", 6.0),
            Tensor("y", "activation", 0.0),
            Tensor("z", "activation", 0.0),
        ],
        [[], [0], [1], [1], [2]],
        [[0, 1], [], [2], [], []],
    )
    costs = CostTable.of(graph, np.ones((5, 1)))
    trace = simulate(
        graph, tight(10.0, 1), costs, create("donf_memory", threshold=threshold), memory="limited"
    )
    order = np.argsort(trace.tasks["start"])
    assert graph.operators[order[1]].name == first


def test_held_until_there_is_room() -> None:
    """Two tasks write 6 bytes each into 10: DONF queues both at once, DONF-memory one after the other."""
    graph = from_edges("pair", 4, [(0, 2, 6.0), (1, 3, 6.0)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [1.0, 1.0]]))
    placed = {
        name: simulate(graph, tight(10.0, 2), costs, create(name), memory="limited")
        .tasks["placed"]
        .tolist()
        for name in ("donf", "donf_memory")
    }
    assert placed == {"donf": [0, 0, 1, 4], "donf_memory": [0, 2, 1, 4]}


def test_what_fits_nowhere_goes_once_nothing_runs() -> None:
    """t1 reads 6 of the 10 bytes and writes 4; room is short by the byte that t0 wrote for t2, too."""
    graph = from_edges("short", 3, [(0, 1, 6.0), (0, 2, 1.0), (1, 2, 4.0)])
    costs = CostTable.of(graph, np.ones((3, 1)))
    lines: list[str] = []
    scheduler = create("donf_memory")
    out_of_memory = r"Out of memory: .* task 't1' on device 'd0' needs 4 bytes"
    with pytest.raises(SchedulingError, match=out_of_memory):
        simulate(graph, tight(10.0, 1), costs, scheduler, memory="limited", explain=lines.append)
    assert lines[1].startswith("t1 (priority 0.5, no room anywhere) -> d0")


def test_threshold_is_a_share() -> None:
    with pytest.raises(InvalidInput, match="takes a threshold from 0 to 1, not 90"):
        create("donf_memory", threshold=90)


def test_more_runs_get_through_tight_memory() -> None:
    """60 random graphs in memories of 16 to 24 bytes, in which DONF gets stuck in most."""
    rng = np.random.default_rng(1)
    spaces = ("a", "b")
    finished = dict.fromkeys(("donf", "donf_memory"), 0)
    for _ in range(60):
        edges = [
            (int(source), task, float(rng.choice([1, 2, 3, 6])))
            for task in range(1, 24)
            for source in rng.choice(
                np.arange(max(0, task - 8), task), min(task, int(rng.integers(1, 3))), replace=False
            )
        ]
        graph = from_edges("random", 24, edges)
        capacity = float(rng.choice([16, 20, 24]))
        cluster = Cluster(
            "pair",
            [MemorySpace(name, capacity) for name in spaces],
            [Device("A", "a"), Device("A2", "a"), Device("B", "b")],
            [Link("ab", spaces, 2.0)],
        )
        costs = CostTable.of(graph, rng.integers(1, 4, (24, 3)).astype(float))
        for name in finished:
            with contextlib.suppress(HetsimError):
                simulate(graph, cluster, costs, create(name), memory="limited", contention="fifo")
                finished[name] += 1
    assert finished["donf_memory"] >= 2 * finished["donf"] > 0
