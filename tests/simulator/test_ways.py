"""All ways of simulating give the same trace."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator import engine
from simulator.cluster import fully_connected
from simulator.context import SchedulingContext
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import InvalidInput
from simulator.graph import from_edges
from simulator.pricing import best_device
from simulator.schedulers import create
from simulator.trace import COLUMNS, Trace
from simulator.workload import Job, Workload
from tests.examples import examples
from tests.simulator.scripted import Script
from tests.simulator.seeded import seeded_case
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
    """Equal in every column, and in what was counted beside."""
    for table, columns in COLUMNS.items():
        for column in columns:
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


WAYS = ("direct", "compiled", "planned", "compiled_plan")


def ran_alike(case: Case) -> int:
    """In how many ways beside the general one a case can run; all must give its trace."""
    expected, count = case.run(way="general"), 0
    for way in WAYS:
        try:
            found = case.run(way=way)
        except InvalidInput:  # how many can is counted
            continue
        count += 1
        assert_same(found, expected)
    return count


def test_irregular_runs_are_the_same_in_every_way() -> None:
    """2 to 8 devices of 1 to 3 slots, several jobs, routes, clocks far from 0, times that do not move them."""
    count = examples(600)
    assert sum(ran_alike(seeded_case(number)) for number in range(count)) >= 1.3 * count


@pytest.mark.parametrize("tiny", [False, True])
def test_irregular_plans_are_the_same_in_every_way(tiny: bool) -> None:
    ran, count = 0, examples(240)
    for number in range(count):
        case = seeded_case(number, contentions=("none",), static=True, tiny=tiny)
        case.movement = "push"
        ran += ran_alike(case)
    assert ran >= (2.3 if tiny else 3.5) * count


@pytest.mark.parametrize("way", [*WAYS, None])
def test_no_slot_holds_two_tasks_where_a_task_does_not_move_the_clock(way: str | None) -> None:
    """Seconds since 1970, and executions far below what a double of that size can tell apart."""
    late, tiny = 1.7e9, 1e-7
    graph = from_edges("pair", 2, [(0, 1, tiny)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [1.0, tiny]]))
    workload = Workload([Job(graph, late + k) for k in range(50)])
    cluster = fully_connected("two", 2)
    if way in ("planned", "compiled_plan"):
        with pytest.raises(InvalidInput, match="cannot be simulated in the way"):
            simulate(workload, cluster, costs, create("heft"), way=way)
        return
    trace = simulate(workload, cluster, costs, create("heft"), way=way)
    assert_same(trace, simulate(workload, cluster, costs, create("heft"), way="general"))
    rows = trace.executions
    for device in range(2):
        mine = rows["device"] == device
        spans = sorted(
            zip(rows["start"][mine].tolist(), rows["finish"][mine].tolist(), strict=True)
        )
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))


@pytest.mark.parametrize("way", ["direct", "compiled", "general"])
@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_who_starts_first_takes_the_lower_slot(way: str, contention: str) -> None:
    """a starts on C at 1, b in another round of that instant, in front of a by its rank but after it in
    time: z, which takes no time, calls for that round.
    """
    graph = from_edges("four", 4, [(2, 3, 0.0)], names=["a", "b", "z", "after"])

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            context.wake_at(1.0)
        elif call == 1:
            context.place(0, 0, 5.0)
            context.place(2, 1)
        elif call == 2:
            context.place(1, 0, 1.0)
            context.place(3, 1)

    cluster = fully_connected("two", 2)
    cluster = replace(cluster, devices=[replace(d, slots=2) for d in cluster.devices])
    costs = CostTable.of(graph, np.array([[3.0, 3.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]))
    trace = simulate(graph, cluster, costs, Script(act), way=way, contention=contention)
    rows = zip(*(trace.tasks[k].tolist() for k in ("task", "slot", "start")), strict=True)
    assert list(rows) == [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (3, 0, 1.0)]


@pytest.mark.parametrize("way", ["direct", "compiled", "general"])
def test_who_waits_for_its_data_has_no_slot_yet(way: str) -> None:
    """On A, of two slots, x runs in slot 0 until 4 and y in slot 1 until 2. w, whose data comes at 5, leaves
    slot 0 at 5 to itself, though slot 1 was the free one when it was taken from the queue.
    """
    graph = from_edges("four", 4, [(2, 3, 4.0)], names=["x", "y", "s", "w"])

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            context.place(task, [0, 0, 1, 0][task])

    cluster = fully_connected("two", 2, 1.0)
    cluster = replace(cluster, devices=[replace(d, slots=2) for d in cluster.devices])
    costs = CostTable.of(graph, np.array([[4.0], [2.0], [1.0], [1.0]]) * np.ones((4, 2)))
    trace = simulate(graph, cluster, costs, Script(act), way=way)
    assert trace.tasks["slot"].tolist() == [0, 1, 0, 0]
    assert trace.tasks["start"].tolist() == [0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize("scheduler", ["donf", "heft"])
@pytest.mark.parametrize("contention", ["none", "fair"])
def test_the_inputs_of_a_run_alone_choose_its_way(
    scheduler: str, contention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the process simulated before, nor what it has loaded."""
    taken = []
    chosen = engine._chosen

    def note(*given: Any) -> Any:
        taken.append(chosen(*given))
        return taken[-1]

    monkeypatch.setattr(engine, "_chosen", note)
    monkeypatch.setattr(engine, "PAYS_TO_COMPILE", 100)
    few = from_edges("few", 10, [(i, i + 1, 1.0) for i in range(9)])
    many = from_edges("many", 600, [(i, i + 1, 1.0) for i in range(599)])
    for graph in (few, many, few, few, many, few):
        costs = CostTable.of(graph, np.ones((len(graph), 2)))
        cluster = fully_connected("two", 2, 1.0)
        simulate(graph, cluster, costs, create(scheduler), contention=contention)
    short, long = taken[:2]
    assert short is not long
    assert taken == [short, long, short, short, long, short]


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
