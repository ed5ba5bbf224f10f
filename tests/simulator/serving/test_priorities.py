"""Requests of several priorities: who goes first, who joins a batch, whom the guard against starving lets through.

Waits of two classes against Cobham's: tests/simulator/test_queues.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.serving.fleet import Fleet, flows, poisson

BY_PRIORITY = ("task_groups", "fcfs_batching")


@pytest.mark.parametrize("scheduler", BY_PRIORITY)
def test_urgent_groups_go_first_and_what_runs_goes_on(scheduler: str) -> None:
    fleet = Fleet([(1.0, 0.0), (1.0, 0.0)])
    jobs = [*(fleet.job(0.0) for _ in range(3)), fleet.job(0.5, 1, priority=1), fleet.job(0.6)]
    trace = fleet.run(jobs, scheduler, max_batch=1, by_priority=True)
    assert trace.executions["job"].tolist() == [0, 3, 1, 2, 4]
    assert trace.executions["start"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    plain = fleet.run(jobs, scheduler, max_batch=1)
    assert plain.executions["job"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("scheduler", BY_PRIORITY)
def test_the_less_urgent_fill_up_a_batch(scheduler: str) -> None:
    fleet = Fleet([(1.0, 0.0), (1.0, 0.0)])
    first = fleet.job(0.0, 1)
    waiting = [fleet.job(0.1 + 0.1 * i, priority=p) for i, p in enumerate((0, 0, 2, 1, 0))]
    trace = fleet.run([first, *waiting], scheduler, max_batch=3, by_priority=True)
    assert trace.members["job"].tolist() == [0, 3, 4, 1, 2, 5]
    assert trace.members["execution"].tolist() == [0, 1, 1, 1, 2, 2]


def test_the_guard_against_starving_lets_one_of_low_priority_through() -> None:
    fleet = Fleet([(0.0, 1.0)])
    urgent = [fleet.job(0.9 * i, priority=1) for i in range(40)]
    jobs = sorted([*urgent, fleet.job(0.1)], key=lambda job: job.arrival)

    def wait(**options: object) -> float:
        trace = fleet.run(jobs, "task_groups", max_batch=1, by_priority=True, **options)
        return float(flows(trace)[1])

    assert jobs[1].priority == 0
    assert wait() > 39
    assert wait(starve_after="5s") < 8


def test_who_is_least_urgent_is_uploaded_first() -> None:
    fleet = Fleet([(0.0, 0.1)], speeds=[1.0, 4.0], latency=0.01, bandwidth=1e6)
    jobs = [fleet.job(0.0, priority=i % 2) for i in range(20)]
    options = {
        "max_batch": 1,
        "upload_to": "node1",
        "upload_above": "1500ms",
        "upload_below": "1400ms",
    }
    trace = fleet.run(jobs, "task_groups", by_priority=True, **options)
    there = trace.executions["job"][trace.executions["device"] == 1].tolist()
    assert there
    assert {jobs[job].priority for job in there} == {0}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), scheduler=st.sampled_from(BY_PRIORITY))
def test_no_request_starts_after_one_that_is_less_urgent_and_came_later(
    seed: int, scheduler: str
) -> None:
    fleet = Fleet([(0.05, 0.02)])
    jobs = [fleet.job(t, priority=(i * seed) % 3) for i, t in enumerate(poisson(12, 60, seed))]
    trace = fleet.run(jobs, scheduler, max_batch=2, by_priority=True)
    start = dict(
        zip(
            trace.members["job"].tolist(),
            trace.executions["start"][trace.members["execution"]].tolist(),
            strict=True,
        )
    )
    for one, job in enumerate(jobs):
        for two in range(one + 1, len(jobs)):
            if job.priority >= jobs[two].priority:
                assert start[one] <= start[two]
