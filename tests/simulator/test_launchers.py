"""Launches that wait for each other: by hand, in closed form, and every execution recounted from the trace."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.devices.host_launch_lock import Launcher, shares_launchers
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import RandomPlan, StaticPlan
from tests.simulator.strategies import graphs


def cluster(
    devices: int, overhead: float, handover: float = 0.0, slots: int = 1, slowdown: float = 0.0
) -> Cluster:
    """Devices of one memory and one launcher."""
    made = [
        Device(f"d{i}", "m", None, slots, overhead, launcher="host", launch_handover=handover)
        for i in range(devices)
    ]
    return Cluster("cluster", [MemorySpace("m", corun_slowdown=slowdown)], made)


def chain(operators: int) -> DataflowGraph:
    return from_edges("chain", operators, [(i, i + 1, 0.0) for i in range(operators - 1)])


def beside(graph: DataflowGraph, where: Cluster, seconds: float) -> Trace:
    """A job of the graph on each device."""
    count = len(where.devices)
    plans = [[(device, 0.0)] * len(graph) for device in range(count)]
    costs = CostTable.of(graph, np.full((len(graph), count), seconds))
    return simulate(Workload([Job(graph)] * count), where, costs, StaticPlan(*plans))


def finishes(trace: Trace) -> list[float]:
    return trace.executions["finish"][np.argsort(trace.executions["task"])].tolist()


def test_a_launch_waits_for_another_and_for_the_hand_over() -> None:
    graph = chain(1)
    assert finishes(beside(graph, cluster(3, 1.0), 3.0)) == [4.0, 5.0, 6.0]
    assert finishes(beside(graph, cluster(3, 1.0, 0.5), 3.0)) == [4.0, 5.5, 7.0]
    # Who comes when nobody launches waits for nobody.
    late = Workload([Job(graph), Job(graph, arrival=1.0)])
    costs = CostTable.of(graph, np.full((1, 2), 3.0))
    trace = simulate(late, cluster(2, 1.0, 0.5), costs, StaticPlan([(0, 0.0)], [(1, 0.0)]))
    assert finishes(trace) == [4.0, 5.0]


def of_three_kernels(slowdown: float = 0.0) -> Cluster:
    """Two devices, of which the first launches three kernels for an operator."""
    where = cluster(2, 1.0, 0.5, slowdown=slowdown)
    return replace(where, devices=[replace(where.devices[0], launches=3), where.devices[1]])


@pytest.mark.parametrize("passed", [0, 1])
def test_one_that_is_awake_takes_the_launcher_while_another_is_woken(passed: int) -> None:
    """Launches of 1, a hand-over of 1: the second device's waits from .5 until 1, to begin at 2; at 1.5 the third asks
    and takes it until 2.5, so that the second begins at 3.5, or it waits until the second has begun at 2 and ended.
    """
    graph = chain(1)
    devices = [replace(d, launch_passed=passed) for d in cluster(3, 1.0, 1.0).devices]
    where = replace(cluster(3, 1.0, 1.0), devices=devices)
    jobs = Workload([Job(graph, at) for at in (0.0, 0.5, 1.5)])
    costs = CostTable.of(graph, np.full((1, 3), 10.0))
    trace = simulate(jobs, where, costs, StaticPlan([(0, 0.0)], [(1, 0.0)], [(2, 0.0)]))
    # What is left of each end: kernel and launch.
    begins = [end - 11.0 for end in finishes(trace)]
    assert begins == pytest.approx([0.0, 3.5, 1.5] if passed else [0.0, 2.0, 4.0])


class JobByJob(Scheduler):
    """Each job on the device of its number, also once it was lost."""

    name = "job by job"

    def decide(self, context: SchedulingContext) -> None:
        for task in context.placeable:
            context.place(task, context.job_of(task))


def test_one_that_is_lost_while_it_waits_is_not_begun_by_who_passes_it() -> None:
    """As above, but the second device fails from 1.2 to 50, when the third passes its launch: it begins anew."""
    graph = chain(1)
    devices = [replace(d, launch_passed=1) for d in cluster(3, 1.0, 1.0).devices]
    where = replace(cluster(3, 1.0, 1.0, slowdown=1e-12), devices=devices)
    jobs = Workload([Job(graph, at) for at in (0.0, 0.5, 1.5)])
    costs = CostTable.of(graph, np.full((1, 3), 10.0))
    faults = Faults([Fault("device_failure", "d1", 1.2, 50.0, memory_lost=False)])
    rows = simulate(jobs, where, costs, JobByJob(), faults=faults).executions
    ends = {
        (j, s): f for j, s, f in zip(*(rows[c] for c in ("job", "status", "finish")), strict=True)
    }
    assert ends == {
        (0, "finished"): pytest.approx(11.0),
        (1, "lost"): pytest.approx(1.2),
        (1, "finished"): pytest.approx(61.0),
        (2, "finished"): pytest.approx(12.5),
    }


@settings(deadline=None, max_examples=examples(100))
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.01, 2.0)), min_size=1, max_size=20),
    st.floats(0.1, 2.0),
    st.integers(0, 3),
)
def test_no_two_launches_at_once_and_nobody_is_passed_over_more_often(
    asked: list[tuple[float, float]], handover: float, passed: int
) -> None:
    launcher, now, begins, moves = Launcher(), 0.0, [], [0] * len(asked)
    free, in_turn = 0.0, []  # what it is where all wait in their order
    for number, (after, overhead) in enumerate(asked):
        now += after

        def moved(moment: float, number: int = number) -> None:
            assert moment > begins[number]
            begins[number] = moment
            moves[number] += 1

        begins.append(launcher.begin(now, overhead, handover, passed, moved))
        in_turn.append(free + handover if free > now else now)
        free = in_turn[-1] + overhead
        assert begins[number] >= now
    assert max(moves) <= passed
    if not passed:
        assert begins == pytest.approx(in_turn)
    launches = sorted((begin, begin + one[1]) for begin, one in zip(begins, asked, strict=True))
    for (_, end), (begin, _) in itertools.pairwise(launches):
        assert begin >= end - 1e-9


@pytest.mark.parametrize("slowdown", [0.0, 1e-12])
def test_every_kernel_of_an_operator_needs_the_launcher(slowdown: float) -> None:
    """Launched from 0 to 1, a kernel until 2; then the other's launch, 1.5 to 2.5, and the hand-over."""
    graph = chain(1)
    jobs = Workload([Job(graph), Job(graph, arrival=1.5)])
    costs = CostTable.of(graph, np.full((1, 2), 3.0))
    trace = simulate(jobs, of_three_kernels(slowdown), costs, StaticPlan([(0, 0.0)], [(1, 0.0)]))
    assert finishes(trace) == pytest.approx([5.0, 5.5])


def test_kernels_of_one_operator_do_not_wait_for_each_other() -> None:
    graph = chain(4)
    costs = CostTable.of(graph, np.full((4, 2), 3.0))
    trace = simulate(graph, of_three_kernels(), costs, StaticPlan([(0, 0.0)] * 4))
    assert finishes(trace) == pytest.approx([4.0, 8.0, 12.0, 16.0])


def test_an_operator_that_is_lost_begins_anew() -> None:
    """Its device fails during the second kernel, from 2.5 to 10; then all of it, launch and three kernels."""
    graph = chain(1)
    costs = CostTable.of(graph, np.full((1, 2), 3.0))
    faults = Faults([Fault("device_failure", "d0", 2.5, 10.0, memory_lost=False)])
    scheduler = create("single_device", device="d0")
    trace = simulate(graph, of_three_kernels(), costs, scheduler, faults=faults)
    assert trace.makespan == pytest.approx(14.0)


def test_slots_of_one_device_wait_too() -> None:
    graph = from_edges("two", 2, [])
    costs = CostTable.of(graph, np.full((2, 1), 3.0))
    plan = StaticPlan([(0, 0.0), (0, 1.0)])
    assert finishes(simulate(graph, cluster(1, 1.0, slots=2), costs, plan)) == [4.0, 5.0]


def test_what_waits_runs_at_the_rate_of_who_is_beside_it() -> None:
    # From 0 both slots are busy: at 1 / 1.5 of the full rate until the first ends at 1 + 4.5.
    graph = chain(1)
    times = finishes(beside(graph, cluster(2, 1.0, slowdown=0.5), 3.0))
    assert times == pytest.approx([5.5, 5.5 + 3.0 - (5.5 - 2.0) / 1.5])


@pytest.mark.parametrize("seconds", [0.1, 1.0, 1.2])
def test_two_chains_of_short_operators_take_turns(seconds: float) -> None:
    """Operators shorter than a launch and a hand-over: 2 (o + h) for one of each chain."""
    count, overhead, handover = 20, 1.0, 0.25
    trace = beside(chain(count), cluster(2, overhead, handover), seconds)
    ends = finishes(trace)
    period = 2 * (overhead + handover)
    first = (count - 1) * period + overhead + seconds
    assert ends[count - 1] == pytest.approx(first)
    assert ends[-1] == pytest.approx(first + overhead + handover)


@settings(deadline=None, max_examples=examples(60))
@given(graphs(), st.integers(1, 3), st.integers(1, 2), st.sampled_from([0.0, 0.25, 1.0]), st.data())
def test_executions_recounted(
    graph: DataflowGraph, devices: int, slots: int, handover: float, data: st.DataObject
) -> None:
    """Launches in the order of their starts, none beside another; hand-overs where one had to wait."""
    where = cluster(devices, 0.5, handover, slots)
    seconds = np.array(
        data.draw(
            st.lists(
                st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.3]),
                min_size=len(graph) * devices,
                max_size=len(graph) * devices,
            )
        )
    ).reshape(len(graph), devices)
    jobs = Workload([Job(graph), Job(graph, arrival=1.0)])
    trace = simulate(
        jobs, where, CostTable.of(graph, seconds), RandomPlan(data.draw(st.integers(0, 9)))
    )
    rows = trace.executions
    launches = []
    for row in np.lexsort((rows["finish"], rows["start"])).tolist():
        spent = seconds[rows["operator"][row], rows["device"][row]]
        end = float(rows["finish"][row] - spent)
        launches.append((float(rows["start"][row]), end - 0.5, end))
    launches.sort(key=lambda launch: launch[1])
    free = 0.0
    for start, begin, end in launches:
        expected = start if start >= free - 1e-9 else free + handover
        if devices * slots == 1:
            expected = start
        assert begin == pytest.approx(expected, abs=1e-9)
        free = end


def test_without_others_a_launcher_changes_nothing() -> None:
    assert shares_launchers(cluster(2, 1.0))
    assert not shares_launchers(cluster(1, 1.0))
    apart = cluster(2, 1.0)
    apart = replace(
        apart, devices=[replace(d, launcher=f"host{i}") for i, d in enumerate(apart.devices)]
    )
    assert not shares_launchers(apart)
    assert finishes(beside(chain(3), apart, 2.0)) == [3.0, 6.0, 9.0] * 2


def test_refused() -> None:
    with pytest.raises(InvalidInput, match="launch_handover and no launcher"):
        Cluster("c", [MemorySpace("m")], [Device("d", "m", launch_handover=1e-6)])
    with pytest.raises(
        InvalidInput, match="'d' has launches 0; an operator is launched once at least"
    ):
        Cluster("c", [MemorySpace("m")], [Device("d", "m", launches=0)])
    with pytest.raises(InvalidInput, match="launch_handover must be >= 0"):
        cluster(2, 1.0, -1.0)


def test_a_rounding_error_is_no_wait() -> None:
    """A launch that begins as another one ends is not handed over to, in whatever order its time was summed."""
    launcher = Launcher()

    def begin(now: float) -> float:
        return launcher.begin(now, 0.2, 1.0, 0, lambda moment: None)

    assert begin(0.1) == 0.1
    assert 0.3 < 0.1 + 0.2
    assert begin(0.3) == 0.3
    assert begin(0.5 - 1e-9) == pytest.approx(1.5)
