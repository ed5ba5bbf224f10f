"""Graphs that stay in the cache are priced with their weights there."""

from dataclasses import replace

import pandas as pd
import pytest

from cost_models.cached_graphs import cache_state, touched_bytes, weight_shares
from cost_models.pricing import price_graphs
from cost_models.profile import Profile
from cost_models.roofline import Roofline
from cost_models.table import load
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec
from tests.cost_models.conftest import linear_row

ROWS = 1000


def model(width: int, *, table_is_multiplied: bool = False) -> DataflowGraph:
    """Two rows of a table of 1,000, looked up, and a linear layer."""
    index, table = TensorSpec((2,), "int64"), TensorSpec((ROWS, width))
    row, weight, result = TensorSpec((2, width)), TensorSpec((width, width)), TensorSpec((2, width))
    operators = [
        Operator("look", "embedding", inputs=(table, index), outputs=(row,)),
        Operator("fc", "linear", inputs=(row, weight), outputs=(result,)),
    ]
    tensors = [
        Tensor("index", "input", index.bytes, index),
        Tensor("table", "weight", table.bytes, table),
        Tensor("weight", "weight", weight.bytes, weight),
        Tensor("row", "activation", row.bytes, row),
        Tensor("y", "activation", result.bytes, result),
    ]
    reads = [(1, 0), (3, 2)]
    if table_is_multiplied:
        operators.append(Operator("all", "linear", inputs=(row, table), outputs=(result,)))
        tensors.append(Tensor("z", "activation", result.bytes, result))
        reads.append((3, 1))
    return DataflowGraph(
        "small", operators, tensors, reads, [(3 + i,) for i in range(len(operators))]
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Weights cost three times as much from memory."""
    rows = []
    for width in (16, 32, 64, 128, 256, 512):
        for cache, factor in (("warm", 1.0), ("graph", 3.0)):
            seconds = factor * 1e-9 * width**2
            rows.append(linear_row(2, width, width, seconds, cache=cache, spread=0.02))
            shapes = {"inputs": ((ROWS, width), (2,)), "outputs": ((2, width),)}
            looked = linear_row(1, 1, 1, factor * 1e-9 * width, cache=cache, spread=0.02)
            rows.append(looked | shapes | {"kind": "embedding"})
    fitted = Profile.fitted(
        "box",
        load(pd.DataFrame(rows)),
        roofline=Roofline({"float32": 1e10}, 1e10),
        models=("boosted",),
        options={"boosted": {"rounds": 20}},
        provenance={"states": ["graph", "warm"]},
    )
    return replace(fitted, cache_bytes=float(1 << 20))


def test_bytes_of_a_table_are_those_of_the_rows_that_are_read():
    # Indices 16 bytes, two rows of 64 floats, a matrix of 64 x 64, the rows and the result again.
    assert touched_bytes(model(64)) == 16 + 512 + 4 * 64 * 64 + 512 + 512
    # A table that something else reads counts whole.
    whole = touched_bytes(model(64, table_is_multiplied=True))
    assert whole == 16 + 4 * ROWS * 64 + 4 * 64 * 64 + 3 * 512


def test_state_follows_the_size_and_what_was_measured(profile):
    small, large = model(128), model(512)  # 0.07 and 1.06 MB against half a MiB
    assert cache_state(small, profile) == "warm"
    assert cache_state(large, profile) is None
    assert cache_state(small, replace(profile, cache_bytes=None)) is None
    assert cache_state(small, replace(profile, provenance={"states": ["graph"]})) is None


def test_small_graphs_are_priced_warm_and_others_as_the_profile_does(profile):
    small, large = model(128), model(512)
    table = price_graphs([small, large], ["box"], {"box": profile}, lookup=True)
    assert table[small].seconds[:, 0] == pytest.approx([128e-9, 128**2 * 1e-9])
    assert table[large].seconds[:, 0] == pytest.approx([3 * 512e-9, 3 * 512**2 * 1e-9])
    asked = price_graphs([small, large], ["box"], {"box": profile}, lookup=True, cache="graph")
    assert asked[small].seconds[:, 0] == pytest.approx([3 * 128e-9, 3 * 128**2 * 1e-9])
    # Predicted times follow, not only measured ones.
    warm = price_graphs([small], ["box"], {"box": profile})[small].seconds.sum()
    cold = price_graphs([small], ["box"], {"box": profile}, cache="graph")[small].seconds.sum()
    assert 2 * warm < cold


def test_what_is_left_with_cached_weights(profile):
    """Weights' bytes share in what the cache saves; tables that are looked up save nothing."""
    large = model(512)
    costs = price_graphs([large], ["box"], {"box": profile}, lookup=True, cached=True)[large]
    weight, rest = 4 * 512 * 512, 2 * 4 * 2 * 512
    assert weight_shares(large) == pytest.approx([0.0, weight / (weight + rest)])
    # A third of the time is left when everything is there.
    assert costs.cached[:, 0] == pytest.approx([1.0, 1 - weight / (weight + rest) * 2 / 3])
    assert price_graphs([large], ["box"], {"box": profile})[large].cached is None
    # Nothing more to save where the graph is priced with cached weights, or nobody measured that.
    small = model(128)
    warm = price_graphs([small], ["box"], {"box": profile}, lookup=True, cached=True)[small]
    assert warm.cached[:, 0] == pytest.approx([1.0, 1.0])
    unmeasured = replace(profile, provenance={})
    found = price_graphs([large], ["box"], {"box": unmeasured}, cached=True)[large]
    assert (found.cached == 1).all()
