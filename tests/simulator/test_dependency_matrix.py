"""The dependency matrix against dense algebra: inverse, powers, closure."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from simulator.analysis.dependency_matrix import Paths, dependency_matrix, levels
from simulator.model.graph import from_edges
from tests.examples import examples
from tests.simulator.strategies import graphs


@settings(max_examples=examples(120), deadline=None)
@given(graphs(operators=8))
def test_algebra_of_a_graph(graph):
    matrix = dependency_matrix(graph)
    count = len(graph)
    dense = matrix.toarray()
    for i in range(count):
        for j in range(count):
            shared = [t for t in graph.writes[i] if t in graph.reads[j]]
            assert dense[i, j] == pytest.approx(sum(graph.tensors[t].bytes for t in shared))
    edges = np.zeros((count, count))
    edges[matrix.tocoo().coords] = 1.0  # those of no bytes, too
    assert (edges.sum(axis=0) == graph.in_degree).all()
    inverse = np.linalg.inv(np.eye(count) - edges)
    roots, sinks = edges.sum(axis=0) == 0, edges.sum(axis=1) == 0
    paths = Paths.of(graph)
    assert np.array(paths.into) == pytest.approx(inverse[roots].sum(axis=0))
    assert np.array(paths.out) == pytest.approx(inverse[:, sinks].sum(axis=1))
    # Level l: A^l still reaches it from somewhere, A^(l+1) does not.
    found, power = levels(matrix), np.eye(count)
    for level in range(count + 1):
        assert ((power.sum(axis=0) > 0) == (found >= level)).all()
        power = power @ edges
    assert not power.any()  # nilpotent


@settings(max_examples=examples(120), deadline=None)
@given(st.integers(1, 6), st.floats(0, 0.5), st.integers(0, 10_000))
def test_a_matrix_is_nilpotent_just_where_peeling_ends(count, density, seed):
    dense = (np.random.default_rng(seed).random((count, count)) < density).astype(float)
    acyclic = not np.linalg.matrix_power(dense, count).any()
    assert acyclic == nx.is_directed_acyclic_graph(nx.DiGraph(dense))
    assert acyclic == bool((levels(csr_array(dense)) >= 0).all())


def test_paths_are_exact_beyond_64_bits():
    diamonds = 200
    edges = [
        (3 * d + a, 3 * d + b, 1.0)
        for d in range(diamonds)
        for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))
    ]
    graph = from_edges("diamonds", 3 * diamonds + 1, edges)
    assert Paths.of(graph).into[-1] == 2**diamonds
