"""First come, first served on examples worked out by hand."""

from __future__ import annotations

import math

import numpy as np

from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

CPU = Cluster("cpu", [MemorySpace("a")], [Device("A", "a"), Device("B", "a")])


def rows(trace: Trace) -> list[tuple[int, float, float]]:
    """(device, start, finish) of every task."""
    columns = (trace.tasks[name].tolist() for name in ("device", "start", "finish"))
    return list(zip(*columns, strict=True))


def test_held_until_a_device_is_idle_even_if_waiting_for_the_fast_one_were_better() -> None:
    #          A  B
    # t0       2  9   -> A, the faster of two idle devices
    # t1       2  9   -> B at once, though A at 2 s would end at 4 s
    # t2       2  9   -> held; A is idle first, at 2 s
    graph = from_edges("three", 3, [])
    costs = CostTable.of(graph, np.array([[2.0, 9.0]] * 3))
    trace = simulate(graph, CPU, costs, create("fcfs"))
    assert rows(trace) == [(0, 0, 2), (1, 0, 9), (0, 2, 4)]
    assert trace.tasks["placed"].tolist() == [0, 0, 2]


def test_oldest_ready_task_first_then_smaller_id() -> None:
    # t0 (1 s) -> t3; t1 (3 s); t2 waits from 0 s on: at 1 s it is older than t3
    graph = from_edges("age", 4, [(0, 3, 0.0)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]))
    trace = simulate(graph, CPU, costs, create("fcfs"))
    assert rows(trace) == [(0, 0, 1), (1, 0, 3), (0, 1, 3), (0, 3, 4)]


def test_data_counts_in_the_choice_of_the_device() -> None:
    # t1 reads 5 B of t0: on B 1 s + 5 s of transfer lose against 4 s on A
    graph = from_edges("data", 2, [(0, 1, 5.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    for near, device in ((4.0, 0), (7.0, 1)):
        costs = CostTable.of(graph, np.array([[1.0, 9.0], [near, 1.0]]))
        trace = simulate(graph, cluster, costs, create("fcfs"))
        assert trace.tasks["device"].tolist() == [0, device]


def test_a_task_that_no_idle_device_can_run_is_passed_by_and_keeps_its_turn() -> None:
    graph = from_edges("able", 4, [])
    costs = CostTable.of(
        graph, np.array([[4.0, math.inf], [4.0, math.inf], [9.0, 1.0], [9.0, 1.0]])
    )
    trace = simulate(graph, CPU, costs, create("fcfs"))
    assert rows(trace) == [(0, 0, 4), (0, 4, 8), (1, 0, 1), (1, 1, 2)]


def test_a_pool_is_idle_while_it_has_a_free_slot() -> None:
    graph = from_edges("pool", 3, [])
    pool = Cluster("pool", [MemorySpace("a")], [Device("A", "a", slots=2)])
    trace = simulate(
        graph, pool, CostTable.of(graph, np.array([[2.0], [3.0], [1.0]])), create("fcfs")
    )
    assert rows(trace) == [(0, 0, 2), (0, 0, 3), (0, 2, 3)]


def test_mean_wait_of_a_single_server_queue() -> None:
    """M/D/1 at load 0.8: Pollaczek and Khinchine give a mean wait of 2 service times."""
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(1 / 0.8, 40_000))
    graph = from_edges("one", 1, [])
    cluster = Cluster("one", [MemorySpace("a")], [Device("A", "a")])
    costs = CostTable.of(graph, np.array([[1.0]]))
    workload = Workload([Job(graph, float(t)) for t in arrivals])
    trace = simulate(workload, cluster, costs, create("fcfs"))
    waits = trace.tasks["start"] - trace.jobs["arrival"]
    # Lindley's recursion on the same arrivals is exact, the closed form within the sample's error.
    lindley, wait = [], 0.0
    for gap in np.diff(arrivals, prepend=0.0):
        wait = max(0.0, wait + 1.0 - gap) if lindley else 0.0
        lindley.append(wait)
    assert np.allclose(waits, lindley, atol=1e-6)
    assert abs(waits.mean() - 2.0) < 0.15
    # Little's law over the whole run: mean number waiting = rate * mean wait.
    number = waits.sum() / trace.makespan
    assert abs(number - len(waits) / trace.makespan * waits.mean()) < 1e-9
