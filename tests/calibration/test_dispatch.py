"""The runner's overhead contains what a scheduler needs to decide."""

import time

import pytest

torch = pytest.importorskip("torch")

from calibration.dispatch import DispatchProbe  # noqa: E402
from calibration.runner import Machine  # noqa: E402
from calibration.segment_kernel import SegmentKernel  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from simulator.cluster import Cluster, Device, MemorySpace  # noqa: E402
from simulator.schedulers import create  # noqa: E402
from simulator.schedulers.fcfs import Fcfs  # noqa: E402


class Slow(Fcfs):
    name = "slow"

    def decide(self, context):
        time.sleep(0.003)
        super().decide(context)


def test_overhead_per_operator():
    cluster = Cluster(
        "two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram"
    )
    with Machine(cluster, {"a": WorkerSpec(), "b": WorkerSpec()}) as machine:
        probe = DispatchProbe(machine, operators=20)
        usual = probe.seconds(lambda: create("fcfs"), repeats=3)
        slow = probe.seconds(Slow, repeats=1)
    assert 1e-6 < usual < 2e-3
    assert 3e-3 < slow < 0.1


def test_overhead_within_a_segment(monkeypatch):
    """What a segment does beyond its kernels counts, and nothing that its kernels do."""
    cluster = Cluster("one", [MemorySpace("ram")], [Device("a", "ram")], host="ram")
    call, operators = SegmentKernel.__call__, 12
    with Machine(cluster, {"a": WorkerSpec()}) as machine:
        probe = DispatchProbe(machine, operators)
        usual = probe.segment_seconds(lambda: create("fcfs"), repeats=5)

        def slow(segment, *reads):
            time.sleep(0.005 * operators)
            return call(segment, *reads)

        monkeypatch.setattr(SegmentKernel, "__call__", slow)
        found = probe.segment_seconds(lambda: create("fcfs"), repeats=3)
    assert 0 <= usual < 2e-3
    assert 2.5e-3 < found < 50e-3
