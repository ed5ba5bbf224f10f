"""Tensors for an operator that is measured by itself: as alike to a real network's as its time asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from calibration.kernels import arguments_of, dtype_of, leaves, view
from simulator.model.operator import Operator, TensorSpec, contiguous_strides

SMOOTH = 5
"""Pixels each way over which activations before a max pooling are averaged."""


def random_reads(
    operator: Operator, device: str | torch.device = "cpu", seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """Realistic stored tensors for one operator, with the right strides.

    Floats are standard normal (zeros and denormals are as rare as in a real network), positive
    where only positive numbers make sense (a variance, the argument of a root or a logarithm).
    Indices (``embedding``, ``gather``, ``index``, ...) are uniform over the rows they may name, other
    integers in 1..8, booleans true nine times out of ten (an attention mask that hides little). What a
    max pooling reads is smooth and half of it zero.

    Args:
        operator: the operator; ``reads`` must be filled.
        device: where to put them.
        seed: of torch's generator on that device.
    """
    place = torch.device(device)
    generator = torch.Generator(place).manual_seed(seed)
    bounds = index_bounds(operator)
    positive = _positive_reads(operator)
    smooth = _smooth_reads(operator)
    made = [
        _random(spec, place, generator, bounds.get(r), r in positive)
        for r, spec in enumerate(operator.reads)
    ]
    return tuple(
        _smoothed(tensor, 1 if operator.kind.endswith("1d") else 2) if r in smooth else tensor
        for r, tensor in enumerate(made)
    )


def index_bounds(operator: Operator) -> dict[int, int]:
    """For reads that hold indices the number of rows they may name."""
    if operator.template is None:
        return {}
    arguments = arguments_of(operator)
    if operator.kind in ("embedding", "embedding_bag"):
        return dict.fromkeys(leaves(arguments["indices"]), operator.inputs[0].shape[0])
    if {"self", "index"} <= arguments.keys() and isinstance(arguments.get("dim"), int):
        shape = _shape_of(operator, arguments["self"])
        rows = shape[int(arguments["dim"])] if shape else 1
        return dict.fromkeys(leaves(arguments["index"]), rows)
    if operator.kind == "embedding_dense_backward":
        return dict.fromkeys(leaves(arguments["indices"]), int(arguments["num_weights"]))
    if operator.kind in ("max_pool2d_backward", "max_pool3d_backward"):
        kernel = arguments["kernel_size"]
        image = operator.inputs[1].shape[-len(kernel) :]
        return dict.fromkeys(leaves(arguments["indices"]), math.prod(image))
    if operator.kind in ("nll_loss_forward", "nll_loss_backward"):
        classes = operator.inputs[operator.kind == "nll_loss_backward"].shape
        return dict.fromkeys(leaves(arguments["target"]), classes[min(1, len(classes) - 1)])
    if operator.kind in ("index", "index_put") and "indices" in arguments:
        bounds: dict[int, int] = {}
        shape = _shape_of(operator, arguments["self"])
        for dimension, node in enumerate(arguments["indices"]):
            bounds |= dict.fromkeys(leaves(node), shape[dimension])
        return bounds
    if operator.kind in ("put", "take"):
        size = math.prod(_shape_of(operator, arguments["self"]))
        return dict.fromkeys(leaves(arguments["index"]), size)
    return {}


def _shape_of(operator: Operator, leaf: Mapping[str, Any]) -> tuple[int, ...]:
    """Shape of an argument, which of one that is changed in place no input says."""
    stored = operator.reads[leaf["read"]]
    strides = contiguous_strides(stored.shape) if stored.strides is None else stored.strides
    tensor = torch.empty_strided(stored.shape, strides, device="meta")
    return tuple(view(tensor, leaf.get("views") or ()).shape)


def _positive_reads(operator: Operator) -> set[int]:
    if operator.template is None:
        return set()
    if operator.kind in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p"):
        return set(leaves(operator.template["args"][0]))
    if operator.kind == "pow":
        return set(leaves(operator.template["args"]))
    found: set[int] = set()
    for kind, argument in (
        ("batch_norm", "running_var"),
        ("batch_norm_training", "running_var"),
        ("batch_norm_backward", "save_invstd"),
        ("layer_norm_backward", "rstd"),
        ("nll_loss_backward", "total_weight"),
        ("adam_step", "exp_avg_sq"),
        ("adam_step", "step"),
    ):
        if operator.kind == kind:
            found.update(leaves(arguments_of(operator)[argument]))
    return found


def _smooth_reads(operator: Operator) -> set[int]:
    """Reads whose neighbouring elements are alike and mostly at rest, as behind a convolution and ReLU.

    A max pooling compares neighbours, and how well the processor guesses the outcome decides its time:
    on noise it takes a quarter longer than inside GoogLeNet.
    """
    if operator.template is None or not operator.kind.startswith(("max_pool", "adaptive_max_pool")):
        return set()
    return (
        set() if operator.kind.endswith("backward") else set(leaves(operator.template["args"][0]))
    )


def _smoothed(tensor: torch.Tensor, dimensions: int) -> torch.Tensor:
    """The positive part of a tensor's averages over neighbours, in place; ``dimensions`` (at most two)
    at its end are space.
    """
    if 0 in tensor.stride() or tensor.dim() < dimensions or not tensor.numel():
        return tensor  # elements that share memory cannot be written one by one
    rows = tensor.shape[-2] if dimensions > 1 else 1
    planes = tensor.float().reshape(-1, 1, rows, tensor.shape[-1])
    box = (SMOOTH if dimensions > 1 else 1, SMOOTH)
    mean = torch.nn.functional.avg_pool2d(planes, box, 1, (box[0] // 2, box[1] // 2))
    return tensor.copy_(mean.clamp_min_(0.0).reshape(tensor.shape))


def _storage_length(spec: TensorSpec) -> int:
    if spec.strides is None:
        return spec.elements
    if not spec.elements:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(spec.shape, spec.strides, strict=True))


def _random(
    spec: TensorSpec,
    device: torch.device,
    generator: torch.Generator,
    rows: int | None,
    positive: bool,
) -> torch.Tensor:
    # Fill the whole storage: expanded dimensions and gaps between rows are then no special case.
    dtype, length = dtype_of(spec), _storage_length(spec)
    if dtype == torch.bool:
        flat = torch.rand(length, device=device, generator=generator) < 0.9
    elif dtype.is_complex:
        flat = torch.randn(length, dtype=dtype, device=device, generator=generator)
    elif dtype.is_floating_point:
        flat = torch.randn(length, device=device, generator=generator)
        flat = (flat.abs_().add_(0.1) if positive else flat).to(dtype)
    else:
        low, high = (1, 9) if rows is None else (0, max(rows, 1))
        flat = torch.randint(low, high, (length,), device=device, generator=generator).to(dtype)
    strides = spec.strides
    return flat.view(spec.shape) if strides is None else flat.as_strided(spec.shape, strides)
