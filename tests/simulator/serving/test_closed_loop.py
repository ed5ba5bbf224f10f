"""Clients that wait for their answers."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.closed_loop import ClosedLoop
from simulator.schedulers import create
from tests.simulator.serving.fleet import Fleet


@pytest.mark.parametrize("scheduler", ["task_groups", "fcfs", "mct", "heft"])
def test_a_client_thinks_after_each_answer(scheduler: str) -> None:
    fleet = Fleet([(0.0, 1.0)], sources=1, latency=0.5, bandwidth=1e12)
    requests = [fleet.job(0.25, at="user0"), *(fleet.job(2.0, at="user0") for _ in range(3))]
    workload = ClosedLoop([requests], fleet.batches)
    for _ in range(2):  # a workload runs as often as one likes
        trace = simulate(workload, fleet.cluster, fleet.costs, create(scheduler), contention="fifo")
        # 0.5 there, 1 of work, 0.5 back, 2 of thinking.
        assert trace.jobs["arrival"].tolist() == pytest.approx([0.25, 4.25, 8.25, 12.25])
        assert trace.jobs["finish"].tolist() == pytest.approx([2.25, 6.25, 10.25, 14.25])


def test_no_more_requests_than_clients_are_in_the_system() -> None:
    """With n clients and no thinking a device is always busy: throughput is its rate."""
    fleet = Fleet([(0.0, 0.5)])
    clients = [[fleet.job(0.0) for _ in range(10)] for _ in range(4)]
    trace = simulate(
        ClosedLoop(clients, fleet.batches),
        fleet.cluster,
        fleet.costs,
        create("fcfs_batching", max_batch=1),
    )
    assert len(trace.jobs["job"]) == 40
    assert trace.makespan == 20.0
    begins, ends = trace.jobs["arrival"], trace.jobs["finish"]
    inside = [(begins <= t).sum() - (ends <= t).sum() for t in np.arange(0.25, 18, 0.5)]
    assert set(inside) == {4}


def test_deadlines_are_after_the_arrival() -> None:
    fleet = Fleet([(0.0, 1.0)])
    clients = [[fleet.job(0.5, deadline=3.0), fleet.job(1.0, deadline=2.0)]]
    trace = simulate(ClosedLoop(clients, fleet.batches), fleet.cluster, fleet.costs, create("edf"))
    assert trace.jobs["deadline"].tolist() == [3.5, 4.5]


def test_a_client_without_requests_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sends no request"):
        ClosedLoop([[]])
