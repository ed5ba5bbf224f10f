"""The compiled way where it differs from the direct one: room for transfers, and when it is taken."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from simulator import engine
from simulator.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.context import SchedulingContext
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import InvalidInput
from simulator.graph import from_edges
from simulator.schedulers import create
from tests.simulator.scripted import Script
from tests.simulator.test_memory import graph_of
from tests.simulator.test_ways import assert_same


def wander(context: SchedulingContext, call: int) -> None:
    """Tasks 2, 3 and 4 occupy devices 1, 2 and 3; task 1, which reads what 0 wrote, is queued behind
    one of them after the other."""
    for _ in context.arrived:
        for task, device in ((0, 0), (2, 1), (3, 2), (4, 3)):
            context.place(task, device)
    if context.is_ready(1) and context.now <= 3.0:
        if context.device_of(1) >= 0:
            context.withdraw(1)
        context.place(1, int(context.now))
        context.wake_at(context.now + 1.0)


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
def test_more_copies_than_tasks_read_find_room(contention: str) -> None:
    graph = from_edges("wanderer", 5, [(0, 1, 2.0)])
    costs = CostTable.of(graph, np.array([[1.0], [1.0], [9.0], [9.0], [9.0]]) * np.ones(4))
    cluster = fully_connected("four", 4, 1.0)
    compiled, direct = (
        simulate(graph, cluster, costs, Script(wander), contention=contention, way=way)
        for way in ("compiled", "general" if contention == "fair" else "direct")
    )
    assert compiled.transfers["start"].tolist() == [1.0, 2.0, 3.0]
    assert compiled.transfers["finish"].tolist() == [3.0, 4.0, 5.0]
    assert_same(compiled, direct)


def test_copies_that_arrive_at_time_zero() -> None:
    graph = graph_of({"a": ([], {"x": 0}), "b": (["x"], {}), "c": (["x"], {})})
    costs = CostTable.of(graph, np.array([[0.0, 9.0], [9.0, 0.0], [9.0, 0.0]]))
    cluster = fully_connected("two", 2, 1.0)
    compiled, direct = (
        simulate(graph, cluster, costs, create("donf"), contention="fifo", way=way)
        for way in ("compiled", "direct")
    )
    assert len(compiled.transfers["start"]) == 1
    assert compiled.makespan == 0.0
    assert_same(compiled, direct)


def test_routes_of_several_links_are_left_to_the_direct_way() -> None:
    star = Cluster(
        "star",
        [MemorySpace("hub"), MemorySpace("a"), MemorySpace("b")],
        [Device("x", "a"), Device("y", "b")],
        [Link("la", ("hub", "a"), 1.0), Link("lb", ("hub", "b"), 1.0)],
    )
    graph = from_edges("two", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    with pytest.raises(InvalidInput, match="in the way 'compiled'; possible: direct, general"):
        simulate(graph, star, costs, create("fcfs"), contention="fifo", way="compiled")
    assert simulate(graph, star, costs, create("fcfs"), way="compiled").makespan == 2.0


def test_shared_links_of_too_many_copies_are_left_to_the_general_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = from_edges("two", 2, [(0, 1, 1.0)])
    costs = CostTable.of(graph, np.ones((2, 2)))
    cluster = fully_connected("two", 2, 1.0)
    simulate(graph, cluster, costs, create("fcfs"), contention="fair", way="compiled")
    monkeypatch.setattr(engine, "MOST_SHARED_COPIES", 1)
    with pytest.raises(InvalidInput, match="in the way 'compiled'; possible: general"):
        simulate(graph, cluster, costs, create("fcfs"), contention="fair", way="compiled")


@pytest.mark.parametrize(
    ("scheduler", "contention", "kernels", "most"),
    [
        ("fcfs", "fifo", "kernels", 999),
        ("fcfs", "fair", "flow_kernels", 199),
        ("heft", "none", "plan_kernels", 4999),
    ],
)
def test_numba_is_loaded_by_a_run_for_which_it_pays(
    scheduler: str, contention: str, kernels: str, most: int
) -> None:
    """In a process of its own: small runs load nothing, however many they are; a large one does, earlier where
    links are shared, later of a fixed plan.
    """
    program = f"""
import sys, numpy as np
from simulator import engine
from simulator.cluster import fully_connected
from simulator.costs import CostTable
from simulator.graph import from_edges
from simulator.schedulers import create
engine.PAYS_TO_COMPILE = 1000
for tasks in ({most}, {most}, {most} + 1):
    graph = from_edges("chain", tasks, [(i, i + 1, 1.0) for i in range(tasks - 1)])
    costs = CostTable.of(graph, np.ones((tasks, 2)))
    cluster = fully_connected("two", 2, 1.0)
    engine.simulate(graph, cluster, costs, create("{scheduler}"), contention="{contention}")
    assert ("numba" in sys.modules) == (tasks > {most}), tasks
    assert ("simulator.{kernels}" in sys.modules) == (tasks > {most}), tasks
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_queue_in_any_order_of_ranks() -> None:
    """Tasks that are placed in random order, some of them taken back, run in the order of their ranks."""
    rng = np.random.default_rng(7)
    tasks = 200
    graph = from_edges("alone", tasks, [])
    costs = CostTable.of(graph, np.ones((tasks, 1)))
    rank = rng.integers(0, 50, tasks).astype(float)
    order = rng.permutation(tasks).tolist()
    again = order[: tasks // 2]

    def act(context: SchedulingContext, call: int) -> None:
        if call:
            return
        for task in order:
            context.place(task, 0, rank[task])
        for task in again:
            context.withdraw(task)
        for task in again:
            context.place(task, 0, rank[task])

    trace = simulate(graph, fully_connected("one", 1), costs, Script(act), way="compiled")
    placed = {task: number for number, task in enumerate(order + again)}  # the last time counts
    expected = sorted(range(tasks), key=lambda task: (rank[task], placed[task]))
    assert trace.executions["task"].tolist() == expected
