"""Multi-exit graphs taken apart, and simulated: the closed form on an idle system, queueing under load."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scenarios.serving.exit_graphs import ExitGraph
from scenarios.serving.exit_positions import Placement
from scenarios.serving.exit_requests import exit_requests
from scenarios.serving.exit_table import Shares
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.schedulers import create

TIERS = ("terminal", "edge", "cloud")
CLUSTER = Cluster(
    "tiers",
    [MemorySpace(name) for name in TIERS],
    [Device(name, name, launch_overhead=0.001 * (k + 1)) for k, name in enumerate(TIERS)],
    [
        Link("wifi", ("terminal", "edge"), 1000.0, 0.03),
        Link("internet", ("edge", "cloud"), 700.0, 0.2),
    ],
    host="terminal",
)
LAYERS = 4


def two_operators_a_layer() -> DataflowGraph:
    """Layers of two operators, heads of one; tensors of ever fewer bytes, logits of 40."""
    operators, tensors = [], [Tensor("x", "input", 900.0)]
    reads, writes, before, results = [], [], 0, []

    def add(name: str, size: float) -> int:
        operators.append(Operator(name, "relu"))
        reads.append([before])
        tensors.append(Tensor(f"{name}:out", "activation", size))
        writes.append([len(tensors) - 1])
        return len(tensors) - 1

    for layer in range(1, LAYERS + 1):
        for part in "ab":
            before = add(f"layer{layer}{part}", 600.0 / layer)
        results.append({"tensor": tensors[add(f"head{layer}", 40.0)].name, "views": []})
    return DataflowGraph("exits", operators, tensors, reads, writes, results, 1)


def costs(seed: int = 0) -> GraphCosts:
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(0.01, 0.1, (3 * LAYERS, 1)) / np.array([[1.0, 4.0, 10.0]])
    return GraphCosts(seconds, in_range=rng.random(seconds.shape) < 0.5)


PLACEMENTS = [
    *(Placement.at(i, j, LAYERS) for i, j in itertools.combinations_with_replacement(range(5), 2)),
    *(Placement(cuts, exits) for cuts in ((0, 2), (1, 3), (4, 4)) for exits in ((1, 3), (2,), ())),
]


def run(placement, shares, arrivals, contention="fifo", seed=0):
    graph, times = ExitGraph(two_operators_a_layer()), costs()
    network = graph.network(times, CLUSTER, TIERS)
    leaving = network.evaluate(placement, shares).leaving
    requests = exit_requests(graph, times, CLUSTER, TIERS, placement, leaving, arrivals, seed)
    scheduler = create("tier_placement", spaces=requests.spaces)
    trace = simulate(requests.workload, CLUSTER, requests.costs, scheduler, contention=contention)
    return network, requests, trace


def test_layers_and_heads_are_told_apart() -> None:
    graph = ExitGraph(two_operators_a_layer())
    assert graph.layers == ((0, 1), (3, 4), (6, 7), (9, 10, 11))
    assert graph.heads == ((2,), (5,), (8,))
    assert graph.sizes == (900.0, 600.0, 300.0, 200.0)
    network = graph.network(costs(), CLUSTER, TIERS)
    seconds = costs().seconds
    assert network.layer_s[1, 0] == pytest.approx(seconds[:2, 1].sum() + 2 * 0.002)
    assert network.layer_s[2, 3] == pytest.approx(seconds[9:, 2].sum() + 3 * 0.003)
    assert network.head_s[0, 2] == pytest.approx(seconds[8, 0] + 0.001)
    assert network.answer_bytes == 40


def test_the_extrapolated_share_is_of_the_computing_time() -> None:
    graph, times = ExitGraph(two_operators_a_layer()), costs()
    network = graph.network(times, CLUSTER, TIERS)
    found = network.evaluate(Placement((4, 4)), Shares((), (), 0.9))
    own = [o for layer in graph.layers for o in layer]
    seconds = times.seconds[own, 0] + 0.001
    expected = seconds[~times.in_range[own, 0]].sum() / seconds.sum()
    assert found.extrapolated_share == pytest.approx(expected)


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
def test_every_placement_and_exit_is_simulated_as_the_closed_form(contention: str) -> None:
    for placement in PLACEMENTS:
        exits = placement.exits
        for end in (*exits, LAYERS):
            certain = Shares(tuple(float(e == end) for e in exits), (1.0,) * len(exits), 1.0)
            network, requests, trace = run(placement, certain, [0.0], contention)
            assert requests.leaves == (end,)
            expected = network.evaluate(placement, certain).latency_s
            assert trace.makespan == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("placement", PLACEMENTS[2::4])
def test_the_mean_of_an_idle_system_is_the_closed_form_of_what_was_drawn(placement) -> None:
    shares = Shares((0.5, 0.4)[: len(placement.exits)], (0.9, 0.95)[: len(placement.exits)], 0.99)
    network, requests, trace = run(placement, shares, [10.0 * k for k in range(400)])
    arrive, leave = 400, []
    for end in placement.exits:
        leave.append(requests.leaves.count(end) / arrive)
        arrive -= requests.leaves.count(end)
    drawn = Shares(tuple(leave), shares.accuracy, shares.last)
    delays = trace.jobs["finish"] - trace.jobs["arrival"]
    expected = network.evaluate(placement, drawn).latency_s
    assert delays.mean() == pytest.approx(expected, rel=1e-9)
    assert leave == pytest.approx(shares.leave, abs=0.006)


def test_under_load_requests_queue_as_in_m_d_1() -> None:
    """Everything on the terminal takes always the same time: mean wait rho / (2 (1 - rho))."""
    placement, shares = Placement((LAYERS, LAYERS)), Shares((), (), 1.0)
    network, _, _ = run(placement, shares, [0.0])
    service = network.evaluate(placement, shares).latency_s
    for load in (0.5, 0.8):
        gaps = np.random.default_rng(1).exponential(service / load, 30_000)
        _, _, trace = run(placement, shares, np.cumsum(gaps).tolist())
        waits = trace.jobs["finish"] - trace.jobs["arrival"] - service
        assert waits.mean() / service == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def test_queueing_shows_on_the_link_and_more_samples_leaving_relieves_it() -> None:
    placement = Placement.at(1, 3, LAYERS)
    arrivals = (np.cumsum(np.random.default_rng(2).exponential(1.0, 2000))).tolist()
    means = []
    for leave in (0.1, 0.9):
        shares = Shares((leave, 0.5), (1.0, 1.0), 1.0)
        network, _, trace = run(placement, shares, arrivals)
        delays = trace.jobs["finish"] - trace.jobs["arrival"]
        idle = network.evaluate(placement, shares).latency_s
        means.append(delays.mean() / idle)
    assert means[0] > means[1] > 1


def test_what_has_no_early_exits_is_refused() -> None:
    graph = two_operators_a_layer()
    one = DataflowGraph(
        "one", graph.operators, graph.tensors, graph.reads, graph.writes, graph.results[-1:], 1
    )
    with pytest.raises(InvalidInput, match="'one' has no early exits: its forward must return"):
        ExitGraph(one)
    twice = DataflowGraph(
        "two", graph.operators, graph.tensors, graph.reads, graph.writes, graph.results[:1] * 2, 1
    )
    with pytest.raises(InvalidInput, match="exit 2 has no layer of its own"):
        ExitGraph(twice)


def test_tiers_that_cannot_be_are_refused() -> None:
    graph = ExitGraph(two_operators_a_layer())
    with pytest.raises(InvalidInput, match="no memory space 'moon' for a tier; it has terminal"):
        graph.network(costs(), CLUSTER, ("terminal", "edge", "moon"))
    with pytest.raises(InvalidInput, match="takes three tiers, got terminal"):
        graph.network(costs(), CLUSTER, ("terminal",))


def test_the_traced_network_has_its_heads_where_they_were_built() -> None:
    torch = pytest.importorskip("torch")
    from scenarios import trace_model
    from scenarios.models.multi_exit import build

    network = build([4, 4, 8], [2], channels=1, image_size=8, grid=2)
    traced = trace_model(network, torch.zeros(1, 1, 8, 8), batch=1)
    graph = ExitGraph(traced)
    for number, head in enumerate(graph.heads, 1):
        assert {traced.operators[o].name.split("/")[0][:7] for o in head} == {f"heads.{number}"}
    for number, layer in enumerate(graph.layers, 1):
        prefixes = {f"blocks.{number - 1}"} | ({"heads.3"} if number == 3 else set())
        names = {traced.operators[o].name for o in layer}
        assert {next(p for p in prefixes if n.startswith(p)) for n in names} == prefixes
    assert graph.sizes == (4 * 64, 4 * 4 * 64, 4 * 4 * 16)
    # Exits at fewer blocks leave the rest as it is.
    fewer = build([4, 4, 8], [2], exits=[2], channels=1, image_size=8, grid=2)
    assert fewer.exits == (2, 3)
    assert [len(row) for row in ExitGraph(trace_model(fewer, torch.zeros(1, 1, 8, 8))).layers] == [
        7,
        5,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exits": [9]}, r"8 blocks has none numbered 9 \(exits\)"),
        ({"pools": [0]}, r"none numbered 0 \(pools\)"),
        ({"image_size": 8}, "8 x 8 are too small for 4 poolings"),
    ],
)
def test_networks_that_cannot_be_are_refused(options, message: str) -> None:
    pytest.importorskip("torch")
    from scenarios.models.multi_exit import build

    with pytest.raises(InvalidInput, match=message):
        build(**options)
