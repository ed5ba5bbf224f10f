import subprocess
import sys

import pytest

from cost_models.canonical import attributes_of, bind_arguments, kind_of
from simulator.model.operator import TensorSpec as T


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("aten.conv2d.default", "conv2d"),
        ("aten.conv2d.padding", "conv2d"),
        ("aten.conv_transpose2d.input", "conv_transpose2d"),
        ("aten.linear.default", "linear"),
        ("aten.addmm.default", "addmm"),
        ("aten.mm.default", "matmul"),
        ("aten._softmax.default", "softmax"),
        ("aten.softmax.int", "softmax"),
        ("aten._log_softmax.default", "log_softmax"),
        ("aten.relu_.default", "relu"),
        ("aten.native_layer_norm.default", "layer_norm"),
        ("aten._native_batch_norm_legit_no_training.default", "batch_norm"),
        ("aten.max_pool2d_with_indices.default", "max_pool2d"),
        ("aten._adaptive_avg_pool2d.default", "adaptive_avg_pool2d"),
        (
            "aten._scaled_dot_product_flash_attention_for_cpu.default",
            "scaled_dot_product_attention",
        ),
        ("aten.clone.default", "copy"),
        ("aten._to_copy.default", "copy"),
        ("aten.to.dtype", "copy"),
        ("aten.lstm.input", "lstm"),
        ("aten.__and__.Tensor", "bitwise_and"),
        ("aten.max.dim", "max"),
        ("aten.max.other", "maximum"),
        ("aten.add.Tensor", "add"),
        ("gelu", "gelu"),
    ],
)
def test_kinds(target, kind):
    assert kind_of(target) == kind


def test_a_general_convolution_is_named_by_its_dimensions():
    assert kind_of("aten.convolution.default", 1) == "conv1d"
    assert kind_of("aten.convolution.default", 2, transposed=True) == "conv_transpose2d"


def test_defaults_are_filled_in_by_position_and_name():
    schema = [("input", None), ("stride", 1), ("groups", 1)]
    assert bind_arguments(schema, ["x", [2, 2]], {"groups": 4}) == {
        "input": "x",
        "stride": [2, 2],
        "groups": 4,
    }


X = T((2, 4, 8, 6))


@pytest.mark.parametrize(
    ("kind", "arguments", "inputs", "expected"),
    [
        (
            "conv2d",
            {"stride": [2], "padding": 1},
            [X, T((4, 4, 3, 3))],
            {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 1},
        ),
        (
            "conv2d",
            {"padding": "same", "dilation": [2, 1]},
            [X, T((4, 4, 3, 5))],
            {"stride": [1, 1], "padding": [2, 2], "dilation": [2, 1], "groups": 1},
        ),
        (
            "max_pool2d",
            {"kernel_size": [3, 3], "stride": [], "padding": 0, "dilation": 1, "ceil_mode": True},
            [X],
            {
                "kernel_size": [3, 3],
                "stride": [3, 3],
                "padding": [0, 0],
                "dilation": [1, 1],
                "ceil_mode": True,
            },
        ),
        ("layer_norm", {"normalized_shape": [8, 6]}, [X], {"normalized_size": 48}),
        ("softmax", {"dim": -1, "dtype": None}, [X], {"dim": 3}),
        ("cat", {"dim": -3}, [X, X], {"dim": 1}),
        ("mean", {"dim": [-1, -2], "keepdim": True}, [X], {"dim": [2, 3]}),
        ("sum", {}, [X], {"dim": [0, 1, 2, 3]}),
        ("pow", {"exponent": 3}, [X], {"exponent": 3.0}),
        ("add", {"other": {"read": 1}}, [X, X], {"scalar": False}),
        ("add", {"other": 1}, [X], {"scalar": True}),
        ("gelu", {"approximate": "tanh"}, [X], {"approximate": "tanh"}),
        ("relu", {}, [X], {}),
        ("relu", {}, [T((2, 3), strides=(1, 2))], {"strided": [0]}),
        (
            "copy",
            {},
            [T((2, 3, 4), "float16", strides=(12, 1, 3))],
            {"order": [0, 2, 1], "from": "float16", "strided": [0]},
        ),
    ],
)
def test_attributes(kind, arguments, inputs, expected):
    assert attributes_of(kind, arguments, inputs, [T((2, 4))]) == expected


def test_neither_module_imports_torch():
    code = "import sys, cost_models.arithmetic, cost_models.canonical; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
