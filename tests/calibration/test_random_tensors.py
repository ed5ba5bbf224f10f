from __future__ import annotations

import pytest

from simulator.model.operator import Operator
from simulator.model.operator import TensorSpec as T

torch = pytest.importorskip("torch")

from calibration.kernels import build, make_operator, spec_of  # noqa: E402
from calibration.random_tensors import random_reads  # noqa: E402


@pytest.mark.parametrize(
    "made",
    [
        ("aten.embedding.default", T((7, 4)), T((50, 60), "int64")),
        ("aten.embedding.default", T((7, 4)), T((50, 60), "int32")),
        ("aten.gather.default", T((9, 7)), 1, T((9, 100), "int64")),
        ("aten.index.Tensor", T((5, 7)), [T((30, 1), "int64"), T((30,), "int64")]),
        ("aten.index.Tensor", T((9, 7)), [None, T((30,), "int64")]),
        ("aten.index_select.default", T((9, 7)), 1, T((30,), "int64")),
    ],
)
def test_random_indices_are_in_range_and_reach_every_row(made):
    kernel = make_operator(*made)
    reads = random_reads(kernel)
    build(kernel)(*reads)
    indices = [tensor for tensor in reads if not tensor.dtype.is_floating_point]
    limits = (5, 7) if len(indices) == 2 else (7,)
    for index, limit in zip(indices, limits, strict=True):
        assert index.min() == 0
        assert index.max() == limit - 1


def test_random_tensors_have_their_specs_and_repeat():
    specs = (
        T((4, 5)),
        T((4, 5), "float16", strides=(1, 4)),
        T((3, 4, 5), strides=(0, 10, 2)),
        T((4,), "bool"),
        T((4, 5), "int64"),
        T((0, 5), "float64"),
        T((), "bfloat16"),
        T((2, 2), "complex64"),
    )
    subject = Operator("op", "kind", reads=specs)
    first, again, other = (random_reads(subject, seed=seed) for seed in (1, 1, 2))
    assert tuple(map(spec_of, first)) == specs
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert (first[4] >= 1).all()


def test_values_are_positive_where_they_must_be():
    channels = T((64,))
    norm = make_operator(
        "aten.batch_norm.default",
        *(T((2, 64, 4, 4)), channels, channels, channels, channels, False, 0.1, 1e-5, True),
    )
    (y,) = build(norm)(*random_reads(norm))
    assert torch.isfinite(y).all()
    root = make_operator("aten.rsqrt.default", T((1000,)))
    assert torch.isfinite(build(root)(*random_reads(root))[0]).all()


@pytest.mark.parametrize(
    "made",
    [
        make_operator("aten.max_pool2d.default", T((2, 3, 40, 40)), [3, 3], [2, 2]),
        make_operator(
            "aten.max_pool2d_with_indices.default",
            T((2, 3, 40, 40), strides=(4800, 1, 120, 3)),
            [3, 3],
            [2, 2],
        ),
        make_operator("aten.max_pool1d.default", T((2, 3, 400)), [3], [2]),
    ],
    ids=["rows", "channels last", "one dimension"],
)
def test_what_a_max_pooling_reads_is_smooth_and_half_zero(made):
    (x,) = random_reads(made, seed=3)
    assert tuple(map(spec_of, (x,))) == made.reads
    assert 0.35 < (x == 0).float().mean() < 0.65
    assert x.min() == 0
    x = x.reshape(2, 3, -1, x.shape[-1]).double()
    left, right = (half.flatten() for half in (x[..., :-1], x[..., 1:]))
    # Two windows of five share four: averages of independent values correlate by .8, their positive
    # parts by a little less.
    assert 0.6 < torch.corrcoef(torch.stack([left, right]))[0, 1] < 0.85
    assert torch.equal(x, random_reads(made, seed=3)[0].reshape(x.shape).double())


def test_other_operators_read_noise():
    (x,) = random_reads(make_operator("aten.avg_pool2d.default", T((2, 3, 40, 40)), [3, 3], [2, 2]))
    left, right = x[..., :-1].flatten(), x[..., 1:].flatten()
    assert abs(torch.corrcoef(torch.stack([left, right]))[0, 1]) < 0.1
