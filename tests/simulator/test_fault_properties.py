"""What holds for every run with faults: random graphs, clusters, schedulers and things that break."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine import simulate
from simulator.faults import Fault, Faults, RandomFaults
from simulator.metrics import metrics
from simulator.scheduler import Scheduler
from simulator.trace import COLUMNS, Trace
from tests.simulator.strategies import SCHEDULERS, Case, cases
from tests.simulator.test_properties import quick

TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.3, 5.0, 7.0, 11.0, 30.0])
FACTORS = st.sampled_from([0.1, 0.5, 0.75])


@st.composite
def broken_cases(draw: st.DrawFn) -> tuple[Case, Faults]:
    """A run and what breaks in it."""
    case = draw(cases(schedulers=tuple(SCHEDULERS)))
    cluster = case.cluster
    whats = ["device_failure", "device_failure", "device_slowdown"]
    if cluster.links:
        whats += ["link_outage", "link_degradation"]
    events: list[Fault] = []
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(whats))
        things = cluster.devices if what.startswith("device") else cluster.links
        where = draw(st.sampled_from([thing.name for thing in things]))
        if any((f.what, f.where) == (what, where) for f in events):
            continue
        start = draw(TIMES)
        end = start + draw(st.sampled_from([0.25, 1.0, 4.0, 20.0, math.inf]))
        factor = draw(FACTORS) if what in ("device_slowdown", "link_degradation") else None
        lost = draw(st.sampled_from([None, True, False])) if what == "device_failure" else None
        events.append(Fault(what, where, start, end, factor, lost))
    random: list[RandomFaults] = []
    if draw(st.booleans()):
        what = draw(st.sampled_from(whats))
        factor = draw(FACTORS) if what in ("device_slowdown", "link_degradation") else None
        random.append(RandomFaults(what, draw(st.sampled_from([3.0, 20.0])), 1.0, None, factor))
    limit = draw(st.sampled_from([1, 2, 4, 50]))
    return case, Faults(tuple(events), tuple(random), limit)


def run(case: Case, faults: Faults | None, scheduler: Scheduler | None = None) -> Trace:
    return simulate(
        case.workload,
        case.cluster,
        case.costs,
        scheduler or case.scheduler(),
        actual=case.actual,
        movement=case.movement,
        contention=case.contention,
        seed=case.seed,
        faults=faults,
    )


@settings(quick, max_examples=300)
@given(broken_cases())
def test_invariants(broken: tuple[Case, Faults]) -> None:
    case, faults = broken
    trace = run(case, faults)
    rows = trace.executions
    status, reason = trace.jobs["status"], trace.jobs["reason"]
    # Every job is accounted for, the failed ones with a reason.
    assert len(status) == len(case.workload)
    assert {*status.tolist()} <= {"finished", "failed"}
    assert np.array_equal(status == "failed", reason != "")
    assert np.all(np.isfinite(trace.jobs["finish"]))
    # Attempts at a task count up from 0, one after the other.
    attempts: dict[int, list[tuple[int, float, float, str]]] = defaultdict(list)
    for task, attempt, start, finish, state in zip(
        *(rows[k].tolist() for k in ("task", "attempt", "start", "finish", "status")), strict=True
    ):
        attempts[task].append((attempt, start, finish, state))
    for tries in attempts.values():
        tries.sort()
        assert [row[0] for row in tries] == list(range(len(tries)))
        assert all(one[2] <= two[1] for one, two in itertools.pairwise(tries))
        assert faults.max_attempts is None or len(tries) <= faults.max_attempts
    # Nothing overlaps on a slot, and nothing runs on a device that is down.
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for d, s, start, finish in zip(
        *(rows[k].tolist() for k in ("device", "slot", "start", "finish")), strict=True
    ):
        assert 0 <= s < case.cluster.devices[d].slots
        tracks[d, s].append((start, finish))
        for other, begin, end in trace.meta.get("outages", ()):
            if other == d:
                assert finish <= begin or start >= end, (start, finish, begin, end)
    for spans in tracks.values():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    # Finished jobs: the last attempt at every task finished.
    last = trace.tasks
    number = 0
    for j, job in enumerate(case.workload):
        tasks = range(number, number + len(job.graph))
        number += len(job.graph)
        if status[j] == "finished":
            mine = last["job"] == j
            assert last["task"][mine].tolist() == list(tasks)
            assert {*last["status"][mine].tolist()} == {"finished"}
    _check_precedence(case, trace)
    figures = metrics(trace)
    assert 0 <= figures["utilisation"] <= 1


def _check_precedence(case: Case, trace: Trace) -> None:
    """Whatever starts has read what a finished attempt wrote before, in its memory or brought there."""
    rows, moves = trace.executions, trace.transfers
    space = case.cluster.space_of
    written: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for j, o, d, finish, state in zip(
        *(rows[k].tolist() for k in ("job", "operator", "device", "finish", "status")), strict=True
    ):
        if state == "finished":
            for t in case.workload.jobs[j].graph.writes[o]:
                written[j, t].append((finish, space[d]))
    brought: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
    for j, t, to, finish, size in zip(
        *(moves[k].tolist() for k in ("job", "tensor", "destination", "finish", "bytes")),
        strict=True,
    ):
        if size == case.workload.jobs[j].graph.tensors[t].bytes:  # not called off
            brought[j, t].append((finish, to))
    for j, o, d, start in zip(
        *(rows[k].tolist() for k in ("job", "operator", "device", "start")), strict=True
    ):
        graph = case.workload.jobs[j].graph
        for t in graph.reads[o]:
            if graph.producer[t] >= 0:
                there = [*written[j, t], *brought[j, t]]
                assert any(time <= start and s == space[d] for time, s in there), (j, o, t)


@settings(quick, max_examples=60)
@given(broken_cases())
def test_same_seed_same_trace(broken: tuple[Case, Faults]) -> None:
    one, two = run(*broken), run(*broken)
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(one, table)[column], getattr(two, table)[column])
    assert one.meta == two.meta


@settings(quick, max_examples=100)
@given(cases(schedulers=tuple(SCHEDULERS)))
def test_faults_after_the_end_change_nothing(case: Case) -> None:
    plain = simulate(
        case.workload,
        case.cluster,
        case.costs,
        case.scheduler(),
        actual=case.actual,
        movement=case.movement,
        contention=case.contention,
        seed=case.seed,
        general=True,
    )
    device = case.cluster.devices[0].name
    late = run(case, Faults([Fault("device_failure", device, 1e6, memory_lost=True)]))
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(late, table)[column], getattr(plain, table)[column]
            assert np.array_equal(found, expected), (table, column)
    assert late.meta == plain.meta


@settings(quick, max_examples=60)
@given(broken_cases(), st.data())
def test_every_scheduler_meets_the_same_faults(
    broken: tuple[Case, Faults], data: st.DataObject
) -> None:
    """What happened to one is a beginning of what happened to the other, or the other way round."""
    case, faults = broken
    other = SCHEDULERS[data.draw(st.sampled_from(["fcfs", "heft", "donf"]))](0)
    one, two = (t.meta.get("faults", []) for t in (run(case, faults), run(case, faults, other)))
    count = min(len(one), len(two))
    assert one[:count] == two[:count]
