"""Figures of training steps: the papers' numbers, closed forms, and a plain loop for random pipelines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.training.parallel_training import DataParallel, ParallelTraining
from simulator.analysis.passes import passes
from simulator.analysis.training_metrics import training_metrics
from simulator.engine.run import simulate
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.pass_tags import PHASES, tag_of
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.scenarios.training.chains import (
    chain_step,
    pipelined,
    simulated,
    step_seconds,
    switched,
)
from tests.scenarios.training.test_parallel_training import problem


def of_devices(found, key):
    return [device[key] for device in found["training_devices"].values()]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("stages", "micro_batches", "seconds", "bubble"),
    [(4, 4, 21, 0.4286), (4, 8, 33, 0.2727), (4, 16, 57, 0.1579), (8, 32, 117, 0.1795)],
)
def test_a_pipeline_with_a_flush(name, stages, micro_batches, seconds, bubble):
    found = training_metrics(pipelined(name, stages, micro_batches))
    assert found["iteration_s"] == seconds
    assert found["bubble"] == pytest.approx(bubble, abs=5e-5)
    assert of_devices(found, "bubble") == pytest.approx([found["bubble"]] * stages)
    assert found["micro_batches"] == micro_batches
    assert found["micro_batches_per_s"] == found["samples_per_s"] == micro_batches / seconds
    assert found["exposed_communication_s"] == found["communication_s"] == 0
    assert found["update_interval_s"] is None


def with_kept_activations(layers):
    """A chain of which each layer keeps one byte of each pass for its backward pass; all else is empty."""
    chain = chain_step(layers)
    tensors, reads, writes = list(chain.tensors), list(chain.reads), list(chain.writes)
    for layer in range(layers):
        names = [operator.name for operator in chain.operators]
        forward, backward = names.index(f"f{layer}"), names.index(f"b{layer}")
        writes[forward] = [*writes[forward], len(tensors)]
        reads[backward] = [*reads[backward], len(tensors)]
        tensors.append(Tensor(f"kept{layer}", "activation", 1.0))
    return DataflowGraph("kept", chain.operators, tensors, reads, writes, chain.results, 1)


@pytest.mark.parametrize(
    ("name", "stash"),
    [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("pipedream", [4, 3, 2, 1])],
)
def test_micro_batches_that_wait_for_their_backward_pass(name, stash):
    found = training_metrics(pipelined(name, 4, 8, graph=with_kept_activations(4)))
    assert of_devices(found, "stashed_micro_batches") == stash
    # An activation of a byte a micro-batch is what memories hold then.
    assert of_devices(found, "peak_bytes") == stash
    assert found["peak_memory_bytes"] == max(stash)


def test_interleaving_and_zero_bubble():
    found = training_metrics(pipelined("interleaved", 4, 8, (0.5, 1.0), chunks=2))
    idle = found["bubble"] / (1 - found["bubble"])
    assert idle == pytest.approx((4 - 1) / (2 * 8))
    # Megatron-LM's order begins so many passes of chunks before the first backward pass has ended.
    assert of_devices(found, "stashed_micro_batches") == [11, 9, 7, 5]
    plain = training_metrics(pipelined("1f1b", 4, 8))
    found = training_metrics(pipelined("zb_h1", 4, 8, (1.0, 1.0, 1.0)))
    assert found["iteration_s"] * found["bubble"] == pytest.approx(3)
    assert plain["iteration_s"] * plain["bubble"] == pytest.approx(9)
    # Gradients of weights that are late keep activations as long.
    assert of_devices(found, "stashed_micro_batches") == [4, 4, 4, 4]


def test_asynchronous_updates_follow_the_slowest_stage():
    speeds = np.array([1.0, 0.5, 2.0, 1.0])
    found = training_metrics(pipelined("pipedream", 4, 16, speeds=speeds))
    assert found["update_interval_s"] == pytest.approx(3 / 0.5)
    assert found["iteration_s"] > 16 * 6  # all 16 micro-batches, filling and draining
    assert training_metrics(pipelined("pipedream", 4, 1))["update_interval_s"] is None


def test_a_step_that_is_not_cut():
    graph = chain_step(4, activation=1.0, weight=2.0)
    graph = DataflowGraph(
        "chain", graph.operators, graph.tensors, graph.reads, graph.writes, graph.results, 32
    )
    cluster = fully_connected("one", 1)
    costs = CostTable({graph: GraphCosts(step_seconds(graph, 1))})
    trace = simulate(Workload([Job(graph)]), cluster, costs, create("fcfs"))
    found = training_metrics(trace)
    assert found["iteration_s"] == trace.makespan == 12
    assert (found["samples_per_s"], found["micro_batches"], found["bubble"]) == (32 / 12, 1, 0)
    assert (found["micro_batches_per_s"], found["update_interval_s"]) == (1 / 12, None)
    assert of_devices(found, "stashed_micro_batches") == [None]
    assert passes(trace) is None
    # Two of them, the second a second after the first has ended: it does not begin earlier.
    both = simulate(Workload([Job(graph), Job(graph, 13.0)]), cluster, costs, create("fcfs"))
    found = training_metrics(both)
    assert (found["iteration_s"], found["samples_per_s"]) == (25 / 2, 64 / 25)
    assert found["bubble"] == pytest.approx(1 / 25)
    ended = simulate(Workload([Job(graph)]), cluster, costs, create("fcfs"), horizon=5.0)
    assert training_metrics(ended) is None


def test_activations_on_their_way_are_exposed_where_nothing_else_is_to_do():
    # One micro-batch through two stages: F, 3 s of link, F, B, 3 s of link, B.
    chain, cluster = chain_step(2, activation=3.0), switched(2)
    found = training_metrics(pipelined("1f1b", 2, 1, graph=chain, cluster=cluster))
    assert found["iteration_s"] == 1 + 3 + 3 + 3 + 2
    assert of_devices(found, "exposed_communication_s") == [3, 3]
    assert found["communication_s"] == 6
    assert of_devices(found, "bubble") == [9 / 12, 9 / 12]
    # Links of half a second are hidden behind other micro-batches but for the first and the last.
    chain = chain_step(2, activation=0.5)
    found = training_metrics(pipelined("gpipe", 2, 8, graph=chain, cluster=cluster))
    assert found["iteration_s"] == 9 * 3 + 2 * 0.5
    assert of_devices(found, "exposed_communication_s") == [0.5, 0.5]
    assert found["communication_s"] == pytest.approx(16 * 0.5)


def test_sums_of_gradients_are_exposed_as_far_as_nothing_overlaps_them():
    """Rings of four, 6 s for each of 8 layers, whose backward passes take 4 s (8 x 4 + 8 x 2 = 48 s)."""
    asked = problem(weight=40.0, bandwidth=10.0)
    trace = asked.trace(DataParallel(bucket_mb=1.0).plan(asked), "unlimited")
    found = training_metrics(trace)
    assert found["iteration_s"] == pytest.approx(48 + 8 * 6)
    assert of_devices(found, "exposed_communication_s") == pytest.approx([48] * 4)
    assert found["communication_s"] == pytest.approx(48)
    # On streams of their own they follow each other from the first gradient on, at 16 + 4 s.
    names = [d.name for d in asked.cluster.devices]
    streams = [replace(d, name=f"{d.name}-stream") for d in asked.cluster.devices]
    cluster = replace(asked.cluster, devices=[*asked.cluster.devices, *streams])
    ((graph, costs),) = asked.costs.items()
    table = CostTable({graph: GraphCosts(np.hstack([costs.seconds, costs.seconds]))})
    beside = replace(asked, cluster=cluster, costs=table)
    plan = DataParallel(bucket_mb=1e-6, devices=names).plan(beside)
    found = training_metrics(beside.trace(plan, "unlimited"))
    assert found["iteration_s"] == pytest.approx(20 + 48)
    assert found["communication_s"] == pytest.approx(48)
    assert list(found["training_devices"]) == names  # streams take no part
    assert of_devices(found, "exposed_communication_s") == pytest.approx([20] * 4)


def replicas(slow):
    """Two replicas whose gradients (of no bytes) a third device sums in 2 s."""
    names = ["x#B0", "y#B1", "sum#C", "u#U", "u#U@1"]
    tensors = [Tensor(f"{i}", "activation", 0.0) for i in range(len(names))]
    graph = DataflowGraph(
        "replicas",
        [Operator(name, "task") for name in names],
        tensors,
        [[], [], [0, 1], [2], [2]],
        [[i] for i in range(5)],
        [{"tensor": "3", "views": []}, {"tensor": "4", "views": []}],
    )
    seconds = np.repeat(np.array([[1.0], [slow], [2.0], [1.0], [1.0]]), 3, axis=1)
    device, order = np.array([0, 1, 2, 0, 1]), np.arange(5)
    return simulated(graph, seconds, fully_connected("three", 3), device, order)


def test_waiting_for_a_slower_replica_is_no_communication():
    found = training_metrics(replicas(slow=5.0))
    assert found["iteration_s"] == 5 + 2 + 1
    assert of_devices(found, "bubble") == [6 / 8, 2 / 8]
    assert of_devices(found, "exposed_communication_s") == [2, 2]
    assert (found["exposed_communication_s"], found["communication_s"]) == (2, 2)


def exposed_by_hand(trace):
    """Where nothing is summed: idle time between an execution's last input made and the last one there."""
    runs, moves, graph = trace.executions, trace.transfers, trace.meta["graphs"][0]
    made, arrived, reads = {}, {}, []
    for side in ("reads", "writes"):
        begin = 0
        for operator, count in enumerate(graph[side]["count"]):
            row = graph[side]["tensor"][begin : begin + count]
            begin += count
            if side == "reads":
                reads.append(row)
            for tensor in row if side == "writes" else ():
                made[tensor] = runs["finish"][runs["operator"] == operator][0]
    for tensor, place, finish in zip(
        moves["tensor"], moves["destination"], moves["finish"], strict=True
    ):
        arrived[tensor, place] = finish
    result = []
    for device in sorted(set(runs["device"].tolist())):
        total, until = 0.0, 0.0
        for row in np.argsort(runs["start"], kind="stable"):
            if runs["device"][row] != device:
                continue
            place = trace.meta["space_of"][device]
            inputs = [t for t in reads[runs["operator"][row]] if t in made]
            computed = max((made[t] for t in inputs), default=0.0)
            there = max((arrived.get((t, place), made[t]) for t in inputs), default=0.0)
            wait = min(there, runs["start"][row]) - max(computed, until)
            total += max(wait, 0.0) if runs["start"][row] > until else 0.0
            until = max(until, runs["finish"][row])
        result.append(total)
    return result


@settings(max_examples=examples(60), deadline=None)
@given(
    name=st.sampled_from(["gpipe", "1f1b", "zb_h1", "pipedream"]),
    stages=st.integers(1, 4),
    micro_batches=st.integers(1, 6),
    seconds=st.tuples(*[st.floats(0.1, 4.0)] * 3),
    activation=st.floats(0.0, 6.0),
)
def test_parts_of_random_pipelines(name, stages, micro_batches, seconds, activation):
    graph = chain_step(stages, activation, divided=name == "zb_h1")
    cluster = switched(stages)
    trace = pipelined(name, stages, micro_batches, seconds, graph=graph, cluster=cluster)
    found = training_metrics(trace)
    runs, span = trace.executions, found["iteration_s"]
    busy = np.bincount(runs["device"], runs["finish"] - runs["start"])
    assert [(1 - b) * span for b in of_devices(found, "bubble")] == pytest.approx(busy)
    exposed = of_devices(found, "exposed_communication_s")
    assert exposed == pytest.approx(exposed_by_hand(trace), abs=1e-9)
    assert found["exposed_communication_s"] <= found["communication_s"] + 1e-9
    boxes = passes(trace)
    lasting = boxes.finish > boxes.start
    kinds = 3 if name == "zb_h1" else 2
    assert lasting.sum() == kinds * stages * micro_batches
    for name, column in (("start", boxes.start), ("finish", boxes.finish)):
        near = np.minimum if name == "start" else np.maximum
        assert (near(column[boxes.of], runs[name]) == column[boxes.of]).all()


def test_passes_are_what_papers_draw():
    asked = problem(layers=8, devices=4, weight=40.0, bandwidth=10.0)
    plan = ParallelTraining(stages=2, recompute=1).plan(asked)
    assert all(tag_of(operator.name) for operator in plan.graphs[0].operators)
    trace = asked.trace(plan, "unlimited")
    found = passes(trace)
    lasting = found.finish > found.start
    letters = np.array(list(PHASES))[found.phase[lasting]]
    # Each micro-batch passes two stages forward and backward, and computes again in between; the times of sums and
    # updates are unknown, and none of them cuts a pass in two.
    counts = {letter: int((letters == letter).sum()) for letter in "FRBUC"}
    assert counts == {"F": 16, "R": 16, "B": 16, "U": 0, "C": 0}
    # What is computed again in between, segment by segment, leaves the count of micro-batches as it is.
    trace = asked.trace(ParallelTraining(recompute=2).plan(asked), "unlimited")
    assert sorted(of_devices(training_metrics(trace), "stashed_micro_batches")) == [1, 2, 3, 4]
    asked = problem(layers=32)
    plan = ParallelTraining("interleaved", chunks=2, recompute=2).plan(asked)
    stashed = of_devices(training_metrics(asked.trace(plan, "unlimited")), "stashed_micro_batches")
    assert sorted(stashed) == [5, 7, 9, 11]


def test_sums_that_wait_in_between_are_apart():
    trace = replicas(slow=1.0)
    # The same sum in two halves, of which the second waits.
    runs = {name: column.copy() for name, column in trace.executions.items()}
    graph = dict(trace.meta["graphs"][0])
    graph["operators"] = ["x#C", "y#C", "sum#C", "u#U", "u#U"]
    runs["device"][:] = 0
    runs["start"][:], runs["finish"][:] = [0, 1, 5, 6, 8], [1, 2, 6, 7, 9]
    found = passes(replace(trace, executions=runs, meta={**trace.meta, "graphs": [graph]}))
    assert found.start.tolist() == [0, 5, 6]
    assert found.finish.tolist() == [2, 6, 9]
