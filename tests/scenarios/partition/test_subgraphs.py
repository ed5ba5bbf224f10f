"""Subgraphs and phases against their definitions."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.partition.subgraphs import key_subgraphs, merge_short, phases, runs
from simulator import Cluster, Device, Link, MemorySpace
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.segments import coarsen
from tests.examples import examples
from tests.simulator.strategies import graphs


def of_kinds(kinds, parents):
    """A graph of operators of these kinds, each of which reads what its parents write."""
    count = len(kinds)
    tensors = [
        Tensor("x", "input", 8.0),
        *(Tensor(f"t{i}", "activation", 8.0) for i in range(count)),
    ]
    return DataflowGraph(
        "g",
        [Operator(f"o{i}", kind) for i, kind in enumerate(kinds)],
        tensors,
        [[p + 1 for p in row] or [0] for row in parents],
        [[i + 1] for i in range(count)],
    )


def test_a_subgraph_is_a_key_operator_with_what_follows_it():
    # relu, conv, batch_norm, relu | conv, relu and pool, conv | cat, linear
    kinds = [
        "relu",
        "conv2d",
        "batch_norm",
        "relu",
        "conv2d",
        "relu",
        "max_pool2d",
        "conv2d",
        "cat",
    ]
    parents = [[], [0], [1], [2], [3], [4], [3], [6], [5, 7], [8]]
    graph = of_kinds([*kinds, "linear"], parents)
    assert key_subgraphs(graph).tolist() == [0, 1, 1, 1, 2, 2, 3, 4, 5, 6]
    assert runs(graph).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    found = [([run.tolist() for run in p.runs], p.parallel) for p in phases(graph)]
    assert found == [([[0, 1, 2, 3]], False), ([[4, 5], [6, 7]], True), ([[8, 9]], False)]


def all_paths(graph):
    """Every path from a root to a sink, each a set of operators."""
    waiting = [[v] for v in range(len(graph)) if not graph.predecessors[v]]
    found = []
    while waiting:
        path = waiting.pop()
        after = graph.successors[path[-1]]
        waiting += [[*path, v] for v in after]
        if not after:
            found.append(set(path))
    return found


@settings(max_examples=examples(200), deadline=None)
@given(graphs(operators=9))
def test_a_sequential_phase_is_what_all_paths_pass_through(graph):
    always = set.intersection(*all_paths(graph))
    found = phases(graph)
    members = [set(np.concatenate(phase.runs).tolist()) for phase in found]
    assert sorted(o for row in members for o in row) == list(range(len(graph)))
    assert (
        set().union(*(m for m, p in zip(members, found, strict=True) if not p.parallel)) == always
    )
    assert all(a.parallel != b.parallel for a, b in itertools.pairwise(found))
    place = {operator: number for number, row in enumerate(members) for operator in row}
    assert all(place[a] <= place[b] for b in place for a in graph.predecessors[b])


@settings(max_examples=examples(100), deadline=None)
@given(graphs(operators=9), st.integers(0, 1000), st.floats(0.1, 10))
def test_short_subgraphs_are_joined_until_none_can_be(graph, seed, eps):
    cluster = Cluster(
        "two",
        [MemorySpace("m"), MemorySpace("n")],
        [Device("a", "m"), Device("b", "n")],
        [Link("l", ("m", "n"), 4.0, 0.5)],
    )
    seconds = np.random.default_rng(seed).uniform(0, 4, (len(graph), 2))
    whole = coarsen(graph, parts=key_subgraphs(graph))
    assert (
        merge_short(graph, key_subgraphs(graph), GraphCosts(seconds), cluster, 0.0).owner
        == whole.owner
    ).all()
    found = merge_short(graph, key_subgraphs(graph), GraphCosts(seconds), cluster, eps)
    coarse = found.graph
    fastest = found.costs(GraphCosts(seconds)).seconds.min(axis=1)
    for part in range(len(coarse)):
        written = sum(coarse.tensors[t].bytes for t in coarse.writes[part])
        if fastest[part] < eps * (0.5 + written / 4.0):
            assert 1 not in (len(coarse.successors[part]), len(coarse.predecessors[part]))
