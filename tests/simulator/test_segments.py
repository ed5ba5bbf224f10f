"""Coarse graphs: what is joined takes what its parts take, and moves what crosses."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.residency import occupancy
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.memory.serving_limits import activation_bytes
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.segments import coarsen
from simulator.schedulers import create
from tests.examples import examples


def diamond() -> DataflowGraph:
    """x -> a -> (b, c) -> d -> y."""
    tensors = [Tensor("x", "input", 8.0), Tensor("w", "weight", 64.0)]
    tensors += [
        Tensor(name, "activation", size)
        for name, size in zip("abcd", (1.0, 2.0, 3.0, 4.0), strict=True)
    ]
    return DataflowGraph(
        "diamond",
        [Operator(name, "task") for name in "abcd"],
        tensors,
        [[0, 1], [2], [2], [3, 4]],
        [[2], [3], [4], [5]],
        [{"tensor": "d"}],
        2,
    )


def test_a_whole_model_reads_its_inputs_and_weights_and_writes_its_results() -> None:
    coarse = coarsen(diamond())
    graph = coarse.graph
    assert [t.name for t in graph.tensors] == ["x", "d", "w"]
    assert graph.batch == 2
    assert len(graph) == 1
    assert graph.outputs == (1,)
    assert graph.inputs == (0,)
    assert graph.weight_bytes == 64.0


def test_what_crosses_between_segments_stays() -> None:
    graph = coarsen(diamond(), [0, 2]).graph
    assert [t.name for t in graph.tensors] == ["x", "a", "b", "d", "w"]
    assert graph.predecessors == ((), (0,))
    assert float(graph.tensor_bytes[list(graph.writes[0])].sum()) == 3.0


def test_all_that_is_written_inside_is_counted() -> None:
    # a 1, b 2, c 3; d is the result.
    assert coarsen(diamond()).graph.inner_written == (6.0,)
    # a and b cross to the second segment, which writes c for itself.
    assert coarsen(diamond(), [0, 2]).graph.inner_written == (0.0, 3.0)
    assert coarsen(diamond(), 4).graph.inner_written == (0.0,) * 4


def test_of_what_stays_inside_the_most_at_once_is_kept() -> None:
    # a 1, b 2, c 3 before c has read a; d is the result.
    assert coarsen(diamond()).graph.inner_bytes == (6.0,)
    assert coarsen(diamond(), [0, 2]).graph.inner_bytes == (0.0, 3.0)
    assert coarsen(diamond(), 4).graph.inner_bytes == (0.0,) * 4


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(2, 8), st.integers(0, 100))
def test_a_whole_model_needs_the_memory_of_its_operators(count: int, seed: int) -> None:
    """The operators of a chain, one after another, and the model as one operator: what is inside at its
    most, and the result, which the model has room for from the start.
    """
    sizes = np.random.default_rng(seed).integers(1, 100, count)
    names = [f"h{i}" for i in range(count)]
    graph = DataflowGraph(
        "chain",
        [Operator(f"o{i}", "task") for i in range(count)],
        [Tensor(name, "activation", float(n)) for name, n in zip(names, sizes, strict=True)],
        [[i - 1] if i else [] for i in range(count)],
        [[i] for i in range(count)],
        [{"tensor": names[-1]}],
    )
    cluster = Cluster("one", [MemorySpace("m", 1e9)], [Device("d", "m")], host="m")

    def peak(what: DataflowGraph) -> float:
        costs = CostTable.of(what, np.ones((len(what), 1)))
        trace = simulate(what, cluster, costs, create("fcfs"), memory="limited")
        reserved: float = trace.meta["peak_bytes"][0]
        assert occupancy(trace)[0].peak == reserved
        return reserved

    inside = max(int(sizes[i]) + int(sizes[i - 1]) * (i > 0) for i in range(count - 1))
    assert peak(coarsen(graph).graph) == inside + int(sizes[-1])
    assert peak(graph) == activation_bytes(graph, serial=True)
    assert peak(graph) <= peak(coarsen(graph).graph)


def test_times_add_up_and_bring_launches_along() -> None:
    seconds = np.array([[1.0, 2.0], [3.0, np.inf], [5.0, 6.0], [7.0, 8.0]])
    spread = np.full((4, 2), 0.1)
    in_range = np.array([[True, True], [True, True], [True, True], [False, True]])
    costs = coarsen(diamond(), [0, 2]).costs(
        GraphCosts(seconds, spread, in_range), np.array([0.5, 0.25])
    )
    assert costs.seconds.tolist() == [[4.5, np.inf], [12.5, 14.25]]
    assert costs.in_range is not None
    assert costs.spread is not None
    assert costs.in_range[:, 0].tolist() == [True, False]
    assert costs.spread[1, 0] == pytest.approx(0.1 * np.hypot(5, 7) / 12.5)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 4), st.floats(0, 0.01), st.integers(0, 100))
def test_segments_and_operators_take_the_same_time_on_an_unloaded_device(
    segments: int, overhead: float, seed: int
) -> None:
    graph = diamond()
    cluster = Cluster(
        "one", [MemorySpace("m")], [Device("d", "m", launch_overhead=overhead)], host="m"
    )
    seconds = np.random.default_rng(seed).uniform(0.1, 1, (4, 1))
    fine = CostTable.of(graph, seconds)
    coarse = coarsen(graph, segments)
    joined = CostTable({coarse.graph: coarse.costs(fine[graph], np.array([overhead]))})
    one = simulate(graph, cluster, fine, create("fcfs")).makespan
    two = simulate(coarse.graph, cluster, joined, create("fcfs")).makespan
    assert two == pytest.approx(one)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        (0, "cannot be 0 segments"),
        (5, "cannot be 5 segments"),
        ([1, 2], "ascend from 0"),
        ([0, 9], "below 4"),
    ],
)
def test_impossible_segments(segments: int | list[int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        coarsen(diamond(), segments)


def test_weights_that_the_same_segments_read_are_one_tensor() -> None:
    tensors = [Tensor("x", "input", 1.0), *(Tensor(f"w{i}", "weight", 2.0**i) for i in range(3))]
    tensors += [Tensor(f"y{i}", "activation", 1.0) for i in range(3)]
    graph = DataflowGraph(
        "tied",
        [Operator(f"o{i}", "task") for i in range(3)],
        tensors,
        [[0, 1, 2], [4, 2], [5, 3]],
        [[4], [5], [6]],
        [{"tensor": "y2"}],
    )
    whole = coarsen(graph).graph
    assert whole.weight_bytes == 7.0
    assert len(whole.weights) == 1
    halves = coarsen(graph, [0, 1]).graph  # w1 is read by both and counts once
    assert sorted(halves.tensor_bytes[list(halves.weights)].tolist()) == [1.0, 2.0, 4.0]


# -- parts of any acyclic partition ------------------------------------------------------------


def random_graph(rng: np.random.Generator, count: int) -> DataflowGraph:
    """Operators that read up to three tensors each, of an input, weights and earlier operators."""
    sizes = rng.integers(1, 100, count + 3).astype(float)
    tensors = [
        Tensor("x", "input", sizes[0]),
        *(Tensor(f"w{i}", "weight", sizes[1 + i]) for i in (0, 1)),
    ]
    tensors += [Tensor(f"h{i}", "activation", sizes[3 + i]) for i in range(count)]
    reads = [
        rng.choice(3 + i, min(3 + i, int(rng.integers(1, 4))), replace=False) for i in range(count)
    ]
    return DataflowGraph(
        "random",
        [Operator(f"o{i}", "task") for i in range(count)],
        tensors,
        [row.tolist() for row in reads],
        [[3 + i] for i in range(count)],
        [{"tensor": f"h{count - 1}"}],
    )


@settings(max_examples=examples(120), deadline=None)
@given(st.integers(1, 10), st.integers(1, 4), st.integers(0, 10_000))
def test_any_partition_is_joined_or_refused(count: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, count)
    parts = rng.integers(0, most, count)
    quotient = nx.DiGraph()
    quotient.add_nodes_from(parts.tolist())
    edges = zip(parts[graph.edge_source].tolist(), parts[graph.edge_target].tolist(), strict=True)
    quotient.add_edges_from((a, b) for a, b in edges if a != b)
    if not nx.is_directed_acyclic_graph(quotient):
        with pytest.raises(InvalidInput, match=r"cyclic: part \d .* and part \d .* wait for each"):
            coarsen(graph, parts=parts)
        return
    found = coarsen(graph, parts=parts)
    coarse = found.graph
    # The same operators stand together, and what one part reads of another is what crosses, byte for byte.
    assert len(coarse) == len(quotient)
    assert len({*zip(parts.tolist(), found.owner.tolist(), strict=True)}) == len(coarse)
    crossing = {
        (graph.tensors[t].name, graph.tensors[t].bytes, found.owner[a], found.owner[b])
        for a, b, t in zip(graph.edge_source, graph.edge_target, graph.edge_tensor, strict=True)
        if parts[a] != parts[b]
    }
    edges = zip(coarse.edge_source, coarse.edge_target, coarse.edge_tensor, strict=True)
    assert crossing == {
        (coarse.tensors[t].name, coarse.tensors[t].bytes, a, b) for a, b, t in edges
    }
    assert coarse.weight_bytes == sum(
        tensor.bytes
        for i, tensor in enumerate(graph.tensors)
        if tensor.role == "weight" and graph.consumers[i]
    )
    seconds = rng.uniform(0.1, 1, (count, 2))
    summed = np.zeros((len(coarse), 2))
    for operator, row in enumerate(seconds):
        summed[found.owner[operator]] += row
    assert found.costs(GraphCosts(seconds)).seconds == pytest.approx(summed)


def test_consecutive_parts_are_segments() -> None:
    one, two = (
        coarsen(diamond(), [0, 2]).graph,
        coarsen(diamond(), parts=np.array([5, 5, 7, 7])).graph,
    )
    assert one.digest == two.digest
    assert (one.inner_bytes, one.inner_written) == (two.inner_bytes, two.inner_written)
    with pytest.raises(InvalidInput, match="each of its 4 operators an integer"):
        coarsen(diamond(), parts=np.zeros(3, dtype=int))


def test_what_is_changed_in_place_stays_readable() -> None:
    """Of a cache that two operators change one after the other its last state; of scratch memory nothing."""
    tensors = [Tensor("x", "input", 1.0), Tensor("cache", "weight", 8.0)]
    tensors += [
        Tensor(n, "activation", 8.0) for n in ("one", "cache:updated", "empty", "filled", "y")
    ]
    writes = "aten.copy_.default"
    graph = DataflowGraph(
        "cached",
        [
            *(Operator(name, "copy", target=writes) for name in ("write", "again")),
            Operator("empty", "empty"),
            Operator("fill", "copy", target=writes),
            Operator("sum", "add"),
        ],
        tensors,
        [[1, 0], [2, 0], [], [4, 0], [3, 5]],
        [[2], [3], [4], [5], [6]],
        [{"tensor": "y"}],
    )
    whole = coarsen(graph).graph
    assert [whole.tensors[t].name for t in whole.writes[0]] == ["cache:updated", "y"]
    halves = coarsen(graph, parts=np.array([0, 1, 0, 0, 1])).graph
    assert [halves.tensors[t].name for t in halves.writes[0]] == ["one", "filled"]
    assert [halves.tensors[t].name for t in halves.writes[1]] == ["cache:updated", "y"]


def test_a_weight_that_changes_unread_stays_beside_its_new_state() -> None:
    tensors = [Tensor("w", "weight", 4.0), Tensor("w:updated", "activation", 4.0)]
    operators = [Operator("a", "relu"), Operator("b", "relu")]
    graph = DataflowGraph("g", operators, tensors, [[], [1]], [[1], []], [], None)
    found = coarsen(graph, 2).graph
    assert {tensor.name for tensor in found.tensors} == {"w", "w:updated"}
