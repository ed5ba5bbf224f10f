"""The trace of fixed plans against the engine's, to the last digit: several jobs, and what a plan's tasks overtake."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.engine.evaluator import Evaluator, order_of
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from tests.examples import examples
from tests.simulator.scripted import StaticPlan
from tests.simulator.seeded import SeededCase, seeded_case

ROOT = Path(__file__).parents[3]


def assert_same(found: Trace, expected: Trace) -> None:
    """Both traces say the same but for what wrote them."""
    for table in ("executions", "members", "jobs", "transfers"):
        ours, theirs = getattr(found, table), getattr(expected, table)
        assert list(ours) == list(theirs)
        for name, column in theirs.items():
            assert ours[name].dtype == column.dtype, name
            assert ours[name].tolist() == column.tolist(), (table, name)
    assert {**found.meta, "engine": ""} == {**expected.meta, "engine": ""}
    assert found.wallclock["decisions"] == expected.wallclock["decisions"]


def plan_of(case: SeededCase, number: int) -> tuple[list[list[tuple[int, float]]], list[int]]:
    """For each job the devices and ranks of its operators, in any order that the graph allows; jobs overtake
    each other. And the devices of all tasks.
    """
    pick = random.Random(f"plan {number}")
    rows = []
    for job in case.workload:
        seconds, graph = case.costs[job.graph].seconds, job.graph
        shift, spread = pick.choice([0.0, pick.uniform(-20, 20)]), pick.choice([1.0, 1.0, 4.0])
        rank = [0.0] * len(graph)
        for task in range(len(graph)):
            # Behind all that it waits for; equal ranks of several jobs, and whole ones, are frequent.
            least = max((rank[p] + 1.0 for p in graph.predecessors[task]), default=shift)
            rank[task] = least + pick.choice([0.0, 1.0, pick.uniform(0.0, 9.0)]) * spread
        able = [np.flatnonzero(np.isfinite(row)).tolist() for row in seconds]
        rows.append([(pick.choice(choices), r) for choices, r in zip(able, rank, strict=True)])
    return rows, [device for row in rows for device, _ in row]


def check(number: int) -> None:
    """The run of that number, traced by both."""
    case = seeded_case(number, contentions=("none", "fifo"))
    rows, device = plan_of(case, number)
    order = order_of([rank for row in rows for _, rank in row])
    expected = case.run(StaticPlan(*rows))
    evaluator = Evaluator(
        case.workload,
        case.cluster,
        case.costs,
        movement=case.movement,
        contention=case.contention,
        actual=case.actual_seconds(),
    )
    for _ in range(2):  # what one evaluation leaves behind does not reach the next
        assert_same(evaluator.trace(device, order, scheduler="static_plan"), expected)
        found = evaluator.schedule(device, order)
        assert found.makespan == expected.makespan
        assert found.start.tolist() == expected.tasks["start"].tolist()
        assert found.finish.tolist() == expected.tasks["finish"].tolist()


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_equals_the_engine(first: int) -> None:
    for number in range(first, first + examples(300)):
        check(number)


@pytest.mark.thorough  # compiled anew; test_equals_the_engine runs the same cases without the checks
def test_stays_within_its_arrays(tmp_path: Path) -> None:
    """The same with every index checked, which is compiled apart."""
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_OPT": "1",
    }
    script = "from tests.simulator.planners.test_evaluator_trace import check\n"
    script += "for number in range(100_000, 100_200):\n    check(number)\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def pair() -> Cluster:
    """Two devices, each with its memory, and a link of 1 B/s."""
    return Cluster(
        "pair",
        [MemorySpace("a"), MemorySpace("b")],
        [Device("A", "a"), Device("B", "b")],
        [Link("ab", ("a", "b"), 1.0)],
    )


def test_a_job_that_arrives_later_overtakes_what_has_not_started() -> None:
    """The first job has three tasks of 4 s on A; the second arrives at 2 and stands before the last two."""
    chain, single = from_edges("three", 3, []), from_edges("one", 1, [])
    costs = CostTable(
        {chain: GraphCosts(np.full((3, 2), 4.0)), single: GraphCosts(np.full((1, 2), 1.0))}
    )
    evaluator = Evaluator(Workload([Job(chain), Job(single, 2.0)]), pair(), costs)
    trace = evaluator.trace([0, 0, 0, 0], [0, 3, 1, 2])
    assert trace.executions["task"].tolist() == [0, 3, 1, 2]
    assert trace.executions["start"].tolist() == [0.0, 4.0, 5.0, 9.0]
    assert trace.executions["placed"].tolist() == [0.0, 2.0, 0.0, 0.0]
    assert trace.jobs["finish"].tolist() == [13.0, 5.0]
    # Before the first task of all it would still come second: that has started.
    assert evaluator.schedule([0, 0, 0, 0], [3, 0, 1, 2]).start.tolist() == [0.0, 5.0, 9.0, 4.0]


def test_a_job_that_arrives_later_goes_before_a_task_whose_data_is_on_its_way() -> None:
    """t1 on B waits from 1 to 6 for 5 bytes; a task of 2 s that arrives at 3 runs in between, one of 4 s holds
    it up until 7.
    """
    edge, single = from_edges("edge", 2, [(0, 1, 5.0)]), from_edges("one", 1, [])
    for seconds, start in ((2.0, 6.0), (4.0, 7.0)):
        costs = CostTable(
            {edge: GraphCosts(np.ones((2, 2))), single: GraphCosts(np.full((1, 2), seconds))}
        )
        evaluator = Evaluator(Workload([Job(edge), Job(single, 3.0)]), pair(), costs)
        found = evaluator.schedule([0, 1, 1], [0, 2, 1])
        assert found.start.tolist() == [0.0, start, 3.0]
        # Behind it in the plan, it waits although the device is idle.
        assert evaluator.schedule([0, 1, 1], [0, 1, 2]).start.tolist() == [0.0, 6.0, 7.0]


def test_jobs_come_from_and_go_to_places_of_their_own() -> None:
    """Inputs of 3 bytes lie in a, results of 2 go to b: over one link of 1 B/s, first come first served."""
    from simulator.model.graph import DataflowGraph
    from simulator.model.operator import Operator, Tensor

    graph = DataflowGraph(
        "one",
        [Operator("f", "task")],
        [Tensor("x", "input", 3.0), Tensor("y", "activation", 2.0)],
        [[0]],
        [[1]],
        [{"tensor": "y", "views": []}],
    )
    jobs = [Job(graph, origin="a"), Job(graph, 1.0, origin="a", destination="a"), Job(graph, 1.0)]
    evaluator = Evaluator(
        Workload(jobs), pair(), CostTable.of(graph, np.ones((1, 2))), contention="fifo"
    )
    trace = evaluator.trace([1, 1, 0], [0, 1, 2])
    assert trace.jobs["finish"].tolist() == [4.0, 9.0, 2.0]
    assert trace.transfers["start"].tolist() == [0.0, 3.0, 7.0]
    assert trace.transfers["requested"].tolist() == [0.0, 1.0, 7.0]
    assert trace.transfers["job"].tolist() == [0, 1, 1]
    assert trace.transfers["tensor"].tolist() == [0, 0, 1]


def test_tasks_of_several_jobs_are_named_with_their_job() -> None:
    graph = from_edges("edge", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    evaluator = Evaluator(Workload([Job(graph), Job(graph, 1.0)]), pair(), costs)
    with pytest.raises(SchedulingError, match="device 'A' must run 't1#1' next, whose predecess"):
        evaluator.trace([0, 0, 0, 0], [0, 1, 3, 2])
    with pytest.raises(SchedulingError, match="A plan for 2 jobs needs the order of 4 tasks"):
        evaluator.trace([0, 0, 0, 0], [0, 1])


def test_clusters_of_other_ways_are_refused() -> None:
    graph = from_edges("edge", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    plain = pair()
    link = Link("ab", ("a", "b"), 1.0, launcher="host", launch_overhead=0.1)
    launched = Cluster("launched", plain.spaces, plain.devices, [link])
    with pytest.raises(InvalidInput, match="Links of cluster 'launched' have launchers"):
        Evaluator(graph, launched, costs)
