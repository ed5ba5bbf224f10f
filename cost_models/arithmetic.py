"""Work of an operator: floating-point operations and bytes, one formula per canonical kind.

FLOPs follow the conventions of ``torch.utils.flop_counter.FlopCounterMode``: a multiply-add counts
as two, biases and element-wise work (activations, normalisation, softmax, pooling) as none, causal
attention in full. (Products with a vector count here, which torch omits, and grouped backward
convolutions as their groups are, which torch takes for dense ones.) A backward convolution counts as
much as the forward one for each gradient that it makes of input and weight, a backward attention its
five products (it computes the scores again). Dense linear algebra, distances and Fourier transforms count as
:mod:`cost_models.linear_algebra` says. Kinds that are known to stream (:mod:`cost_models.streaming`) count 0;
their time follows from the bytes. Of any other kind the work is unknown: not a number, never nothing.

Bytes are what the kernel must read and write once: every distinct element of its inputs (an
expanded dimension counts once) and every element of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cost_models import linear_algebra
from cost_models.streaming import streams
from simulator.errors import InvalidInput
from simulator.model.operator import ITEM_BYTES, Operator, TensorSpec

Specs = linear_algebra.Specs
Formula = linear_algebra.Formula


def _linear(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    x, weight = inputs[0].shape, inputs[1].shape
    return 2.0 * math.prod(x[:-1]) * math.prod(weight)


def _matmul(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return 2.0 * outputs[0].elements * inputs[0].shape[-1]


def _addmm(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return 2.0 * outputs[0].elements * inputs[1].shape[-1]


def _convolution(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # weight: [out channels, in channels / groups, *kernel]: its elements per output position.
    weight, output = inputs[1].shape, outputs[0].shape
    batch = output[0] if len(output) == len(weight) else 1
    positions = math.prod(output[-(len(weight) - 2) :])
    return 2.0 * batch * positions * math.prod(weight)


def _transposed_convolution(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # weight: [in channels, out channels / groups, *kernel]: its elements per input position.
    x, weight = inputs[0].shape, inputs[1].shape
    batch = x[0] if len(x) == len(weight) else 1
    positions = math.prod(x[-(len(weight) - 2) :])
    return 2.0 * batch * positions * math.prod(weight)


def _convolution_backward(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # grad_output, input, weight; each product pairs every weight with every output position.
    forward = _convolution((inputs[1], inputs[2]), (inputs[0],), attributes)
    return forward * sum(map(bool, attributes.get("output_mask", (True, True))[:2]))


def _transposed_convolution_backward(
    inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]
) -> float:
    forward = _transposed_convolution((inputs[1], inputs[2]), (inputs[0],), attributes)
    return forward * sum(map(bool, attributes.get("output_mask", (True, True))[:2]))


def _attention_backward(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # grad_output, query, key, value: scores again and gradients of query and key over E; gradients
    # of the scores and of value over Ev.
    query, value = inputs[1].shape, inputs[3].shape
    pairs = 2.0 * math.prod(query[:-1]) * value[-2]
    return pairs * (3 * query[-1] + 2 * value[-1])


def _rows_attention_backward(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # The same with [B, L, H, E], [B, S, H, E], [B, S, H, Ev].
    query, value = inputs[1].shape, inputs[3].shape
    return 2.0 * math.prod(query[:-1]) * value[-3] * (3 * query[-1] + 2 * value[-1])


def _attention(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # query [..., L, E], key [..., S, E], value [..., S, Ev]: query @ key^T, then @ value.
    query, value = inputs[0].shape, inputs[2].shape
    return 2.0 * math.prod(query[:-1]) * value[-2] * (query[-1] + value[-1])


def _recurrent(states: int) -> Formula:
    """Every weight matrix meets every (step, sample) pair once; ``states`` tensors of state."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        rows = math.prod(inputs[0].shape[:-1])
        matrices = sum(w.elements for w in inputs[1 + states :] if len(w.shape) == 2)
        return 2.0 * rows * matrices

    return formula


def _einsum(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Operands are contracted in pairs, in the order of ``path`` (positions of two, whose product goes to the end), from
    left to right without one. A pair that shares summed indices is a product of matrices, any other element-wise.
    """
    left, arrow, right = str(attributes.get("equation", "")).replace(" ", "").partition("->")
    lengths: dict[str, int] = {}
    operands = []
    for letters, spec in zip(left.split(","), inputs, strict=True):
        head, dots, tail = letters.partition("...")
        hidden = len(spec.shape) - len(head) - len(tail) if dots else 0
        # Dimensions of an ellipsis are counted from the last.
        indices = [*head, *(f"...{n}" for n in reversed(range(hidden))), *tail]
        for index, length in zip(indices, spec.shape, strict=True):
            lengths[index] = max(lengths.get(index, 1), length)
        operands.append(set(indices))
    if arrow:
        kept = {*right.replace(".", "")}
    else:
        kept = {index for index in lengths if left.count(index) == 1}
    kept |= {index for index in lengths if index.startswith("...")}
    path = list(attributes.get("path") or ())
    total = 0.0
    for step in range(len(operands) - 1):
        one, two = sorted(path[2 * step : 2 * step + 2]) if path else (0, 1)
        second, begun = operands.pop(two), operands.pop(one)
        wanted = kept.union(*operands)
        if begun & second - wanted:
            total += 2.0 * math.prod(lengths[i] for i in (begun | second) & wanted | begun & second)
        product = (begun | second) & wanted
        operands.insert(len(operands) if path else 0, product)
    return total


def _bilinear(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # weight [out, in1, in2]: x1 @ weight, then with x2.
    rows, weight = math.prod(inputs[0].shape[:-1]), inputs[2]
    return 2.0 * rows * (weight.elements + weight.shape[0] * weight.shape[2])


def _summed_products(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # addbmm: what is added, then [b, n, m] and [b, m, p], whose products are added up.
    return 2.0 * inputs[1].elements * inputs[2].shape[-1]


def _outer(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return 2.0 * outputs[0].elements


def _grouped(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Groups along rows, columns or matrices; of two matrices those of the inner dimension, which they divide."""
    groups = outputs[0].shape[0] if len(inputs[0].shape) == len(inputs[1].shape) == 2 else 1
    return _matmul(inputs, outputs, attributes) / max(groups, 1)


def _sequence_convolution(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # conv_tbc: weight [kernel, in channels, out channels].
    return 2.0 * outputs[0].elements * math.prod(inputs[1].shape[:2])


def _whole_attention(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Self-attention with its projections, or a whole encoder layer: matrices of the width E meet every token."""
    *batch, length, width = inputs[0].shape
    weights = sum(w.elements for w in inputs[1:] if len(w.shape) == 2 and width in w.shape)
    tokens = math.prod(batch) * length
    return 2.0 * tokens * weights + 4.0 * tokens * length * width


def _rows_attention(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # query [B, L, H, E], key [B, S, H, E], value [B, S, H, Ev].
    query, key, value = (spec.shape for spec in inputs[:3])
    return 2.0 * math.prod(query[:-1]) * key[-3] * (query[-1] + value[-1])


def _linear_backward(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # input, grad_output, weight.
    return 4.0 * math.prod(inputs[1].shape[:-1]) * inputs[2].elements


def _kept(name: str) -> Formula:
    """What an operator carries with it, as fused ones do (:mod:`cost_models.fusion`)."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        return float(attributes[name])

    return formula


_FLOPS: dict[str, Formula] = {
    **linear_algebra.FLOPS,
    "fused": _kept("flops"),
    "linear": _linear,
    "linear_backward": _linear_backward,
    **dict.fromkeys(
        [
            "int_mm",
            "scaled_mm",
            "scaled_mm_v2",
            "weight_int8pack_mm",
            "weight_int4pack_mm",
            "weight_int4pack_mm_for_cpu",
            "weight_int4pack_mm_with_scales_and_zeros",
            "dyn_quant_matmul_4bit",
            "mixed_dtypes_linear",
            "mkldnn_linear",
            "sparse_semi_structured_linear",
            "sparse_semi_structured_mm",
        ],
        _matmul,
    ),
    **dict.fromkeys(["grouped_mm", "scaled_grouped_mm", "scaled_grouped_mm_v2"], _grouped),
    "addbmm": _summed_products,
    "addr": _outer,
    "addmm_activation": _addmm,
    **dict.fromkeys(
        [
            "conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv2d_forward",
            "slow_conv3d_forward",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
            "nnpack_spatial_convolution",
            "cudnn_convolution_relu",
            "cudnn_convolution_add_relu",
            "miopen_convolution",
            "miopen_convolution_relu",
            "miopen_convolution_add_relu",
            "miopen_depthwise_convolution",
            "mps_convolution",
        ],
        _convolution,
    ),
    **dict.fromkeys(
        [
            "slow_conv_transpose2d",
            "slow_conv_transpose3d",
            "cudnn_convolution_transpose",
            "miopen_convolution_transpose",
            "mps_convolution_transpose",
        ],
        _transposed_convolution,
    ),
    "slow_conv2d_backward": _convolution_backward,
    "conv_tbc": _sequence_convolution,
    **dict.fromkeys(["multi_head_attention", "transformer_encoder_layer_fwd"], _whole_attention),
    **dict.fromkeys(["flash_attention_forward", "efficient_attention_forward"], _rows_attention),
    **dict.fromkeys(
        ["flash_attention_backward", "efficient_attention_backward"], _rows_attention_backward
    ),
    **dict.fromkeys(["cudnn_rnn", "miopen_rnn"], _recurrent(0)),
    "matmul": _matmul,
    "bmm": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": _addmm,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed_convolution,
    "conv_transpose2d": _transposed_convolution,
    "conv_transpose3d": _transposed_convolution,
    **{f"conv{n}d_backward": _convolution_backward for n in (1, 2, 3)},
    **{f"conv_transpose{n}d_backward": _transposed_convolution_backward for n in (1, 2, 3)},
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_backward": _attention_backward,
    "lstm": _recurrent(2),
    "lstm_cell": _recurrent(2),
    "gru": _recurrent(1),
    "gru_cell": _recurrent(1),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    "rnn_tanh_cell": _recurrent(1),
    "rnn_relu_cell": _recurrent(1),
    "bilinear": _bilinear,
    "einsum": _einsum,
}


def _streamed(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return float(sum(map(_distinct_bytes, inputs)) + sum(spec.bytes for spec in outputs))


def _looked_up(table: int) -> Formula:
    """Of input ``table`` only the rows that reach the output are read."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        others = sum(_distinct_bytes(spec) for i, spec in enumerate(inputs) if i != table)
        written = sum(spec.bytes for spec in outputs)
        read = min(written, inputs[table].bytes) if inputs else 0
        return float(others + read + written)

    return formula


def _only_shape_of(unread: int) -> Formula:
    """Of input ``unread`` only the shape is looked at."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        return _streamed(
            [spec for i, spec in enumerate(inputs) if i != unread], outputs, attributes
        )

    return formula


def _written(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Tensors made from nothing: of an input only the shape is looked at."""
    return float(sum(spec.bytes for spec in outputs))


_BYTES: dict[str, Formula] = {
    "fused": _kept("bytes"),
    **dict.fromkeys(
        [
            "max_pool2d_backward",
            "max_pool3d_backward",
            "avg_pool2d_backward",
            "avg_pool3d_backward",
            "adaptive_avg_pool2d_backward",
            "nll_loss_backward",
        ],
        _only_shape_of(1),
    ),
    "embedding": _looked_up(0),
    "gather": _looked_up(0),
    "index": _looked_up(0),
    "index_select": _looked_up(0),
    **dict.fromkeys(
        [
            "arange",
            "full",
            "zeros",
            "ones",
            "empty",
            "full_like",
            "zeros_like",
            "ones_like",
            "empty_like",
            "new_full",
            "new_zeros",
            "new_ones",
            "new_empty",
            "scalar_tensor",
            "eye",
            "linspace",
        ],
        _written,
    ),
}


def is_known(kind: str) -> bool:
    """Whether the work of a kind is known: it has a formula or streams."""
    return kind in _FLOPS or streams(kind)


def flops(kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Floating-point operations of one call; 0 for kinds that stream, NaN for those of which nothing is known.

    Args:
        kind: canonical kind (:mod:`cost_models.canonical`).
        inputs: tensors as the kernel sees them, weights among them, in argument order.
        outputs: tensors it writes.
        attributes: stride, groups, ... as the operator carries them.

    Raises:
        InvalidInput: the shapes cannot belong to an operator of this kind.
    """
    formula = _FLOPS.get(kind, _none if streams(kind) else _unknown)
    return _apply(formula, kind, inputs, outputs, attributes)


def priced_flops(kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """:func:`flops`, and where they are unknown what a price is made of: as many as the product of two square matrices
    takes that have as many elements as the largest tensor, so that what is unknown is not cheap.
    """
    found = flops(kind, inputs, outputs, attributes)
    if not math.isnan(found):
        return found
    return 2.0 * max((spec.elements for spec in (*inputs, *outputs)), default=0) ** 1.5


def bytes_moved(kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Bytes that one call reads and writes, each distinct element once. Arguments as `flops`.

    Raises:
        InvalidInput: the shapes cannot belong to an operator of this kind.
    """
    return _apply(_BYTES.get(kind, _streamed), kind, inputs, outputs, attributes)


def operator_flops(operator: Operator) -> float:
    """:func:`flops` of a graph's operator; NaN where nothing is known of its kind."""
    return flops(operator.kind, operator.inputs, operator.outputs, operator.attributes)


def operator_priced_flops(operator: Operator) -> float:
    """:func:`priced_flops` of a graph's operator."""
    return priced_flops(operator.kind, operator.inputs, operator.outputs, operator.attributes)


def operator_bytes(operator: Operator) -> float:
    """:func:`bytes_moved` of a graph's operator."""
    return bytes_moved(operator.kind, operator.inputs, operator.outputs, operator.attributes)


def _unknown(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return math.nan


def _none(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    return 0.0


def _apply(
    formula: Formula, kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]
) -> float:
    try:
        return formula(inputs, outputs, attributes)
    except InvalidInput:
        raise
    except (IndexError, ValueError):
        shapes = ", ".join(str(list(spec.shape)) for spec in inputs)
        raise InvalidInput(f"Inputs {shapes or '(none)'} do not fit kind '{kind}'") from None


def _distinct_bytes(spec: TensorSpec) -> int:
    """Bytes of the distinct elements: an expanded dimension (stride 0) is one element."""
    if spec.strides is None:
        return spec.bytes
    lengths = [n if step or not n else 1 for n, step in zip(spec.shape, spec.strides, strict=True)]
    return math.prod(lengths) * ITEM_BYTES[spec.dtype]
