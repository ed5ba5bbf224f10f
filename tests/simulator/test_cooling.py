"""Launches that take longer after long operators: by hand, and every execution recounted from the trace."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.analysis.bounds import lower_bound
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples

CURVE = CoolingCurve((1.0, 100.0), (0.5, 2.5))


def chain_on(seconds: list[float], **more: object) -> np.ndarray:
    """What each of a chain's operators took on one device with a launch overhead of 1."""
    graph = from_edges("chain", len(seconds), [(i, i + 1, 0.0) for i in range(len(seconds) - 1)])
    device = Device("d", "m", launch_overhead=1.0, launch_cooling=CURVE, **more)  # type: ignore[arg-type]
    where = Cluster("c", [MemorySpace("m")], [device])
    rows = simulate(
        graph, where, CostTable.of(graph, np.array([seconds]).T), create("fcfs")
    ).executions
    found: np.ndarray = (rows["finish"] - rows["start"])[np.argsort(rows["operator"])]
    return found


def test_between_the_points_and_beyond() -> None:
    assert [CURVE.factor(s) for s in (0.0, 0.1, 1.0, 10.0, 100.0, 1e9, math.inf)] == pytest.approx(
        [0.5, 0.5, 0.5, 1.5, 2.5, 2.5, 2.5]
    )


@pytest.mark.parametrize("more", [{}, {"launcher": "host"}])
def test_behind_a_long_operator_a_launch_takes_longer(more: dict[str, object]) -> None:
    """The first as after the longest time, the second behind 10 s, the third behind 1."""
    assert chain_on([10.0, 1.0, 0.5], **more) == pytest.approx([12.5, 2.5, 1.0])


def test_a_rest_counts_like_an_operator() -> None:
    graph = from_edges("one", 1, [])
    device = Device("d", "m", launch_overhead=1.0, launch_cooling=CURVE)
    jobs = Workload([Job(graph), Job(graph, arrival=12.5)])
    costs = CostTable.of(graph, np.full((1, 1), 5.0))
    rows = simulate(
        jobs, Cluster("c", [MemorySpace("m")], [device]), costs, create("fcfs")
    ).executions
    # Launched until 2.5, executed until 7.5, idle until 12.5.
    assert rows["finish"].tolist() == pytest.approx([7.5, 12.5 + 1.5 + 5.0])


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=12))
def test_every_launch_recounted(seconds: list[float]) -> None:
    before = [math.inf, *seconds[:-1]]
    expected = [own + CURVE.factor(gap) for own, gap in zip(seconds, before, strict=True)]
    assert chain_on(seconds) == pytest.approx(expected)


def test_lower_bounds_hold() -> None:
    """Of operators so short that all launches but the first are the shortest."""
    graph = from_edges("chain", 5, [(i, i + 1, 0.0) for i in range(4)])
    device = Device("d", "m", launch_overhead=1.0, launch_cooling=CURVE)
    where, costs = Cluster("c", [MemorySpace("m")], [device]), np.full((5, 1), 0.5)
    assert lower_bound(graph, costs, where).bound_s == pytest.approx(5.0)
    assert simulate(
        graph, where, CostTable.of(graph, costs), create("fcfs")
    ).makespan == pytest.approx(7.0)


def test_the_least_launch() -> None:
    assert Device("d", "m", launch_overhead=2.0).least_launch == 2.0
    assert Device("d", "m", launch_overhead=2.0, launch_cooling=CURVE).least_launch == 1.0


@pytest.mark.parametrize(
    ("after", "factors"),
    [
        ((), ()),
        ((1.0,), ()),
        ((2.0, 1.0), (1.0, 2.0)),
        ((1.0, 2.0), (2.0, 1.0)),
        ((0.0,), (1.0,)),
        ((1.0,), (0.0,)),
    ],
)
def test_refused(after: tuple[float, ...], factors: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput, match="factors above 0 that do not descend"):
        CoolingCurve(after, factors)
