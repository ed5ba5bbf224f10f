"""Plans: files, what they refuse, and that carrying one out repeats a run."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Cluster, Device, Link, MemorySpace
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers.planned import Planned
from tests.simulator.strategies import graphs, seconds_of_finite

TWO = Cluster(
    "two",
    (MemorySpace("m"), MemorySpace("n")),
    (Device("a", "m"), Device("b", "n")),
    (Link("l", ("m", "n"), 4.0, 0.5),),
)


def chain():
    return from_edges("chain", 3, [(0, 1, 4), (1, 2, 8)])


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["heft", "donf", "fcfs", "work_stealing"]), st.integers(1, 3))
def test_a_plan_repeats_the_run_that_it_was_read_from(data, scheduler, jobs):
    graph = data.draw(graphs())
    costs = CostTable.of(graph, data.draw(seconds_of_finite(graph, 2)))
    workload = Workload([Job(graph, arrival=0.5 * i) for i in range(jobs)])
    first = simulate(workload, TWO, costs, create(scheduler))
    plan = Plan.executed(first, [graph] * jobs)
    again = simulate(workload, TWO, costs, Planned(plan))
    np.testing.assert_array_equal(Plan.executed(again, [graph] * jobs).device, plan.device)
    assert again.makespan <= first.makespan + 1e-9  # transfers may be asked for sooner
    read = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert simulate(workload, TWO, costs, Planned(read)).makespan == again.makespan


def test_a_file_keeps_a_plan(tmp_path):
    graph = chain()
    plan = Plan("mine", (graph, graph), ("a", "b"), np.array([0, 1, 1, 0, 0, 0]), np.arange(6), 3.5)
    plan.save(tmp_path / "plan.json")
    costs = CostTable.of(graph, np.array([[1, 2], [3, 1], [1, 1]]))
    jobs = Workload([Job(graph), Job(graph)])
    scheduler = create("planned", file=str(tmp_path / "plan.json"))
    trace = simulate(jobs, TWO, costs, scheduler)
    assert trace.makespan == simulate(jobs, TWO, costs, Planned(plan)).makespan
    assert scheduler.plan.makespan_s == 3.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": [0, 1]}, "device of 2 tasks"),
        ({"device": [0, 1, 2]}, "on device 2; there are 2 devices"),
        ({"order": [0, 1, 1]}, "not every task stands once"),
        ({"jobs": [1]}, "the number of one"),
        ({"jobs": []}, "has no jobs"),
        ({"format": "other"}, "Not a plan"),
        ({"order": [0.5, 1, 2]}, "list of integers 'order'"),
        ({"devices": [1]}, "names of its 'devices'"),
    ],
)
def test_a_malformed_plan_is_refused(change, message):
    plan = Plan("mine", (chain(),), ("a", "b"), np.zeros(3), np.arange(3))
    with pytest.raises(InvalidInput, match=message):
        Plan.from_json({**plan.to_json(), **change})


def test_a_plan_for_another_cluster_graph_or_workload_is_refused():
    graph, other = chain(), from_edges("other", 2, [(0, 1, 4)])
    plan = Plan("mine", (graph,), ("a", "b"), np.zeros(3), np.arange(3))
    costs = CostTable.of(graph, np.ones((3, 2)))
    apart = Cluster("apart", (MemorySpace("m"),), (Device("x", "m"), Device("y", "m")), ())
    with pytest.raises(InvalidInput, match="is for devices a, b; cluster 'apart' has x, y"):
        simulate(graph, apart, costs, Planned(plan))
    with pytest.raises(InvalidInput, match="for another graph: job 0 of it is of 'chain'"):
        simulate(other, TWO, CostTable.of(other, np.ones((2, 2))), Planned(plan))
    with pytest.raises(InvalidInput, match="for 1 jobs, and job 1 came"):
        simulate(Workload([Job(graph), Job(graph)]), TWO, costs, Planned(plan))
    with pytest.raises(InvalidInput, match="has no plan"):
        simulate(graph, TWO, costs, create("planned"))
