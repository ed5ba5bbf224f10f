"""Prices of a task's data against the formulas, from what a context says in public."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create
from simulator.schedulers._pricing import PRICINGS, data_ready
from tests.examples import examples
from tests.simulator.scripted import Recorded, Script
from tests.simulator.strategies import Case, cases
from tests.simulator.test_properties import quick


def by_formula(context: SchedulingContext, task: int, device: int, pricing: str) -> float:
    """EST of DONF and of DONFL: the latest of max(finish, now) + wait + time on the way."""
    space = context.cluster.space_of[device]
    latest = context.now
    parcels: dict[object, tuple[int, float]] = {}
    for number, item in enumerate(context.inputs(task)):
        if item.space in (EVERYWHERE, space):
            continue
        copy = context.copy_time(item.tensor, space)
        if copy is not None:
            latest = max(latest, copy)
            continue
        key = (item.space, number if pricing.startswith("per_edge") else None)
        parcels[key] = (item.space, parcels.get(key, (0, 0.0))[1] + item.bytes)
    for home, size in parcels.values():
        begin = context.now
        if pricing.endswith("aware"):
            begin = context.link_free(home, space)
        latest = max(latest, begin + context.transfer_seconds(size, home, space))
    return latest


@settings(quick, max_examples=examples(200))
@given(cases(schedulers=("donf", "adon", "mct", "min_min", "sufferage-remap")))
def test_formulas(case: Case) -> None:
    def check(context: SchedulingContext) -> None:
        devices = range(len(context.cluster.devices))
        for task in context.ready:
            for pricing in PRICINGS:
                expected = [by_formula(context, task, device, pricing) for device in devices]
                assert data_ready(context, task, devices, pricing) == pytest.approx(
                    expected, rel=1e-12
                )

    case.run(Recorded(case.scheduler(), check))


class Donfl(Scheduler):
    """Weighted out-degree and the formula, written out."""

    name: ClassVar[str] = "donfl"

    def __init__(self, pricing: str) -> None:
        self.pricing = pricing

    def decide(self, context: SchedulingContext) -> None:
        def degree(task: int) -> float:
            graph = context.jobs[context.job_of(task)].graph
            successors = graph.successors[context.operator_of(task)]
            return sum(1 / len(graph.predecessors[s]) for s in successors)

        for task in sorted(context.ready, key=lambda t: (-float(f"{degree(t):.9e}"), t)):
            seconds = context.seconds(task)
            finishes = [
                (
                    max(by_formula(context, task, d, self.pricing), context.available(d))
                    + seconds[d],
                    d,
                )
                for d in context.able(task)
            ]
            context.place(task, min(finishes)[1])


@settings(quick, max_examples=examples(100))
@given(cases(schedulers=("donf",)), st.sampled_from(["per_edge", "per_edge_aware"]))
def test_donf_light_written_out(case: Case, pricing: str) -> None:
    found = case.run(create("donf_light", pricing=pricing)).executions
    for column, values in case.run(Donfl(pricing)).executions.items():
        assert np.array_equal(found[column], values)


@pytest.mark.parametrize(
    ("pricing", "device"),
    [("per_edge", "B"), ("per_edge_aware", "B"), ("per_link", "A"), ("contention_aware", "A")],
)
def test_two_tensors_on_one_idle_link(pricing: str, device: str) -> None:
    """3 B each: 3 s priced one by one, 6 s together; A needs 4 s more."""
    graph = from_edges("two", 3, [(0, 2, 3.0), (1, 2, 3.0)])
    never = float("inf")
    costs = CostTable.of(graph, np.array([[1, never, never], [1, never, never], [5, 1, never]]))
    trace = simulate(graph, LINKED, costs, create("mct", pricing=pricing), contention="fifo")
    assert trace.devices[trace.tasks["device"][2]] == device


@pytest.mark.parametrize(
    ("pricing", "device"),
    [("per_edge", "C"), ("per_edge_aware", "A"), ("per_link", "C"), ("contention_aware", "A")],
)
def test_a_busy_link(pricing: str, device: str) -> None:
    """t1's 6 B are on the link when t2 (3 B) is placed: aware of them it stays on A."""
    graph = from_edges("busy", 3, [(0, 1, 6.0), (0, 2, 3.0)])
    never = float("inf")
    costs = CostTable.of(graph, np.array([[1, never, never], [never, 1, never], [6, never, 1]]))
    trace = simulate(graph, LINKED, costs, create("mct", pricing=pricing), contention="fifo")
    assert trace.devices[trace.tasks["device"][2]] == device


LINKED = Cluster(
    "linked",
    [MemorySpace("a"), MemorySpace("b")],
    [Device("A", "a"), Device("B", "b"), Device("C", "b")],
    [Link("ab", ("a", "b"), 1.0)],
)


@pytest.mark.parametrize("pricing", ["contention_aware", "per_edge_aware"])
@pytest.mark.parametrize("busier", [0, 1])
def test_the_busiest_link_of_a_route_decides_when_data_may_go(pricing: str, busier: int) -> None:
    """From a over the hub to b, fifo. Up from a 3 or 8 bytes are under way to c, down to b 8 or 3 from c: what
    is asked for now goes when the later of the two is over.
    """
    cluster = Cluster(
        "hub",
        [MemorySpace(name) for name in "abch"],
        [Device(name.upper(), name) for name in "abc"],
        [Link(f"{name}h", (name, "h"), 1.0) for name in "abc"],
    )
    up, down = (8.0, 3.0) if busier == 0 else (3.0, 8.0)
    # x and y write on A and C; their readers r and s are placed on C and B; z writes t on A for q.
    graph = from_edges(
        "busy", 6, [(0, 1, up), (2, 3, down), (4, 5, 2.0)], names=["x", "r", "y", "s", "z", "q"]
    )
    found: list[float] = []

    def act(context: SchedulingContext, call: int) -> None:
        for task in context.ready:
            if task == 5:
                continue
            context.place(task, {0: 0, 1: 2, 2: 2, 3: 1, 4: 0}[task])
        if context.is_ready(5) and context.device_of(5) < 0:
            found.extend(data_ready(context, 5, [1], pricing))
            context.place(5, 1)

    costs = CostTable.of(
        graph, np.array([[1.0], [1.0], [1.0], [1.0], [0.5], [1.0]]) * np.ones((6, 3))
    )
    simulate(graph, cluster, costs, Script(act), contention="fifo")
    assert found == [1.0 + 8.0 + 2.0]
