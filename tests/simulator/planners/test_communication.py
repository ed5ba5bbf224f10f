"""Mean transfer times as planners see them."""

from __future__ import annotations

import pytest

from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.planners.communication import Communication, mean_edge_seconds


def test_a_bare_instance_has_its_edges_seconds() -> None:
    graph = from_edges("pair", 2, [(0, 1, 7.0)])
    assert mean_edge_seconds(graph, Communication(fully_connected("bare", 3))) == [{1: 7.0}, {}]


def test_mean_over_ordered_pairs_of_devices() -> None:
    """Two CPUs in a, a GPU in b: 2 of the 6 ordered pairs need no transfer."""
    cluster = Cluster(
        "mixed",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("c0", "a"), Device("c1", "a"), Device("g", "b")],
        [Link("ab", ("a", "b"), 2.0, 0.5)],
    )
    communication = Communication(cluster)
    latency, bandwidth = communication.wires(0)
    assert latency[1] + 4.0 / bandwidth[1] == 2.5
    assert latency[0] + 4.0 / bandwidth[0] == 0.0
    assert communication.mean_seconds(4.0) == pytest.approx(4 / 6 * 2.5)
    one = Cluster("one", [MemorySpace("a")], [Device("c0", "a")])
    assert Communication(one).mean_seconds(4.0) == 0.0


def test_the_largest_tensor_between_two_operators_counts() -> None:
    graph = DataflowGraph(
        "double",
        [Operator("p", "task"), Operator("q", "task")],
        [Tensor("x", "activation", 1.0), Tensor("y", "activation", 5.0)],
        [[], [0, 1]],
        [[0, 1], []],
    )
    assert mean_edge_seconds(graph, Communication(fully_connected("bare", 2))) == [{1: 5.0}, {}]
