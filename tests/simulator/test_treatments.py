"""What a part declares spares the engine events and changes nothing else.

A link model whose ends are final needs no event for a transfer, and a device whose executions are final may be
given a task whose data is on its way. Parts that declare neither get the general treatment: an event for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.context import SchedulingContext
from simulator.devices.constant import ConstantRate
from simulator.engine import engine as simulation
from simulator.engine.run import simulate
from simulator.links import registry as links
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from simulator.schedulers._pricing import best_device
from tests.examples import examples
from tests.simulator.scripted import Script
from tests.simulator.seeded import seeded_case
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick


class ByEvent(links.Uncontended):
    """As ``none``, but for what it declares."""

    final = False


class FifoByEvent(links.Fifo):
    """As ``fifo``, but for what it declares."""

    final = False


@pytest.fixture(scope="module", autouse=True)
def _models() -> Iterator[None]:
    links.register("none_by_event", ByEvent)
    links.register("fifo_by_event", FifoByEvent)
    yield
    for name in ("none_by_event", "fifo_by_event"):
        links.unregister(name)


def assert_same(found: Trace, expected: Trace) -> None:
    """Equal in every column, and in what was counted beside."""
    for table, columns in COLUMNS.items():
        for column in columns:
            a, b = getattr(found, table)[column], getattr(expected, table)[column]
            assert np.array_equal(a, b), (table, column, a, b)
    one, two = ({**trace.meta, "contention": ""} for trace in (found, expected))
    assert one == two
    assert found.wallclock["decisions"] == expected.wallclock["decisions"]


def check(case: Case) -> None:
    """A run is the same by events."""
    expected = case.run()
    assert_same(case.run(contention=f"{case.contention}_by_event"), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConstantRate, "final", False)
        assert_same(case.run(), expected)


@settings(quick, max_examples=examples(300))
@given(cases())
def test_runs_are_the_same_by_events(case: Case) -> None:
    check(case)


def test_irregular_runs_are_the_same_by_events() -> None:
    """2 to 8 devices of 1 to 3 slots, several jobs, routes, clocks far from 0, times that do not move them."""
    for number in range(examples(600)):
        case = seeded_case(number)
        if case.contention != "fair":
            check(case)


def test_a_default_run_has_an_event_for_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """SimPy's own ``step`` processes them: at least one for each task."""
    made = []

    class Counted(simulation.Clock):
        def __init__(self) -> None:
            super().__init__()
            self.counted = 0
            made.append(self)

        def step(self) -> None:
            self.counted += 1
            super().step()

    monkeypatch.setattr(simulation, "Clock", Counted)
    graph = from_edges("chain", 50, [(i, i + 1, 1.0) for i in range(49)])
    simulate(
        graph, fully_connected("two", 2), CostTable.of(graph, np.ones((50, 2))), create("donf")
    )
    assert made[0].counted >= 50


def test_what_came_for_a_withdrawn_task_is_priced_as_there() -> None:
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
    trace = simulate(graph, fully_connected("two", 2, 1.0), costs, Script(act))
    assert trace.makespan == 7.0


@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_who_starts_first_takes_the_lower_slot(contention: str) -> None:
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
    trace = simulate(graph, cluster, costs, Script(act), contention=contention)
    rows = zip(*(trace.tasks[k].tolist() for k in ("task", "slot", "start")), strict=True)
    assert list(rows) == [(0, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (3, 0, 1.0)]


def test_who_waits_for_its_data_has_no_slot_yet() -> None:
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
    trace = simulate(graph, cluster, costs, Script(act))
    assert trace.tasks["slot"].tolist() == [0, 1, 0, 0]
    assert trace.tasks["start"].tolist() == [0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize("contention", ["none", "fifo"])
def test_who_waits_for_data_that_takes_no_time_has_started_by_the_next_round(
    contention: str,
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
    simulate(graph, cluster, costs, Script(act), contention=contention)
    # At 0 and again; at 1, when the second is placed, and again; at 2.
    assert seen == [[True, False], [False, False], [False, True], [False, False], [False, False]]


def test_no_slot_holds_two_tasks_where_a_task_does_not_move_the_clock() -> None:
    """Seconds since 1970, and executions far below what a double of that size can tell apart."""
    late, tiny = 1.7e9, 1e-7
    graph = from_edges("pair", 2, [(0, 1, tiny)])
    costs = CostTable.of(graph, np.array([[1.0, 1.0], [1.0, tiny]]))
    workload = Workload([Job(graph, late + k) for k in range(50)])
    rows = simulate(workload, fully_connected("two", 2), costs, create("heft")).executions
    for device in range(2):
        mine = rows["device"] == device
        spans = sorted(
            zip(rows["start"][mine].tolist(), rows["finish"][mine].tolist(), strict=True)
        )
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
