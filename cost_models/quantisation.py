"""Tiles and waves: how the units of a device share a product out.

A GPU computes a matrix product in tiles, as many at once as it has multiprocessors. A last wave that is
not full takes as long as a full one, and a tile that hangs over the edge as long as a whole one
(NVIDIA, "Matrix Multiplication Background", 2023, tile and wave quantisation). Which tile a library
takes is its secret, so the features are there for several, and a model finds out which tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cost_models.device_spec import DeviceSpec

Shapes = tuple[tuple[int, ...], ...]
PRODUCTS = ("linear", "addmm", "matmul", "mm", "bmm", "baddbmm")
TILES = ((32, 32), (64, 64), (128, 64), (64, 128), (128, 128), (256, 128), (128, 256))
"""Rows and columns of an output tile."""
MOST_WAVES = 20
"""More full waves than these cannot be told apart."""


def product_of(
    kind: str, inputs: Shapes, outputs: Shapes, attributes: Mapping[str, Any]
) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of the matrix product that an operator is, or None.

    A convolution is one in its implicit form: pixels by output channels, summed over taps and input
    channels, a group being a batch.
    """
    if not outputs or not outputs[0]:
        return None
    output = outputs[0]
    if kind in PRODUCTS:
        left = inputs[1 if "add" in kind else 0]
        batch = max(output[0], 1) if kind in ("bmm", "baddbmm") else 1
        return batch, math.prod(output[:-1]) // batch, output[-1], left[-1] if left else 1
    if kind in ("conv1d", "conv2d", "conv3d") and len(output) == len(inputs[1]):
        groups = max(int(attributes.get("groups", 1)), 1)
        rows = output[0] * math.prod(output[2:])
        return groups, rows, output[1] // groups, math.prod(inputs[1][1:])
    return None


def tile_values(
    kind: str,
    inputs: Shapes,
    outputs: Shapes,
    attributes: Mapping[str, Any],
    device: DeviceSpec,
) -> dict[str, float]:
    """Features of an operator's tiles on a device; none for a kind that has no product.

    For every tile: log2 of their number, the waves they take (at most :data:`MOST_WAVES`), the share
    of those waves that is full, and the share of the tiles that is not over the edge. For attention,
    which walks over blocks of queries: the same of its blocks.
    """
    found: dict[str, float] = {}
    if kind == "scaled_dot_product_attention":
        query = inputs[0]
        sequences, length = math.prod(query[:-2]), query[-2]
        shared = max(query[-3] // max(inputs[1][-3], 1), 1) if len(query) > 2 else 1
        # Heads that share their keys may be packed into one block of rows.
        packed = math.ceil(length * shared / 128)
        _waves(found, "packed", sequences // shared * packed, device)
        for rows in (64, 128):
            blocks = math.ceil(length / rows)
            _waves(found, f"{rows}", sequences * blocks, device)
            # A causal block walks over no key after its last query.
            walked = blocks * (blocks + 1) / 2
            found[f"tile_walk_{rows}"] = _log2(max(blocks, sequences * walked / device.units))
        return found
    product = product_of(kind, inputs, outputs, attributes)
    if product is None or min(product) < 1:
        return found
    batch, m, n, _ = product
    for rows, columns in TILES:
        tiles = math.ceil(m / rows) * math.ceil(n / columns)
        _waves(found, f"{rows}x{columns}", batch * tiles, device)
        found[f"tile_used_{rows}x{columns}"] = m * n / (tiles * rows * columns)
    return found


def _waves(found: dict[str, float], name: str, tiles: int, device: DeviceSpec) -> None:
    waves = tiles / device.units
    found[f"tile_count_{name}"] = _log2(tiles)
    found[f"wave_count_{name}"] = float(min(math.ceil(waves), MOST_WAVES))
    found[f"wave_full_{name}"] = waves / max(math.ceil(waves), 1)


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else -1.0
