"""Schedulers that believe in another cluster than the one that is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import from_edges
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.strategies import Case
from tests.simulator.test_fault_properties import rich_cases
from tests.simulator.test_properties import quick

FORK = from_edges("fork", 3, [(0, 1, 2.0), (0, 2, 2.0)])
"""An operator whose 2 bytes two others read."""
COSTS = CostTable.of(FORK, np.full((3, 2), 10.0))


def two(bandwidth: float, overhead: float = 0.0) -> Cluster:
    return Cluster(
        "two",
        [MemorySpace("near"), MemorySpace("far")],
        [
            Device("a", "near", launch_overhead=overhead),
            Device("b", "far", launch_overhead=overhead),
        ],
        [Link("l", ("near", "far"), bandwidth)],
        host="near",
    )


@pytest.mark.parametrize("scheduler", ["heft", "mct", "annealing"])
def test_what_is_decided_is_what_would_be_where_that_is_believed(scheduler: str) -> None:
    """A link of 1 B/s is worth 2 s; one of .1 B/s is not worth 20, and both operators stay."""
    fast, slow = two(1.0), two(0.1)

    def run(cluster: Cluster, believed: Cluster | None = None) -> tuple[float, int]:
        trace = simulate(FORK, cluster, COSTS, create(scheduler), believed=believed)
        return trace.makespan, len(trace.transfers["start"])

    assert run(fast)[1] > 0
    assert run(slow) == (30.0, 0)
    assert run(fast, slow) == (30.0, 0)
    makespan, transfers = run(slow, fast)
    assert transfers == run(fast)[1]
    assert makespan >= 10.0 + 20.0 + 10.0


def test_overheads_are_those_that_are_there() -> None:
    believed, there = two(1.0, 5.0), two(1.0, 1.0)
    trace = simulate(FORK, there, COSTS, create("single_device", device="a"), believed=believed)
    assert trace.makespan == 33.0


@settings(quick, max_examples=examples(150))
@given(rich_cases())
def test_to_believe_in_what_is_there_changes_nothing(case: Case) -> None:
    plain, told = case.run(), case.run(believed=replace(case.cluster))
    for table in ("executions", "transfers", "jobs"):
        mine, theirs = getattr(plain, table), getattr(told, table)
        for column in mine:
            np.testing.assert_array_equal(mine[column], theirs[column])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spaces": [MemorySpace("near", 1.0), MemorySpace("far")]}, "other memory spaces"),
        ({"devices": [Device("a", "near"), Device("c", "far")]}, "other devices.*'c'"),
        ({"devices": [Device("a", "near", slots=2), Device("b", "far")]}, "other devices"),
        ({"links": [Link("l", ("near", "far"), 1.0, half_duplex=True)]}, "other links"),
        ({"links": [], "devices": [Device("a", "near"), Device("b", "near")]}, "other devices"),
    ],
)
def test_a_cluster_of_other_parts_is_refused(change: dict[str, object], message: str) -> None:
    there = two(1.0)
    with pytest.raises(InvalidInput, match=message):
        simulate(FORK, there, COSTS, create("heft"), believed=replace(there, **change))  # type: ignore[arg-type]
