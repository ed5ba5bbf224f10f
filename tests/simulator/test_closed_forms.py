"""Communication patterns and pipelines whose times have closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from simulator.engine.run import simulate
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges
from tests.simulator.scripted import StaticPlan, WhenReady

CONTENTIONS = ("none", "fifo", "fair")


def devices_joined(
    pairs: list[tuple[int, int]],
    count: int,
    bandwidth: float,
    latency: float,
    half_duplex: bool = False,
) -> Cluster:
    """A device in each of ``count`` memory spaces, and these links."""
    return Cluster(
        "joined",
        [MemorySpace(f"m{i}") for i in range(count)],
        [Device(f"d{i}", f"m{i}") for i in range(count)],
        [Link(f"l{a}-{b}", (f"m{a}", f"m{b}"), bandwidth, latency, half_duplex) for a, b in pairs],
    )


def ring_all_reduce(devices: int, size: float) -> tuple[DataflowGraph, list[int]]:
    """Reduce-scatter, then all-gather, a chunk of ``size / devices`` bytes a step from each device to the
    next; and the device of every operator. Operator ``step * devices + d`` is what device ``d`` does
    with the chunk that step ``step`` brings it: the first steps add their own part to it.
    """
    steps = 2 * (devices - 1)
    edges = []
    for step in range(steps):
        for device in range(devices):
            after = (step + 1) * devices + (device + 1) % devices
            edges.append((step * devices + device, after, size / devices))
    return from_edges("ring", (steps + 1) * devices, edges), [*range(devices)] * (steps + 1)


@pytest.mark.parametrize("contention", CONTENTIONS)
@pytest.mark.parametrize("movement", ["push", "pull"])
@pytest.mark.parametrize(("devices", "latency"), [(2, 0.0), (4, 1e-5), (8, 0.0), (8, 1e-3)])
def test_ring_all_reduce(contention: str, movement: str, devices: int, latency: float) -> None:
    """2 (n - 1) / n S / B + 2 (n - 1) a; eight devices, 400 MB, 12.5 GB/s and a = 0: 56 ms (Patarasuk
    and Yuan, JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002)."""
    size, bandwidth = 400e6, 12.5e9
    graph, placed = ring_all_reduce(devices, size)
    pairs = [(i, (i + 1) % devices) for i in range(devices if devices > 2 else 1)]
    cluster = devices_joined(pairs, devices, bandwidth, latency)
    costs = CostTable.of(graph, np.zeros((len(graph), devices)))
    trace = simulate(
        graph, cluster, costs, WhenReady(placed), contention=contention, movement=movement
    )
    expected = 2 * (devices - 1) * (size / devices / bandwidth + latency)
    assert trace.makespan == pytest.approx(expected, rel=1e-9)
    if devices == 8 and latency == 0.0:
        assert trace.makespan == pytest.approx(0.056)
    # Every device sends all its chunks but one, twice.
    assert trace.transfers["bytes"].sum() == pytest.approx(2 * (devices - 1) * size)


def pipeline(batches: int, stages: int, size: float) -> tuple[DataflowGraph, list[int]]:
    """``batches`` micro-batches through ``stages``; operator ``stage * batches + batch``."""
    edges = [
        (stage * batches + batch, (stage + 1) * batches + batch, size)
        for stage, batch in itertools.product(range(stages - 1), range(batches))
    ]
    placed = [stage for stage in range(stages) for _ in range(batches)]
    return from_edges("pipeline", stages * batches, edges), placed


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("seconds", [(2.0, 2.0, 2.0), (1.0, 5.0, 2.0), (3.0, 1.0, 1.0, 4.0)])
@pytest.mark.parametrize("transfer", [0.5, 2.0, 7.0])
@pytest.mark.parametrize("batches", [1, 2, 6])
def test_pipeline_of_equal_batches(
    static: bool, seconds: tuple[float, ...], transfer: float, batches: int
) -> None:
    """Fill and drain: the sum of all stages and transfers, and (m - 1) times the slowest of them (a flow
    shop of identical jobs whose machines are the devices and, under ``fifo``, the links)."""
    stages = len(seconds)
    graph, placed = pipeline(batches, stages, transfer)
    cluster = devices_joined([*itertools.pairwise(range(stages))], stages, 1.0, 0.0)
    costs = CostTable.of(graph, np.repeat(seconds, batches)[:, None] * np.ones(stages))
    if static:
        plan = [(device, float(rank)) for rank, device in enumerate(placed)]
        scheduler: StaticPlan | WhenReady = StaticPlan(plan)
    else:
        scheduler = WhenReady(placed)
    trace = simulate(graph, cluster, costs, scheduler, contention="fifo")
    once = sum(seconds) + (stages - 1) * transfer
    assert trace.makespan == pytest.approx(once + (batches - 1) * max(*seconds, transfer))


@pytest.mark.parametrize(
    ("upload", "compute", "count"), [(1.0, 1.0, 2), (3.0, 1.0, 5), (1.0, 4.0, 7)]
)
def test_identical_uploads_one_after_the_other_or_sharing(
    upload: float, compute: float, count: int
) -> None:
    """n stages that bring data for ``a`` and compute for ``b``: in turn n max(a, b) + min(a, b)
    (Johnson 1954); all at once, on a link and a device that they share, n (a + b)."""
    edges = [(i, count + i, upload) for i in range(count)]
    graph = from_edges("stages", 2 * count, edges)
    costs = CostTable.of(graph, np.repeat([0.0, compute], count)[:, None] * np.ones(2))
    placed = [0] * count + [1] * count
    pair = devices_joined([(0, 1)], 2, 1.0, 0.0)
    in_turn = simulate(graph, pair, costs, WhenReady(placed), contention="fifo")
    assert in_turn.makespan == pytest.approx(count * max(upload, compute) + min(upload, compute))
    shared = Cluster(
        "shared",
        pair.spaces,
        [pair.devices[0], Device("d1", "m1", slots=count, sharing="processor")],
        pair.links,
    )
    at_once = simulate(graph, shared, costs, WhenReady(placed), contention="fair")
    assert at_once.makespan == pytest.approx(count * (upload + compute))
