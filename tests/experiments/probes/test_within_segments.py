"""What the runner needs for a segment and within it, on this machine."""

import time

import pytest

pytest.importorskip("torch")

from calibration.runner import Machine
from calibration.segment_kernel import SegmentKernel
from calibration.workers import WorkerSpec
from experiments.probes import within_segments as subject
from experiments.probes.probed_model import PROBED
from scenarios.model_config import graph_of
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.schedulers.fcfs import Fcfs

ONE = Cluster("one", [MemorySpace("ram")], [Device("a", "ram")], host="ram")


class Slow(Fcfs):
    """Takes its time."""

    def decide(self, context):
        time.sleep(0.02)
        super().decide(context)


def test_what_a_segment_does_beyond_its_kernels_counts(monkeypatch):
    """And nothing that its kernels do: half a second of sleeping is divided among them."""
    monkeypatch.setattr(subject, "TURNS", 3)
    call, operators = SegmentKernel.__call__, len(graph_of(PROBED))
    with Machine(ONE, {"a": WorkerSpec()}) as machine:
        usual = subject.segment_seconds(machine)

        def slow(segment, *reads):
            time.sleep(0.5)
            return call(segment, *reads)

        monkeypatch.setattr(SegmentKernel, "__call__", slow)
        found = subject.segment_seconds(machine)
    assert 0 <= usual < 0.25 / operators
    assert 0.3 / operators < found < 2.0 / operators


def test_between_two_segments_and_until_the_first(monkeypatch):
    """A scheduler that sleeps for 20 ms each time it is asked is what passes between two of six requests."""
    for name, count in (("STARTS", 3), ("BURSTS", 1), ("BURST", 6)):
        monkeypatch.setattr(subject, name, count)
    with Machine(ONE, {"a": WorkerSpec()}) as machine:
        usual = subject.task_seconds(machine, Fcfs)
        slow = subject.task_seconds(machine, Slow)
        start = subject.start_seconds(machine)
    assert 0 < usual < 15e-3
    assert 20e-3 < slow < 0.2
    assert 0 < start < 0.1
