"""Asynchronous submission: closed forms of chains, examples worked out by hand, an independent replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.devices.submission import Submission
from simulator.engine import engine as simulation
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import Recorded, Script, StaticPlan, WhenReady
from tests.simulator.strategies import ONLINE, Case, cases
from tests.simulator.test_properties import check_replay, quick


def device(
    latency: float, depth: int = 1, slots: int = 1, name: str = "gpu", issue: float = 0.0
) -> Device:
    return Device(
        name,
        "m",
        slots=slots,
        issue_depth=depth,
        completion_latency=latency,
        issue_overhead=issue,
    )


def one(latency: float, depth: int = 1, slots: int = 1, issue: float = 0.0) -> Cluster:
    return Cluster("one", [MemorySpace("m")], [device(latency, depth, slots, issue=issue)])


def chain(count: int) -> DataflowGraph:
    return from_edges("chain", count, [(i, i + 1, 1.0) for i in range(count - 1)])


def run(graph: DataflowGraph, cluster: Cluster, seconds: list[float], how: Scheduler) -> Trace:
    matrix = np.array(seconds)[:, None].repeat(len(cluster.devices), axis=1)
    return simulate(graph, cluster, CostTable.of(graph, matrix), how)


def spans(trace: Trace) -> list[tuple[float, float]]:
    """(start, finish) of every task."""
    return list(zip(*(trace.tasks[name].tolist() for name in ("start", "finish")), strict=True))


def everything_at_once(count: int) -> Scheduler:
    return StaticPlan([(0, float(i)) for i in range(count)])


def test_with_depth_1_the_host_waits_for_each_operator() -> None:
    trace = run(chain(5), one(0.25), [2.0] * 5, everything_at_once(5))
    assert spans(trace) == [(2.25 * i, 2.25 * i + 2.0) for i in range(5)]
    # n t + (n - 1) L on the device, and L more until the host knows of the last.
    assert trace.tasks["finish"].max() == 5 * 2.0 + 4 * 0.25
    assert trace.makespan == trace.jobs["finish"][0] == 5 * 2.0 + 5 * 0.25


def test_with_depth_a_plan_keeps_the_device_busy() -> None:
    for depth in (2, 3, 8):
        trace = run(chain(5), one(0.25, depth), [2.0] * 5, everything_at_once(5))
        assert spans(trace) == [(2.0 * i, 2.0 * (i + 1)) for i in range(5)]
        assert trace.makespan == 5 * 2.0 + 0.25


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.sampled_from([0.125, 1.0, 2.5, 7.0]),
)
def test_chain_in_closed_form(count: int, depth: int, seconds: float, latency: float) -> None:
    """``depth`` operators in a row, then the host must have learnt of the first of them."""
    trace = run(chain(count), one(latency, depth), [seconds] * count, everything_at_once(count))
    period = max(depth * seconds, seconds + latency)
    starts = [(i // depth) * period + (i % depth) * seconds for i in range(count)]
    assert [start for start, _ in spans(trace)] == starts
    assert trace.makespan == starts[-1] + seconds + latency


def test_an_on_line_scheduler_pays_the_latency_for_every_dependent_step() -> None:
    for depth in (1, 4):
        trace = run(chain(4), one(0.5, depth), [1.0] * 4, WhenReady([0] * 4))
        assert spans(trace) == [(1.5 * i, 1.5 * i + 1.0) for i in range(4)]
        assert trace.tasks["ready"].tolist() == trace.tasks["placed"].tolist() == [0, 1.5, 3, 4.5]


def test_independent_operators_follow_each_other_as_far_as_the_depth_goes() -> None:
    graph = from_edges("loose", 4, [])
    for depth, starts in ((1, [0, 3, 6, 9]), (2, [0, 1, 3, 4]), (3, [0, 1, 2, 3])):
        trace = run(graph, one(2.0, depth), [1.0] * 4, create("donf"))
        assert [start for start, _ in spans(trace)] == starts


def test_an_operator_that_the_host_did_not_know_to_be_ready_was_ready_at_its_start() -> None:
    trace = run(chain(2), one(5.0, 2), [1.0] * 2, everything_at_once(2))
    assert trace.tasks["ready"].tolist() == [0.0, 1.0]


def test_streams_share_the_window_and_take_operators_in_order() -> None:
    # 2 slots, depth 1: 2 operators may be unknown. 0 runs 0-1, 1 runs 0-4; 0 is known at 3: 2 runs
    # 3-4 in slot 0; 2 and 1 end at 4, known at 6: 3 and 4 run 6-7.
    graph = from_edges("loose", 5, [])
    trace = run(graph, one(2.0, 1, 2), [1.0, 4.0, 1.0, 1.0, 1.0], create("donf"))
    assert spans(trace) == [(0, 1), (0, 4), (3, 4), (6, 7), (6, 7)]
    assert trace.tasks["slot"].tolist() == [0, 1, 0, 0, 1]
    # Depth 2: 0, 1, 2, 3 are submitted at once; 4 when 0 is known, at 3.
    trace = run(graph, one(2.0, 2, 2), [1.0, 4.0, 1.0, 1.0, 1.0], create("donf"))
    assert spans(trace) == [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]


def test_an_operator_that_waits_for_another_stream_holds_up_those_behind_it() -> None:
    # 0 -> 1; 2 is free, but behind 1.
    graph = from_edges("behind", 3, [(0, 1, 1.0)])
    trace = run(graph, one(2.0, 2, 2), [1.0, 1.0, 1.0], everything_at_once(3))
    assert spans(trace) == [(0, 1), (1, 2), (1, 2)]


def test_another_device_waits_until_the_host_knows_and_then_for_the_data() -> None:
    # Device a: 0 (1 s) then 1 (1 s); 2 on b reads 3 B of 0. The host knows of 0 at 1.5.
    cluster = Cluster(
        "two",
        [MemorySpace("m"), MemorySpace("n")],
        [device(0.5, 4, name="a"), Device("b", "n")],
        [Link("l", ("m", "n"), 1.0, 0.25)],
    )
    graph = from_edges("fork", 3, [(0, 1, 3.0), (0, 2, 3.0)])
    costs = CostTable.of(graph, np.ones((3, 2)))
    for movement in ("push", "pull"):
        plan = StaticPlan([(0, 0.0), (0, 1.0), (1, 0.0)])
        trace = simulate(graph, cluster, costs, plan, movement=movement)
        assert spans(trace) == [(0, 1), (1, 2), (4.75, 5.75)]
        assert trace.transfers["requested"].tolist() == [1.5]
        assert trace.transfers["finish"].tolist() == [4.75]
        # b has no latency: its end is known at once.
        assert trace.makespan == 5.75


def test_pull_waits_for_the_host_before_it_asks_for_the_other_inputs() -> None:
    # 2 on a reads from 0 (on a, latency 1) and from 1 (on b): pull asks when the host knows both.
    cluster = Cluster(
        "two",
        [MemorySpace("m"), MemorySpace("n")],
        [device(1.0, 4, name="a"), Device("b", "n")],
        [Link("l", ("m", "n"), 1.0)],
    )
    graph = from_edges("join", 3, [(0, 2, 2.0), (1, 2, 2.0)])
    costs = CostTable.of(graph, np.ones((3, 2)))
    for movement, requested, start in (("push", 1.0, 3.0), ("pull", 2.0, 4.0)):
        plan = StaticPlan([(0, 0.0), (1, 0.0), (0, 1.0)])
        trace = simulate(graph, cluster, costs, plan, movement=movement)
        assert trace.transfers["requested"].tolist() == [requested]
        assert spans(trace)[2] == (start, start + 1.0)


def test_what_is_submitted_can_no_longer_be_withdrawn_or_overtaken() -> None:
    graph = from_edges("loose", 4, [])
    seen: list[bool] = []

    def act(context: SchedulingContext, n: int) -> None:
        if n == 0:
            for task in range(3):
                context.place(task, 0)
            context.wake_at(0.5)
        elif n == 1:
            seen.extend(context.is_queued(task) for task in range(3))
            context.place(3, 0, rank=-1.0)  # in front of everything that can still be overtaken
            with pytest.raises(SchedulingError, match="has started"):
                context.withdraw(1)

    trace = run(graph, one(1.0, 2), [1.0] * 4, Script(act))
    assert seen == [False, False, True]
    # 0 and 1 are with the device; the host knows of 0 at 2, of 1 at 3.
    assert spans(trace) == [(0, 1), (1, 2), (3, 4), (2, 3)]


def test_overhead_is_part_of_the_operator() -> None:
    cluster = Cluster(
        "one",
        [MemorySpace("m")],
        [dataclasses.replace(device(0.25, 2), launch_overhead=0.5)],
    )
    trace = run(chain(3), cluster, [1.0] * 3, everything_at_once(3))
    assert spans(trace) == [(0, 1.5), (1.5, 3), (3, 4.5)]


def test_submitting_costs_nothing_behind_longer_operators_and_all_behind_shorter_ones() -> None:
    for seconds, starts in ((2.0, [0.5, 2.5, 4.5, 6.5]), (0.25, [0.5, 1.0, 1.5, 2.0])):
        trace = run(chain(4), one(0.125, 8, issue=0.5), [seconds] * 4, everything_at_once(4))
        assert [start for start, _ in spans(trace)] == starts
        assert trace.makespan == starts[-1] + seconds + 0.125


def test_a_host_that_waits_for_each_operator_pays_for_submitting_every_time() -> None:
    for depth, how in ((1, everything_at_once(3)), (4, WhenReady([0] * 3))):
        trace = run(chain(3), one(0.25, depth, issue=0.5), [1.0] * 3, how)
        assert [start for start, _ in spans(trace)] == [0.5, 2.25, 4.0]
        assert trace.makespan == 3 * (0.5 + 1.0 + 0.25)


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.sampled_from([0.125, 1.0, 2.5, 7.0]),
    st.sampled_from([0.125, 0.75, 2.0]),
)
def test_a_chain_that_is_issued_one_after_the_other(
    count: int, depth: int, seconds: float, latency: float, issue: float
) -> None:
    """Operator i is issued when i - 1 was, and the host has learnt of i - depth, by a recursion of its own."""
    trace = run(
        chain(count), one(latency, depth, issue=issue), [seconds] * count, everything_at_once(count)
    )
    ends: list[float] = []
    issued = 0.0
    for i in range(count):
        issued = max(issued, ends[i - depth] + latency if i >= depth else 0.0) + issue
        ends.append(max([issued, *ends[-1:]]) + seconds)
    assert [end for _, end in spans(trace)] == ends
    assert trace.makespan == ends[-1] + latency


def test_streams_are_issued_to_by_one_host() -> None:
    # 0 is issued at .5, 1 at 1, 2 at 1.5: in the second stream behind 1 and, once 0 has ended, in the first.
    graph = from_edges("loose", 3, [])
    trace = run(graph, one(9.0, 2, 2, issue=0.5), [1.0, 4.0, 1.0], everything_at_once(3))
    assert spans(trace) == [(0.5, 1.5), (1.0, 5.0), (1.5, 2.5)]


def test_submitted_ahead_once_the_other_devices_predecessor_is_known() -> None:
    """t2 follows t0 on its own device, unknown until 4, and t1 on the other, known at 3: the host
    submits it then, and it starts.
    """
    graph = from_edges("join", 3, [(0, 2, 0.0), (1, 2, 0.0)])
    cluster = Cluster("two", [MemorySpace("m")], [device(3.0, 2), device(0.0, name="cpu")])
    never = float("inf")
    costs = CostTable.of(graph, np.array([[1.0, never], [never, 3.0], [5.0, never]]))
    plan = StaticPlan([(0, 0.0), (1, 0.0), (0, 1.0)])
    trace = simulate(graph, cluster, costs, plan)
    assert spans(trace) == [(0, 1), (0, 3), (3, 8)]


# -- for every run ------------------------------------------------------------------------------

LATENCY = st.sampled_from([0.0, 0.5, 1.0, 3.0, 0.1])


@st.composite
def submitted(draw: st.DrawFn, latencies: st.SearchStrategy[float] = LATENCY, **of: object) -> Case:
    """A run on devices with issue depths and completion latencies."""
    case = draw(cases(**of))  # type: ignore[arg-type]
    devices = [
        dataclasses.replace(
            d,
            completion_latency=(latency := draw(latencies)),
            issue_depth=draw(st.integers(1, 4)),
            issue_overhead=draw(st.sampled_from([0.0, 0.25, 1.5])) if latency else 0.0,
        )
        for d in case.cluster.devices
    ]
    return dataclasses.replace(case, cluster=dataclasses.replace(case.cluster, devices=devices))


@settings(quick, max_examples=examples(300))
@given(submitted())
def test_replay_derives_the_same_run(case: Case) -> None:
    check_replay(case, Recorded(case.scheduler()))


@quick
@given(submitted(st.just(0.0)))
def test_without_latency_the_depth_changes_nothing(case: Case) -> None:
    shallow = [dataclasses.replace(d, issue_depth=1) for d in case.cluster.devices]
    plain = dataclasses.replace(case, cluster=dataclasses.replace(case.cluster, devices=shallow))
    same_trace(case.run(), plain.run())


@quick
@given(submitted(st.just(0.0), schedulers=ONLINE))
def test_submitting_ahead_without_latency_changes_nothing_for_who_only_appends(case: Case) -> None:
    plain = case.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "submission_of", Submission)
        same_trace(case.run(), plain)


def same_trace(found: Trace, expected: Trace) -> None:
    for table in ("executions", "transfers", "jobs"):
        for column, values in getattr(expected, table).items():
            if column != "slot":
                assert np.array_equal(getattr(found, table)[column], values), (table, column)


class Appending(Scheduler):
    """Every task of a job at once to its device; notes what is believed of its start."""

    name = "appending"

    def __init__(self) -> None:
        self.believed: dict[int, float] = {}

    def decide(self, context: SchedulingContext) -> None:
        for job in context.arrived:
            for task in context.tasks_of(job):
                self.believed[task] = context.available(0)
                context.place(task, 0)


@settings(quick, max_examples=examples(200))
@given(
    LATENCY,
    st.sampled_from([0.0, 0.25, 2.0]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.25]), st.integers(1, 6)), max_size=6),
    st.randoms(),
)
def test_true_beliefs_foresee_every_start(
    latency: float,
    issue: float,
    depth: int,
    slots: int,
    jobs: list[tuple[float, int]],
    random: object,
) -> None:
    """Independent operators, appended: what is believed of each start is when it happens."""
    seconds: Callable[[], float] = lambda: random.choice([0.0, 0.5, 1.0, 3.0])  # type: ignore[attr-defined]  # noqa: E731
    arrival, stream, table = 0.0, [], {}
    for gap, count in [(0.0, 1), *jobs]:
        arrival += gap
        graph = from_edges("loose", count, [])
        table[graph] = CostTable.of(graph, np.array([[seconds()] for _ in range(count)]))[graph]
        stream.append(Job(graph, arrival))
    how = Appending()
    cluster = one(latency, depth, slots, issue if latency else 0.0)
    trace = simulate(Workload(stream), cluster, CostTable(table), how)
    tasks = trace.tasks
    starts = dict(zip(tasks["task"].tolist(), tasks["start"].tolist(), strict=True))
    assert how.believed == pytest.approx(starts, abs=1e-12)


def test_what_is_believed_of_a_queue_counts_the_window() -> None:
    seen = []

    def act(context: SchedulingContext, n: int) -> None:
        for task in range(4):
            seen.append(context.available(0))
            if n == 0:
                context.place(task, 0)

    graph = from_edges("loose", 4, [])
    run(graph, one(2.0, 2), [1.0] * 4, Script(lambda c, n: act(c, n) if n == 0 else None))
    assert seen == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issue_depth": 0}, "issue depth 0; 1 makes the host wait"),
        ({"completion_latency": -1.0}, "completion latency must be >= 0"),
        ({"completion_latency": 1.0, "issue_overhead": -1.0}, "issue overhead must be >= 0"),
        ({"issue_overhead": 1.0}, "has an issue_overhead and no completion_latency"),
        ({"completion_latency": float("inf")}, "completion latency must be >= 0"),
    ],
)
def test_refusals(changes: dict[str, float], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Cluster("c", [MemorySpace("m")], [dataclasses.replace(device(0.0), **changes)])  # type: ignore[arg-type]
