"""Performance profiles (Dolan and More 2002, doi:10.1007/s101070100263)."""

from __future__ import annotations

import numpy as np

from experiments.comparison.statistics import TIE


def performance_profile(
    makespans: np.ndarray, reference: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """In which share of the instances a scheduler is within a ratio of the best.

    Args:
        makespans: float[instances, schedulers] in seconds, NaN where one has no result (it then
            never reaches the best).
        reference: float[instances] in seconds, what makespans are divided by; the smallest of each
            instance unless given.

    Returns:
        ratios float[points], ascending from 1, and shares float[points, schedulers].
    """
    if reference is None:
        reference = np.nanmin(makespans, axis=1)
    ratios = makespans / reference[:, None]
    ratios = np.where(np.abs(ratios - 1.0) < TIE, 1.0, ratios)
    points = np.unique(np.append(ratios[np.isfinite(ratios)], 1.0))
    shares = np.empty((len(points), makespans.shape[1]))
    for column, values in enumerate(ratios.T):
        reached = np.sort(values[np.isfinite(values)])
        shares[:, column] = np.searchsorted(reached, points, side="right") / len(ratios)
    return points, shares
