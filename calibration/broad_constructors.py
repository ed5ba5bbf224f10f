"""How operators are drawn that the models of this project hardly have and others do.

Convolutions of sequences, dilated, grouped, depthwise and transposed ones, group norms, products of more than two
dimensions, copies that move windows, interpolation, and element-wise kernels of broadcast and strided operands: drawn
broadly over shapes and attributes, round no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.constructors import (
    Drawn,
    Rng,
    any_shape,
    channels,
    image,
    log_uniform,
    make,
    row_shape,
    spec,
    transposed,
)
from simulator.model.operator import TensorSpec


def _batch(rng: Rng) -> int:
    return int(rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 8]))


def _pick(rng: Rng, *values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def sequence(rng: Rng, elements: float = 2.0**21) -> tuple[int, int, int]:
    """[N, C, L] of a sequence of features."""
    while True:
        shape = (_batch(rng), channels(rng, 4, 1024), log_uniform(rng, 8, 16384))
        if np.prod(shape) <= elements:
            return shape


def _convolution(
    x: Sequence[int], c_out: int, kernel: Sequence[int], groups: int, stride: int,
    padding: Sequence[int], dilation: int, bias: bool,
) -> Drawn:  # fmt: skip
    rank = len(kernel)
    weight = spec(c_out, x[1] // groups, *kernel)
    added = spec(c_out) if bias else None
    return make(
        f"aten.conv{rank}d.default", spec(*x), weight, added, [stride] * rank, list(padding),
        [dilation] * rank, groups, weights=(1, 2) if bias else (1,),
    )  # fmt: skip


def _conv1d(rng: Rng) -> Drawn:
    n, c_in, length = sequence(rng)
    c_out, k = channels(rng, 4, 1024), int(_pick(rng, 1, 1, 2, 3, 3, 3, 4, 5, 7, 8, 9, 10, 15, 31))
    groups = dilation = stride = 1
    form = rng.random()
    if form < 0.2:
        groups = c_out = c_in
    elif form < 0.3:
        groups = int(_pick(rng, 2, 4, 8, 16))
        c_in, c_out = (max(1, round(c / groups)) * groups for c in (c_in, c_out))
    elif form < 0.5:
        dilation = int(2 ** rng.integers(1, 8))
    elif form < 0.65:
        stride = int(_pick(rng, 2, 2, 3, 4, 5, 8))
    elif form < 0.72:
        c_in = int(_pick(rng, 1, 1, 2, 3, 40, 80, 128))
    padding = dilation * (k - 1) // 2 if rng.random() < 0.6 else 0
    return _convolution(
        (n, c_in, length), c_out, (k,), groups, stride, (padding,), dilation, rng.random() < 0.6
    )


def _conv3d(rng: Rng) -> Drawn:
    n, c_in, c_out = int(_pick(rng, 1, 1, 2)), channels(rng, 3, 128), channels(rng, 8, 128)
    size, frames, k = log_uniform(rng, 7, 64), log_uniform(rng, 2, 16), int(_pick(rng, 1, 3, 3))
    kernel = (int(_pick(rng, 1, k)), k, k)
    padding = [side // 2 for side in kernel]
    stride = int(_pick(rng, 1, 1, 2))
    return _convolution(
        (n, c_in, frames, size, size), c_out, kernel, 1, stride, padding, 1, rng.random() < 0.5
    )


def _plane(rng: Rng, low: int = 4, high: int = 224) -> tuple[int, int]:
    """Height and width; half of them are squares."""
    side = log_uniform(rng, low, high)
    return (side, side if rng.random() < 0.5 else log_uniform(rng, low, high))


def _conv2d_depthwise(rng: Rng) -> Drawn:
    k, c = int(_pick(rng, 3, 3, 3, 5, 5, 7, 7, 9, 11)), channels(rng, 8, 2048)
    stride, times = int(_pick(rng, 1, 1, 1, 2)), int(_pick(rng, 1, 1, 1, 1, 2))
    return _convolution(
        (_batch(rng), c, *_plane(rng)), c * times, (k, k), c, stride, [k // 2] * 2, 1,
        rng.random() < 0.4,
    )  # fmt: skip


def _conv2d_grouped(rng: Rng) -> Drawn:
    groups = int(_pick(rng, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32))
    inner, outer = log_uniform(rng, 2, 128), log_uniform(rng, 2, 128)
    if rng.random() < 0.6:
        outer = inner
    k, stride = int(_pick(rng, 1, 3, 3, 3, 5)), int(_pick(rng, 1, 1, 1, 2))
    return _convolution(
        (_batch(rng), groups * inner, *_plane(rng)), groups * outer, (k, k), groups, stride,
        [k // 2] * 2, 1, rng.random() < 0.4,
    )  # fmt: skip


def _conv2d_dilated(rng: Rng) -> Drawn:
    dilation, k = int(_pick(rng, 2, 2, 3, 4, 6, 8, 12)), int(_pick(rng, 3, 3, 5))
    c_in, c_out = channels(rng, 8, 512), channels(rng, 8, 512)
    groups = 1
    if rng.random() < 0.25:
        groups = c_out = c_in
    return _convolution(
        (_batch(rng), c_in, *_plane(rng, 8, 160)), c_out, (k, k), groups, 1,
        [dilation * (k // 2)] * 2, dilation, rng.random() < 0.5,
    )  # fmt: skip


def _conv2d_any(rng: Rng) -> Drawn:
    """Channels that are multiples of nothing, images that are no squares, wide kernels, few channels."""
    c_in, c_out = log_uniform(rng, 1, 768), log_uniform(rng, 1, 768)
    k = int(_pick(rng, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 7, 9))
    stride = int(_pick(rng, 1, 1, 1, 2, 4)) if k > 1 else int(_pick(rng, 1, 1, 2))
    if k in (2, 4, 8) and rng.random() < 0.7:
        stride = k
    padding = k // 2 if k % 2 and rng.random() < 0.85 else 0
    return _convolution(
        (_batch(rng), c_in, *_plane(rng)), c_out, (k, k), 1, stride, [padding] * 2, 1,
        rng.random() < 0.5,
    )  # fmt: skip


def _conv2d_narrow(rng: Rng) -> Drawn:
    """3 x 3 and pointwise convolutions of few channels over large images."""
    c_in, c_out = channels(rng, 3, 128), channels(rng, 3, 128)
    k = int(_pick(rng, 1, 3, 3))
    return _convolution(
        (_batch(rng), c_in, *_plane(rng, 24, 320)), c_out, (k, k), 1, int(_pick(rng, 1, 1, 2)),
        [k // 2] * 2, 1, rng.random() < 0.5,
    )  # fmt: skip


def _conv_transpose(rank: int) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        k, stride, padding = _pick(rng, (2, 2, 0), (2, 2, 0), (4, 2, 1), (4, 2, 1), (3, 2, 1), (3, 1, 1),
                                   (4, 1, 0), (8, 4, 2), (5, 2, 2), (6, 3, 1), (16, 8, 4))  # fmt: skip
        if rank == 1:
            n, c_in, length = sequence(rng, 2.0**18)
            size: tuple[int, ...] = (length,)
        else:
            n, c_in, size = _batch(rng), channels(rng, 8, 768), _plane(rng, 1, 80)
        c_out = channels(rng, 3, 512)
        output_padding = 1 if (k, stride) in ((3, 2), (5, 2)) and rng.random() < 0.7 else 0
        bias = spec(c_out) if rng.random() < 0.5 else None
        return make(
            f"aten.conv_transpose{rank}d." + ("default" if rank == 1 else "input"), spec(n, c_in, *size),
            spec(c_in, c_out, *[k] * rank), bias, [stride] * rank, [padding] * rank,
            [output_padding] * rank, 1, [1] * rank, weights=(1,) if bias is None else (1, 2),
        )  # fmt: skip

    return draw


def _group_norm(rng: Rng) -> Drawn:
    shape = list(image(rng, 2.0**21) if rng.random() < 0.7 else sequence(rng))
    groups = int(_pick(rng, 1, 1, 2, 4, 8, 8, 16, 32, shape[1]))
    shape[1] = max(1, round(shape[1] / groups)) * groups
    vector = spec(shape[1])
    return make(
        "aten.group_norm.default", spec(*shape), groups, vector, vector, 1e-5, weights=(1, 2)
    )


def _batch_norm_any(rng: Rng) -> Drawn:
    """Batch normalisation of sequences, of rows, or of images of any size."""
    form = rng.random()
    shape: Sequence[int] = sequence(rng)
    if form < 0.25:
        shape = (log_uniform(rng, 1, 1024), channels(rng, 8, 2048))
    elif form < 0.6:
        shape = (_batch(rng), log_uniform(rng, 2, 512), *_plane(rng, 2, 112))
    vectors = [spec(shape[1]) for _ in range(4)]
    return make(
        "aten.batch_norm.default", spec(*shape), *vectors, False, 0.1, 1e-5, True,
        weights=(1, 2, 3, 4),
    )  # fmt: skip


def _rows(rng: Rng, most: float = 2.0**21) -> tuple[int, ...]:
    """Rows of features: a matrix, batch by tokens, or a map with its channels last."""
    while True:
        width, form = log_uniform(rng, 8, 3072), rng.random()
        shape: tuple[int, ...] = (_batch(rng), log_uniform(rng, 1, 4096), width)
        if form < 0.3:
            shape = (_batch(rng), *_plane(rng, 2, 64), width)
        elif form < 0.4:
            shape = (log_uniform(rng, 1, 4096), width)
        if np.prod(shape) <= most:
            return shape


def _layer_norm_any(rng: Rng) -> Drawn:
    shape = _rows(rng)
    c = shape[-1]
    x = spec(*shape)
    if len(shape) == 3 and rng.random() < 0.25:
        x = transposed(shape, 1, 2)  # channels before tokens, as a convolution leaves them
    return make("aten.layer_norm.default", x, [c], spec(c), spec(c), 1e-5, weights=(1, 2))


def _rms_norm(rng: Rng) -> Drawn:
    shape = _rows(rng)
    return make("aten.rms_norm.default", spec(*shape), [shape[-1]], spec(shape[-1]), 1e-6, weights=(1,))  # fmt: skip


def _softmax_any(rng: Rng) -> Drawn:
    """Scores of heads, rows of any length, and channels."""
    form = rng.random()
    if form < 0.6:
        q = log_uniform(rng, 1, 768)
        shape = (_batch(rng), int(_pick(rng, 1, 2, 3, 4, 6, 8, 12, 16)), q, q if rng.random() < 0.7 else log_uniform(rng, 4, 768))  # fmt: skip
        return make("aten._softmax.default", spec(*shape), -1, False)
    if form < 0.8:
        return make("aten._softmax.default", spec(*_rows(rng)), -1, False)
    return make("aten._softmax.default", spec(*image(rng, 2.0**20)), 1, False)


def _log_softmax(rng: Rng) -> Drawn:
    return make(
        "aten._log_softmax.default", spec(log_uniform(rng, 1, 512), log_uniform(rng, 2, 8192)), -1, False
    )  # fmt: skip


def _linear_any(rng: Rng) -> Drawn:
    """Widths that are multiples of little, many rows of few features, and maps with channels last."""
    shape = _rows(rng)
    k, n = shape[-1], log_uniform(rng, 8, 4096)
    bias = [spec(n)] if rng.random() < 0.7 else []
    x = spec(*shape)
    if len(shape) == 3 and rng.random() < 0.3:
        x = transposed(shape, 1, 2)
    return make("aten.linear.default", x, spec(n, k), *bias, weights=range(1, 2 + len(bias)))


def _matmul_heads(rng: Rng) -> Drawn:
    """Products of heads: scores and weighted values."""
    b, h = _batch(rng), int(_pick(rng, 1, 2, 3, 4, 5, 6, 8, 12, 16))
    q, d = log_uniform(rng, 4, 768), int(_pick(rng, 8, 16, 20, 24, 32, 40, 48, 64, 64, 80, 96, 128))
    keys = q if rng.random() < 0.7 else log_uniform(rng, 4, 768)
    if rng.random() < 0.5:
        left = transposed((b, h, q, d), 1, 2) if rng.random() < 0.5 else spec(b, h, q, d)
        return make("aten.matmul.default", left, transposed((b, h, d, keys), 2, 3))
    right = transposed((b, h, keys, d), 1, 2) if rng.random() < 0.5 else spec(b, h, keys, d)
    return make("aten.matmul.default", spec(b, h, q, keys), right)


def _bmm_any(rng: Rng) -> Drawn:
    b = log_uniform(rng, 1, 256)
    m, k, n = (log_uniform(rng, 1, 512) for _ in range(3))
    left = transposed((b, m, k), 1, 2) if rng.random() < 0.2 else spec(b, m, k)
    right = transposed((b, k, n), 1, 2) if rng.random() < 0.4 else spec(b, k, n)
    return make("aten.bmm.default", left, right)


def _attention_any(rng: Rng) -> Drawn:
    """Any number of heads and width, heads copied or not, windows and single heads."""
    b, h = log_uniform(rng, 1, 64), log_uniform(rng, 1, 16)
    s, d = log_uniform(rng, 4, 640), log_uniform(rng, 8, 160)
    keys = s if rng.random() < 0.7 else log_uniform(rng, 4, 640)
    form = rng.random()
    shapes = [(b, h, n, d) for n in (s, keys, keys)]
    read = [spec(*x) if form < 0.4 else transposed(x, 1, 2) for x in shapes]
    causal = keys == s and rng.random() < 0.25
    mask = spec(_pick(rng, 1, b), _pick(rng, 1, h), s, keys) if not causal and rng.random() < 0.35 else None  # fmt: skip
    return make(
        "aten.scaled_dot_product_attention.default", *read, mask, 0.0, causal, scale=d**-0.5
    )


def _resized(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        n, c, h, w = image(rng, 2.0**19)
        factor = float(_pick(rng, 2, 2, 2, 4, 1.5, 0.5, 3))
        sizes = [max(1, int(side * factor)) for side in (h, w)]
        corners = [] if name == "nearest" else [bool(rng.random() < 0.3)]
        return make(f"aten.upsample_{name}2d.vec", spec(n, c, h, w), sizes, *corners, None)

    return draw


def _roll(rng: Rng) -> Drawn:
    n, c, h, w = image(rng, 2.0**20)
    shift = int(_pick(rng, 1, 2, 3, 4))
    return make("aten.roll.default", spec(n, h, w, c), [-shift, -shift], [1, 2])


_CONTIGUOUS = {"memory_format": "contiguous_format"}


def _strides_of(order: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor of this shape whose dimensions lie in memory in this order, slowest first."""
    strides, step = [0] * len(shape), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= shape[dimension]
    return tuple(strides)


def _copy_any(rng: Rng) -> Drawn:
    """Windows cut and put back, channels moved, parts of wider tensors, repeated rows, other types."""
    form = rng.random()
    if form < 0.3:
        k, c, n = int(_pick(rng, 2, 4, 7, 7, 8, 14)), channels(rng, 8, 512), _batch(rng)
        a, b = log_uniform(rng, 1, 12), log_uniform(rng, 1, 12)
        shape = (n, a, b, k, k, c) if rng.random() < 0.5 else (n, a, k, b, k, c)
        source = TensorSpec.of(shape, "float32", _strides_of((0, 1, 3, 2, 4, 5), shape))
    elif form < 0.5:
        n, c, h, w = image(rng, 2.0**20)
        order, shape = _pick(rng, ((0, 3, 1, 2), (n, h, w, c)), ((0, 2, 3, 1), (n, c, h, w)))
        source = TensorSpec.of(shape, "float32", _strides_of(order, shape))
    elif form < 0.7:
        b, s, c = row_shape(rng)[0], log_uniform(rng, 1, 512), channels(rng, 8, 512)
        source = TensorSpec.of((b, s, c), "float32", (s * c * 3, c * 3, c))
    elif form < 0.85:
        b, h, s, d = _batch(rng), log_uniform(rng, 1, 8), log_uniform(rng, 4, 512), int(_pick(rng, 32, 48, 64, 128))  # fmt: skip
        source = TensorSpec.of((b, h, 4, s, d), "float32", (h * s * d, s * d, 0, d, 1))
    else:
        to = _pick(rng, "float32", "int64", "bool")
        source = spec(*any_shape(rng), dtype=_pick(rng, "int64", "bool", "float32"))
        return make("aten._to_copy.default", source, dtype={"dtype": to})
    return make("aten.clone.default", source, memory_format=_CONTIGUOUS)


def _shuffled(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        r, c = int(_pick(rng, 2, 2, 3, 4)), log_uniform(rng, 1, 64)
        h, w = _plane(rng, 4, 112)
        shape = (_batch(rng), c * r * r, h, w) if name == "pixel_shuffle" else (_batch(rng), c, h * r, w * r)  # fmt: skip
        return make(f"aten.{name}.default", spec(*shape), r)

    return draw


def _index_select(rng: Rng) -> Drawn:
    rows, c = log_uniform(rng, 4, 4096), channels(rng, 4, 1024)
    return make("aten.index_select.default", spec(rows, c), 0, spec(log_uniform(rng, 1, 4096), dtype="int64"))  # fmt: skip


def _index(rng: Rng) -> Drawn:
    rows, c = log_uniform(rng, 4, 4096), log_uniform(rng, 1, 512)
    return make("aten.index.Tensor", spec(rows, c), [spec(log_uniform(rng, 1, 4096), dtype="int64")])  # fmt: skip


def _masked_fill(rng: Rng) -> Drawn:
    shape = (_batch(rng), log_uniform(rng, 1, 16), log_uniform(rng, 4, 512), log_uniform(rng, 4, 512))  # fmt: skip
    mask = shape if rng.random() < 0.5 else (1, 1, *shape[2:])
    return make("aten.masked_fill.Scalar", spec(*shape), spec(*mask, dtype="bool"), -1e9)


def _cat_any(rng: Rng) -> Drawn:
    """Halves of heads, sequences and channels, some of them parts of wider tensors."""
    form = rng.random()
    if form < 0.5:
        b, h, s, d = _batch(rng), log_uniform(rng, 1, 16), log_uniform(rng, 1, 512), int(_pick(rng, 8, 16, 32, 48, 64))  # fmt: skip
        strides = (h * s * 2 * d, s * 2 * d, 2 * d, 1)
        half = TensorSpec.of((b, h, s, d), "float32", strides)
        return make(
            "aten.cat.default", [half if rng.random() < 0.5 else spec(b, h, s, d), half], -1
        )
    count = int(rng.integers(2, 7))
    n, c, length = sequence(rng, 2.0**20 / count)
    return make("aten.cat.default", [spec(n, c, length)] * count, int(_pick(rng, 1, 2)))


def _pad_any(rng: Rng) -> Drawn:
    """Sequences on one side, maps by a lot, token maps with channels last."""
    form = rng.random()
    if form < 0.4:
        sides = [int(_pick(rng, 1, 2, 4, 8, 16, 64)), int(_pick(rng, 0, 0, 1, 4))]
        return make("aten.pad.default", spec(*sequence(rng)), sides)
    if form < 0.7:
        n, c, h, w = image(rng, 2.0**20)
        return make("aten.pad.default", spec(n, h, w, c), [0, 0, 0, *(int(_pick(rng, 0, 1, 3, 5)) for _ in range(1)), 0, int(_pick(rng, 0, 1, 3, 5))])  # fmt: skip
    k = int(_pick(rng, 1, 2, 3, 4))
    mode = _pick(rng, "constant", "reflect", "replicate")
    shape = image(rng, 2.0**20)
    if mode != "constant" and shape[2] <= k:
        mode = "constant"
    return make("aten.pad.default", spec(*shape), [k] * 4, mode)


def _pool1d(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        k = int(_pick(rng, 2, 2, 3, 4, 8))
        return make(f"aten.{name}.default", spec(*sequence(rng)), [k], [int(_pick(rng, 1, k))], [0])

    return draw


def _pool_wide(name: str) -> Callable[[Rng], Drawn]:
    """Large windows that overlap, and maps that are no squares."""

    def draw(rng: Rng) -> Drawn:
        k = int(_pick(rng, 2, 3, 3, 5, 7, 9, 13))
        shape = (_batch(rng), log_uniform(rng, 4, 512), *(max(k, side) for side in _plane(rng, 4, 112)))  # fmt: skip
        return make(f"aten.{name}.default", spec(*shape), [k, k], [int(_pick(rng, 1, 1, 2))] * 2, [k // 2 if k % 2 else 0] * 2)  # fmt: skip

    return draw


def _adaptive1d(rng: Rng) -> Drawn:
    return make("aten.adaptive_avg_pool1d.default", spec(*sequence(rng)), [int(_pick(rng, 1, 1, 4, 16))])  # fmt: skip


def _reduced_any(target: str, *before: Any, listed: bool = True) -> Callable[[Rng], Drawn]:
    """Over any dimension of a sequence, of rows, or of a map, or over both of a map's."""

    def draw(rng: Rng) -> Drawn:
        shape: Sequence[int] = _pick(rng, sequence, _rows, image)(rng)
        dimension = int(rng.integers(1, len(shape)))
        dimensions = [2, 3] if len(shape) == 4 and listed and rng.random() < 0.5 else [dimension]
        over: Any = dimensions if listed else dimensions[0]
        return make(target, spec(*shape), *before, over, bool(rng.random() < 0.5))

    return draw


def _map_shape(rng: Rng) -> tuple[int, ...]:
    """Any shape of an activation: a map, rows, a sequence, a vector; also of few elements."""
    form = rng.random()
    if form < 0.35:
        return (_batch(rng), log_uniform(rng, 2, 512), *_plane(rng, 1, 112))
    if form < 0.6:
        return _rows(rng)
    return sequence(rng) if form < 0.85 else (log_uniform(rng, 1, 64), log_uniform(rng, 1, 4096))


def _unary(
    target: str, *args: Any, dtype: str = "float32", **kwargs: Any
) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        return make(target, spec(*_map_shape(rng), dtype=dtype), *args, **kwargs)

    return draw


def _prelu(rng: Rng) -> Drawn:
    shape = (_batch(rng), log_uniform(rng, 2, 256), *_plane(rng, 2, 112))
    return make("aten.prelu.default", spec(*shape), spec(_pick(rng, 1, shape[1])), weights=(1,))


def _binary(name: str) -> Callable[[Rng], Drawn]:
    """Operands that are broadcast along any dimensions, numbers, and parts of wider tensors."""

    def draw(rng: Rng) -> Drawn:
        shape = _map_shape(rng)
        x, form = spec(*shape), rng.random()
        if form < 0.25:
            return make(f"aten.{name}.Tensor", x, spec(*shape))
        if form < 0.4:
            return make(f"aten.{name}.{'Scalar' if name == 'rsub' else 'Tensor'}", x, 1.0)
        if form < 0.6 and len(shape) > 2:  # a gate or a scale of each channel
            other = (*shape[:2], *[1] * (len(shape) - 2))
            return make(f"aten.{name}.Tensor", x, spec(*other))
        if form < 0.75:
            other = tuple(1 if rng.random() < 0.5 else side for side in shape)
            return make(f"aten.{name}.Tensor", x, spec(*other))
        if form < 0.9:
            wide = (*shape[:-1], 2 * shape[-1])
            strides = _strides_of(range(len(shape)), wide)
            part = TensorSpec.of(shape, "float32", strides)
            return make(f"aten.{name}.Tensor", part, _pick(rng, part, x))
        if len(shape) > 2:
            part = transposed(shape, 1, len(shape) - 1)
            return make(f"aten.{name}.Tensor", part, _pick(rng, part, x))
        return make(f"aten.{name}.Tensor", x, spec(shape[-1]))

    return draw


def _layers(name: str, gates: int) -> Callable[[Rng], Drawn]:
    """A whole recurrent layer over a sequence."""

    def draw(rng: Rng) -> Drawn:
        b, s = int(_pick(rng, 1, 1, 2, 4, 8)), log_uniform(rng, 4, 96)
        i, h = channels(rng, 16, 512), channels(rng, 16, 384)
        state = spec(1, b, h)
        states: Any = [state, state] if name == "lstm" else state
        weights = [spec(gates * h, i), spec(gates * h, h), spec(gates * h), spec(gates * h)]
        first = 3 if name == "lstm" else 2
        return make(
            f"aten.{name}.input", spec(b, s, i), states, weights, True, 1, 0.0, False, False, True,
            weights=range(first, first + 4),
        )  # fmt: skip

    return draw


def _topk(rng: Rng) -> Drawn:
    return make("aten.topk.default", spec(log_uniform(rng, 1, 256), log_uniform(rng, 16, 2048)), int(_pick(rng, 1, 2, 5, 8)))  # fmt: skip


BROAD: Mapping[str, tuple[str, int, Callable[[Rng], Drawn]]] = {
    "conv1d": ("conv1d", 188, _conv1d),
    "conv3d": ("conv3d", 28, _conv3d),
    "conv2d, depthwise": ("conv2d", 108, _conv2d_depthwise),
    "conv2d, grouped": ("conv2d", 80, _conv2d_grouped),
    "conv2d, dilated": ("conv2d", 36, _conv2d_dilated),
    "conv2d, any channels": ("conv2d", 94, _conv2d_any),
    "conv2d, narrow": ("conv2d", 64, _conv2d_narrow),
    "conv_transpose1d": ("conv_transpose1d", 44, _conv_transpose(1)),
    "conv_transpose2d": ("conv_transpose2d", 64, _conv_transpose(2)),
    "group_norm": ("group_norm", 58, _group_norm),
    "batch_norm, any shape": ("batch_norm", 44, _batch_norm_any),
    "layer_norm, any rows": ("layer_norm", 58, _layer_norm_any),
    "rms_norm": ("rms_norm", 28, _rms_norm),
    "softmax, of heads": ("softmax", 44, _softmax_any),
    "log_softmax": ("log_softmax", 18, _log_softmax),
    "linear, any widths": ("linear", 108, _linear_any),
    "matmul, of heads": ("matmul", 64, _matmul_heads),
    "bmm, any sizes": ("bmm", 44, _bmm_any),
    "attention, any heads": ("scaled_dot_product_attention", 58, _attention_any),
    "lstm": ("lstm", 28, _layers("lstm", 4)),
    "gru": ("gru", 28, _layers("gru", 3)),
    "upsample_nearest2d": ("upsample_nearest2d", 28, _resized("nearest")),
    "upsample_bilinear2d": ("upsample_bilinear2d", 36, _resized("bilinear")),
    "roll": ("roll", 22, _roll),
    "copy, windows and parts": ("copy", 94, _copy_any),
    "pixel_shuffle": ("pixel_shuffle", 18, _shuffled("pixel_shuffle")),
    "pixel_unshuffle": ("pixel_unshuffle", 8, _shuffled("pixel_unshuffle")),
    "index": ("index", 18, _index),
    "index_select": ("index_select", 14, _index_select),
    "masked_fill": ("masked_fill", 18, _masked_fill),
    "cat, halves and sequences": ("cat", 44, _cat_any),
    "pad, any sides": ("pad", 44, _pad_any),
    "max_pool1d": ("max_pool1d", 12, _pool1d("max_pool1d")),
    "avg_pool1d": ("avg_pool1d", 12, _pool1d("avg_pool1d")),
    "adaptive_avg_pool1d": ("adaptive_avg_pool1d", 14, _adaptive1d),
    "max_pool2d, wide windows": ("max_pool2d", 28, _pool_wide("max_pool2d")),
    "avg_pool2d, wide windows": ("avg_pool2d", 22, _pool_wide("avg_pool2d")),
    "mean, any dimension": ("mean", 28, _reduced_any("aten.mean.dim")),
    "sum, any dimension": ("sum", 18, _reduced_any("aten.sum.dim_IntList")),
    "amax": ("amax", 18, _reduced_any("aten.amax.default")),
    "argmax": ("argmax", 12, _reduced_any("aten.argmax.default", listed=False)),
    "logsumexp": ("logsumexp", 8, _reduced_any("aten.logsumexp.default")),
    "topk": ("topk", 12, _topk),
    "add, any operands": ("add", 64, _binary("add")),
    "mul, any operands": ("mul", 64, _binary("mul")),
    "sub, any operands": ("sub", 18, _binary("sub")),
    "div, any operands": ("div", 18, _binary("div")),
    "rsub": ("rsub", 12, _binary("rsub")),
    "maximum": ("maximum", 8, lambda rng: make("aten.maximum.default", *[spec(*_map_shape(rng))] * 2)),
    "prelu": ("prelu", 18, _prelu),
    "leaky_relu": ("leaky_relu", 18, _unary("aten.leaky_relu.default", 0.1)),
    "elu": ("elu", 18, _unary("aten.elu.default")),
    "mish": ("mish", 12, _unary("aten.mish.default")),
    "softplus": ("softplus", 12, _unary("aten.softplus.default")),
    "hardsigmoid": ("hardsigmoid", 12, _unary("aten.hardsigmoid.default")),
    "log_sigmoid": ("log_sigmoid", 8, _unary("aten.log_sigmoid.default")),
    "glu": ("glu", 12, lambda rng: make("aten.glu.default", spec(*_rows(rng)[:-1], 2 * log_uniform(rng, 8, 1024)), -1)),
    "silu, any shape": ("silu", 22, _unary("aten.silu.default")),
    "gelu, any shape": ("gelu", 22, _unary("aten.gelu.default")),
    "gelu of tanh, any shape": ("gelu", 12, _unary("aten.gelu.default", approximate="tanh")),
    "relu, any shape": ("relu", 28, _unary("aten.relu.default")),
    "sigmoid, any shape": ("sigmoid", 22, _unary("aten.sigmoid.default")),
    "tanh, any shape": ("tanh", 18, _unary("aten.tanh.default")),
    "hardtanh, any shape": ("hardtanh", 14, _unary("aten.hardtanh.default", 0.0, 6.0)),
    "hardswish, any shape": ("hardswish", 12, _unary("aten.hardswish.default")),
    "clamp": ("clamp", 12, _unary("aten.clamp.default", -1.0, 1.0)),
    "sqrt": ("sqrt", 8, _unary("aten.sqrt.default")),
    "reciprocal": ("reciprocal", 8, _unary("aten.reciprocal.default")),
    "sin": ("sin", 8, _unary("aten.sin.default")),
    "cos": ("cos", 8, _unary("aten.cos.default")),
    "erf": ("erf", 8, _unary("aten.erf.default")),
    "pow, any shape": ("pow", 12, _unary("aten.pow.Tensor_Scalar", 2.0)),
    "bitwise_not": ("bitwise_not", 8, _unary("aten.bitwise_not.default", dtype="bool")),
    "ones": ("ones", 8, lambda rng: make("aten.ones.default", list(_map_shape(rng)))),
}  # fmt: skip
"""As :data:`calibration.constructors.VARIANTS`: label, kind, how many at ``scale=1``, how."""
