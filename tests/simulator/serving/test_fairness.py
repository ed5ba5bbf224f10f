"""Slowdowns over the time on an idle system, and Jain's index of them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.analysis.serving_metrics import jain, serving_metrics
from simulator.analysis.unloaded import unloaded_seconds
from simulator.model.closed_loop import ClosedLoop
from tests.simulator.serving.fleet import Fleet, poisson


@pytest.mark.parametrize(("contention", "speeds"), [("none", [1.0]), ("fifo", [1.0, 4.0, 2.0])])
def test_a_request_alone_takes_its_unloaded_time(contention: str, speeds: list[float]) -> None:
    fleet = Fleet([(0.3, 0.1), (1.0, 0.0)], speeds, sources=2, latency=0.1, bandwidth=1e4)
    jobs = [fleet.job(100.0 * i, i % 2, f"user{i % 3 % 2}", 1 + i % 2) for i in range(12)]
    alone = unloaded_seconds(jobs, fleet.cluster, fleet.costs)
    trace = fleet.run(jobs, "fcfs_batching", select="earliest_finish", _contention=contention)
    figures = serving_metrics(trace, unloaded=alone)
    assert [m["slowdown"] for m in figures["by_model"].values()] == pytest.approx([1.0, 1.0])
    assert figures["fairness"] == pytest.approx(1.0)


def test_fairness_by_hand() -> None:
    # m0: 1 s and 4 s instead of 1 s; m1: 5 s and 6 s instead of 4 s.
    fleet = Fleet([(1.0, 0.0), (4.0, 0.0)])
    jobs = [fleet.job(0.0), fleet.job(0.0, 1), fleet.job(2.0), fleet.job(4.0, 1)]
    trace = fleet.run(jobs, "fcfs_batching")
    assert trace.jobs["finish"].tolist() == [1.0, 5.0, 6.0, 10.0]
    figures = serving_metrics(trace, unloaded={"m0": 1.0, "m1": 4.0})
    slowdowns = [(1 + 4) / 2, (5 + 6) / 2 / 4]
    assert [m["slowdown"] for m in figures["by_model"].values()] == pytest.approx(slowdowns)
    assert figures["fairness"] == pytest.approx(sum(slowdowns) ** 2 / (2 * 8.140625))
    assert serving_metrics(trace)["fairness"] is None


def test_who_starves_alone_is_seen() -> None:
    assert jain([1.0, 1.0, 1.0, 1000.0]) == pytest.approx(0.25, rel=0.01)
    fleet = Fleet([(0.0, 0.01), (1.0, 0.0)])
    jobs = sorted(
        [*(fleet.job(0.00999 * i) for i in range(2000)), fleet.job(0.0, 1)],
        key=lambda job: job.arrival,
    )
    alone = unloaded_seconds(jobs, fleet.cluster, fleet.costs)
    plain = fleet.run(jobs, "task_groups", max_batch=1, theta=0.0)
    aging = fleet.run(jobs, "task_groups", max_batch=1, theta=10.0)
    fair, unfair = (
        serving_metrics(trace, unloaded=alone)["by_model"]["m1"]["slowdown"]
        for trace in (aging, plain)
    )
    assert unfair is not None
    assert fair is not None
    assert unfair > 19 > fair


def test_it_does_not_depend_on_the_luckiest_request() -> None:
    """One request that found the node idle used to decide the figure."""
    fleet = Fleet([(0.0, 0.1), (0.0, 0.1)])
    rng = np.random.default_rng(0)
    jobs = [fleet.job(1 + t, int(rng.integers(2))) for t in poisson(9.5, 2000)]
    alone = unloaded_seconds(jobs, fleet.cluster, fleet.costs)

    def fairness(first: int) -> float:
        trace = fleet.run([fleet.job(0.0, first), *jobs], "fcfs_batching", max_batch=1)
        found = serving_metrics(trace, unloaded=alone)["fairness"]
        assert found is not None
        return found

    assert fairness(0) == pytest.approx(fairness(1), abs=1e-3)
    assert fairness(0) > 0.99


def test_requests_that_take_no_time_are_slowed_by_nothing() -> None:
    fleet = Fleet([(0.0, 0.0), (1.0, 0.0)])
    jobs = [fleet.job(0.0), fleet.job(1.0, 1)]
    trace = fleet.run(jobs[:1], "fcfs_batching")
    assert serving_metrics(trace, unloaded={"m0": 1.0, "m1": 1.0})["fairness"] is None
    trace = fleet.run(jobs, "fcfs_batching")
    assert serving_metrics(trace, unloaded={"m0": 1.0, "m1": 1.0})["fairness"] == 1.0


def test_the_clients_of_a_closed_loop_show_all_that_they_ask_for() -> None:
    fleet = Fleet([(1.0, 0.0), (2.0, 0.0)])
    loop = ClosedLoop([[fleet.job(0.0), fleet.job(0.1, 1)]], fleet.batches)
    found = unloaded_seconds(loop.sample(10), fleet.cluster, fleet.costs)
    assert found == {"m0": 1.0, "m1": 2.0}
    assert len(loop.sample(1)) == 1
