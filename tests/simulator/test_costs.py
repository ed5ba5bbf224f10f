"""Cost tables: what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.noise import LogNormalNoise

GRAPH = from_edges("pair", 2, [(0, 1, 1.0)])


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ([[1.0, 2.0]], r"Times of graph 'pair' have shape \(1, 2\), expected \[2, devices\]"),
        ([1.0, 2.0], r"have shape \(2,\)"),
        ([[1.0], [math.nan]], "Time of operator 't1' on device 0 is nan; times are seconds >= 0"),
        ([[1.0, -1e-9], [1, 1]], "Time of operator 't0' on device 1 is -1e-09"),
        ([[1.0, 1.0], [math.inf, math.inf]], r"can run operator 't1' \(kind task\)"),
    ],
)
def test_refused(seconds: list[list[float]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        CostTable.of(GRAPH, np.array(seconds))


def test_a_table_for_other_devices() -> None:
    table = CostTable.of(GRAPH, np.ones((2, 2)))
    table.check_covers(fully_connected("two", 2))
    with pytest.raises(InvalidInput, match="'pair' are for 2 devices, cluster 'three' has 3"):
        table.check_covers(fully_connected("three", 3))


def test_a_table_is_a_mapping() -> None:
    other = from_edges("other", 1, [])
    table = CostTable(
        {**CostTable.of(GRAPH, np.ones((2, 1))), **CostTable.of(other, np.ones((1, 1)))}
    )
    assert list(table) == [GRAPH, other]
    assert len(table) == 2
    with pytest.raises(InvalidInput, match=r"no times for graph 'third' \(it has: other, pair\)"):
        table[from_edges("third", 1, [])]


def test_noise_leaves_what_cannot_run() -> None:
    costs = GraphCosts(np.array([[1.0, math.inf], [2.0, 0.0]]))
    drawn = LogNormalNoise(0.5).realise(GRAPH, costs, np.random.default_rng(0))
    assert np.isinf(drawn[0, 1])
    assert drawn[1, 1] == 0.0
    assert np.all(drawn[:, 0] > 0)
    still = LogNormalNoise(0.0).realise(GRAPH, costs, np.random.default_rng(0))
    assert still.tolist() == costs.seconds.tolist()


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_sigma_out_of_range(sigma: float) -> None:
    with pytest.raises(InvalidInput, match="Noise needs a sigma >= 0"):
        LogNormalNoise(sigma)
