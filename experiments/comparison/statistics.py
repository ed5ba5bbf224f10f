"""Statistics of paired makespans.

A *draw* is one possible truth: operator times drawn from the predictors' held-out errors and from
measured noise. Draw ``k`` is the same truth for every scheduler of a comparison, so schedulers are
compared draw by draw; what is common to both (the systematic error) cancels. Where a comparison has
several seeds, the draws of all seeds are pooled, each draw weighing the same, and stay paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.bootstrap import FEWEST, bootstrap_means

LEVEL = 0.95
"""Of every two-sided interval that decides whether two are separable."""
SEPARABLE = (1.0 + LEVEL) / 2.0
"""The share of draws in which one is shorter from which on the interval of the difference leaves 0 out."""
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


def verdict(low: float, high: float, none: float = 0.0) -> int | None:
    """The one rule for who beats whom: what the two-sided interval of a difference says.

    Args:
        low: lower end of the interval at :data:`LEVEL`, NaN where there is none.
        high: upper end.
        none: what stands for no difference, 1 for a ratio.

    Returns:
        1 where the interval lies above ``none``, -1 where below, 0 where it holds it (the two are not separable);
        None without an interval.
    """
    if math.isnan(low) or math.isnan(high):
        return None
    return int(low > none) - int(high < none)


def middle(values: np.ndarray) -> Interval:
    """The draws between those that :data:`LEVEL` leaves out at each end.

    It leaves 0 out exactly where at least :data:`SEPARABLE` of ``values`` lie on one side of 0, so that interval and
    P(win) never disagree.
    """
    ordered = np.sort(values)
    out = int(len(ordered) * (1.0 - SEPARABLE) + 1e-9)
    return Interval(float(ordered[out]), float(ordered[-1 - out]), LEVEL)


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
        exact: whether makespans are certain: there is nothing to draw.
    """

    reduction: float
    interval: Interval | None
    median: float | None
    probability: float | None
    seeds_interval: Interval | None
    exact: bool = False

    @property
    def estimate(self) -> float:
        """The reduction at believed times or, where that lies outside its interval, the median.

        It does where predictions are known to be off to one side, which the draws make good.
        """
        if self.interval is None or self.median is None or self.reduction in self.interval:
            return self.reduction
        return self.median

    @property
    def verdict(self) -> int | None:
        """1 if the first beats the second, -1 if the second beats it, 0 if they are not separable.

        By :func:`verdict` of the interval over the draws; without draws, of that of the mean over seeds; of makespans
        that are certain the difference itself. None where nothing is known.
        """
        if self.exact:
            return 0 if abs(self.reduction) <= TIE else verdict(self.reduction, self.reduction)
        span = self.interval or self.seeds_interval
        return None if span is None else verdict(span.low, span.high)

    @property
    def separable(self) -> bool | None:
        """Whether one beats the other; None where nothing is known."""
        return None if self.verdict is None else self.verdict != 0

    @property
    def turned(self) -> Comparison:
        """The second against the first: how much shorter its makespan is as a share of the first's."""

        def turn(share: float) -> float:
            return 1.0 - 1.0 / (1.0 - share) if share < 1.0 else -math.inf

        def turn_all(span: Interval | None) -> Interval | None:
            return span and Interval(turn(span.high), turn(span.low), span.level)

        return Comparison(
            turn(self.reduction),
            turn_all(self.interval),
            None if self.median is None else turn(self.median),
            None if self.probability is None else 1.0 - self.probability,
            turn_all(self.seeds_interval),
            self.exact,
        )


def compare(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    a_draws: np.ndarray,
    b_draws: np.ndarray,
    exact: bool = False,
) -> Comparison:
    """Compare two schedulers.

    Args:
        a: makespan in seconds for each seed, at believed times; ``b`` the same for the other.
        b: see ``a``.
        a_draws: pooled draws in seconds, paired with ``b_draws``; empty where there are none.
        b_draws: see ``a_draws``.
        exact: whether these makespans are certain, each run being the only one there can be.

    Raises:
        ValueError: not the same seeds or draws.
    """
    first, second = _paired(np.asarray(a), np.asarray(b))
    point = float(1.0 - first.mean() / second.mean())
    over_seeds = bootstrap_mean(reduction(first, second)) if len(first) >= FEWEST else None
    if min(len(a_draws), len(b_draws)) < FEWEST_DRAWS:
        return Comparison(point, None, None, None, over_seeds, exact)
    reductions = reduction(a_draws, b_draws)
    reductions[np.abs(reductions) <= TIE] = 0.0
    return Comparison(
        point,
        middle(reductions),
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
