"""The runner's overhead contains what a scheduler needs to decide."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from calibration.runner import Machine
from calibration.workers import WorkerSpec
from experiments.runner_overhead import OverheadProbe, gaps
from simulator.cluster import Cluster, Device, MemorySpace
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
