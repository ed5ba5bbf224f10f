"""Small graphs drawn by hand, with every number worked out on paper: one rule of the engine each.

The usual cluster has two memories, ``a`` with device A and ``b`` with device B, and a link of one byte
per second: bytes are seconds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.context import SchedulingContext
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.noise import LogNormalNoise
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Recorded, Script, StaticPlan, WhenReady

A, B, C = 0, 1, 2


def pair(half_duplex: bool = False, latency: float = 0.0, **device: float) -> Cluster:
    """A in a, B in b; one byte a second."""
    link = Link("ab", ("a", "b"), 1.0, latency, half_duplex)
    spaces = [MemorySpace("a"), MemorySpace("b")]
    return Cluster("pair", spaces, [Device("A", "a", **device), Device("B", "b", **device)], [link])  # type: ignore[arg-type]


def seconds(graph: DataflowGraph, cluster: Cluster, *times: float) -> CostTable:
    """Every operator takes its time on every device."""
    return CostTable.of(graph, np.repeat(np.array(times)[:, None], len(cluster.devices), axis=1))


def in_order(*devices: int) -> StaticPlan:
    """Everything placed at arrival, ranked by operator."""
    return StaticPlan([(device, float(i)) for i, device in enumerate(devices)])


def spans(trace: Trace) -> list[tuple[float, float]]:
    """(start, finish) of every task."""
    tasks = trace.tasks
    return list(zip(tasks["start"].tolist(), tasks["finish"].tolist(), strict=True))


def moves(trace: Trace) -> list[tuple[int, float, float, float]]:
    """(tensor, requested, start, finish) of every transfer, in order of booking."""
    columns = ("tensor", "requested", "start", "finish")
    return list(zip(*(trace.transfers[c].tolist() for c in columns), strict=True))


# -- movement -------------------------------------------------------------------------------------
#
#   x (2 s, on A) --4--> z (1 s, on B) <--1-- y (5 s, on B)


@pytest.fixture
def join() -> DataflowGraph:
    return from_edges("join", 3, [(0, 2, 4.0), (1, 2, 1.0)])


def test_push_sends_when_the_producer_ends(join: DataflowGraph) -> None:
    cluster = pair()
    trace = simulate(join, cluster, seconds(join, cluster, 2, 5, 1), in_order(A, B, B))
    assert moves(trace) == [(0, 2.0, 2.0, 6.0)]
    assert spans(trace) == [(0, 2), (0, 5), (6, 7)]


def test_push_waits_for_the_placement_of_a_consumer(join: DataflowGraph) -> None:
    cluster = pair()
    trace = simulate(join, cluster, seconds(join, cluster, 2, 5, 1), WhenReady([A, B, B]))
    assert moves(trace) == [(0, 5.0, 5.0, 9.0)]
    assert trace.makespan == 10


def test_pull_waits_for_all_predecessors(join: DataflowGraph) -> None:
    cluster = pair()
    costs = seconds(join, cluster, 2, 5, 1)
    trace = simulate(join, cluster, costs, in_order(A, B, B), movement="pull")
    assert moves(trace) == [(0, 5.0, 5.0, 9.0)]
    assert spans(trace) == [(0, 2), (0, 5), (9, 10)]


def test_pull_waits_for_placement_even_if_all_predecessors_ended(join: DataflowGraph) -> None:
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, B)
            context.wake_at(8.5)
        if context.now == 8.5:
            context.place(2, B)

    trace = simulate(join, cluster, seconds(join, cluster, 2, 5, 1), Script(act), movement="pull")
    assert moves(trace) == [(0, 8.5, 8.5, 12.5)]


def test_a_tensor_crosses_once_to_a_memory() -> None:
    """One tensor, read by three tasks on two devices of memory b."""
    graph = DataflowGraph(
        "fan",
        [Operator(name, "task") for name in "pqrs"],
        [Tensor("t", "activation", 3.0)],
        [[], [0], [0], [0]],
        [[0], [], [], []],
    )
    cluster = Cluster(
        "shared",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b"), Device("C", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    for contention in ("none", "fifo"):
        trace = simulate(
            graph,
            cluster,
            seconds(graph, cluster, 1, 1, 1, 1),
            in_order(A, B, C, B),
            contention=contention,
        )
        assert moves(trace) == [(0, 1.0, 1.0, 4.0)]
        assert spans(trace) == [(0, 1), (4, 5), (4, 5), (5, 6)]


def test_devices_of_one_memory_need_no_transfer(join: DataflowGraph) -> None:
    cluster = Cluster("cpu", [MemorySpace("ram")], [Device("A", "ram"), Device("B", "ram")])
    trace = simulate(join, cluster, seconds(join, cluster, 2, 5, 1), in_order(A, B, B))
    assert moves(trace) == []
    assert trace.makespan == 6


# -- links ----------------------------------------------------------------------------------------


def two_sends() -> DataflowGraph:
    """p (1 s) writes t0 (3 B, read by q) and t1 (2 B, read by r)."""
    return from_edges("sends", 3, [(0, 1, 3.0), (0, 2, 2.0)])


def test_without_contention_transfers_overlap() -> None:
    graph, cluster = two_sends(), pair(slots=2)
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 1), in_order(A, B, B))
    assert moves(trace) == [(0, 1.0, 1.0, 4.0), (1, 1.0, 1.0, 3.0)]


def test_fifo_breaks_ties_by_tensor() -> None:
    """The reader of t1 is placed first; the transfers asked for at once go by tensor all the same."""
    graph, cluster = two_sends(), pair()

    def act(context: SchedulingContext, call: int) -> None:
        for task, device in ((0, A), (2, B), (1, B)) if call == 0 else ():
            context.place(task, device)

    costs = seconds(graph, cluster, 1, 1, 1)
    trace = simulate(graph, cluster, costs, Script(act), contention="fifo")
    assert moves(trace) == [(0, 1.0, 1.0, 4.0), (1, 1.0, 4.0, 6.0)]
    assert spans(trace) == [(0, 1), (7, 8), (6, 7)]  # r was placed in front of q


def test_fifo_goes_by_request_before_tensor() -> None:
    #   p (2 s, A) --3--> q (B);  r (1 s, C in a) --4--> s (B)
    graph = from_edges("late", 4, [(0, 1, 3.0), (2, 3, 4.0)])
    cluster = Cluster(
        "three",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b", slots=2), Device("C", "a")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    trace = simulate(
        graph, cluster, seconds(graph, cluster, 2, 1, 1, 1), in_order(A, B, C, B), contention="fifo"
    )
    assert moves(trace) == [(1, 1.0, 1.0, 5.0), (0, 2.0, 5.0, 8.0)]


@pytest.mark.parametrize(("half_duplex", "ends"), [(False, [3.0, 3.0]), (True, [3.0, 5.0])])
def test_duplex(half_duplex: bool, ends: list[float]) -> None:
    #   p (1 s, A) --2--> q (B);  r (1 s, B) --2--> s (A)
    graph, cluster = from_edges("cross", 4, [(0, 1, 2.0), (2, 3, 2.0)]), pair(half_duplex)
    trace = simulate(
        graph, cluster, seconds(graph, cluster, 1, 1, 1, 1), in_order(A, B, B, A), contention="fifo"
    )
    # On B, q (rank 1) stands before r (rank 2): r runs behind it in both cases.
    assert cluster.channels == (("ab",) if half_duplex else ("ab:a->b", "ab:b->a"))
    assert trace.transfers["finish"][0] == 3.0
    plan = StaticPlan([(A, 0.0), (B, 1.0), (B, 0.0), (A, 1.0)])
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 1, 1), plan, contention="fifo")
    assert trace.transfers["finish"].tolist() == ends


def line() -> Cluster:
    """a -(2 B/s, 1 s)- b -(1 B/s, 0.5 s)- c with devices in a and c only."""
    return Cluster(
        "line",
        [MemorySpace("a"), MemorySpace("b"), MemorySpace("c")],
        [Device("A", "a"), Device("B", "c"), Device("C", "b")],
        [Link("ab", ("a", "b"), 2.0, 1.0), Link("bc", ("b", "c"), 1.0, 0.5)],
    )


def test_a_route_adds_latencies_and_has_the_narrowest_bandwidth() -> None:
    graph, cluster = from_edges("edge", 2, [(0, 1, 4.0)]), line()
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1), in_order(A, B))
    assert [cluster.channels[c] for c in trace.transfers["link"]] == ["ab:a->b", "bc:b->c"]
    assert moves(trace) == [(0, 1.0, 1.0, 6.5)] * 2  # 1 + 0.5 + 4 / 1
    assert trace.makespan == 7.5


def test_a_route_under_fifo_holds_all_its_links() -> None:
    #   p (1 s, A) --4--> q (B), then p --4--> r (C in b) needs the first link only
    graph, cluster = from_edges("hold", 3, [(0, 1, 4.0), (0, 2, 4.0)]), line()
    trace = simulate(
        graph, cluster, seconds(graph, cluster, 1, 1, 1), in_order(A, B, C), contention="fifo"
    )
    assert moves(trace) == [(0, 1.0, 1.0, 6.5)] * 2 + [(1, 1.0, 6.5, 9.5)]


def test_of_equally_short_routes_the_widest_is_taken() -> None:
    names = ["a", "b", "c", "d"]
    cluster = Cluster(
        "square",
        [MemorySpace(name) for name in names],
        [Device("A", "a"), Device("B", "d")],
        [
            Link("ab", ("a", "b"), 5.0),
            Link("bd", ("b", "d"), 1.0),
            Link("ac", ("a", "c"), 2.0),
            Link("cd", ("d", "c"), 2.0),
        ],
    )
    graph = from_edges("edge", 2, [(0, 1, 4.0)])
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1), in_order(A, B))
    assert [cluster.channels[c] for c in trace.transfers["link"]] == ["ac:a->c", "cd:c->d"]
    assert trace.makespan == 4


# -- jobs -----------------------------------------------------------------------------------------


def model() -> DataflowGraph:
    """in (3 B) -> p -> out (4 B); p also reads a weight, which never moves."""
    return DataflowGraph(
        "model",
        [Operator("p", "task")],
        [
            Tensor("in", "input", 3.0),
            Tensor("w", "weight", 100.0),
            Tensor("out", "activation", 4.0),
        ],
        [[0, 1]],
        [[2]],
        [{"tensor": "out", "views": []}],
    )


def test_first_and_last_transfers_count() -> None:
    graph, cluster = model(), pair()
    costs = seconds(graph, cluster, 2)
    job = Job(graph, arrival=10.0, origin="a", destination="a")
    trace = simulate(Workload([job]), cluster, costs, in_order(B))
    assert moves(trace) == [(0, 10.0, 10.0, 13.0), (2, 15.0, 15.0, 19.0)]
    assert spans(trace) == [(13, 15)]
    assert trace.jobs["finish"].tolist() == [19.0]
    assert trace.makespan == 19


def test_a_graph_alone_runs_from_and_to_the_host() -> None:
    graph = model()
    spaces, link = [MemorySpace("a"), MemorySpace("b")], Link("ab", ("a", "b"), 1.0)
    cluster = Cluster("host", spaces, [Device("B", "b")], [link], host="a")
    assert simulate(graph, cluster, seconds(graph, cluster, 2), in_order(0)).makespan == 9
    bare = Cluster("bare", spaces, [Device("B", "b")], [link])
    assert simulate(graph, bare, seconds(graph, bare, 2), in_order(0)).makespan == 2


def test_a_result_that_is_also_read_at_its_destination_crosses_once() -> None:
    #   p (1 s, B) writes out (2 B), read by q on A; the job ends when q has run
    graph = DataflowGraph(
        "both",
        [Operator("p", "task"), Operator("q", "task")],
        [Tensor("out", "activation", 2.0)],
        [[], [0]],
        [[0], []],
        [{"tensor": "out", "views": []}],
    )
    cluster = pair()
    job = Workload([Job(graph, destination="a")])
    for q, end in ((1.0, 4.0), (0.0, 3.0)):
        trace = simulate(job, cluster, seconds(graph, cluster, 1, q), in_order(B, A))
        assert moves(trace) == [(0, 1.0, 1.0, 3.0)]
        assert trace.makespan == end


def test_jobs_have_their_own_tensors_and_share_devices() -> None:
    graph, cluster = two_sends(), pair()
    workload = Workload([Job(graph, 0.0), Job(graph, 0.0), Job(graph, 0.5)])
    plan = StaticPlan(*([(A, j), (B, j + 0.1), (B, j + 0.2)] for j in range(3)))
    trace = simulate(workload, cluster, seconds(graph, cluster, 1, 1, 1), plan)
    assert trace.transfers["job"].tolist() == [0, 0, 1, 1, 2, 2]
    # p#0 0-1, p#1 1-2, p#2 2-3; t0 takes 3 s, t1 2 s; B: q, r of each job in turn
    assert spans(trace) == [(0, 1), (4, 5), (5, 6), (1, 2), (6, 7), (7, 8), (2, 3), (8, 9), (9, 10)]
    assert trace.jobs["finish"].tolist() == [6, 8, 10]
    assert trace.jobs["arrival"].tolist() == [0, 0, 0.5]


def test_one_decision_an_instant_after_all_of_it() -> None:
    """Two finishes, two arrivals and a wake-up at 1 s: one call that sees all of them."""
    graph = from_edges("two", 3, [(0, 2, 0.0), (1, 2, 0.0)])
    cluster = pair()
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        seen.append(
            (context.now, [*context.arrived], [*context.ready], [*context.finished], context.idle)
        )
        if call == 0:
            context.wake_at(1.0)
        for task in context.ready:
            context.place(task, task % 2)

    workload = Workload([Job(graph), Job(graph, 1.0), Job(graph, 1.0)])
    simulate(workload, cluster, seconds(graph, cluster, 1, 1, 1), Script(act))
    assert seen[:2] == [
        (0.0, [0], [0, 1], [], [A, B]),
        (1.0, [1, 2], [2, 3, 4, 6, 7], [0, 1], [A, B]),
    ]
    assert [now for now, *_ in seen] == sorted({now for now, *_ in seen})


# -- devices --------------------------------------------------------------------------------------


def test_slots_run_at_once_and_the_lowest_free_one_is_taken() -> None:
    graph = from_edges("three", 4, [])
    cluster = Cluster("pool", [MemorySpace("a")], [Device("A", "a", slots=2)])
    trace = simulate(graph, cluster, seconds(graph, cluster, 2, 3, 4, 1), in_order(A, A, A, A))
    assert spans(trace) == [(0, 2), (0, 3), (2, 6), (3, 4)]
    assert trace.tasks["slot"].tolist() == [0, 1, 0, 1]


def test_a_head_that_waits_for_data_holds_up_what_stands_behind_it() -> None:
    """Also where another slot is free: starts are in the order of the queue."""
    #   p (1 s, A) --5--> q (B);  r (1 s, B) stands behind q
    graph = from_edges("hold", 3, [(0, 1, 5.0)])
    for slots, expected in ((1, [(0, 1), (6, 7), (7, 8)]), (2, [(0, 1), (6, 7), (6, 7)])):
        cluster = pair(slots=slots)
        trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 1), in_order(A, B, B))
        assert spans(trace) == expected


def test_launch_overhead_is_paid_by_every_operator() -> None:
    graph = from_edges("chain", 2, [(0, 1, 2.0)])
    cluster = pair(launch_overhead=0.25)
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 3), in_order(A, B))
    assert spans(trace) == [(0, 1.25), (3.25, 6.5)]


def test_launch_overhead_is_part_of_what_schedulers_believe() -> None:
    """1 s + 3 s overhead on A loses against 3 s on B."""
    graph = from_edges("one", 1, [])
    devices = [Device("A", "a", launch_overhead=3.0), Device("B", "a")]
    cluster = Cluster("cpu", [MemorySpace("a")], devices)
    costs = CostTable.of(graph, np.array([[1.0, 3.0]]))
    for name in ("fcfs", "donf", "heft", "sufferage", "single_device"):
        trace = simulate(graph, cluster, costs, create(name))
        assert (trace.tasks["device"].tolist(), trace.makespan) == ([B], 3.0), name


def test_a_queue_runs_in_the_order_of_rank_then_placement() -> None:
    graph = from_edges("four", 4, [])
    cluster = Cluster("one", [MemorySpace("a")], [Device("A", "a")])
    plan = StaticPlan([(A, 2.0), (A, 1.0), (A, 2.0), (A, 0.5)])
    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 1, 1), plan)
    assert trace.executions["task"].tolist() == [3, 1, 0, 2]


def test_a_head_that_is_not_ready_holds_up_the_queue() -> None:
    #   p (5 s, A) -> q (B, rank 1);  r (B, rank 2) could run at once
    graph = from_edges("wait", 3, [(0, 1, 0.0)])
    trace = simulate(graph, pair(), seconds(graph, pair(), 5, 1, 1), in_order(A, B, B))
    assert spans(trace) == [(0, 5), (5, 6), (6, 7)]


def test_a_task_placed_in_front_goes_before_a_head_that_waits_for_data() -> None:
    #   p (1 s, A) --8--> q (B) arrives at 9; at 3 s, r (2 s) is placed in front of it, at 4 s s
    #   (10 s) behind it
    graph = from_edges("front", 4, [(0, 1, 8.0)])
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, B, rank=5.0)
            context.wake_at(3.0)
            context.wake_at(4.0)
        if context.now == 3.0:
            assert context.available(B) == 10.0
            context.place(2, B, rank=1.0)
            assert context.available(B) == 10.0  # r fits in before q's data is there
        if context.now == 4.0:
            context.place(3, B, rank=6.0)
            assert context.available(B) == 20.0

    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 2, 10), Script(act))
    assert spans(trace) == [(0, 1), (9, 10), (3, 5), (10, 20)]


def test_a_task_that_is_not_ready_can_be_placed_in_front_of_a_waiting_head() -> None:
    """It then holds the head up, although the head's data has arrived."""
    #   p (1 s, A) --8--> q (B) arrives at 9;  u (20 s, A) -> r (1 s, B), in front of q from 3 s on
    graph = from_edges("block", 4, [(0, 1, 8.0), (2, 3, 0.0)])
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(2, A)
            context.place(1, B, rank=5.0)
            context.wake_at(3.0)
        if context.now == 3.0:
            context.place(3, B, rank=1.0)

    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 20, 1), Script(act))
    assert spans(trace) == [(0, 1), (22, 23), (1, 21), (21, 22)]


# -- withdrawing ----------------------------------------------------------------------------------


def test_a_queued_task_can_be_withdrawn_and_placed_elsewhere() -> None:
    graph = from_edges("two", 2, [])
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, A)
            context.wake_at(1.0)
        if context.now == 1.0:
            assert context.is_queued(1)
            context.withdraw(1)
            assert not context.is_queued(1)
            assert context.device_of(1) == -1
            assert context.idle == [B]
            context.place(1, B)

    trace = simulate(graph, cluster, seconds(graph, cluster, 5, 5), Script(act))
    assert spans(trace) == [(0, 5), (1, 6)]
    assert trace.tasks["placed"].tolist() == [0, 1]


def test_withdrawing_a_head_that_waits_for_data_lets_the_next_one_go() -> None:
    #   p (1 s, A) --8--> q (B);  r (B) behind q;  at 3 s q is taken back and put behind r
    graph = from_edges("swap", 3, [(0, 1, 8.0)])
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            for task, device in ((0, A), (1, B), (2, B)):
                context.place(task, device)
            context.wake_at(3.0)
        if context.now == 3.0:
            context.withdraw(1)
            context.place(1, B)

    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 2), Script(act))
    assert spans(trace) == [(0, 1), (9, 10), (3, 5)]
    assert len(moves(trace)) == 1  # its data went on its way once


@pytest.mark.parametrize("moment", [0.5, 4.0, 9.5])
def test_a_task_that_has_started_cannot_be_withdrawn(moment: float) -> None:
    """At 9.5 s q has started without an event of its own: its data came at 9 s."""
    graph = from_edges("late", 2, [(0, 1, 8.0)])
    cluster = pair()
    queued = []

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, B)
            context.wake_at(moment)
        if context.now == moment:
            queued.append((context.is_queued(0), context.is_queued(1)))
            task = 0 if moment == 0.5 else 1
            context.withdraw(task)
            context.place(task, B)

    costs = seconds(graph, cluster, 1, 1)
    if moment == 4.0:
        simulate(graph, cluster, costs, Script(act))
        assert queued == [(False, True)]
    else:
        with pytest.raises(SchedulingError, match=r"Task 't[01]' has started"):
            simulate(graph, cluster, costs, Script(act))
        assert queued == [(False, moment == 0.5)]


def test_a_decision_at_a_start_precedes_it() -> None:
    """q's data arrives at 9 s; at 9 s it can still be withdrawn, or another put in front of it."""
    graph = from_edges("edge", 3, [(0, 1, 8.0)])
    cluster = pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, B, rank=5.0)
            context.wake_at(9.0)
        if context.now == 9.0:
            assert context.is_queued(1)
            context.place(2, B, rank=1.0)

    trace = simulate(graph, cluster, seconds(graph, cluster, 1, 1, 2), Script(act))
    assert spans(trace) == [(0, 1), (11, 12), (9, 11)]


def test_a_finished_task_is_not_queued() -> None:
    """Nor one that took no time and finished at the instant in which it started."""
    graph = from_edges("zero", 2, [(0, 1, 0.0)])
    cluster = pair()
    calls = []

    def act(context: SchedulingContext, call: int) -> None:
        calls.append(context.now)
        for task in context.ready:
            context.place(task, task)
        for task in context.finished:
            assert not context.is_queued(task)
            with pytest.raises(SchedulingError, match="has started"):
                context.withdraw(task)

    trace = simulate(graph, cluster, seconds(graph, cluster, 0, 0), Script(act))
    assert spans(trace) == [(0, 0), (0, 0)]
    assert calls == [0, 0, 0]  # a round for each: arrival, p's finish, q's finish


def test_wake_at_asks_once_at_that_time() -> None:
    graph = from_edges("one", 1, [])
    cluster = pair()
    calls = []

    def act(context: SchedulingContext, call: int) -> None:
        calls.append(context.now)
        if call == 0:
            for moment in (2.5, 2.5, 7.0, 4.0):
                context.wake_at(moment)
        if context.now == 2.5:
            context.place(0, A)

    trace = simulate(graph, cluster, seconds(graph, cluster, 1), Script(act))
    assert calls == [0, 2.5, 3.5, 4, 7]
    assert spans(trace) == [(2.5, 3.5)]
    assert trace.makespan == 3.5
    assert trace.wallclock["decisions"] == 5


# -- belief and truth -----------------------------------------------------------------------------


def test_what_happens_is_kept_from_the_scheduler() -> None:
    """Belief: A is fast. Truth: A is slow. FCFS goes to A and learns it from the clock alone."""
    graph = from_edges("two", 2, [])
    cluster = pair()
    belief = CostTable.of(graph, np.array([[1.0, 5.0], [1.0, 5.0]]))
    truth = CostTable.of(graph, np.array([[20.0, 2.0], [20.0, 2.0]]))
    seen = []

    def watch(context: SchedulingContext) -> None:
        seen.append((context.now, [*context.seconds(0)], context.cost_matrix(0).tolist()))
        assert context.available(A) >= context.now

    trace = simulate(graph, cluster, belief, Recorded(create("fcfs"), watch), actual=truth)
    assert spans(trace) == [(0, 20), (0, 2)]
    assert all(row == ([1, 5]) and matrix == [[1, 5], [1, 5]] for _, row, matrix in seen)


def test_estimates_follow_a_task_that_overruns() -> None:
    """p is believed to end at 1 s and runs until 20 s: at 10 s q, behind it, is expected at 12 s."""
    graph = from_edges("two", 2, [])
    cluster = pair()
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, A)
            seen.append(context.available(A))
            context.wake_at(10.0)
        if context.now == 10.0:
            seen.append(context.available(A))

    belief = seconds(graph, cluster, 1, 2)
    truth = seconds(graph, cluster, 20, 2)
    simulate(graph, cluster, belief, Script(act), actual=truth)
    assert seen == [3.0, 12.0]


def test_noise_has_median_one_and_follows_the_seed() -> None:
    graph, cluster = from_edges("many", 2000, []), pair()
    costs = seconds(graph, cluster, *[2.0] * 2000)
    plan = [(A, float(i)) for i in range(2000)]

    def run(seed: int) -> np.ndarray:
        noise = LogNormalNoise(0.3)
        trace = simulate(graph, cluster, costs, StaticPlan(plan), actual=noise, seed=seed)
        return np.diff(trace.tasks["start"])

    one, again, other = run(7), run(7), run(8)
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()
    logs = np.log(one / 2.0)
    assert abs(np.median(logs)) < 0.03
    assert logs.std() == pytest.approx(0.3, rel=0.1)


def test_noise_is_the_same_for_every_scheduler() -> None:
    """Jobs are drawn in the order of arrival: runs of one seed are paired."""
    graph, cluster = from_edges("few", 3, [(0, 1, 1.0)]), pair()
    costs = seconds(graph, cluster, 1, 2, 3)
    workload = Workload([Job(graph), Job(graph, 0.5)])
    lengths = []
    for plan in ([(A, 0), (A, 1), (A, 2)], [(A, 5), (A, 6), (A, 0)]):
        scheduler = StaticPlan([(d, float(r)) for d, r in plan])
        trace = simulate(workload, cluster, costs, scheduler, actual=LogNormalNoise(0.5), seed=3)
        lengths.append((trace.tasks["finish"] - trace.tasks["start"]).round(9).tolist())
    assert lengths[0] == lengths[1]
    assert lengths[0][:3] != lengths[0][3:]  # each job has a draw of its own


def test_noise_from_measured_spread() -> None:
    graph, cluster = from_edges("two", 2, []), pair()
    times, spread = np.ones((2, 2)), np.array([[0.0, 0.0], [0.5, 0.5]])
    costs = CostTable({graph: GraphCosts(times, spread)})
    trace = simulate(graph, cluster, costs, in_order(A, B), actual=LogNormalNoise())
    assert trace.tasks["finish"][0] == 1.0
    assert trace.tasks["finish"][1] != 1.0
    with pytest.raises(InvalidInput, match="'two' have none; give a sigma"):
        simulate(
            graph, cluster, seconds(graph, cluster, 1, 1), in_order(A, B), actual=LogNormalNoise()
        )


def test_a_truth_in_which_a_believed_device_cannot_run_is_refused() -> None:
    graph, cluster = from_edges("one", 1, []), pair()
    belief = CostTable.of(graph, np.array([[1.0, 2.0]]))
    truth = CostTable.of(graph, np.array([[math.inf, 2.0]]))
    with pytest.raises(InvalidInput, match=r"'t0' of 'one' .* on 'A'"):
        simulate(graph, cluster, belief, create("fcfs"), actual=truth)


# -- what is refused before a run ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"movement": "drag"}, "Unknown movement 'drag'; known: push, pull"),
        ({"contention": "some"}, "Unknown contention 'some'; known: none, fifo"),
    ],
)
def test_unknown_settings(options: dict[str, str], message: str) -> None:
    graph, cluster = from_edges("one", 1, []), pair()
    with pytest.raises(InvalidInput, match=message):
        simulate(graph, cluster, seconds(graph, cluster, 1), create("fcfs"), **options)  # type: ignore[arg-type]


def test_times_of_another_graph() -> None:
    graph, other, cluster = from_edges("mine", 1, []), from_edges("other", 1, []), pair()
    with pytest.raises(InvalidInput, match=r"no times for graph 'mine' \(it has: other\)"):
        simulate(graph, cluster, seconds(other, cluster, 1), create("fcfs"))


def test_unknown_origin_and_destination() -> None:
    graph, cluster = from_edges("one", 1, []), pair()
    for what in ("origin", "destination"):
        job = Job(graph, **{what: "tape"})  # type: ignore[arg-type]
        with pytest.raises(
            InvalidInput, match=f"has {what} 'tape', which is no memory space .* a, b"
        ):
            simulate(Workload([job]), cluster, seconds(graph, cluster, 1), create("fcfs"))


def test_an_origin_without_links_is_refused_before_the_run() -> None:
    graph = model()
    cluster = Cluster("island", [MemorySpace("a"), MemorySpace("b")], [Device("A", "a")])
    decided = Script(lambda context, call: None)
    for job, ends in (
        (Job(graph, origin="b"), ("b", "a")),
        (Job(graph, destination="b"), ("a", "b")),
    ):
        with pytest.raises(
            InvalidInput, match="no route from memory space '{}' to '{}'".format(*ends)
        ):
            simulate(Workload([job]), cluster, seconds(graph, cluster, 1), decided)
    assert decided.calls == 0


def test_a_scheduler_that_needs_more_is_refused_before_the_run() -> None:
    graph, cluster = from_edges("one", 1, []), pair()

    class Levitating(Script):
        name = "levitating"
        needs = frozenset({"levitate"})

    decided = Levitating(lambda context, call: None)
    with pytest.raises(
        SchedulingError, match="'levitating' needs levitate, which simulated runs do not"
    ):
        simulate(graph, cluster, seconds(graph, cluster, 1), decided)
    assert decided.calls == 0


def test_placing_and_withdrawing_in_one_decision_leaves_no_trace() -> None:
    """The transfer that the first idea would have needed is neither made nor in the way."""
    graph, cluster = two_sends(), pair()
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
        if context.now == 1.0:
            before = context.link_free(0, 1)
            context.place(1, B)
            seen.append((before, context.link_free(0, 1), context.copy_time(0, 1)))
            context.withdraw(1)
            seen.append((before, context.link_free(0, 1), context.copy_time(0, 1)))
            context.place(1, A)
            context.place(2, B)

    costs = seconds(graph, cluster, 1, 1, 1)
    trace = simulate(graph, cluster, costs, Script(act), contention="fifo")
    assert seen == [(1.0, 4.0, 4.0), (1.0, 1.0, None)]
    assert moves(trace) == [(1, 1.0, 1.0, 3.0)]
    assert spans(trace) == [(0, 1), (1, 2), (3, 4)]


def test_a_transfer_that_is_no_longer_needed_does_not_delay_the_job() -> None:
    """q's data is under way to b, the job's destination, when q is moved to A; the data is no result."""
    graph, cluster = from_edges("moved", 2, [(0, 1, 50.0)]), pair()

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, A)
            context.place(1, B)
            context.wake_at(3.0)
        if context.now == 3.0:
            context.withdraw(1)
            context.place(1, A)

    job = Workload([Job(graph, destination="b")])
    trace = simulate(job, cluster, seconds(graph, cluster, 1, 1), Script(act))
    assert moves(trace) == [(0, 1.0, 1.0, 51.0)]
    assert trace.jobs["finish"].tolist() == [4.0]


def test_estimates_follow_insertions_withdrawals_and_early_finishes() -> None:
    #   on A: p (believed 10 s, truly 4 s), q (5 s), then r (2 s) in front of q, s (1 s) at the end
    graph, cluster = from_edges("four", 4, []), pair()
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        def note() -> None:
            seen.append(context.available(A))

        if call == 0:
            context.place(0, A, 0.0)
            note()
            context.place(1, A, 5.0)
            note()
            context.place(2, A, 1.0)
            note()
            context.withdraw(2)
            note()
            context.place(2, A, 1.0)
            context.place(3, A, 9.0)
            note()
        if context.now == 4.0:
            note()

    belief = CostTable.of(graph, np.array([[10.0] * 2, [5.0] * 2, [2.0] * 2, [1.0] * 2]))
    truth = CostTable.of(graph, np.array([[4.0] * 2, [5.0] * 2, [2.0] * 2, [1.0] * 2]))
    simulate(graph, cluster, belief, Script(act), actual=truth)
    assert seen == [10, 15, 17, 15, 18, 12]
