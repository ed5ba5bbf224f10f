"""Offloading: known makespans by the engine, cuts against all of them, and never worse than the baselines."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.bandwidth import mean_bandwidths
from scenarios.partition.offload import Offload, pipelined_operators
from scenarios.partition.offload_cuts import Site, cuts_at, times_at
from scenarios.partition.offload_shop import Shop, classes_of
from scenarios.partition.partitioner import Problem, partition
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from simulator.planners import flow_shop
from simulator.schedulers.planned import Planned
from tests.examples import examples
from tests.simulator.planners.test_flow_shop import OTHER, THREE, TWO
from tests.simulator.planners.test_min_cut import down_sets, serial, shared_graphs

INF = np.inf
BASELINES = ("local", "cloud", "partition_only", "schedule_only")


def offloading(servers=1, **link):
    """A terminal and servers, each behind a link of its own of one byte a second."""
    names = [f"s{i}" for i in range(servers)]
    return Cluster(
        "offloading",
        [MemorySpace("m"), *map(MemorySpace, names)],
        [Device("terminal", "m"), *(Device(f"server{n}", n) for n in names)],
        [Link(f"up{n}", ("m", n), **{"bandwidth": 1.0, **link}) for n in names],
        host="m",
    )


def chain(name, sizes, ends_at_terminal=False):
    """A chain whose input and tensors have these bytes; its last tensor is delivered if asked."""
    tensors = [Tensor("t0", "input", sizes[0])]
    tensors += [Tensor(f"t{i}", "activation", size) for i, size in enumerate(sizes) if i]
    count = len(sizes) - 1
    operators = [Operator(f"o{i}", "task") for i in range(count)]
    results = [{"tensor": f"t{count}"}] if ends_at_terminal else []
    reads, writes = [[i] for i in range(count)], [[i + 1] for i in range(count)]
    return DataflowGraph(name, operators, tensors, reads, writes, results)


def problem(graphs, seconds, cluster=None, destination=None, **options):
    cluster = cluster or offloading()
    costs = CostTable(
        {g: GraphCosts(np.array(s, dtype=float)) for g, s in zip(graphs, seconds, strict=True)}
    )
    jobs = [Job(graph, origin="m", destination=destination) for graph in graphs]
    return Problem(Workload(jobs), cluster, costs, **options)


def fixed(rows):
    """Jobs of two operators that can be cut between the two alone: local, upload, on the server."""
    graphs = [chain(f"job{i}", [0, row[1], 0]) for i, row in enumerate(rows)]
    return problem(graphs, [[(r[0], INF), (INF, r[2] if len(r) > 2 else 0)] for r in rows])


@pytest.mark.parametrize(
    ("rows", "order", "makespan", "arrival"),
    [
        (TWO, [4, 0, 3, 2, 1], 47, 77),
        (OTHER, [2, 0, 3, 4, 1], 24, 27),
        (THREE, [1, 0, 3, 2], 30, 31),
    ],
)
def test_known_flow_shops_by_the_engine(rows, order, makespan, arrival):
    asked = fixed(rows)
    plan = Offload(policy="schedule_only").plan(asked)
    assert asked.makespan(plan) == plan.makespan_s == makespan
    assert asked.makespan(Offload(policy="partition_only").plan(asked)) == arrival
    for policy in ("joint", "neh", "exhaustive"):
        assert asked.makespan(Offload(policy=policy).plan(asked)) == makespan
    shop = Shop(classes_of(asked, Offload()._sites(asked)), Offload()._sites(asked), 3)
    assert order in list(shop.orders((0,) * len(rows)))


def network(jobs, **options):
    """Jobs of five layers: f = 0, 2, ..., 10 and g = 12, 9, 6, 4, 2, 0; the server takes no time."""
    graph = chain("network", [12, 9, 6, 4, 2, 0])
    costs = CostTable.of(graph, np.array([(2.0, 0.0)] * 5))
    workload = Workload([Job(graph, origin="m") for _ in range(jobs)])
    return Problem(workload, offloading(), costs, **options)


@pytest.mark.parametrize(
    ("jobs", "local", "cloud", "one", "two", "ratio", "optimum"),
    [
        (1, 10, 12, 10, 10, 10, 10),
        (4, 40, 48, 28, 22, 24, 22),
        (8, 80, 96, 52, 44, 44, 42),
        (10, 100, 120, 64, 52, 54, 52),
        (20, 200, 240, 124, 104, 104, 102),
    ],
)
def test_identical_jobs_by_the_engine(jobs, local, cloud, one, two, ratio, optimum):
    asked = network(jobs)

    def engine(**options):
        return asked.makespan(Offload(**options).plan(asked))

    assert engine(policy="local") == local
    assert engine(policy="cloud") == cloud
    assert engine(policy="joint", rule="one_cut") == one
    assert engine(policy="joint", rule="two_cuts") == two
    assert engine(policy="joint", rule="ratio") == ratio
    if jobs <= 10:
        assert engine(policy="exhaustive") == optimum
    assert engine(policy="joint") == optimum
    if jobs == 1:  # nothing to pipeline: joint is the best single cut
        assert engine(policy="joint") == engine(policy="partition_only")
    if jobs >= 10:
        assert engine(policy="joint") < engine(policy="partition_only")


@settings(max_examples=examples(60), deadline=None)
@given(shared_graphs(7), st.data())
def test_one_job_is_at_most_its_minimum_cut(graph, data):
    """The minimum cut is a serial sum: uploads of several tensors, and of parts, overlap with computing."""
    column = st.lists(st.integers(0, 9), min_size=len(graph), max_size=len(graph))
    local, remote = np.array(data.draw(column), float), np.array(data.draw(column), float)
    asked = problem([graph], [np.stack([local, remote], axis=1)])
    sums = [serial(graph, local, remote, [1.0] * len(graph.tensors), c) for c in down_sets(graph)]
    plan = Offload(policy="partition_only").plan(asked)
    assert asked.makespan(plan) <= min(sums)
    assert asked.makespan(Offload().plan(asked)) <= asked.makespan(plan)
    assert plan.notes["flow_shop_s"] == min(sums)


def test_two_operators_that_share_an_input_are_cut_as_branches():
    """Only the second is worth keeping: no prefix of the graph's order."""
    inputs = Tensor("x", "input", 1.0)
    written = [Tensor(f"t{i}", "activation", 1.0) for i in range(2)]
    operators = [Operator("o0", "task"), Operator("o1", "task")]
    graph = DataflowGraph("pair", operators, [inputs, *written], [[0], [0]], [[1], [2]])
    asked = problem([graph], [[(3, 0), (0, 3)]])
    assert asked.makespan(Offload(policy="partition_only").plan(asked)) == 1


def test_one_chain_takes_its_minimum_cut():
    asked = problem([chain("c", [7, 3, 5, 1])], [[(2, 1), (3, 1), (9, 2)]])
    sums = [7 + 4, 2 + 3 + 3, 5 + 5 + 2, 14]
    assert asked.makespan(Offload(policy="partition_only").plan(asked)) == min(sums) == 8


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(shared_graphs(5), min_size=1, max_size=5), st.integers(1, 2), st.data())
def test_joint_is_never_worse_than_the_baselines(graphs, servers, data):
    cell = st.integers(0, 9)
    rows = [
        data.draw(st.lists(st.tuples(*[cell] * (servers + 1)), min_size=len(g), max_size=len(g)))
        for g in graphs
    ]
    destination = data.draw(st.sampled_from([None, "m"]))
    asked = problem(graphs, rows, offloading(servers), destination)
    joint = Offload().plan(asked)
    assert asked.makespan(joint) == joint.makespan_s
    for policy in BASELINES:
        assert joint.makespan_s <= asked.makespan(Offload(policy=policy).plan(asked))
    for plan in (joint, Offload(stages=2, rule="two_cuts").plan(asked)):
        for job, graph in enumerate(graphs):  # nothing goes back to the terminal
            device = plan.of_job(job)[0]
            edges = zip(graph.edge_source, graph.edge_target, strict=True)
            assert all(device[a] == 0 or device[a] == device[b] for a, b in edges)


def test_joint_tries_all_cuts_of_few_jobs():
    """Moving jobs to other cuts ends at 31 here."""
    graph = chain("c", [13, 9, 6, 3, 0])
    costs = CostTable.of(graph, np.array([(4.0, 0.0)] * 4))
    asked = Problem(Workload([Job(graph, origin="m")] * 4), offloading(), costs)
    assert Offload().plan(asked).makespan_s == 28


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 4), st.integers(2, 5), st.data())
def test_joint_finds_the_best_cuts_and_orders_of_few_chains(jobs, layers, data):
    """Against all cuts of all jobs in all orders, of chains of convex descending uploads, as networks have."""
    steps = sorted(
        data.draw(st.lists(st.integers(1, 6), min_size=layers, max_size=layers)), reverse=True
    )
    g = [*np.cumsum(steps[::-1])[::-1].tolist(), 0]
    graph = chain("c", g)
    costs = CostTable.of(graph, np.array([(data.draw(st.integers(1, 6)), 0.0)] * layers))
    asked = Problem(Workload([Job(graph, origin="m")] * jobs), offloading(), costs)
    f = np.cumsum([0, *costs[graph].seconds[:, 0]])
    choices = itertools.combinations_with_replacement(range(layers + 1), jobs)
    best = min(
        min(
            flow_shop.makespan([(f[c], g[c]) for c in order])
            for order in itertools.permutations(cuts)
        )
        for cuts in choices
    )
    assert asked.makespan(Offload(policy="exhaustive").plan(asked)) == best
    assert asked.makespan(Offload().plan(asked)) == best


def test_results_come_back():
    """Three stages and the way back, which the engine has as a channel of its own."""
    asked = problem([chain("c", [4, 9, 2], True)] * 1, [[(9, 1), (9, 1)]], destination="m")
    plan = Offload(policy="cloud").plan(asked)
    assert asked.makespan(plan) == plan.notes["flow_shop_s"] == 4 + 1 + 1 + 2
    assert Offload(policy="local").plan(asked).makespan_s == 18


def test_two_servers_share_the_jobs():
    graph = chain("c", [2, 9, 0])
    costs = CostTable.of(graph, np.array([(50.0, 5.0, 5.0)] * 2))
    workload = Workload([Job(graph, origin="m")] * 4)
    one = Problem(workload, offloading(2), costs)
    assert Offload(servers=["servers0"]).plan(one).makespan_s == 2 + 4 * 10
    assert partition(Offload(), one).plan.makespan_s == 2 + 2 * 10


def test_subtrees_are_uploaded_one_after_the_other():
    """A tree of two subtrees: the one with little work and much to upload first."""
    operators = [Operator(n, "task") for n in ("slow", "quick", "join")]
    tensors = [Tensor("x", "input", 0), Tensor("a", "activation", 1), Tensor("b", "activation", 6)]
    graph = DataflowGraph("tree", operators, tensors, [[0], [0], [1, 2]], [[1], [2], []])
    asked = problem([graph], [[(5, INF), (1, INF), (INF, 1)]])
    site = Offload()._sites(asked)[0]
    times = times_at(site, graph, asked.costs, "m", None)
    assert pipelined_operators(times, np.array([True, True, False])) == [1, 0, 2]
    assert Offload().plan(asked).makespan_s == 1 + 6 + 1 + 1  # the serial sum is 14


def test_cuts_within_a_block():
    """Two branches, of which one shrinks its data early: prefixes alone miss the best cut."""
    operators = [Operator(f"o{i}", "task") for i in range(4)]
    tensors = [Tensor("x", "input", 90)] + [
        Tensor(f"t{i}", "activation", size) for i, size in enumerate((20, 20, 1, 9))
    ]
    # o0 feeds o1 and o2, which the last reads; o1's output is large, o2's small.
    reads, writes = [[0], [1], [1], [2, 3]], [[1], [2], [3], [4]]
    graph = DataflowGraph("branches", operators, tensors, reads, writes)
    asked = problem([graph], [[(1, 9), (30, 1), (1, 9), (30, 1)]])
    site = Site(asked.cluster, 0, 1)
    times = times_at(site, graph, asked.costs, "m", None)
    assert any(cut.tolist() == [True, False, True, False] for cut in cuts_at(times))
    own = Offload(policy="partition_only").plan(asked)
    assert own.notes["flow_shop_s"] == 1 + 1 + 20 + 1 + 1 + 1


def test_what_cannot_be_offloaded_is_refused():
    asked = network(2)
    apart = replace(offloading(), links=[])
    with pytest.raises(InvalidInput, match="no route from memory space 'm' to 's0'"):
        Offload().plan(replace(asked, cluster=apart))
    alone = replace(offloading(), devices=[Device("terminal", "m"), Device("other", "m")])
    with pytest.raises(InvalidInput, match="no device outside memory 'm'"):
        Offload().plan(replace(asked, cluster=alone))
    with pytest.raises(
        InvalidInput, match="names device 'cloud', which cluster 'offloading' lacks"
    ):
        Offload(servers=["cloud"]).plan(asked)
    with pytest.raises(InvalidInput, match="has policy=best; known: joint, local"):
        Offload(policy="best")
    with pytest.raises(InvalidInput, match="more than 100000 choices of cuts; give fewer jobs"):
        Offload(policy="exhaustive").plan(network(50))
    both = problem([chain("c", [1, 1, 1])], [[(INF, 1), (1, INF)]])
    with pytest.raises(InvalidInput, match="Graph 'c' has no cut between device 'terminal'"):
        Offload().plan(both)
    elsewhere = Workload([Job(asked.graphs[0], origin=origin) for origin in ("m", "s0")])
    with pytest.raises(InvalidInput, match="jobs that begin in one memory, got m, s0"):
        Offload().plan(replace(asked, workload=elsewhere))


def test_a_link_that_varies_is_planned_by_its_mean_rate():
    """A quarter of the rate until the last job is gone; planners are given the mean."""
    asked = network(8)
    faults = [Fault("link_degradation", "ups0", 0.0, 200.0, 0.25)]
    mean = mean_bandwidths(asked.cluster, faults)
    assert mean.links[0].bandwidth == 0.25

    def happens(cluster):
        plan = Offload().plan(replace(asked, cluster=cluster))
        return simulate(
            asked.workload, asked.cluster, asked.costs, Planned(plan), contention="fifo",
            faults=Faults(faults),
        ).makespan  # fmt: skip

    assert happens(mean) < happens(asked.cluster)
