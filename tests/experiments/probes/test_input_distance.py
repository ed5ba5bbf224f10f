"""What inputs cost that are not at hand is found again in simulated runs of the probe."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.probes.input_distance import (
    DISTANCES,
    ELSEWHERE,
    InputProbes,
    Turns,
    reading_curves,
)
from experiments.probes.probed_model import PROBED
from scenarios.model_config import graph_of
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.workload import Job, Workload

CURVE = ReadingCurve((2.0**22, 2.0**24, 2.0**25), (0.0, 8e-12, 2e-11), elsewhere=3e-11)


class Simulated:
    """The probed model on a simulated machine whose executions vary by some percent, more on some runs."""

    def __init__(self, cluster, noise):
        self.graph = graph_of(PROBED)
        self._cluster, self._noise = cluster, noise
        self._rng = np.random.default_rng(5)
        self._usual = 2e-5 * self._rng.lognormal(1.0, 1.0, len(self.graph))

    def trace(self, arrivals, scheduler):
        vary = self._rng.lognormal(0.0, self._noise, len(self.graph))
        times = np.repeat((self._usual * vary)[:, np.newaxis], len(self._cluster.devices), axis=1)
        costs = CostTable({self.graph: GraphCosts(times)})
        return simulate(
            Workload([Job(self.graph) for _ in arrivals]), self._cluster, costs, scheduler
        )


def probed(curves, noise=0.0, runs=3, device="cpu"):
    cluster = Cluster(
        "c", [MemorySpace("m")], [Device(f"d{i}", "m", far_inputs=c) for i, c in enumerate(curves)]
    )
    machine = SimpleNamespace(cluster=cluster, specs=[SimpleNamespace(device=device)] * len(curves))
    probes = InputProbes(machine, Simulated(cluster, noise))
    for _ in range(runs):
        probes.run()
    return probes


def test_the_curves_are_found():
    near = ReadingCurve((2.0**22, 2.0**25), (0.0, 1e-11))
    first, second = reading_curves(probed([CURVE, near]).seconds())
    for found, true in ((first, CURVE), (second, near)):
        assert found.elsewhere == pytest.approx(true.elsewhere, abs=2e-12)
        for distance in DISTANCES[4:8]:  # of farther ones there are few
            assert found.cost(distance) == pytest.approx(true.cost(distance), abs=2e-12)


def test_they_are_found_where_executions_vary():
    (found,) = reading_curves(probed([CURVE], noise=0.05, runs=9).seconds())
    assert found.elsewhere == 0.0  # there is no other device
    assert found.cost(2.0**25) == pytest.approx(2e-11, rel=0.25)
    assert found.cost(2.0**21) < 3e-12


def test_nothing_costs_anything_where_all_is_at_hand():
    (found, _) = reading_curves(probed([None, None]).seconds())
    assert max(found.costs) < 1e-16
    assert found.elsewhere < 1e-16


def test_one_device_takes_turns_with_nobody():
    seconds = probed([CURVE]).seconds()
    assert np.isnan(seconds[:, ELSEWHERE]).all()
    assert not np.isnan(seconds[:, :ELSEWHERE]).any()


def test_nothing_is_run_where_a_device_is_no_core():
    probes = probed([CURVE, CURVE], device="cuda:0")
    assert len(probes.seconds()) == 0
    assert reading_curves(probes.seconds()) == ()


def test_turns_go_round_jobs_and_devices():
    graph = graph_of(PROBED)
    cluster = Cluster("c", [MemorySpace("m")], [Device("a", "m"), Device("b", "m")])
    costs = CostTable({graph: GraphCosts(np.full((len(graph), 2), 1e-4))})
    rows = simulate(Workload([Job(graph), Job(graph)]), cluster, costs, Turns([1, 0])).executions
    assert (rows["device"] == 1 - rows["operator"] % 2).all()
    one = simulate(Workload([Job(graph), Job(graph)]), cluster, costs, Turns([1])).executions
    order = np.argsort(one["start"], kind="stable")
    assert (np.diff(one["operator"][order]) >= 0).all()
