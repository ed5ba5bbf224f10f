"""Positions: the formula written out, limits, searches against each other, DDNN's bytes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scenarios.serving.exit_positions import (
    ExitNetwork,
    Placement,
    PositionSearch,
    Weights,
    coordinate_search,
    gap,
)
from scenarios.serving.exit_table import ExitTable, Shares, count_exits
from simulator.errors import InvalidInput
from simulator.model.cluster import Route


def network(rng, layers=6, latencies=(0.003, 0.02), bandwidths=(1e5, 1e6), sizes=None, **rest):
    """A network on three tiers, each some times faster than the one before."""
    work = rng.uniform(0.5, 2.0, layers)
    heads = rng.uniform(0.05, 0.2, layers - 1)
    speed = np.array([[20.0], [100.0], [400.0]])
    te, ec = (Route((k,), bandwidths[k], latencies[k]) for k in range(2))
    tc = Route((0, 1), min(bandwidths), sum(latencies))
    return ExitNetwork(
        work / speed,
        heads / speed,
        list(rng.uniform(1e3, 1e5, layers)) if sizes is None else sizes,
        work * 1e9,
        heads * 1e9,
        40.0,
        {(0, 1): te, (1, 0): te, (1, 2): ec, (2, 1): ec, (0, 2): tc, (2, 0): tc},
        **rest,
    )


def table(rng, layers=6, samples=300, seeds=2, thresholds=(0.5, 0.8, 0.95)):
    """Deeper exits are surer and more often right."""
    counts = {}
    for seed in range(seeds):
        skill = rng.uniform(0, 1, (samples, 1)) + np.linspace(0.1, 0.5, layers)
        confidence = np.clip(skill + rng.normal(0, 0.1, (samples, layers)), 0, 1)
        correct = rng.uniform(0, 1, (samples, layers)) < 0.3 + 0.65 * np.clip(skill, 0, 1)
        for key, value in count_exits(confidence, correct, thresholds).items():
            counts["joint", seed, *key] = value
    return ExitTable(counts)


@given(st.integers(0, 10**6))
def test_latency_and_accuracy_are_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net, layers = network(rng), 6
    i, j = sorted(rng.choice(np.arange(1, layers), 2, replace=False).tolist())
    q_i, q_j, a_i, a_j, a_l = rng.uniform(0, 1, 5).tolist()
    placement = Placement.at(i, j, layers)
    assert placement.exits == (i, j)
    found = net.evaluate(placement, Shares((q_i, q_j), (a_i, a_j), a_l))
    t, h, d = net.layer_s, net.head_s, net.sizes
    te, ec = net.routes[0, 1], net.routes[1, 2]
    # There and back; the answer of the edge crosses one link, that of the cloud both, the narrower
    # of which sets its pace.
    answer = 40 / te.bandwidth
    rtt_te = 2 * te.latency + answer
    rtt_ec = 2 * ec.latency + net.routes[2, 0].seconds(40) - te.latency - ec.latency - answer
    expected = (
        t[0, :i].sum()
        + h[0, i - 1]
        + (1 - q_i)
        * (
            d[i] / te.bandwidth
            + rtt_te
            + t[1, i:j].sum()
            + h[1, j - 1]
            + (1 - q_j) * (d[j] / ec.bandwidth + rtt_ec + t[2, j:].sum())
        )
    )
    assert found.latency_s == pytest.approx(expected, rel=1e-12)
    accuracy = q_i * a_i + (1 - q_i) * (q_j * a_j + (1 - q_j) * a_l)
    assert found.accuracy == pytest.approx(accuracy, rel=1e-12)
    assert found.bytes == pytest.approx((1 - q_i) * (d[i] + (1 - q_j) * d[j]), rel=1e-12)
    flops = net.layer_flops[:i].sum() + net.head_flops[i - 1]
    assert found.terminal_flops == pytest.approx(flops, rel=1e-12)
    assert sum(found.leaving) == pytest.approx(1)


def test_a_tier_without_layers_costs_nothing() -> None:
    net = network(np.random.default_rng(1))
    none = Shares((), (), 0.9)
    terminal, edge, cloud = (
        net.evaluate(Placement(cuts), none) for cuts in ((6, 6), (0, 6), (0, 0))
    )
    assert terminal.latency_s == pytest.approx(net.layer_s[0].sum())
    assert terminal.bytes == 0
    for found, tier in ((edge, 1), (cloud, 2)):
        there, back = net.routes[0, tier].seconds(net.sizes[0]), net.routes[tier, 0].seconds(40)
        assert found.latency_s == pytest.approx(there + net.layer_s[tier].sum() + back)
        assert found.bytes == net.sizes[0]
        assert found.terminal_flops == 0


def nobody_leaves(layers=6):
    """Exits that nobody is sure enough for, and a final exit that errs now and then."""
    confidence = np.full((10, layers), 0.2)
    correct = np.ones((10, layers), dtype=bool)
    correct[0] = False
    counts = count_exits(confidence, correct, (0.5, 0.9))
    return ExitTable({("joint", 0, *key): value for key, value in counts.items()})


def test_without_exits_and_a_free_network_everything_is_in_the_cloud() -> None:
    free = (math.inf, math.inf)
    net = network(np.random.default_rng(2), latencies=(0.0, 0.0), bandwidths=free)
    search = PositionSearch(net, nobody_leaves(), "joint")
    for found in (search.greedy(), search.exhaustive(), search.exhaustive_joint()):
        assert found.placement == Placement((0, 0))
        assert found.evaluation.latency_s == pytest.approx(net.layer_s[2].sum())


def test_with_an_infinite_round_trip_everything_is_local() -> None:
    net = network(np.random.default_rng(3), latencies=(math.inf, 0.0))
    search = PositionSearch(net, nobody_leaves(), "joint")
    for found in (search.greedy(), search.exhaustive(), search.exhaustive_joint()):
        assert found.placement == Placement((6, 6))
        assert found.evaluation.latency_s == pytest.approx(net.layer_s[0].sum())
    # From one start no single coordinate leads off the plateau.
    assert search.greedy(restarts=False).evaluation.latency_s == math.inf


@pytest.mark.parametrize(("left", "expected"), [(0.0, 140.0), (1.0, 12.0), (0.6082, 62.15)])
def test_bytes_of_a_ddnn(left: float, expected: float) -> None:
    """4|C| + (1-l) f o / 8 with 3 classes, 4 filters of 256 bits (Teerapittayanon et al. 2017)."""
    net = network(np.random.default_rng(0), 2, sizes=[3072.0, 4 * 256 / 8], report_bytes=4.0 * 3)
    found = net.evaluate(Placement((1, 1), (1,)), Shares((left,), (0.9,), 0.95))
    assert found.bytes == pytest.approx(expected, abs=0.01)


costs = st.lists(st.integers(0, 1000), min_size=7, max_size=7, unique=True)


@given(costs, costs, costs)
def test_greedy_equals_exhaustive_where_the_cost_is_separable(f, g, h) -> None:
    least = tuple(values.index(min(values)) for values in (f, g, h))
    assume(least[0] <= least[1])

    def cost(point):
        return f[point[0]] + g[point[1]] + h[point[2]]

    def choices(point, coordinate):
        i, j, _ = point
        return (range(j + 1), range(i, 7), range(7))[coordinate]

    everything = [p for p in itertools.product(range(7), repeat=3) if p[0] <= p[1]]
    found, evaluated = coordinate_search(cost, (2, 4, 3), choices)
    assert found == least == min(everything, key=cost)
    assert evaluated < 100


def test_ties_go_to_the_earlier_value() -> None:
    found, _ = coordinate_search(lambda p: float(p[0] == 5), (5,), lambda p, c: range(6))
    assert found == (0,)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_searches_are_ordered_and_exhaustive_is_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net, exits = network(rng), table(rng)
    weights = Weights(1.0, 0.2, 0.1, 0.5)
    search = PositionSearch(net, exits, "joint", weights)
    greedy, best, joint = search.greedy(), search.exhaustive(), search.exhaustive_joint()
    reference = net.evaluate(Placement((6, 6)), exits.shares("joint", 0.5, ()))
    least = math.inf
    for i, j in itertools.combinations_with_replacement(range(7), 2):
        for threshold in exits.thresholds:
            placement = Placement.at(i, j, 6)
            found = net.evaluate(placement, exits.shares("joint", threshold, placement.exits))
            cost = (
                found.latency_s / reference.latency_s
                + 0.2 * found.terminal_flops / reference.terminal_flops
                + 0.1 * found.bytes / net.sizes[0]
                + 0.5 * (1 - found.accuracy) / (1 - reference.accuracy)
            )
            least = min(least, cost)
    assert best.cost == pytest.approx(least, rel=1e-12)
    assert best.evaluated == 28 * 3
    assert gap(search.greedy(restarts=False), best) >= gap(greedy, best) >= -1e-12
    assert greedy.cost <= min(one.cost for one in search.single_tier())
    assert joint.cost <= best.cost * (1 + 1e-12)
    every, every_joint = search.every_threshold(), search.every_threshold_joint()
    assert greedy.cost >= every.cost >= best.cost * (1 - 1e-12)
    assert search.greedy_joint().cost >= every_joint.cost >= joint.cost * (1 - 1e-12)
    assert greedy.evaluated < every.evaluated <= best.evaluated
    assert every_joint.evaluated < joint.evaluated
    assert greedy.cost <= search.found(Placement.at(2, 4, 6), 0.8).cost
    terminal = search.single_tier()[0]
    assert terminal.cost == pytest.approx(1.0 + 0.2 + 0.5)


def test_starting_at_every_threshold_leaves_a_start_that_single_steps_do_not() -> None:
    """At the middle threshold nobody leaves; at the lowest all do, and rightly. A slow terminal then gains
    by an exit that no single cut makes pay from where greedy begins.
    """
    rng = np.random.default_rng(0)
    net = network(rng, latencies=(0.5, 0.5))  # far away: whatever goes up loses
    confidence = np.full((10, 6), 0.6)
    correct = np.ones((10, 6), dtype=bool)
    correct[0] = False
    counts = count_exits(confidence, correct, (0.5, 0.8, 0.9))
    exits = ExitTable({("joint", 0, *key): value for key, value in counts.items()})
    search = PositionSearch(net, exits, "joint")
    best = search.exhaustive()
    assert (best.placement.exits, best.threshold) == ((1,), 0.5)
    assert gap(search.greedy(), best) > 0.1
    assert search.every_threshold().cost == best.cost


def test_what_cannot_be_is_refused() -> None:
    rng = np.random.default_rng(0)
    net = network(rng)
    with pytest.raises(InvalidInput, match="of a network of 5 layers, the model has 6"):
        PositionSearch(net, table(rng, 5), "joint")
    with pytest.raises(InvalidInput, match="of way 'alone'; it has ways joint"):
        PositionSearch(net, table(rng), "alone")
    with pytest.raises(InvalidInput, match=r"at threshold 0\.7"):
        PositionSearch(net, table(rng), "joint", thresholds=(0.7,))
    with pytest.raises(InvalidInput, match="each at least 0"):
        PositionSearch(net, table(rng), "joint", Weights(latency=-1.0))
    sure = np.ones((4, 6))
    perfect = ExitTable(
        {("joint", 0, *key): c for key, c in count_exits(sure, sure > 0, (0.5,)).items()}
    )
    with pytest.raises(InvalidInput, match=r"makes no mistakes.*weights.errors=0"):
        PositionSearch(net, perfect, "joint")
    assert PositionSearch(net, perfect, "joint", Weights(errors=0.0)).exhaustive().cost > 0
