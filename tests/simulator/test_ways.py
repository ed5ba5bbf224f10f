"""All ways of simulating give the same trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.cluster import fully_connected
from simulator.context import SchedulingContext
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import InvalidInput
from simulator.graph import from_edges
from simulator.pricing import best_device
from simulator.schedulers import create
from simulator.trace import COLUMNS, Trace
from tests.examples import examples
from tests.simulator.scripted import Script
from tests.simulator.strategies import STATIC, Case, cases
from tests.simulator.test_properties import quick


def run(case: Case, way: str) -> Trace | None:
    """None where this way cannot run the case."""
    try:
        return case.run(way=way)
    except InvalidInput:
        assert way in ("planned", "compiled")
        return None


def assert_same(found: Trace, expected: Trace) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            if False:
                continue
            a, b = getattr(found, table)[column], getattr(expected, table)[column]
            assert np.array_equal(a, b), (table, column, a, b)
    assert found.meta == expected.meta
    assert found.wallclock["decisions"] == expected.wallclock["decisions"]


@settings(quick, max_examples=examples(300))
@given(cases())
def test_the_direct_way_is_the_general_one(case: Case) -> None:
    direct, general = run(case, "direct"), run(case, "general")
    assert direct is not None
    assert general is not None
    assert_same(direct, general)


@settings(quick, max_examples=examples(300))
@given(cases())
def test_the_compiled_way_is_the_direct_one(case: Case) -> None:
    compiled, direct = run(case, "compiled"), run(case, "direct")
    assert direct is not None
    assume(compiled is not None)  # routes have one link
    assert compiled is not None
    assert_same(compiled, direct)


@settings(quick, max_examples=examples(300))
@given(cases(schedulers=tuple(STATIC), contentions=("none",), movements=("push",), least=0.1))
def test_the_planned_way_is_the_general_one(case: Case) -> None:
    planned, general = run(case, "planned"), run(case, "general")
    assert planned is not None
    assert general is not None
    assert_same(planned, general)


@settings(quick, max_examples=examples(300))
@given(cases(schedulers=tuple(STATIC), contentions=("none",), movements=("push",), least=0.1))
def test_the_compiled_way_of_plans_is_the_general_one(case: Case) -> None:
    compiled, general = run(case, "compiled_plan"), run(case, "general")
    assert compiled is not None
    assert general is not None
    assert_same(compiled, general)


@pytest.mark.parametrize("way", ["compiled", "direct", "general"])
def test_what_came_for_a_withdrawn_task_is_priced_as_there(way: str) -> None:
    """x's 4 bytes are on their way to B, there at 6, when y is withdrawn at 5: it would be done at 7 on
    B, at 8 on A. As if they had to be sent again, on B at 10.
    """

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            context.place(task, task)
            context.wake_at(5.0)
        if context.now == 5.0:
            context.withdraw(1)
            context.place(1, best_device(context, 1, [0, 1], "per_link"))

    graph = from_edges("chain", 2, [(0, 1, 4.0)])
    costs = CostTable.of(graph, np.array([[2.0, 9.0], [3.0, 1.0]]))
    trace = simulate(graph, fully_connected("two", 2, 1.0), costs, Script(act), way=way)
    assert trace.makespan == 7.0


@settings(quick, max_examples=examples(300))
@given(cases(contentions=("fair",)), st.booleans())
def test_the_compiled_way_of_shared_links_is_the_general_one(case: Case, even: bool) -> None:
    if even:  # ends that coincide, and levels that are equal
        links = [replace(link, bandwidth=1.0) for link in case.cluster.links]
        case = replace(case, cluster=replace(case.cluster, links=links))
    compiled, general = run(case, "compiled"), run(case, "general")
    assert compiled is not None
    assert general is not None
    assert_same(compiled, general)


def test_an_impossible_way_is_refused() -> None:
    graph = from_edges("two", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    with pytest.raises(InvalidInput, match="cannot be simulated in the way 'planned'; possible: d"):
        simulate(graph, fully_connected("p", 2), costs, create("donf"), way="planned")


@pytest.mark.parametrize("way", ["direct", "general"])
@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_who_waits_for_data_that_takes_no_time_has_started_by_the_next_round(
    way: str, contention: str
) -> None:
    """A round of the same instant finds it running."""
    graph = from_edges("two", 2, [(0, 1, 0.0)])
    seen = []

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            context.place(task, task)
            context.wake_at(context.now)
        seen.append([context.is_queued(task) for task in (0, 1)])

    costs = CostTable.of(graph, np.ones((2, 2)))
    cluster = fully_connected("p", 2)
    simulate(graph, cluster, costs, Script(act), way=way, contention=contention)
    # At 0 and again; at 1, when the second is placed, and again; at 2.
    assert seen == [[True, False], [False, False], [False, True], [False, False], [False, False]]
