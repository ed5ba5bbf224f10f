"""What calling a kernel in the runner costs, and waiting for the interpreter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration.dispatch import (  # noqa: E402
    DispatchProbe,
    OneByOne,
    chains_beside,
    handover,
)
from calibration.runner import Machine  # noqa: E402
from calibration.workers import WorkerSpec  # noqa: E402
from simulator.cluster import Cluster, Device, MemorySpace  # noqa: E402
from simulator.costs import CostTable  # noqa: E402
from simulator.engine import simulate  # noqa: E402
from simulator.graph import from_edges  # noqa: E402
from simulator.workload import Job, Workload  # noqa: E402


def two_chains(kernels, overheads, seconds, launches):
    """The sum of both chains' spans, simulated."""
    devices = [
        Device(
            name,
            "ram",
            launch_overhead=o,
            launcher="interpreter",
            launch_handover=seconds,
            launches=count,
        )
        for name, o, count in zip("ab", overheads, launches, strict=True)
    ]
    graph = from_edges("chain", len(kernels), [(i, i + 1, 0.0) for i in range(len(kernels) - 1)])
    trace = simulate(
        Workload([Job(graph), Job(graph)]),
        Cluster("two", [MemorySpace("ram")], devices),
        CostTable.of(graph, kernels),
        OneByOne([0, 1]),
    )
    rows = trace.executions
    return sum(rows["finish"][rows["device"] == d].max() for d in (0, 1)) - sum(overheads)


@given(st.integers(0, 2**32), st.integers(1, 12), st.tuples(*2 * [st.integers(1, 3)]))
def test_chains_beside_each_other_are_those_of_the_simulator(seed, operators, launches):
    """Of drawn times: where two ask for the launcher at once, rounding would decide who is first."""
    rng = np.random.default_rng(seed)
    kernels = rng.uniform(1e-6, 1e-4, (operators, 2))
    overheads, seconds = rng.uniform(0, 5e-5, 2), rng.uniform(0, 5e-5)
    assert chains_beside(kernels, overheads, seconds, launches) == pytest.approx(
        two_chains(kernels, overheads, seconds, launches), rel=1e-9
    )


@given(st.floats(0, 1e-4), st.floats(1e-6, 2e-5), st.floats(1e-6, 2e-5))
def test_the_hand_over_is_found_again(seconds, overhead, kernel):
    kernels = np.full((30, 2), min(kernel, overhead))  # so short that launches always wait
    measured = chains_beside(kernels, (overhead, overhead), seconds)
    assert handover(kernels, (overhead, overhead), measured) == pytest.approx(seconds, abs=1e-9)


@given(st.floats(1e-6, 1e-4), st.floats(1e-6, 2e-5), st.floats(1e-6, 2e-5))
def test_with_the_hand_over_found_chains_of_several_kernels_take_as_long(seconds, overhead, kernel):
    """Several may do: who meets whom changes with it. With a little less they take less."""
    kernels, overheads, launches = np.full((30, 2), kernel), (overhead, overhead), (1, 3)
    measured = chains_beside(kernels, overheads, seconds, launches)
    found = handover(kernels, overheads, measured, launches)
    assert chains_beside(kernels, overheads, found, launches) >= measured
    if found > 0:
        assert chains_beside(kernels, overheads, found - 1e-12, launches) < measured


def test_no_hand_over_without_waiting():
    kernels = np.full((30, 2), 1e-4)
    alone = chains_beside(kernels, (1e-5, 1e-5), 0.0)
    assert handover(kernels, (1e-5, 1e-5), 0.9 * alone) == 0.0


def test_hand_over_on_this_machine():
    spaces, devices = [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")]
    with Machine(
        Cluster("two", spaces, devices, host="ram"), {"a": WorkerSpec(), "b": WorkerSpec()}
    ) as machine:
        probe = DispatchProbe(machine, operators=20)
        assert 0 <= probe.handover_seconds(repeats=2) < 1e-3
        assert 0 <= probe.calling_seconds(repeats=1) < 1e-2
    with Machine(Cluster("one", spaces, devices[:1], host="ram"), {"a": WorkerSpec()}) as machine:
        assert DispatchProbe(machine, operators=4).handover_seconds(repeats=1) is None
