"""Minimum cuts and contiguous partitions against all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.planners.contiguous import front
from simulator.planners.min_cut import articulation_points, min_cut
from tests.examples import examples


@st.composite
def shared_graphs(draw, most=8):
    """Graphs in which every operator writes one tensor that any number of later ones may read; one input."""
    count = draw(st.integers(1, most))
    reads = [
        [0],
        *(draw(st.sets(st.integers(0, i), min_size=1, max_size=3)) for i in range(1, count)),
    ]
    tensors = [Tensor("x", "input", 1.0)]
    tensors += [Tensor(f"t{i}", "activation", 1.0) for i in range(count)]
    operators = [Operator(f"o{i}", "task") for i in range(count)]
    writes = [[i + 1] for i in range(count)]
    return DataflowGraph("drawn", operators, tensors, [sorted(r) for r in reads], writes)


def down_sets(graph):
    for chosen in itertools.product((False, True), repeat=len(graph)):
        if all(chosen[p] for i in range(len(graph)) if chosen[i] for p in graph.predecessors[i]):
            yield np.array(chosen)


def serial(graph, local, remote, upload, chosen):
    """Definition: operators where they are, and every tensor that a remote operator reads of the device, once."""
    total = sum((local if here else remote)[i] for i, here in enumerate(chosen))
    for tensor, readers in enumerate(graph.consumers):
        at_device = graph.producer[tensor] < 0 or chosen[graph.producer[tensor]]
        total += upload[tensor] * (at_device and any(not chosen[r] for r in readers))
    return total


@settings(max_examples=examples(150), deadline=None)
@given(shared_graphs(), st.data())
def test_the_minimum_cut_is_the_best_down_set(graph, data):
    def drawn(count):
        return data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))

    given_ = drawn(len(graph)), drawn(len(graph)), drawn(len(graph) + 1)
    cut = min_cut(graph, *given_)
    sums = [serial(graph, *given_, chosen) for chosen in down_sets(graph)]
    assert cut.seconds == min(sums) == serial(graph, *given_, cut.local)
    points = articulation_points(graph)
    # Every cut has a last articulation point on the device, so those between two of them are all.
    bounds = [0, *(point + 1 for point in points), len(graph)]
    blocks = [range(a, b) for a, b in itertools.pairwise(bounds)]
    assert min(min_cut(graph, *given_, block).seconds for block in blocks) == cut.seconds


@settings(max_examples=examples(100), deadline=None)
@given(shared_graphs(12))
def test_articulation_points_are_comparable_with_all(graph):
    before = [{i} for i in range(len(graph))]
    for i in range(len(graph)):
        for p in graph.predecessors[i]:
            before[i] |= before[p]
    everything = range(len(graph))
    # Nothing may go round, the job's input (which has no producer) included.
    wanted = [i for i in everything if all(j in before[i] or i in before[j] for j in everything)]
    found = articulation_points(graph)
    assert set(found) <= set(wanted)
    passed = {
        i for j in everything for t in graph.reads[j] for i in range(graph.producer[t] + 1, j)
    }
    assert [i for i in wanted if i not in passed] == found


def test_an_operator_that_a_side_cannot_run_is_on_the_other():
    graph = DataflowGraph(
        "two", [Operator("a", "t"), Operator("b", "t")],
        [Tensor("x", "input", 1), Tensor("y", "activation", 1)], [[0], [1]], [[1], []],
    )  # fmt: skip
    cut = min_cut(graph, [1, np.inf], [np.inf, 1], [5, 5])
    assert cut.local.tolist() == [True, False]
    assert cut.seconds == 7


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 3), st.integers(0, 4), st.integers(1, 9), st.data())
def test_contiguous_partitions_against_all(parts, more, jobs, data):
    units = parts + more
    cell = st.integers(0, 9)
    times = np.array(data.draw(st.lists(st.lists(cell, min_size=parts, max_size=parts),
                                        min_size=units, max_size=units)))  # fmt: skip
    moved = np.array(data.draw(st.lists(st.lists(cell, min_size=units, max_size=units),
                                        min_size=parts - 1, max_size=parts - 1)))  # fmt: skip
    moved = moved.reshape(parts - 1, units)
    every = []
    for inner in itertools.combinations(range(1, units), parts - 1):
        bounds = [0, *inner, units]
        stages = [times[a:b, p].sum() for p, (a, b) in enumerate(itertools.pairwise(bounds))]
        stages += [moved[p, start] for p, start in enumerate(inner)]
        every.append((sum(stages), max(stages)))
    partitions = front(times, moved)
    assert partitions[-1].slowest == min(slowest for _, slowest in every)
    best = min(part.pipelined(jobs) for part in partitions)
    assert best == min(total + (jobs - 1) * slowest for total, slowest in every)
    found = [(part.seconds, part.slowest) for part in partitions]
    assert set(found) <= set(every)
    assert found == sorted(set(found))


def test_more_parts_than_units_are_refused():
    with pytest.raises(InvalidInput, match="2 units cannot be 3 parts"):
        front(np.ones((2, 3)))
