"""Shortest job first: optimal on one machine, and what holding a task means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.test_properties import quick

ONE = Cluster("one", [MemorySpace("m")], [Device("A", "m")])
TWO = Cluster("two", [MemorySpace("m")], [Device("A", "m"), Device("B", "m")])


@quick
@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0]), min_size=1, max_size=6), st.booleans())
def test_least_sum_of_finishes_on_one_machine(times: list[float], hold: bool) -> None:
    """Smith 1956: no order of tasks that are all there has a smaller mean finish."""
    graph = from_edges("line", len(times), [])
    costs = CostTable.of(graph, np.array(times)[:, None])
    trace = simulate(graph, ONE, costs, create("sjf", hold=hold))
    least = min(sum(itertools.accumulate(order)) for order in itertools.permutations(times))
    assert trace.tasks["finish"].sum() == least


@pytest.mark.parametrize(("hold", "starts"), [(True, [0, 5, 4]), (False, [0, 4, 7])])
def test_what_comes_while_a_device_is_busy(hold: bool, starts: list[float]) -> None:
    """4 s at 0, 3 s at 1, 1 s at 2: held tasks are overtaken by shorter ones."""
    graphs = [from_edges(f"job{i}", 1, []) for i in range(3)]
    costs = CostTable(
        {g: GraphCosts(np.array([[s]])) for g, s in zip(graphs, (4.0, 3.0, 1.0), strict=True)}
    )
    workload = Workload([Job(graph, float(at)) for at, graph in enumerate(graphs)])
    trace = simulate(workload, ONE, costs, create("sjf", hold=hold))
    assert trace.tasks["start"].tolist() == starts


def test_length_is_the_mean_over_devices_that_can_run_it() -> None:
    """Means 4, 3 and 5: t1 takes B, its faster device, then t0 A; t2 comes last."""
    graph = from_edges("three", 3, [])
    costs = CostTable.of(graph, np.array([[6.0, 2.0], [4.0, 2.0], [5.0, math.inf]]))
    trace = simulate(graph, TWO, costs, create("sjf"))
    assert trace.tasks["start"].tolist() == [0, 0, 6]
    assert trace.tasks["device"].tolist() == [0, 1, 0]


def test_what_no_idle_device_can_run_does_not_hold_up_others() -> None:
    graph = from_edges("four", 4, [])
    costs = CostTable.of(
        graph, np.array([[1.0, math.inf], [1.5, math.inf], [9.0, 9.0], [9.0, 9.5]])
    )
    trace = simulate(graph, TWO, costs, create("sjf"))
    assert trace.tasks["start"].tolist() == [0, 1, 0, 2.5]
    assert trace.tasks["device"].tolist() == [0, 0, 1, 0]
