"""Comparing priorities so that results do not depend on the order of floating-point sums."""

from __future__ import annotations


def rounded(value: float) -> float:
    """``value`` to 10 significant digits.

    Two priorities that differ only by rounding errors become equal and fall to the tie rule. Unlike
    a comparison with a tolerance, equality after rounding is transitive.
    """
    return float(f"{value:.9e}")
