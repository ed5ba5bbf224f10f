"""The DONF family against its author's unit test and an independent computation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.instances import instance_from_json
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor
from simulator.schedulers import create
from simulator.schedulers.donf import Adon, Donf2, weighted_out_degree
from tests.simulator.scripted import Recorded

CLASSIC: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "oracles" / "classic.json").read_text()
)
AUTHORS = from_edges(
    "tripletrun",
    7,
    [
        (a, b, 1.0)
        for a, b in ((0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (2, 5), (3, 6), (4, 6), (5, 6))
    ],
)
"""The graph of TripletRun's unit test; its node 8 is 6 here."""


def test_weights_of_the_authors_test() -> None:
    third = 1 / 3
    wod = [2, 1.5, 1.5, third, third, third, 0]
    assert weighted_out_degree(AUTHORS) == pytest.approx(wod)
    adon = [3.8333333, 1.8333333, 1.8333333, third, third, third, 0]
    assert Adon().degrees(AUTHORS) == pytest.approx(adon)
    assert Donf2().degrees(AUTHORS)[0] == pytest.approx(3.5)


def test_weights_of_topcuoglu() -> None:
    graph, _, _ = instance_from_json(CLASSIC["topcuoglu2002"])
    expected = [5, 2 / 3, 1, 2 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 0]
    assert weighted_out_degree(graph) == pytest.approx(expected)


def test_several_tensors_between_two_operators_are_one_edge() -> None:
    graph = DataflowGraph(
        "double",
        [Operator("p", "task"), Operator("q", "task")],
        [Tensor("x", "activation", 1.0), Tensor("y", "activation", 1.0)],
        [[], [0, 1]],
        [[0, 1], []],
    )
    assert weighted_out_degree(graph) == [1.0, 0.0]


def test_order_on_topcuoglu() -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"])
    recorded = Recorded(create("donf"))
    simulate(graph, cluster, costs, recorded, movement="pull")
    placed = [row[0] for d in recorded.decisions for verb, row in d.verbs if verb == "place"]
    assert [int(task) + 1 for task in placed] == [1, 3, 2, 4, 5, 6, 7, 9, 8, 10]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("contention", "half_duplex", "pricing", "makespan"),
    [
        ("none", False, "per_link", 103),
        ("none", False, "contention_aware", 103),
        ("none", True, "per_link", 103),
        ("fifo", True, "per_link", 110),
        ("fifo", True, "contention_aware", 110),
        ("fifo", False, "per_link", 110),
        ("fifo", False, "contention_aware", 113),
    ],
)
def test_topcuoglu(contention: str, half_duplex: bool, pricing: str, makespan: float) -> None:
    graph, cluster, costs = instance_from_json(CLASSIC["topcuoglu2002"], half_duplex=half_duplex)
    scheduler = create("donf", pricing=pricing)
    trace = simulate(graph, cluster, costs, scheduler, movement="pull", contention=contention)
    assert trace.makespan == makespan


@pytest.mark.parametrize("contention", ["none", "fifo"])
@pytest.mark.parametrize("half_duplex", [False, True])
@pytest.mark.parametrize("pricing", ["per_link", "contention_aware"])
def test_peft_graph(contention: str, half_duplex: bool, pricing: str) -> None:
    document = CLASSIC["arabnejad2014_peft"]
    graph, cluster, costs = instance_from_json(document, half_duplex=half_duplex)
    scheduler = create("donf", pricing=pricing)
    trace = simulate(graph, cluster, costs, scheduler, movement="pull", contention=contention)
    assert trace.makespan == 146


@pytest.mark.parametrize(
    ("pricing", "device"), [("per_edge", "B"), ("per_link", "A"), ("contention_aware", "A")]
)
def test_pricing_decides(pricing: str, device: str) -> None:
    """Two tensors of 3 B on one link: 3 s priced one by one, 6 s together; A needs 4 s more."""
    graph = from_edges("two", 3, [(0, 2, 3.0), (1, 2, 3.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    never = float("inf")
    costs = CostTable.of(graph, np.array([[1, never], [1, never], [5, 1]]))
    trace = simulate(graph, cluster, costs, create("donf", pricing=pricing), contention="fifo")
    assert trace.devices[trace.tasks["device"][2]] == device


def test_contention_aware_pricing_sees_a_busy_link() -> None:
    """q's 6 B are on the link when r (3 B) is placed: aware of them r stays on A."""
    graph = from_edges("busy", 3, [(0, 1, 6.0), (0, 2, 3.0)])
    cluster = Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b"), Device("C", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )
    never = float("inf")
    costs = CostTable.of(graph, np.array([[1, never, never], [never, 1, never], [6, never, 1]]))
    found = {}
    for pricing in ("per_link", "contention_aware"):
        scheduler = create("donf", pricing=pricing)
        trace = simulate(graph, cluster, costs, scheduler, contention="fifo")
        found[pricing] = (int(trace.tasks["device"][2]), float(trace.tasks["finish"][2]))
    assert found == {"per_link": (2, 11.0), "contention_aware": (0, 7.0)}


def test_unknown_pricing() -> None:
    with pytest.raises(InvalidInput, match="Unknown pricing 'free'; known: per_edge, per_link"):
        create("donf", pricing="free")
