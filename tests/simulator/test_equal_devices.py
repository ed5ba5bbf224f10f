"""Choosing among classes of equal devices is choosing among all devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.context import SchedulingContext
from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.noise import LogNormalNoise
from simulator.model.operator import Tensor
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import _equal_devices as equal_devices
from simulator.schedulers import create
from simulator.schedulers._equal_devices import EqualDevices
from tests.examples import examples
from tests.simulator.strategies import Case, graphs, seconds_of
from tests.simulator.test_properties import quick
from tests.simulator.test_treatments import assert_same

MODULES = (
    "simulator.schedulers._dynamic_list",
    "simulator.schedulers.fcfs",
    "simulator.schedulers.mct",
)
CHOOSERS: dict[str, tuple[dict[str, Any], ...]] = {
    "fcfs": ({}, {"by_priority": True}),
    "donf": (
        {},
        {"pricing": "per_edge"},
        {"pricing": "contention_aware"},
        {"pricing": "per_edge_aware"},
    ),
    "dynamic_heft": ({},),
    "mct": ({}, {"pricing": "per_edge"}),
}


@st.composite
def alike_clusters(draw: st.DrawFn) -> Cluster:
    """Up to nine devices around a hub, fully connected or in two groups; some share a memory."""
    count = draw(st.integers(2, 9))
    widths = draw(st.sampled_from([[1.0], [1.0, 3.0]]))
    latencies = draw(st.sampled_from([[0.0], [0.25], [0.0, 0.25]]))
    homes = [draw(st.sampled_from([i, i, i, 0])) for i in range(count)]
    form = draw(st.sampled_from(["star", "clique", "two hubs"]))
    names = [f"m{i}" for i in range(count)]

    def link(number: int, a: str, b: str) -> Link:
        width, latency = widths[number % len(widths)], latencies[number % len(latencies)]
        return Link(f"{a}-{b}", (a, b), width, latency)

    links, hubs = [], []
    if form == "clique":
        links = [link(i + j, names[i], names[j]) for i in range(count) for j in range(i + 1, count)]
    else:
        hubs = ["h0"] if form == "star" else ["h0", "h1"]
        links = [link(i, hubs[i % len(hubs)], name) for i, name in enumerate(names)]
        links += [link(0, *hubs)] if len(hubs) > 1 else []
    return Cluster(
        form,
        [MemorySpace(name) for name in (*names, *hubs)],
        [
            Device(f"d{i}", names[home], slots=draw(st.sampled_from([1, 1, 1, 2])))
            for i, home in enumerate(homes)
        ],
        links,
    )


@st.composite
def alike(draw: st.DrawFn) -> Case:
    """A run on devices of one to three kinds."""
    cluster = draw(alike_clusters())
    devices = len(cluster.devices)
    distinct = draw(st.lists(graphs(operators=14), min_size=1, max_size=2))
    kinds = draw(st.lists(st.integers(0, 2), min_size=devices, max_size=devices))
    rows = {graph: draw(seconds_of(graph, 3))[:, kinds] for graph in distinct}
    for seconds in rows.values():  # a kind that is not there may have been the only one able
        seconds[~np.isfinite(seconds).any(axis=1)] = 1.0
    costs = CostTable({graph: GraphCosts(seconds) for graph, seconds in rows.items()})
    spaces = [None, *(space.name for space in cluster.spaces)]
    jobs = [
        Job(
            draw(st.sampled_from(distinct)),
            arrival,
            priority=draw(st.integers(0, 1)),
            origin=draw(st.sampled_from(spaces)),
            destination=draw(st.sampled_from(spaces)),
        )
        for arrival in sorted(
            draw(st.lists(st.sampled_from([0.0, 0.5, 2.5]), min_size=1, max_size=3))
        )
    ]
    name = draw(st.sampled_from(list(CHOOSERS)))
    options = draw(st.sampled_from(CHOOSERS[name]))
    actual = draw(st.sampled_from([None, LogNormalNoise(0.5)]))
    movement = draw(st.sampled_from(["push", "pull"]))
    seed = draw(st.integers(0, 9))
    return Case(
        Workload(jobs),
        cluster,
        costs,
        actual,
        lambda: create(name, **options),
        movement,
        "none",
        seed,
        name,
    )


class Counted(EqualDevices):
    """Counts how often it was asked."""

    asked = 0

    def best(self, task: int) -> int:
        Counted.asked += 1
        return super().best(task)

    @classmethod
    def of(
        cls, context: SchedulingContext, pricing: str, idle_only: bool = False
    ) -> EqualDevices | None:
        return cls(context, pricing, idle_only) if context.forecasts_hold else None


@settings(quick, max_examples=examples(400))
@given(alike())
def test_the_same_trace_as_with_a_look_at_every_device(case: Case) -> None:
    expected = case.run()
    asked = Counted.asked
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(f"{module}.EqualDevices", Counted)
        found = case.run()
    assert_same(found, expected)
    tasks = len(expected.tasks["task"])
    assert Counted.asked - asked >= tasks


def run(name: str, cluster: Cluster, **settings: Any) -> Trace:
    width = len(cluster.devices)
    graph = from_edges("wide", 3 * width, [(i, width + i, 1.0) for i in range(2 * width)])
    seconds = np.array([1.0, 2.0])[np.arange(width) % 2] * (1 + np.arange(3 * width) % 5)[:, None]
    return simulate(graph, cluster, CostTable.of(graph, seconds), create(name), **settings)


@pytest.mark.parametrize("name", list(CHOOSERS))
def test_large_clusters_are_not_looked_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fully_connected("wide", equal_devices.LEAST_DEVICES)
    found = run(name, cluster)
    for module in MODULES:
        monkeypatch.setattr(f"{module}.best_device", None)  # nobody calls it
    assert_same(run(name, cluster), found)
    monkeypatch.setattr(equal_devices, "LEAST_DEVICES", math.inf)
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        run(name, cluster)


def test_data_of_a_twin_is_not_that_of_the_memory_itself() -> None:
    """m0, where d0 and d1 are, and m2 are twins: t0's data costs d0 nothing, t1's from m2 does."""
    cluster = Cluster(
        "twins",
        [MemorySpace(f"m{i}") for i in range(3)],
        [Device("d0", "m0"), Device("d1", "m0"), Device("d2", "m1"), Device("d3", "m2")],
        [Link(f"l{a}{b}", (f"m{a}", f"m{b}"), 1.0) for a, b in ((0, 1), (0, 2), (1, 2))],
    )
    graph = from_edges("moved", 1, [])
    graph = DataflowGraph(
        "reads", graph.operators, [Tensor("x", "input", 12.0), Tensor("y", "activation", 1.0)],
        [[0]], [[1]],
    )  # fmt: skip
    costs = CostTable.of(graph, np.array([[0.001, 0.001, 1.0, 1.0]]))
    jobs = Workload([Job(graph, 0.0, origin="m0"), Job(graph, 0.5, origin="m2")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulator.schedulers._dynamic_list.EqualDevices", Counted)
        trace = simulate(jobs, cluster, costs, create("donf"))
    assert trace.tasks["device"].tolist() == [0, 3]


def test_every_device_is_looked_at_where_few_are_alike_or_links_queue() -> None:
    few, many = fully_connected("few", 8), fully_connected("many", equal_devices.LEAST_DEVICES)
    unlike = Cluster(
        "unlike",
        many.spaces,
        [Device(d.name, d.space, profile=f"p{i}") for i, d in enumerate(many.devices)],
        many.links,
    )
    seen = []

    class Spy(type(create("donf"))):  # type: ignore[misc]
        def begin(self, context: SchedulingContext) -> None:
            super().begin(context)
            seen.append(self._equal is not None)

    graph = from_edges("one", 1, [])
    for cluster, contention in ((many, "none"), (many, "fifo"), (few, "none"), (unlike, "none")):
        costs = CostTable.of(graph, np.ones((1, len(cluster.devices))))
        simulate(graph, cluster, costs, Spy(), contention=contention)
    assert seen == [True, False, False, False]
