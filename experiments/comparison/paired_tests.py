"""Tests of "A is shorter than B" on pairs, corrected for how many are made.

Interval and p-value are of the same draws: the means of random subsets of the differences, which are Fisher's
randomisation test of their signs turned round (Hartigan 1969, "Using subsample values as typical values",
doi:10.1080/01621459.1969.10501057). Where differences are symmetric around their mean it lies below the k-th
smallest of N such means in k of N + 1 cases, however few differences there are. Two-sided throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.statistics import TIE, verdict

ALPHA = 0.05
"""The chance of a single false "A beats B" among all that are claimed together."""
METHOD = "means of random subsets, Hartigan (1969)"
CORRECTION = "Bonferroni"
_MEANS = 5_000
"""Subsets that are drawn, at least, where there are too many to take each."""
_MOST_MEANS = 100_000
_IN_TAIL = 8
"""How many of the means lie beyond each end of a corrected interval, at least, while they are not too many."""


@dataclass(frozen=True)
class PairedTest:
    """Whether the mean of differences is 0.

    Attributes:
        low, high: interval of the mean that holds it together with those of all other tests in 95% of cases; NaN with
            too few differences.
        p: two-sided and corrected, at most 5% exactly where the interval leaves 0 out; NaN with too few.
    """

    low: float
    high: float
    p: float

    @property
    def verdict(self) -> int | None:
        """-1 where the mean is below 0, 1 above, 0 not separable from it; None with too few differences."""
        return verdict(self.low, self.high)


def paired_tests(samples: Sequence[np.ndarray]) -> list[PairedTest]:
    """The test of each sample of differences, corrected over all of them.

    Args:
        samples: float[differences] each, relative ones such as logarithms of ratios.
    """
    tests = max(1, len(samples))
    needed = fewest_pairs(tests)
    found = [PairedTest(math.nan, math.nan, math.nan)] * len(samples)
    lengths: dict[int, list[int]] = {}
    for number, values in enumerate(samples):
        lengths.setdefault(len(values), []).append(number)
    for length, numbers in lengths.items():
        if length < needed:
            continue
        chosen = _subsets(length, tests)
        sizes, count = chosen.sum(axis=1), len(chosen) + 1
        out = int(count * ALPHA / (2 * tests) + 1e-9)
        for number in numbers:
            values = np.where(np.abs(samples[number]) <= TIE, 0.0, samples[number])
            means = np.sort((chosen @ values) / sizes)
            beyond = 1 + min((means <= 0).sum(), (means >= 0).sum())
            p = min(1.0, 2 * tests * beyond / count)
            found[number] = PairedTest(float(means[out - 1]), float(means[-out]), float(p))
    return found


def _subsets(count: int, tests: int) -> np.ndarray:
    """float[subsets, count]: 1 for what is in a subset, of all that are not empty or of random ones."""
    wanted = min(max(_MEANS, math.ceil(2 * tests * _IN_TAIL / ALPHA)), _MOST_MEANS)
    if 2**count - 1 <= wanted:
        chosen = (np.arange(1, 2**count)[:, None] >> np.arange(count)) & 1
    else:
        chosen = np.random.default_rng(0).integers(0, 2, (wanted, count))
        chosen = chosen[chosen.any(axis=1)]
    return chosen.astype(np.float64)


def fewest_pairs(tests: int) -> int:
    """Pairs below which no outcome is significant: all in favour have a chance of 2 / 2**n.

    Args:
        tests: how many are corrected for.
    """
    return max(1, math.ceil(math.log2(2 * tests / ALPHA) - 1e-9))


def rank_biserial(differences: np.ndarray) -> float:
    """Matched-pairs rank-biserial correlation: an effect size (Kerby 2014).

    doi:10.2466/11.IT.3.1. The share of rank sum of negative differences minus that of positive ones:
    1 where the first of the pair is always the shorter, -1 where never, 0 where all are equal.
    """
    from scipy import stats

    differences = np.asarray(differences, dtype=np.float64)
    given = differences[np.abs(differences) > TIE]
    if not len(given):
        return 0.0
    ranks = stats.rankdata(np.abs(given))
    return float((ranks[given < 0].sum() - ranks[given > 0].sum()) / ranks.sum())
