"""What holds for every run with faults: random graphs, clusters, schedulers and things that break."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.metrics import metrics
from simulator.context.scheduler import Scheduler
from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.trace import COLUMNS, Trace
from simulator.model.workload import Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.strategies import PACKING, SCHEDULERS, Case, cases
from tests.simulator.test_memory_properties import OUT_OF_MEMORY, TOO_LARGE, tight_cases, tighten
from tests.simulator.test_properties import quick

TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.3, 5.0, 7.0, 11.0, 30.0])
FACTORS = st.sampled_from([0.1, 0.5, 0.75])


LOSES = {"packs-plan"}
"""Schedulers that do not know of what is lost."""
STEERED = {name: make for name, make in (SCHEDULERS | PACKING).items() if name not in LOSES} | {
    "priority": lambda seed: create("priority"),
    "fcfs-by-priority": lambda seed: create("fcfs", by_priority=True),
}


@st.composite
def rich_cases(draw: st.DrawFn) -> Case:
    """A run with priorities, any contention, latencies, and devices that share."""
    case = draw(cases(contentions=("none", "fifo", "fair")))
    devices = [
        dataclasses.replace(
            device,
            completion_latency=(latency := draw(st.sampled_from([0.0, 0.0, 0.7]))),
            issue_overhead=draw(st.sampled_from([0.0, 0.3])) if latency else 0.0,
            issue_depth=draw(st.integers(1, 3)),
            sharing=draw(st.sampled_from(["slots", "slots", "processor"])),
        )
        for device in case.cluster.devices
    ]
    spaces = [
        dataclasses.replace(space, corun_slowdown=draw(st.sampled_from([0.0, 0.0, 0.1])))
        for space in case.cluster.spaces
    ]
    case.cluster = dataclasses.replace(case.cluster, devices=devices, spaces=spaces)
    case.workload = Workload(
        dataclasses.replace(job, priority=draw(st.integers(0, 1))) for job in case.workload
    )
    case.scheduler_name = name = draw(st.sampled_from(sorted(STEERED)))
    case.scheduler = lambda: STEERED[name](case.seed)
    return case


@st.composite
def broken_cases(draw: st.DrawFn, fails: bool = True) -> tuple[Case, Faults]:
    """A run and what breaks in it."""
    case = draw(rich_cases())
    cluster = case.cluster
    whats = (
        ["device_failure", "device_failure", "device_slowdown"] if fails else ["device_slowdown"]
    )
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


def run(
    case: Case,
    faults: Faults | None,
    scheduler: Scheduler | None = None,
    horizon: float | None = None,
    memory: str = "unlimited",
) -> Trace:
    return case.run(scheduler, faults=faults, horizon=horizon, memory=memory)


@settings(quick, max_examples=examples(300))
@given(broken_cases())
def test_invariants(broken: tuple[Case, Faults]) -> None:
    case, faults = broken
    check_invariants(case, faults, run(case, faults))


def check_invariants(case: Case, faults: Faults, trace: Trace) -> None:
    """What holds for every run that breaks and has no horizon."""
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
    _check_bytes(case, trace)
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
        # What a device has ended before it was lost, its later operators may have read.
        if state == "finished" or case.cluster.devices[d].completion_latency:
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


def _check_bytes(case: Case, trace: Trace) -> None:
    """A transfer carries its tensor whole over each link of its way, or less if a failure ended it."""
    failures = {
        row["from"] for row in trace.meta.get("faults", ()) if row["what"] == "device_failure"
    }
    moves = trace.transfers
    keys = ("job", "tensor", "source", "destination", "requested", "start", "finish")
    sent: dict[tuple[float, ...], set[float]] = defaultdict(set)
    for *key, size in zip(*(moves[k].tolist() for k in (*keys, "bytes")), strict=True):
        sent[tuple(key)].add(size)
    arrived: set[tuple[float, ...]] = set()
    for (j, t, source, to, requested, start, finish), sizes in sent.items():
        (size,) = sizes
        whole = case.workload.jobs[int(j)].graph.tensors[int(t)].bytes
        assert 0 <= size <= whole
        assert requested <= start <= finish
        route = case.cluster.route(int(source), int(to))
        if size < whole:
            assert finish in failures
            # No more than the narrowest link carries in the time, latency aside.
            spent = max(0.0, finish - start - route.latency)
            assert size <= (spent + 4 * math.ulp(finish)) * route.bandwidth * (1 + 1e-9)
        else:
            arrived.add((j, t, to))
    space = case.cluster.space_of
    rows = trace.executions
    written: dict[tuple[int, int], set[int]] = defaultdict(set)
    for j, o, d, state in zip(
        *(rows[k].tolist() for k in ("job", "operator", "device", "status")), strict=True
    ):
        if state == "finished":
            for t in case.workload.jobs[j].graph.writes[o]:
                written[j, t].add(space[d])
    for j, state in enumerate(trace.jobs["status"].tolist()):
        job = case.workload.jobs[j]
        if state == "finished" and job.destination is not None:
            to = case.cluster.space_index[job.destination]
            for t in job.graph.outputs:
                if job.graph.producer[t] >= 0:
                    assert to in written[j, t] or (j, t, to) in arrived


@settings(quick, max_examples=examples(200))
@given(broken_cases(), st.floats(0.01, 30.0))
def test_a_horizon_cuts_the_run_to_the_end(broken: tuple[Case, Faults], horizon: float) -> None:
    """Up to the horizon the two runs are one, and every submitted job is counted once."""
    case, faults = broken
    horizon += case.workload.jobs[0].arrival
    whole, cut = run(case, faults), run(case, faults, horizon=horizon)
    admitted = sum(job.arrival <= horizon for job in case.workload)
    assert len(cut.jobs["job"]) == admitted
    over = whole.jobs["finish"][:admitted] <= horizon
    # That a job can never be done shows when the clock has run out of events, those that mean
    # nothing any more included: it may be queued until then.
    stuck = np.char.endswith(whole.jobs["reason"][:admitted], "never mended")
    over &= ~(stuck & (cut.jobs["status"] == "queued"))
    expected = np.where(over, whole.jobs["status"][:admitted], "queued")
    assert cut.jobs["status"].tolist() == expected.tolist()
    assert np.array_equal(cut.jobs["finish"][over], whole.jobs["finish"][:admitted][over])
    key = ("task", "attempt", "device", "slot", "start")
    rows = {
        tuple(row[:5]): (row[5], row[6]) if row[5] <= horizon else (horizon, "running")
        for row in zip(
            *(whole.executions[k].tolist() for k in (*key, "finish", "status")), strict=True
        )
        if row[4] <= horizon
    }
    found = {
        tuple(row[:5]): (row[5], row[6])
        for row in zip(
            *(cut.executions[k].tolist() for k in (*key, "finish", "status")), strict=True
        )
    }
    # An end that the host had not learnt of at the horizon may be lost after it.
    late = {k for k, row in found.items() if row[1] == "finished" and rows[k] == (row[0], "lost")}
    assert not any(case.cluster.devices[k[2]].completion_latency == 0 for k in late)
    assert {k: row for k, row in found.items() if k not in late} == {
        k: row for k, row in rows.items() if k not in late
    }
    figures = metrics(cut)
    counted = figures["jobs_finished"] + figures["jobs_failed"] + figures["jobs_queued"]
    assert counted == figures["jobs"] == admitted
    for _, begin, end in cut.meta.get("outages", ()):
        assert begin <= end <= horizon


@settings(quick, max_examples=examples(150))
@given(broken_cases(fails=False), st.data())
def test_memory_that_is_short(broken: tuple[Case, Faults], data: st.DataObject) -> None:
    """Slow devices and links do not make anything lie where it has no room."""
    case, faults = broken
    tighten(data.draw, case)
    refusal = ""
    try:
        trace = run(case, faults, memory="limited")
    except (InvalidInput, SchedulingError) as error:
        refusal = str(error)
    if refusal:
        assert OUT_OF_MEMORY.match(refusal) or TOO_LARGE.match(refusal), refusal
        return
    assert {*trace.jobs["status"].tolist()} <= {"finished", "failed"}
    for peak, space in zip(trace.meta["peak_bytes"], case.cluster.spaces, strict=True):
        assert space.capacity is None or peak <= space.capacity
    if not any(fault.what == "link_outage" and fault.end == math.inf for fault in faults.events):
        assert "failed" not in trace.jobs["status"].tolist()


@settings(quick, max_examples=examples(60))
@given(broken_cases())
def test_same_seed_same_trace(broken: tuple[Case, Faults]) -> None:
    one, two = run(*broken), run(*broken)
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(one, table)[column], getattr(two, table)[column])
    assert one.meta == two.meta


@settings(quick, max_examples=examples(100))
@given(rich_cases(), st.sampled_from([None, 5.0, 20.0]))
def test_faults_after_the_end_change_nothing(case: Case, horizon: float | None) -> None:
    if horizon is not None:
        horizon += case.workload.jobs[0].arrival
    plain = run(case, None, horizon=horizon)
    device = case.cluster.devices[0].name
    late = Faults([Fault("device_failure", device, 1e6, memory_lost=True)])
    check_same(run(case, late, horizon=horizon), plain)


@settings(quick, max_examples=examples(150))
@given(tight_cases())
def test_what_waits_for_room_does_not_wait_for_a_fault(case: Case) -> None:
    """What goes because nothing else is left to happen goes at once."""
    late = Faults([Fault("device_slowdown", case.cluster.devices[0].name, 1e6, factor=0.5)])
    try:
        plain = run(case, None, memory="limited")
    except (InvalidInput, SchedulingError) as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            run(case, late, memory="limited")
        return
    check_same(run(case, late, memory="limited"), plain)


def check_same(late: Trace, plain: Trace) -> None:
    for table, columns in COLUMNS.items():
        for column in columns:
            found, expected = getattr(late, table)[column], getattr(plain, table)[column]
            assert np.array_equal(found, expected), (table, column)
    assert late.meta == plain.meta


@settings(quick, max_examples=examples(60))
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
