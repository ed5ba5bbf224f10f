"""Runs that end at a horizon: what they leave, by hand and beside the run to the end."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.scripted import Script
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick

ONE = Cluster("one", [MemorySpace("m")], [Device("A", "m")])
TASK = from_edges("task", 1, [])
TWO_SECONDS = CostTable.of(TASK, np.array([[2.0]]))


def stream(*arrivals: float) -> Workload:
    return Workload([Job(TASK, arrival) for arrival in arrivals])


def test_what_runs_is_cut_off_and_who_comes_later_is_not_admitted() -> None:
    trace = simulate(stream(0, 1, 2, 9), ONE, TWO_SECONDS, create("fcfs"), horizon=5.0)
    assert trace.jobs["status"].tolist() == ["finished", "finished", "queued"]
    assert trace.jobs["finish"].tolist() == [2.0, 4.0, math.inf]
    assert trace.executions["status"].tolist() == ["finished", "finished", "running"]
    assert trace.executions["start"].tolist() == [0.0, 2.0, 4.0]
    assert trace.executions["finish"].tolist() == [2.0, 4.0, 5.0]
    assert (trace.makespan, trace.end, trace.meta["horizon_s"]) == (4.0, 5.0, 5.0)
    figures = metrics(trace)
    assert (figures["jobs"], figures["jobs_finished"], figures["jobs_queued"]) == (3, 2, 1)
    assert (figures["tasks"], figures["utilisation"]) == (2, 1.0)


def test_what_happens_at_the_horizon_still_counts() -> None:
    trace = simulate(stream(0, 4), ONE, TWO_SECONDS, create("fcfs"), horizon=4.0)
    assert trace.jobs["status"].tolist() == ["finished", "queued"]
    trace = simulate(stream(0, 4), ONE, TWO_SECONDS, create("fcfs"), horizon=2.0)
    assert trace.jobs["status"].tolist() == ["finished"]
    trace = simulate(stream(0, 4), ONE, TWO_SECONDS, create("fcfs"), horizon=math.nextafter(2, 0))
    assert trace.jobs["status"].tolist() == ["queued"]


def test_a_job_is_queued_while_its_output_is_on_its_way() -> None:
    cluster = Cluster(
        "far",
        [MemorySpace("m"), MemorySpace("host")],
        [Device("A", "m")],
        [Link("l", ("m", "host"), 1.0)],
        host="host",
    )
    graph = DELIVERS
    costs = CostTable.of(graph, np.array([[2.0]]))
    job = Workload([Job(graph, destination="host")])
    for horizon, status in ((4.9, "queued"), (5.0, "finished")):
        trace = simulate(job, cluster, costs, create("fcfs"), horizon=horizon)
        assert trace.jobs["status"].tolist() == [status]
        assert trace.executions["status"].tolist() == ["finished"]


def _delivering() -> object:
    from simulator.model.graph import DataflowGraph
    from simulator.model.operator import Operator, Tensor

    return DataflowGraph(
        "delivers",
        [Operator("o", "task")],
        [Tensor("out", "activation", 3.0)],
        [[]],
        [[0]],
        [{"tensor": "out", "views": []}],
    )


DELIVERS = _delivering()


def test_an_end_that_the_host_does_not_know_yet_is_an_end() -> None:
    late = Cluster("late", [MemorySpace("m")], [Device("A", "m", completion_latency=3.0)])
    trace = simulate(stream(0), late, TWO_SECONDS, create("fcfs"), horizon=4.0)
    assert trace.executions["status"].tolist() == ["finished"]
    assert trace.executions["finish"].tolist() == [2.0]
    assert trace.jobs["status"].tolist() == ["queued"]


def test_work_that_is_stuck_before_the_horizon_is_still_an_error() -> None:
    with pytest.raises(SchedulingError, match="never placed"):
        simulate(stream(0), ONE, TWO_SECONDS, Script(lambda context, n: None), horizon=5.0)


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.nan, math.inf])
def test_a_horizon_is_a_time(horizon: float) -> None:
    with pytest.raises(InvalidInput, match="The horizon is"):
        simulate(stream(0), ONE, TWO_SECONDS, create("fcfs"), horizon=horizon)


def test_a_horizon_before_the_first_job_is_refused() -> None:
    with pytest.raises(InvalidInput, match="first job arrives at 3"):
        simulate(stream(3), ONE, TWO_SECONDS, create("fcfs"), horizon=2.0)


@quick
@given(cases(), st.floats(0.01, 30.0))
def test_a_horizon_cuts_the_run_to_the_end(case: Case, horizon: float) -> None:
    """Up to the horizon the two runs are one, and every submitted job is counted once."""
    latency = [0.0, 0.7][case.seed % 2]
    devices = [dataclasses.replace(d, completion_latency=latency) for d in case.cluster.devices]
    cluster = dataclasses.replace(case.cluster, devices=devices)
    first = case.workload.jobs[0].arrival
    horizon += first

    def run(end: float | None) -> Trace:
        return simulate(
            case.workload,
            cluster,
            case.costs,
            case.scheduler(),
            actual=case.actual,
            movement=case.movement,
            contention=case.contention,
            seed=case.seed,
            horizon=end,
        )

    whole, cut = run(None), run(horizon)
    admitted = sum(job.arrival <= horizon for job in case.workload)
    assert len(cut.jobs["job"]) == admitted
    done = whole.jobs["finish"][:admitted] <= horizon
    assert (cut.jobs["status"] == np.where(done, "finished", "queued")).all()
    assert np.array_equal(cut.jobs["finish"][done], whole.jobs["finish"][:admitted][done])
    key = ("task", "device", "slot", "start")
    expected = {
        tuple(row[:4]): (min(row[4], horizon), "finished" if row[4] <= horizon else "running")
        for row in zip(*(whole.executions[k].tolist() for k in (*key, "finish")), strict=True)
        if row[3] <= horizon
    }
    found = {
        tuple(row[:4]): (row[4], row[5])
        for row in zip(
            *(cut.executions[k].tolist() for k in (*key, "finish", "status")), strict=True
        )
    }
    assert found == expected
    figures = metrics(cut)
    counted = figures["jobs_finished"] + figures["jobs_failed"] + figures["jobs_queued"]
    assert counted == figures["jobs"] == admitted
