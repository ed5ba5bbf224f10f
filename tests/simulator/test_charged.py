"""Decisions that take simulated time: hand-computed cases, and an independent replay."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.idle import CAUSES, idle_seconds
from simulator.engine.decision_cost import DecisionCost
from simulator.engine.decision_delay import DecisionDelay
from simulator.engine.engine import Simulation
from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.memory.limited import LimitedMemory
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.replay import Replay, _Shop
from tests.simulator.scripted import Decision, Recorded, Script
from tests.simulator.strategies import SCHEDULERS, Case, cases
from tests.simulator.test_fault_properties import PACKING, broken_cases
from tests.simulator.test_memory_properties import check_accounts, give_host, tight_cases
from tests.simulator.test_properties import quick

ONE = Cluster("one", [MemorySpace("m")], [Device("A", "m")])
TWO = Cluster("two", [MemorySpace("m")], [Device("A", "m"), Device("B", "m")])
FOUR = from_edges("four", 4, [(0, 2, 0.0), (1, 3, 0.0)])
"""2 s and 3 s at once, then 1 s after each."""


def four(
    cost: DecisionCost, scheduler: str = "mct", **options: object
) -> tuple[Trace, list[float]]:
    """A run of that, and when the scheduler was asked."""
    costs = CostTable.of(FOUR, np.array([[2.0, 9.0], [9.0, 3.0], [1.0, 1.0], [1.0, 1.0]]))
    recorded = Recorded(create(scheduler, **options))
    recorded.static = recorded.inner.static  # type: ignore[misc]
    trace = simulate(FOUR, TWO, costs, recorded, decision_cost=cost)
    return trace, [decision.time for decision in recorded.decisions]


def test_verbs_take_effect_when_the_cost_has_passed() -> None:
    """Asked at 0, t0 and t1 are placed at 2; at 4, when t0 is done, t2 is decided and placed at 6;
    t1 ends at 5, of which the scheduler hears at 6; so t3 is placed at 8.
    """
    trace, asked = four(DecisionCost(per_decision=2.0))
    assert trace.tasks["ready"].tolist() == [0, 0, 4, 5]
    assert trace.tasks["placed"].tolist() == [2, 2, 6, 8]
    assert trace.tasks["start"].tolist() == [2, 2, 6, 8]
    assert asked == [0, 4, 6, 8, 10]  # t2 ends at 7, t3 at 9
    assert trace.makespan == 9.0
    assert trace.meta["decision_cost"] == {
        "charge": "stated",
        "per_decision_s": 2.0,
        "per_task_s": 0.0,
        "per_pair_s": 0.0,
        "charged_s": 10.0,
    }


def test_idle_time_is_the_decisions() -> None:
    """A idles 0-2 and 4-6 for decisions, then has no work if t3 runs on B, which idles 0-2 and 5-8."""
    trace, _ = four(DecisionCost(per_decision=2.0))
    decision = CAUSES.index("decision")
    devices = trace.tasks["device"].tolist()
    assert devices[:2] == [0, 1]
    waits = [4.0, 2.0]
    waits[devices[3]] += {0: 1.0, 1: 3.0}[devices[3]]  # from 7 or from 5, ready then, to 8
    assert idle_seconds(trace)[:, decision].tolist() == waits


@pytest.mark.parametrize(
    ("cost", "starts"),
    [
        (DecisionCost(per_task=0.5), 1.0),  # two ready tasks
        (DecisionCost(per_pair=0.25), 1.0),  # on two devices each
        (DecisionCost(1.0, 0.5, 0.25), 3.0),
    ],
)
def test_parts_add_up(cost: DecisionCost, starts: float) -> None:
    trace, _ = four(cost)
    assert trace.tasks["start"][:2].tolist() == [starts, starts]


def test_a_static_plan_is_charged_once_for_all_its_tasks() -> None:
    trace, asked = four(DecisionCost(per_task=0.5), "heft")
    assert asked == [0.0]
    assert trace.tasks["placed"].tolist() == [2.0] * 4
    assert trace.tasks["start"].tolist() == [2, 2, 4, 5]


def test_held_tasks_are_considered_again() -> None:
    """Three tasks of 1 s, one device, fcfs, 0.5 s a task: decisions take 1.5, 1, 0.5 and nothing."""
    graph = from_edges("three", 3, [])
    costs = CostTable.of(graph, np.ones((3, 1)))
    trace = simulate(graph, ONE, costs, create("fcfs"), decision_cost=DecisionCost(per_task=0.5))
    assert trace.tasks["start"].tolist() == [1.5, 3.5, 5.0]
    assert trace.meta["decision_cost"]["charged_s"] == 3.0


def test_a_withdrawal_that_comes_too_late_is_dropped() -> None:
    """p and q (2 s) are placed at 1.5; r is urgent, came at 1 and is decided upon from then to 3: p has
    begun, q goes behind r.
    """
    pair, urgent = from_edges("pair", 2, []), from_edges("urgent", 1, [])
    costs = CostTable(
        {**CostTable.of(pair, np.full((2, 1), 2.0)), **CostTable.of(urgent, np.ones((1, 1)))}
    )
    workload = Workload([Job(pair), Job(urgent, 1.0, priority=1)])
    cost = DecisionCost(per_decision=1.5)
    trace = simulate(workload, ONE, costs, create("priority"), decision_cost=cost)
    assert trace.tasks["start"].tolist() == [1.5, 4.5, 3.5]
    assert trace.tasks["placed"].tolist() == [1.5, 3.0, 3.0]


def test_a_device_that_fails_meanwhile_gives_back_what_was_meant_for_it() -> None:
    """A, the faster one, fails at 0.5; at 1 the task comes back, and is on B from 2 on."""
    graph = from_edges("one", 1, [])
    costs = CostTable.of(graph, np.array([[1.0, 3.0]]))
    faults = Faults([Fault("device_failure", "A", 0.5, 9.0)])
    seen = []

    def act(context, call):  # type: ignore[no-untyped-def]
        seen.append((context.now, list(context.lost)))
        for task in context.placeable:
            context.place(task, 0 if context.is_up(0) else 1)

    trace = simulate(
        graph, TWO, costs, Script(act), faults=faults, decision_cost=DecisionCost(per_decision=1.0)
    )
    assert seen[:2] == [(0.0, []), (1.0, [0])]
    assert trace.tasks["device"].tolist() == [1]
    assert trace.tasks["start"].tolist() == [2.0]


def test_wake_ups_wait_for_the_decision_that_asked_for_them() -> None:
    graph = from_edges("one", 1, [])
    seen = []

    def act(context, call):  # type: ignore[no-untyped-def]
        seen.append(context.now)
        if call == 0:
            context.wake_at(0.5)
            context.wake_at(4.0)
        if call == 2:
            context.place(0, 0)

    cost = DecisionCost(per_decision=1.0)
    trace = simulate(
        graph, ONE, CostTable.of(graph, np.ones((1, 1))), Script(act), decision_cost=cost
    )
    assert seen == [0.0, 1.0, 4.0, 6.0]
    assert trace.tasks["start"].tolist() == [5.0]


def test_the_wall_clock_is_marked() -> None:
    trace, _ = four(DecisionCost(wallclock=True))
    assert trace.meta["decision_cost"]["charge"] == "wallclock"
    charged = trace.meta["decision_cost"]["charged_s"]
    assert charged == pytest.approx(trace.wallclock["deciding_seconds"], rel=1e-9)
    assert 0 < trace.tasks["placed"][0] <= charged


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="per_task=-1 s; give 0 or more"):
        DecisionCost(per_task=-1)
    with pytest.raises(InvalidInput, match="s and charges the wall clock"):
        DecisionCost(per_pair=1.0, wallclock=True)
    with pytest.raises(InvalidInput, match="needs pack, which takes effect at once"):
        four(DecisionCost(per_decision=1.0), "packed")


@settings(quick, max_examples=examples(300))
@given(cases(contentions=("none", "fifo", "fair")))
def test_no_cost_is_the_run_without(case: Case) -> None:
    check_same(case.run(decision_cost=DecisionCost()), case.run())


@settings(quick, max_examples=examples(150))
@given(broken_cases())
def test_no_cost_is_the_run_without_where_things_break(broken: tuple[Case, Faults]) -> None:
    case, faults = broken
    if case.scheduler_name not in PACKING:
        check_same(
            case.run(faults=faults, decision_cost=DecisionCost()),
            case.run(faults=faults),
        )


def check_same(found: Trace, expected: Trace) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            a, b = getattr(found, table)[column], getattr(expected, table)[column]
            assert np.array_equal(a, b), (table, column)
    assert found.wallclock["decisions"] == expected.wallclock["decisions"]


class _ChargedShop(_Shop):
    """The replay, of decisions that cost something and obey the rules of docs/semantics.md."""

    def __init__(
        self, case: Case, decisions: list[Decision], cost: DecisionCost, static: bool
    ) -> None:
        actual = case.actual_seconds()
        super().__init__(
            case.workload, case.cluster, actual, decisions, case.movement, case.contention
        )
        self.cost = cost
        self.static = static
        self.pending: Decision | None = None
        self.free_at = -1.0
        self.news = False
        self.seen: set[int] = set()

    def price(self, now: float) -> float:
        tasks = [
            task
            for task in self.tasks
            if task not in self.placed
            and task not in self.finished
            and self.ready_time(task) <= now
        ]
        if self.static:
            new = self.arrived.keys() - self.seen
            self.seen |= new
            tasks = [task for task in self.tasks if task[0] in new]
        pairs = sum(int(np.isfinite(self.actual[job][operator]).sum()) for job, operator in tasks)
        return self.cost.seconds(len(tasks), pairs, math.nan)

    def take_effect(self, decision: Decision, now: float) -> None:
        late = Decision(now)
        withdrawn: dict[object, bool] = {}
        for verb, row in decision.verbs:
            if verb == "wake_at":
                late.verbs.append((verb, (max(now, float(row[0])),)))  # type: ignore[arg-type]
                continue
            task = self.tasks[int(row[0])]  # type: ignore[call-overload]
            if task not in withdrawn:
                begun = {*self.running, *self.submitted, *self.ended, *self.finished}
                withdrawn[task] = verb == "withdraw" and task in begun
            if not withdrawn[task]:
                late.verbs.append((verb, row))
        self.obey(late)

    def run(self) -> Replay:
        while self.moments:
            now = min(self.moments)
            self.moments.discard(now)
            again = True
            while again:
                finished = self.finish_tasks(now)
                arrived = self.arrive(now)
                self.news |= arrived or now in self.wakes or (finished and not self.static)
                self.wakes.discard(now)
                if self.pending is not None and now == self.free_at:
                    pending, self.pending = self.pending, None
                    self.take_effect(pending, now)
                if self.news and self.pending is None:
                    self.news = False
                    decision = self.decisions.pop(0)
                    assert decision.time == now
                    self.pending = decision
                    self.free_at = now + self.price(now)
                    if self.free_at == now:
                        self.pending = None
                        self.obey(decision)
                    self.moments.add(self.free_at)
                self.request(now)
                self.start_tasks(now)
                again = now in self.moments
                self.moments.discard(now)
        assert not self.decisions
        assert self.pending is None
        return self.result


STEADY = tuple(name for name in SCHEDULERS if not name.startswith("erratic"))
"""Erratic ones take tasks back and keep them, and do not look whether they came too late."""
COSTS = st.builds(
    DecisionCost,
    st.sampled_from([0.0, 0.5, 1.0, 3.3]),
    st.sampled_from([0.0, 0.25, 0.7]),
    st.sampled_from([0.0, 0.1]),
)


@settings(quick, max_examples=examples(300))
@given(cases(schedulers=STEADY), COSTS)
def test_replay_derives_the_same_run(case: Case, cost: DecisionCost) -> None:
    recorded = Recorded(case.scheduler())
    recorded.static = recorded.inner.static  # type: ignore[misc]
    trace = case.run(recorded, decision_cost=cost)
    expected = _ChargedShop(case, recorded.decisions, cost, recorded.static).run()
    names = ("job", "operator", "device", "ready", "placed", "start", "finish")
    rows = zip(*(trace.executions[name].tolist() for name in names), strict=True)
    assert {(j, o): tuple(row) for j, o, *row in rows} == expected.executions
    table = trace.transfers
    names = (
        "job",
        "tensor",
        "destination",
        "link",
        "source",
        "requested",
        "start",
        "finish",
        "bytes",
    )
    moved = zip(*(table[name].tolist() for name in names), strict=True)
    assert {(j, t, to, c): tuple(row) for j, t, to, c, *row in moved} == expected.transfers


@settings(quick, max_examples=examples(200))
@given(broken_cases(), COSTS)
def test_every_job_ends_where_things_break(broken: tuple[Case, Faults], cost: DecisionCost) -> None:
    case, faults = broken
    if case.scheduler_name in PACKING or case.scheduler_name.startswith("erratic"):
        return
    trace = case.run(faults=faults, decision_cost=cost)
    assert {*trace.jobs["status"].tolist()} <= {"finished", "failed"}
    rows = trace.executions
    assert np.all(rows["placed"] <= rows["start"])
    done = Counter(rows["task"][rows["status"] == "finished"].tolist())
    total = 0
    for job, status in zip(case.workload, trace.jobs["status"].tolist(), strict=True):
        tasks = range(total, total + len(job.graph))
        total += len(job.graph)
        assert status == "failed" or all(done[task] for task in tasks)


def queues_of(run: Simulation) -> list[list[tuple[float, int, int]]]:
    """The queue of every device; a task whose start was foreseen has not started, and counts to it."""
    foreseen = [task for task in run.foreseen if task >= 0 and not run.has_started(task)]
    entries = {run.task_device[t]: [(run.task_rank[t], run.task_sequence[t], t)] for t in foreseen}
    return [sorted([*entries.get(d, []), *queue]) for d, queue in enumerate(run.queues)]


def state_of(run: Simulation) -> dict[str, object]:
    """All that a decision about placements may change."""
    run.stale = [True] * len(run.stale)  # what is believed of queues is worked out now
    state: dict[str, object] = {
        "queues": queues_of(run),
        "devices": list(run.task_device),
        "load": list(run.load),
        "copies": [dict(copies) for copies in run.copies],
        "requests": sorted(run.requested),
        "links": list(run.channel_free),
        "believed": [run.available(device) for device in range(len(run.cluster.devices))],
    }
    memory = run.memory
    if isinstance(memory, LimitedMemory):
        check_accounts(memory)
        state |= {
            "used": list(memory._room.used),
            "idle": list(memory._room.idle_bytes),
            "to write": list(memory._lines.to_write),
        }
    return state


@settings(quick, max_examples=examples(150))
@given(tight_cases(), st.sampled_from(["unlimited", "resident", "on_demand"]))
def test_until_its_cost_has_passed_a_decision_leaves_no_trace(case: Case, memory: str) -> None:
    options = {"memory": "limited", "weights": memory} if memory != "unlimited" else {}
    if memory == "on_demand":
        give_host(case)
    decided = 0

    def decide(delay: DecisionDelay, ask: Callable[[], None]) -> None:
        nonlocal decided
        before = state_of(delay._run)
        real(delay, ask)
        decided += 1
        if delay._busy:
            assert state_of(delay._run) == before

    real = DecisionDelay.decide
    inner = case.scheduler()
    refused = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecisionDelay, "decide", decide)
        try:
            case.run(inner, decision_cost=DecisionCost(per_decision=0.3), **options)
        except InvalidInput:  # an operator has no room by itself: refused before the run
            refused = True
        except SchedulingError:  # out of memory
            pass
    assert decided or refused


@settings(quick, max_examples=examples(150))
@given(tight_cases(), st.sampled_from(["resident", "on_demand"]))
def test_no_cost_is_the_run_without_where_memory_is_tight(case: Case, weights: str) -> None:
    if weights == "on_demand":
        give_host(case)
    options = {"memory": "limited", "weights": weights}
    try:
        expected = case.run(**options)
    except (SchedulingError, InvalidInput) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            case.run(decision_cost=DecisionCost(), **options)
    else:
        check_same(case.run(decision_cost=DecisionCost(), **options), expected)
