"""Curves through points that do not descend: linear in the logarithm of the abscissa between two, constant beyond."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence


def is_curve(points: Sequence[float], values: Sequence[float]) -> bool:
    """Whether there are finite points above 0 that ascend, and as many values that do not descend."""
    return (
        0 < len(points) == len(values)
        and all(0 < point < math.inf for point in points)
        and all(a < b for a, b in itertools.pairwise(points))
        and all(a <= b for a, b in itertools.pairwise(values))
    )


def value_at(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """A curve's value."""
    right = bisect_right(points, at)
    if right == 0:
        return values[0]
    if right == len(points):
        return values[-1]
    low, high = points[right - 1], points[right]
    part = math.log(at / low) / math.log(high / low)
    return values[right - 1] + part * (values[right] - values[right - 1])
