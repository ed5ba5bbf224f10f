"""Canonical operator kinds and attributes: one name for one piece of work.

ATen has several names for the same work (``_softmax``, ``softmax``; ``relu_``, ``relu``;
``native_layer_norm``, ``layer_norm``). Tracing a model, sampling operators to measure and reading
public data sets all name operators through this module, so that a measured operator and a predicted
one meet in the same rows. Nothing here imports torch.

Attributes are a flat JSON dictionary with what changes an operator's time and its shapes do not
say. Always there for the kinds that have them (defaults filled in, negative dimensions counted from
the front, one number for all spatial dimensions written out):

=================================  =============================================================
kinds                              attributes
=================================  =============================================================
conv1d, conv2d, conv3d             stride, padding, dilation (lists), groups
conv_transpose1d, 2d, 3d           the same and output_padding
scaled_dot_product_attention       is_causal; a mask is the fourth input
softmax, log_softmax, cat, stack,  dim (reductions: sorted list, all dimensions written out)
mean, sum, max, cumsum, gather...
layer_norm, rms_norm               normalized_size (elements normalised together)
group_norm                         num_groups
max_pool, avg_pool                 kernel_size, stride, padding, ceil_mode, (max) dilation
gelu                               approximate
pow                                exponent, when it is a number
lstm, gru                          num_layers, bidirectional
topk                               k, dim
einsum                             equation; path, the order in which operands are contracted
linalg_qr, linalg_svd, ...         mode; full_matrices, compute_uv: what of the factors is made
cdist; fft_c2c, fft_r2c, fft_c2r   p, compute_mode; dim
copy                               order: input dimensions by falling stride (``[0, 2, 1, 3]``);
                                   from: the element type it converts from, if it converts
binary elementwise (add, mul, ..)  scalar: true when an operand is a number
every kind                         strided: positions of inputs that are not contiguous, if any
=================================  =============================================================

A backward kernel (``conv2d_backward``, ``layer_norm_backward``, ``max_pool2d_backward``, ...) has the
attributes of its forward kernel, and ``output_mask`` where it can leave out the gradient of its input,
weight or bias. ``batch_norm_training`` is batch normalisation with the batch's own statistics.
``sgd_step`` has momentum and weight_decay (whether there is any), ``adam_step`` weight_decay (none, l2
or decoupled).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.model.operator import TensorSpec, contiguous_strides

_ALIASES: Mapping[str, str] = {
    "max_pool1d_with_indices": "max_pool1d",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "batch_norm_legit_no_training": "batch_norm",
    "batch_norm_legit": "batch_norm",
    "batch_norm_with_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "batch_norm_impl_index": "batch_norm",
    "batch_norm_legit_functional": "batch_norm_training",
    "fused_rms_norm": "rms_norm",
    "scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "scaled_dot_product_attention_math": "scaled_dot_product_attention",
    "max_pool2d_with_indices_backward": "max_pool2d_backward",
    "max_pool3d_with_indices_backward": "max_pool3d_backward",
    "softmax_backward_data": "softmax_backward",
    "log_softmax_backward_data": "log_softmax_backward",
    "scaled_dot_product_flash_attention_backward": "scaled_dot_product_attention_backward",
    "scaled_dot_product_flash_attention_for_cpu_backward": "scaled_dot_product_attention_backward",
    "scaled_dot_product_efficient_attention_backward": "scaled_dot_product_attention_backward",
    "scaled_dot_product_cudnn_attention_backward": "scaled_dot_product_attention_backward",
    "scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
    "scaled_dot_product_fused_attention_overrideable_backward": "scaled_dot_product_attention_backward",
    "mm": "matmul",
    "linalg_matmul": "matmul",
    "vdot": "dot",
    "inverse": "linalg_inv",
    "linalg_inv_ex": "linalg_inv",
    "linalg_cholesky_ex": "linalg_cholesky",
    "cholesky_solve_helper": "cholesky_solve",
    "linalg_lu_factor_ex": "linalg_lu_factor",
    "linalg_ldl_factor_ex": "linalg_ldl_factor",
    "linalg_solve_ex": "linalg_solve",
    "det": "linalg_det",
    "slogdet": "linalg_slogdet",
    "orgqr": "linalg_householder_product",
    "matrix_exp": "linalg_matrix_exp",
    "cdist_forward": "cdist",
    "pdist_forward": "pdist",
    "clone": "copy",
    "to_copy": "copy",
    "to": "copy",
    "contiguous": "copy",
    "concat": "cat",
    "concatenate": "cat",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "swish": "silu",
    "embedding_bag_forward_only": "embedding_bag",
    "prelu_kernel": "prelu",
    "thnn_fused_lstm_cell": "fused_lstm_cell",
    "thnn_fused_gru_cell": "fused_gru_cell",
}

_BINARY = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "rsub",
        "remainder",
        "fmod",
        "floor_divide",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_and",
        "logical_or",
        "logical_xor",
    ]
)
_CONVOLUTIONS = frozenset(["conv1d", "conv2d", "conv3d"])
_TRANSPOSED = frozenset(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])
_REDUCTIONS = frozenset(
    [
        "mean",
        "sum",
        "prod",
        "var",
        "std",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "any",
        "all",
        "norm",
        "logsumexp",
        "median",
        "linalg_vector_norm",
        "var_mean",
    ]
)
_ONE_DIMENSION = frozenset(
    [
        "softmax_backward",
        "log_softmax_backward",
        "slice_backward",
        "select_backward",
        "softmax",
        "log_softmax",
        "cat",
        "stack",
        "cumsum",
        "cumprod",
        "gather",
        "index_select",
        "scatter",
        "scatter_add",
        "sort",
        "argsort",
        "topk",
        "unfold",
        "flip",
        "roll",
        "glu",
        "diff",
        "index_add",
        "select_scatter",
        "slice_scatter",
    ]
)
# Arguments copied as they are.
_KEPT: Mapping[str, tuple[str, ...]] = {
    "scaled_dot_product_attention": ("is_causal",),
    "group_norm": ("num_groups",),
    "max_pool1d": ("ceil_mode",),
    "max_pool2d": ("ceil_mode",),
    "max_pool3d": ("ceil_mode",),
    "avg_pool1d": ("ceil_mode",),
    "avg_pool2d": ("ceil_mode",),
    "avg_pool3d": ("ceil_mode",),
    "gelu": ("approximate",),
    "gelu_backward": ("approximate",),
    "scaled_dot_product_attention_backward": ("is_causal",),
    "batch_norm_backward": ("output_mask",),
    "layer_norm_backward": ("output_mask",),
    "group_norm_backward": ("output_mask",),
    "max_pool2d_backward": ("ceil_mode",),
    "avg_pool2d_backward": ("ceil_mode",),
    "lstm": ("num_layers", "bidirectional"),
    "gru": ("num_layers", "bidirectional"),
    "rnn_tanh": ("num_layers", "bidirectional"),
    "rnn_relu": ("num_layers", "bidirectional"),
    "topk": ("k",),
    "einsum": ("equation", "path"),
    "linalg_qr": ("mode",),
    "ormqr": ("left",),
    "linalg_svd": ("full_matrices", "compute_uv"),
    "linalg_eigh": ("compute_v",),
    "cdist": ("p", "compute_mode"),
    "fft_c2c": ("dim",),
    "fft_r2c": ("dim",),
    "fft_c2r": ("dim",),
    "slow_conv2d_backward": ("output_mask",),
}


def kind_of(target: str, spatial: int | None = None, transposed: bool = False) -> str:
    """The canonical kind of an ATen target such as ``aten._softmax.default``.

    Args:
        target: ``aten.<name>.<overload>`` or a bare ATen name.
        spatial: spatial dimensions, needed to name a general ``convolution``.
        transposed: whether such a general ``convolution`` is a transposed one.
    """
    parts = target.split(".")
    name = (parts[1] if len(parts) > 1 else parts[0]).strip("_")
    if name in ("max", "min") and parts[-1] == "other":
        return f"{name}imum"
    name = name.removeprefix("native_").removeprefix("special_") or name
    if name != "index_copy":
        # Others of this name copy what a view of the name shows.
        name = name.removesuffix("_copy") or name
    name = _ALIASES.get(name, name)
    forward = name.removesuffix("_backward").removesuffix("_backward_overrideable")
    if forward in (
        "convolution",
        "mkldnn_convolution",
        "cudnn_convolution",
        "convolution_overrideable",
    ):
        stem = "conv_transpose" if transposed else "conv"
        kind = f"{stem}{2 if spatial is None else spatial}d"
        return kind if forward == name else f"{kind}_backward"
    return name


def attributes_of(
    kind: str,
    arguments: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> dict[str, Any]:
    """Attributes of an operator, as the module docstring lists them.

    Args:
        kind: canonical kind.
        arguments: the call's arguments by their ATen schema name with defaults filled in, in the
            JSON form of templates; tensors appear as ``{"read": ...}``.
        inputs: tensors as the kernel sees them.
        outputs: tensors it writes.
    """
    found: dict[str, Any] = {}
    rank = len(inputs[0].shape) if inputs else 0
    forward = kind.removesuffix("_backward")
    if forward in _CONVOLUTIONS or forward in _TRANSPOSED:
        spatial = int(forward[-2])
        padding = arguments.get("padding", 0)
        if isinstance(padding, str):
            padding = _named_padding(padding, inputs[1].shape[2:], arguments.get("dilation", 1))
        found["stride"] = _spread(arguments.get("stride", 1), spatial)
        found["padding"] = _spread(padding, spatial)
        found["dilation"] = _spread(arguments.get("dilation", 1), spatial)
        if forward in _TRANSPOSED:
            found["output_padding"] = _spread(arguments.get("output_padding", 0), spatial)
        found["groups"] = arguments.get("groups", 1)
        if forward != kind:
            found["output_mask"] = arguments.get("output_mask", [True, True, False])
    elif "pool" in kind and "kernel_size" in arguments:
        spatial = int(forward[-2])
        kernel = _spread(arguments["kernel_size"], spatial)
        found["kernel_size"] = kernel
        found["stride"] = _spread(arguments.get("stride") or kernel, spatial)
        found["padding"] = _spread(arguments.get("padding", 0), spatial)
        if "dilation" in arguments:
            found["dilation"] = _spread(arguments["dilation"], spatial)
    elif forward in ("layer_norm", "rms_norm"):
        size = 1
        for length in arguments.get("normalized_shape", ()):
            size *= length
        found["normalized_size"] = size
    elif kind in _REDUCTIONS:
        found["dim"] = _dimensions(arguments.get("dim"), rank)
    elif kind in _ONE_DIMENSION:
        dim = arguments.get("dim", 0)
        length = len(outputs[0].shape) if kind == "stack" and outputs else rank
        found["dim"] = dim + length if isinstance(dim, int) and dim < 0 else dim
    elif kind == "pow":
        exponent = arguments.get("exponent")
        if isinstance(exponent, int | float):
            found["exponent"] = float(exponent)
    elif kind in _BINARY:
        found["scalar"] = len(inputs) < 2
    elif kind == "sgd_step":
        found["momentum"] = bool(arguments.get("momentum"))
        found["weight_decay"] = bool(arguments.get("weight_decay"))
    elif kind == "adam_step":
        decoupled = "decoupled" if arguments.get("decoupled_weight_decay") else "none"
        found["weight_decay"] = "l2" if arguments.get("weight_decay") else decoupled
    elif kind == "copy" and inputs:
        strides = inputs[0].strides or contiguous_strides(inputs[0].shape)
        found["order"] = sorted(range(rank), key=lambda i: (-strides[i], i))
        if outputs and inputs[0].dtype != outputs[0].dtype:
            found["from"] = inputs[0].dtype
    for name in _KEPT.get(kind, ()):
        if name in arguments:
            found[name] = arguments[name]
    strided = [position for position, spec in enumerate(inputs) if spec.strides is not None]
    if strided:
        found["strided"] = strided
    return found


def bind_arguments(
    schema: Sequence[tuple[str, Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name with the schema's defaults filled in.

    Args:
        schema: (name, default) of each argument in order; the default is None where there is none.
        args: positional arguments.
        kwargs: arguments by name.
    """
    bound = dict(schema)
    for (name, _), value in zip(schema, args, strict=False):
        bound[name] = value
    bound.update(kwargs)
    return bound


def _spread(value: Any, spatial: int) -> list[int]:
    """One number for all dimensions, or a list, as a list of ``spatial`` numbers."""
    if isinstance(value, int):
        return [value] * spatial
    numbers = list(value)
    return numbers * spatial if len(numbers) == 1 else numbers


def _named_padding(name: str, kernel: Sequence[int], dilation: Any) -> list[int]:
    """Leading padding of ``conv2d(padding="same")``; torch pads the odd element at the end."""
    if name != "same":
        return [0] * len(kernel)
    steps = _spread(dilation, len(kernel))
    return [step * (length - 1) // 2 for step, length in zip(steps, kernel, strict=True)]


def _dimensions(dim: Any, rank: int) -> list[int]:
    if dim is None or dim == []:
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % rank if rank else 0 for d in dims)
