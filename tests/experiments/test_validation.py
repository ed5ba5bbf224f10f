"""Errors taken apart, pairs and operator errors on traces whose figures are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.validation import (
    STEPS,
    AsMeasured,
    Case,
    Pair,
    durations,
    error_steps,
    kendall_tau,
    kind_errors,
    nearest,
    pairs,
    regret,
    repeatability,
    statistic_of,
)
from simulator.cluster import Cluster, Device, MemorySpace
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import InvalidInput
from simulator.graph import from_edges
from simulator.schedulers import create


def shared(overhead=0.0):
    devices = [Device("a", "ram", launch_overhead=overhead), Device("b", "ram", None, 1, overhead)]
    return Cluster("two", [MemorySpace("ram")], devices, host="ram")


@st.composite
def dags(draw):
    size = draw(st.integers(1, 15))
    edges = [(i, j, 1.0) for j in range(size) for i in range(j) if draw(st.integers(0, 3)) == 0]
    times = st.integers(1, 20)
    seconds = [[draw(times), draw(times)] for _ in range(size)]
    return from_edges("random", size, edges), np.array(seconds, float)


@settings(max_examples=80, deadline=None)
@given(dags(), st.sampled_from(["fcfs", "donf", "heft", "sufferage"]), st.data())
def test_a_replayed_run_is_the_run(dag, scheduler, data):
    """In the order and on the devices of a run, with its times, exactly that run happens again."""
    graph, believed = dag
    factor = data.draw(st.sampled_from([0.5, 1.0, 3.0]))
    actual = believed * [1.0, factor]
    cluster = shared(0.25)
    costs = CostTable.of(graph, believed)
    happens = CostTable.of(graph, actual)
    first = simulate(graph, cluster, costs, create(scheduler), actual=happens)
    again = simulate(graph, cluster, costs, AsMeasured(first), actual=happens)
    one, two = first.tasks, again.tasks
    for column in ("task", "device", "start", "finish"):
        np.testing.assert_array_equal(one[column], two[column])


@settings(max_examples=50, deadline=None)
@given(dags(), dags(), st.sampled_from(["fcfs", "donf", "heft"]))
def test_the_steps_add_up(dag, other, scheduler):
    graph, believed = dag
    rows = np.resize(other[1], believed.shape)
    costs = CostTable.of(graph, believed)
    simulated = simulate(graph, shared(), costs, create(scheduler))
    measured = simulate(graph, shared(), costs, create(scheduler), actual=CostTable.of(graph, rows))
    alone = rows.copy()
    alone[0, 1] = np.nan
    steps = error_steps(graph, shared(), costs, simulated.makespan, measured, alone)
    assert list(steps) == list(STEPS)
    assert sum(steps.values()) == pytest.approx(measured.makespan - simulated.makespan, abs=1e-9)


def test_each_step_finds_its_own_cause():
    # A chain of three on one device; believed 1 s each.
    graph = from_edges("chain", 3, [(0, 1, 1.0), (1, 2, 1.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0]] * 3))
    cluster = shared()
    only = create("single_device", device="a")
    # Alone, every operator takes 1.5 s; in the run, 2 s; each waits for half a second for the runner.
    alone = np.array([[1.5, 9.0]] * 3)
    measured = simulate(
        graph, shared(0.5), costs, only, actual=CostTable.of(graph, np.array([[2.0, 9.0]] * 3))
    )
    rows = measured.executions
    rows["start"][:] += 0.5  # a measured execution encloses its kernel alone
    steps = error_steps(graph, cluster, costs, 3.0, measured, alone)
    assert steps == {"decisions": 0.0, "operators": 1.5, "co-run": 1.5, "runner": 1.5}
    # A runner that was foreseen is no error.
    foreseen = error_steps(graph, shared(0.5), costs, 4.5, measured, alone)
    assert foreseen == {"decisions": 0.0, "operators": 1.5, "co-run": 1.5, "runner": 0.0}
    # Another placement is a matter of decisions: 3 s believed, 27 s as placed.
    moved = simulate(graph, cluster, costs, create("single_device", device="b"))
    steps = error_steps(graph, cluster, costs, 3.0, moved, np.full((3, 2), np.nan))
    assert steps == {"decisions": 24.0, "operators": 0.0, "co-run": 0.0, "runner": 0.0}


def test_durations_by_operator_and_device():
    graph = from_edges("pair", 2, [])
    costs = CostTable.of(graph, np.array([[1.0, 5.0], [7.0, 2.0]]))
    traces = [simulate(graph, shared(), costs, create("heft")) for _ in range(2)]
    found = durations(traces, 2, 2)
    expected = [[1.0, np.nan], [np.nan, 2.0]]
    np.testing.assert_array_equal(found, [expected, expected])


def test_operator_errors_by_kind():
    graph = from_edges("four", 4, [])
    predicted = np.array([[1.0], [2.0], [3.0], [4.0]])
    measured = np.array([[2.0], [2.0], [2.0], [np.nan]])
    (everything, kind) = kind_errors(graph, predicted, measured, ["a"])
    assert (everything.kind, kind.kind) == ("all", "task")
    assert everything.operators == 3  # one was not measured
    assert everything.measured_s == 6.0
    assert everything.total == 0.0
    assert everything.median == 0.0
    assert everything.mean == pytest.approx(0.0)
    assert everything.median_absolute == 0.5


def case(model, scheduler, simulated, measured):
    repeats = np.array([measured, measured * 1.2, measured * 1.1, measured * 1.4])
    nan = float("nan")
    trace = None
    return Case(model, scheduler, trace, trace, simulated, nan, nan, nan, repeats, measured, {})


def test_pairs_rank_and_regret():
    cases = [
        case("m", "a", 1.0, 1.0),
        case("m", "b", 0.9, 1.03),  # simulation prefers b, wrongly but by less than 5%
        case("m", "c", 2.0, 3.0),
        case("n", "a", 5.0, 4.0),
        case("n", "b", 4.0, 8.0),  # the wrong winner
    ]
    found = pairs(cases)
    assert [(p.model, p.first, p.second) for p in found] == [
        ("m", "a", "b"),
        ("m", "a", "c"),
        ("m", "b", "c"),
        ("n", "a", "b"),
    ]
    assert [p.separate for p in found] == [False, True, True, True]
    assert [p.agrees for p in found] == [False, True, True, False]
    assert all(p.told_apart for p in found)
    assert not Pair("m", "a", "b", 1.04, 1.3).told_apart
    assert Pair("m", "a", "b", 0.94, 1.3).told_apart
    assert kendall_tau(found) == 0.0
    assert regret(cases) == {"m": pytest.approx(0.03), "n": pytest.approx(1.0)}
    assert cases[2].error == pytest.approx(-1 / 3)
    assert not cases[0].covered


def test_a_simulated_tie_neither_agrees_nor_disagrees():
    assert kendall_tau([Pair("m", "a", "b", 1.0, 1.3), Pair("m", "a", "c", 1.2, 1.3)]) == 0.5
    assert np.isnan(kendall_tau([]))


def test_statistics():
    values = np.array([[3.0, 1.0], [1.0, 5.0], [2.0, 9.0]])
    np.testing.assert_array_equal(statistic_of(values, "minimum"), [1.0, 1.0])
    np.testing.assert_array_equal(statistic_of(values, "median"), [2.0, 5.0])
    with pytest.raises(InvalidInput, match="No statistic 'mean'"):
        statistic_of(values, "mean")
    # Even repeats 1.0, 1.1; odd ones 1.2, 1.4.
    assert repeatability(case("m", "a", 1.0, 1.0), "minimum") == pytest.approx(1 - 1 / 1.2)


def test_the_nearest_trace():
    graph = from_edges("one", 1, [])
    traces = [
        simulate(graph, shared(), CostTable.of(graph, np.array([[t, t]])), create("heft"))
        for t in (1.0, 2.0, 4.0)
    ]
    assert nearest(traces, 2.6).makespan == 2.0
