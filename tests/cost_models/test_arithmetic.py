"""FLOPs against torch's own counter on meta tensors, bytes against figures worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.arithmetic import (
    bytes_moved,
    flops,
    is_known,
    operator_bytes,
    operator_flops,
    priced_flops,
)
from simulator.errors import InvalidInput
from simulator.model.operator import TensorSpec as T

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from calibration.kernels import build, make_operator  # noqa: E402


def counted(operator):
    """What torch counts for the operator's call on meta tensors."""
    tensors = [
        torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        for spec in operator.reads
    ]
    with FlopCounterMode(display=False) as counter:
        build(operator, "meta")(*tensors)
    return counter.get_total_flops()


OPERATORS = {
    "linear": ("aten.linear.default", T((2, 7, 16)), T((5, 16)), T((5,))),
    "linear_vector": ("aten.linear.default", T((16,)), T((5, 16))),
    "matmul": ("aten.matmul.default", T((3, 1, 4, 5)), T((2, 5, 6))),
    "mm": ("aten.mm.default", T((4, 5)), T((5, 6))),
    "bmm": ("aten.bmm.default", T((3, 4, 5)), T((3, 5, 6))),
    "addmm": ("aten.addmm.default", T((6,)), T((4, 5)), T((5, 6))),
    "baddbmm": ("aten.baddbmm.default", T((3, 4, 6)), T((3, 4, 5)), T((3, 5, 6))),
    "einsum": ("aten.einsum.default", "bij,bkj->bik", [T((2, 5, 7)), T((2, 3, 7))]),
    "einsum_chain": (
        "aten.einsum.default",
        "ij,jk,kl->il",
        [T((2, 5)), T((5, 7)), T((7, 3))],
    ),
    "einsum_outer": ("aten.einsum.default", "i,j->ij", [T((4,)), T((5,))]),
    "einsum_implicit": ("aten.einsum.default", "ij,jk", [T((4, 5)), T((5, 6))]),
    "einsum_summed_alone": ("aten.einsum.default", "ijs,jk->ik", [T((4, 5, 3)), T((5, 6))]),
    "einsum_ellipsis": ("aten.einsum.default", "...ij,...kj->...ik", [T((2, 5, 7)), T((2, 3, 7))]),
    "conv1d": ("aten.conv1d.default", T((2, 6, 20)), T((8, 3, 5)), None, [2], [1], [1], 2),
    "conv2d": ("aten.conv2d.default", T((2, 6, 20, 18)), T((8, 6, 5, 3)), T((8,)), [2, 1], [1, 1]),
    "depthwise": ("aten.conv2d.default", T((2, 6, 9, 9)), T((6, 1, 3, 3)), None, [1], [1], [1], 6),
    "conv2d_same": ("aten.conv2d.padding", T((1, 3, 9, 9)), T((4, 3, 3, 3)), None, [1], "same"),
    "conv2d_unbatched": ("aten.conv2d.default", T((6, 9, 9)), T((4, 6, 3, 3))),
    "conv3d": ("aten.conv3d.default", T((1, 2, 5, 6, 7)), T((4, 2, 3, 3, 3))),
    "conv_transpose2d": (
        "aten.conv_transpose2d.input",
        *(T((2, 6, 9, 9)), T((6, 4, 3, 3)), None, [2, 2], [1, 1], [1, 1]),
    ),
    "attention": (
        "aten.scaled_dot_product_attention.default",
        *(T((2, 3, 8, 16)), T((2, 3, 11, 16)), T((2, 3, 11, 16))),
    ),
    "causal_attention_counts_in_full": (
        "aten.scaled_dot_product_attention.default",
        *(T((2, 3, 8, 16)), T((2, 3, 8, 16)), T((2, 3, 8, 16)), None, 0.0, True),
    ),
    "lstm_cell": (
        "aten.lstm_cell.default",
        *(T((3, 8)), [T((3, 6)), T((3, 6))], T((24, 8)), T((24, 6)), T((24,)), T((24,))),
    ),
    "gru_cell": (
        "aten.gru_cell.default",
        *(T((3, 8)), T((3, 6)), T((18, 8)), T((18, 6)), T((18,)), T((18,))),
    ),
    "relu": ("aten.relu.default", T((3, 8))),
    "layer_norm": ("aten.layer_norm.default", T((3, 8)), [8], T((8,)), T((8,))),
    "softmax": ("aten.softmax.int", T((3, 8)), -1),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_flops_are_what_torch_counts(name):
    target, *args = OPERATORS[name]
    operator = make_operator(target, *args)
    assert operator_flops(operator) == counted(operator)


def test_a_matrix_times_a_vector_counts_though_torch_omits_it():
    assert operator_flops(make_operator("aten.mv.default", T((4, 5)), T((5,)))) == 40
    assert operator_flops(make_operator("aten.matmul.default", T((3, 4, 5)), T((5,)))) == 120
    assert operator_flops(make_operator("aten.dot.default", T((5,)), T((5,)))) == 10


@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (2, True)])
def test_recurrent_layers(layers, both):
    lstm = torch.nn.LSTM(8, 6, layers, batch_first=True, bidirectional=both, device="meta")
    x = torch.empty(3, 5, 8, device="meta")
    with FlopCounterMode(display=False) as counter:
        lstm(x)
    directions = 1 + both
    states = [T((directions * layers, 3, 6))] * 2
    weights = [T(tuple(weight.shape)) for weight in lstm.parameters()]
    inputs = [T((3, 5, 8)), *states, *weights]
    assert flops("lstm", inputs, [T((3, 5, 6 * directions))], {}) == counter.get_total_flops()


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.integers(5, 9),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_any_convolution(batch, groups, channels, size, kernel, stride, padding, dilation):
    operator = make_operator(
        "aten.conv2d.default",
        T((batch, groups * channels[0], size, size)),
        T((groups * channels[1], channels[0], *kernel)),
        None,
        [stride, stride],
        [padding, padding],
        [dilation, dilation],
        groups,
    )
    assert operator_flops(operator) == counted(operator)
    assert operator.attributes["groups"] == groups


def test_the_work_of_an_unknown_kind_is_unknown_and_never_cheap_and_its_bytes_are_its_tensors():
    assert math.isnan(flops("frobnicate", [T((4,))], [T((4,))], {}))
    assert not is_known("frobnicate")
    square = [T((64, 64))]
    product = flops("matmul", square * 2, square, {})
    assert priced_flops("frobnicate", square, square, {}) == product
    assert priced_flops("relu", square, square, {}) == 0
    assert bytes_moved("frobnicate", [T((4,)), T((2,), "int64")], [T((4,))], {}) == 16 + 16 + 16


def test_bytes():
    conv = make_operator("aten.conv2d.default", T((2, 3, 8, 8)), T((4, 3, 3, 3)))
    assert operator_bytes(conv) == 4 * (2 * 3 * 64 + 4 * 27 + 2 * 4 * 36)
    half = make_operator("aten.add.Tensor", T((5, 4), "float16"), T((4,), "float16"))
    assert operator_bytes(half) == 2 * (20 + 4 + 20)


def test_a_look_up_reads_only_its_rows():
    embedding = make_operator("aten.embedding.default", T((50_000, 16)), T((2, 3), "int64"))
    assert operator_bytes(embedding) == 6 * 8 + 2 * 6 * 16 * 4


def test_an_expanded_input_counts_once():
    mask = T((8, 1, 16, 16), "bool", strides=(0, 0, 16, 1))
    assert bytes_moved("frobnicate", [mask], [], {}) == 16 * 16


def test_tensors_made_from_nothing_are_only_written():
    assert operator_bytes(make_operator("aten.zeros_like.default", T((10,)))) == 40
    assert operator_bytes(make_operator("aten.arange.default", 10)) == 80


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match=r"Inputs \[4, 5\] do not fit kind 'linear'"):
        flops("linear", [T((4, 5))], [T((4, 6))], {})
