"""What calling a kernel in the runner costs, and waiting for the interpreter."""

import pytest

torch = pytest.importorskip("torch")

from calibration.dispatch import (  # noqa: E402
    DispatchProbe,
)
from calibration.runner import Machine  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from simulator.cluster import Cluster, Device, MemorySpace  # noqa: E402


def test_calling_on_this_machine():
    cluster = Cluster("one", [MemorySpace("ram")], [Device("a", "ram")], host="ram")
    with Machine(cluster, {"a": WorkerSpec()}) as machine:
        assert 0 <= DispatchProbe(machine, operators=20).calling_seconds(repeats=1) < 1e-2
