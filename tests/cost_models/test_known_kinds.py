"""Every ATen operator streams, has a formula, is made of others, or is called unknown: against torch's own registries."""

import math
import re

import pytest

from calibration.constructors import KINDS
from cost_models.arithmetic import flops, is_known, operator_flops
from cost_models.canonical import kind_of
from cost_models.streaming import STREAMING
from simulator.model.operator import TensorSpec as T

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import flop_registry  # noqa: E402

from calibration.kernels import make_operator  # noqa: E402

QUERY, KEY, VALUE = T((2, 3, 8, 16)), T((2, 3, 11, 16)), T((2, 3, 11, 16))
ROWS_QUERY, ROWS_KEY = T((2, 8, 3, 16)), T((2, 11, 3, 16))
IMAGE, KERNEL, RESULT = T((2, 3, 9, 9)), T((4, 3, 3, 3)), T((2, 4, 7, 7))
CONVOLUTION = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
CALLS = {
    "mm": ((T((4, 5)), T((5, 6))), T((4, 6))),
    "addmm": ((T((6,)), T((4, 5)), T((5, 6))), T((4, 6))),
    "bmm": ((T((3, 4, 5)), T((3, 5, 6))), T((3, 4, 6))),
    "baddbmm": ((T((3, 4, 6)), T((3, 4, 5)), T((3, 5, 6))), T((3, 4, 6))),
    "_scaled_mm": ((T((16, 32)), T((32, 48))), T((16, 48))),
    **dict.fromkeys(
        ("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"),
        ((IMAGE, KERNEL, None, *CONVOLUTION), RESULT),
    ),
    "_slow_conv2d_forward": ((IMAGE, KERNEL, None, *CONVOLUTION), RESULT),
    "convolution_backward": (
        (RESULT, IMAGE, KERNEL, None, *CONVOLUTION, [True, True, False]),
        (IMAGE, KERNEL),
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        ),
        ((QUERY, KEY, VALUE), QUERY),
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
        ),
        ((QUERY, QUERY, KEY, VALUE), (QUERY, KEY, VALUE)),
    ),
    "_flash_attention_forward": ((ROWS_QUERY, ROWS_KEY, ROWS_KEY), ROWS_QUERY),
    "_efficient_attention_forward": ((ROWS_QUERY, ROWS_KEY, ROWS_KEY), ROWS_QUERY),
    "_flash_attention_backward": (
        (ROWS_QUERY, ROWS_QUERY, ROWS_KEY, ROWS_KEY),
        (ROWS_QUERY, ROWS_KEY),
    ),
    "_efficient_attention_backward": (
        (ROWS_QUERY, ROWS_QUERY, ROWS_KEY, ROWS_KEY),
        (ROWS_QUERY, ROWS_KEY),
    ),
}
"""For each operator that torch counts: its arguments and what it gives."""


def aten_of(registry):
    return {str(key).removeprefix("aten.") for key in registry if str(key).startswith("aten.")}


def test_every_operator_that_torch_counts_is_among_the_calls_here():
    assert aten_of(flop_registry) == CALLS.keys()


# What torch's formulas take beside shapes, which decides nothing here.
EXTRA = {
    "_scaled_mm": (T(()), T(())),
    "_flash_attention_forward": (None, None, 8, 11),
    "_efficient_attention_forward": (None, None, None, 8, 11),
    "_flash_attention_backward": (None, None, None, None, 8, 11),
    "_efficient_attention_backward": (None, None, None, None, 8, 11),
}


def empty(value):
    return torch.empty(value.shape, device="meta") if isinstance(value, T) else value


@pytest.mark.parametrize("name", CALLS)
def test_flops_are_those_of_the_registry_of_torch(name):
    arguments, results = CALLS[name]
    outputs = results if isinstance(results, tuple) else (results,)
    inputs = [value for value in arguments if isinstance(value, T)]
    spatial = len(inputs[1].shape) - 2
    kind = kind_of(f"aten.{name}.default", spatial, False)
    given = [*map(empty, arguments), *map(empty, EXTRA.get(name, ()))]
    if name.startswith(("_flash", "_efficient")):
        # Their rows stand before their heads, which torch's formula takes the other way round.
        given = [v.transpose(1, 2) if isinstance(v, torch.Tensor) else v for v in given]
    made = tuple(map(empty, outputs))
    formula = flop_registry[getattr(torch.ops.aten, name)]
    counted = formula(*given, out_val=made if len(made) > 1 else made[0])
    attributes = {"output_mask": [True, True, False]} if name == "convolution_backward" else {}
    assert flops(kind, inputs, outputs, attributes) == counted


def functional_overloads():
    """ATen's overloads that change nothing and give tensors of their own."""
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten" or base.startswith("_test"):
            continue
        operation = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if not isinstance(operation, torch._ops.OpOverload) or operation._schema.is_mutable:
            continue
        results = operation._schema.returns
        if results and all(r.alias_info is None and "Tensor" in str(r.type) for r in results):
            yield operation


def is_composite(operation):
    return operation.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


MULTIPLIES = re.compile(
    r"mm$|mm_v2$|matmul|bmm|mv$|dot$|conv(?!ert)|linear($|_)|attention($|_)|rnn|lstm|gru|einsum|inner$|addr$|"
    r"linalg_|cholesky|geqrf|ormqr|_fft_|cdist|pdist|bilinear$|matrix_"
)
# Interpolation; element-wise parts of cells; vectors; choosing how numbers are written.
STREAMS_ALTHOUGH = re.compile(
    r"upsample|thnn_fused|grid_sampler|linalg_(vector_norm|_powsum|cross|vecdot|vander|diagonal)|rnn_flatten|"
    r"scaled_dot_product_attention_math_for|fftshift|fft\w*freq"
)
# Nobody has a formula for kernels that other backends, sparse or nested tensors and their gradients need.
FOREIGN = re.compile(
    r"sparse|cslt|csr|mps|miopen|mkldnn|quantized|fbgemm|triton|nested|backward|foreach|hspmm|cudnn|wrapped|trilinear|"
    r"math_for_mps|dyn_quant_pack|linear_combination"
)


def test_whatever_multiplies_matrices_has_a_formula_or_is_made_of_others():
    unknown = []
    for operation in functional_overloads():
        name = operation._schema.name.removeprefix("aten::")
        if not MULTIPLIES.search(name) or STREAMS_ALTHOUGH.search(name):
            continue
        kind = kind_of(str(operation), 2)
        assert kind not in STREAMING, f"{operation} is taken for one that streams"
        if not (is_known(kind) or is_composite(operation) or FOREIGN.search(name)):
            unknown.append(str(operation))
    assert unknown == []


def test_whatever_torch_calls_pointwise_streams():
    pointwise = {
        kind_of(str(operation))
        for operation in functional_overloads()
        if torch.Tag.pointwise in operation.tags
    }
    assert len(pointwise) > 100
    assert pointwise - STREAMING == set()


def test_whatever_is_measured_is_known():
    assert [kind for kind in KINDS if not is_known(kind)] == []


N, M, K = 12, 20, 5
SQUARE, TALL, RIGHT = T((3, N, N)), T((3, M, N)), T((3, N, K))
TEXTBOOK = {
    # In the order of the sources that cost_models.linear_algebra names.
    "linalg_inv": (("aten.linalg_inv.default", SQUARE), 3 * 2 * N**3),
    "linalg_inv_ex": (("aten.linalg_inv_ex.default", SQUARE), 3 * 2 * N**3),
    "cholesky": (("aten.linalg_cholesky_ex.default", SQUARE), 3 * N**3 / 3),
    "cholesky_solve": (("aten.cholesky_solve.default", RIGHT, SQUARE), 3 * 2 * N * N * K),
    "cholesky_inverse": (("aten.cholesky_inverse.default", SQUARE), 3 * 2 / 3 * N**3),
    "lu_factor": (("aten.linalg_lu_factor.default", TALL), 3 * (M * N * N - N**3 / 3)),
    "det": (("aten._linalg_det.default", SQUARE), 3 * 2 / 3 * N**3),
    "slogdet": (("aten._linalg_slogdet.default", SQUARE), 3 * 2 / 3 * N**3),
    "solve": (
        ("aten._linalg_solve_ex.default", SQUARE, RIGHT),
        3 * (2 / 3 * N**3 + 2 * N * N * K),
    ),
    "triangular": (("aten.triangular_solve.default", RIGHT, SQUARE), 3 * N * N * K),
    "geqrf": (("aten.geqrf.default", TALL), 3 * (2 * M * N * N - 2 / 3 * N**3)),
    "qr": (("aten.linalg_qr.default", TALL), 3 * (4 * M * N * N - 4 / 3 * N**3)),
    "qr_without_q": (("aten.linalg_qr.default", TALL, "r"), 3 * (2 * M * N * N - 2 / 3 * N**3)),
    "svd": (("aten._linalg_svd.default", TALL, False), 3 * (14 * M * N * N + 8 * N**3)),
    "svdvals": (("aten.linalg_svdvals.default", TALL), 3 * (4 * M * N * N - 4 / 3 * N**3)),
    "eigh": (("aten._linalg_eigh.default", SQUARE), 3 * 9 * N**3),
    "eigvalsh": (("aten.linalg_eigvalsh.default", SQUARE), 3 * 4 / 3 * N**3),
    "eig": (("aten.linalg_eig.default", SQUARE), 3 * 25 * N**3),
    "matrix_exp": (("aten.linalg_matrix_exp.default", SQUARE), 3 * 5 * 2 * N**3),
    "pinv": (
        ("aten.linalg_pinv.default", TALL, 1e-15),
        3 * (14 * M * N * N + 8 * N**3 + 2 * M * N * N),
    ),
    "cdist_few": (("aten._cdist_forward.default", TALL, SQUARE, 2.0, None), 3 * M * N * 3 * N),
    "cdist_many": (
        ("aten._cdist_forward.default", T((40, 6)), T((50, 6)), 2.0, None),
        2 * 40 * 50 * (6 + 2),
    ),
    "cdist_1": (("aten._cdist_forward.default", T((40, 6)), T((50, 6)), 1.0, None), 3 * 40 * 50 * 6),
    "fft": (
        ("aten._fft_c2c.default", T((4, 32), "complex64"), [1], 0, True),
        4 * 5 * 32 * math.log2(32),
    ),
    "rfft": (("aten._fft_r2c.default", T((4, 32)), [1], 0, True), 4 * 2.5 * 32 * math.log2(32)),
    "irfft": (
        ("aten._fft_c2r.default", T((4, 17), "complex64"), [1], 0, 32),
        4 * 2.5 * 32 * math.log2(32),
    ),
    "fft2": (
        ("aten._fft_c2c.default", T((4, 8, 16), "complex64"), [1, 2], 0, True),
        4 * 5 * 128 * math.log2(128),
    ),
    "addbmm": (
        ("aten.addbmm.default", T((4, 6)), T((3, 4, 5)), T((3, 5, 6))),
        2 * 3 * 4 * 5 * 6,
    ),
    "addr": (("aten.addr.default", T((4, 5)), T((4,)), T((5,))), 2 * 4 * 5),
    "addmv": (("aten.addmv.default", T((4,)), T((4, 5)), T((5,))), 2 * 4 * 5),
    "int_mm": (("aten._int_mm.default", T((32, 16), "int8"), T((16, 8), "int8")), 2 * 32 * 16 * 8),
    "grouped_rows": (
        ("aten._grouped_mm.default", T((16, 32), "bfloat16"), T((2, 32, 8), "bfloat16"), T((2,), "int32")),
        2 * 16 * 32 * 8,
    ),
    "conv_tbc": (
        ("aten.conv_tbc.default", T((9, 2, 3)), T((3, 3, 4)), T((4,)), 1),
        2 * 9 * 2 * 3 * 3 * 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTBOOK)
def test_linear_algebra_counts_as_the_sources_say(name):
    (target, *arguments), expected = TEXTBOOK[name]
    assert operator_flops(make_operator(target, *arguments)) == pytest.approx(expected)
