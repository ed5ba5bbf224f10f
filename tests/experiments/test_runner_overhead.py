"""The runner's overhead contains what a scheduler needs to decide."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from calibration.runner import Machine
from calibration.workers import WorkerSpec
from experiments.both_worlds import with_overhead
from experiments.runner_overhead import OverheadProbe, gaps
from simulator.cluster import Cluster, Device, MemorySpace
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.graph import from_edges
from simulator.schedulers.fcfs import Fcfs


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
    cluster = Cluster(
        "two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram"
    )
    with Machine(cluster, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        probe = OverheadProbe(machine)
        usual = probe.seconds(Fcfs, runs=2)
        one, two = (probe.seconds(SlowByJobs, jobs=jobs, runs=1) for jobs in (1, 2))
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
    assert gaps(SimpleNamespace(executions=rows), graph) == pytest.approx([0.1, 0.3, 0.4])


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
        assert gaps(SimpleNamespace(executions=rows), graph).tolist() == expected


class SimulatedMachine:
    """Runs in which each operator takes 10 us on the first device and 30 on the second, behind a launch of 20."""

    overhead, handover = 20e-6, 35e-6

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
            spaces=[MemorySpace("ram")],
            devices=[Device("a", "ram"), Device("b", "ram")],
        )
        believed = with_overhead(quiet, self.overhead, self.handover, cooling=(None, None))
        actual = CostTable.of(graph, kernels)
        trace = simulate(jobs, believed, costs, scheduler, actual=actual)
        rows = trace.executions
        # A measured execution is its kernel alone: what comes before that is a gap.
        rows["start"][:] = rows["finish"] - kernels[rows["operator"], rows["device"]]
        return SimpleNamespace(trace=trace)


def test_overhead_has_no_waiting_for_the_interpreter_in_it():
    machine = SimulatedMachine()
    probe = OverheadProbe(machine)

    def seconds(jobs, **given):
        return probe.seconds(Fcfs, jobs, runs=1, **given)

    assert seconds(1, handover=machine.handover) == pytest.approx(machine.overhead, rel=0.05)
    assert seconds(4, handover=machine.handover) == pytest.approx(machine.overhead, rel=0.05)
    assert seconds(4) > 1.5 * machine.overhead
