"""Stages of pipelines against definitions, all partitions, and published optima."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.planners.contiguous import Step, least_slowest, slowest
from simulator.planners.device_clusters import (
    BASELINES,
    CLUSTERS,
    every_clustering,
    fastest_first,
    plan_stages,
)
from simulator.planners.stages import (
    Devices,
    Stage,
    StageProblem,
    best_stages,
    down_sets,
    equal_stages,
    in_order,
    replicated_stages,
)
from tests.examples import examples

MSR = Path(__file__).parents[2] / "oracles" / "msr_fiddle"


def chain(sizes):
    return [(i, i + 1, float(size)) for i, size in enumerate(sizes)]


def equal_devices(count, bandwidth=math.inf, memory=math.inf):
    between = np.full((count, count), float(bandwidth))
    return Devices(tuple(f"gpu{d}" for d in range(count)), between, np.full(count, float(memory)))


def related(work, speeds, bandwidth=math.inf, memory=math.inf, sizes=None, **more):
    """A chain on devices of these speeds, all connected alike."""
    layers = len(work)
    given_ = {
        "weights": np.zeros(layers),
        "stashed": np.zeros(layers),
        "edges": chain(np.zeros(layers - 1) if sizes is None else sizes),
        "devices": equal_devices(len(speeds), bandwidth, memory),
    }
    seconds = np.asarray(work, float)[:, None] / np.asarray(speeds, float)
    return StageProblem(seconds, **given_ | more)


@st.composite
def problems(draw, most_layers=6, most_devices=5):
    layers, devices = draw(st.integers(1, most_layers)), draw(st.integers(1, most_devices))

    def table(*shape, low=0, high=9):
        size = math.prod(shape)
        found = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(found, float).reshape(shape)

    bandwidth = table(devices, devices, low=1)
    edges = [(a, b) for a, b in itertools.combinations(range(layers), 2) if draw(st.booleans())]
    return StageProblem(
        table(layers, devices, low=1),
        table(layers),
        table(layers),
        [(a, b, float(draw(st.integers(0, 9)))) for a, b in edges],
        Devices(
            tuple(map(str, range(devices))),
            np.minimum(bandwidth, bandwidth.T),
            table(devices, low=20, high=120),
        ),
        batch=draw(st.sampled_from([None, 4, 7])),
        micro_batches=draw(st.integers(1, 3)),
        states=draw(st.integers(0, 2)),
        stash_weights=draw(st.booleans()),
    )


def by_definition(problem, stages):
    """Slowest stage or crossing of a sequence of (layers, devices), or inf where it does not fit."""
    times, between, done = [], problem.devices.bandwidth, set()
    for number, (layers, devices) in enumerate(stages):
        m, rest = len(devices), len(stages) - number
        speed = [1 / problem.seconds[:, d].sum() for d in devices]
        share = problem.shares(devices)
        if problem.batch is None:
            assert share == pytest.approx([s / sum(speed) for s in speed])
        else:
            assert share.sum() * problem.batch == pytest.approx(problem.batch)
            assert np.abs(share - np.array(speed) / sum(speed)).max() < 1 / problem.batch + 1e-9
        weights = sum(problem.weights[layer] for layer in layers)
        times.append(
            max(
                x * sum(problem.seconds[layer, d] for layer in layers)
                for x, d in zip(share, devices, strict=True)
            )
        )
        if m > 1:
            ring = min(between[a, b] for a in devices for b in devices if a != b)
            times.append(2 * (m - 1) / m * weights / ring / problem.micro_batches)
        if number:
            before = stages[number - 1][1]
            crossing = sum(
                max((s for a, b, s in problem.edges if a == u and b not in done), default=0)
                for u in done
            )
            times.append(2 * crossing / min(between[a, b] for a in before for b in devices))
        for x, d in zip(share, devices, strict=True):
            held = weights * (2 + problem.states + problem.stash_weights * (rest - 1))
            held += rest * x * sum(problem.stashed[layer] for layer in layers)
            if held > problem.devices.memory[d] * (1 + 1e-9):
                return math.inf
        done |= set(layers)
    return max(times)


def splits(problem, stages):
    """All ways to cut the layers into differences of down-sets."""
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in problem.cuts]
    full = frozenset(range(problem.layers))
    for middle in itertools.combinations(sets[1:-1], stages - 1):
        ends = [frozenset(), *middle, full]
        if all(a < b for a, b in itertools.pairwise(ends)):
            yield [sorted(b - a) for a, b in itertools.pairwise(ends)]


@settings(max_examples=examples(150), deadline=None)
@given(problems(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_best_stages_are_the_best_of_all(problem, count, random):
    devices = len(problem.devices.names)
    count = min(count, devices, problem.layers)
    clusters = random.choice(list(every_clustering(devices, count)))
    wanted = min(
        by_definition(problem, list(zip(layers, order, strict=True)))
        for layers in splits(problem, count)
        for order in itertools.permutations(clusters)
    )
    if math.isinf(wanted):
        with pytest.raises(InvalidInput, match=r"Stage \d of .* needs .* on device"):
            best_stages(problem, clusters)
        return
    found = best_stages(problem, clusters)
    assert found.slowest == pytest.approx(wanted)
    parts = [(stage.layers, stage.devices) for stage in found.stages]
    assert found.slowest == pytest.approx(by_definition(problem, parts))
    assert found.slowest * (1 + 1e-9) >= problem.seconds.min(axis=1).sum() / devices
    assert sorted(layer for stage in found.stages for layer in stage.layers) == list(
        range(problem.layers)
    )
    assert all(sum(stage.shares) == pytest.approx(1) for stage in found.stages)


@settings(max_examples=examples(60), deadline=None)
@given(problems(6, 5), st.floats(1, 9))
def test_pipedreams_partition_is_its_recursion(drawn, bandwidth):
    devices = len(drawn.devices.names)
    problem = StageProblem(
        np.repeat(drawn.seconds[:, :1], devices, axis=1),
        drawn.weights,
        drawn.stashed,
        chain(drawn.stashed[:-1]),
        equal_devices(devices, bandwidth),
    )
    t, w, a = problem.seconds[:, 0], drawn.weights, drawn.stashed

    def stage(i, j, m):
        return max(t[i:j].sum(), 2 * (m - 1) * w[i:j].sum() / bandwidth) / m

    def best(j, m):  # A(j, m), as the paper has it
        ways = [stage(0, j, m)]
        for i, n in itertools.product(range(1, j), range(1, m)):
            ways += [max(best(i, m - n), 2 * a[i - 1] / bandwidth, stage(i, j, n))]
        return min(ways)

    assert replicated_stages(problem).slowest == pytest.approx(best(problem.layers, devices))


def test_pipedreams_partition_by_hand():
    # Two devices on the slow first layer: 8 / 2, then 4; data parallelism would pass 2 * 2/3 * 30 / 1.
    problem = related([8, 2, 2], [1, 1, 1], 1.0, weights=np.array([0, 0, 30.0]), sizes=[1, 9])
    found = replicated_stages(problem)
    assert found.slowest == 4
    assert found.stages == (Stage((0,), (0, 1), (0.5, 0.5)), Stage((1, 2), (2,), (1.0,)))
    assert replicated_stages(problem, 1).slowest == 40
    with pytest.raises(InvalidInput, match="4 stages of 3 layers leave one of them empty"):
        replicated_stages(problem, 4)


def msr_graph(name):
    """Loads of accelerators and processors between all pairs of cuts of a published graph, by its README."""
    document = json.loads((MSR / f"{name}.json").read_text())
    nodes, edges = document["nodes"], document["edges"]
    backward = {node["id"]: node["isBackwardNode"] for node in nodes}
    colours = [node["colorClass"] for node in nodes if not node["isBackwardNode"]]
    layer = {node["id"]: colours.index(node["colorClass"]) for node in nodes}
    ends = [(e["sourceId"], e["destId"]) for e in edges]
    forward = [(layer[a], layer[b]) for a, b in ends if not (backward[a] or backward[b])]
    cuts = down_sets(len(colours), forward)
    within = ~(cuts[:, None] & ~cuts[None]).any(axis=2)
    np.fill_diagonal(within, val=False)

    def between(key):
        column = np.zeros(len(colours))
        for node in nodes:
            column[layer[node["id"]]] += node[key]
        return cuts @ column - (cuts @ column)[:, None]

    leaving = defaultdict(list)
    for edge in edges:
        leaving[edge["sourceId"]].append((edge["cost"], layer[edge["destId"]]))
    moved = np.zeros(within.shape)
    for source, outs in leaving.items():
        cost = max(price for price, _ in outs)
        if cost:
            readers = sorted({reader for _, reader in outs})
            for row, cut in enumerate(cuts):
                part = cuts & ~cut
                inside, reads = part[:, layer[source]], part[:, readers]
                # Once where it enters, once where it leaves.
                moved[row] += cost * ((~inside & reads.any(1)) | (inside & ~reads.all(1)))
    fits = within & (between("size") <= document["maxSizePerFPGA"])
    accelerator = np.where(fits, between("fpgaLatency") + moved, np.inf)
    return accelerator, np.where(within, between("cpuLatency"), np.inf), document["maxFPGAs"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bert24_inference", 17.7899),
        ("bert24_training", 41.7458),
        ("resnet50_inference", 33.7747),
        ("resnet50_training", 78.6318),
    ],
)
def test_published_graphs(name, wanted):
    accelerator, processor, count = msr_graph(name)
    # A state says how many accelerators have a part (count), and whether the processor has one.
    steps = []
    for used in range(count + 1):
        steps += [Step(2 * used + cpu, 2 * used + cpu + 2, accelerator) for cpu in range(2)]
        steps.insert(-1, Step(2 * used, 2 * used + 1, processor))
    pieces = least_slowest(steps, range(1, 2 * count + 2))
    assert slowest(steps, pieces) == pytest.approx(wanted, abs=5e-5)


def test_down_sets():
    assert len(down_sets(5, [(i, i + 1) for i in range(4)])) == 6
    assert len(down_sets(4, [])) == 16
    assert down_sets(4, [], most=15) is None
    # Both branches of a diamond in either order.
    assert [row.tolist() for row in down_sets(3, [(0, 2), (1, 2)])] == [
        [False, False, False],
        [True, False, False],
        [False, True, False],
        [True, True, False],
        [True, True, True],
    ]


def test_layers_in_proportion_to_speed_meet_the_bound():
    # Work 12 on speeds 1, 2, 3: each as many units as it is fast, in any order of the clusters.
    problem = related(np.ones(12), [1, 2, 3])
    found = best_stages(problem, [[2], [0], [1]])
    assert found.slowest == pytest.approx(12 / 6)
    assert {stage.devices[0]: len(stage.layers) for stage in found.stages} == {0: 2, 1: 4, 2: 6}
    assert equal_stages(problem, [[2], [0], [1]]).slowest == pytest.approx(4)


def test_orders_are_tried():
    # The heavy layer is first and the fast device stands last.
    problem = related([8, 1], [1, 8])
    assert best_stages(problem, [[0], [1]]).slowest == 1
    assert in_order(problem, [[0], [1]]).slowest == 8


def test_memory_counts_micro_batches_by_the_place_of_a_stage():
    problem = related(
        [1, 1, 1, 1],
        [1, 1],
        weights=np.full(4, 10.0),
        stashed=np.full(4, 5.0),
        memory=100.0,
        states=2,
    )
    # The first of two stages holds two micro-batches: 2 * (4 * 10 + 2 * 5), the last one 2 * (4 * 10 + 5).
    assert best_stages(problem, [[0], [1]]).slowest == 2
    tight = related(
        [1, 1, 1, 1], [1, 1], weights=problem.weights, stashed=problem.stashed, states=2
    )
    tight.devices.memory[:] = 99.0
    with pytest.raises(
        InvalidInput, match=r"Stage 0 of 2 \(layers 0 to 1\) needs 100 B on device 'gpu0'"
    ):
        best_stages(tight, [[0], [1]])
    # A version of the weights for the other micro-batch: 20 more bytes.
    stashing = related(
        [1, 1, 1, 1],
        [1, 1],
        weights=problem.weights,
        stashed=problem.stashed,
        states=2,
        stash_weights=True,
        memory=119.0,
    )
    with pytest.raises(InvalidInput, match="needs 120 B"):
        equal_stages(stashing, [[0], [1]])


def test_shares_are_whole_samples():
    problem = related([6.0], [1, 2, 3], batch=8)
    (stage,) = plan_stages(problem, 1).stages
    assert [x * 8 for x in stage.shares] == [1, 3, 4]
    assert sorted(zip(stage.devices, stage.shares, strict=True))[0] == (0, 1 / 8)


def node_problem():
    """Four nodes of four GPUs each, speeds 4, 3, 2, 1, fast within a node: HetPipe's setting."""
    speeds = np.repeat([4.0, 3.0, 2.0, 1.0], 4)
    problem = related(np.ones(12), speeds)
    nodes = [d // 4 for d in range(16)]
    for a, b in itertools.product(range(16), repeat=2):
        problem.devices.bandwidth[a, b] = 16.0 if nodes[a] == nodes[b] else 1.0
    return problem, nodes


def test_hetpipes_policies():
    problem, nodes = node_problem()

    def kinds(name, stages=4):
        clusters = BASELINES[name](problem, stages, nodes, 0)
        return sorted(sorted(nodes[d] for d in cluster) for cluster in clusters)

    assert kinds("node") == [[0] * 4, [1] * 4, [2] * 4, [3] * 4]
    assert kinds("equal_distribution") == [[0, 1, 2, 3]] * 4
    assert kinds("hybrid") == [[0, 0, 3, 3], [0, 0, 3, 3], [1, 1, 2, 2], [1, 1, 2, 2]]
    assert (
        len(plan_stages(problem, 3, "node", nodes=nodes).stages) == 4
    )  # a node's, whatever is asked for
    with pytest.raises(InvalidInput, match="give 2 stages or more"):
        plan_stages(problem, 1, "hybrid", nodes=nodes)


def test_the_next_fastest_device_joins_the_slowest_cluster_that_it_reaches():
    problem = related(np.ones(4), [5, 4, 3, 2])
    assert fastest_first(problem, 2) == [[0, 3], [1, 2]]
    # Device 2 reaches neither seed well and goes where it is reached best.
    problem.devices.bandwidth[:] = 1.0
    problem.devices.bandwidth[2, 0] = problem.devices.bandwidth[0, 2] = 3.0
    problem.devices.bandwidth[3, 1] = problem.devices.bandwidth[1, 3] = 9.0
    assert fastest_first(problem, 2, least_bandwidth=5.0) == [[0, 2], [1, 3]]


@settings(max_examples=examples(40), deadline=None)
@given(problems(5, 5), st.integers(1, 3), st.integers(0, 9))
def test_clusters_against_all_of_them(problem, stages, seed):
    devices = len(problem.devices.names)
    stages = min(stages, devices, problem.layers)

    def planned(**options):
        try:
            return plan_stages(problem, stages, seed=seed, **options).slowest
        except InvalidInput:
            return math.inf

    clusterings = list(every_clustering(devices, stages))
    assert all(sorted(itertools.chain(*c)) == list(range(devices)) for c in clusterings)
    assert len({frozenset(map(frozenset, c)) for c in clusterings}) == len(clusterings)
    least = planned(clusters="exhaustive")
    start = fastest_first(problem, stages)
    unrefined = math.inf
    with contextlib.suppress(InvalidInput):
        unrefined = best_stages(problem, start).slowest
    assert least * (1 - 1e-9) <= planned() <= unrefined * (1 + 1e-9)
    for name in ("random", "as_they_stand"):
        assert least <= planned(clusters=name) * (1 + 1e-9)
        assert planned(clusters=name) <= planned(clusters=name, layers="equal") * (1 + 1e-9)


def test_every_name_makes_stages_of_all_devices():
    problem = related(np.arange(1, 9), [4, 1, 3, 2, 4, 1], 50.0, weights=np.ones(8))
    for name in CLUSTERS:
        found = plan_stages(problem, 2, name, nodes=[0, 0, 0, 1, 1, 1])
        assert sorted(d for stage in found.stages for d in stage.devices) == list(range(6))
        assert found.slowest >= 36 / 15 * (1 - 1e-9)
        assert len(found.stages) == {"together": 1, "one_each": 6}.get(name, 2)
    for wrong, message in (
        ({"clusters": "x"}, "There is no clusters=x; known: fastest_first"),
        ({"layers": "x"}, "There is no layers=x"),
        ({"stages": 7}, "6 devices cannot be 7 stages"),
    ):
        with pytest.raises(InvalidInput, match=message):
            plan_stages(problem, **{"stages": 2} | wrong)


def test_devices_of_a_cluster():
    spaces = [MemorySpace("ram", 80.0), MemorySpace("vram", 30.0), MemorySpace("far")]
    devices = [Device("c0", "ram"), Device("c1", "ram"), Device("g", "vram"), Device("f", "far")]
    found = Devices.of(Cluster("c", spaces, devices, [Link("pcie", ("ram", "vram"), 12.0)]))
    assert found.names == ("c0", "c1", "g", "f")
    assert found.memory.tolist() == [40, 40, 30, math.inf]
    assert found.bandwidth[[0, 2, 3], [1, 0, 0]].tolist() == [math.inf, 12, 0]
    problem = StageProblem(np.ones((2, 4)), np.ones(2), np.ones(2), [(0, 1, 1.0)], found)
    with pytest.raises(InvalidInput, match="there is no route"):
        plan_stages(problem, 2, "random")
    with pytest.raises(InvalidInput, match="3 stages of 2 layers"):
        best_stages(problem, [[0], [1], [2]])
