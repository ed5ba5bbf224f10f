"""Bare graphs: objects are made when they are asked for, and are those that would have been given."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph, from_arrays, from_edges
from simulator.model.operator import Operator, Tensor
from tests.examples import examples


@st.composite
def edges_of(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    """(tasks, edges) without a cycle; edges may repeat, and task numbers need not be in order."""
    tasks = draw(st.integers(1, 8))
    number = draw(st.permutations(range(tasks)))
    ends = st.tuples(st.integers(0, tasks - 1), st.integers(0, tasks - 1))
    pairs = draw(st.lists(ends.filter(lambda p: p[0] != p[1]), max_size=14)) if tasks > 1 else []
    return tasks, [(number[min(p)], number[max(p)], float(k)) for k, p in enumerate(pairs)]


@settings(max_examples=examples(150), deadline=None)
@given(edges_of())
def test_the_same_graph_as_one_of_objects(made: tuple[int, list[tuple[int, int, float]]]) -> None:
    tasks, edges = made
    graph = from_edges("bare", tasks, edges)
    # The smallest task all of whose parents stand before it comes next.
    order: list[int] = []
    while len(order) < tasks:
        left = [t for t in range(tasks) if t not in order]
        order.append(next(t for t in left if all(a in order for a, b, _ in edges if b == t)))
    by_hand = DataflowGraph(
        "bare",
        [Operator(f"t{t}", "task") for t in order],
        [Tensor(f"t{a}->t{b}#{k}", "activation", size) for k, (a, b, size) in enumerate(edges)],
        [[k for k, (_, b, _) in enumerate(edges) if b == t] for t in order],
        [[k for k, (a, _, _) in enumerate(edges) if a == t] for t in order],
    )
    assert (graph.operators, graph.tensors) == (by_hand.operators, by_hand.tensors)
    assert graph.operator_names == by_hand.operator_names
    assert graph.operator_kinds == by_hand.operator_kinds
    assert graph.digest == by_hand.digest
    for name in ("reads", "writes", "producer", "consumers", "successors", "predecessors"):
        assert getattr(graph, name) == getattr(by_hand, name), name
    for name in ("activations_read", "inputs", "weights", "outputs"):
        assert getattr(graph, name) == getattr(by_hand, name), name
    for name in ("edge_source", "edge_target", "edge_tensor", "tensor_bytes", "in_degree"):
        assert getattr(graph, name).tolist() == getattr(by_hand, name).tolist(), name
    rows = np.array(edges, dtype=np.float64).reshape(-1, 3).T
    source, target = rows[:2].astype(np.int64)
    assert from_arrays("bare", tasks, source, target, rows[2]).digest == graph.digest


def test_sequences_behave_like_tuples() -> None:
    graph = from_edges("pair", 3, [(2, 1, 5.0), (1, 0, 7.0)], names=["a", "b", "c"])
    operators, tensors = graph.operators, graph.tensors
    assert [operator.name for operator in operators] == ["c", "b", "a"]
    assert (operators[-1].name, operators[1].kind) == ("a", "task")
    assert operators[1:] == (Operator("b", "task"), Operator("a", "task"))
    assert (tensors[-1].name, tensors[0].bytes) == ("b->a#1", 5.0)
    assert tensors[:1] == (Tensor("c->b#0", "activation", 5.0),)
    for sequence in (operators, tensors):
        assert sequence == tuple(sequence)
        assert sequence != tuple(sequence)[:-1]
        with pytest.raises(IndexError):
            sequence[len(sequence)]
        with pytest.raises(IndexError):
            sequence[-len(sequence) - 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, [], [], []), "Graph 'g' has no operators"),
        ((2, [0], [1, 1], [1.0]), "columns have 1, 2 and 1 entries"),
        ((2, [0.0], [1.0], [1.0]), "the ends of edges are float64, not integers"),
        ((2, [0, -1], [1, 1], [1.0, 1.0]), r"Edge \[-1, 1\] names a task outside 0..1"),
        ((2, [0], [1], [-2.0]), r"'t0->t1#0' has -2.0 bytes"),
        ((2, [0], [1], [1.0], ["x"]), "1 names were given for 2 operators"),
        ((2, [0], [1], [1.0], ["x", "x"]), "two operators have the name 'x'"),
        (
            (2, [0, 1], [1, 0], [1.0, 1.0]),
            "has a cycle: t0 -> t1 -> t0|has a cycle: t1 -> t0 -> t1",
        ),
    ],
)
def test_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        from_arrays("g", *arguments)  # type: ignore[arg-type]


def test_edges_that_are_no_integers() -> None:
    with pytest.raises(InvalidInput, match="the ends of edges are float64, not integers"):
        from_edges("g", 2, [(0.5, 1, 1.0)])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"names a task outside 0..1"):
        from_edges("g", 2, [(0, 10**30, 1.0)])


def test_no_object_for_a_task_or_an_edge() -> None:
    tasks = 20_000
    target = np.repeat(np.arange(1, tasks), 3)
    source = target - 1
    tracemalloc.start()
    graph = from_arrays("chain", tasks, source, target, np.ones(len(target)))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(graph) == tasks
    assert held < 50 * len(target)  # a tuple of one integer alone takes more
    assert peak < 120 * len(target)
