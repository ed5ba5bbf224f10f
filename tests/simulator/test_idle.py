"""Idle time by cause: each cause alone, worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.analysis.idle import CAUSES, idle_seconds
from simulator.analysis.metrics import metrics
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.trace import Trace
from tests.examples import examples
from tests.simulator.scripted import Script, StaticPlan
from tests.simulator.strategies import Case
from tests.simulator.test_memory_properties import Evicting, give_host, simulation_of, tight_cases


def pair(slots: int = 1, capacity: float = np.inf) -> Cluster:
    return Cluster(
        "pair",
        [MemorySpace("ram"), MemorySpace("vram", capacity)],
        [Device("cpu", "ram"), Device("gpu", "vram", slots=slots)],
        [Link("bus", ("ram", "vram"), 1.0)],
    )


def causes(trace: Trace, device: int = 1) -> dict[str, float]:
    row = dict(zip(CAUSES, idle_seconds(trace)[device].tolist(), strict=True))
    return {cause: seconds for cause, seconds in row.items() if seconds}


def two_transfers(slots: int = 1) -> Trace:
    # a (1 s) and b (2 s) on cpu, 4 and 3 bytes to c and d on gpu, 1 s each; fifo
    graph = from_edges("two", 4, [(0, 2, 4.0), (1, 3, 3.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [2.0, 9.0], [9.0, 1.0], [9.0, 1.0]]))
    plan = StaticPlan([(0, 0.0), (0, 1.0), (1, 2.0), (1, 3.0)])
    return simulate(graph, pair(slots), costs, plan, contention="fifo")


def test_no_work_then_link_then_data() -> None:
    # a 0-1, its data 1-5, c 5-6; b 1-3, its data waits for the link until 5, 5-8, d 8-9
    trace = two_transfers()
    assert trace.makespan == 9
    assert causes(trace) == {"no_work": 1, "data": 4 + 2}  # from 6 on d's data is under way
    assert causes(trace, 0) == {"no_work": 6}


def test_a_slot_waits_for_the_next_task_of_its_device() -> None:
    # Two slots: until 5 both wait for c, as d stands behind it; then one, then both for d.
    assert causes(two_transfers(2)) == {"no_work": 2 + 1, "data": 8 + 1 + 4}


def test_link() -> None:
    # a 0-1 feeds c by 4 bytes, then b 1-3; gpu waits for d, whose bytes wait for c's on the link
    graph = from_edges("wait", 4, [(0, 3, 4.0), (1, 2, 3.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [1.0, 9.0], [9.0, 1.0], [9.0, 1.0]]))
    plan = StaticPlan([(0, 0.0), (0, 1.0), (1, 2.0), (1, 3.0)])
    trace = simulate(graph, pair(), costs, plan, contention="fifo")
    # a's 4 bytes 1-5; b 1-2, its 3 bytes wait until 5, 5-8; the gpu's first is b's consumer 8-9
    assert causes(trace) == {"no_work": 2, "link": 3, "data": 3}


def test_decision() -> None:
    graph = from_edges("late", 1, [])
    costs = CostTable.of(graph, np.array([[9.0, 1.0]]))

    def act(context, call):  # type: ignore[no-untyped-def]
        if call == 0:
            context.wake_at(3.0)
        elif call == 1:
            context.place(0, 1)

    assert causes(simulate(graph, pair(), costs, Script(act))) == {"decision": 3}


@pytest.mark.parametrize(("capacity", "cause"), [(np.inf, "overhead"), (100.0, "memory")])
def test_a_late_start_with_all_data_there(capacity: float, cause: str) -> None:
    graph = from_edges("late", 2, [(0, 1, 2.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [9.0, 1.0]]))
    plan = StaticPlan([(0, 0.0), (1, 1.0)])
    trace = simulate(graph, pair(capacity=capacity), costs, plan, memory="limited")
    # data 1-3; let the task start at 5 instead of 3
    row = int(trace.executions["operator"].argmax())
    trace.executions["start"][row], trace.executions["finish"][row] = 5.0, 6.0
    trace.jobs["finish"][0] = 6.0
    assert causes(trace) == {"no_work": 1, "data": 2, cause: 2}


def test_a_transfer_that_waits_although_its_link_is_free_waits_for_memory() -> None:
    graph = from_edges("room", 2, [(0, 1, 2.0)])
    costs = CostTable.of(graph, np.array([[1.0, 9.0], [9.0, 1.0]]))
    for capacity, cause in ((100.0, "memory"), (np.inf, "link")):
        plan = StaticPlan([(0, 0.0), (1, 1.0)])
        trace = simulate(graph, pair(capacity=capacity), costs, plan, memory="limited")
        trace.transfers["start"][0], trace.transfers["finish"][0] = 4.0, 6.0
        row = int(trace.executions["operator"].argmax())
        trace.executions["start"][row], trace.executions["finish"][row] = 6.0, 7.0
        trace.jobs["finish"][0] = 7.0
        assert causes(trace) == {"no_work": 1, cause: 3, "data": 2}


def test_time_down_has_no_other_cause() -> None:
    trace = two_transfers()
    down = dataclasses.replace(
        trace, meta={**trace.meta, "outages": [[1, 0.5, 2.0], [0, 8.0, 99.0]]}
    )
    assert causes(down) == {"no_work": 0.5, "data": 5, "down": 1.5}
    assert causes(down, 0) == {"no_work": 5, "down": 1}


def test_a_device_that_never_runs_has_no_work() -> None:
    graph = from_edges("one", 1, [])
    costs = CostTable.of(graph, np.array([[2.0, 9.0]]))
    trace = simulate(graph, pair(slots=3), costs, StaticPlan([(0, 0.0)]))
    assert causes(trace) == {"no_work": 6}
    assert causes(trace, 0) == {}


def test_memory_in_a_run_that_counts_it() -> None:
    # a 0-1 on gpu, its 8 B cross 1-9 to b on cpu; c's 8 B do not fit beside them into 10 B
    graph = from_edges("room", 4, [(0, 1, 8.0), (2, 3, 8.0)])
    times = np.array([[9.0, 1.0], [1.0, 9.0], [9.0, 1.0], [1.0, 9.0]])
    plan = StaticPlan([(1, 0.0), (0, 1.0), (1, 2.0), (0, 3.0)])
    costs = CostTable.of(graph, times)
    trace = simulate(graph, pair(capacity=10.0), costs, plan, memory="limited")
    assert trace.makespan == 19  # c 9-10, its output 10-18, d 18-19
    assert causes(trace) == {"memory": 8, "no_work": 9}
    assert causes(trace, 0) == {"no_work": 1, "data": 8 + 8}


@settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(tight_cases(), st.sampled_from(["resident", "on_demand"]), st.booleans())
def test_tight_memory_is_what_idle_time_and_peaks_show(
    case: Case, weights: str, evicting: bool
) -> None:
    if weights == "on_demand":
        give_host(case)
    inner = case.scheduler()
    if evicting and weights == "on_demand":
        inner = Evicting(inner)
    try:
        trace = simulation_of(case, "limited", weights, inner).run()
    except (InvalidInput, SchedulingError):
        return
    figures = metrics(trace)
    for device, found in zip(case.cluster.devices, figures["devices"].values(), strict=True):
        idle = trace.end * device.slots - found["busy_s"]
        assert sum(found["idle_s"].values()) == pytest.approx(idle, rel=1e-9, abs=1e-9)
        assert min(found["idle_s"].values()) >= -1e-12
    for space in figures["spaces"].values():
        assert space["reserved_bytes"] is not None
        assert space["peak_bytes"] <= space["reserved_bytes"] + 1e-9
