"""The runner's overhead contains what a scheduler needs to decide."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from calibration.runner import Machine
from calibration.workers import WorkerSpec
from experiments.probes.learning_ends import ahead_gaps, learnt_gaps, submitted_ahead
from experiments.probes.overhead import Overhead, with_overhead
from experiments.probes.runner_overhead import OverheadProbe, copies_beyond, gaps
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers.fcfs import Fcfs
from simulator.schedulers.heft import Heft

TWO = Cluster("two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram")
APART = Cluster(
    "apart",
    [MemorySpace("one"), MemorySpace("other")],
    [Device("a", "one"), Device("b", "other")],
    [Link("between", ("one", "other"), 1e9, 10e-6)],
    host="one",
)
NO_TRANSFERS = dict.fromkeys(("job", "tensor", "destination", "finish"), np.zeros(0))


class SlowByJobs(Fcfs):
    """Takes 2 ms to decide for each job that it has met."""

    def __init__(self):
        super().__init__()
        self.jobs = set()

    def decide(self, context):
        self.jobs |= {context.job_of(task) for task in context.ready}
        time.sleep(0.002 * len(self.jobs))
        super().decide(context)


def test_overhead_contains_decisions_that_take_longer_with_more_jobs():
    """Two jobs on two workers: each operator waits for two decisions of 4 ms, or for one."""
    with Machine(TWO, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        probe = OverheadProbe(machine)
        found = probe.overhead(Fcfs, runs=2)
        assert found.copy == 0.0
        usual = found.operator
        one, two = (probe.overhead(SlowByJobs, jobs=jobs, runs=1).operator for jobs in (1, 2))
    assert 1e-6 < usual < 1e-3
    assert 2e-3 < one < 8e-3
    assert 4e-3 < two < 0.05


def test_a_gap_is_between_operators_that_need_not_wait_for_another_worker():
    """A chain of four. Job 0: 0 to 1 and 1.1 to 2 on the first worker, 2.5 to 4 on the second, 4.2 to 5 on the first; two
    operators of job 1 beside it.
    """
    graph = from_edges("chain", 4, [(i, i + 1, 0.0) for i in range(3)])
    rows = {
        "job": np.array([0, 0, 0, 0, 1, 1]),
        "operator": np.array([0, 1, 2, 3, 0, 1]),
        "device": np.array([0, 0, 1, 0, 0, 1]),
        "slot": np.zeros(6, dtype=int),
        "start": np.array([0.0, 1.1, 2.5, 4.2, 2.3, 4.4]),
        "finish": np.array([1.0, 2.0, 4.0, 5.0, 3.0, 6.0]),
    }
    # Job 0's last waited for the second worker; job 1's last was ready when that one was free.
    assert gaps(
        SimpleNamespace(executions=rows, transfers=NO_TRANSFERS), graph, TWO
    ) == pytest.approx([0.1, 0.3, 0.4])


def test_of_several_predecessors_the_last_says_whether_it_waited():
    """Operators 0 and 1 before 2: on one worker 0 and 2, between them 1 on the other, which ends after 0 or before."""
    graph = from_edges("join", 3, [(0, 2, 0.0), (1, 2, 0.0)])
    for end, expected in ((1.5, []), (0.9, [1.0])):
        rows = {
            "job": np.zeros(3, dtype=int),
            "operator": np.array([0, 1, 2]),
            "device": np.array([0, 1, 0]),
            "slot": np.zeros(3, dtype=int),
            "start": np.array([0.0, 0.0, 2.0]),
            "finish": np.array([1.0, end, 3.0]),
        }
        assert (
            gaps(SimpleNamespace(executions=rows, transfers=NO_TRANSFERS), graph, TWO).tolist()
            == expected
        )


def test_who_waits_for_a_copy_needs_no_time_of_the_runners():
    """A chain of three: on the first device, on the second behind an operator of another job, which ends before the copy
    has come or after it, and there again.
    """
    graph = from_edges("chain", 3, [(i, i + 1, 8.0) for i in range(2)])
    for arrival, expected in ((1.6, [0.2]), (1.2, [0.3, 0.2])):
        rows = {
            "job": np.array([0, 1, 0, 0]),
            "operator": np.array([0, 0, 1, 2]),
            "device": np.array([0, 1, 1, 1]),
            "slot": np.zeros(4, dtype=int),
            "start": np.array([0.0, 0.0, 1.7, 2.7]),
            "finish": np.array([1.0, 1.4, 2.5, 3.0]),
        }
        (tensor,) = graph.writes[0]
        moved = {
            "job": np.array([0]),
            "tensor": np.array([tensor]),
            "destination": np.array([1]),
            "finish": np.array([arrival]),
        }
        trace = SimpleNamespace(executions=rows, transfers=moved)
        assert gaps(trace, graph, APART) == pytest.approx(expected)


def test_a_copy_counts_from_when_its_channel_was_free():
    """1000 bytes take 11 us by the link: one is there after 31, one that was asked for meanwhile after 22 more, one in
    the other direction in time.
    """
    moved = {
        "link": np.array([0, 0, 1]),
        "source": np.array([0, 0, 1]),
        "destination": np.array([1, 1, 0]),
        "requested": np.array([1.0, 1.00001, 1.0]),
        "start": np.array([1.00002, 1.00004, 1.0]),
        "finish": np.array([1.000031, 1.000053, 1.000011]),
        "bytes": np.array([1000.0, 1000.0, 1000.0]),
    }
    found = copies_beyond(SimpleNamespace(transfers=moved), APART)
    assert sorted(found) == pytest.approx([0.0, 11e-6, 20e-6], abs=1e-9)


def test_copies_between_memories_take_what_the_probe_says():
    """Of links that are said to take no time the probe finds all that copies take."""
    free = replace(APART, links=[Link("between", ("one", "other"), 1e15)])
    with Machine(free, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        found = OverheadProbe(machine).overhead(Alternating, runs=2)
        slow = replace(free, links=[Link("between", ("one", "other"), 1e15, 1.0)])
    assert 1e-6 < found.copy < 0.02
    assert with_overhead(slow, found).links[0].latency == 1.0 + found.copy


class Alternating(Fcfs):
    """Each operator on the device on which the one before was not."""

    def decide(self, context):
        for task in list(context.ready):
            context.place(task, task % 2)


class SimulatedMachine:
    """Runs in which each operator takes 10 us on the first device and 30 on the second, behind a launch of 20."""

    needs, handover, spare_cores = Overhead(20e-6), 35e-6, 1

    def __init__(self):
        self.cluster = Cluster(
            "two",
            [MemorySpace("ram", corun_slowdown=0.5)],
            [Device("a", "ram"), Device("b", "ram", launches=3)],
            host="ram",
        )

    def load(self, graph, weights):
        pass

    def run(self, jobs, costs, scheduler, inputs):
        (graph,) = jobs.graphs
        kernels = np.tile([10e-6, 30e-6], (len(graph), 1))
        quiet = replace(
            self.cluster,
            spaces=[replace(space, corun_slowdown=0.0) for space in self.cluster.spaces],
            devices=[replace(device, launches=1) for device in self.cluster.devices],
        )
        happens = with_overhead(quiet, self.needs, self.handover, cooling=(None, None))
        actual = CostTable.of(graph, kernels)
        links = {"believed": self.cluster, "contention": "fifo"}
        trace = simulate(jobs, happens, costs, scheduler, actual=actual, **links)
        rows = trace.executions
        # A measured execution is its kernel alone: what comes before that is a gap.
        rows["start"][:] = rows["finish"] - kernels[rows["operator"], rows["device"]]
        return SimpleNamespace(trace=trace)


def test_overhead_has_no_waiting_for_the_interpreter_in_it():
    machine = SimulatedMachine()
    probe = OverheadProbe(machine)

    def seconds(jobs, **given):
        return probe.overhead(Fcfs, jobs, runs=1, **given).operator

    operator = machine.needs.operator
    assert seconds(1, handover=machine.handover) == pytest.approx(operator, rel=0.05)
    assert seconds(4, handover=machine.handover) == pytest.approx(operator, rel=0.05)
    assert seconds(4) > 1.5 * operator


class SimulatedMachineApart(SimulatedMachine):
    """The same with a memory for each device, between which copies need the interpreter for 15 us, twice each."""

    needs = Overhead(20e-6, copy_launch=15e-6)

    def __init__(self):
        self.cluster = replace(
            APART, spaces=[replace(space, corun_slowdown=0.5) for space in APART.spaces]
        )


@pytest.mark.parametrize("jobs", [1, 4])
def test_what_copies_take_has_the_waiting_in_it_and_what_they_need_has_not(jobs):
    machine = SimulatedMachineApart()
    probe = OverheadProbe(machine)
    found = probe.overhead(Alternating, jobs, runs=1, handover=machine.handover)
    assert found.copy_launch == pytest.approx(machine.needs.copy_launch, rel=0.05)
    # One job alternates, and whoever would wait for the interpreter waits for a copy as it is.
    least = 2.0 if jobs == 1 else 3.0
    assert found.copy > least * (1 - 1e-9) * machine.needs.copy_launch
    # Without waiting that is not told apart, and is what schedulers are told in any case.
    without = probe.overhead(Alternating, jobs, runs=1)
    assert without.copy_launch is None
    assert without.copy == found.copy
    assert Overhead.of_json(found.to_json()) == found
    (told,), (link,) = (
        with_overhead(machine.cluster, found, handover).links for handover in (None, 1e-5)
    )
    (own,) = machine.cluster.links
    assert (told.latency, told.launcher) == (own.latency + found.copy, None)
    assert (link.latency, link.launch_overhead) == (own.latency, found.copy_launch)
    assert link.launcher == "interpreter"


def test_copies_that_wait_for_cores_do_not_say_how_long_they_have_the_interpreter():
    machine = SimulatedMachineApart()
    machine.spare_cores = 0
    found = OverheadProbe(machine).overhead(Alternating, 4, runs=1, handover=machine.handover)
    assert found.copy > 0
    assert found.copy_launch is None
    (link,) = with_overhead(machine.cluster, found, machine.handover).links
    assert (link.latency, link.launcher) == (machine.cluster.links[0].latency + found.copy, None)


ISSUED = Cluster(
    "issued",
    [MemorySpace("ram")],
    [Device("a", "ram"), Device("b", "ram", issue_depth=2, completion_latency=1.0)],
    host="ram",
)


def test_gaps_of_a_device_that_is_submitted_to_ahead_are_told_apart_by_the_placement():
    rows = {
        "device": np.array([1, 1, 1, 0, 0]),
        "start": np.array([0.0, 1.1, 2.5, 0.0, 1.3]),
        "finish": np.array([1.0, 2.0, 3.0, 1.0, 2.0]),
        "placed": np.array([0.0, 0.5, 2.4, 0.0, 1.2]),
    }
    trace = SimpleNamespace(executions=rows)
    assert submitted_ahead(ISSUED) == [1]
    gaps_found = learnt_gaps(trace, np.array([0, 1, 3]), np.array([1, 2, 4]), ISSUED)
    assert gaps_found == pytest.approx([0.5])


@pytest.mark.parametrize(("learning", "expected"), [(0.05, [0.1, 0.2, 0.3]), (0.9, [0.1, 0.3])])
def test_who_may_have_waited_for_its_window_counts_for_nothing(learning, expected):
    """Of depth 2: the third waits until the host has learnt of the first, the fourth of the second."""
    rows = {
        "device": np.array([1, 1, 1, 1]),
        "start": np.array([0.0, 1.1, 2.0, 4.3]),
        "finish": np.array([1.0, 1.8, 4.0, 5.0]),
    }
    trace = SimpleNamespace(executions=rows)
    assert ahead_gaps(trace, ISSUED, learning) == pytest.approx(expected)


class SimulatedIssuing(SimulatedMachine):
    """The second device is submitted to ahead, 7 us between two operators, and 60 us until the host has learnt."""

    needs = Overhead(20e-6, 0.0, 7e-6, 60e-6)

    def __init__(self, depth, needs=needs):
        self.needs = needs
        self.cluster = replace(
            ISSUED,
            devices=[ISSUED.devices[0], replace(ISSUED.devices[1], issue_depth=depth)],
        )

    def run(self, jobs, costs, scheduler, inputs):
        (graph,) = jobs.graphs
        kernels = np.tile([10e-6, 80e-6], (len(graph), 1))
        actual = CostTable.of(graph, kernels)
        where = with_overhead(self.cluster, self.needs)
        trace = simulate(jobs, where, costs, scheduler, actual=actual)
        rows = trace.executions
        rows["start"][:] = rows["finish"] - kernels[rows["operator"], rows["device"]]
        count = int((rows["device"] == 1).sum())
        if self.needs.issue is not None and count:
            trace.meta["launched"] = [[1, count, count * self.needs.issue]]
        return SimpleNamespace(trace=trace)


@pytest.mark.parametrize("scheduler", [Fcfs, Heft])
def test_the_probe_finds_what_submitting_ahead_leaves_and_how_late_ends_are_learnt_of(scheduler):
    machine = SimulatedIssuing(4)
    found = OverheadProbe(machine).overhead(scheduler, runs=1)
    assert found.ahead == pytest.approx(machine.needs.ahead)
    assert found.completion == pytest.approx(machine.needs.completion, rel=0.02)
    if scheduler is Fcfs:
        assert found.operator == pytest.approx(machine.needs.operator)
    again = with_overhead(machine.cluster, found)
    assert again.devices[1].completion_latency == found.completion
    assert again.devices[1].launch_overhead == found.ahead
    assert again.devices[0].launch_overhead == found.operator
    assert Overhead.of_json(found.to_json()) == found


def test_where_each_operator_is_waited_for_nothing_is_left_ahead():
    found = OverheadProbe(SimulatedIssuing(1)).overhead(Fcfs, runs=1)
    assert found.ahead == 0.0
    assert found.completion == pytest.approx(67e-6, rel=0.02)


@pytest.mark.parametrize("depth", [1, 4])
def test_of_streams_it_finds_what_launching_takes_the_host(depth):
    """Longer than its operators do: they begin 100 us apart, which is no overhead of the device's."""
    needs = Overhead(20e-6, 0.0, 0.0, 60e-6, 100e-6)
    machine = SimulatedIssuing(depth, needs)
    found = OverheadProbe(machine).overhead(Fcfs, runs=1)
    assert found.issue == pytest.approx(needs.issue)
    assert found.ahead == 0.0
    assert found.completion == pytest.approx(needs.completion, rel=0.05)
    again = with_overhead(machine.cluster, found, handover=10e-6)
    assert again.devices[1].issue_overhead == found.issue
    assert [device.launcher for device in again.devices] == ["interpreter", None]
    assert Overhead.of_json(found.to_json()) == found
