"""The compiled evaluator against the engine, to the last digit, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.evaluator import Evaluator, order_of
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from tests.benchmarks.layered import layered
from tests.examples import examples
from tests.simulator.scripted import StaticPlan
from tests.simulator.strategies import clusters, graphs, seconds_of


@st.composite
def plans(draw: st.DrawFn) -> tuple[Job, Cluster, CostTable, list[int], list[float]]:
    """A job on a cluster with a device for every task, and ranks that do not contradict the graph."""
    cluster = draw(clusters())
    graph = draw(graphs(operators=14))
    seconds = draw(seconds_of(graph, len(cluster.devices)))
    spaces = st.sampled_from([None, *(space.name for space in cluster.spaces)])
    job = Job(
        graph, draw(st.sampled_from([0.0, 2.5])), origin=draw(spaces), destination=draw(spaces)
    )
    device = [draw(st.sampled_from(np.flatnonzero(np.isfinite(row)).tolist())) for row in seconds]
    # A random linear extension.
    rank = [0.0] * len(graph)
    done: set[int] = set()
    while len(done) < len(graph):
        able = [
            task
            for task, parents in enumerate(graph.predecessors)
            if task not in done and done.issuperset(parents)
        ]
        task = draw(st.sampled_from(able))
        rank[task] = float(len(done))
        done.add(task)
    return job, cluster, CostTable({graph: GraphCosts(seconds)}), device, rank


@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize("movement", ["push", "pull"])
@settings(max_examples=examples(150), deadline=None)
@given(made=plans())
def test_equals_the_engine(
    movement: str,
    contention: str,
    made: tuple[Job, Cluster, CostTable, list[int], list[float]],
) -> None:
    job, cluster, costs, device, rank = made
    trace = simulate(
        Workload([job]),
        cluster,
        costs,
        StaticPlan(list(zip(device, rank, strict=True))),
        movement=movement,
        contention=contention,
    )
    evaluator = Evaluator(job, cluster, costs, movement=movement, contention=contention)
    for _ in range(2):  # what one evaluation leaves behind does not reach the next
        found = evaluator.schedule(device, order_of(rank))
        assert found.makespan == trace.makespan
        assert found.start.tolist() == trace.tasks["start"].tolist()
        assert found.finish.tolist() == trace.tasks["finish"].tolist()


@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize("movement", ["push", "pull"])
def test_equals_the_engine_on_the_benchmark(movement: str, contention: str) -> None:
    case = layered(1_500)
    device, order = case.plan
    evaluator = Evaluator(
        case.graph, case.cluster, case.costs, movement=movement, contention=contention
    )
    rng = np.random.default_rng(0)
    for _ in range(3):
        rank = np.empty(len(order))
        rank[order] = np.arange(len(order))
        rows = list(zip(list(device), rank.tolist(), strict=True))
        trace = simulate(
            case.graph,
            case.cluster,
            case.costs,
            StaticPlan(rows),
            movement=movement,
            contention=contention,
        )
        assert evaluator.evaluate(device, order) == trace.makespan
        # Another plan for the same evaluator.
        device = rng.integers(0, len(case.cluster.devices), len(order))
        order = np.arange(len(order))


@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize("movement", ["push", "pull"])
@settings(max_examples=examples(100), deadline=None)
@given(made=plans(), data=st.data())
def test_equals_the_engine_behind_what_occupies_the_slots(
    movement: str,
    contention: str,
    made: tuple[Job, Cluster, CostTable, list[int], list[float]],
    data: st.DataObject,
) -> None:
    job, cluster, costs, device, rank = made
    slots = [d for d, own in enumerate(cluster.devices) for _ in range(own.slots)]
    until = [data.draw(st.sampled_from([0.0, 1.0, 2.5, 2.6, 7.0])) for _ in slots]
    # A job before it has a task for every slot that ends when that slot is to be free.
    before = from_edges("before", len(slots), [])
    overheads = [own.launch_overhead for own in cluster.devices]
    seconds = np.full((len(slots), len(cluster.devices)), math.inf)
    for task, d in enumerate(slots):
        seconds[task, d] = until[task] = max(until[task], overheads[d])
        seconds[task, d] -= overheads[d]
    trace = simulate(
        Workload([Job(before), job]),
        cluster,
        CostTable({before: GraphCosts(seconds), job.graph: costs[job.graph]}),
        StaticPlan([(d, -1.0) for d in slots], list(zip(device, rank, strict=True))),
        movement=movement,
        contention=contention,
    )
    found = Evaluator(
        job, cluster, costs, movement=movement, contention=contention, available=until
    ).schedule(device, order_of(rank))
    own = trace.tasks["job"] == 1
    assert found.start.tolist() == trace.tasks["start"][own].tolist()
    assert found.finish.tolist() == trace.tasks["finish"][own].tolist()
    assert found.makespan == trace.jobs["finish"][1]


def test_by_hand() -> None:
    """Two devices, one link of 1 B/s; fifo sends the two tensors one after the other."""
    graph = from_edges("fork", 3, [(0, 1, 4.0), (0, 2, 6.0)])
    cluster = fully_connected("two", 2)
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]))
    for contention, starts, makespan in (("none", [0, 5, 7], 9.0), ("fifo", [0, 5, 11], 13.0)):
        found = Evaluator(graph, cluster, costs, contention=contention).schedule(
            [0, 1, 1], [0, 1, 2]
        )
        assert found.start.tolist() == starts
        assert found.finish.tolist() == [1.0, starts[1] + 2.0, starts[2] + 2.0]
        assert found.makespan == makespan


def test_what_starts_and_ends_at_an_instant_asks_for_its_transfers_after_what_ran_before() -> None:
    """t1 waits for data until 2 and takes no time; t2 ends at 2. t2's tensor goes first under fifo
    although its number is larger.
    """
    graph = from_edges("round", 5, [(0, 1, 1.0), (1, 3, 3.0), (2, 4, 5.0)])
    cluster = Cluster(
        "three",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("a1", "a"), Device("a2", "a"), Device("b1", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    seconds = np.repeat([[1.0], [0.0], [2.0], [1.0], [1.0]], 3, axis=1)
    costs = CostTable.of(graph, seconds)
    device, order = [2, 0, 1, 2, 2], [0, 1, 2, 4, 3]
    found = Evaluator(graph, cluster, costs, contention="fifo").schedule(device, order)
    assert found.start.tolist() == [0.0, 2.0, 0.0, 10.0, 7.0]
    rows = [(p, float(order.index(task))) for task, p in enumerate(device)]
    trace = simulate(graph, cluster, costs, StaticPlan(rows), contention="fifo")
    assert trace.tasks["start"].tolist() == found.start.tolist()


def test_host_memory_is_where_a_graph_begins_and_ends() -> None:
    graph = DataflowGraph(
        "one",
        [Operator("f", "task")],
        [Tensor("x", "input", 3.0), Tensor("y", "activation", 5.0)],
        [[0]],
        [[1]],
        [{"tensor": "y", "views": []}],
    )
    cluster = Cluster(
        "hosted",
        [MemorySpace("host"), MemorySpace("gpu")],
        [Device("gpu", "gpu")],
        [Link("pcie", ("host", "gpu"), 1.0)],
        host="host",
    )
    costs = CostTable.of(graph, np.array([[2.0]]))
    assert Evaluator(graph, cluster, costs).evaluate([0], [0]) == 3 + 2 + 5
    assert Evaluator(Job(graph, 1.0), cluster, costs).evaluate([0], [0]) == 1 + 2


def fork() -> tuple[DataflowGraph, Cluster, CostTable]:
    """t0 before t1 and t2; the second device cannot run t2."""
    graph = from_edges("fork", 3, [(0, 1, 1.0), (0, 2, 1.0)])
    seconds = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, math.inf]])
    return graph, fully_connected("two", 2), CostTable.of(graph, seconds)


@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize(
    ("device", "order", "message"),
    [
        ([0, 1, 1], [0, 1, 2], "Device 'P2' cannot run task 't2'"),
        ([0, 2, 0], [0, 1, 2], "There is no device 2 for task 't1'; the cluster has 2"),
        ([0, -1, 0], [0, 1, 2], "There is no device -1 for task 't1'"),
        ([0, 1, 0], [0, 1, 3], "There is no task 3 to place"),
        ([0, 1, 0], [0, 1, 1], "Task 't1' stands twice in the plan's order"),
        (
            [0, 1, 0],
            [2, 0, 1],
            "leaves 3 tasks not run: device 'P1' must run 't2' next, whose pred",
        ),
        ([0, 1], [0, 1, 2], r"needs the devices of 3 tasks as integers, got int64 of shape \(2,\)"),
        ([0, 1, 0], [0.0, 1.0, 2.0], "needs the order of 3 tasks as integers, got float64"),
    ],
)
def test_plans_that_are_refused(
    contention: str, device: list[int], order: list[int], message: str
) -> None:
    evaluator = Evaluator(*fork(), contention=contention)
    with pytest.raises(SchedulingError, match=message):
        evaluator.evaluate(device, order)
    assert evaluator.evaluate([0, 1, 0], [0, 1, 2]) == 3.0  # and it still works


def test_settings_that_are_refused() -> None:
    graph, cluster, costs = fork()
    with pytest.raises(InvalidInput, match="contention none or fifo, not 'fair'; simulate it"):
        Evaluator(graph, cluster, costs, contention="fair")
    with pytest.raises(InvalidInput, match="movement push or pull, not 'carry'"):
        Evaluator(graph, cluster, costs, movement="carry")
    with pytest.raises(InvalidInput, match="has origin 'moon', which is no memory space"):
        Evaluator(Job(graph, origin="moon"), cluster, costs)
    for wrong in ([1.0], [0.0, math.inf]):
        with pytest.raises(InvalidInput, match="has 2 slots; when each is free takes that many"):
            Evaluator(graph, cluster, costs, available=wrong)
    with pytest.raises(InvalidInput, match="are for 2 devices, cluster 'three' has 3"):
        Evaluator(graph, fully_connected("three", 3), costs)


def test_devices_of_other_ways_are_refused() -> None:
    graph, cluster, costs = fork()

    def changed(space: MemorySpace | None = None, **device: Any) -> Cluster:
        spaces = [space or MemorySpace("m0"), MemorySpace("m1")]
        return Cluster(
            "c", spaces, [Device("P1", "m0", **device), Device("P2", "m1")], cluster.links
        )

    Evaluator(graph, changed(slots=2, launch_overhead=1.0, price=2.0, issue_depth=4), costs)
    with pytest.raises(
        InvalidInput, match=r"'P1' has completion_latency 1\.0, which the evaluator of"
    ):
        Evaluator(graph, changed(completion_latency=1.0), costs)
    for slowed in (
        changed(slots=2, sharing="processor"),
        changed(MemorySpace("m0", corun_slowdown=0.1), slots=2),
        changed(MemorySpace("m0", bandwidth=1.0), slots=2),
    ):
        with pytest.raises(InvalidInput, match=r"does not know|slow each other"):
            Evaluator(graph, slowed, costs)
