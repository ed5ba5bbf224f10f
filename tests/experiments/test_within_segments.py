"""What the runner needs for an operator within a segment, on this machine."""

import time

import pytest

pytest.importorskip("torch")

from calibration.runner import Machine
from calibration.segment_kernel import SegmentKernel
from calibration.workers import WorkerSpec
from experiments import within_segments as subject
from experiments.probed_model import PROBED
from scenarios.model_config import graph_of
from simulator.cluster import Cluster, Device, MemorySpace


def test_what_a_segment_does_beyond_its_kernels_counts(monkeypatch):
    """And nothing that its kernels do: half a second of sleeping is divided among them."""
    monkeypatch.setattr(subject, "TURNS", 3)
    cluster = Cluster("one", [MemorySpace("ram")], [Device("a", "ram")], host="ram")
    call, operators = SegmentKernel.__call__, len(graph_of(PROBED))
    with Machine(cluster, {"a": WorkerSpec()}) as machine:
        usual = subject.segment_seconds(machine)

        def slow(segment, *reads):
            time.sleep(0.5)
            return call(segment, *reads)

        monkeypatch.setattr(SegmentKernel, "__call__", slow)
        found = subject.segment_seconds(machine)
    assert 0 <= usual < 0.25 / operators
    assert 0.3 / operators < found < 2.0 / operators
