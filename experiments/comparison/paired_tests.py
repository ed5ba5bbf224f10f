"""Tests of "A is shorter than B" on pairs, corrected for how many are made.

Two-sided throughout: which of the two is the shorter is read off the data. Effect sizes come with
them, since with enough pairs any difference is significant.
"""

from __future__ import annotations

import math

import numpy as np

from experiments.comparison.statistics import TIE

ALPHA = 0.05
"""The chance of a single false "A beats B" among all that are claimed together."""
CORRECTION = "Holm (1979)"


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values (1979, Scand. J. Statist. 6, 65-70).

    Rejecting those at most ``ALPHA`` makes any false rejection at most so likely, whatever the
    dependence between the tests.

    Args:
        p_values: float[tests]; NaN for what was not tested, which counts for nothing.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(p_values), np.nan)
    tested = np.flatnonzero(np.isfinite(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def fewest_pairs(tests: int) -> int:
    """Pairs below which no outcome is significant: all in favour have a chance of 2 / 2**n.

    Args:
        tests: how many are corrected for.
    """
    return max(1, math.ceil(math.log2(2 * tests / ALPHA) - 1e-9))


def wilcoxon(differences: np.ndarray) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test (1945, doi:10.2307/3001968).

    Exact up to 50 pairs without ties among them, else by the normal approximation or, of few pairs
    with ties, by permutation (:func:`scipy.stats.wilcoxon`). Pairs that are equal are left out; 1
    where all are.

    Args:
        differences: float[pairs], relative ones such as logarithms of ratios.
    """
    from scipy import stats

    given = _unequal(differences)
    return float(stats.wilcoxon(given).pvalue) if len(given) else 1.0


def sign_test(differences: np.ndarray) -> float:
    """Two-sided p-value of the sign test: as many below as above 0; equal pairs are left out."""
    from scipy import stats

    given = _unequal(differences)
    below = int((given < 0).sum())
    return float(stats.binomtest(below, len(given)).pvalue) if len(given) else 1.0


def rank_biserial(differences: np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation: Wilcoxon's effect size (Kerby 2014).

    doi:10.2466/11.IT.3.1. The share of rank sum of negative differences minus that of positive ones:
    1 where the first of the pair is always the shorter, -1 where never, 0 where all are equal.
    """
    from scipy import stats

    given = _unequal(differences)
    if not len(given):
        return 0.0
    ranks = stats.rankdata(np.abs(given))
    return float((ranks[given < 0].sum() - ranks[given > 0].sum()) / ranks.sum())


def _unequal(differences: np.ndarray) -> np.ndarray:
    differences = np.asarray(differences, dtype=np.float64)
    return differences[np.abs(differences) > TIE]
