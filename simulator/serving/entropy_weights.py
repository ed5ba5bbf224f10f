"""Weights of criteria by how much they tell alternatives apart: the entropy weight method.

With ``p_ij = x_ij / sum_i x_ij`` the entropy of criterion j over n alternatives is
``e_j = -sum_i p_ij ln p_ij / ln n``, and its weight ``(1 - e_j) / sum_k (1 - e_k)``: one that is the same
everywhere tells nothing and weighs nothing.

Source: C.-L. Hwang and K. Yoon, *Multiple Attribute Decision Making*, Springer, 1981, chapter 3.
"""

from __future__ import annotations

import numpy as np

ALIKE = 1e-12
"""Differences of entropies below this are rounding."""


def entropy_weights(values: np.ndarray) -> np.ndarray | None:
    """The weights of criteria.

    Args:
        values: float64[alternatives, criteria], none below 0.

    Returns:
        float64[criteria], which add up to 1; None if no criterion tells the alternatives apart.
    """
    count = len(values)
    if count < 2:
        return None
    sums = values.sum(axis=0)
    shares = np.divide(values, sums, out=np.full(values.shape, 1 / count), where=sums > 0)
    logarithms = np.log(shares, out=np.zeros(values.shape), where=shares > 0)
    told = 1 + (shares * logarithms).sum(axis=0) / np.log(count)
    told[told < ALIKE] = 0.0
    total = float(told.sum())
    return None if total == 0 else told / total
