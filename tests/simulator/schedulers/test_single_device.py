"""Everything on one device: closed form, the sum of its times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scenarios.instances import instance_from_json
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.schedulers import create

CPU = Cluster("cpu", [MemorySpace("a")], [Device("A", "a"), Device("B", "a")])


@pytest.mark.parametrize("movement", ["push", "pull"])
@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_makespan_is_the_sum_on_the_best_device(movement: str, contention: str) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.1, 2.0, (40, 3))
    edges = [(a, b, 5.0) for b in range(1, 40) for a in {int(rng.integers(0, b))}]
    graph, cluster, costs = instance_from_json(
        {"cost": matrix.tolist(), "edges": [list(edge) for edge in edges]}
    )
    best = int(matrix.sum(axis=0).argmin())
    for option, device in ((None, best), ("P1", 0), ("P3", 2)):
        scheduler = create("single_device", device=option)
        trace = simulate(graph, cluster, costs, scheduler, movement=movement, contention=contention)
        total = 0.0
        for seconds in matrix[:, device]:
            total += seconds
        assert trace.makespan == total
        assert set(trace.tasks["device"]) == {device}
        assert len(trace.transfers["tensor"]) == 0


def test_each_job_goes_to_its_own_best_device() -> None:
    one, two = from_edges("one", 1, []), from_edges("two", 1, [])
    costs = CostTable(
        {
            **CostTable.of(one, np.array([[1.0, 2.0]])),
            **CostTable.of(two, np.array([[2.0, 1.0]])),
        }
    )
    trace = simulate(Workload([Job(one), Job(two)]), CPU, costs, create("single_device"))
    assert trace.tasks["device"].tolist() == [0, 1]


def test_unknown_device() -> None:
    graph = from_edges("one", 1, [])
    costs = CostTable.of(graph, np.array([[1.0, 2.0]]))
    with pytest.raises(InvalidInput, match="to use device 'C'; cluster 'cpu' has A, B"):
        simulate(graph, CPU, costs, create("single_device", device="C"))


def test_a_device_that_cannot_run_everything() -> None:
    graph = from_edges("split", 2, [])
    costs = CostTable.of(graph, np.array([[1.0, math.inf], [math.inf, 1.0]]))
    for device, who in ((None, "no single device"), ("A", "A")):
        with pytest.raises(InvalidInput, match=f"'split' cannot run whole .*: {who} lacks times"):
            simulate(graph, CPU, costs, create("single_device", device=device))
