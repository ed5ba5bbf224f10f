"""Workloads: what is refused."""

from __future__ import annotations

import math

import pytest

from simulator.errors import InvalidInput
from simulator.model.graph import from_edges
from simulator.model.workload import Job, Workload

GRAPH = from_edges("one", 1, [])


@pytest.mark.parametrize("arrival", [-1.0, math.nan, math.inf])
def test_arrival_out_of_range(arrival: float) -> None:
    with pytest.raises(InvalidInput, match=f"A job of 'one' arrives at {arrival} s"):
        Job(GRAPH, arrival)


@pytest.mark.parametrize("deadline", [1.0, math.nan])
def test_deadline_before_arrival(deadline: float) -> None:
    with pytest.raises(InvalidInput, match=f"at 2.0 s, after its deadline of {deadline} s"):
        Job(GRAPH, 2.0, deadline=deadline)


def test_no_jobs() -> None:
    with pytest.raises(InvalidInput, match="The workload has no jobs"):
        Workload([])


def test_out_of_order() -> None:
    with pytest.raises(InvalidInput, match=r"Job 2 arrives at 1.0 s, before job 1 at 2.0 s; sort"):
        Workload([Job(GRAPH), Job(GRAPH, 2.0), Job(GRAPH, 1.0)])


def test_graphs_are_distinct_and_in_order_of_use() -> None:
    other = from_edges("other", 1, [])
    workload = Workload([Job(other), Job(GRAPH), Job(other)])
    assert workload.graphs == (other, GRAPH)
    assert len(workload) == 3
