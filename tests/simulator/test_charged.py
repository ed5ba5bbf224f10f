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
from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
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
from tests.simulator.schedulers.test_lru_eviction import model, serve
from tests.simulator.scripted import Decision, Recorded, Script
from tests.simulator.serving.fleet import Fleet
from tests.simulator.strategies import SCHEDULERS, Case, cases
from tests.simulator.test_fault_properties import PACKING, broken_cases
from tests.simulator.test_memory import cluster_of, graph_of, moves, run, spans
from tests.simulator.test_memory_properties import (
    Evicting,
    check_accounts,
    check_refusal,
    check_run,
    give_host,
    tight_cases,
)
from tests.simulator.test_packing import Packer, pair
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


def carry(act: Callable[[SchedulingContext], None], **settings: object) -> Trace:
    """p, 2 s on cpu, writes y (2 bytes); e reads y, g reads x (4 bytes, from a) and y, 1 s each; 1 s a decision,
    fifo at 2 bytes/s behind a latency of 1 s.
    """
    graph = graph_of(
        {"p": ([], {"y": 2}), "e": (["y"], {}), "g": (["x", "y"], {})}, {"x": ("input", 4)}
    )
    costs = CostTable.of(graph, np.array([[2.0, 2.0], [1.0, 1.0], [1.0, 1.0]]))
    return simulate(
        Workload([Job(graph, origin="a")]),
        pair(),
        costs,
        Packer(lambda context, call: act(context)),
        contention="fifo",
        decision_cost=DecisionCost(per_decision=1.0),
        **settings,  # type: ignore[arg-type]
    )


def test_a_message_goes_when_the_cost_has_passed() -> None:
    """p runs from 1 to 3; asked for at 3, both go from 4 to 4 + 1 + 6/2 = 8. Nothing was on its way before."""

    def act(context: SchedulingContext) -> None:
        if context.now == 0:
            context.place(0, 0)
        elif context.finished == [0]:
            context.place(2, 1)
            context.pack([(0, 1), (1, 1)])
            assert context.copy_time(0, 1) == context.copy_time(1, 1) == 3.0 + 1 + 3
            context.place(1, 1)

    trace = carry(act)
    assert [(row[1], *row[3:]) for row in moves(trace)] == [(0, 4, 4, 8), (0, 4, 4, 8)]
    assert spans(trace) == {"p": (1, 3), "g": (8, 9), "e": (9, 10)}


def test_of_a_message_goes_what_is_not_on_its_way_by_then() -> None:
    """e was placed ahead: y goes alone at 3, when it is written, to 3 + 1 + 1 = 5; x behind it from 5 to 8."""

    def act(context: SchedulingContext) -> None:
        if context.now == 0:
            context.place(0, 0)
            context.place(1, 1)
        elif context.finished == [0]:
            context.place(2, 1)
            context.pack([(0, 1), (1, 1)])

    trace = carry(act)
    assert sorted(row[3:] for row in moves(trace)) == [(3, 3, 5), (4, 5, 8)]
    assert spans(trace) == {"p": (1, 3), "e": (5, 6), "g": (8, 9)}

    def only_y(context: SchedulingContext) -> None:
        if context.now == 0:
            context.place(0, 0)
            context.place(1, 1)
        elif context.finished == [0]:
            context.pack([(context.inputs(1)[0].tensor, 1)])
            context.place(2, 0)

    assert [row[3:] for row in moves(carry(only_y))] == [(3, 3, 5)]  # and no message


def test_weights_leave_when_the_cost_has_passed() -> None:
    """Placed at 1, one's weight comes from 1 to 5. two is decided upon at 10, waits for room from 11 on, of which the
    scheduler hears then; at 12 one's weight goes, and two's comes.
    """
    one, two = model("one", 4), model("two", 4)
    cost = DecisionCost(per_decision=1.0)
    trace = serve([(one, 0.0), (two, 10.0)], 7, create("lru_eviction"), decision_cost=cost)
    assert trace.meta["evictions"] == [[12.0, 0, 0, 0]]
    assert spans(trace) == {"a#0": (5, 6), "a#1": (16, 17)}


@pytest.mark.parametrize("late", [False, True])
def test_a_weight_that_is_needed_by_then_stays(late: bool) -> None:
    """w comes from 1 to 5, q runs to 6, p to 9; r, placed ahead, needs w once it is ready (pull). Evicted at 7, w is
    gone at 8 and comes again from 9 to 13; at 8 it is too late: r has begun at 9.
    """
    graph = graph_of(
        {"q": (["w"], {}), "p": ([], {"y": 1}), "r": (["w", "y"], {})}, {"w": ("weight", 4)}
    )

    def act(context: SchedulingContext, call: int) -> None:
        if call == 0:
            for task in range(3):
                context.place(task, 0, float(task))
            context.wake_at(8.0 if late else 7.0)
        elif context.now == (8.0 if late else 7.0):
            before = context.free_bytes(0)
            assert context.evict(graph, 0) == 4 == context.free_bytes(0) - before
            assert context.resident_bytes(graph, 0) == 0

    class Evicts(Script):
        needs = frozenset({"evict"})
        static = True

    trace = run(
        Workload([Job(graph)]),
        cluster_of("n", {"n": 9.0, "h": math.inf}, host="h"),
        {"q": 1, "p": 3, "r": 1},
        Evicts(act),
        weights="on_demand",
        movement="pull",
        decision_cost=DecisionCost(per_decision=1.0),
    )
    assert trace.meta.get("evictions", []) == ([] if late else [[8.0, 0, 0, 0]])
    assert spans(trace)["r"] == ((9, 10) if late else (13, 14))


def test_requests_are_sent_and_refused_when_the_cost_has_passed() -> None:
    """Sent at 0, which costs 0.5, the inputs go from 0.5 to 1.5; the batch is placed at 2 and takes 3 s."""
    fleet = Fleet([(1.0, 1.0)], sources=1, latency=1.0, bandwidth=1e12)
    seen: list[object] = []

    def act(context, call):  # type: ignore[no-untyped-def]
        if call == 0:
            context.reject(2, "full")
            assert not context.is_waiting(2)
            for job in (0, 1):
                context.send(job, 0)
                assert context.inputs_under_way(job)
        elif context.delivered:
            seen.append((context.now, list(context.delivered)))
            context.place(context.tasks_of(context.batch([0, 1]))[0], 0)

    class Serves(Script):
        needs = frozenset({"batch"})

    jobs = [fleet.job(0.0, at="user0") for _ in range(3)]
    trace = simulate(
        Workload(jobs, fleet.batches),
        fleet.cluster,
        fleet.costs,
        Serves(act),
        decision_cost=DecisionCost(per_decision=0.5),
    )
    assert seen == [(pytest.approx(1.5), [0, 1])]
    assert trace.jobs["status"].tolist() == ["finished", "finished", "rejected"]
    assert trace.jobs["finish"][2] == 0.5
    assert trace.executions["start"].tolist() == pytest.approx([2.0])
    assert trace.executions["finish"].tolist() == pytest.approx([5.0])
    assert trace.meta["decision_cost"]["charged_s"] == 0.5 * trace.wallclock["decisions"]


@pytest.mark.parametrize("scheduler", ["task_groups", "fcfs_batching", "dynamic_batching", "edf"])
@pytest.mark.parametrize("packing", [None, {"age": "5ms"}])
def test_serving_schedulers_can_be_charged(scheduler: str, packing: object) -> None:
    fleet = Fleet([(0.01, 0.002), (0.02, 0.003)], (1.0, 2.0), sources=2, latency=1e-3)
    jobs = [fleet.job(0.004 * i, i % 2, f"user{i % 2}") for i in range(60)]
    options = {"select": {"name": "least_loaded", "move": True}, "packing": packing}
    cost = DecisionCost(per_decision=1e-3, per_task=1e-4)
    for contention in ("none", "fifo"):
        trace = fleet.run(jobs, scheduler, _contention=contention, _decision_cost=cost, **options)
        assert {*trace.jobs["status"].tolist()} == {"finished"}
        assert sorted(trace.members["job"].tolist()) == list(range(60))
        check_same(
            fleet.run(
                jobs, scheduler, _contention=contention, _decision_cost=DecisionCost(), **options
            ),
            fleet.run(jobs, scheduler, _contention=contention, **options),
        )


@settings(quick, max_examples=examples(300))
@given(cases(contentions=("none", "fifo", "fair")))
def test_no_cost_is_the_run_without(case: Case) -> None:
    check_same(case.run(decision_cost=DecisionCost()), case.run())


@settings(quick, max_examples=examples(150))
@given(broken_cases())
def test_no_cost_is_the_run_without_where_things_break(broken: tuple[Case, Faults]) -> None:
    case, faults = broken
    check_same(case.run(faults=faults, decision_cost=DecisionCost()), case.run(faults=faults))


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
    if "erratic" in case.scheduler_name:
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


EVERY = (*SCHEDULERS, *PACKING)
PATIENT = tuple(name for name in EVERY if "erratic" not in name)


def evicting(case: Case, weights: str) -> Scheduler:
    """A case's scheduler, which evicts where it may."""
    inner = case.scheduler()
    return Evicting(inner) if weights == "on_demand" else inner


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
        "packed": dict(run.packed),
        "believed": [run.available(device) for device in range(len(run.cluster.devices))],
    }
    memory = run.memory
    if isinstance(memory, LimitedMemory):
        check_accounts(memory)
        state |= {
            "used": list(memory._room.used),
            "idle": list(memory._room.idle_bytes),
            "to write": list(memory._lines.to_write),
            "weights": [dict(here) for here in memory._weights.here],
            "evictions": list(memory._weights.evictions),
        }
    return state


@settings(quick, max_examples=examples(150))
@given(tight_cases(EVERY), st.sampled_from(["unlimited", "resident", "on_demand"]))
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
    inner = evicting(case, memory)
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
@given(tight_cases(EVERY), st.sampled_from(["resident", "on_demand"]))
def test_no_cost_is_the_run_without_where_memory_is_tight(case: Case, weights: str) -> None:
    if weights == "on_demand":
        give_host(case)
    options = {"memory": "limited", "weights": weights}
    try:
        expected = case.run(evicting(case, weights), **options)
    except (SchedulingError, InvalidInput) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            case.run(evicting(case, weights), decision_cost=DecisionCost(), **options)
    else:
        check_same(
            case.run(evicting(case, weights), decision_cost=DecisionCost(), **options), expected
        )


@settings(quick, max_examples=examples(150))
@given(tight_cases(PATIENT), st.sampled_from(["unlimited", "resident", "on_demand"]), COSTS)
def test_every_task_runs_once_whatever_decisions_cost(
    case: Case, memory: str, cost: DecisionCost
) -> None:
    options = {"memory": "limited", "weights": memory} if memory != "unlimited" else {}
    if memory == "on_demand":
        give_host(case)
    try:
        trace = case.run(evicting(case, memory), decision_cost=cost, **options)
    except (SchedulingError, InvalidInput) as error:
        check_refusal(error)
        return
    check_run(case, trace)
    for peak, space in zip(trace.meta.get("peak_bytes", ()), case.cluster.spaces, strict=False):
        assert peak <= space.capacity
    check_same(case.run(evicting(case, memory), decision_cost=cost, **options), trace)
