"""Devices that fail while they serve: by hand, and every request ends."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from simulator.engine.decision_cost import DecisionCost
from simulator.engine.faults import Fault, Faults, RandomFaults
from simulator.errors import InvalidInput
from simulator.model.trace import COLUMNS, Trace
from tests.simulator.serving.fleet import Fleet

SERVING: list[tuple[str, dict[str, Any]]] = [
    ("task_groups", {}),
    ("task_groups", {"upload_to": "node1", "upload_above": "30ms", "upload_below": "10ms"}),
    ("task_groups", {"packing": {"age": "5ms"}, "select": {"name": "random", "move": True}}),
    ("fcfs_batching", {"packing": {}, "select": {"name": "power_of_two", "move": True}}),
    ("fcfs_batching", {"max_batch": 1, "select": "round_robin"}),
    ("dynamic_batching", {"delay": "20ms", "select": {"name": "least_loaded", "move": True}}),
    ("edf", {"drop_late": True, "max_batch": 4, "select": "earliest_finish"}),
    ("deadline_accuracy", {"select": {"name": "deadline", "admission": True, "move": True}}),
    ("task_groups", {"select": {"name": "two_stage", "move": True}}),
    ("fcfs", {}),
    ("sjf", {}),
]


def test_a_batch_is_lost_as_a_whole_and_runs_again() -> None:
    """Two of t(2) = 3 s begin at 0; the device fails from 1 to 2 and keeps its memory: again from 2 to 5."""
    fleet = Fleet([(1.0, 1.0)])
    faults = Faults([Fault("device_failure", "d0", 1.0, 2.0)])
    trace = fleet.run([fleet.job(0.0), fleet.job(0.0)], "fcfs_batching", _faults=faults)
    rows = trace.executions
    assert rows["status"].tolist() == ["lost", "finished"]
    assert rows["start"].tolist() == [0.0, 2.0]
    assert trace.members["job"].tolist() == [0, 1, 0, 1]
    assert trace.jobs["finish"].tolist() == [5.0, 5.0]


def test_a_batch_that_was_tried_as_often_as_it_may_be_fails_as_a_whole() -> None:
    fleet = Fleet([(1.0, 1.0)])
    faults = Faults([Fault("device_failure", "d0", 1.0, 2.0)], max_attempts=1)
    jobs = [fleet.job(0.0), fleet.job(0.0), fleet.job(5.0)]
    trace = fleet.run(jobs, "fcfs_batching", _faults=faults)
    assert trace.jobs["status"].tolist() == ["failed", "failed", "finished"]
    assert trace.jobs["finish"].tolist() == [1.0, 1.0, 7.0]


def test_inputs_that_were_sent_to_a_lost_memory_are_sent_from_where_they_came() -> None:
    """Sent at 0 from the user, served on node1 from 1 to 4 (two of 1 + 1 b); at 2 it fails with its memory for good. The
    batch goes on on node0, its inputs from the user from 2 to 3, and ends at 6; the answers are back at 7.
    """
    fleet = Fleet([(1.0, 1.0)], (1.0, 1.0), sources=1, latency=1.0, bandwidth=1e15)
    jobs = [fleet.job(0.0, at="user0") for _ in range(2)]
    faults = Faults([Fault("device_failure", "d1", 2.0)])
    select = {"name": "home", "among": ["node1", "node0"]}
    trace = fleet.run(jobs, "fcfs_batching", select=select, _faults=faults)
    rows = trace.executions
    assert rows["device"].tolist() == [1, 0]
    assert rows["start"].tolist() == pytest.approx([1.0, 3.0])
    assert trace.jobs["finish"].tolist() == pytest.approx([7.0, 7.0])


def test_requests_on_their_way_to_a_lost_memory_go_elsewhere() -> None:
    """On their way to node1 from 0 to 1, called off at 0.5; then to node0 until 1.5, and served until 4.5."""
    fleet = Fleet([(1.0, 1.0)], (1.0, 1.0), sources=1, latency=1.0, bandwidth=1e15)
    jobs = [fleet.job(0.0, at="user0") for _ in range(2)]
    select = {"name": "home", "among": ["node1", "node0"]}
    for faults in (Faults([Fault("device_failure", "d1", 0.5)]),):
        trace = fleet.run(jobs, "fcfs_batching", select=select, _faults=faults)
        assert trace.executions["device"].tolist() == [0]
        assert trace.executions["start"].tolist() == pytest.approx([1.5])
        assert trace.jobs["finish"].tolist() == pytest.approx([5.5, 5.5])


def test_limited_memory_must_survive() -> None:
    fleet = Fleet([(1.0, 1.0)], (1.0, 1.0))
    fails = Fault("device_failure", "d1", 1.0, 2.0)
    options: dict[str, Any] = {
        "_memory": "limited",
        "select": {"name": "round_robin", "move": True},
    }
    with pytest.raises(InvalidInput, match=r"'d1' takes its memory.*memory_lost: false"):
        fleet.run([fleet.job(0.0)], "fcfs_batching", _faults=Faults([fails]), **options)
    kept = Faults([dataclasses.replace(fails, memory_lost=False)])
    jobs = [fleet.job(0.0) for _ in range(4)]
    trace = fleet.run(jobs, "fcfs_batching", _faults=kept, **options)
    assert {*trace.jobs["status"].tolist()} == {"finished"}


@pytest.mark.parametrize("seed", range(60))
def test_every_request_ends(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Every request is served, refused or failed, and twice the same run is the same trace."""
    pick = random.Random(f"failing {seed}")
    models = [(pick.choice([0.0, 0.01]), 0.004 * (m + 1)) for m in range(pick.randint(1, 3))]
    speeds = [pick.choice([0.5, 1.0, 2.0]) for _ in range(pick.randint(2, 3))]
    sources = pick.randint(0, 2)
    fleet = Fleet(models, speeds, sources, pick.choice([0.0, 0.002]), pick.choice([1e5, 1e9]))
    places = [f"user{i}" for i in range(sources)] or [f"node{i}" for i in range(len(speeds))]
    limited = pick.random() < 0.3
    if limited:
        room = pick.choice([9e3, 1e6])
        spaces = [dataclasses.replace(space, capacity=room) for space in fleet.cluster.spaces]
        fleet.cluster = dataclasses.replace(fleet.cluster, spaces=spaces)
    arrival, jobs = 0.0, []
    for _ in range(pick.randint(1, 40)):
        arrival += pick.choice([0.0, 0.001, 0.01])
        late = pick.choice([None, arrival + 0.1])
        model = pick.randrange(len(models))
        jobs.append(fleet.job(arrival, model, pick.choice(places), deadline=late))
    lost = False if limited else pick.choice([None, False, True])
    names = [device.name for device in fleet.cluster.devices]
    events = [
        Fault("device_failure", name, start, start + length, memory_lost=lost)
        for name in pick.sample(names, pick.randint(1, len(names)))
        for start in [pick.choice([0.0, 0.004, 0.02, 0.05])]
        for length in [pick.choice([0.003, 0.05, math.inf])]
    ]
    if fleet.cluster.links and pick.random() < 0.3:
        link = pick.choice(fleet.cluster.links).name
        events.append(Fault("link_outage", link, 0.01, pick.choice([0.03, math.inf])))
    drawn = [RandomFaults("device_failure", 0.05, 0.01, memory_lost=lost)] * (pick.random() < 0.3)
    name, options = pick.choice(SERVING)
    given: dict[str, Any] = {
        "_faults": Faults(events, drawn, pick.choice([1, 2, 4])),
        "_contention": pick.choice(["none", "fifo", "fair"]),
        "_movement": pick.choice(["push", "pull"]),
    }
    if limited:
        given["_memory"] = "limited"
    if pick.random() < 0.3:
        given["_decision_cost"] = DecisionCost(pick.choice([0.0, 0.002]), 0.0001)
    one, two = (fleet.run(jobs, name, **options, **given) for _ in range(2))
    _check_ends(one)
    for table, columns in COLUMNS.items():
        for column in columns:
            assert np.array_equal(getattr(one, table)[column], getattr(two, table)[column])


def _check_ends(trace: Trace) -> None:
    status, rows = trace.jobs["status"], trace.executions
    assert {*status.tolist()} <= {"finished", "failed", "rejected"}
    served = rows["execution"][rows["status"] == "finished"]
    members = {*trace.members["job"][np.isin(trace.members["execution"], served)].tolist()}
    assert {*np.flatnonzero(status == "finished").tolist()} <= members
    for device, begin, end in trace.meta.get("outages", ()):
        here = rows["device"] == device
        assert np.all((rows["finish"][here] <= begin) | (rows["start"][here] >= end))
    for device in range(len(trace.devices)):  # one slot each
        here = rows["device"] == device
        order = np.argsort(rows["start"][here], kind="stable")
        assert np.all(rows["finish"][here][order][:-1] <= rows["start"][here][order][1:])
    for job in np.flatnonzero(status == "finished").tolist():
        to = trace.jobs["destination"][job]
        ran = rows["device"][
            np.isin(rows["execution"], trace.members["execution"][trace.members["job"] == job])
        ]
        moved = (trace.transfers["job"] == job) & (trace.transfers["destination"] == to)
        whole = trace.transfers["bytes"] == 100.0
        spaces = np.array(trace.meta["space_of"])[ran]
        assert (spaces == to).any() or (moved & whole).any()
