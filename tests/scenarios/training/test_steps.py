"""Several steps in a row are torch's, and the weights' way is in the time between two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration.sequential import run_tensors, weights_of
from scenarios.partition.partitioner import Problem
from scenarios.training.parallel_training import ParallelTraining
from scenarios.training.parallelism import Layout, parallelised
from scenarios.training.step import Step
from scenarios.training.steps import rolled, unrolled
from scenarios.training_graph import trace_training
from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.pass_tags import tag_of
from simulator.model.workload import Job, Workload
from simulator.planners.pipeline_schedules import schedule
from tests.scenarios.training.chains import chain_step, simulated, step_seconds


def test_three_steps_are_three_of_torchs():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)
    )
    x, target = torch.randn(3, 5, 4), torch.randn(3, 5, 2)
    graph = unrolled(trace_training(model, x[0], loss="mse", optimizer="adam"), 3)
    given = {f"input#{i}": x[i] for i in range(3)} | {f"target#{i}": target[i] for i in range(3)}
    names = [graph.tensors[t].name for t in graph.updates]
    found = run_tensors(graph, weights_of(model, graph), given, names)
    losses = [float(found[row["tensor"]]) for row in graph.results]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x[step]), target[step])
        assert losses[step] == pytest.approx(float(loss.detach()), rel=1e-5)
        loss.backward()
        optimizer.step()
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    assert {n.split(":")[0] for n in names} >= set(state)
    for name, value in state.items():
        torch.testing.assert_close(found[f"{name}:updated"], value.detach(), atol=1e-6, rtol=1e-5)


def test_a_step_waits_for_the_weights_of_the_one_before():
    """Forward and backward on one device, updates on another: each step pays both ways."""
    step = chain_step(1, weight=8.0)
    cluster = fully_connected("two", 2)
    ends = []
    for count in (1, 2, 3):
        graph = unrolled(step, count)
        device = [int(o.kind == "u") for o in graph.operators]
        trace = simulated(
            graph, np.ones((len(graph), 2)), cluster, np.array(device), np.arange(len(graph))
        )
        ends.append(trace.makespan)
        assert len(trace.transfers["bytes"]) == 2 * count
    assert ends == [19, 38, 57]  # 1 forward, 1 backward, 8 there, 1 update, 8 back


@pytest.mark.parametrize("workers", [[[0] * 2, [1] * 2], [[0, 1]]])
def test_two_steps_over_two_devices_are_two_of_torchs(workers):
    """A pipeline of two stages, and two replicas."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    x, target = torch.randn(2, 6, 4), torch.randn(2, 6, 2)
    step = Step.of(trace_training(model, x[0, :3], loss="mse", optimizer="adam", batch=3))
    part = step.stages([0, len(step.forward) - 2][: len(workers)])
    slots = schedule("1f1b", np.array(workers))
    layout = Layout(part, np.array(workers), [(0,), (1,)], slots)
    graph = unrolled(parallelised(step, layout).graph, 2)
    assert graph.batch == 12
    given = {
        f"{name}#{m}#{s}": values[s, 3 * m : 3 * m + 3]
        for name, values in (("input", x), ("target", target))
        for s in range(2)
        for m in range(2)
    }
    numbers = {tag.micro_batch for o in graph.operators if (tag := tag_of(o.name))} - {None}
    assert numbers == {0, 1, 2, 3}
    names = [f"{name}:updated" for name, _ in model.named_parameters()]
    found = run_tensors(graph, weights_of(model, graph), given, names)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[number]), target[number]).backward()
        optimizer.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(found[f"{name}:updated"], value.detach(), atol=1e-5, rtol=1e-5)


def test_steps_of_a_pipeline_follow_each_other_without_overlap_on_the_first_stage():
    """Four stages, eight micro-batches, tF=1, tB=2: 33 a step, and the first stage is the last to end."""
    step = chain_step(4)
    step.batch = 8
    makespans = []
    for steps in (1, 2, 3):
        graph = unrolled(step, steps)
        costs = CostTable({graph: GraphCosts(step_seconds(graph, 4, 8.0, 16.0))})
        asked = Problem(Workload([Job(graph)]), fully_connected("stages", 4), costs)
        makespans.append(asked.makespan(ParallelTraining(micro_batches=8).plan(asked)))
    assert makespans == pytest.approx([33, 66, 99])


def test_one_of_several_steps_is_the_step():
    step = chain_step(2, activation=3.0, weight=8.0)
    assert rolled(step) == (step, 1)
    found, steps = rolled(unrolled(step, 3))
    assert (steps, found.batch) == (3, step.batch)
    assert found.operators == step.operators
    assert found.results == step.results

    def names(graph, table):
        return [[graph.tensors[t].name for t in row] for row in table]

    assert names(found, found.reads) == names(step, step.reads)
    assert names(found, found.writes) == names(step, step.writes)
    assert {t.name: t for t in found.tensors} == {t.name: t for t in step.tensors}


def test_what_cannot_be_repeated_is_refused():
    graph = chain_step(1)
    with pytest.raises(InvalidInput, match="repeated 0 times"):
        unrolled(graph, 0)
    forward = DataflowGraph("f", graph.operators[:1], graph.tensors[:3], [[0, 1]], [[2]])
    with pytest.raises(InvalidInput, match="changes no weight"):
        unrolled(forward, 2)
    with pytest.raises(InvalidInput, match=r"has 2 losses, .* give one step, model.steps=1"):
        Step.of(unrolled(graph, 2))
