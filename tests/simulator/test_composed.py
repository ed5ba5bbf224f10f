"""Runs in which everything is asked for at once: short memory, weights on demand, faults, decisions that take time,
schedulers that pack and evict.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.engine import Simulation
from simulator.engine.faults import Fault, Faults
from simulator.errors import InvalidInput, SchedulingError
from simulator.memory.limited import LimitedMemory
from simulator.model.trace import COLUMNS
from simulator.model.workload import Job, Workload
from simulator.schedulers.lru_eviction import LruEviction
from tests.examples import examples
from tests.simulator.scripted import Recorded, Script
from tests.simulator.strategies import Case
from tests.simulator.test_fault_properties import broken_cases, check_invariants
from tests.simulator.test_memory import cluster_of, graph_of, moves, run, spans
from tests.simulator.test_memory_properties import (
    Evicting,
    check_accounts,
    check_refusal,
    give_host,
    tighten,
)
from tests.simulator.test_properties import quick


@st.composite
def composed(draw: st.DrawFn) -> tuple[Case, Faults, dict[str, Any]]:
    """A run that breaks, in limited memory, with what else may be asked for."""
    case, faults = draw(broken_cases())
    weights = draw(st.sampled_from(["resident", "on_demand"]))
    memory = draw(st.sampled_from(["limited", "limited", "unlimited"]))
    if memory == "limited":
        tighten(draw, case)
    if weights == "on_demand":
        give_host(case)
        if draw(st.booleans()):
            make = case.scheduler
            case.scheduler = lambda: Evicting(make())
    given: dict[str, Any] = {"memory": memory, "weights": weights}
    if "erratic" not in case.scheduler_name and draw(st.booleans()):
        given["decision_cost"] = DecisionCost(draw(st.sampled_from([0.0, 0.3])), 0.1)
    return case, faults, given


def check_rest(memory: LimitedMemory) -> None:
    """When all is over, everything is given back but weights, and what a link that is never mended holds up."""
    check_accounts(memory)
    stuck = any(flow.end == math.inf for flow in memory._run.under_way.values())
    assert all(live.flying for live in memory._live.all.values())
    assert stuck or not memory._live.all
    assert not memory._spare
    assert not memory._back
    assert not memory._copies._delayed
    assert not memory._copies._sourceless
    assert not memory._blocked.all
    assert not any(memory._lines._lines)
    assert not any(memory._lines.to_write)
    assert not any(memory._weights._needing.values())
    if not memory._live.all:
        assert memory._room.used == [sum(rows.values()) for rows in memory._weights.here]
        assert not any(memory._room.inputs)


def again(context: SchedulingContext, call: int, devices: list[int]) -> None:
    """Places all tasks, each on its device, and those again that were lost."""
    for task in range(len(devices)) if call == 0 else context.lost:
        context.place(task, devices[task], float(task))


def test_a_failure_gives_back_the_room_of_what_was_being_written() -> None:
    """b (2 s) has no room beside a (3 s) until d0 fails at 1; a runs again on d1 when b is done."""
    graph = graph_of({"a": ([], {"x": 6}), "b": ([], {"y": 6})})

    def act(context: SchedulingContext, call: int) -> None:
        for task in range(2) if call == 0 else context.lost:
            context.place(task, task if call == 0 else 1, float(call))

    faults = Faults([Fault("device_failure", "d0", 1.0, 9.0)])
    cluster = cluster_of("m m", {"m": 6})
    trace = run(graph, cluster, {"a": 3, "b": 2}, Script(act), faults=faults)
    assert trace.executions["status"].tolist() == ["lost", "finished", "finished"]
    assert spans(trace) == {"b": (1, 3), "a": (3, 6)}
    assert trace.meta["peak_bytes"] == [6.0]


@pytest.mark.parametrize(("weights", "start"), [("on_demand", 10.0), ("resident", 6.0)])
def test_weights_that_are_lost_come_again(weights: str, start: float) -> None:
    """On demand w (4 bytes, 1 byte/s) is there at 4; lost at 5, it comes from 6 to 10. Resident, it is there at 6."""
    graph = graph_of({"a": (["w"], {"x": 1})}, {"w": ("weight", 4)})
    faults = Faults([Fault("device_failure", "d0", 5.0, 6.0)])
    trace = run(
        graph,
        cluster_of("n", {"n": 5, "h": math.inf}, host="h"),
        {"a": 8 if weights == "resident" else 3},
        Script(lambda context, call: again(context, call, [0])),
        weights=weights,
        contention="fifo",
        faults=faults,
    )
    assert trace.executions["start"].tolist() == [0.0 if weights == "resident" else 4.0, start]
    into = [row[3:] for row in moves(trace) if row[2] == 0]
    assert into == ([(0, 0, 4), (6, 6, 10)] if weights == "on_demand" else [])
    assert trace.meta["peak_bytes"][0] == 5.0


@pytest.mark.parametrize(
    ("memory", "starts"),
    [
        ("unlimited", {"a": [0], "b": [2, 5.5], "c": [3, 6.5]}),
        ("limited", {"a": [0, 4], "b": [2, 6], "c": [3, 7]}),
    ],
)
def test_what_nobody_wanted_any_more_is_written_again(memory: str, starts: object) -> None:
    """a, on n, writes x, which crosses for 1 s to b and c, on m, which fails from 4 to 4.5. Where room counts, x was given
    up at 3, when b had read it: a runs again, too, and its input, given up at 1, is there at once.
    """
    graph = graph_of(
        {"a": (["i"], {"x": 1}), "b": (["x"], {"y": 1}), "c": (["y"], {})}, {"i": ("input", 1)}
    )
    trace = run(
        Workload([Job(graph, origin="n")]),
        cluster_of("m n", {}),
        {"a": 1, "b": 1, "c": 2},
        Script(lambda context, call: again(context, call, [1, 0, 0])),
        memory=memory,
        contention="fifo",
        faults=Faults([Fault("device_failure", "d0", 4.0, 4.5)]),
    )
    rows = trace.executions
    found: dict[str, list[float]] = {}
    for operator, start in sorted(
        zip(rows["operator"].tolist(), rows["start"].tolist(), strict=True)
    ):
        found.setdefault("abc"[operator], []).append(start)
    assert found == starts


def test_what_waits_for_room_in_a_lost_memory_is_asked_for_again() -> None:
    """w2 waits for w1's room (4 bytes each of 5); at 2 the memory is lost, from 3 on all begins anew."""
    one, two = (
        graph_of({"a": (["w"], {})}, {"w": ("weight", 4)}, name=name) for name in ("one", "two")
    )
    trace = run(
        Workload([Job(one), Job(two)]),
        cluster_of("n", {"n": 5, "h": math.inf}, host="h"),
        {"a": 1},
        LruEviction("fcfs"),
        weights="on_demand",
        contention="fifo",
        faults=Faults([Fault("device_failure", "d0", 2.0, 3.0)]),
    )
    assert [row[3:] for row in moves(trace)] == [(0, 0, 2), (3, 3, 7), (8, 8, 12)]
    assert trace.transfers["bytes"].tolist() == [2.0, 4.0, 4.0]
    assert {*spans(trace).values()} == {(7, 8), (12, 13)}


@settings(quick, max_examples=examples(600))
@given(composed())
def test_everything_at_once(drawn: tuple[Case, Faults, dict[str, Any]]) -> None:
    case, faults, given = drawn
    check_composed(case, faults, given)


def check_composed(case: Case, faults: Faults, given: dict[str, Any]) -> None:
    """Every job ends, nothing lies where it has no room, and twice the same run is the same trace."""
    runs: list[Simulation] = []

    def watch(context: SchedulingContext) -> None:
        runs[:] = [context]  # type: ignore[list-item]
        memory = context.memory  # type: ignore[attr-defined]
        if memory is not None:
            check_accounts(memory)

    def once() -> Any:
        recorded = Recorded(case.scheduler(), watch)
        recorded.static = recorded.inner.static  # type: ignore[misc]
        return case.run(recorded, faults=faults, **given)

    try:
        trace = once()
    except (InvalidInput, SchedulingError) as error:
        check_refusal(error)
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            once()
        return
    check_invariants(case, faults, trace)
    memory = runs[0].memory
    if isinstance(memory, LimitedMemory):
        check_rest(memory)
        for peak, space in zip(trace.meta["peak_bytes"], case.cluster.spaces, strict=True):
            assert given["memory"] == "unlimited" or peak <= space.capacity
    again = once()
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(again, table)[column], getattr(trace, table)[column])


@settings(quick, max_examples=examples(150))
@given(broken_cases())
def test_enough_memory_changes_nothing(broken: tuple[Case, Faults]) -> None:
    """Where there is room for everything, what breaks does the same as without memory."""
    case, faults = broken
    one, two = (case.run(faults=faults, memory=memory) for memory in ("unlimited", "limited"))
    assert one.jobs["status"].tolist() == two.jobs["status"].tolist()


@settings(quick, max_examples=examples(100))
@given(composed(), st.floats(0.01, 30.0))
def test_a_horizon_ends_the_run(drawn: tuple[Case, Faults, dict[str, Any]], horizon: float) -> None:
    case, faults, given = drawn
    horizon += case.workload.jobs[0].arrival
    try:
        whole = case.run(faults=faults, **given)
        cut = case.run(faults=faults, horizon=horizon, **given)
    except (InvalidInput, SchedulingError):
        return
    done = whole.jobs["finish"][: len(cut.jobs["job"])] <= horizon
    stuck = np.char.endswith(whole.jobs["reason"][: len(done)], "never mended")
    done &= ~stuck
    assert np.array_equal(cut.jobs["finish"][done], whole.jobs["finish"][: len(done)][done])
    assert {*cut.jobs["status"].tolist()} <= {"finished", "failed", "queued"}
    started = whole.executions["start"] <= horizon
    assert len(cut.executions["task"]) == int(started.sum())
