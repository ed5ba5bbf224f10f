"""Work of an operator: floating-point operations and bytes, one formula per canonical kind.

FLOPs follow the conventions of ``torch.utils.flop_counter.FlopCounterMode``: a multiply-add counts
as two, biases and element-wise work (activations, normalisation, softmax, pooling) as none, causal
attention in full. (Products with a vector count here, which torch omits, and grouped backward
convolutions as their groups are, which torch takes for dense ones.) A backward convolution counts as
much as the forward one for each gradient that it makes of input and weight, a backward attention its
five products (it computes the scores again). Kinds without a formula here have no multiplications of
matrices that are known of and count 0; their time follows from the bytes.

Bytes are what the kernel must read and write once: every distinct element of its inputs (an
expanded dimension counts once) and every element of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.errors import InvalidInput
from simulator.graph import ITEM_BYTES, Operator, TensorSpec

Specs = Sequence[TensorSpec]
Formula = Callable[[Specs, Specs, Mapping[str, Any]], float]


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
    """Two operands: a multiply-add for every output element and combination of summed indices."""
    left, _, right = str(attributes.get("equation", "")).replace(" ", "").partition("->")
    operands = left.split(",")
    if len(operands) != 2:
        # More operands are contracted in an order that only the library knows.
        return 0.0
    lengths: dict[str, int] = {}
    for letters, spec in zip(operands, inputs, strict=True):
        # An ellipsis stands for leading dimensions, which are among the output's.
        head, _, tail = letters.partition("...")
        lengths.update(zip(head, spec.shape, strict=False))
        lengths.update(zip(reversed(tail), reversed(spec.shape), strict=False))
    summed = math.prod(n for letter, n in lengths.items() if letter not in right)
    return 2.0 * outputs[0].elements * summed


def _bilinear(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    # weight [out, in1, in2]: x1 @ weight, then with x2.
    rows, weight = math.prod(inputs[0].shape[:-1]), inputs[2]
    return 2.0 * rows * (weight.elements + weight.shape[0] * weight.shape[2])


def _kept(name: str) -> Formula:
    """What an operator carries with it, as fused ones do (:mod:`cost_models.fusion`)."""

    def formula(inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
        return float(attributes[name])

    return formula


_FLOPS: dict[str, Formula] = {
    "fused": _kept("flops"),
    "linear": _linear,
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


def flops(kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Floating-point operations of one call; 0 for kinds that multiply no matrices.

    Args:
        kind: canonical kind (:mod:`cost_models.canonical`).
        inputs: tensors as the kernel sees them, weights among them, in argument order.
        outputs: tensors it writes.
        attributes: stride, groups, ... as the operator carries them.

    Raises:
        InvalidInput: the shapes cannot belong to an operator of this kind.
    """
    return _apply(_FLOPS.get(kind, _none), kind, inputs, outputs, attributes)


def bytes_moved(kind: str, inputs: Specs, outputs: Specs, attributes: Mapping[str, Any]) -> float:
    """Bytes that one call reads and writes, each distinct element once. Arguments as `flops`.

    Raises:
        InvalidInput: the shapes cannot belong to an operator of this kind.
    """
    return _apply(_BYTES.get(kind, _streamed), kind, inputs, outputs, attributes)


def operator_flops(operator: Operator) -> float:
    """:func:`flops` of a graph's operator."""
    return flops(operator.kind, operator.inputs, operator.outputs, operator.attributes)


def operator_bytes(operator: Operator) -> float:
    """:func:`bytes_moved` of a graph's operator."""
    return bytes_moved(operator.kind, operator.inputs, operator.outputs, operator.attributes)


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
