"""Errors taken apart on runs whose causes are known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.validation.waterfall import (
    STEPS,
    error_steps,
    mean_steps,
    replayed_makespan,
)
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers.planned import Planned


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


def jobs_of(graph, count=1, arrivals=None):
    times = arrivals or [0.0] * count
    return Workload([Job(graph, arrival, origin="ram", destination="ram") for arrival in times])


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
    jobs = jobs_of(graph, data.draw(st.integers(1, 3)))
    first = simulate(jobs, cluster, costs, create(scheduler), actual=happens)
    again = simulate(
        jobs,
        cluster,
        costs,
        Planned(Plan.executed(first, [job.graph for job in jobs])),
        actual=happens,
    )
    one, two = first.tasks, again.tasks
    for column in ("task", "device", "start", "finish"):
        np.testing.assert_array_equal(one[column], two[column])


@settings(max_examples=50, deadline=None)
@given(dags(), dags(), st.sampled_from(["fcfs", "donf", "heft"]), st.integers(1, 3))
def test_the_steps_add_up(dag, other, scheduler, count):
    graph, believed = dag
    rows = np.resize(other[1], believed.shape)
    costs = CostTable.of(graph, believed)
    jobs = jobs_of(graph, count)
    simulated = simulate(jobs, shared(), costs, create(scheduler))
    measured = simulate(jobs, shared(), costs, create(scheduler), actual=CostTable.of(graph, rows))
    alone = rows.copy()
    alone[0, 1] = np.nan
    steps = error_steps(
        jobs, shared(), costs, simulated.makespan, measured, measured.makespan, {graph: alone}
    )
    assert list(steps) == list(STEPS)
    assert sum(steps.values()) == pytest.approx(measured.makespan - simulated.makespan, abs=1e-9)
    # What ran took its own times, in its own order, without a runner: nothing is left for the last.
    assert steps["dispatch"] == pytest.approx(0.0, abs=1e-9)
    assert steps["repeats"] == 0.0


def test_each_step_finds_its_own_cause():
    # A chain of three on one device; believed 1 s each.
    graph = from_edges("chain", 3, [(0, 1, 1.0), (1, 2, 1.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0]] * 3))
    cluster, jobs = shared(), jobs_of(graph)
    only = create("single_device", device="a")
    # Alone, every operator takes 1.5 s; in the run, 2 s; each waits for half a second for the runner.
    alone = {graph: np.array([[1.5, 9.0]] * 3)}
    measured = simulate(
        jobs, shared(0.5), costs, only, actual=CostTable.of(graph, np.array([[2.0, 9.0]] * 3))
    )
    rows = measured.executions
    rows["start"][:] += 0.5  # a measured execution encloses its kernel alone
    steps = error_steps(jobs, cluster, costs, 3.0, measured, measured.makespan, alone)
    expected = {"decisions": 0.0, "operators": 1.5, "co-run": 1.5, "transfers": 0.0}
    assert steps == {**expected, "dispatch": 1.5, "repeats": 0.0}
    # Of several runs this one is half a second longer than the statistic.
    steps = error_steps(jobs, cluster, costs, 3.0, measured, measured.makespan - 0.5, alone)
    assert steps == {**expected, "dispatch": 1.5, "repeats": -0.5}
    # A runner that was foreseen is no error.
    foreseen = error_steps(jobs, shared(0.5), costs, 4.5, measured, measured.makespan, alone)
    assert foreseen == {**expected, "dispatch": 0.0, "repeats": 0.0}
    # Another placement is a matter of decisions: 3 s believed, 27 s as placed.
    moved = simulate(jobs, cluster, costs, create("single_device", device="b"))
    steps = error_steps(
        jobs, cluster, costs, 3.0, moved, moved.makespan, {graph: np.full((3, 2), np.nan)}
    )
    assert steps == {step: 24.0 * (step == "decisions") for step in STEPS}


def test_a_foreseen_slowdown_of_co_running_cores_is_no_error():
    """Two operators side by side, each slowed by the other: simulated so, and measured so."""
    graph = from_edges("pair", 2, [])
    times = np.array([[1.0, 1.0], [1.0, 1.0]])
    costs = CostTable.of(graph, times)
    slowed = replace(shared(), spaces=[MemorySpace("ram", corun_slowdown=0.5)])
    jobs = jobs_of(graph)
    measured = simulate(jobs, slowed, costs, create("heft"))
    assert measured.makespan == 1.5
    foreseen = error_steps(jobs, slowed, costs, 1.5, measured, measured.makespan, {graph: times})
    assert foreseen == dict.fromkeys(STEPS, 0.0)
    # A cluster that does not state it leaves it to the step of that name.
    steps = error_steps(jobs, shared(), costs, 1.0, measured, measured.makespan, {graph: times})
    assert steps == {step: 0.5 * (step == "co-run") for step in STEPS}


def far(bandwidth):
    """Two devices with a memory each."""
    spaces = [MemorySpace("near"), MemorySpace("far")]
    devices = [Device("a", "near"), Device("b", "far")]
    return Cluster(
        "apart", spaces, devices, [Link("wire", ("near", "far"), bandwidth)], host="near"
    )


def test_a_slow_link_is_a_matter_of_transfers():
    # The second operator runs far away; its input of 8 bytes takes 1 s as believed and 4 s in truth, and
    # its result of 0 bytes nothing.
    graph = from_edges("pair", 2, [(0, 1, 8.0)])
    times = np.array([[1.0, 9.0], [9.0, 1.0]])
    costs = CostTable.of(graph, times)
    jobs = Workload([Job(graph, origin="near")])
    simulated = simulate(jobs, far(8.0), costs, create("heft"))
    measured = simulate(jobs, far(2.0), costs, create("heft"))
    assert measured.makespan - simulated.makespan == 3.0
    steps = error_steps(
        jobs, far(8.0), costs, simulated.makespan, measured, measured.makespan, {graph: times}
    )
    assert steps == {step: 3.0 * (step == "transfers") for step in STEPS}


@settings(max_examples=60, deadline=None)
@given(
    dags(),
    st.sampled_from(["fcfs", "donf", "heft", "mct"]),
    st.sampled_from(["none", "fifo"]),
    st.sampled_from(["push", "pull"]),
    st.integers(1, 3),
)
def test_a_run_replayed_with_its_own_delays_is_as_long(dag, scheduler, contention, movement, count):
    """Another way to the same makespan: longest path over what was recorded, no event loop."""
    graph, believed = dag
    costs = CostTable.of(graph, believed)
    jobs = Workload([Job(graph, origin="near", destination="near") for _ in range(count)])
    run = simulate(
        jobs, far(1.0), costs, create(scheduler), movement=movement, contention=contention
    )
    replayed = replayed_makespan(jobs, far(1.0), run)
    # An on-line scheduler may leave a device idle by its own choice, which no delay of data shows.
    if scheduler in ("heft", "mct"):
        assert replayed == pytest.approx(run.makespan)
    else:
        assert replayed <= run.makespan + 1e-9


def test_a_run_of_other_jobs_is_refused():
    graph = from_edges("one", 1, [])
    costs = CostTable.of(graph, np.array([[1.0, 1.0]]))
    run = simulate(jobs_of(graph, 2), shared(), costs, create("heft"))
    with pytest.raises(InvalidInput, match="The measured run is of 2 jobs, the simulated one of 1"):
        error_steps(jobs_of(graph), shared(), costs, 1.0, run, run.makespan, {})


def test_mean_steps_are_shares():
    cases = [dict.fromkeys(STEPS, 1.0), dict.fromkeys(STEPS, -1.0) | {"co-run": 3.0}]
    shares = mean_steps(cases, [2.0, 4.0])
    assert shares["decisions"] == pytest.approx((0.5 - 0.25) / 2)
    assert shares["co-run"] == pytest.approx((0.5 + 0.75) / 2)
