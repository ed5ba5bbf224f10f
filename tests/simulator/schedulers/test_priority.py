"""Priorities: exact small cases of withdrawing queued tasks, and of waiting for one's turn."""

from __future__ import annotations

import numpy as np

from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

ONE = Cluster("one", [MemorySpace("m")], [Device("A", "m")])
TWO = Cluster("two", [MemorySpace("m")], [Device("A", "m"), Device("B", "m")])
PAIR, SINGLE = from_edges("pair", 2, []), from_edges("single", 1, [])


def run(
    jobs: list[tuple[DataflowGraph, float, int]],
    times: dict[DataflowGraph, list[list[float]]],
    cluster: Cluster,
    scheduler: Scheduler,
) -> Trace:
    costs = CostTable({graph: GraphCosts(np.array(rows)) for graph, rows in times.items()})
    workload = Workload([Job(graph, arrival, priority=p) for graph, arrival, p in jobs])
    return simulate(workload, cluster, costs, scheduler)


def rows(trace: Trace) -> list[tuple[int, float, float]]:
    """(device, start, finish) of every task."""
    columns = (trace.tasks[name].tolist() for name in ("device", "start", "finish"))
    return list(zip(*columns, strict=True))


# Two tasks of 2 s at 0 s; an urgent one of 1 s at 1 s, while the first of them runs.
URGENT = [(PAIR, 0.0, 0), (SINGLE, 1.0, 1)]
TIMES = {PAIR: [[2.0], [2.0]], SINGLE: [[1.0]]}


def test_the_urgent_pushes_what_is_queued_back_but_not_what_runs() -> None:
    trace = run(URGENT, TIMES, ONE, create("priority"))
    assert rows(trace) == [(0, 0, 2), (0, 3, 5), (0, 2, 3)]
    # The task that had to wait was placed anew, when the urgent one came.
    assert trace.tasks["placed"].tolist() == [0, 1, 1]


def test_without_preemption_it_waits_behind_what_was_placed() -> None:
    trace = run(URGENT, TIMES, ONE, create("priority", preempt=False))
    assert rows(trace) == [(0, 0, 2), (0, 2, 4), (0, 4, 5)]


def test_held_tasks_need_no_withdrawing() -> None:
    trace = run(URGENT, TIMES, ONE, create("fcfs", by_priority=True))
    assert rows(trace) == [(0, 0, 2), (0, 3, 5), (0, 2, 3)]
    trace = run(URGENT, TIMES, ONE, create("fcfs"))
    assert rows(trace) == [(0, 0, 2), (0, 2, 4), (0, 4, 5)]


def test_equal_priorities_are_served_by_age() -> None:
    jobs = [(PAIR, 0.0, 1), (SINGLE, 1.0, 1)]
    for scheduler in (create("priority"), create("fcfs", by_priority=True)):
        assert rows(run(jobs, TIMES, ONE, scheduler)) == [(0, 0, 2), (0, 2, 4), (0, 4, 5)]


def test_a_withdrawn_task_may_go_to_another_device() -> None:
    #             A  B
    # pair        2  9, twice: both are queued on A
    # urgent      9  9 at 1 s: A at 2 s would end at 11, B at 1 s ends at 10
    # urgent      3  9 at 1 s: A, before the queued one, which then ends on A at 7, on B at 19
    jobs = [(PAIR, 0.0, 0), (PAIR_URGENT, 1.0, 1)]
    times = {PAIR: [[2.0, 9.0], [2.0, 4.5]], PAIR_URGENT: [[3.0, 9.0], [9.0, 20.0]]}
    trace = run(jobs, times, TWO, create("priority"))
    # The second of the pair was queued on A (2-4); A is now taken until 14: B from 1 s.
    assert rows(trace) == [(0, 0, 2), (1, 1, 5.5), (0, 2, 5), (0, 5, 14)]


PAIR_URGENT = from_edges("pair_urgent", 2, [])


def test_three_levels_keep_their_order() -> None:
    # 0 runs 0-2; priority 2 waits since 0.5; at 1 s come 1 and 3: 3, then 2, then 1, then the rest.
    jobs = [(PAIR, 0.0, 0), (SINGLE, 0.5, 2), (SINGLE, 1.0, 1), (SINGLE, 1.0, 3)]
    trace = run(jobs, TIMES, ONE, create("priority"))
    assert rows(trace) == [(0, 0, 2), (0, 5, 7), (0, 3, 4), (0, 4, 5), (0, 2, 3)]


def test_what_was_submitted_ahead_is_not_withdrawn() -> None:
    # Depth 2: both of the pair are with the device when the urgent one comes; the host knows of the
    # first end at 2.5.
    late = Cluster(
        "late", [MemorySpace("m")], [Device("A", "m", issue_depth=2, completion_latency=0.5)]
    )
    assert rows(run(URGENT, TIMES, late, create("priority"))) == [(0, 0, 2), (0, 2, 4), (0, 4, 5)]
    shallow = Cluster("late", [MemorySpace("m")], [Device("A", "m", completion_latency=0.5)])
    found = rows(run(URGENT, TIMES, shallow, create("priority")))
    assert found == [(0, 0, 2), (0, 4, 6), (0, 2.5, 3.5)]
