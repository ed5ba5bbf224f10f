"""Ranks of list schedulers.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_seconds(seconds: np.ndarray) -> list[float]:
    """Mean time of every operator over the devices that can run it; seconds [operators, devices]."""
    finite = np.isfinite(seconds)
    totals = np.where(finite, seconds, 0.0).sum(axis=1)
    return (totals / finite.sum(axis=1)).tolist()


def upward_rank(mean: Sequence[float], edges: Sequence[dict[int, float]]) -> list[float]:
    """Length of the longest path from each operator to the end, its own mean time included.

    Args:
        mean: seconds of every operator, topologically ordered.
        edges: for each operator its successors with mean transfer seconds.
    """
    rank = list(mean)
    for i in range(len(rank) - 1, -1, -1):
        if edges[i]:
            rank[i] += max(seconds + rank[j] for j, seconds in edges[i].items())
    return rank
