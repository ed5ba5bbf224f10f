"""How one operator of each kind is drawn: shapes log-uniform over the range that models use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from simulator.model.operator import Operator, TensorSpec

Rng = np.random.Generator
Drawn = tuple[Operator, tuple[int, ...]]
"""An operator and which of its reads are weights."""


def log_uniform(rng: Rng, low: float, high: float) -> int:
    """An integer whose logarithm is uniform."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def channels(rng: Rng, low: int, high: int) -> int:
    """A channel count: mostly a multiple of 8 or 16 as in real models, sometimes anything."""
    step = int(rng.choice([1, 8, 16, 32], p=[0.1, 0.3, 0.3, 0.3]))
    return max(low, round(log_uniform(rng, low, high) / step) * step, 1)


def transposed(shape: Sequence[int], a: int, b: int, dtype: str = "float32") -> TensorSpec:
    """The spec of a tensor of this shape that is a transpose of a contiguous one."""
    stored = list(shape)
    stored[a], stored[b] = stored[b], stored[a]
    strides = [int(np.prod(stored[i + 1 :])) for i in range(len(stored))]
    strides[a], strides[b] = strides[b], strides[a]
    return TensorSpec.of(shape, dtype, strides)


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    """The spec of a contiguous tensor."""
    return TensorSpec(tuple(int(n) for n in shape), dtype)


def make(target: str, *args: Any, weights: Iterable[int] = (), **kwargs: Any) -> Drawn:
    """An operator and which of its reads are weights (:func:`calibration.kernels.make_operator`)."""
    from calibration.kernels import make_operator

    return make_operator(target, *args, **kwargs), tuple(weights)


# -- one function a kind ------------------------------------------------------------------------------


def _conv2d(rng: Rng) -> Drawn:
    n = int(rng.choice([1, 1, 2, 3, 4, 6, 8]))
    size = log_uniform(rng, 5, 230)
    c_in, c_out = channels(rng, 16, 2048), channels(rng, 16, 2048)
    form = rng.choice(["square", "pointwise", "strip", "depthwise", "grouped", "stem"],
                      p=[0.34, 0.34, 0.12, 0.08, 0.07, 0.05])  # fmt: skip
    groups, kernel = 1, (1, 1)
    if form in ("square", "grouped", "depthwise"):
        k = int(rng.choice([3, 3, 3, 5, 7]))
        kernel = (k, k)
    elif form == "strip":
        k = int(rng.choice([3, 7]))
        kernel = (1, k) if rng.random() < 0.5 else (k, 1)
    elif form == "stem":
        c_in, k, size = int(rng.choice([1, 3, 4])), int(rng.choice([3, 7])), max(size, 48)
        kernel, c_out = (k, k), channels(rng, 16, 128)
    if form == "depthwise":
        groups = c_out = c_in
    elif form == "grouped":
        groups = int(rng.choice([2, 4, 8, 32]))
        c_in, c_out = (max(1, round(c / groups)) * groups for c in (c_in, c_out))
    stride = 2 if rng.random() < 0.25 else 1
    padding = [k // 2 if rng.random() < 0.85 else 0 for k in kernel]
    bias = spec(c_out) if rng.random() < 0.3 else None
    weight = spec(c_out, c_in // groups, *kernel)
    return make(
        "aten.conv2d.default", spec(n, c_in, size, size), weight, bias, [stride] * 2, padding,
        [1, 1], groups, weights=(1,) if bias is None else (1, 2),
    )  # fmt: skip


def row_shape(rng: Rng) -> tuple[int, ...]:
    """Leading dimensions of a matrix of rows: one, or batch by sequence."""
    rows = log_uniform(rng, 1, 2048)
    if rows > 8 and rng.random() < 0.6:
        batch = int(rng.choice([1, 2, 4, 8]))
        return (batch, max(1, rows // batch))
    return (rows,)


def _linear(rng: Rng) -> Drawn:
    k, n = channels(rng, 32, 8192), channels(rng, 32, 8192)
    if rng.random() < 0.05:
        n = log_uniform(rng, 8192, 50257)
    bias = [spec(n)] if rng.random() < 0.8 else []
    weights = range(1, 2 + len(bias))
    return make("aten.linear.default", spec(*row_shape(rng), k), spec(n, k), *bias, weights=weights)


def _addmm(rng: Rng) -> Drawn:
    m, k, n = log_uniform(rng, 1, 2048), channels(rng, 32, 6144), channels(rng, 32, 6144)
    return make("aten.addmm.default", spec(n), spec(m, k), spec(k, n), weights=(0, 2))


def _matmul(rng: Rng) -> Drawn:
    m, k, n = log_uniform(rng, 1, 2048), channels(rng, 16, 4096), channels(rng, 16, 4096)
    right = transposed((k, n), 0, 1) if rng.random() < 0.5 else spec(k, n)
    return make("aten.mm.default", spec(m, k), right, weights=(1,))


def _bmm(rng: Rng) -> Drawn:
    b = log_uniform(rng, 1, 128)
    m, k, n = log_uniform(rng, 1, 1024), channels(rng, 16, 1024), channels(rng, 16, 1024)
    right = transposed((b, k, n), 1, 2) if rng.random() < 0.5 else spec(b, k, n)
    return make("aten.bmm.default", spec(b, m, k), right)


def _attention(rng: Rng) -> Drawn:
    b, heads = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4, 8, 12, 16]))
    s, d = log_uniform(rng, 8, 1024), int(rng.choice([32, 64, 64, 64, 80, 128]))
    length = s if rng.random() < 0.8 else log_uniform(rng, 1, 256)
    causal, masked = False, False
    if length == s:
        causal, masked = [(False, False), (True, False), (False, True)][int(rng.integers(3))]
    # Heads come out of a [batch, sequence, heads * d] projection: transposed, not copied.
    query, key, value = (transposed((b, heads, n, d), 1, 2) for n in (length, s, s))
    mask = None
    if masked:
        mask = spec(b, 1, s, s, dtype="bool" if rng.random() < 0.5 else "float32")
    return make(
        "aten.scaled_dot_product_attention.default", query, key, value, mask, 0.0, causal,
        scale=d**-0.5,
    )  # fmt: skip


def _layer_norm(rng: Rng) -> Drawn:
    c = channels(rng, 32, 4096)
    return make(
        "aten.layer_norm.default", spec(*row_shape(rng), c), [c], spec(c), spec(c), 1e-5,
        weights=(1, 2),
    )  # fmt: skip


def _softmax(rng: Rng) -> Drawn:
    rows, c = log_uniform(rng, 1, 16384), log_uniform(rng, 8, 4096)
    return make("aten._softmax.default", spec(rows, c), -1, False)


def image(rng: Rng, elements: float = 2.0**23) -> tuple[int, int, int, int]:
    """[N, C, H, W] of a feature map."""
    while True:
        size = log_uniform(rng, 4, 150)
        shape = (int(rng.choice([1, 2, 4, 8])), channels(rng, 8, 2048), size, size)
        if np.prod(shape) <= elements:
            return shape


def any_shape(rng: Rng) -> tuple[int, ...]:
    """A feature map, a matrix of rows, or a vector."""
    form = rng.random()
    if form < 0.4:
        return image(rng)
    if form < 0.8:
        return (*row_shape(rng), channels(rng, 16, 4096))
    return (log_uniform(rng, 1, 1 << 21),)


def _batch_norm(rng: Rng) -> Drawn:
    shape = image(rng)
    vectors = [spec(shape[1]) for _ in range(4)]
    # As graphs have it: what functionalisation makes of it is another kernel on GPUs.
    return make(
        "aten.batch_norm.default", spec(*shape), *vectors, False, 0.1, 1e-5, True,
        weights=(1, 2, 3, 4),
    )  # fmt: skip


def window(rng: Rng) -> tuple[tuple[int, ...], list[int], list[int], list[int]]:
    """A feature map, and kernel, stride and padding of a pooling of it."""
    shape = image(rng)
    k = int(min(rng.choice([2, 3, 3, 5]), shape[2]))
    stride = int(rng.choice([1, 2]))
    padding = k // 2 if k % 2 and rng.random() < 0.7 else 0
    return shape, [k, k], [stride, stride], [padding, padding]


def _max_pool2d(rng: Rng) -> Drawn:
    shape, kernel, stride, padding = window(rng)
    return make("aten.max_pool2d.default", spec(*shape), kernel, stride, padding)


def _avg_pool2d(rng: Rng) -> Drawn:
    shape, kernel, stride, padding = window(rng)
    return make("aten.avg_pool2d.default", spec(*shape), kernel, stride, padding)


def _adaptive_avg_pool2d(rng: Rng) -> Drawn:
    side = int(rng.choice([1, 1, 1, 7]))
    return make("aten.adaptive_avg_pool2d.default", spec(*image(rng)), [side, side])


def _mean(rng: Rng) -> Drawn:
    if rng.random() < 0.5:
        return make("aten.mean.dim", spec(*image(rng)), [2, 3], bool(rng.random() < 0.5))
    shape = (*row_shape(rng), channels(rng, 16, 4096))
    return make("aten.mean.dim", spec(*shape), [-1], bool(rng.random() < 0.5))


def _cat(rng: Rng) -> Drawn:
    count = int(rng.integers(2, 5))
    shape = image(rng, 2.0**22 / count)
    parts = [spec(shape[0], channels(rng, 8, shape[1] + 8), *shape[2:]) for _ in range(count)]
    if rng.random() < 0.3:
        rows = row_shape(rng)
        parts = [spec(*rows, channels(rng, 8, 1024)) for _ in range(count)]
        return make("aten.cat.default", parts, -1)
    return make("aten.cat.default", parts, 1)


def _embedding(rng: Rng) -> Drawn:
    vocabulary, width = log_uniform(rng, 64, 20000), channels(rng, 32, 1024)
    return make(
        "aten.embedding.default", spec(vocabulary, width), spec(*row_shape(rng), dtype="int64"),
        weights=(0,),
    )  # fmt: skip


def _copy(rng: Rng) -> Drawn:
    """A clone that changes the layout: heads put beside each other again, channels shuffled."""
    b, heads, s = int(rng.choice([1, 2, 4, 8])), int(rng.choice([2, 4, 8, 12, 16])), log_uniform(rng, 8, 512)  # fmt: skip
    d = int(rng.choice([32, 64, 128]))
    form = rng.random()
    if form < 0.6:
        source = transposed((b, s, heads, d), 1, 2)
    elif form < 0.8:
        source = transposed((b, s, heads * d), 1, 2)
    else:
        n, c, h, w = image(rng)
        source = transposed((n, 2, max(1, c // 2), h * w), 1, 2)
    return make("aten.clone.default", source, memory_format={"memory_format": "contiguous_format"})


def _lstm_cell(rng: Rng) -> Drawn:
    b, i, h = (
        int(rng.choice([1, 2, 4, 8, 16, 32])),
        channels(rng, 32, 2048),
        channels(rng, 32, 1536),
    )
    states = [spec(b, h), spec(b, h)]
    return make(
        "aten.lstm_cell.default", spec(b, i), states, spec(4 * h, i), spec(4 * h, h),
        spec(4 * h), spec(4 * h), weights=(3, 4, 5, 6),
    )  # fmt: skip


def _gru_cell(rng: Rng) -> Drawn:
    b, i, h = (
        int(rng.choice([1, 2, 4, 8, 16, 32])),
        channels(rng, 32, 2048),
        channels(rng, 32, 1536),
    )
    return make(
        "aten.gru_cell.default", spec(b, i), spec(b, h), spec(3 * h, i), spec(3 * h, h),
        spec(3 * h), spec(3 * h), weights=(2, 3, 4, 5),
    )  # fmt: skip


def _unary(
    target: str, *args: Any, dtype: str = "float32", **kwargs: Any
) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        return make(target, spec(*any_shape(rng), dtype=dtype), *args, **kwargs)

    return draw


def _gelu(rng: Rng) -> Drawn:
    approximate = "tanh" if rng.random() < 0.4 else "none"
    return make("aten.gelu.default", spec(*any_shape(rng)), approximate=approximate)


def _pow(rng: Rng) -> Drawn:
    return make("aten.pow.Tensor_Scalar", spec(*any_shape(rng)), float(rng.choice([2, 3, 0.5])))


def _binary(name: str, dtype: str = "float32") -> Callable[[Rng], Drawn]:
    """Equal shapes, a broadcast operand, or a number."""

    def draw(rng: Rng) -> Drawn:
        shape = any_shape(rng)
        form = rng.random()
        if form < 0.25 and dtype != "bool":
            overload = "Scalar" if name in ("eq", "ne", "lt", "le", "gt", "ge") else "Tensor"
            return make(f"aten.{name}.{overload}", spec(*shape, dtype=dtype), 2)
        other = shape
        weights: tuple[int, ...] = ()
        if form < 0.45 and len(shape) > 1:
            # A vector along the last dimension, or one row block for the whole batch.
            other = shape[-1:] if rng.random() < 0.5 else (1, *shape[1:])
            weights = (1,) if rng.random() < 0.5 else ()
        specs = spec(*shape, dtype=dtype), spec(*other, dtype=dtype)
        return make(f"aten.{name}.Tensor", *specs, weights=weights)

    return draw


def _scan(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        shape = (log_uniform(rng, 1, 64), log_uniform(rng, 4, 2048))
        return make(f"aten.{name}.default", spec(*shape, dtype="int64"), -1)

    return draw


def _gather(rng: Rng) -> Drawn:
    rows, length, taken = (
        log_uniform(rng, 1, 64),
        log_uniform(rng, 8, 2048),
        log_uniform(rng, 1, 1024),
    )
    source = spec(rows, max(length, taken), dtype="int64")
    return make("aten.gather.default", source, 1, spec(rows, taken, dtype="int64"))


def _where(rng: Rng) -> Drawn:
    shape = any_shape(rng)
    return make("aten.where.self", spec(*shape, dtype="bool"), spec(*shape), spec(*shape))


def _pad(rng: Rng) -> Drawn:
    sides = [int(n) for n in rng.integers(0, 3, size=4)]
    return make("aten.pad.default", spec(*image(rng)), sides)


def _stack(rng: Rng) -> Drawn:
    shape = (*row_shape(rng), channels(rng, 8, 1024))
    parts = [spec(*shape) for _ in range(log_uniform(rng, 2, 64))]
    return make("aten.stack.default", parts, int(rng.integers(2)))


def _arange(rng: Rng) -> Drawn:
    return make("aten.arange.default", log_uniform(rng, 1, 4096))


def _zeros(rng: Rng) -> Drawn:
    return make("aten.zeros.default", list(any_shape(rng)))


def _conv2d_small(rng: Rng) -> Drawn:
    """One to seven pixels a side: squeeze-and-excitation, the last stages, heads of detectors."""
    n, size = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 1, 1, 2, 3, 4, 7, 7]))
    c_in, c_out = channels(rng, 8, 2048), channels(rng, 8, 2048)
    k = 1 if size == 1 or rng.random() < 0.6 else 3
    bias = spec(c_out) if size == 1 or rng.random() < 0.3 else None
    return make(
        "aten.conv2d.default", spec(n, c_in, size, size), spec(c_out, c_in, k, k), bias, [1, 1],
        [k // 2] * 2, [1, 1], 1, weights=(1,) if bias is None else (1, 2),
    )  # fmt: skip


def _ceiling_pool(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        shape, kernel, stride, padding = window(rng)
        if name == "max_pool2d":
            arguments: list[Any] = [kernel, stride, padding, [1, 1], True]
        else:
            arguments = [kernel, stride, padding, True]
        return make(f"aten.{name}.default", spec(*shape), *arguments)

    return draw


def _pad_usual(rng: Rng) -> Drawn:
    """What TensorFlow-style convolutions pad: nothing, one side, or both alike."""
    forms = [[0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1], [1, 2, 1, 2], [2, 2, 2, 2]]
    sides = forms[int(rng.choice(len(forms), p=[0.4, 0.2, 0.2, 0.1, 0.1]))]
    return make("aten.pad.default", spec(*image(rng)), sides)


def _channels_last(shape: Sequence[int]) -> TensorSpec:
    n, c, h, w = shape
    return TensorSpec.of((n, c, h, w), "float32", (c * h * w, 1, w * c, c))


def _permuted(name: str, inputs: int) -> Callable[[Rng], Drawn]:
    """All inputs in the same order that is not the plain one: dense in memory all the same."""
    overload = "Tensor" if inputs > 1 else "default"

    def draw(rng: Rng) -> Drawn:
        if rng.random() < 0.5:
            spec = _channels_last(image(rng))
        else:
            b, s = int(rng.choice([1, 2, 4, 8])), log_uniform(rng, 4, 512)
            spec = transposed((b, s, channels(rng, 16, 1024)), 1, 2)
        return make(f"aten.{name}.{overload}", *[spec] * inputs)

    return draw


def _scaled_channels(rng: Rng) -> Drawn:
    """[n, h, w, c] * [c], and [n, c, h, w] * [n, c, 1, 1]: layer scale, excitation."""
    n, c, h, w = image(rng)
    if rng.random() < 0.5:
        return make("aten.mul.Tensor", spec(n, h, w, c), spec(c), weights=(1,))
    return make("aten.mul.Tensor", spec(n, c, h, w), spec(n, c, 1, 1))


def _mean_permuted(rng: Rng) -> Drawn:
    return make("aten.mean.dim", _channels_last(image(rng)), [2, 3], bool(rng.random() < 0.5))


def _cat_tokens(rng: Rng) -> Drawn:
    """A class token in front of patches that come out of a convolution transposed."""
    b, s, c = int(rng.choice([1, 2, 4, 8])), log_uniform(rng, 4, 512), channels(rng, 32, 1024)
    patches = transposed((b, s, c), 1, 2) if rng.random() < 0.7 else spec(b, s, c)
    token = TensorSpec.of((b, 1, c), "float32", (0, c, 1)) if b > 1 else spec(1, 1, c)
    return make("aten.cat.default", [token, patches], 1, weights=(0,))


def _layer_norm_permuted(rng: Rng) -> Drawn:
    n, c, h, w = image(rng)
    strides = (c * h * w, w, 1, h * w)
    return make(
        "aten.layer_norm.default", TensorSpec.of((n, h, w, c), "float32", strides), [c], spec(c),
        spec(c), 1e-6, weights=(1, 2),
    )  # fmt: skip


def _reduced(name: str, *before: Any) -> Callable[[Rng], Drawn]:
    """Over the last dimension, or over the one before it (tokens, watched items)."""

    def draw(rng: Rng) -> Drawn:
        rows, c = row_shape(rng), channels(rng, 16, 2048)
        shape = (*rows, c) if rng.random() < 0.5 else (*rows[:1], log_uniform(rng, 2, 64), c)
        if np.prod(shape) > 1 << 22:
            shape = (*rows[:1], c)
        dimension = -2 if len(shape) > 2 and rng.random() < 0.5 else -1
        target = f"aten.{name}"
        return make(target, spec(*shape), *before, [dimension], bool(rng.random() < 0.5))

    return draw


def _made_like(name: str, *value: Any) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        shape = (log_uniform(rng, 4, 1024), log_uniform(rng, 4, 1024))
        return make(f"aten.{name}.default", spec(*shape, dtype="int64"), *value)

    return draw


def _minimum(rng: Rng) -> Drawn:
    both = spec(*any_shape(rng), dtype="int64" if rng.random() < 0.5 else "float32")
    return make("aten.minimum.default", both, both)


def _conv2d_wide_kernel(rng: Rng) -> Drawn:
    """First layers: patches that do not overlap, and kernels of 7 to 11 with a stride of 4."""
    n, size = int(rng.choice([1, 2, 4, 8])), log_uniform(rng, 64, 256)
    k = int(rng.choice([4, 7, 8, 11, 14, 16]))
    stride, padding = (4, 2) if k in (7, 11) else (k, 0)
    c_out = channels(rng, 32, 1024)
    return make(
        "aten.conv2d.default", spec(n, 3, size, size), spec(c_out, 3, k, k), spec(c_out),
        [stride] * 2, [padding] * 2, [1, 1], 1, weights=(1, 2),
    )  # fmt: skip


def _linear_few(rng: Rng) -> Drawn:
    """Scores and probabilities: a few outputs."""
    k, n = channels(rng, 32, 4096), log_uniform(rng, 1, 32)
    rows = spec(*row_shape(rng), k)
    return make("aten.linear.default", rows, spec(n, k), spec(n), weights=(1, 2))


def _attention_biased(rng: Rng) -> Drawn:
    """A mask of each head, the same for the whole batch: relative positions."""
    b, heads = int(rng.choice([1, 2, 4, 8])), int(rng.choice([4, 8, 12, 16]))
    queries, d = log_uniform(rng, 8, 512), int(rng.choice([32, 64, 64, 128]))
    keys = queries if rng.random() < 0.7 else log_uniform(rng, 8, 512)
    query, key, value = (transposed((b, heads, n, d), 1, 2) for n in (queries, keys, keys))
    return make(
        "aten.scaled_dot_product_attention.default", query, key, value,
        spec(1, heads, queries, keys), 0.0, False, scale=1.0,
    )  # fmt: skip


def _cat_many(rng: Rng) -> Drawn:
    """Feature maps of all layers so far, and embeddings of all fields of a table."""
    count = log_uniform(rng, 5, 32)
    if rng.random() < 0.6:
        n, size = int(rng.choice([1, 2, 4])), int(rng.choice([7, 14, 28, 56]))
        growth = int(rng.choice([12, 24, 32, 48]))
        first = spec(n, channels(rng, 32, 512), size, size)
        return make("aten.cat.default", [first] + [spec(n, growth, size, size)] * count, 1)
    rows, width = log_uniform(rng, 1, 512), channels(rng, 8, 128)
    return make("aten.cat.default", [spec(rows, width)] * count, 1)


def _embedding_field(rng: Rng) -> Drawn:
    """Fields of a table: large vocabularies, narrow or of one number, a column of indices."""
    width = 1 if rng.random() < 0.3 else channels(rng, 8, 128)
    vocabulary = log_uniform(rng, 100, min(1e6, 2.0**23 / width))
    rows = log_uniform(rng, 1, 512)
    indices = spec(rows, dtype="int64")
    if rng.random() < 0.6:
        fields = log_uniform(rng, 2, 64)
        strided = TensorSpec.of((rows,), "int64", (fields,))
        indices = strided if rng.random() < 0.7 else spec(rows, fields, dtype="int64")
    return make("aten.embedding.default", spec(vocabulary, width), indices, weights=(0,))


KINDS: Mapping[str, tuple[int, Callable[[Rng], Drawn]]] = {
    "conv2d": (520, _conv2d),
    "linear": (260, _linear),
    "addmm": (120, _addmm),
    "matmul": (40, _matmul),
    "bmm": (80, _bmm),
    "scaled_dot_product_attention": (170, _attention),
    "lstm_cell": (80, _lstm_cell),
    "layer_norm": (90, _layer_norm),
    "batch_norm": (130, _batch_norm),
    "softmax": (60, _softmax),
    "max_pool2d": (70, _max_pool2d),
    "avg_pool2d": (70, _avg_pool2d),
    "adaptive_avg_pool2d": (50, _adaptive_avg_pool2d),
    "mean": (50, _mean),
    "cat": (100, _cat),
    "stack": (40, _stack),
    "pad": (40, _pad),
    "embedding": (60, _embedding),
    "copy": (100, _copy),
    "add": (130, _binary("add")),
    "mul": (100, _binary("mul")),
    "sub": (40, _binary("sub")),
    "div": (40, _binary("div")),
    "relu": (90, _unary("aten.relu.default")),
    "gelu": (60, _gelu),
    "silu": (40, _unary("aten.silu.default")),
    "sigmoid": (40, _unary("aten.sigmoid.default")),
    "tanh": (60, _unary("aten.tanh.default")),
    "hardswish": (30, _unary("aten.hardswish.default")),
    "hardtanh": (30, _unary("aten.hardtanh.default", 0.0, 6.0)),
    "exp": (30, _unary("aten.exp.default")),
    "neg": (20, _unary("aten.neg.default")),
    "rsqrt": (20, _unary("aten.rsqrt.default")),
    "pow": (40, _pow),
    "where": (25, _where),
    "eq": (20, _binary("eq", "int64")),
    "ne": (20, _binary("ne", "int64")),
    "le": (20, _binary("le", "int64")),
    "ge": (20, _binary("ge", "int64")),
    "bitwise_and": (20, _binary("__and__", "bool")),
    "cumsum": (20, _scan("cumsum")),
    "gather": (20, _gather),
    "arange": (15, _arange),
    "zeros": (20, _zeros),
    "gru_cell": (120, _gru_cell),
    "sum": (40, _reduced("sum.dim_IntList")),
    "linalg_vector_norm": (30, _reduced("linalg_vector_norm.default", 2.0)),
    "clamp_min": (20, _unary("aten.clamp_min.default", 1e-12)),
    "abs": (20, _unary("aten.abs.default")),
    "log": (20, _unary("aten.log.default")),
    "lt": (20, _binary("lt", "int64")),
    "gt": (20, _binary("gt", "int64")),
    "minimum": (20, _minimum),
    "full_like": (15, _made_like("full_like", 7)),
    "zeros_like": (15, _made_like("zeros_like")),
}
"""For each kind: how many shapes are drawn at ``scale=1``, and how."""

VARIANTS: Mapping[str, tuple[str, int, Callable[[Rng], Drawn]]] = {
    "conv2d, small images": ("conv2d", 120, _conv2d_small),
    "conv2d, again": ("conv2d", 200, _conv2d),
    "linear, again": ("linear", 120, _linear),
    "addmm, again": ("addmm", 40, _addmm),
    "matmul, again": ("matmul", 80, _matmul),
    "bmm, again": ("bmm", 60, _bmm),
    "attention, again": ("scaled_dot_product_attention", 120, _attention),
    "lstm_cell, again": ("lstm_cell", 60, _lstm_cell),
    "max_pool2d, ceil_mode": ("max_pool2d", 70, _ceiling_pool("max_pool2d")),
    "avg_pool2d, ceil_mode": ("avg_pool2d", 50, _ceiling_pool("avg_pool2d")),
    "pad, before convolutions": ("pad", 60, _pad_usual),
    "add, equal layouts": ("add", 50, _permuted("add", 2)),
    "mul, equal layouts": ("mul", 30, _permuted("mul", 2)),
    "mul, by channels": ("mul", 40, _scaled_channels),
    "gelu, equal layouts": ("gelu", 20, _permuted("gelu", 1)),
    "relu, equal layouts": ("relu", 20, _permuted("relu", 1)),
    "silu, equal layouts": ("silu", 20, _permuted("silu", 1)),
    "mean, permuted": ("mean", 30, _mean_permuted),
    "cat, tokens": ("cat", 40, _cat_tokens),
    "layer_norm, permuted": ("layer_norm", 20, _layer_norm_permuted),
    "conv2d, wide kernels": ("conv2d", 40, _conv2d_wide_kernel),
    "linear, few outputs": ("linear", 40, _linear_few),
    "attention, biased": ("scaled_dot_product_attention", 60, _attention_biased),
    "mean, over rows": ("mean", 30, _reduced("mean.dim")),
    "cat, many": ("cat", 60, _cat_many),
    "embedding, fields": ("embedding", 60, _embedding_field),
}
"""Forms that the first draws of a kind miss, and more of the kinds that are hard to predict: label,
kind, how many at ``scale=1``, how. Each has a random stream of its own."""
