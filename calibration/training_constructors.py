"""How one operator of a training step is drawn: backward kernels and optimiser steps.

Shapes are log-uniform as those of :mod:`calibration.constructors`. A set of their own, so that who only
infers does not measure them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    window,
)
from simulator.model.operator import TensorSpec

_MASK = [True, True, True]
_MAXIMAL_ELEMENTS = 2.0**23


def _conv2d_backward(rng: Rng) -> Drawn:
    n = int(rng.choice([1, 1, 2, 3, 4, 6, 8]))
    size = log_uniform(rng, 5, 150)
    c_in, c_out = channels(rng, 16, 1024), channels(rng, 16, 1024)
    form = rng.choice(["square", "pointwise", "depthwise", "grouped", "stem"],
                      p=[0.38, 0.36, 0.12, 0.06, 0.08])  # fmt: skip
    groups, k = 1, 1
    if form in ("square", "grouped", "depthwise"):
        k = int(rng.choice([3, 3, 3, 5, 7]))
    elif form == "stem":
        c_in, k, size = 3, int(rng.choice([3, 7])), max(size, 48)
        c_out = channels(rng, 16, 128)
    if form == "depthwise":
        groups = c_out = c_in
    elif form == "grouped":
        groups = int(rng.choice([2, 4, 8, 32]))
        c_in, c_out = (max(1, round(c / groups)) * groups for c in (c_in, c_out))
    stride = 2 if rng.random() < 0.25 else 1
    padding = k // 2 if rng.random() < 0.85 else 0
    out = (size + 2 * padding - k) // stride + 1
    # The first layer's input has no gradient.
    mask = [form != "stem", True, bool(rng.random() < 0.2)]
    return make(
        "aten.convolution_backward.default", spec(n, c_out, out, out), spec(n, c_in, size, size),
        spec(c_out, c_in // groups, k, k), [c_out] if mask[2] else [0], [stride] * 2, [padding] * 2,
        [1, 1], False, [0, 0], groups, mask, weights=(2,),
    )  # fmt: skip


def _batch_norm_training(rng: Rng) -> Drawn:
    shape = image(rng)
    vectors = [spec(shape[1]) for _ in range(4)]
    return make(
        "aten._native_batch_norm_legit_functional.default", spec(*shape), *vectors, True, 0.1, 1e-5,
        weights=(1, 2, 3, 4),
    )  # fmt: skip


def _batch_norm_backward(rng: Rng) -> Drawn:
    shape = image(rng)
    vector = spec(shape[1])
    return make(
        "aten.native_batch_norm_backward.default", spec(*shape), spec(*shape), vector, vector,
        vector, vector, vector, True, 1e-5, _MASK, weights=(2, 3, 4),
    )  # fmt: skip


def _layer_norm_backward(rng: Rng) -> Drawn:
    rows, c = row_shape(rng), channels(rng, 32, 4096)
    x, one = spec(*rows, c), spec(*rows, 1)
    return make(
        "aten.native_layer_norm_backward.default", x, x, [c], one, one, spec(c), spec(c), _MASK,
        weights=(4, 5),
    )  # fmt: skip


def _backward(name: str, *constants: float) -> Callable[[Rng], Drawn]:
    """Of the gradient and of what the forward kernel read or wrote, in equal shapes."""

    def draw(rng: Rng) -> Drawn:
        x = spec(*any_shape(rng))
        return make(f"aten.{name}.default", x, x, *constants)

    return draw


def _gelu_backward(rng: Rng) -> Drawn:
    x = spec(*any_shape(rng))
    approximate = "tanh" if rng.random() < 0.4 else "none"
    return make("aten.gelu_backward.default", x, x, approximate=approximate)


def _softmax_backward(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        import torch

        x = spec(log_uniform(rng, 1, 16384), log_uniform(rng, 8, 4096))
        return make(f"aten._{name}_backward_data.default", x, x, -1, torch.float32)

    return draw


def _log_softmax(rng: Rng) -> Drawn:
    return make("aten._log_softmax.default", spec(*_logits(rng)), 1, False)


def _logits(rng: Rng) -> tuple[int, int]:
    return log_uniform(rng, 1, 1024), log_uniform(rng, 8, 50257)


def _nll_loss(backward: bool) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        rows, classes = _logits(rng)
        x, target = spec(rows, classes), spec(rows, dtype="int64")
        if backward:
            return make("aten.nll_loss_backward.default", spec(), x, target, None, 1, -100, spec())
        return make("aten.nll_loss_forward.default", x, target, None, 1, -100)

    return draw


def _mse_loss(backward: bool) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        x = spec(*any_shape(rng))
        if backward:
            return make("aten.mse_loss_backward.default", spec(), x, x, 1)
        return make("aten.mse_loss.default", x, x, 1)

    return draw


def _pooled(rng: Rng) -> tuple[list[int], list[int], list[int], list[int], int]:
    shape, kernel, stride, padding = window(rng)
    out = (shape[2] + 2 * padding[0] - kernel[0]) // stride[0] + 1
    return list(shape), kernel, stride, padding, out


def _max_pool2d_backward(rng: Rng) -> Drawn:
    shape, kernel, stride, padding, out = _pooled(rng)
    written = (*shape[:2], out, out)
    return make(
        "aten.max_pool2d_with_indices_backward.default", spec(*written), spec(*shape), kernel,
        stride, padding, [1, 1], False, spec(*written, dtype="int64"),
    )  # fmt: skip


def _max_pool2d_indices(rng: Rng) -> Drawn:
    shape, kernel, stride, padding, _ = _pooled(rng)
    return make("aten.max_pool2d_with_indices.default", spec(*shape), kernel, stride, padding)


def _avg_pool2d_backward(rng: Rng) -> Drawn:
    shape, kernel, stride, padding, out = _pooled(rng)
    return make(
        "aten.avg_pool2d_backward.default", spec(*shape[:2], out, out), spec(*shape), kernel, stride,
        padding, False, True, None,
    )  # fmt: skip


def _adaptive_avg_pool2d_backward(rng: Rng) -> Drawn:
    shape = image(rng)
    side = int(rng.choice([1, 1, 1, 7]))
    return make(
        "aten._adaptive_avg_pool2d_backward.default", spec(*shape[:2], side, side), spec(*shape)
    )


def _attention(backward: bool) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        b, heads = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4, 8, 12, 16]))
        s, d = log_uniform(rng, 8, 1024), int(rng.choice([32, 64, 64, 64, 80, 128]))
        causal = bool(rng.random() < 0.4)
        packed = transposed((b, heads, s, d), 1, 2)
        stem = "aten._scaled_dot_product_flash_attention_for_cpu"
        if not backward:
            return make(f"{stem}.default", packed, packed, packed, 0.0, causal, scale=d**-0.5)
        sums = transposed((b, heads, s), 1, 2)
        return make(
            f"{stem}_backward.default", packed, packed, packed, packed, packed, sums, 0.0, causal,
            scale=d**-0.5,
        )  # fmt: skip

    return draw


def _embedding_dense_backward(rng: Rng) -> Drawn:
    vocabulary, width = log_uniform(rng, 64, 50257), channels(rng, 8, 1024)
    rows = row_shape(rng)
    return make(
        "aten.embedding_dense_backward.default", spec(*rows, width), spec(*rows, dtype="int64"),
        vocabulary, -1, False,
    )  # fmt: skip


def _dropout(rng: Rng) -> Drawn:
    return make("aten.native_dropout.default", spec(*any_shape(rng)), 0.1, True)


def _dropout_backward(rng: Rng) -> Drawn:
    shape = any_shape(rng)
    return make(
        "aten.native_dropout_backward.default", spec(*shape), spec(*shape, dtype="bool"), 1 / 0.9
    )


def _weight_gradient(rng: Rng) -> Drawn:
    """Gradient^T @ x of a linear layer."""
    rows, k, n = log_uniform(rng, 1, 2048), channels(rng, 32, 4096), channels(rng, 32, 4096)
    return make("aten.mm.default", transposed((n, rows), 0, 1), spec(rows, k))


def _input_gradient(rng: Rng) -> Drawn:
    """Gradient @ weight of a linear layer."""
    rows, k, n = log_uniform(rng, 1, 2048), channels(rng, 32, 4096), channels(rng, 32, 4096)
    return make("aten.mm.default", spec(rows, n), spec(n, k), weights=(1,))


def _linear_forward(rng: Rng) -> Drawn:
    """A linear layer as autograd sees it: the weight is transposed."""
    rows, k, n = log_uniform(rng, 1, 2048), channels(rng, 32, 6144), channels(rng, 32, 6144)
    return make(
        "aten.addmm.default", spec(n), spec(rows, k), transposed((k, n), 0, 1), weights=(0, 2)
    )


def _bmm_gradient(rng: Rng) -> Drawn:
    b = log_uniform(rng, 1, 128)
    m, k, n = log_uniform(rng, 1, 512), channels(rng, 16, 512), channels(rng, 16, 512)
    return make("aten.bmm.default", transposed((b, m, k), 1, 2), spec(b, k, n))


def _bias_gradient(rng: Rng) -> Drawn:
    rows, n = log_uniform(rng, 1, 4096), channels(rng, 16, 4096)
    return make("aten.sum.dim_IntList", spec(rows, n), [0], True)


def _sliced_backward(name: str) -> Callable[[Rng], Drawn]:
    def draw(rng: Rng) -> Drawn:
        rows, length, width = (
            log_uniform(rng, 1, 64),
            log_uniform(rng, 2, 256),
            channels(rng, 8, 512),
        )
        full = [rows, length, width]
        if name == "select_backward":
            return make(f"aten.{name}.default", spec(rows, width), full, 1, 0)
        taken = max(1, length // int(rng.integers(1, 5)))
        return make(f"aten.{name}.default", spec(rows, taken, width), full, 1, 0, taken, 1)

    return draw


def _parameter(rng: Rng) -> TensorSpec:
    """A vector, a matrix or a convolution's weight, up to 32 MiB."""
    form = rng.random()
    while True:
        if form < 0.4:
            shape: tuple[int, ...] = (channels(rng, 8, 4096),)
        elif form < 0.7:
            shape = (channels(rng, 16, 8192), channels(rng, 16, 4096))
        else:
            k = int(rng.choice([1, 1, 3, 3, 5, 7]))
            per_group = 1 if rng.random() < 0.15 else channels(rng, 3, 1024)
            shape = (channels(rng, 16, 2048), per_group, k, k)
        if np.prod(shape) <= _MAXIMAL_ELEMENTS:
            return spec(*shape)


def _sgd_step(rng: Rng) -> Drawn:
    x = _parameter(rng)
    if rng.random() < 0.35:
        return make("optim.sgd_step.default", x, x, lr=1e-3, weights=(0,))
    return make("optim.sgd_step.default", x, x, x, lr=1e-3, momentum=0.9, weights=(0, 2))


def _adam_step(rng: Rng) -> Drawn:
    x = _parameter(rng)
    decay = {"decoupled_weight_decay": 1e-2} if rng.random() < 0.5 else {}
    return make(
        "optim.adam_step.default", x, x, x, x, spec(), lr=1e-3, weights=(0, 2, 3, 4), **decay
    )


TRAINING: Mapping[str, tuple[str, int, Callable[[Rng], Drawn]]] = {
    "conv2d_backward": ("conv2d_backward", 170, _conv2d_backward),
    "batch_norm_training": ("batch_norm_training", 45, _batch_norm_training),
    "batch_norm_backward": ("batch_norm_backward", 45, _batch_norm_backward),
    "layer_norm_backward": ("layer_norm_backward", 40, _layer_norm_backward),
    "threshold_backward": ("threshold_backward", 35, _backward("threshold_backward", 0)),
    "hardtanh_backward": ("hardtanh_backward", 20, _backward("hardtanh_backward", 0.0, 6.0)),
    "hardswish_backward": ("hardswish_backward", 15, _backward("hardswish_backward")),
    "gelu_backward": ("gelu_backward", 28, _gelu_backward),
    "silu_backward": ("silu_backward", 20, _backward("silu_backward")),
    "sigmoid_backward": ("sigmoid_backward", 20, _backward("sigmoid_backward")),
    "tanh_backward": ("tanh_backward", 28, _backward("tanh_backward")),
    "softmax_backward": ("softmax_backward", 35, _softmax_backward("softmax")),
    "log_softmax": ("log_softmax", 20, _log_softmax),
    "log_softmax_backward": ("log_softmax_backward", 20, _softmax_backward("log_softmax")),
    "nll_loss_forward": ("nll_loss_forward", 10, _nll_loss(False)),
    "nll_loss_backward": ("nll_loss_backward", 15, _nll_loss(True)),
    "mse_loss": ("mse_loss", 10, _mse_loss(False)),
    "mse_loss_backward": ("mse_loss_backward", 10, _mse_loss(True)),
    "max_pool2d, with indices": ("max_pool2d", 15, _max_pool2d_indices),
    "max_pool2d_backward": ("max_pool2d_backward", 28, _max_pool2d_backward),
    "avg_pool2d_backward": ("avg_pool2d_backward", 20, _avg_pool2d_backward),
    "adaptive_avg_pool2d_backward": (
        "adaptive_avg_pool2d_backward",
        15,
        _adaptive_avg_pool2d_backward,
    ),
    "attention, with sums": ("scaled_dot_product_attention", 28, _attention(False)),
    "scaled_dot_product_attention_backward": (
        "scaled_dot_product_attention_backward",
        60,
        _attention(True),
    ),
    "embedding_dense_backward": ("embedding_dense_backward", 35, _embedding_dense_backward),
    "dropout": ("dropout", 28, _dropout),
    "dropout_backward": ("dropout_backward", 20, _dropout_backward),
    "matmul, weight gradients": ("matmul", 50, _weight_gradient),
    "matmul, input gradients": ("matmul", 40, _input_gradient),
    "addmm, transposed": ("addmm", 50, _linear_forward),
    "bmm, gradients": ("bmm", 28, _bmm_gradient),
    "sum, bias gradients": ("sum", 28, _bias_gradient),
    "select_backward": ("select_backward", 12, _sliced_backward("select_backward")),
    "slice_backward": ("slice_backward", 15, _sliced_backward("slice_backward")),
    "sgd_step": ("sgd_step", 60, _sgd_step),
    "adam_step": ("adam_step", 60, _adam_step),
}
"""Label, kind, how many at ``scale=1``, how. Each has a random stream of its own."""
