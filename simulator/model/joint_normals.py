"""Standard normal numbers that correlate as they are asked to."""

from __future__ import annotations

import numpy as np

_NOTHING = 1e-9
"""Of a variance of 1, what rounding leaves."""


def mixing(correlation: np.ndarray) -> np.ndarray:
    """What turns independent standard normal numbers into correlated ones: ``L @ independent``.

    Correlations that were estimated pair by pair may contradict one another; the nearest are taken that
    do not (negative eigenvalues to 0, the diagonal back to 1).

    Args:
        correlation: float64[n, n], symmetric with a diagonal of 1.

    Returns:
        float64[n, n], lower triangular with ``L @ L.T`` the correlation. Numbers that correlate by 1
        come out equal, and those that correlate with none of the earlier ones as they went in.
    """
    wanted = np.asarray(correlation, dtype=np.float64)
    values, vectors = np.linalg.eigh(wanted)
    if values.min(initial=0.0) < -_NOTHING:
        possible = (vectors * np.maximum(values, 0.0)) @ vectors.T
        scale = np.sqrt(np.diag(possible))
        wanted = possible / np.outer(scale, scale)
    # Cholesky's rows one by one: unlike LAPACK's they may end in a variance of 0.
    found = np.zeros_like(wanted)
    for row in range(len(wanted)):
        for column in range(row):
            pivot = found[column, column]
            if pivot > 0.0:
                rest = wanted[row, column] - found[row, :column] @ found[column, :column]
                found[row, column] = rest / pivot
        left = 1.0 - float(found[row, :row] @ found[row, :row])
        found[row, row] = np.sqrt(left) if left > _NOTHING else 0.0
    return found
