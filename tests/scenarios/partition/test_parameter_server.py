"""Parameter servers simulated: one iteration by the engine against its closed form, patterns of access, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cost_models.optimizer_steps import UPDATED
from scenarios import FamilyConfig, draw_instance
from scenarios.partition.parameter_server import ParameterServer
from scenarios.partition.partitioner import Problem, partition
from scenarios.random_graphs import Draws
from scenarios.training.parameter_access import ParameterAccess
from simulator import Cluster, Device, Link, MemorySpace, from_edges, fully_connected
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.planners import parameter_server
from simulator.planners.parameter_server import Allocation

DEFAULT = {
    "pattern": "power_law",
    "samples": 120,
    "parameters": 100,
    "degree": 8,
    "skew": 1.1,
    "parameter_size": "4 kB",
    "devices": 4,
    "heterogeneity": "related",
    "speeds": [2.0, 2.0, 1.0, 1.0],
    "link_bandwidths": ["1 Gbit/s", "500 Mbit/s"],
    "task_time": "1ms",
}


def family(**changed):
    return FamilyConfig("servers", "parameter_server", **DEFAULT | changed)


def planned(config, policy="two_step", seed=0, contention="fair", **options):
    graph, cluster, costs = draw_instance(config, seed)
    workload = Workload([Job(graph)])
    problem = Problem(workload, cluster, costs, contention=contention)
    return partition(ParameterServer(policy, **options), problem), problem


def test_the_graph_of_an_iteration_moves_what_the_closed_form_counts():
    made, problem = planned(family())
    graph, notes = made.plan.graphs[0], made.plan.notes
    crossing = sum(
        t.bytes for t in graph.tensors if " pulls of " in t.name or " pushes to " in t.name
    )
    assert crossing == notes["moved_bytes"] == 2 * 4000 * notes["transfers"]
    assert notes["transfers"] >= notes["fewest_transfers"]
    weights = [graph.tensors[t] for t in graph.weights]
    assert sum(weight.bytes for weight in weights) == problem.graph.weight_bytes
    names = {tensor.name for tensor in graph.tensors}
    for operator, device in zip(graph.operators, made.plan.device.tolist(), strict=True):
        if operator.kind == "sgd_step":
            owner = problem.cluster.devices[device].name
            assert operator.name == f"parameters of {owner}/sgd_step"
            assert f"parameters of {owner}{UPDATED}" in names
            assert operator.target == "optim.sgd_step.default"
    # One pull and one push for every two machines, whatever number of parameters.
    assert sum(operator.kind == "pull" for operator in graph.operators) <= 4 * 3
    seconds = made.costs[graph].seconds
    assert (np.isfinite(seconds).sum(axis=1) == 1).all()
    assert list(made.makespans) == ["parameter_server"]


def star(bandwidths):
    spaces = [MemorySpace(f"m{i}") for i in range(len(bandwidths))] + [MemorySpace("switch")]
    links = [
        Link(f"l{i}", (f"m{i}", "switch"), b, half_duplex=True) for i, b in enumerate(bandwidths)
    ]
    devices = [Device(f"P{i}", f"m{i}") for i in range(len(bandwidths))]
    return Cluster("star", spaces, devices, links)


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
def test_where_nothing_contends_the_engine_takes_the_closed_form(contention, monkeypatch):
    # Pairs of a machine that computes and one that owns: each link carries one transfer at a time.
    bandwidths = [5.0, 5.0, 2.0, 2.0]
    cluster = star(bandwidths)
    tensors = [Tensor(f"w{i}", "weight", 3.0) for i in range(5)]
    reads = [[0, 1], [1], [2], [2, 3, 4]]
    graph = DataflowGraph(
        "s", [Operator(f"s{i}", "sample") for i in range(4)], tensors, reads, [()] * 4
    )
    costs = CostTable.of(graph, np.tile([1.0, 9.0, 4.0, 9.0], (4, 1)))
    fixed = Allocation(np.array([0, 0, 2, 2]), np.array([1, 1, 3, 3, 3]))
    monkeypatch.setitem(parameter_server.POLICIES, "fixed", lambda problem, seed: fixed)
    problem = Problem(Workload([Job(graph)]), cluster, costs, contention=contention)
    made = partition(ParameterServer("fixed"), problem)
    times = [2 + 2 * 6 / 5, 2 * 6 / 5, 8 + 2 * 9 / 2, 2 * 9 / 2]
    assert made.plan.notes["closed_form_s"] == pytest.approx(max(times))
    assert made.plan.makespan_s == pytest.approx(max(times))


@pytest.mark.parametrize("policy", ["two_step", "hash", "contiguous", "parsa"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_iteration_takes_at_least_what_its_parts_do(policy, seed):
    made, problem = planned(family(), policy, seed)
    graph = made.plan.graphs[0]
    seconds = np.nanmin(
        np.where(np.isfinite(made.costs[graph].seconds), made.costs[graph].seconds, np.nan), axis=1
    )
    size = {tensor.name: tensor.bytes for tensor in graph.tensors}
    for number, device in enumerate(problem.cluster.devices):
        link = problem.cluster.links[number].bandwidth
        own = [s for s, d in zip(seconds, made.plan.device, strict=True) if d == number]
        pulled = sum(b for name, b in size.items() if name.startswith(f"{device.name} pulls"))
        passed = sum(
            b
            for name, b in size.items()
            if (" pulls of " in name or " pushes to " in name)
            and device.name in (name.split()[0], name.split()[-1])
        )
        # Pull, compute, push; and its link carries all that it pulls, serves, pushes and receives.
        assert made.plan.makespan_s >= (sum(own) + 2 * pulled / link) * (1 - 1e-9)
        assert made.plan.makespan_s >= passed / link * (1 - 1e-9)
    # What both leave out is small here: the closed form does not overlap, the engine waits.
    assert made.plan.makespan_s == pytest.approx(made.plan.notes["closed_form_s"], rel=0.25)


@pytest.mark.parametrize("speeds", [[1.0], [4.0, 2.0, 1.0, 1.0]])
def test_block_diagonal_data_move_nothing_and_take_the_least_time(speeds):
    made, _ = planned(family(pattern="block_diagonal", speeds=speeds, samples=160, degree=5))
    assert made.plan.notes["transfers"] == 0
    total = 160 * 1e-3 / (4 if len(speeds) == 1 else 8)
    assert made.plan.makespan_s == pytest.approx(total)


def test_the_partition_of_dense_data_does_not_matter():
    even = {"pattern": "dense", "speeds": [1.0], "link_bandwidths": ["1 Gbit/s"]}
    found = [
        planned(family(**even), policy)[0].plan for policy in ("two_step", "contiguous", "parsa")
    ]
    assert {plan.notes["transfers"] for plan in found} == {100 * 3}
    assert [plan.makespan_s for plan in found] == pytest.approx([found[0].makespan_s] * 3)


@pytest.mark.parametrize("pattern", ["power_law", "digits"])
def test_less_is_moved_than_by_hash(pattern):
    """H9's sign: communication and time below hash, on unequal machines."""
    config = family(pattern=pattern, samples=200, parameters=200, degree=12)
    for seed in range(2 if pattern == "power_law" else 1):
        mine, hashed = (planned(config, policy, seed)[0].plan for policy in ("two_step", "hash"))
        assert mine.notes["moved_bytes"] < hashed.notes["moved_bytes"]
        assert mine.makespan_s < hashed.makespan_s


def test_patterns():
    def access(pattern, **changed):
        given = {"samples": 50, "parameters": 40, "degree": 6, "skew": 1.0, "parameter_size": 1.0}
        return ParameterAccess(pattern, link_bandwidths=(1.0,), **given | changed)

    shares = np.array([0.5, 0.25, 0.25])
    drawn = (
        draw_instance(family(), 1)[0],
        draw_instance(family(), 1)[0],
        draw_instance(family(), 2)[0],
    )
    assert drawn[0].reads == drawn[1].reads != drawn[2].reads
    popular = access("power_law").touched(shares, Draws(0))
    assert all(
        len(row) == 6 and row == sorted(set(row)) and 0 <= row[0] <= row[-1] < 40 for row in popular
    )
    counts = np.bincount(list(itertools.chain(*popular)), minlength=40)
    assert counts[:5].sum() > 3 * counts[-5:].sum()
    # A sample of so many parameters touches its block: disjoint ones, as large as devices are fast.
    blocks = access("block_diagonal", degree=20).touched(shares, Draws(0))
    assert sorted(map(len, set(map(tuple, blocks)))) == [10, 10, 20]
    assert sorted(set(itertools.chain(*blocks))) == list(range(40))
    assert sorted(map(len, blocks)) == [10] * 25 + [20] * 25
    assert access("dense").touched(shares, Draws(0)) == [list(range(40))] * 50
    digits = access("digits", samples=1797).touched(shares, Draws(0))
    # scikit-learn's digits: 1,797 images of 64 pixels, 49% of them inked.
    assert len(digits) == 1797
    assert sum(map(len, digits)) == 58_736
    assert len(set(itertools.chain(*digits))) == 1 + max(map(max, digits))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pattern": "x"}, "There is no family.pattern=x"),
        ({"samples": 0}, r"family.samples=0 must be"),
        ({"degree": 101}, "family.degree=101"),
        ({"parameter_size": "0 B"}, "family.parameter_size"),
        ({"link_bandwidths": []}, "family.link_bandwidths is empty"),
        ({"link_bandwidths": ["fast"]}, "link bandwidth of family 'servers'"),
        ({"heterogeneity": "unrelated", "beta": 1.0}, "family.heterogeneity=related"),
        ({"task_time": None}, "family.task_time"),
        ({"samples": None}, "needs family.samples"),
        ({"width": 3}, "family.width has no meaning for 'parameter_server'"),
        (
            {"pattern": "block_diagonal", "parameters": 3, "degree": 1},
            "3 parameters cannot be 4 blocks",
        ),
    ],
)
def test_families_that_cannot_be_drawn_are_refused(changed, message):
    with pytest.raises(InvalidInput, match=message):
        draw_instance(family(**changed))


def test_what_cannot_be_partitioned_is_refused():
    for wrong, message in (
        ({"policy": "x"}, "policy=x; known: two_step, hash"),
        ({"slack": -1.0}, "slack=-1"),
    ):
        with pytest.raises(InvalidInput, match=message):
            ParameterServer(**wrong)
    chain = from_edges("chain", 2, [(0, 1, 1.0)])
    costs = CostTable.of(chain, np.ones((2, 2)))
    problem = Problem(Workload([Job(chain)]), fully_connected("c", 2), costs)
    with pytest.raises(InvalidInput, match="samples that read parameters alone, and operator 't0'"):
        partition(ParameterServer(), problem)
    graph, _, _ = draw_instance(family())
    shared = Cluster("shared", [MemorySpace("m")], [Device("a", "m"), Device("b", "m")])
    costs = CostTable.of(graph, np.ones((len(graph), 2)))
    with pytest.raises(InvalidInput, match="devices of cluster 'shared' share one"):
        partition(ParameterServer(), Problem(Workload([Job(graph)]), shared, costs))
