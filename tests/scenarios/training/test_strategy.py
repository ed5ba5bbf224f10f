"""Partition ``strategy``: layers of traced steps, graphs against the closed form, the choice, refusals."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import replace

import numpy as np
import pytest

from scenarios.partition.partitioner import Problem, partition
from scenarios.training.strategy import BASELINES, SEARCHES, Strategy
from scenarios.training.strategy_graph import Layout
from scenarios.training.strategy_layers import StrategyLayers
from simulator.errors import InvalidInput
from simulator.model.cluster import MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from tests.scenarios.training.chains import chain_step, step_seconds, switched


def problem(
    layers=3, devices=4, bandwidth=10.0, activation=24.0, weight=48.0, update=0.0, **options
):
    """A chain whose layers take 8 s forward and 16 s backward for the whole batch of 24."""
    graph = chain_step(layers, activation, weight)
    graph.batch = 24
    cluster = options.pop("cluster", None) or switched(devices, bandwidth)
    seconds = step_seconds(graph, len(cluster.devices), 8.0, 16.0)
    seconds[[operator.kind == "u" for operator in graph.operators]] = update
    costs = CostTable({graph: GraphCosts(seconds)})
    return Problem(Workload([Job(graph)]), cluster, costs, contention="fifo", **options)


class Fixed(Strategy):
    """Simulates one choice, of shards by layer."""

    def __init__(self, shards, **options):
        super().__init__(candidates=1, **options)
        self.shards = shards

    def _choices(self, asked):
        return {"given": np.searchsorted(asked.shards, self.shards)}, 0


def simulated(asked, shards, **options):
    """Seconds by the engine and by the closed form."""
    plan = Fixed(shards, **options).plan(asked)
    return asked.makespan(plan), plan.notes["closed_form_s"]["given"]


def lacking(one, two, devices, size):
    """Bytes that a device lacks at most of one of two layouts, a power of two of groups each, in the other."""
    return abs(one / devices - two / devices) * size


@pytest.mark.parametrize("shards", list(itertools.product([1, 2, 4], repeat=3)))
def test_the_engine_takes_the_closed_form(shards):
    """Redistribution costs the one way that really moves; the closed form has it both ways."""
    update = 3.0 * (len(set(shards)) == 1)  # else some updates run beside others' sums
    seconds, closed = simulated(problem(update=update), shards, overlap=False)
    moved = sum(lacking(a, b, 4, 24.0) for a, b in itertools.pairwise(shards))
    assert seconds == pytest.approx(closed - moved / 10.0)
    _, overlapping = simulated(problem(), shards, overlap=True)
    assert overlapping <= closed


@pytest.mark.parametrize("shards", [(1, 1, 1), (2, 2, 2), (4, 4, 4), (1, 2, 4)])
def test_a_spare_device_sums_beside_the_backward_pass(shards):
    alone = switched(4, 10.0)
    streams = [replace(d, name=f"{d.name}-stream") for d in alone.devices]
    cluster = dataclasses.replace(alone, devices=[*alone.devices, *streams])
    asked = problem(cluster=cluster)
    names = [device.name for device in alone.devices]
    seconds, closed = simulated(asked, shards, devices=names)
    behind, _ = simulated(asked, shards, devices=names, overlap=False)
    assert seconds <= behind
    moved = sum(lacking(a, b, 4, 24.0) for a, b in itertools.pairwise(shards))
    # The closed form lets every layer's sum overlap by itself, the links carry one after the other.
    assert seconds >= closed - moved / 10.0 - 1e-9
    if len(set(shards)) == 1 and shards[0] > 1:
        assert seconds == pytest.approx(closed)


def bytes_sent(layers, shards, devices):
    """What every device sends in all: gathers, sums of both kinds of gradients, and what neighbours' layouts lack."""
    layouts = [Layout(devices // m, m) for m in shards]

    def lacks(have, need):
        ends = [(*have.share(rank), *need.share(rank)) for rank in range(devices)]
        return sum(float(d - c - max(0, min(b, d) - max(a, c))) for a, b, c, d in ends)

    total = 0.0
    for layer, (groups, m) in enumerate(layouts):
        total += (m - 1) * layers.outputs[layer] * (layer + 1 < len(shards))
        total += 2 * (m - 1) * layers.inputs[layer]
        total += 2 * (groups - 1) * layers.weights[layer]
    for layer, (one, two) in enumerate(itertools.pairwise(layouts)):
        total += (lacks(one, two) + lacks(two, one)) * layers.crossing[layer]
    return total


@pytest.mark.parametrize("shards", [(2, 3), (3, 2)])
def test_layouts_of_which_none_divides_the_other(shards):
    """Six devices as 3 x 2 and 2 x 3: what moves is what is lacking."""
    asked = problem(layers=2, devices=6)
    trace = asked.trace(Fixed(shards, overlap=False).plan(asked), "unlimited")
    sent = trace.transfers["bytes"].sum() / 2  # up to the switch and down
    last = (shards[1] - 1) * 24.0  # the output is gathered for the loss
    expected = bytes_sent(StrategyLayers.of(asked), shards, 6) + last
    assert sent == pytest.approx(expected)


@pytest.mark.parametrize("shards", [(1, 2, 4, 1), (4, 2, 1, 4), (1, 4, 1, 1), (2, 2, 2, 2)])
def test_what_passes_a_layer_by_moves_with_it_and_each_shard_has_its_part(shards):
    torch = pytest.importorskip("torch")
    from calibration.sequential import weights_of
    from scenarios.training_graph import trace_training

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))

        def forward(self, x):
            a, b, c, d = self.layers
            first = a(x)
            return d(c(b(first))) + first

    graph = trace_training(Residual(), torch.zeros(8, 16), loss="mse", batch=8, check=False)
    costs = CostTable({graph: GraphCosts(np.ones((len(graph), 4)))})
    asked = Problem(Workload([Job(graph)]), switched(4, 10.0), costs, contention="fifo")
    layers = StrategyLayers.of(asked)
    size = 8 * 16 * 4
    assert layers.crossing[:3] == pytest.approx([size, 2 * size, 2 * size])
    plan = Fixed(shards, overlap=False).plan(asked)
    sent = asked.trace(plan, "unlimited").transfers["bytes"].sum() / 2
    last = (shards[-1] - 1) * layers.outputs[-1]
    assert sent == pytest.approx(bytes_sent(layers, shards, 4) + last)
    made = plan.graphs[0]
    held = sum(made.tensor_bytes[t] for t in made.weights)
    assert held == pytest.approx(sum(4 * layers.weights / np.array(shards)))
    with pytest.raises(InvalidInput, match="no kernels, so hardware cannot execute it"):
        weights_of(Residual(), made)


def test_the_choice_is_never_worse_than_its_baselines():
    asked = problem(layers=6, weight=400.0, bandwidth=20.0)
    found = {search: Strategy(search).plan(asked) for search in SEARCHES}
    seconds = {search: asked.makespan(plan) for search, plan in found.items()}
    for search in ("pso", "viterbi", "annealing"):
        notes = found[search].notes
        assert seconds[search] == pytest.approx(min(notes["simulated_s"].values()))
        assert seconds[search] <= min(seconds[b] for b in ("all_data", "all_model")) + 1e-9
        assert notes["optimum_s"] <= min(notes["closed_form_s"].values()) + 1e-9
    assert np.array_equal(found["pso"].device, Strategy("pso").plan(asked).device)
    slow = problem(bandwidth=0.01)
    assert partition(Strategy("all_data"), slow).plan.origin.startswith("all on")
    assert partition(Strategy("all_data", alone=False), slow).plan.origin == "strategy"


@pytest.mark.parametrize(
    ("activations", "weights", "least", "most"),
    [
        # Like a residual network: light weights, heavy activations.
        ([240.0] * 6, [24.0] * 6, 0.0, 0.05),
        # Like AlexNet: light convolutions, then dense layers of heavy weights.
        ([240.0, 120.0, 60.0, 8.0, 8.0, 8.0], [4.0, 8.0, 8.0, 960.0, 480.0, 120.0], 0.2, 1.0),
    ],
)
def test_signs_of_the_gain_by_kinds_of_layers(activations, weights, least, most):
    """H10: on slow links mixing pays by networks with dense layers, and hardly by convolutions alone."""
    asked = problem(6, bandwidth=4.0, activation=activations, weight=weights)
    seconds = {s: asked.makespan(Strategy(s).plan(asked)) for s in ("pso", *BASELINES)}
    gain = 1 - seconds["pso"] / min(seconds["all_data"], seconds["all_model"])
    assert least <= gain <= most
    assert seconds["pso"] <= min(seconds.values())
    fast = problem(6, bandwidth=4e6, activation=activations, weight=weights)
    gone = {s: fast.makespan(Strategy(s).plan(fast)) for s in ("pso", *BASELINES)}
    assert gone["pso"] == pytest.approx(min(gone.values()), rel=1e-3)


def test_layers_of_a_traced_step():
    torch = pytest.importorskip("torch")
    from scenarios.training.model_profile import profile_model
    from scenarios.training_graph import trace_training

    nn = torch.nn
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(8 * 9, 16), nn.ReLU(), nn.Linear(16, 5)),
    )
    x = torch.zeros(4, 3, 8, 8)
    graph = trace_training(module, x, optimizer="adam", batch=4, check=False)
    costs = CostTable({graph: GraphCosts(np.ones((len(graph), 2)))})
    asked = Problem(Workload([Job(graph)]), switched(2, 1.0), costs)
    layers = StrategyLayers.of(asked)
    own = [row for row in profile_model(module, (x,)) if row.kind in ("conv2d", "linear")]
    norm = 16
    assert layers.names == ("0/conv2d", "5/addmm", "7/addmm")
    expected = np.array([row.parameters for row in own]) + np.array([norm, 0, 0])
    assert layers.weights == pytest.approx(4 * expected)
    counters = 4 * np.array([4, 2, 2])  # of steps, one for each tensor
    assert layers.states == pytest.approx(8 * expected + counters)
    assert layers.outputs == pytest.approx([4 * 4 * 72, 4 * 4 * 16, 4 * 4 * 5])
    assert layers.inputs == pytest.approx([0, 4 * 4 * 72, 4 * 4 * 16])
    assert layers.crossing[:2] == pytest.approx(layers.outputs[:2])
    assert layers.channels.tolist() == [8, 16, 5]
    assert layers.dense.tolist() == [False, True, True]
    assert layers.costs.seconds.sum() == pytest.approx(2 * len(graph))


def test_attention_limits_shards_by_its_heads():
    torch = pytest.importorskip("torch")
    from scenarios.training_graph import trace_training

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = self.into(x).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(mixed.transpose(1, 2).reshape(2, 6, 16)) + x

    x = torch.zeros(2, 6, 16)
    graph = trace_training(Attention(), x, loss="mse", batch=2, check=False)
    costs = CostTable({graph: GraphCosts(np.ones((len(graph), 2)))})
    layers = StrategyLayers.of(Problem(Workload([Job(graph)]), switched(2, 1.0), costs))
    assert layers.channels.tolist() == [4, 16]


def limited(capacity):
    cluster = switched(4, 10.0)
    spaces = [MemorySpace(s.name, capacity) for s in cluster.spaces]
    return problem(cluster=replace(cluster, spaces=spaces), memory="limited")


def test_memory():
    # 2 x 48 bytes of each layer's parameters and gradients, 24 of what it keeps.
    assert Strategy().plan(limited(1e4)).notes["search"] == "pso"
    with pytest.raises(InvalidInput, match="No choice of search=all_data fits: the least takes 3"):
        Strategy("all_data").plan(limited(200.0))
    with pytest.raises(InvalidInput, match=r"needs .* at its peak, and memory 'm0' holds"):
        Strategy("all_model").plan(limited(150.0))


def test_refusals():
    for options, message in (
        ({"search": "random"}, "search=random; known: pso, viterbi"),
        ({"candidates": 0}, "candidates=0; give 1 or more"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Strategy(**options)
    with pytest.raises(InvalidInput, match="names device 'x', which cluster 'switched' lacks"):
        Strategy(devices=["x"]).plan(problem())
    cluster = switched(4, 10.0)
    apart = replace(cluster, links=[link for link in cluster.links if "m3" not in link.ends])
    with pytest.raises(InvalidInput, match="Devices 'd-m0' and 'd-m3' have no route between them"):
        Strategy().plan(problem(cluster=apart))
    two = problem()
    two = replace(two, workload=Workload([Job(two.graph), Job(two.graph)]))
    with pytest.raises(InvalidInput, match="plans one job, a training step"):
        Strategy().plan(two)
    bare = from_edges("g", 2, [(0, 1, 1.0)])
    costs = CostTable({bare: GraphCosts(np.ones((2, 4)))})
    with pytest.raises(InvalidInput, match="no training step"):
        Strategy().plan(Problem(Workload([Job(bare)]), cluster, costs))
