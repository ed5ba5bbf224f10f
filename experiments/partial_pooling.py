"""Factors of groups of operators, each believed as far as its own operators agree with each other.

A group of few operators that take longer than a table says may do so because of these operators' entries in
the table, and not because all of their sort take longer. So there is a random effect for each group (Hedges and
Olkin, Statistical Methods for Meta-Analysis, 1985, chapter 9): what groups differ by beyond what their members'
disagreement explains is how far a group's own factor is believed over that of all groups.
"""

from __future__ import annotations

import numpy as np

PRIOR_MEMBERS = 4.0
"""As many members as that, of all groups, a group's own scatter is averaged with: that of two or three says
little, and of one nothing (moderated variances: Smyth, Statistical Applications in Genetics 3, 2004)."""


def partially_pooled(
    factors: np.ndarray, expected: np.ndarray, took: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """float64[groups]: factors, drawn towards their common mean.

    Args:
        factors: float64[groups] of how many times as long as said the members of each take together.
        expected: float64[members] seconds, these factors in them.
        took: float64[members] seconds.
        groups: int[members]; each of 0 to the number of factors has one at least.
    """
    count = len(factors)
    variances = _variances(expected, took, groups, count)
    logs = np.log(factors)
    between = max(0.0, float(np.var(logs, ddof=1) - variances.mean())) if count > 1 else 0.0
    total = between + variances
    if not total.all():  # members that agree to the last digit
        return np.asarray(factors, dtype=np.float64)
    mean = np.average(logs, weights=1.0 / total)
    return np.exp(mean + between / total * (logs - mean))


def _variances(
    expected: np.ndarray, took: np.ndarray, groups: np.ndarray, count: int
) -> np.ndarray:
    """float64[groups]: of the log of each factor, as an estimate for other operators of its group."""

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(groups, values, minlength=count)

    centred = took * (summed(expected) / summed(took))[groups] - expected
    freedom = np.bincount(groups, minlength=count) - 1.0
    squares = summed(expected**2)
    own = summed(centred**2) / squares * (freedom + 1) / np.maximum(freedom, 1)
    everyones = float(freedom @ own / max(freedom.sum(), 1.0))
    moderated = (PRIOR_MEMBERS * everyones + freedom * own) / (PRIOR_MEMBERS + freedom)
    # A time is the sum of its members' times, in which long ones count more.
    return np.asarray(moderated * squares / summed(expected) ** 2)
