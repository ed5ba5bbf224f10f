"""What a step writes reaches every memory where the next step reads it, and the way is charged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.residency import occupancy
from simulator.engine.evaluator import Evaluator
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import HetsimError, InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers.planned import Planned
from tests.examples import examples
from tests.scenarios.training.chains import chain_step


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
