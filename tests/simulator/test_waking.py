"""Devices that are slower after a rest: by hand, and every execution recounted from the trace."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.faults import Fault, Faults
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples

ONE = from_edges("one", 1, [])
COST, AFTER = 0.5, 2.0


def cluster(slots: int = 1, **more: float) -> Cluster:
    device = Device("d", "m", None, slots, wake_cost=COST, wake_after=AFTER, **more)
    return Cluster("cluster", [MemorySpace("m")], [device])


def spans(arrivals: list[float], where: Cluster, seconds: float = 1.0, **more: object) -> Trace:
    jobs = Workload([Job(ONE, arrival) for arrival in arrivals])
    costs = CostTable.of(ONE, np.full((1, 1), seconds))
    return simulate(jobs, where, costs, create("fcfs"), **more)  # type: ignore[arg-type]


def durations(trace: Trace) -> list[float]:
    rows = trace.executions
    return (rows["finish"] - rows["start"])[np.argsort(rows["task"])].tolist()


def cost(idle: float) -> float:
    return COST * (1 - math.exp(-idle / AFTER))


def test_the_longer_the_rest_the_more_the_first_execution_pays() -> None:
    found = durations(spans([0.0, 0.5, 4.0, 1000.0], cluster()))
    # No rest before the first nor the second; the third arrives 2 s after the second's end.
    assert found == pytest.approx([1.0, 1.0, 1.0 + cost(2.0), 1.5])


def test_a_slot_that_was_never_used_rests_from_the_beginning() -> None:
    assert durations(spans([3.0], cluster())) == pytest.approx([1.0 + cost(3.0)])
    assert durations(spans([3.0], cluster(launch_overhead=0.25))) == pytest.approx([1.25 + cost(3)])


def test_of_several_slots_the_one_that_was_left_last_is_taken() -> None:
    # One is taken from 0 to 1, the other from .5 to 1.5 and what waking it cost; at 2 the other comes first.
    found = durations(spans([0.0, 0.5, 2.0, 2.0], cluster(slots=2)))
    rests = [0.0, 0.5, 0.5 - cost(0.5), 1.0]
    assert found == pytest.approx([1.0 + cost(rest) for rest in rests])


def test_a_failure_is_a_rest() -> None:
    faults = Faults([Fault("device_failure", "d", 0.5, 3.0, memory_lost=False)])
    trace = spans([0.0], cluster(), faults=faults)
    assert trace.makespan == pytest.approx(3.0 + 1.0 + cost(2.5))


def test_what_it_costs_is_slowed_like_the_rest() -> None:
    where = replace(cluster(slots=2), spaces=[MemorySpace("m", corun_slowdown=0.5)])
    found = durations(spans([3.0, 3.0], where))
    assert found == pytest.approx([1.5 * (1.0 + cost(3.0))] * 2)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(0.0, 5.0), min_size=1, max_size=12), st.floats(0.0, 2.0))
def test_every_execution_pays_for_the_rest_before_it(arrivals: list[float], seconds: float) -> None:
    trace = spans(sorted(arrivals), cluster(), seconds)
    rows, idle_since = trace.executions, 0.0
    for start, finish in zip(rows["start"], rows["finish"], strict=True):
        assert finish - start == pytest.approx(seconds + cost(start - idle_since), abs=1e-9)
        idle_since = finish


@pytest.mark.parametrize("seed", range(40))
def test_with_all_else_that_a_device_may_be(seed: int) -> None:
    """Slots, launchers, submission ahead, shared rates, failures: all jobs finish, and no slot wakes that is busy."""
    rng = np.random.default_rng(seed)
    devices = [
        Device(
            f"d{number}",
            "m",
            slots=int(rng.integers(1, 4)),
            launch_overhead=0.1,
            issue_depth=int(rng.choice([1, 3])),
            completion_latency=float(rng.choice([0.0, 0.3])),
            sharing=str(rng.choice(["slots", "processor"])),
            launcher="host" if rng.random() < 0.5 else None,
            launches=int(rng.choice([1, 3])),
            wake_cost=COST,
            wake_after=AFTER,
        )
        for number in range(2)
    ]
    where = Cluster("c", [MemorySpace("m", corun_slowdown=float(rng.choice([0.0, 0.3])))], devices)
    graph = from_edges("g", 6, [(0, 2, 1.0), (1, 3, 1.0), (2, 4, 1.0)])
    jobs = Workload([Job(graph, arrival) for arrival in sorted(rng.uniform(0, 12, 3).tolist())])
    costs = CostTable.of(graph, rng.uniform(0.1, 2.0, (6, 2)))
    failure = Faults([Fault("device_failure", "d0", 1.0, 4.0, memory_lost=False)])
    for faults in (None, failure):
        trace = simulate(jobs, where, costs, create("work_stealing"), faults=faults)
        assert (trace.jobs["status"] == "finished").all()
        rows = trace.executions
        said = costs[graph].seconds[rows["operator"], rows["device"]]
        took = (rows["finish"] - rows["start"])[rows["status"] == "finished"]
        assert (took >= said[rows["status"] == "finished"] + 0.1 - 1e-9).all()


def test_the_fast_ways_leave_it_to_the_engine() -> None:
    """Without a cost nothing changes to the last bit; with one the compiled way does not apply."""
    free = Cluster("cluster", [MemorySpace("m")], [Device("d", "m", wake_after=AFTER)])
    plain = Cluster("cluster", [MemorySpace("m")], [Device("d", "m")])
    arrivals = [0.0, 3.0, 3.1, 9.0]
    assert durations(spans(arrivals, free)) == durations(spans(arrivals, plain))
    assert durations(spans(arrivals, cluster())) != durations(spans(arrivals, plain))


def test_refused() -> None:
    with pytest.raises(InvalidInput, match="'d': wake_cost must be >= 0 s"):
        Cluster("c", [MemorySpace("m")], [Device("d", "m", wake_cost=-1.0, wake_after=1.0)])
    with pytest.raises(InvalidInput, match="'d' has a wake_cost; give wake_after"):
        Cluster("c", [MemorySpace("m")], [Device("d", "m", wake_cost=1.0)])
