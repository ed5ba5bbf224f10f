"""What a step writes reaches every memory where the next step reads it, and the way is charged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.training.parallelism import Layout, Reduction, parallelised
from scenarios.training.step import Step
from simulator.analysis.critical import critical_path
from simulator.analysis.residency import occupancy
from simulator.engine.evaluator import Evaluator
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import HetsimError, InvalidInput
from simulator.model.closed_loop import ClosedLoop
from simulator.model.cluster import Cluster, Device, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Part, Tensor
from simulator.model.plan import Plan
from simulator.model.segments import coarsen
from simulator.model.workload import Job, Workload
from simulator.planners.pipeline_schedules import schedule
from simulator.schedulers import create
from simulator.schedulers.planned import Planned
from tests.examples import examples
from tests.scenarios.training.chains import chain_step, simulated


def tied(readers):
    """One weight that several operators read, its gradient and its update."""
    tensors = [Tensor("w", "weight", 8.0)]
    tensors += [Tensor(f"a{i}", "activation", 1.0) for i in range(readers)]
    tensors += [Tensor("g", "activation", 2.0), Tensor("w:updated", "activation", 8.0)]
    operators = [Operator(f"f{i}", "task") for i in range(readers)]
    operators += [Operator("backward", "task"), Operator("update", "task")]
    reads = [[0, *([i] if i else [])] for i in range(readers)]
    reads += [[readers], [0, readers + 1]]
    writes = [[i + 1] for i in range(readers + 2)]
    return DataflowGraph("tied", operators, tensors, reads, writes)


def run(graph, cluster, device, movement="push", contention="none", origin=None, **options):
    names = tuple(d.name for d in cluster.devices)
    plan = Plan("test", (graph,), names, np.array(device), np.arange(len(graph)))
    costs = CostTable({graph: GraphCosts(np.ones((len(graph), len(names))))})
    return simulate(
        Workload([Job(graph, origin=origin)]),
        cluster,
        costs,
        Planned(plan),
        movement=movement,
        contention=contention,
        **options,
    )


@pytest.mark.parametrize("movement", ["push", "pull"])
@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
def test_an_optimiser_on_another_device_pays_the_weights_way_back(movement, contention):
    graph, cluster = tied(1), fully_connected("two", 2)
    here = run(graph, cluster, [0, 0, 0], movement, contention)
    assert here.makespan == 3
    assert len(here.transfers["bytes"]) == 0
    there = run(graph, cluster, [0, 0, 1], movement, contention)
    assert there.makespan == 3 + 2 + 8  # the gradient's way and the weight's way back
    assert sorted(there.transfers["bytes"].tolist()) == [2, 8]
    assert there.jobs["finish"].tolist() == [13]


def test_a_weight_goes_to_every_memory_that_reads_it_once():
    graph = tied(4)
    trace = run(graph, fully_connected("three", 3), [0, 1, 1, 2, 2, 2])
    returned = trace.transfers["bytes"] == 8
    assert sorted(trace.transfers["destination"][returned].tolist()) == [0, 1]
    assert (
        trace.makespan == 4 + 2 + 2 + 8
    )  # four forward operators, two crossings, and both copies at once


def test_on_line_schedulers_pay_as_well():
    graph = chain_step(4, activation=1.0, weight=8.0)
    cluster = fully_connected("two", 2)
    seconds = np.ones((len(graph), 2))
    updates = [o.kind == "u" for o in graph.operators]
    seconds[updates, 0] = np.inf
    seconds[~np.array(updates), 1] = np.inf
    costs = CostTable({graph: GraphCosts(seconds)})
    for name in ("fcfs", "heft", "mct"):
        trace = simulate(graph, cluster, costs, create(name), contention="fifo")
        back = trace.transfers["destination"] == 0
        assert trace.transfers["bytes"][back].sum() == 4 * 8, name
        assert trace.makespan == trace.transfers["finish"].max(), name


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_the_evaluator_gives_what_the_engine_gives(data):
    layers, devices = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    whole = st.integers(0, 9)
    graph = chain_step(layers, float(data.draw(whole)), float(data.draw(whole)))
    cluster = fully_connected("some", devices)
    device = [data.draw(st.integers(0, devices - 1)) for _ in graph.operators]
    costs = CostTable({graph: GraphCosts(np.ones((len(graph), devices)))})
    movement, contention = (
        data.draw(st.sampled_from(known)) for known in (("push", "pull"), ("none", "fifo"))
    )
    destination = data.draw(st.sampled_from([None, "m0"]))
    jobs = Workload([Job(graph, origin="m0", destination=destination)])
    evaluator = Evaluator(jobs, cluster, costs, movement=movement, contention=contention)
    names = tuple(d.name for d in cluster.devices)
    plan = Plan("test", (graph,), names, np.array(device), np.arange(len(graph)))
    trace = simulate(jobs, cluster, costs, Planned(plan), movement=movement, contention=contention)
    assert evaluator.evaluate(device, plan.order) == trace.makespan
    other = evaluator.trace(device, plan.order)
    for column in ("tensor", "source", "destination", "start", "finish"):
        assert np.array_equal(trace.transfers[column], other.transfers[column]), column
    assert np.array_equal(trace.jobs["finish"], other.jobs["finish"])
    # A tensor crosses to a memory once, and every weight is where it was read.
    pairs = list(zip(trace.transfers["tensor"], trace.transfers["destination"], strict=True))
    assert len(set(pairs)) == len(pairs)
    for tensor, weight in graph.updates.items():
        home = device[graph.producer[tensor]]
        read = {device[reader] for reader in graph.consumers[weight]}
        assert read - {home} <= {space for t, space in pairs if t == tensor}


def late_reader():
    """A weight that is read early and late, and changed between."""
    tensors = [Tensor("w", "weight", 8.0)]
    tensors += [Tensor(n, "activation", 1.0) for n in ("a", "slow", "late")]
    tensors += [Tensor("w:updated", "activation", 8.0)]
    names = ("f", "slow", "update", "late")
    reads, writes = [[0], [], [0, 1], [0, 2]], [[1], [2], [4], [3]]
    operators = [Operator(name, "task") for name in names]
    return DataflowGraph("late", operators, tensors, reads, writes)


@pytest.mark.parametrize("movement", ["push", "pull"])
@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
@pytest.mark.parametrize("memory", ["unlimited", "limited"])
@pytest.mark.parametrize("slow_at", [None, 50.0])
def test_who_reads_a_weight_after_its_change_is_sent_what_it_became(
    movement, contention, memory, slow_at
):
    """A scheduler that places ready tasks places the late reader at 5; the update was done at 2."""
    graph, cluster = late_reader(), fully_connected("two", 2)
    seconds = np.array([[1, np.inf], [np.inf, 5], [1, np.inf], [np.inf, 1]])
    costs = CostTable({graph: GraphCosts(seconds)})
    options = {"movement": movement, "contention": contention, "memory": memory}
    if slow_at is not None:  # runs that faults may reach keep other books
        options["faults"] = Faults([Fault("device_slowdown", "P1", slow_at, 51.0, 0.5)])
    trace = simulate(graph, cluster, costs, create("fcfs"), **options)
    assert trace.transfers["bytes"].tolist() == [8]
    assert trace.transfers["requested"].tolist() == [5]
    assert trace.makespan == 13
    assert critical_path(trace)[-1].what == "transfer"
    names = tuple(d.name for d in cluster.devices)
    plan = Plan("test", (graph,), names, np.array([0, 1, 0, 1]), np.arange(4))
    planned = simulate(graph, cluster, costs, Planned(plan), **options)
    assert planned.makespan == 10  # it is sent when it is written


def test_weights_on_demand_return_to_where_they_come_from():
    """Forward, backward and update in the one memory; the host keeps the weight, and the next step loads it from there."""
    two = fully_connected("two", 2)
    cluster = Cluster("host", two.spaces, two.devices, two.links, host="m1")
    trace = run(tied(1), cluster, [0, 0, 0], memory="limited", weights="on_demand")
    moves = zip(*(trace.transfers[k].tolist() for k in ("source", "destination")), strict=True)
    assert list(moves) == [(1, 0), (0, 1)]
    assert trace.makespan == 8 + 3 + 8


def test_what_has_arrived_everywhere_needs_no_second_update_after_a_failure():
    """The update is written by 3 and needed on its device alone; another device fails while the job goes on."""
    graph = tied(1)
    tensors = [*graph.tensors, Tensor("tail", "activation", 1.0)]
    operators = [*graph.operators, Operator("tail", "task")]
    graph = DataflowGraph(
        "tail", operators, tensors, [*graph.reads, [1]], [*graph.writes, [len(tensors) - 1]]
    )
    cluster = fully_connected("two", 2)
    plan = Plan("test", (graph,), ("P1", "P2"), np.array([0, 0, 0, 1]), np.arange(4))
    costs = CostTable({graph: GraphCosts(np.array([[1.0, 1.0]] * 3 + [[20.0, 20.0]]))})
    faults = Faults([Fault("device_failure", "P2", 8.0, 9.0)])
    for memory in ("unlimited", "limited"):
        trace = simulate(graph, cluster, costs, Planned(plan), faults=faults, memory=memory)
        ran = trace.executions["operator"].tolist()
        assert (ran.count(2), ran.count(3)) == (1, 2), memory


def test_jobs_follow_when_their_weights_are_back():
    """In a closed loop the next step is asked for when the last one's weights have arrived."""
    graph, cluster = tied(1), fully_connected("two", 2)
    seconds = np.array([[1, np.inf], [1, np.inf], [np.inf, 1]])
    costs = CostTable({graph: GraphCosts(seconds)})
    loop = ClosedLoop([[Job(graph)] * 3])
    trace = simulate(loop, cluster, costs, create("fcfs"), contention="fifo")
    assert trace.jobs["finish"].tolist() == [13, 26, 39]


@pytest.mark.parametrize("cuts", [[0, 3], [0, 1], [0, 1, 2, 3, 4]])
def test_joined_operators_owe_what_single_ones_do(cuts):
    graph, cluster = tied(3), fully_connected("some", 5)
    segments = coarsen(graph, cuts)
    device = np.arange(len(segments.graph))
    readers = {*device[segments.owner][graph.consumers[0],].tolist()}
    for whole, place in ((segments.graph, device), (graph, device[segments.owner])):
        trace = run(whole, cluster, place)
        updated = [t.name for t in whole.tensors].index("w:updated")
        assert (trace.transfers["tensor"] == updated).sum() == len(readers - {device[-1]})


def test_the_first_replica_of_an_owner_sends_its_weights_to_all_others():
    """Two layers of 8 bytes on three devices: each of two others gets both weights, and sends two gradients."""
    step, workers = Step.of(chain_step(2, 0.0, 8.0)), np.array([[0, 1, 2]])
    layout = Layout(
        np.zeros(len(step.graph), dtype=int),
        workers,
        [(0,), (1,), (2,)],
        schedule("1f1b", workers),
        reduction=Reduction("owner"),
    )
    made = parallelised(step, layout)
    cluster = fully_connected("three", 3)
    seconds = np.zeros((len(made.graph), 3))
    trace = simulated(made.graph, seconds, cluster, made.device, made.order)
    ways = zip(trace.transfers["source"], trace.transfers["destination"], strict=True)
    assert Counter(ways) == {(0, 1): 2, (0, 2): 2, (1, 0): 2, (2, 0): 2}


def test_state_without_an_owner_is_refused():
    graph = tied(1)
    stray = [*graph.tensors[:-1], Tensor("v:updated", "activation", 8.0)]
    with pytest.raises(InvalidInput, match=r"without an owner: 'v:updated' .* no weight or input"):
        DataflowGraph("stray", graph.operators, stray, graph.reads, graph.writes)
    copied = [*graph.tensors, Tensor("w@1", "weight", 8.0, part=Part("w", ()))]
    with pytest.raises(InvalidInput, match=r"'w@1' is part of the weight 'w'.* 'w@1:updated'"):
        DataflowGraph("copied", graph.operators, copied, graph.reads, graph.writes)


def test_a_weight_without_a_way_back_is_refused():
    spaces, devices = [MemorySpace("a"), MemorySpace("b")], [Device("x", "a"), Device("y", "b")]
    with pytest.raises(InvalidInput, match="no route"):
        run(tied(1), Cluster("apart", spaces, devices), [0, 0, 1])


def test_a_device_that_fails_before_the_weight_is_back_costs_the_update_again():
    graph, cluster = tied(1), fully_connected("two", 2)
    faults = Faults([Fault("device_failure", "P2", 8.0, 9.0)])  # while the weight is on its way
    trace = run(graph, cluster, [0, 0, 1], contention="fifo", faults=faults)
    assert trace.jobs["status"].tolist() == ["finished"]
    assert trace.makespan > 13
    kept = trace.executions["status"] == "finished"
    assert (trace.executions["operator"][kept] == 2).sum() == 2


def test_limited_memory_holds_the_weight_on_its_way_alone():
    """Room for the weight, its copy and what is computed; the trace has no more than that."""
    graph = tied(1)
    spaces = [MemorySpace("m0", 17.0), MemorySpace("m1", 18.0)]
    two = fully_connected("two", 2)
    cluster = Cluster("two", spaces, two.devices, two.links)
    trace = run(graph, cluster, [0, 0, 1], contention="fifo", memory="limited")
    assert trace.makespan == 13
    assert [held.peak for held in occupancy(trace)] == [
        16,
        18,
    ]  # weight and copy; weight, gradient, update
    tight = Cluster("two", [MemorySpace("m0", 15.0), spaces[1]], two.devices, two.links)
    with pytest.raises(HetsimError, match=r"w:updated.*m0|m0.*w:updated"):
        run(graph, tight, [0, 0, 1], contention="fifo", memory="limited")
