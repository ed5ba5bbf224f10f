"""Inputs that are not at hand: by hand, and every execution's length recounted from the trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.devices.input_reuse_cost import InputDistances
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import StaticPlan

CURVE = ReadingCurve((10.0, 1000.0), (0.0, 0.02), elsewhere=0.005)


def graph_of(edges: list[list[int]], sizes: list[float], kinds: list[str] | None = None):
    """Operators that read what earlier ones wrote; one without reads the job's input of 7 bytes."""
    tensors = [Tensor("x", "input", 7.0)]
    tensors += [Tensor(f"a{i}", "activation", size) for i, size in enumerate(sizes)]
    return DataflowGraph(
        "graph",
        [Operator(f"o{i}", kinds[i] if kinds else "task") for i in range(len(sizes))],
        tensors,
        [[1 + p for p in row] or [0] for row in edges],
        [[1 + i] for i in range(len(sizes))],
        [{"tensor": f"a{len(sizes) - 1}"}],
    )


def cluster_of(*curves: ReadingCurve | None) -> Cluster:
    devices = [Device(f"d{i}", "m", far_inputs=curve) for i, curve in enumerate(curves)]
    return Cluster("cluster", [MemorySpace("m")], devices)


def seconds(graph: DataflowGraph, devices: int = 1) -> CostTable:
    return CostTable({graph: GraphCosts(np.ones((len(graph), devices)))})


def lengths(trace: Trace) -> list[float]:
    """Of executions in the order in which they began."""
    order = np.lexsort((trace.tasks["device"], trace.tasks["start"]))
    return (trace.tasks["finish"] - trace.tasks["start"])[order].tolist()


# -- by hand --------------------------------------------------------------------------------------


def test_a_curve_is_linear_in_the_logarithm_of_the_distance():
    assert CURVE.cost(1) == CURVE.cost(10) == 0.0
    assert CURVE.cost(100) == pytest.approx(0.01)
    assert CURVE.cost(1000) == CURVE.cost(1e9) == 0.02
    assert ReadingCurve.from_json(CURVE.to_json()) == CURVE


@pytest.mark.parametrize(
    ("distances", "costs", "elsewhere"),
    [
        ((), (), 0.0),
        ((1.0,), (0.0, 1.0), 0.0),
        ((2.0, 1.0), (0.0, 1.0), 0.0),
        ((1.0, 2.0), (1.0, 0.5), 0.0),
        ((0.0, 2.0), (0.0, 1.0), 0.0),
        ((1.0, 2.0), (-1.0, 1.0), 0.0),
        ((1.0, 2.0), (0.0, float("nan")), 0.0),
        ((1.0,), (0.0,), -1.0),
    ],
)
def test_what_is_no_curve_is_refused(distances, costs, elsewhere):
    with pytest.raises(InvalidInput, match="curve of far inputs"):
        ReadingCurve(distances, costs, elsewhere)


def test_a_job_alone_takes_its_times():
    graph = graph_of([[], [0], [1], [0, 2]], [100.0, 100.0, 100.0, 1.0])
    trace = simulate(graph, cluster_of(CURVE), seconds(graph), create("fcfs"))
    assert lengths(trace) == [1.0] * 4


def test_jobs_that_take_turns_find_their_inputs_farther_away():
    graph = graph_of([[], [0]], [100.0, 1.0])
    jobs = Workload([Job(graph), Job(graph)])
    # By turns: a0 a0' a1 a1'. Each o0 touches 107 bytes, o1 101: a0 lies 107 away, a0' 101, alone 0.
    plan = StaticPlan([(0, 0), (0, 2)], [(0, 1), (0, 3)])
    trace = simulate(jobs, cluster_of(CURVE), seconds(graph), plan)
    expected = [1.0, 1.0, 1 + 100 * CURVE.cost(107), 1 + 100 * CURVE.cost(101)]
    assert lengths(trace) == pytest.approx(expected, rel=1e-12)
    plan = StaticPlan([(0, 0), (0, 1)], [(0, 2), (0, 3)])  # one after the other
    assert simulate(jobs, cluster_of(CURVE), seconds(graph), plan).makespan == 4.0


def test_what_another_device_wrote_costs_more_until_it_was_read():
    graph = graph_of([[], [0], [0, 1]], [100.0, 1.0, 1.0])
    trace = simulate(
        graph, cluster_of(CURVE, CURVE), seconds(graph, 2), StaticPlan([(0, 0), (1, 1), (1, 2)])
    )
    # a0 has been read there by the time o2 reads it.
    assert lengths(trace) == pytest.approx([1.0, 1 + 100 * 0.005, 1.0])
    only = simulate(
        graph, cluster_of(None, CURVE), seconds(graph, 2), StaticPlan([(0, 0), (1, 1), (1, 2)])
    )
    assert lengths(only) == lengths(trace)
    other = simulate(
        graph, cluster_of(CURVE, None), seconds(graph, 2), StaticPlan([(0, 0), (1, 1), (1, 2)])
    )
    assert lengths(other) == [1.0, 1.0, 1.0]


def test_nearer_than_alone_takes_no_less_than_its_time():
    graph = graph_of([[], [], [0], [1]], [500.0, 500.0, 1.0, 1.0])
    plan = StaticPlan([(0, 0), (0, 2), (0, 1), (0, 3)])  # o2 right behind o0
    assert lengths(simulate(graph, cluster_of(CURVE), seconds(graph), plan)) == [1.0] * 4


def test_of_a_table_that_is_looked_up_no_more_is_touched_than_written():
    tensors = [Tensor("x", "input", 1.0), Tensor("w", "weight", 1e6), Tensor("a", "activation", 50)]
    tensors += [Tensor("b", "activation", 1.0), Tensor("c", "activation", 1.0)]
    graph = DataflowGraph(
        "graph",
        [Operator("o0", "task"), Operator("o1", "embedding"), Operator("o2", "task")],
        tensors,
        [[0], [1, 0], [2, 3]],
        [[2], [3], [4]],
        [{"tensor": "c"}],
    )
    distances = InputDistances([0])
    assert distances.inputs(graph, 0, 0, 0) == distances.inputs(graph, 0, 1, 0) == []
    assert [one.distance for one in distances.inputs(graph, 0, 2, 0)] == [3.0, 0.0]


def test_a_device_of_several_slots_is_refused():
    with pytest.raises(
        InvalidInput, match="far_inputs, which are of one core's caches, and 2 slots"
    ):
        Cluster("c", [MemorySpace("m")], [Device("d", "m", slots=2, far_inputs=CURVE)])


# -- recounted ------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> DataflowGraph:
    count = draw(st.integers(1, 8))
    edges = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)
    ]
    sizes = draw(st.lists(st.integers(0, 400), min_size=count, max_size=count))
    return graph_of(edges, [float(size) for size in sizes])


def recounted(trace: Trace, jobs: Workload) -> list[float]:
    """Lengths of all executions in the order in which they began, each input's distance added up anew over all
    executions since.
    """
    rows = trace.executions
    order = np.lexsort((rows["device"], rows["start"])).tolist()
    begun = [(int(rows["job"][r]), int(rows["operator"][r]), int(rows["device"][r])) for r in order]

    def touched(job: int, operator: int) -> float:
        graph = jobs.jobs[job].graph
        used = [*graph.reads[operator], *graph.writes[operator]]
        return sum(graph.tensors[t].bytes for t in used)

    def distance(position: int, job: int, tensor: int) -> float:
        """Since the tensor was read or written on any device."""
        graph = jobs.jobs[job].graph
        for before in range(position - 1, -1, -1):
            other, operator, _ = begun[before]
            if other == job and tensor in [*graph.reads[operator], *graph.writes[operator]]:
                return sum(touched(*begun[i][:2]) for i in range(before + 1, position))
        raise AssertionError

    def known(position: int, job: int, tensor: int, device: int) -> bool:
        graph = jobs.jobs[job].graph
        return any(
            other == job and where == device and tensor in [*graph.reads[o], *graph.writes[o]]
            for other, o, where in begun[:position]
        )

    found = []
    for position, (job, operator, device) in enumerate(begun):
        graph, longer = jobs.jobs[job].graph, 0.0
        for tensor in graph.reads[operator]:
            if graph.tensor_producer[tensor] < 0:
                continue
            uses = [
                i for i in range(operator) if tensor in graph.reads[i] or tensor in graph.writes[i]
            ]
            alone = sum(touched(job, i) for i in range(uses[-1] + 1, operator))
            each = 0.0 if known(position, job, tensor, device) else CURVE.elsewhere
            here = distance(position, job, tensor)
            longer += graph.tensors[tensor].bytes * (each + CURVE.cost(here) - CURVE.cost(alone))
        found.append(BASE[operator, device] + max(0.0, longer))
    return found


BASE = np.random.default_rng(1).uniform(1.0, 2.0, (8, 2))
"""Seconds of operators; no two executions begin at once but at the beginning."""


@settings(max_examples=examples(60), deadline=None)
@given(graphs(), st.integers(1, 3), st.sampled_from(["fcfs", "heft", "mct", "work_stealing"]))
def test_every_execution_takes_what_its_inputs_cost(graph, count, scheduler):
    jobs = Workload([Job(graph) for _ in range(count)])
    costs = CostTable({graph: GraphCosts(BASE[: len(graph)])})
    trace = simulate(jobs, cluster_of(CURVE, CURVE), costs, create(scheduler))
    assert lengths(trace) == pytest.approx(recounted(trace, jobs), rel=1e-9)
