"""Statistics of paired makespans.

A *draw* is one possible truth: operator times drawn from the predictors' held-out errors and from
measured noise. Draw ``k`` is the same truth for every scheduler of a comparison, so schedulers are
compared draw by draw; what is common to both (the systematic error) cancels. Where a comparison has
several seeds, the draws of all seeds are pooled, each draw weighing the same, and stay paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.bootstrap import FEWEST, bootstrap_means

SEPARABLE = 0.95
"""A beats B if it is faster in this share of the draws; otherwise the two are not separable."""
TIE = 1e-9
"""Makespans that differ by less, relatively, are equal: sums of the same times in another order."""
FEWEST_DRAWS = 20
"""With fewer draws neither an interval nor a probability is given."""
SAME = 0.01
"""Schedulers whose makespans lie within this of one another are called equal."""


@dataclass(frozen=True)
class Interval:
    """An interval that holds the middle ``level`` of a distribution."""

    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """Percentile interval: 2.5% to 97.5% of ``values`` at level 0.95, linearly interpolated."""
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return Interval(float(low), float(high), level)


def probability_shorter(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the paired draws in which ``a`` is shorter than ``b``; a tie counts half.

    Raises:
        ValueError: not the same number of draws, or none.
    """
    a, b = _paired(a, b)
    tie = _equal(a, b)
    return float(np.mean(np.where(tie, 0.5, a < b)))


def probability_best(draws: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Share of the paired draws in which each is the shortest; a tie is shared equally. Sums to 1.

    Raises:
        ValueError: not the same number of draws, or none.
    """
    names = list(draws)
    table = np.stack(_paired(*(draws[name] for name in names)))
    best = _equal(table, table.min(axis=0))
    shares = (best / best.sum(axis=0)).mean(axis=1)
    return dict(zip(names, shares.tolist(), strict=True))


def reduction(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By how much each ``a`` is shorter than its ``b``, as a share of ``b``: 0.2 for 8 against 10.

    Raises:
        ValueError: not the same number of values, or none.
    """
    a, b = _paired(a, b)
    return 1.0 - a / b


def bootstrap_mean(values: np.ndarray, level: float = 0.95, seed: int = 0) -> Interval:
    """BCa bootstrap interval of the mean of independent ``values``, one a seed."""
    column = np.asarray(values, dtype=np.float64)[:, None]
    low, high = bootstrap_means(column, level, seed=seed)
    return Interval(float(low[0]), float(high[0]), level)


@dataclass(frozen=True)
class Comparison:
    """One scheduler against another.

    Attributes:
        reduction: by how much the first's makespan is shorter, as a share of the second's; of the
            means over seeds, at believed times.
        interval: of the reduction over the pooled draws; None with too few.
        median: of the reduction over the pooled draws; None with too few.
        probability: that the first is shorter, over the pooled draws; None with too few.
        seeds_interval: bootstrap interval of the reduction's mean over seeds; None with too few.
    """

    reduction: float
    interval: Interval | None
    median: float | None
    probability: float | None
    seeds_interval: Interval | None

    @property
    def estimate(self) -> float:
        """The reduction at believed times or, where that lies outside its interval, the median.

        It does where predictions are known to be off to one side, which the draws make good.
        """
        if self.interval is None or self.median is None or self.reduction in self.interval:
            return self.reduction
        return self.median

    @property
    def separable(self) -> bool | None:
        """Whether one of the two is shorter in 95% of the draws.

        Without draws: whether the interval of the mean over seeds leaves 0 out. None without either.
        """
        if self.probability is None:
            return None if self.seeds_interval is None else 0.0 not in self.seeds_interval
        return _decided(self.probability)


def separable_draws(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether one of the two is shorter in 95% of the paired draws."""
    return _decided(probability_shorter(a, b))


def _decided(probability: float) -> bool:
    return max(probability, 1.0 - probability) >= SEPARABLE


def compare(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    a_draws: np.ndarray,
    b_draws: np.ndarray,
) -> Comparison:
    """Compare two schedulers.

    Args:
        a: makespan in seconds for each seed, at believed times; ``b`` the same for the other.
        b: see ``a``.
        a_draws: pooled draws in seconds, paired with ``b_draws``; empty where there are none.
        b_draws: see ``a_draws``.

    Raises:
        ValueError: not the same seeds or draws.
    """
    first, second = _paired(np.asarray(a), np.asarray(b))
    point = float(1.0 - first.mean() / second.mean())
    over_seeds = bootstrap_mean(reduction(first, second)) if len(first) >= FEWEST else None
    if min(len(a_draws), len(b_draws)) < FEWEST_DRAWS:
        return Comparison(point, None, None, None, over_seeds)
    reductions = reduction(a_draws, b_draws)
    return Comparison(
        point,
        interval(reductions),
        float(np.median(reductions)),
        probability_shorter(a_draws, b_draws),
        over_seeds,
    )


def _paired(*samples: np.ndarray) -> tuple[np.ndarray, ...]:
    arrays = tuple(np.asarray(sample, dtype=np.float64) for sample in samples)
    lengths = sorted({len(array) for array in arrays})
    if len(lengths) != 1 or lengths[0] == 0:
        raise ValueError(
            f"Paired samples need the same number of values, at least one; got {lengths}"
        )
    return arrays


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) <= TIE * np.maximum(np.abs(a), np.abs(b))
