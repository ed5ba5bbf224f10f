"""Features of training kernels: those of the forward kernels, found in other arguments."""

import json

import pytest

from cost_models.features import features_of
from cost_models.table import row_of
from simulator.model.operator import TensorSpec

torch = pytest.importorskip("torch")

from calibration.kernels import make_operator  # noqa: E402
from calibration.sampling import draw  # noqa: E402
from calibration.training_constructors import TRAINING  # noqa: E402

T = TensorSpec


def features(operator):
    row = row_of(operator)
    columns = (row[name] for name in ("kind", "dtype", "inputs", "outputs"))
    return features_of(*columns, json.loads(row["attributes"]))


def shared(forward, backward, names):
    a, b = features(forward), features(backward)
    assert {name: a[name] for name in names} == {name: b[name] for name in names}
    return a, b


@pytest.mark.parametrize("label", sorted(TRAINING))
def test_every_kind_has_finite_features(label):
    for sample in draw(label, 5, candidates=1):
        assert all(abs(value) < 1e6 for value in features(sample.operator).values())


def test_a_convolution_backward_has_its_forwards_shape():
    x, weight, gradient = T((2, 8, 9, 9)), T((12, 8, 3, 3)), T((2, 12, 7, 7))
    forward = make_operator("aten.conv2d.default", x, weight)
    options = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    backward = make_operator(
        "aten.convolution_backward.default", gradient, x, weight, [0], *options
    )
    names = ("n", "c_in", "c_out", "k", "pixels", "width", "depthwise", "@stride_0", "@groups")
    a, b = shared(forward, backward, names)
    assert b["flops"] == a["flops"] + 1
    assert (b["@output_mask_0"], b["@output_mask_2"]) == (1, 0)


def test_an_attention_backward_has_its_forwards_shape():
    x, sums = T((2, 4, 7, 16)), T((2, 4, 7))
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    forward = make_operator(f"{name}.default", x, x, x, 0.0, True)
    backward = make_operator(f"{name}_backward.default", x, x, x, x, x, sums, 0.0, True)
    shared(forward, backward, ("heads", "queries", "keys", "width", "mask", "@is_causal"))


def test_indices_count_eight_bytes_and_shapes_alone_nothing():
    gradient, indices = T((6, 32)), T((6,), "int64")
    table = make_operator("aten.embedding_dense_backward.default", gradient, indices, 10, -1, False)
    assert 2 ** features(table)["bytes"] == pytest.approx(4 * 6 * 32 + 8 * 6 + 4 * 10 * 32)
    pooled, image = T((1, 2, 3, 3)), T((1, 2, 6, 6))
    pool = make_operator(
        "aten.max_pool2d_with_indices_backward.default",
        *(pooled, image, [2, 2], [2, 2], [0, 0], [1, 1], False, T((1, 2, 3, 3), "int64")),
    )
    assert 2 ** features(pool)["bytes"] == pytest.approx((4 + 8) * 18 + 4 * 72)
