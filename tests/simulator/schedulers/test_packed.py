"""A scheduler whose transfers go packed, with exact numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.simulator.test_memory import cluster_of, graph_of, moves, spans
from tests.simulator.test_memory import run as run_within

CLUSTER = Cluster(
    "pair",
    [MemorySpace("a"), MemorySpace("b")],
    [Device("cpu", "a"), Device("gpu", "b")],
    [Link("bus", ("a", "b"), 2.0, 1.0)],
)
GRAPH = graph_of(
    {"w": ([], {"x": 4, "y": 2}), "r": (["x", "y"], {"u": 2, "v": 2})}, results=["u", "v"]
)
ON_GPU = np.array([[1.0, math.inf], [math.inf, 1.0]])
"""w on the cpu, r on the gpu."""


def serve(
    scheduler: Scheduler, graph: DataflowGraph = GRAPH, times: np.ndarray = ON_GPU, **options: str
) -> Trace:
    workload = Workload([Job(graph, origin="a", destination="a")])
    options = {"contention": "fifo", **options}
    return simulate(workload, CLUSTER, CostTable.of(graph, times), scheduler, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("inner", ["fcfs", "donf", "heft"])
@pytest.mark.parametrize("movement", ["push", "pull"])
def test_a_latency_for_each_message(inner: str, movement: str) -> None:
    """heft places r at 0: then finishes send off x and y (push) or ask for them (pull)."""
    plain = serve(create(inner), movement=movement)
    # w 0-1, x 1-4, y 4-6, r 6-7, u 7-9, v 9-11
    assert [row[4:] for row in moves(plain)] == [(1, 4), (4, 6), (7, 9), (9, 11)]
    trace = serve(create("packed", scheduler=inner), movement=movement)
    # w 0-1, x and y 1-5, r 5-6, u and v 6-9
    assert [row[4:] for row in moves(trace)] == [(1, 5), (1, 5), (6, 9), (6, 9)]
    assert trace.makespan == plain.makespan - 2


def test_one_tensor_alone_and_other_ways_stay_as_they_are() -> None:
    # x goes to two spaces, y to one of them: x and y together there, x alone elsewhere.
    spaces = [MemorySpace(name) for name in "abc"]
    devices = [Device(f"d{name}", name) for name in "abc"]
    links = [Link("ab", ("a", "b"), 2.0, 1.0), Link("ac", ("a", "c"), 2.0, 1.0)]
    cluster = Cluster("star", spaces, devices, links)
    graph = graph_of(
        {"p": (["x", "y"], {}), "q": (["x"], {})}, {"x": ("input", 4), "y": ("input", 2)}
    )
    inf = math.inf
    costs = CostTable.of(graph, np.array([[inf, 1.0, inf], [inf, inf, 1.0]]))
    workload = Workload([Job(graph, origin="a")])
    trace = simulate(workload, cluster, costs, create("packed"), contention="fifo")
    assert [(row[0], row[2], row[5]) for row in moves(trace)] == [(0, 1, 4), (1, 1, 4), (0, 2, 3)]
    # More latency without anything to save it on: packing only delays.
    slower = simulate(workload, cluster, costs, create("packed"), contention="none")
    plain = simulate(workload, cluster, costs, create("donf"), contention="none")
    assert (slower.makespan, plain.makespan) == (5.0, 4.0)


def test_weights_cross_alone() -> None:
    graph = graph_of(
        {"a": (["u", "v", "x", "y"], {})},
        {"u": ("weight", 1), "v": ("weight", 1), "x": ("input", 1), "y": ("input", 1)},
    )
    cluster = cluster_of("n", {"h": math.inf}, host="h")
    workload = Workload([Job(graph, origin="h")])
    trace = run_within(
        workload,
        cluster,
        {"a": 1},
        create("packed", scheduler="lru_eviction", options={"scheduler": "fcfs"}),
        weights="on_demand",
        contention="fifo",
    )
    # 1 byte/s, no latency: u, v, then x and y together.
    assert [row[4:] for row in moves(trace)] == [(0, 1), (1, 2), (2, 4), (2, 4)]
    assert spans(trace) == {"a": (4, 5)}


def test_options_and_needs() -> None:
    with pytest.raises(InvalidInput, match="No scheduler 'nothing'"):
        create("packed", scheduler="nothing")
    scheduler = create("packed", scheduler="donf", options={"pricing": "per_edge"})
    assert scheduler.inner.pricing == "per_edge"  # type: ignore[attr-defined]
    both = create("packed", scheduler="lru_eviction")
    assert both.needs == {"pack", "evict"}
    with pytest.raises(SchedulingError, match=r"'packed' needs evict, .*; load weights on demand"):
        serve(both)


def test_it_explains_what_it_packs() -> None:
    lines: list[str] = []

    class Told(type(create("packed"))):  # type: ignore[misc]
        def begin(self, context: SchedulingContext) -> None:
            context.explain = lines.append
            super().begin(context)

    serve(Told(scheduler="fcfs"))
    assert "2 tensors, 6 bytes, a -> b as one message" in lines
    assert "2 tensors, 4 bytes, b -> a as one message" in lines
