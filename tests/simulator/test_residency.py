"""Memory in use: worked out by hand, and by a plain loop over every instant for random runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from simulator.analysis.dependencies import latest
from simulator.analysis.residency import occupancy
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.scripted import StaticPlan
from tests.simulator.strategies import Case, cases

PAIR = Cluster(
    "pair",
    [MemorySpace("ram"), MemorySpace("vram")],
    [Device("cpu", "ram"), Device("gpu", "vram")],
    [Link("bus", ("ram", "vram"), 10.0)],
)


def chain(batch: int | None = None) -> DataflowGraph:
    #  x (20 B) -> p [weights w] -> a (30 B) -> q [weights w, v] -> y (10 B)
    tensors = [
        Tensor("x", "input", 20.0),
        Tensor("w", "weight", 100.0),
        Tensor("v", "weight", 7.0),
        Tensor("a", "activation", 30.0),
        Tensor("y", "activation", 10.0),
    ]
    return DataflowGraph(
        "chain",
        [Operator("p", "task"), Operator("q", "task")],
        tensors,
        [[0, 1], [3, 1, 2]],
        [[3], [4]],
        [{"tensor": "y", "views": []}],
        batch,
    )


def steps(trace: Trace) -> list[dict[float, float]]:
    return [dict(zip(o.time.tolist(), o.bytes.tolist(), strict=True)) for o in occupancy(trace)]


def test_a_job_between_two_memories() -> None:
    graph = chain()
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [9.0, 2.0]]))
    workload = Workload([Job(graph, origin="ram", destination="ram")])
    trace = simulate(workload, PAIR, costs, StaticPlan([(0, 0.0), (1, 0.0)]))
    # p 0-1 on cpu; a crosses 1-4; q 4-6 on gpu; y crosses back 6-7
    assert steps(trace) == [
        # x, w and a; x is read once; a has been sent; y comes back; the job is done
        {0.0: 150.0, 1.0: 130.0, 4.0: 100.0, 6.0: 110.0, 7.0: 100.0},
        # a arrives; q's weights and its output; a is read; y has been sent
        {1.0: 30.0, 4.0: 147.0, 6.0: 117.0, 7.0: 107.0},
    ]
    assert [o.peak for o in occupancy(trace)] == [150.0, 147.0]


def test_weights_are_shared_by_the_graphs_of_a_model() -> None:
    small, large = chain(1), chain(2)
    times = np.array([[1.0, 9.0], [1.0, 9.0]])
    costs = CostTable({small: GraphCosts(times), large: GraphCosts(times)})
    workload = Workload([Job(small), Job(large, 5.0)])
    trace = simulate(workload, PAIR, costs, StaticPlan([(0, 0.0), (0, 1.0)]))
    # One job after the other, results stay until their job is done; weights 107 B once.
    ram, vram = steps(trace)
    assert ram[0.0] == 130.0
    assert ram[1.0] == 147.0
    assert ram[2.0] == 107.0
    assert ram[5.0] == 137.0
    assert ram[6.0] == 147.0
    assert vram == {}


def test_a_lost_output_is_gone_and_written_again() -> None:
    graph = chain()
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [1.0, 9.0]]))
    trace = simulate(Workload([Job(graph)]), PAIR, costs, StaticPlan([(0, 0.0), (0, 1.0)]))
    # Make it a run in which p was lost at 0.5 and ran again from 1 to 2, then q.
    for name, values in (
        ("start", [0.0, 1.0, 2.0]),
        ("finish", [0.5, 2.0, 3.0]),
        ("status", ["lost", "finished", "finished"]),
        ("attempt", [0, 1, 0]),
    ):
        trace.executions[name] = np.array(values)
    for name, column in trace.executions.items():
        if len(column) == 2:
            trace.executions[name] = column[[0, 0, 1]]
    trace.jobs["finish"][:] = 3.0
    assert steps(trace)[0] == {0.0: 130.0, 0.5: 100.0, 1.0: 130.0, 2.0: 147.0, 3.0: 107.0}


def test_weights_loaded_on_demand_lie_at_both_ends_until_they_are_evicted() -> None:
    graph = chain()
    costs = CostTable.of(graph, np.array([[9.0, 1.0], [9.0, 1.0]]))
    cluster = dataclasses.replace(PAIR, host="ram")
    plan = StaticPlan([(1, 0.0), (1, 1.0)])
    trace = simulate(Workload([Job(graph)]), cluster, costs, plan, weights="on_demand")
    # w (100 B) 0-10 and v (7 B) 0-0.7 cross at once; p 10-11, q 11-12
    ram, vram = steps(trace)
    assert ram == {0.0: 107.0}
    assert vram == {0.0: 107.0, 10.0: 137.0, 11.0: 147.0, 12.0: 107.0}
    gone = dataclasses.replace(trace, meta={**trace.meta, "evictions": [[15.0, 1, 0, 1]]})
    assert steps(gone) == [ram, {**vram, 15.0: 7.0}]


@settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases(), st.sampled_from(["resident", "on_demand"]))
def test_what_is_used_fits_into_what_the_simulator_kept_room_for(case: Case, weights: str) -> None:
    assume(case.cluster.host is not None and case.scheduler_name != "erratic")
    trace = simulate(
        case.workload,
        dataclasses.replace(
            case.cluster,
            spaces=[MemorySpace(s.name, 1e6) for s in case.cluster.spaces],
        ),
        case.costs,
        case.scheduler(),
        actual=case.actual,
        movement=case.movement,
        contention=case.contention,
        seed=case.seed,
        memory="limited",
        weights=weights,
    )
    for used, reserved in zip(occupancy(trace), trace.meta["peak_bytes"], strict=True):
        # The simulator counts whole bytes.
        assert used.peak <= reserved + 1e-9


def test_the_latest_entry_before_a_question() -> None:
    key = np.array([5, 5, 7, 5])
    time = np.array([1.0, 3.0, 0.0, 3.0])
    asked = latest(
        key, time, np.array([5, 5, 5, 7, 6, 5]), np.array([0.5, 1.0, 9.0, 0.0, 9.0, 2.9])
    )
    assert asked.tolist() == [-1, 0, 3, 2, -1, 0]
    nothing = np.zeros(0, dtype=np.int64)
    assert latest(nothing, nothing, key, time).tolist() == [-1] * 4
    assert latest(key, time, nothing, nothing).tolist() == []


def plain(case: Case, trace: Trace) -> list[float]:
    """Peaks by looking at every tensor at every instant, without the code under test."""
    runs, moves = trace.executions, trace.transfers
    ends: list[tuple[int, float, float, float]] = []  # space, bytes, from, to
    ran = {
        (j, o): (case.cluster.space_of[d], s, f)
        for j, o, d, s, f in zip(
            *(runs[k].tolist() for k in ("job", "operator", "device", "start", "finish")),
            strict=True,
        )
    }
    sent = {
        (j, t, to): (a, s, f)
        for j, t, a, to, s, f in zip(
            *(
                moves[k].tolist()
                for k in ("job", "tensor", "source", "destination", "start", "finish")
            ),
            strict=True,
        )
    }
    weights: dict[tuple[int, str, float], float] = {}
    for number, job in enumerate(case.workload):
        graph, done = job.graph, float(trace.jobs["finish"][number])
        home = {}
        if job.origin is not None:
            origin = case.cluster.space_index[job.origin]
            home = dict.fromkeys(graph.inputs, (origin, job.arrival, job.arrival))
        for o, written in enumerate(graph.writes):
            home |= dict.fromkeys(written, ran[number, o])
        lying = {(t, space): (s, f) for t, (space, s, f) in home.items()}
        lying |= {(t, to): (s, f) for (j, t, to), (_, s, f) in sent.items() if j == number}
        for (t, space), (start, end) in lying.items():
            for o in graph.consumers[t]:
                if ran[number, o][0] == space:
                    end = max(end, ran[number, o][2])
            for (j, moved, _), (source, _, f) in sent.items():
                if (j, moved, source) == (number, t, space):
                    end = max(end, f)
            target = (
                home[t][0] if job.destination is None else case.cluster.space_index[job.destination]
            )
            if t in graph.outputs and space == target:
                end = max(end, done)
            ends.append((space, graph.tensors[t].bytes, start, end))
        for t in graph.weights:
            tensor = graph.tensors[t]
            for o in graph.consumers[t]:
                key = (ran[number, o][0], graph.name + tensor.name, tensor.bytes)
                weights[key] = min(weights.get(key, np.inf), ran[number, o][1])
    ends += [(space, size, start, np.inf) for (space, _, size), start in weights.items()]
    moments = sorted({start for _, _, start, _ in ends})
    return [
        max(
            (sum(b for s, b, x, y in ends if s == space and x <= t < y) for t in moments),
            default=0.0,
        )
        for space in range(len(case.cluster.spaces))
    ]


@settings(
    max_examples=examples(150),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases(contentions=("none", "fifo", "fair")))
def test_peaks_are_those_of_a_plain_loop(case: Case) -> None:
    trace = case.run()
    found = [o.peak for o in occupancy(trace)]
    assert found == pytest.approx(plain(case, trace), abs=1e-9)
    for o in occupancy(trace):
        assert np.all(np.diff(o.time) > 0)
