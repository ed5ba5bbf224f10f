"""Bare instances changed a little at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.instances import instance_from_json
from scenarios.perturbation import LEAST_SECONDS, Instance, Range, perturbed
from simulator.errors import InvalidInput

START = Instance(
    "start",
    ((4.0, 2.0), (1.0, math.inf), (3.0, 8.0), (0.0, 5.0)),
    {(0, 1): 2.0, (0, 2): 0.0, (1, 3): 16.0},
)


@given(st.integers(0, 2**32), st.booleans())
def test_a_walk_stays_in_range_and_changes_one_thing_a_step(seed: int, graph: bool) -> None:
    rng = np.random.default_rng(seed)
    limits = Range.of(START, graph)
    assert (limits.longest_task, limits.longest_edge) == (8.0, 16.0)
    instance = START
    for _ in range(30):
        other = perturbed(instance, limits, rng)
        cells = [
            (task, device)
            for task, row in enumerate(other.cost)
            for device, seconds in enumerate(row)
            if seconds != instance.cost[task][device]
        ]
        edges = set(instance.edges.items()) ^ set(other.edges.items())
        assert len({device for _, device in cells}) <= 1
        assert len({ends for ends, _ in edges}) <= 1
        assert not (cells and edges)
        assert graph or set(other.edges) == set(START.edges)
        assert other.cost[1][1] == math.inf
        for task, device in cells:
            assert LEAST_SECONDS * 8.0 <= other.cost[task][device] <= 8.0
        for (a, b), seconds in other.edges.items():
            assert a < b
            assert seconds == 0.0 or LEAST_SECONDS * 16.0 <= seconds <= 16.0
        instance = other
    read, _, costs = instance_from_json(instance.to_json())
    assert Instance.from_json(instance.to_json()) == instance
    assert costs[read].seconds.shape == (4, 2)


def test_the_same_seed_walks_the_same_way() -> None:
    limits = Range.of(START)
    one, two = (perturbed(START, limits, np.random.default_rng(3)) for _ in range(2))
    assert one == two


def test_nothing_can_differ_where_nothing_takes_time() -> None:
    with pytest.raises(InvalidInput, match="All tasks of 'still' take no time"):
        Range.of(Instance("still", ((0.0, 0.0),), {}))
