"""Closed forms of layers: parameters, outputs and products of a call, from its shapes and options alone.

Convolutions have ``(k Cin/g + bias) Cout`` parameters and outputs of ``floor((H + 2p - d(k-1) - 1)/s) + 1``; linear layers
``(in + bias) out`` parameters, normalisations ``2C`` and as many statistics, embeddings ``V d``, LSTMs ``4h(i+h) + 8h`` and
GRUs three in place of four, attention that is one function ``4d^2 + 4d``. Each form has the signature of torch's function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor
Lengths = int | Sequence[int]
Product = tuple[int, float]
"""Multiply-adds, and how many times as many the backward pass takes."""


class Call(NamedTuple):
    """What a closed form says of one call.

    Attributes:
        outputs: elements.
        parameters: (tensor or None, elements by the form).
        products: of matrices or windows.
        statistics: (tensor or None, elements by the form), running means and variances.
    """

    outputs: int
    parameters: Sequence[tuple[Tensor | None, int]] = ()
    products: Sequence[Product] = ()
    statistics: Sequence[tuple[Tensor | None, int]] = ()


def _convolution(dimensions: int, transposed: bool = False) -> Callable[..., Call]:
    def form(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Lengths = 1,
        padding: Lengths | str = 0,
        dilation: Lengths = 1,
        groups: int = 1,
    ) -> Call:
        strides, dilations = _each(stride, dimensions), _each(dilation, dimensions)
        kernel, lengths = weight.shape[2:], input.shape[-dimensions:]
        extent = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        if padding == "same":
            out = [math.ceil(n / s) for n, s in zip(lengths, strides, strict=True)]
        else:
            pads = _each(0 if isinstance(padding, str) else padding, dimensions)
            out = [
                (n + 2 * p - e - 1) // s + 1
                for n, p, e, s in zip(lengths, pads, extent, strides, strict=True)
            ]
        batch = math.prod(input.shape[: -dimensions - 1])
        channels, made = input.shape[-dimensions - 1], weight.shape[0]
        parameters = math.prod(kernel) * channels // groups * made
        outputs = batch * made * math.prod(out)
        macs = outputs * math.prod(kernel) * channels // groups
        return Call(outputs, [(weight, parameters), (bias, made)], [_product(macs, input, weight)])

    def transposed_form(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Lengths = 1,
        padding: Lengths = 0,
        output_padding: Lengths = 0,
        groups: int = 1,
        dilation: Lengths = 1,
    ) -> Call:
        kernel, lengths = weight.shape[2:], input.shape[-dimensions:]
        each = [_each(v, dimensions) for v in (stride, padding, output_padding, dilation)]
        out = [
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, k, s, p, o, d in zip(lengths, kernel, *each, strict=True)
        ]
        batch = math.prod(input.shape[: -dimensions - 1])
        channels, made = input.shape[-dimensions - 1], weight.shape[1] * groups
        parameters = math.prod(kernel) * channels * made // groups
        macs = batch * math.prod(lengths) * parameters
        parts = [(weight, parameters), (bias, made)]
        return Call(batch * made * math.prod(out), parts, [_product(macs, input, weight)])

    return transposed_form if transposed else form


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call:
    rows, (made, width) = math.prod(input.shape[:-1]), weight.shape
    products = [_product(rows * width * made, input, weight)]
    return Call(rows * made, [(weight, width * made), (bias, made)], products)


def _matmul(input: Tensor, other: Tensor, **_: Any) -> Call:
    width = input.shape[-1]
    one, two = input.shape[:-1], (*other.shape[:-2], *other.shape[-1:])
    if other.dim() == 1:
        one, two = input.shape, (1,)
        outputs = input.numel() // width
    else:
        batch = torch.broadcast_shapes(one[:-1], two[:-1]) if one else two[:-1]
        outputs = math.prod(batch) * (one[-1] if one else 1) * two[-1]
    parts = _parameters(input, other)
    return Call(outputs, parts, [_product(outputs * width, input, other)])


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, **_: Any) -> Call:
    rows, width = mat1.shape[-2:]
    outputs = math.prod(mat1.shape[:-2]) * rows * mat2.shape[-1]
    return Call(outputs, _parameters(input, mat1, mat2), [_product(outputs * width, mat1, mat2)])


def _parameters(*tensors: Tensor) -> list[tuple[Tensor, int]]:
    return [(t, math.prod(t.shape)) for t in tensors if isinstance(t, torch.nn.Parameter)]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    fused = dropout_p == 0 and (attn_mask is None or not attn_mask.requires_grad)
    outputs = math.prod(query.shape[:-1]) * value.shape[-1]
    return Call(outputs, products=_attended(pairs, query, key, value, fused))


def _attended(pairs: int, query: Tensor, key: Tensor, value: Tensor, fused: bool) -> list[Product]:
    """The two products of attention over pairs of query and key (of all heads)."""
    width, made = query.shape[-1], value.shape[-1]
    if fused:
        asked = any(t.requires_grad for t in (query, key, value))
        return [(pairs * width, 3.0 * asked), (pairs * made, 2.0 * asked)]
    through = query.requires_grad or key.requires_grad
    scores = _product(pairs * width, query, key)
    return [scores, (pairs * made, float(through + value.requires_grad))]


def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    **_: Any,
) -> Call:
    # [L, batch, d], [S, batch, kd], [S, batch, vd]; without a batch [L, d] and so on.
    d = embed_dim_to_check
    rows, columns = math.prod(query.shape[:-1]), math.prod(key.shape[:-1])
    weights = [in_proj_weight] * 3
    if in_proj_weight is None:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    products = []
    for given, count, weight in zip(
        (query, key, value), (rows, columns, columns), weights, strict=True
    ):
        assert weight is not None
        products.append(_product(count * d * given.shape[-1], given, weight))
    pairs = rows * (key.shape[0] + (bias_k is not None) + add_zero_attn)
    learns = any(w is not None and w.requires_grad for w in weights) or query.requires_grad
    fused = not need_weights and not dropout_p
    once = 2.5 if fused else 2.0
    products += [(2 * pairs * d, once * learns)]
    products.append((rows * d * d, float(learns + out_proj_weight.requires_grad)))
    held: list[tuple[Tensor | None, int]] = [(in_proj_bias, 3 * d), (out_proj_weight, d * d)]
    held += [(out_proj_bias, d), (bias_k, d), (bias_v, d)]
    if in_proj_weight is not None:
        held.append((in_proj_weight, 3 * d * d))
    else:
        widths = [t.shape[-1] for t in (query, key, value)]
        held += [(w, d * n) for w, n in zip(weights, widths, strict=True)]
    return Call(rows * d, held, products)


def _embedding(input: Tensor, weight: Tensor, *_: Any, **__: Any) -> Call:
    vocabulary, width = weight.shape
    return Call(math.prod(input.shape) * width, [(weight, vocabulary * width)])


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Call:
    channels = input.shape[1]
    return Call(
        math.prod(input.shape),
        [(weight, channels), (bias, channels)],
        statistics=[(running_mean, channels), (running_var, channels)],
    )


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Call:
    return _batch_norm(input, running_mean, running_var, weight, bias)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Call:
    width = math.prod(normalized_shape)
    # rms_norm has its epsilon where a bias would be
    bias = bias if isinstance(bias, Tensor) else None
    return Call(math.prod(input.shape), [(weight, width), (bias, width)])


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> Call:
    channels = input.shape[1]
    return Call(math.prod(input.shape), [(weight, channels), (bias, channels)])


def _recurrent(gates: int) -> Callable[..., Call]:
    """Layers of ``gates h (i + h)`` weights and as many biases twice: LSTM 4, GRU 3, plain ones 1."""

    def form(
        input: Tensor,
        hx: Any,
        weights: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Call:
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        made, hidden = states[0].shape[-1], states[-1].shape[-1]  # they differ under projection
        time = input.shape[1 if batch_first and input.dim() == 3 else 0]
        rows = math.prod(input.shape[:-1])
        directions = 2 if bidirectional else 1
        held: list[tuple[Tensor | None, int]] = []
        products: list[Product] = []
        remaining = iter(weights)
        for layer in range(num_layers):
            width = input.shape[-1] if layer == 0 else made * directions
            for _ in range(directions):
                of_input, of_state = next(remaining), next(remaining)
                one, two = gates * hidden * width, gates * hidden * made
                held += [(of_input, one), (of_state, two)]
                if has_biases:
                    held += [(next(remaining), gates * hidden), (next(remaining), gates * hidden)]
                above = float((layer > 0 or input.requires_grad) + of_input.requires_grad)
                later = rows // time * (time - 1)  # the first step's state needs no gradient
                products += [(rows * one, above), (later * two, 1.0 + of_state.requires_grad)]
                first = float(states[0].requires_grad + of_state.requires_grad)
                products.append((rows // time * two, first))
                if made != hidden:
                    projection = next(remaining)
                    held.append((projection, made * hidden))
                    products.append((rows * made * hidden, 1.0 + projection.requires_grad))
        return Call(rows * made * directions, held, products)

    return form


def _recurrent_cell(gates: int) -> Callable[..., Call]:
    def form(
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Call:
        state = hx if isinstance(hx, Tensor) else hx[0]
        hidden, width = state.shape[-1], input.shape[-1]
        rows = math.prod(input.shape[:-1])
        one, two = gates * hidden * width, gates * hidden * hidden
        held = [(w_ih, one), (w_hh, two), (b_ih, gates * hidden), (b_hh, gates * hidden)]
        products = [_product(rows * one, input, w_ih), _product(rows * two, state, w_hh)]
        return Call(rows * hidden, held, products)

    return form


def _pooling(dimensions: int, dilates: bool) -> Callable[..., Call]:
    def form(
        input: Tensor,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: Lengths = 0,
        *others: Any,
        dilation: Lengths = 1,
        ceil_mode: bool = False,
        **_: Any,
    ) -> Call:
        if dilates and others:
            dilation, *others_left = others
            others = tuple(others_left)
        if others:
            ceil_mode = bool(others[0])
        kernel = _each(kernel_size, dimensions)
        strides = _each(stride, dimensions) if stride else kernel
        pads, dilations = _each(padding, dimensions), _each(dilation, dimensions)
        out = 1
        for n, k, s, p, d in zip(
            input.shape[-dimensions:], kernel, strides, pads, dilations, strict=True
        ):
            room = n + 2 * p - d * (k - 1) - 1
            length = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (length - 1) * s >= n + p:  # a window begins within the input
                length -= 1
            out *= length
        return Call(math.prod(input.shape[:-dimensions]) * out)

    return form


def _adaptive_pooling(dimensions: int) -> Callable[..., Call]:
    def form(input: Tensor, output_size: Any, *_: Any, **__: Any) -> Call:
        asked = [output_size] * dimensions if isinstance(output_size, int) else list(output_size)
        lengths = input.shape[-dimensions:]
        out = [n if a is None else a for a, n in zip(asked, lengths, strict=True)]
        return Call(math.prod(input.shape[:-dimensions]) * math.prod(out))

    return form


def _each(value: Lengths, dimensions: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dimensions if len(values) == 1 else values


def _product(macs: int, one: Tensor, other: Tensor) -> Product:
    """A product whose backward pass is another one for each factor that needs a gradient."""
    return macs, float(one.requires_grad + other.requires_grad)


FORMS: Mapping[str, Callable[..., Call]] = {
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, transposed=True) for n in (1, 2, 3)},
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _addmm),
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
    "embedding": _embedding,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    "lstm_cell": _recurrent_cell(4),
    "gru_cell": _recurrent_cell(3),
    "rnn_tanh_cell": _recurrent_cell(1),
    "rnn_relu_cell": _recurrent_cell(1),
    **{f"max_pool{n}d": _pooling(n, dilates=True) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _pooling(n, dilates=False) for n in (1, 2, 3)},
    **{
        f"adaptive_{how}_pool{n}d": _adaptive_pooling(n)
        for how in ("avg", "max")
        for n in (1, 2, 3)
    },
}
"""By the name of torch's function. What is not here has no parameters and no products, or is not known."""


__all__ = ["FORMS", "Call", "Product"]
