"""Which canonical kind an ONNX operator is, and its arguments by the names of the ATen schema.

Operators that are not here are of a kind ``onnx.<name>``, of which cost models know nothing: they are priced as
extrapolated, with a wide interval, as unknown operators of traced models are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulator.model.operator import TensorSpec

_SAME_NAME = [
    "relu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "abs",
    "neg",
    "erf",
    "floor",
    "ceil",
    "round",
    "sign",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "reciprocal",
    "softplus",
    "elu",
    "selu",
    "celu",
    "mish",
    "hardswish",
    "hardsigmoid",
    "where",
]
_RENAMED = {
    "LeakyRelu": "leaky_relu",
    "PRelu": "prelu",
    "Not": "logical_not",
    "Swish": "silu",
    "IsNaN": "isnan",
    "Tile": "repeat",
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Min": "minimum",
    "Max": "maximum",
    "Mod": "remainder",
    "Equal": "eq",
    "Less": "lt",
    "Greater": "gt",
    "LessOrEqual": "le",
    "GreaterOrEqual": "ge",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}
_REDUCTIONS = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceProd": "prod",
    "ReduceLogSumExp": "logsumexp",
    "ReduceL2": "linalg_vector_norm",
}


class Node(Protocol):
    """What a mapping may ask of an ONNX node."""

    op_type: str

    @property
    def inputs(self) -> Sequence[str]:
        """Names of its inputs, without those that are left out at the end; ``""`` for one left out before."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]:
        """As ONNX has them, and ``constant``: for each input whether it is one."""
        ...

    @property
    def version(self) -> int:
        """Version of the operator set."""
        ...

    def spec(self, position: int) -> TensorSpec:
        """Shape and element type of an input."""
        ...

    def numbers(self, position: int) -> list[float] | None:
        """The elements of a small constant input; None where it is none, or not there."""
        ...


@dataclass(frozen=True)
class Call:
    """What a node computes.

    Attributes:
        kind: canonical.
        inputs: positions of the inputs that the kernel reads, in its order.
        arguments: by ATen name.
        specs: of inputs that the kernel sees otherwise than they are stored, by place in ``inputs``.
    """

    kind: str
    inputs: Sequence[int]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    specs: Mapping[int, TensorSpec] = field(default_factory=dict)


def call_of(node: Node) -> Call:
    """The canonical call of a node, whose inputs are there and have shapes."""
    given = [position for position, name in enumerate(node.inputs) if name]
    if node.op_type in _CALLS:
        return _CALLS[node.op_type](node, given)
    kind = (
        node.op_type.lower() if node.op_type.lower() in _SAME_NAME else _RENAMED.get(node.op_type)
    )
    if kind is None:
        return Call(f"onnx.{node.op_type}", given)
    return Call(kind, _without_numbers(node, given))


def _without_numbers(node: Node, given: Sequence[int]) -> list[int]:
    """Operands that are tensors: in ATen a constant of one element is a number, which no kernel reads."""
    kept = [p for p in given if len(node.spec(p).shape) > 1 or node.spec(p).elements > 1]
    numbers = [p for p in given if p not in kept and node.numbers(p) is None]
    return sorted([*kept, *numbers]) or [given[0]]


def _convolution(node: Node, given: Sequence[int]) -> Call:
    spatial = len(node.spec(1).shape) - 2
    stem = "conv_transpose" if node.op_type == "ConvTranspose" else "conv"
    arguments = _window(node, spatial, node.spec(1).shape[2:])
    arguments["groups"] = int(node.attributes.get("group", 1))
    if stem != "conv":
        arguments["output_padding"] = _list(node, "output_padding", spatial, 0)
    return Call(f"{stem}{spatial}d", given, arguments)


def _pool(node: Node, given: Sequence[int]) -> Call:
    spatial = len(node.spec(0).shape) - 2
    stem = "max_pool" if node.op_type == "MaxPool" else "avg_pool"
    kernel = _list(node, "kernel_shape", spatial, 1)
    arguments = _window(node, spatial, kernel)
    arguments |= {"kernel_size": kernel, "ceil_mode": bool(node.attributes.get("ceil_mode", 0))}
    if stem == "avg_pool":
        del arguments["dilation"]
    return Call(f"{stem}{spatial}d", given, arguments)


def _window(node: Node, spatial: int, kernel: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation and leading padding."""
    dilation = _list(node, "dilations", spatial, 1)
    padding = _list(node, "pads", 2 * spatial, 0)[:spatial]
    if str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
        padding = [step * (length - 1) // 2 for step, length in zip(dilation, kernel, strict=True)]
    return {"stride": _list(node, "strides", spatial, 1), "padding": padding, "dilation": dilation}


def _list(node: Node, name: str, length: int, default: int) -> list[int]:
    value = node.attributes.get(name)
    found = [int(n) for n in value] if isinstance(value, list | tuple) else []
    return found if len(found) == length else [default] * length


def _global_pool(node: Node, given: Sequence[int]) -> Call:
    stem = "avg" if node.op_type == "GlobalAveragePool" else "max"
    return Call(f"adaptive_{stem}_pool{len(node.spec(0).shape) - 2}d", given)


def _gemm(node: Node, given: Sequence[int]) -> Call:
    known = node.attributes
    plain = (
        known.get("alpha", 1.0) == 1.0 and known.get("beta", 1.0) == 1.0 and not known.get("transA")
    )
    vector = len(given) < 3 or len(node.spec(2).shape) == 1
    if plain and vector and known.get("transB"):
        return Call("linear", given)
    specs = {}
    for place, key in ((1, "transA"), (2, "transB")):
        if known.get(key):
            stored = node.spec(place - 1)
            rows, columns = stored.shape
            specs[place] = TensorSpec((columns, rows), stored.dtype, (1, columns))
    if len(given) < 3:
        return Call("matmul", [0, 1], specs={place - 1: spec for place, spec in specs.items()})
    return Call("addmm", [2, 0, 1], specs=specs)


def _matmul(node: Node, given: Sequence[int]) -> Call:
    weight = node.spec(1)
    if is_linear(node):
        rows, columns = weight.shape
        return Call("linear", given, specs={1: TensorSpec((columns, rows), weight.dtype)})
    return Call("matmul", given)


def is_linear(node: Node) -> bool:
    """Whether a ``MatMul`` is by a constant matrix, as exporters write a linear layer."""
    return (
        node.op_type == "MatMul" and len(node.spec(1).shape) == 2 and node.attributes["constant"][1]
    )


def _axis(
    name: str, argument: str = "dim", default: int = -1
) -> Callable[[Node, Sequence[int]], Call]:
    def call(node: Node, given: Sequence[int]) -> Call:
        start = 1 if name.endswith("softmax") and node.version < 13 else default
        return Call(name, given, {argument: int(node.attributes.get("axis", start))})

    return call


def _reduction(node: Node, given: Sequence[int]) -> Call:
    axes = node.attributes.get("axes")
    if axes is None:
        axes = node.numbers(1)
    return Call(_REDUCTIONS[node.op_type], given[:1], {"dim": [int(a) for a in axes or ()] or None})


def _layer_norm(node: Node, given: Sequence[int]) -> Call:
    axis = int(node.attributes.get("axis", -1))
    kind = "rms_norm" if node.op_type == "RMSNormalization" else "layer_norm"
    return Call(kind, given, {"normalized_shape": list(node.spec(0).shape[axis:])})


def _batch_norm(node: Node, given: Sequence[int]) -> Call:
    training = node.attributes.get("training_mode", 0)
    return Call("batch_norm_training" if training else "batch_norm", given)


def _group_norm(node: Node, given: Sequence[int]) -> Call:
    return Call("group_norm", given, {"num_groups": int(node.attributes.get("num_groups", 1))})


def _gelu(node: Node, given: Sequence[int]) -> Call:
    return Call("gelu", given[:1], {"approximate": str(node.attributes.get("approximate", "none"))})


def _clip(node: Node, given: Sequence[int]) -> Call:
    ends = [node.attributes.get("min"), node.attributes.get("max")]
    for place in (1, 2):
        if found := node.numbers(place):
            ends[place - 1] = found[0]
    return Call("relu6" if ends == [0, 6] else "clamp", given[:1])


def _power(node: Node, given: Sequence[int]) -> Call:
    exponent = node.numbers(1)
    if exponent is not None and len(exponent) == 1:
        return Call("pow", [0], {"exponent": exponent[0]})
    return Call("pow", given)


def _gather(node: Node, given: Sequence[int]) -> Call:
    axis = int(node.attributes.get("axis", 0))
    if axis == 0 and len(node.spec(0).shape) == 2 and node.attributes["constant"][0]:
        return Call("embedding", given)
    return Call("index_select", given, {"dim": axis})


def _attention(node: Node, given: Sequence[int]) -> Call:
    if any(len(node.spec(p).shape) != 4 for p in range(3)) or len(given) > 4:
        return Call("onnx.Attention", given)
    causal = bool(node.attributes.get("is_causal", 0))
    return Call("scaled_dot_product_attention", given, {"is_causal": causal})


def _top_k(node: Node, given: Sequence[int]) -> Call:
    count = node.numbers(1)
    return Call(
        "topk",
        [0],
        {"k": int(count[0]) if count else 1, "dim": int(node.attributes.get("axis", -1))},
    )


def _first(kind: str) -> Callable[[Node, Sequence[int]], Call]:
    """A kind of which ONNX has parameters as inputs."""
    return lambda node, given: Call(kind, given[:1])


def _einsum(node: Node, given: Sequence[int]) -> Call:
    return Call("einsum", given, {"equation": str(node.attributes.get("equation", ""))})


def _resize(node: Node, given: Sequence[int]) -> Call:
    mode = str(node.attributes.get("mode", "nearest"))
    names = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    if len(node.spec(0).shape) != 4 or mode not in names:
        return Call(f"onnx.{node.op_type}", given)
    return Call(f"upsample_{names[mode]}2d", given[:1])


_CALLS: Mapping[str, Callable[[Node, Sequence[int]], Call]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Softmax": _axis("softmax"),
    "LogSoftmax": _axis("log_softmax"),
    "Concat": _axis("cat", default=0),
    "ArgMax": _axis("argmax", default=0),
    "ArgMin": _axis("argmin", default=0),
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": lambda node, given: Call("instance_norm", given),
    "GroupNormalization": _group_norm,
    "Gelu": _gelu,
    "Clip": _clip,
    "Pow": _power,
    "Gather": _gather,
    "GatherElements": _axis("gather", default=0),
    "Attention": _attention,
    "TopK": _top_k,
    "CumSum": lambda node, given: Call("cumsum", [0], {"dim": int((node.numbers(1) or [0])[0])}),
    "Pad": _first("constant_pad_nd"),
    "Resize": _resize,
    "Upsample": _resize,
    "Einsum": _einsum,
    **dict.fromkeys(_REDUCTIONS, _reduction),
}
