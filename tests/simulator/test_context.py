"""What a scheduler is told, and what it may not do: every misuse is refused and names the things."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.engine.run import simulate
from simulator.errors import SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from tests.simulator.scripted import Script, StaticPlan

CLUSTER = Cluster(
    "pair",
    [MemorySpace("a"), MemorySpace("b")],
    [Device("cpu", "a"), Device("gpu", "b")],
    [Link("bus", ("a", "b"), 1.0)],
)
GRAPH = from_edges("chain", 2, [(0, 1, 4.0)], names=["conv", "relu"])
COSTS = CostTable.of(GRAPH, np.array([[1.0, 2.0], [1.0, math.inf]]))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda c: c.place(7, 0), "There is no task 7 to place"),
        (lambda c: c.place(-1, 0), "There is no task -1 to place"),
        (lambda c: c.place(0, 2), "There is no device 2 for task 'conv'; the cluster has 2"),
        (lambda c: c.place(0, -1), "There is no device -1 for task 'conv'"),
        (lambda c: c.place(1, 1), "Device 'gpu' cannot run task 'relu'"),
        (lambda c: c.place(0, 0, math.nan), "Task 'conv' was placed with rank nan"),
        (lambda c: (c.place(0, 1), c.place(0, 0)), "Task 'conv' is placed on 'gpu' already"),
        (lambda c: c.withdraw(0), "Task 'conv' is not placed, so not to withdraw"),
        (lambda c: c.wake_at(-1.0), r"Cannot wake at -1.0 s: it is 0.0 s now"),
        (lambda c: c.wake_at(math.nan), "Cannot wake at nan s"),
        (lambda c: c.wake_at(math.inf), "Cannot wake at inf s"),
    ],
)
def test_misuse(act: Callable[[SchedulingContext], object], message: str) -> None:
    with pytest.raises(SchedulingError, match=message):
        simulate(GRAPH, CLUSTER, COSTS, Script(lambda context, call: act(context)))


def test_placing_what_runs_or_has_run() -> None:
    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.place(0, 0)
            context.wake_at(0.5)
        if call == 1:
            with pytest.raises(SchedulingError, match="'conv' is placed on 'cpu' already"):
                context.place(0, 1)
            with pytest.raises(SchedulingError, match="'conv' has started; only queued tasks move"):
                context.withdraw(0)
        if call == 2:
            assert context.finished == [0]
            with pytest.raises(SchedulingError, match="'conv' is placed on 'cpu' already"):
                context.place(0, 1)
            with pytest.raises(SchedulingError, match="'conv' has started"):
                context.withdraw(0)
            context.place(1, 0)

    assert simulate(GRAPH, CLUSTER, COSTS, Script(act)).makespan == 2


def test_work_that_was_never_placed() -> None:
    idle = Script(lambda context, call: None)
    with pytest.raises(
        SchedulingError,
        match=r"'script' ended with 2 tasks not run: 2 were never placed, .* 'conv'",
    ):
        simulate(GRAPH, CLUSTER, COSTS, idle)

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            if context.job_of(task) == 0 or context.operator_of(task) == 0:
                context.place(task, 0)

    workload = Workload([Job(GRAPH), Job(GRAPH)])
    with pytest.raises(SchedulingError, match=r"1 tasks not run: 1 were never .* is 'relu#1'"):
        simulate(workload, CLUSTER, COSTS, Script(act))


def test_an_order_that_contradicts_the_graph() -> None:
    graph = from_edges("square", 4, [(0, 1, 1.0), (2, 3, 1.0)])
    costs = CostTable.of(graph, np.ones((4, 2)))
    plan = StaticPlan([(0, 2.0), (1, 1.0), (1, 2.0), (0, 1.0)])
    with pytest.raises(
        SchedulingError,
        match="'static_plan' ended with 4 tasks not run: device 'cpu' must run 't3' next, whose "
        "predecessors wait behind other tasks; the queues' order contradicts the graph",
    ):
        simulate(graph, CLUSTER, costs, plan)


def test_what_a_scheduler_sees() -> None:
    """One job from host memory a: inputs, copies, links and estimates, before and after a verb."""
    graph = DataflowGraph(
        "model",
        [Operator("p", "task"), Operator("q", "task")],
        [Tensor("in", "input", 3.0), Tensor("w", "weight", 50.0), Tensor("h", "activation", 2.0)],
        [[0, 1], [2]],
        [[2], []],
    )
    costs = CostTable.of(graph, np.array([[5.0, 1.0], [4.0, 1.0]]))

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            assert (context.arrived, context.ready, context.idle) == ([0], [0], [0, 1])
            assert context.tasks_of(0) == range(2)
            assert (context.job_of(1), context.operator_of(1), context.label(1)) == (0, 1, "q")
            assert list(context.seconds(0)) == [5.0, 1.0]
            assert (context.is_ready(0), context.is_ready(1)) == (True, False)
            assert context.inputs(0) == [(0, 3.0, 0, 0.0)]  # no weight
            assert context.inputs(1) == [(2, 2.0, EVERYWHERE, math.inf)]
            assert (context.copy_time(0, 0), context.copy_time(0, 1)) == (0.0, None)
            assert context.transfer_seconds(3.0, 0, 1) == 3.0
            assert context.transfer_seconds(3.0, 1, 1) == 0.0
            assert context.link_free(0, 1) == 0.0
            context.place(0, 1)
            assert context.copy_time(0, 1) == 3.0
            assert (context.link_free(0, 1), context.link_free(1, 0)) == (3.0, 0.0)
            assert context.available(1) == 4.0
            assert (context.idle, context.device_of(0), context.is_queued(0)) == ([0], 1, True)
            context.place(1, 1, rank=10.0)
            assert context.available(1) == 11.0  # its producer runs: the planned start is known
            context.withdraw(1)
            assert context.available(1) == 4.0
        else:
            assert (context.finished, context.ready, context.now) == ([0], [1], 4.0)
            assert context.inputs(1) == [(2, 2.0, 1, 4.0)]
            context.place(1, 0)
            assert context.available(0) == 10.0

    job = Job(graph, origin="a")
    trace = simulate(
        Workload([job]),
        CLUSTER,
        costs,
        Script(lambda c, n: act(c, n) if n < 2 else None),
        contention="fifo",
    )
    assert trace.makespan == 10.0


@pytest.mark.parametrize(("slots", "available", "idle"), [(1, 7.0, []), (2, 5.0, [0])])
def test_the_data_of_what_is_queued_keeps_a_device(
    slots: int, available: float, idle: list[int]
) -> None:
    """x, 2 s, is placed at 0; its 5 bytes come over a link of one byte a second. What is placed behind it
    starts no earlier, not even in another slot; that one counts as idle.
    """
    graph = DataflowGraph(
        "one",
        [Operator("x", "task")],
        [Tensor("in", "input", 5.0)],
        [[0]],
        [[]],
        [],
    )
    cluster = Cluster(
        "two",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("B", "b", slots=slots)],
        [Link("ab", ("a", "b"), 1.0)],
    )
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            context.place(task, 0)
            seen.append((context.available(0), context.idle))

    costs = CostTable.of(graph, np.array([[2.0]]))
    simulate(Workload([Job(graph, origin="a")]), cluster, costs, Script(act))
    assert seen == [(available, idle)]
