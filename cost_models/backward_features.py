"""Features of the kernels that only training has: what their shapes mean.

A backward kernel reads the gradient of what the forward kernel wrote, so its features are those of the
forward kernel, found in other places of its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Shapes = tuple[tuple[int, ...], ...]
Values = dict[str, float]
Features = Callable[[Shapes, Shapes, Mapping[str, Any]], Values]

INT64_INPUTS: Mapping[str, tuple[int, ...]] = {
    "embedding_dense_backward": (1,),
    "max_pool2d_backward": (2,),
    "nll_loss_forward": (1,),
    "nll_loss_backward": (2,),
}
"""Positions of index tensors among the inputs."""


def _log2(value: float) -> float:
    return math.log2(value) if value >= 1 else -1.0


def _convolution_backward(forward: Features) -> Features:
    def values(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
        gradient, x, weight = inputs[:3]
        found = forward((x, weight), (gradient,), attributes)
        del found["bias"]  # in the mask
        return found

    return values


def _attention_backward(forward: Features) -> Features:
    def values(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
        # gradient, query, key, value, output, sums of exponentials, perhaps a mask
        return forward((*inputs[1:4], *inputs[6:]), (inputs[0],), attributes)

    return values


def _channels(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    """Batch normalisation: a row of every channel in every image."""
    n, c, *size = inputs[0]
    plane = math.prod(size)
    return {
        "channels": _log2(c), "plane": _log2(plane), "rows": _log2(n * c),
        "per_channel": _log2(n * plane), "plane_16": float(plane % 16),
    }  # fmt: skip


def _normalised(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    length = int(attributes.get("normalized_size", inputs[0][-1] if inputs[0] else 1))
    rows = math.prod(inputs[0]) // max(length, 1)
    return {"length": _log2(length), "rows": _log2(rows), "length_16": float(length % 16)}


def _pool_backward(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    window = math.prod(attributes.get("kernel_size", [1]))
    return {
        "window": _log2(window), "window_writes": _log2(math.prod(inputs[0]) * window),
        "planes": _log2(math.prod(inputs[0][:2])), "written": _log2(math.prod(outputs[0])),
    }  # fmt: skip


def _table_gradient(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    return {
        "table": _log2(math.prod(outputs[0])), "width": _log2(outputs[0][-1]),
        "rows": _log2(math.prod(inputs[1])),
    }  # fmt: skip


def _parameter(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    return {"parameters": _log2(math.prod(inputs[0])), "states": float(len(inputs) - 2)}


def backward_features(convolution: Features, attention: Features) -> Mapping[str, Features]:
    """By kind, made of the features of the forward kernels."""
    return {
        "conv2d_backward": _convolution_backward(convolution),
        "scaled_dot_product_attention_backward": _attention_backward(attention),
        "batch_norm_training": _channels,
        "batch_norm_backward": _channels,
        "layer_norm_backward": _normalised,
        "softmax_backward": _normalised,
        "log_softmax_backward": _normalised,
        "max_pool2d_backward": _pool_backward,
        "avg_pool2d_backward": _pool_backward,
        "adaptive_avg_pool2d_backward": _pool_backward,
        "embedding_dense_backward": _table_gradient,
        "sgd_step": _parameter,
        "adam_step": _parameter,
    }
