"""Which fold a measured shape belongs to: decided here once, for all devices and sources.

The same shape was measured on several devices and in several runs; if its fold depended on the row,
a model would be tested on shapes it has seen. A matrix product's fold depends on (n, k) alone and
attention's on the length of the keys, so a held-out fold holds whole weights and whole lengths.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

FOLDS = 5
Shape = Sequence[int]


def fold_key(
    kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]
) -> str:
    """The text whose checksum decides: equal for rows that must not be told apart."""
    if kind == "linear" and len(inputs) >= 2:
        n, k = inputs[1][-2:]
        return f"gemm {n} {k}"
    if kind == "addmm" and len(inputs) >= 3:
        k, n = inputs[2][-2:]
        return f"gemm {n} {k}"
    if kind in ("mm", "matmul", "bmm", "baddbmm") and min(map(len, inputs[-2:])) >= 2:
        k, n = inputs[-1][-2:]
        return f"{'gemm' if kind == 'mm' else 'bmm'} {n} {k}"
    if kind == "scaled_dot_product_attention" and len(inputs) >= 2:
        return f"attention {inputs[1][-2]}"
    shapes = [[list(map(int, shape)) for shape in shapes] for shapes in (inputs, outputs)]
    return json.dumps([kind, *shapes, attributes], sort_keys=True, separators=(",", ":"))


def fold_of(
    kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]
) -> int:
    """0 to 4: crc32 of :func:`fold_key`, modulo 5."""
    return zlib.crc32(fold_key(kind, inputs, outputs, attributes).encode()) % FOLDS


def folds_of(measurements: pd.DataFrame) -> np.ndarray:
    """int64[rows]: the fold of every row of a measurement table."""
    columns = (measurements[c] for c in ("kind", "inputs", "outputs", "attributes"))
    return np.array(
        [fold_of(k, i, o, json.loads(a)) for k, i, o, a in zip(*columns, strict=True)],
        dtype=np.int64,
    )
