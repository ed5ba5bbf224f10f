"""Features of an operator: from its shapes and attributes alone.

Nothing that a profiler saw afterwards enters, so whatever can be named can be priced. Counts enter as
log2; a feature that does not apply to a row is NaN, which boosted trees handle. Where the device's data
sheet is known, its units and cache add to them, and for a model of several devices times at its rates.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cost_models.arithmetic import bytes_moved, priced_flops
from cost_models.backward_features import INT64_INPUTS, backward_features
from cost_models.device_spec import DeviceSpec
from cost_models.quantisation import tile_values
from simulator.model.operator import TensorSpec

Shapes = tuple[tuple[int, ...], ...]
Values = dict[str, float]

_MATRIX_PRODUCTS = ("linear", "addmm", "matmul", "bmm", "baddbmm")
_INT64_INPUTS: Mapping[str, tuple[int, ...]] = {
    "embedding": (1,),
    "gather": (1,),
    "index": (1, 2),
    **INT64_INPUTS,
}
# Layouts have features of their own. What `ceil_mode` decides stands in the output's shape; as a feature
# it only told one architecture's pools from all others, and cost 50% on them when that one was held out.
_NO_NUMBERS = ("layouts", "strided", "order", "from", "ceil_mode")
CACHE_CODES = {"warm": 0.0, "graph": 1.0, "cold": 2.0, "awaited": 3.0}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "work": ("flops", "bytes", "intensity", "compute_time", "memory_time", "balance"),
    "tiles and waves": ("tile_", "wave_"),
    "alignment": ("m_", "n_", "k_", "c_in_", "c_out_", "width_", "keys_", "queries_", "few_rows",
                  "length_16", "hidden_16"),
    "cache fit": ("l2_fit",),
    "axis": ("queries", "keys", "pairs", "queries_", "keys_"),
    "absolute": ("flops", "bytes", "input_elements", "output_elements", "first_elements",
                 "other_elements", "weights", "in_", "out_"),
}  # fmt: skip
"""Features by what they describe, for an ablation: whole names, or with ``_`` at the end how they
begin. What is in no group are the operator's own dimensions and attributes. ``axis`` is attention's
length itself: a model that interpolates along it leaves it out of its trees, which then see only what
follows from it and agree with lengths that were measured elsewhere. ``absolute`` are counts that a
model of several devices leaves out, having times at peak rates."""
_NAMED_DIMENSIONS = ("scaled_dot_product_attention",)
"""Kinds of which every dimension has a name; the same number twice would be drawn twice as often."""


def log2(value: float) -> float:
    """log2 of a count; 0 and 1 are told apart."""
    return math.log2(value) if value >= 1 else -1.0


def specs(
    kind: str, dtype: str, inputs: Shapes, attributes: Mapping[str, Any]
) -> tuple[TensorSpec, ...]:
    """Input tensors as far as a table row tells them: index tensors are int64, a cast reads another type, layouts are kept."""
    layouts = attributes.get("layouts") or [None] * len(inputs)
    found = []
    for position, shape in enumerate(inputs):
        layout = layouts[position] if position < len(layouts) else None
        element = "int64" if position in _INT64_INPUTS.get(kind, ()) else dtype
        if kind == "copy" and "float" in attributes.get("from", ""):
            element = attributes["from"]  # a cast
        strides = None
        if layout is not None:
            steps, step = [0] * len(shape), 1
            for dimension in reversed(layout):
                if dimension >= 0:
                    steps[dimension] = step
                    step *= max(shape[dimension], 1)
            strides = tuple(steps)
        found.append(TensorSpec(shape, element, strides))
    return tuple(found)


def work(
    kind: str, dtype: str, inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]
) -> tuple[float, float]:
    """FLOPs and bytes moved of a row; FLOPs as :func:`cost_models.arithmetic.priced_flops`."""
    tensors = specs(kind, dtype, inputs, attributes)
    written = tuple(TensorSpec(shape, dtype) for shape in outputs)
    return (
        priced_flops(kind, tensors, written, attributes),
        bytes_moved(kind, tensors, written, attributes),
    )


def in_group(name: str, group: str) -> bool:
    """Whether a feature belongs to one of :data:`GROUPS`."""
    return any(
        name == part or (part[-1] == "_" and name.startswith(part)) for part in GROUPS[group]
    )


@functools.lru_cache(maxsize=1 << 16)
def known_work(
    kind: str, dtype: str, inputs: Shapes, outputs: Shapes, attributes: str
) -> tuple[float, float]:
    """:func:`work`, the attributes being JSON; computed once for equal rows."""
    return work(kind, dtype, inputs, outputs, json.loads(attributes))


def features_of(
    kind: str,
    dtype: str,
    inputs: Shapes,
    outputs: Shapes,
    attributes: Mapping[str, Any],
    device: DeviceSpec | None = None,
    relative: bool = False,
) -> Values:
    """Named features of one row.

    Args:
        kind: canonical kind.
        dtype: element type.
        inputs: shapes, weights among them.
        outputs: shapes.
        attributes: of the operator.
        device: whose units and cache are counted, if its data sheet is known.
        relative: times at the device's peak rates beside the counts, for a model that is asked about
            other devices than it was fitted to; needs ``device``.
    """
    operations, moved = work(kind, dtype, inputs, outputs, attributes)
    values: Values = {
        "flops": log2(operations),
        "bytes": log2(moved),
        "intensity": log2(operations + 1) - log2(moved),
        "inputs": float(len(inputs)),
    }
    if dtype != "float32":
        # Sizes do not tell TF32 from float32, or float16 from bfloat16, whose kernels differ.
        values[f"dtype={dtype}"] = 1.0
    if kind not in _NAMED_DIMENSIONS:
        values |= _dimensions(inputs, outputs)
    values |= _attribute_values(attributes)
    values |= _layout_values(inputs, attributes)
    if kind in _MATRIX_PRODUCTS:
        # addmm and baddbmm take what is added first.
        values |= _matrix(inputs[1 if "add" in kind else 0], inputs, outputs)
    special = _SPECIAL.get(kind)
    if special is not None:
        values |= special(inputs, outputs, attributes)
    if device is not None:
        values |= tile_values(kind, inputs, outputs, attributes, device)
        if device.l2_bytes:
            values["l2_fit"] = log2(moved) - math.log2(device.l2_bytes)
        if relative:
            if "bias" in values:
                # One GPU alone was measured with it: trees would take that GPU's low rates for what a bias costs.
                del values["bias"], values["inputs"]
            # In nanoseconds, so that log2 of what takes no time is far from what takes some.
            compute = log2(1e9 * operations / device.peak(dtype))
            memory = log2(1e9 * moved / device.bandwidth)
            values |= {
                "compute_time": compute, "memory_time": memory, "balance": compute - memory,
                "roofline_time": max(compute, memory),
            }  # fmt: skip
    return values


def _dimensions(inputs: Shapes, outputs: Shapes) -> Values:
    """Elements and dimensions by position, for kinds whose dimensions have no names of their own."""
    sizes = [math.prod(shape) for shape in inputs]
    values: Values = {
        "input_elements": log2(sum(sizes)),
        "output_elements": log2(sum(math.prod(shape) for shape in outputs)),
    }
    if sizes:
        values["first_elements"] = log2(sizes[0])
        values["other_elements"] = log2(sum(sizes[1:]))
    main = outputs[0] if outputs else ()
    for back in range(1, 5):
        if len(main) >= back:
            values[f"out_{back}"] = log2(main[-back])
        if inputs and len(inputs[0]) >= back:
            values[f"in_{back}"] = log2(inputs[0][-back])
    return values


def _attribute_values(attributes: Mapping[str, Any]) -> Values:
    values: Values = {}
    for name, value in attributes.items():
        if name in _NO_NUMBERS:
            continue
        if isinstance(value, bool | int | float):
            values[f"@{name}"] = float(value)
        elif isinstance(value, list) and all(isinstance(v, int) for v in value):
            for position, number in enumerate(value[:3]):
                values[f"@{name}_{position}"] = float(number)
        elif isinstance(value, str):
            values[f"@{name}={value}"] = 1.0
    return values


def _layout_values(inputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    layouts = attributes.get("layouts")
    if not layouts:
        return {"strided": 0.0}
    values = {"strided": float(sum(layout is not None for layout in layouts))}
    for position, layout in enumerate(layouts[:3]):
        if layout:
            # How far the dimension that is fastest in memory stands from the last one.
            values[f"fastest_{position}"] = float(len(layout) - 1 - max(layout[-1], -1))
            values[f"expanded_{position}"] = float(sum(d < 0 for d in layout))
    return values


def _matrix(left: tuple[int, ...], inputs: Shapes, outputs: Shapes) -> Values:
    """m, n, k and the batch of a matrix product; alignment decides which inner kernel fits."""
    output = outputs[0]
    n = output[-1] if output else 1
    k = left[-1]
    rows = math.prod(output[:-1])
    batch = math.prod(output[:-2]) if len(inputs[-1]) > 2 else 1
    m = rows // max(batch, 1)
    return {
        "m": log2(m), "n": log2(n), "k": log2(k), "batch": log2(batch),
        "m_16": float(m % 16), "n_16": float(n % 16), "k_16": float(k % 16),
        "n_64": float(n % 64), "few_rows": float(min(m, 16)),
        "weights": log2(n * k),
    }  # fmt: skip


def _convolution(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    (n, c_in, *size), (c_out, per_group, *kernel) = inputs[0], inputs[1]
    groups = int(attributes.get("groups", 1))
    pixels = math.prod(outputs[0][2:])
    taps = math.prod(kernel)
    return {
        "n": log2(n), "c_in": log2(c_in), "c_out": log2(c_out), "groups": log2(groups),
        "c_in_group": log2(per_group), "c_out_group": log2(c_out / groups),
        "size": log2(math.prod(size)), "pixels": log2(pixels), "rows": log2(n * pixels),
        "k": log2(per_group * taps), "taps": float(taps),
        "kernel_0": float(kernel[0]), "kernel_1": float(kernel[-1]),
        "width": float(outputs[0][-1]), "depthwise": float(per_group == 1 and groups > 1),
        "weights": log2(math.prod(inputs[1])), "bias": float(len(inputs) > 2),
        "c_in_8": float(per_group % 8), "c_in_16": float(per_group % 16),
        "c_out_8": float(c_out // groups % 8), "c_out_16": float(c_out // groups % 16),
        "width_8": float(outputs[0][-1] % 8), "width_6": float(outputs[0][-1] % 6),
    }  # fmt: skip


def _transposed_convolution(
    inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]
) -> Values:
    """Of weights [c_in, c_out / groups, *kernel]: the product that is scattered."""
    (n, c_in, *size), (_, per_group, *kernel) = inputs[0], inputs[1]
    pixels, taps = math.prod(size), math.prod(kernel)
    groups = int(attributes.get("groups", 1))
    return {
        "n": log2(n), "c_in": log2(c_in), "c_out": log2(per_group * groups), "size": log2(pixels),
        "pixels": log2(math.prod(outputs[0][2:])), "rows": log2(n * pixels),
        "scattered": log2(per_group * groups * taps), "taps": float(taps), "kernel_0": float(kernel[0]),
        "overlap": taps / math.prod(attributes.get("stride", [1])), "weights": log2(math.prod(inputs[1])),
        "bias": float(len(inputs) > 2), "c_in_16": float(c_in % 16), "c_out_16": float(per_group % 16),
    }  # fmt: skip


def _attention(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    query, key, value = inputs[:3]
    batch = math.prod(query[:-3]) if len(query) > 3 else 1
    heads = query[-3] if len(query) > 2 else 1
    key_heads = key[-3] if len(key) > 2 else 1
    values = {
        "batch": log2(batch), "heads": log2(heads), "queries": log2(query[-2]),
        "keys": log2(key[-2]), "width": log2(query[-1]), "value_width": log2(value[-1]),
        "pairs": log2(query[-2] * key[-2]), "sequences": log2(batch * heads),
        "keys_32": float(key[-2] % 32), "queries_32": float(query[-2] % 32),
        "key_heads": log2(key_heads), "mask": float(len(inputs) > 3),
        "tokens": log2(batch * query[-2]), "query_rows": log2(batch * heads * query[-2]),
        "key_rows": log2(batch * key_heads * key[-2]), "sharing": heads / max(key_heads, 1),
        "key_sequences": log2(batch * key_heads),
    }  # fmt: skip
    if len(inputs) > 3:
        values["mask_elements"] = log2(math.prod(inputs[3]))
    return values


def _cell(gates: int) -> Callable[[Shapes, Shapes, Mapping[str, Any]], Values]:
    def values(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
        rows, width = inputs[0][0] if len(inputs[0]) > 1 else 1, inputs[0][-1]
        hidden = outputs[0][-1]
        return {
            "rows": log2(rows), "few_rows": float(min(rows, 32)), "width": log2(width),
            "hidden": log2(hidden), "weights": log2(gates * hidden * (width + hidden)),
            "hidden_16": float(hidden % 16),
        }  # fmt: skip

    return values


def _normalised(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    length = int(attributes.get("normalized_size", inputs[0][-1] if inputs[0] else 1))
    rows = math.prod(inputs[0]) // max(length, 1)
    return {"length": log2(length), "rows": log2(rows), "length_16": float(length % 16)}


def _grouped_norm(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    groups = inputs[0][0] * int(attributes.get("num_groups", 1))
    return {
        "length": log2(math.prod(inputs[0]) / groups), "rows": log2(groups),
        "plane": log2(math.prod(inputs[0][2:])),
    }  # fmt: skip


def _pool(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    window = math.prod(attributes.get("kernel_size", [1]))
    reads = math.prod(outputs[0]) * window
    planes = math.prod(inputs[0][:2])
    values: Values = {}
    if "kernel_size" not in attributes:
        reads = math.prod(inputs[0])
        # One output is the sum of a window, which other kernels than a loop over windows compute for whole planes.
        found = max(math.prod(outputs[0]), 1)
        values = {"pooled": log2(reads / found), "whole_planes": float(found == planes)}
    return {"window": log2(window), "window_reads": log2(reads), "planes": log2(planes), **values}


def _joined(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    dimension = int(attributes.get("dim", 0))
    piece = math.prod(outputs[0][dimension:])
    return {
        "pieces": log2(len(inputs) * math.prod(outputs[0][:dimension])),
        "piece": log2(piece / max(len(inputs), 1)),
    }


def _padded(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    # What grows nowhere is one copy; else every row is one of its own.
    same = inputs[0] == outputs[0]
    inner = inputs[0][-1:] != outputs[0][-1:]
    rows = 1 if same else math.prod(inputs[0][:-1])
    return {"rows": log2(rows), "grown": float(not same), "inner_grown": float(inner)}


def _lookup(inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]) -> Values:
    return {
        "table": log2(math.prod(inputs[0])),
        "width": log2(inputs[0][-1]),
        "rows": log2(math.prod(inputs[1])),
    }


_SPECIAL: Mapping[str, Callable[[Shapes, Shapes, Mapping[str, Any]], Values]] = {
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed_convolution,
    "conv_transpose2d": _transposed_convolution,
    "group_norm": _grouped_norm,
    "scaled_dot_product_attention": _attention,
    "lstm_cell": _cell(4),
    "gru_cell": _cell(3),
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    "softmax": _normalised,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "adaptive_avg_pool2d": _pool,
    "cat": _joined,
    "stack": _joined,
    "embedding": _lookup,
    "pad": _padded,
    **backward_features(_convolution, _attention),
}


@functools.lru_cache(maxsize=4096)
def _known_features(
    kind: str,
    dtype: str,
    inputs: Shapes,
    outputs: Shapes,
    attributes: str,
    device: DeviceSpec | None,
    relative: bool,
) -> Values:
    return features_of(kind, dtype, inputs, outputs, json.loads(attributes), device, relative)


def feature_rows(
    rows: pd.DataFrame, device: DeviceSpec | None = None, relative: bool = False
) -> list[Values]:
    """Features of every row of a table, in order; equal rows are computed once. Read only.

    ``device`` and ``relative`` are those of :func:`features_of`.
    """
    known: dict[tuple[Any, ...], Values] = {}
    found = []
    caches = rows["cache"] if "cache" in rows else [None] * len(rows)
    columns = [rows[c] for c in ("kind", "dtype", "inputs", "outputs", "attributes")]
    for *key, cache in zip(*columns, caches, strict=True):
        identity = (*key, cache)
        values = known.get(identity)
        if values is None:
            values = _known_features(*key, device, relative)
            if isinstance(cache, str):
                values = {**values, "cache": CACHE_CODES.get(cache, math.nan)}
            known[identity] = values
        found.append(values)
    return found


def matrix(values: Sequence[Values], names: Sequence[str]) -> np.ndarray:
    """float32[rows, names]; NaN where a row has no such feature."""
    return np.array(
        [[row.get(name, math.nan) for name in names] for row in values], dtype=np.float32
    ).reshape(len(values), len(names))
