"""Comparing priorities so that results do not depend on the order of floating-point sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rounded_all(values: np.ndarray | Sequence[float]) -> list[float]:
    """:func:`rounded` of float64 values; as consistent, though not always to the last bit the same."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 9 - np.floor(np.log10(np.abs(values)))
    digits[~np.isfinite(digits)] = 0.0
    digits = np.minimum(digits, 300.0)
    scale = 10.0 ** np.abs(digits)
    whole = np.where(digits >= 0.0, np.rint(values * scale), np.rint(values / scale))
    found: list[float] = np.where(digits >= 0.0, whole / scale, whole * scale).tolist()
    return found


def rounded(value: float) -> float:
    """``value`` to 10 significant digits.

    Two priorities that differ only by rounding errors become equal and fall to the tie rule. Unlike
    a comparison with a tolerance, equality after rounding is transitive.
    """
    return float(f"{value:.9e}")
