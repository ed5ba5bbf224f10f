"""Factors by groups of operators, and what they take longer besides, from what the operators took."""

from __future__ import annotations

import numpy as np


def fitted(
    said: np.ndarray, took: np.ndarray, more: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many times as long operators take as said, and how much longer for each unit of something else.

    Nonnegative least squares; an operator's error weighs as if its variance were in proportion to its seconds,
    so that few long ones do not outvote many short ones.

    Args:
        said: float64[operators] seconds.
        took: float64[operators] seconds.
        more: float64[operators, things], nonnegative, of any unit.
        groups: int[operators]; the factors of these differ.

    Returns:
        float64[groups], the largest number among them and one, and float64[things] seconds for a unit of each.
    """
    from scipy.optimize import nnls

    count = int(groups.max()) + 1
    columns = np.where(groups[:, np.newaxis] == np.arange(count), said[:, np.newaxis], 0.0)
    weights = 1.0 / np.sqrt(said)
    design = np.concatenate([columns, more], axis=1) * weights[:, np.newaxis]
    sizes = design.max(axis=0)
    sizes[sizes == 0.0] = 1.0
    # All columns are of one size.
    solution, _ = nnls(design / sizes, took * weights)
    solution = solution / sizes
    return solution[:count], solution[count:]
