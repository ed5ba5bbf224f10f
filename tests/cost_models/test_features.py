import math

import numpy as np
import pandas as pd
import pytest

from cost_models.features import feature_rows, features_of, matrix, specs, work
from tests.cost_models.conftest import linear_row, relu_row


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("linear", ((2, 8, 32), (64, 32), (64,))),
        ("linear", ((16, 32), (64, 32))),
        ("addmm", ((64,), (16, 32), (32, 64))),
        ("matmul", ((16, 32), (32, 64))),
    ],
)
def test_matrix_products_agree_on_m_n_k(kind, inputs):
    output = (*inputs[0][:-1], 64) if kind == "linear" else (16, 64)
    found = features_of(kind, "float32", inputs, (output,), {})
    assert (found["m"], found["n"], found["k"]) == (4.0, 6.0, 5.0)
    assert found["flops"] == math.log2(2 * 16 * 64 * 32)


def test_batched_product_separates_the_batch():
    found = features_of("bmm", "float32", ((4, 16, 32), (4, 32, 64)), ((4, 16, 64),), {})
    assert (found["batch"], found["m"], found["n"], found["k"]) == (2.0, 4.0, 6.0, 5.0)


@pytest.mark.parametrize(("output", "pooled", "whole"), [(1, 196, 1), (7, 4, 0), (14, 1, 0)])
def test_adaptive_pooling_says_how_much_an_output_sums(output, pooled, whole):
    shapes = ((2, 8, 14, 14),), ((2, 8, output, output),)
    found = features_of("adaptive_avg_pool2d", "float32", *shapes, {})
    assert found["pooled"] == pytest.approx(math.log2(pooled))
    assert found["whole_planes"] == whole
    fixed = features_of("avg_pool2d", "float32", *shapes, {"kernel_size": [2, 2]})
    assert "pooled" not in fixed


def test_convolution():
    attributes = {"stride": [2, 2], "padding": [3, 3], "dilation": [1, 1], "groups": 1}
    shapes = ((1, 3, 224, 224), (64, 3, 7, 7)), ((1, 64, 112, 112),)
    found = features_of("conv2d", "float32", *shapes, attributes)
    assert found["c_out"] == 6.0
    assert found["taps"] == 49
    assert found["@stride_0"] == 2
    assert found["@groups"] == 1
    assert found["depthwise"] == 0
    assert found["flops"] == pytest.approx(math.log2(2 * 64 * 112 * 112 * 3 * 49))
    depthwise = features_of(
        "conv2d", "float32", ((1, 8, 9, 9), (8, 1, 3, 3)), ((1, 8, 9, 9),), {"groups": 8}
    )
    assert depthwise["depthwise"] == 1


def test_attention():
    shape = (2, 12, 128, 64)
    found = features_of(
        "scaled_dot_product_attention", "float32", (shape,) * 3, (shape,), {"is_causal": True}
    )
    assert found["queries"] == found["keys"] == 7.0
    assert found["@is_causal"] == 1.0
    assert found["mask"] == 0.0


@pytest.mark.parametrize(("kind", "gates", "states"), [("lstm_cell", 4, 2), ("gru_cell", 3, 1)])
def test_cells(kind, gates, states):
    weights = (gates * 32, 8), (gates * 32, 32), (gates * 32,), (gates * 32,)
    found = features_of(
        kind, "float32", ((2, 8), *[(2, 32)] * states, *weights), ((2, 32),) * states, {}
    )
    assert (found["rows"], found["width"], found["hidden"]) == (1.0, 3.0, 5.0)
    assert found["weights"] == math.log2(gates * 32 * (8 + 32))
    assert found["flops"] == math.log2(2 * 2 * gates * 32 * (8 + 32))


def test_broadcast_input_is_read_once():
    # [4, 8] seen as [16, 4, 8]: its first dimension has stride 0.
    whole = work("add", "float32", ((16, 4, 8), (16, 4, 8)), ((16, 4, 8),), {})
    layouts = {"layouts": [None, [-1, 1, 2]]}
    broadcast = work("add", "float32", ((16, 4, 8), (16, 4, 8)), ((16, 4, 8),), layouts)
    assert whole[1] - broadcast[1] == 4 * (16 - 1) * 4 * 8


def test_layout_becomes_strides():
    (spec,) = specs("relu", "float32", ((2, 3, 5),), {"layouts": [[2, 0, 1]]})
    assert spec.strides == (3, 1, 6)


def test_indices_of_an_embedding_are_int64():
    table, indices = specs("embedding", "float32", ((10, 4), (3,)), {})
    assert (table.dtype, indices.dtype) == ("float32", "int64")


def test_cache_state_is_a_feature_and_equal_rows_are_equal():
    rows = pd.DataFrame([linear_row(2, 3, 4, cache="warm"), linear_row(2, 3, 4, cache="graph")])
    warm, graph = feature_rows(rows)
    assert (warm["cache"], graph["cache"]) == (0.0, 1.0)
    assert {k: v for k, v in warm.items() if k != "cache"} == {
        k: v for k, v in graph.items() if k != "cache"
    }


def test_matrix_marks_absent_features():
    values = feature_rows(pd.DataFrame([linear_row(2, 3, 4), relu_row(8)]))
    found = matrix(values, ["m", "output_elements"])
    assert found.shape == (2, 2)
    assert np.isnan(found[1, 0])
    assert list(found[:, 1]) == [3.0, 3.0]
    assert matrix([], ["m"]).shape == (0, 1)


def test_scalars_and_empty_tensors_have_features():
    for shapes in (((), ()), ((0, 3), (0, 3))):
        found = features_of("relu", "float32", (shapes[0],), (shapes[1],), {})
        assert all(math.isfinite(v) for v in found.values())


def test_padding_that_adds_nothing_is_one_copy():
    shape = (2, 8, 10, 10)
    same = features_of("pad", "float32", (shape,), (shape,), {})
    grown = features_of("pad", "float32", (shape,), ((2, 8, 12, 10),), {})
    assert (same["rows"], same["grown"], same["inner_grown"]) == (0.0, 0.0, 0.0)
    assert (grown["rows"], grown["grown"], grown["inner_grown"]) == (np.log2(160), 1.0, 0.0)
    wider = features_of("pad", "float32", (shape,), ((2, 8, 10, 12),), {})
    assert wider["inner_grown"] == 1.0


def test_a_cast_reads_the_type_that_it_casts_from():
    """A thousand elements read in four bytes each and written in two."""
    for source, moved in (("float32", 6000.0), ("float16", 4000.0)):
        attributes = {"from": source, "order": [0]}
        assert work("copy", "float16", ((1000,),), ((1000,),), attributes)[1] == moved
