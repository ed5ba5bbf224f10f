"""Slices of recurrent networks: the closed form by the engine, and steps and layers of graphs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.partition.partitioner import Problem, partition
from scenarios.partition.recurrence import recurrence
from scenarios.partition.rnn_slices import RnnSlices, crossing
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.workload import Job, Workload
from tests.examples import examples

TWO = Cluster(
    "two",
    [MemorySpace("ram"), MemorySpace("vram")],
    [Device("cpu", "ram"), Device("gpu", "vram")],
    [Link("pcie", ("ram", "vram"), 1.0)],
)


def cells(layers, steps, state=0.5):
    """A grid of cells; cell (layer, step) reads the states of (layer - 1, step) and (layer, step - 1)."""
    tensors = [Tensor(f"w{layer}", "weight", 0.0) for layer in range(layers)]
    places = [(layer, step) for step in range(steps) for layer in range(layers)]
    tensors += [Tensor(f"h{layer}_{step}", "activation", state) for layer, step in places]
    at = {place: layers + number for number, place in enumerate(places)}
    operators = [Operator(f"anything{number}", "cell") for number in range(len(places))]
    reads = [
        [layer, *(at[p] for p in ((layer - 1, step), (layer, step - 1)) if p in at)]
        for layer, step in places
    ]
    return DataflowGraph("cells", operators, tensors, reads, [[at[place]] for place in places])


def problem(graph, jobs, cpu, gpu=1.0, cluster=TWO):
    costs = CostTable.of(graph, np.array([(cpu, gpu)] * len(graph)))
    return Problem(Workload([Job(graph)] * jobs), cluster, costs)


@pytest.mark.parametrize(
    ("ratio", "jobs", "saved"),
    [
        (2, 1, 0.0),
        (2, 4, 15.2),
        (2, 8, 23.2),
        (2, 16, 27.2),
        (2, 64, 30.2),
        (3, 16, 20.2),
        (5, 16, 10.6),
    ],
)
def test_savings_over_the_best_device_by_the_engine(ratio, jobs, saved):
    asked = problem(cells(1, 32), jobs, float(ratio))
    found = partition(RnnSlices(), asked)
    alone = found.makespans["all on gpu"]
    assert alone == 32 * jobs
    assert 100 * (1 - found.plan.makespan_s / alone) == pytest.approx(saved, abs=0.05)
    assert 1 - found.plan.makespan_s / alone < 1 / (1 + ratio)
    best = min(
        s * ratio + 0.5 + (32 - s) + (jobs - 1) * max(s * ratio, 0.5, 32 - s) for s in range(1, 32)
    )
    assert found.plan.makespan_s == min(best, 32 * jobs)


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(2, 7), st.integers(1, 6), st.data())
def test_the_closed_form_by_the_engine(steps, jobs, data):
    cpu, gpu, state = (data.draw(st.integers(1, 8)) for _ in range(3))
    asked = problem(cells(1, steps, float(state)), jobs, float(cpu), float(gpu))
    every = [jobs * steps * cpu, jobs * steps * gpu]
    for (a, b), s in itertools.product(((cpu, gpu), (gpu, cpu)), range(1, steps)):
        stages = s * a, state, (steps - s) * b
        every.append(sum(stages) + (jobs - 1) * max(stages))
    plan = RnnSlices().plan(asked)
    assert asked.makespan(plan) == plan.makespan_s == min(every)
    if jobs == 1:  # serial steps: a second device gains one task nothing
        assert plan.makespan_s == min(every[:2])


def test_three_devices_are_three_stages():
    cluster = Cluster(
        "three",
        [MemorySpace(n) for n in "abc"],
        [Device(n, n) for n in "abc"],
        [Link(x + y, (x, y), 1.0) for x, y in ("ab", "bc", "ac")],
    )
    graph = cells(1, 12)
    costs = CostTable.of(graph, np.array([(1.0, 1.0, 2.0)] * 12))
    asked = Problem(Workload([Job(graph)] * 20), cluster, costs)
    plan = RnnSlices().plan(asked)
    # 5, 5 and 2 steps: 5, 5 and 4 seconds, and two states.
    assert asked.makespan(plan) == plan.makespan_s == 5 + 0.5 + 5 + 0.5 + 4 + 19 * 5
    both = RnnSlices(devices=["a", "c"]).plan(asked)
    assert both.makespan_s == 8 + 0.5 + 8 + 19 * 8


def test_layers_against_steps():
    """Two layers on devices of equal speed: by layers one task already gains, as its layers overlap."""
    asked = problem(cells(2, 16, 0.0), 1, 1.0)
    assert RnnSlices(by="layers").plan(asked).makespan_s == 17
    for by in ("steps", "wavefronts"):
        assert RnnSlices(by=by).plan(asked).makespan_s <= 32
    # Three times as fast: layers cannot be divided three to one, steps can.
    many = problem(cells(2, 16, 0.0), 32, 3.0)
    slices, layers = (RnnSlices(by=by).plan(many).makespan_s for by in ("steps", "layers"))
    # A little less than the closed form: the first layer's state crosses while the second layer still runs.
    assert 24 + 24 + 31 * 24 - 3 <= slices < 24 + 24 + 31 * 24
    assert layers == 32 * 32  # all on the fast one
    assert slices < layers


def test_cells_run_by_diagonals():
    """One task of four layers by eight steps on two equal devices: the first layer's state crosses after few cells."""
    asked = problem(cells(4, 8, 0.0), 1, 1.0)
    # The second device begins after seven cells (diagonals of 1, 2 and 3, and the fourth's first), waits for two more
    # on the way, and has 16; step by step it would begin after thirteen.
    assert RnnSlices().plan(asked).makespan_s == 25


def test_what_crosses_is_counted_once_at_every_boundary():
    """A state goes on to the next step alone, the first one also to the last operator."""
    tensors = [Tensor("w", "weight", 0), *(Tensor(f"h{i}", "activation", 2.0**i) for i in range(4))]
    operators = [Operator(f"o{i}", "cell") for i in range(4)]
    reads = [[0], [0, 1], [0, 2], [0, 3, 1]]
    graph = DataflowGraph("c", operators, tensors, reads, [[i + 1] for i in range(4)])
    found = crossing(problem(graph, 1, 1.0), graph, np.arange(4), (0, 1))
    assert found.tolist() == [0, 1, 2 + 1, 4 + 1]


def test_equal_devices_of_one_memory_are_tried_once():
    shared = replace(TWO, devices=[Device("cpu", "ram"), Device("gpu", "ram")])
    plan = RnnSlices().plan(problem(cells(1, 8), 4, 1.0, cluster=shared))
    assert plan.makespan_s == 4 + 4 + 3 * 4


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 4), st.integers(2, 6), st.randoms())
def test_steps_and_layers_of_a_grid_in_any_order(layers, steps, random):
    graph = cells(layers, steps)
    wanted = {f"anything{i}": divmod(i, layers) for i in range(len(graph))}
    document = graph.to_json()
    random.shuffle(document["operators"])
    shuffled = DataflowGraph.from_json(document)
    found = recurrence(shuffled)
    names = [operator.name for operator in shuffled.operators]
    assert list(zip(found.step, found.layer, strict=True)) == [wanted[name] for name in names]


def test_what_is_no_cell_stands_with_the_cells_around_it():
    """Embeddings of each step, a cell of two operators, a second network behind the first, and a head."""
    names = ["e0", "e1", "a0", "b0", "a1", "b1", "d0", "d1", "head"]
    kinds = ["embedding"] * 2 + ["linear", "tanh"] * 2 + ["linear"] * 3
    tensors = [Tensor(w, "weight", 1) for w in ("table", "w", "v", "u")] + [Tensor("x", "input", 1)]
    tensors += [Tensor(f"t{name}", "activation", 1) for name in names]
    of = {tensor.name: number for number, tensor in enumerate(tensors)}
    read = {
        "e0": "x table", "e1": "x table", "a0": "te0 w", "b0": "ta0", "a1": "te1 tb0 w",
        "b1": "ta1", "d0": "tb1 v", "d1": "td0 v", "head": "td1 u",
    }  # fmt: skip
    graph = DataflowGraph(
        "parts", [Operator(n, k) for n, k in zip(names, kinds, strict=True)], tensors,
        [[of[t] for t in read[n].split()] for n in names], [[of[f"t{n}"]] for n in names],
    )  # fmt: skip
    found = recurrence(graph)
    assert found.step.tolist() == [0, 1, 0, 0, 1, 1, 1, 2, 2]
    assert found.layer.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]


def test_what_cannot_be_sliced_is_refused():
    flat = DataflowGraph("flat", [Operator("a", "t")], [Tensor("x", "input", 1)], [[0]], [[]])
    with pytest.raises(InvalidInput, match="Graph 'flat' has no recurrent steps"):
        RnnSlices().plan(problem(flat, 1, 1.0))
    with pytest.raises(InvalidInput, match="by=time; known: steps, wavefronts, layers"):
        RnnSlices(by="time")
    with pytest.raises(InvalidInput, match="names device 'tpu'"):
        RnnSlices(devices=["tpu"]).plan(problem(cells(1, 3), 1, 1.0))
    many = Cluster("many", [MemorySpace("m")], [Device(f"d{i}", "m") for i in range(6)])
    graph = cells(1, 8)
    asked = Problem(Workload([Job(graph)]), many, CostTable.of(graph, np.ones((8, 6))))
    with pytest.raises(
        InvalidInput, match="tries all orders of 1 to 5 devices, cluster 'many' has 6"
    ):
        RnnSlices().plan(asked)
