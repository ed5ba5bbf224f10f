"""Several steps in a row are torch's, and the weights' way is in the time between two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration.sequential import run_tensors, weights_of
from scenarios.training.step import Step
from scenarios.training.steps import unrolled
from scenarios.training_graph import trace_training
from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.model.graph import DataflowGraph
from tests.scenarios.training.chains import chain_step, simulated


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


def test_what_cannot_be_repeated_is_refused():
    graph = chain_step(1)
    with pytest.raises(InvalidInput, match="repeated 0 times"):
        unrolled(graph, 0)
    forward = DataflowGraph("f", graph.operators[:1], graph.tensors[:3], [[0, 1]], [[2]])
    with pytest.raises(InvalidInput, match="changes no weight"):
        unrolled(forward, 2)
    with pytest.raises(InvalidInput, match=r"has 2 losses, .* give one step, model.steps=1"):
        Step.of(unrolled(graph, 2))
