"""Deadlines and accuracy: Moore and Hodgson, EDF, variants against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.serving_metrics import serving_metrics
from simulator.engine.run import simulate
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers.deadline_accuracy import holds, moore_hodgson
from tests.examples import examples
from tests.simulator.serving.fleet import Fleet, one, poisson

TASKS = [(1, 2), (2, 3), (3, 4), (2, 6), (4, 9), (3, 10)]
"""(p, D) of the known answer, in the order of deadlines."""


def test_moore_hodgson_of_the_known_answer() -> None:
    in_time, late = moore_hodgson(TASKS)
    assert [i + 1 for i in in_time] == [1, 2, 4, 6]
    assert [i + 1 for i in late] == [3, 5]


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=7))
def test_moore_hodgson_is_optimal(tasks: list[tuple[int, int]]) -> None:
    tasks.sort(key=lambda task: task[1])
    in_time, late = moore_hodgson(tasks)
    assert sorted([*in_time, *late]) == list(range(len(tasks)))
    assert holds([tasks[i] for i in in_time])
    best = max(
        size
        for size in range(len(tasks) + 1)
        for some in itertools.combinations(tasks, size)
        if holds(some)
    )
    assert len(in_time) == best


def on_time(trace: Trace) -> int:
    """Requests that were answered within their deadline."""
    finished = trace.jobs["status"] == "finished"
    return int((finished & (trace.jobs["finish"] <= trace.jobs["deadline"])).sum())


def test_the_scheduler_meets_four_deadlines_where_the_order_of_arrival_meets_two() -> None:
    fleet = Fleet([(float(p), 0.0) for p, _ in TASKS])
    jobs = [fleet.job(0.0, i, deadline=float(d)) for i, (_, d) in enumerate(TASKS)]
    assert on_time(fleet.run(jobs, "deadline_accuracy", order="edf")) == 4
    assert on_time(fleet.run(jobs, "deadline_accuracy")) == 4
    assert on_time(fleet.run(jobs, "fcfs_batching", max_batch=1)) == 2


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=8))
def test_edf_meets_all_deadlines_that_can_be_met(rows: list[tuple[int, int]]) -> None:
    end, tasks = 0, []
    for seconds, slack in rows:  # feasible in this order
        end += seconds
        tasks.append((float(seconds), float(end + slack)))
    order = np.random.default_rng(len(rows)).permutation(len(tasks)).tolist()
    tasks = [tasks[i] for i in order]
    fleet = Fleet([(p, 0.0) for p, _ in tasks])
    jobs = [fleet.job(0.0, i, deadline=d) for i, (_, d) in enumerate(tasks)]
    for scheduler, options in (("edf", {}), ("deadline_accuracy", {})):
        assert on_time(fleet.run(jobs, scheduler, **options)) == len(tasks)


def with_variants(
    times: list[float], accuracies: list[float], jobs_of: list[dict[str, float]]
) -> tuple[Workload, Fleet, CostTable]:
    """Requests for the first of several models, the others may serve in its place."""
    fleet = Fleet([(1.0, 0.0)])
    graphs = [one(f"v{i}", 1) for i in range(len(times))]
    costs = CostTable({g: GraphCosts(np.array([[t]])) for g, t in zip(graphs, times, strict=True)})
    jobs = [
        Job(graphs[0], 0.0, model="v0", batch=1, origin="node0", destination="node0", **row)  # type: ignore[arg-type]
        for row in jobs_of
    ]
    workload = Workload(
        jobs,
        {g: {1: g} for g in graphs},
        {graphs[0]: graphs[1:]},
        dict(zip(graphs, accuracies, strict=True)),
    )
    return workload, fleet, costs


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.floats(0.05, 1.0)), min_size=1, max_size=6))
def test_variants_against_brute_force(rows: list[tuple[int, float]]) -> None:
    times, accuracies = [4.0, 2.0, 1.0], [0.8, 0.7, 0.5]
    jobs = [
        {"deadline": float(d), "time_sensitivity": 0.5, "accuracy_sensitivity": b} for d, b in rows
    ]
    workload, fleet, costs = with_variants(times, accuracies, jobs)
    trace = simulate(workload, fleet.cluster, costs, create("deadline_accuracy"))
    names = [trace.meta["graphs"][g]["name"] for g in trace.jobs["graph"].tolist()]
    value = sum(
        b * accuracies[int(name[1])]
        for name, (_, b), status, finish, (d, _) in zip(
            names, rows, trace.jobs["status"], trace.jobs["finish"], rows, strict=True
        )
        if status == "finished" and finish <= d
    )
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    best, most = 0.0, 0
    for chosen in itertools.product(range(len(times) + 1), repeat=len(rows)):
        kept = [
            (times[c], rows[i][0]) for i, c in zip(order, chosen, strict=True) if c < len(times)
        ]
        if holds(kept):
            gained = [
                rows[i][1] * accuracies[c]
                for i, c in zip(order, chosen, strict=True)
                if c < len(times)
            ]
            most = max(most, len(gained))
            best = max(best, sum(gained))
    # As many in time as is possible at all; of accuracy the greedy choice leaves little.
    assert on_time(trace) == most
    assert value >= 0.6 * best


def test_time_that_is_left_goes_to_accuracy() -> None:
    workload, fleet, costs = with_variants([4.0, 2.0, 1.0], [0.8, 0.7, 0.5], [{"deadline": 5.0}])
    trace = simulate(workload, fleet.cluster, costs, create("deadline_accuracy"))
    assert trace.meta["graphs"][int(trace.jobs["graph"][0])]["name"] == "v0"
    figures = serving_metrics(trace, 0.0, {"v0": 0.8, "v1": 0.7, "v2": 0.5})
    assert figures["accuracy_of_all"] == 0.8
    tight, fleet, costs = with_variants([4.0, 2.0, 1.0], [0.8, 0.7, 0.5], [{"deadline": 3.0}])
    trace = simulate(tight, fleet.cluster, costs, create("deadline_accuracy"))
    assert trace.makespan == 2.0
    for variants, seconds in (("fastest", 1.0), ("own", 4.0)):
        scheduler = create("deadline_accuracy", variants=variants, drop=False)
        assert simulate(tight, fleet.cluster, costs, scheduler).makespan == seconds


def test_who_needs_accuracy_gets_no_cheap_answer() -> None:
    workload, fleet, costs = with_variants(
        [4.0, 2.0, 1.0], [0.8, 0.7, 0.5], [{"deadline": 3.0, "least_accuracy": 0.6}]
    )
    trace = simulate(
        workload, fleet.cluster, costs, create("deadline_accuracy", variants="fastest")
    )
    assert trace.makespan == 2.0


def test_admission_refuses_what_no_node_can_answer_in_time() -> None:
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0, 2.0], sources=1)
    jobs = [fleet.job(0.0, at="user0", deadline=0.8) for _ in range(3)]
    select = {"name": "deadline", "admission": True}
    trace = fleet.run(jobs, "deadline_accuracy", select=select, _contention="fifo")
    assert sorted(trace.jobs["status"].tolist()) == ["finished", "rejected", "rejected"]
    assert trace.executions["device"].tolist() == [1]
    figures = serving_metrics(trace)
    assert figures["success_rate"] == pytest.approx(1 / 3)
    assert figures["rejected"] == 2


def test_of_the_nodes_in_time_the_one_with_fewer_requests_ahead() -> None:
    fleet = Fleet([(0.0, 1.0)], speeds=[1.0, 4.0], sources=1, bandwidth=1e12)
    # Nothing is ahead anywhere: the earlier finish. Then the slow node has less ahead.
    jobs = [fleet.job(0.0, at="user0", deadline=9.0) for _ in range(2)]
    trace = fleet.run(jobs, "deadline_accuracy")
    placed = zip(trace.executions["job"].tolist(), trace.executions["device"].tolist(), strict=True)
    assert dict(placed) == {0: 1, 1: 0}
    # But not if it would be late there.
    tight = [jobs[0], fleet.job(0.0, at="user0", deadline=0.9)]
    placed = fleet.run(tight, "fcfs_batching", max_batch=1, select="deadline").executions["device"]
    assert placed.tolist() == [1, 1]


def test_unfinished_requests_count_with_their_age() -> None:
    fleet = Fleet([(0.0, 1.0)])
    jobs = [fleet.job(t) for t in poisson(3.0, 60, 4)]
    trace = fleet.run(jobs, "fcfs_batching", max_batch=1, _horizon=10.0)
    figures = serving_metrics(trace)
    arrived = trace.jobs["arrival"]
    assert figures["waiting"] + (trace.jobs["status"] == "finished").sum() == len(arrived)
    ages = np.where(trace.jobs["status"] == "finished", trace.jobs["finish"], 10.0) - arrived
    assert figures["mean_delay_s"] == pytest.approx(ages.mean())
