"""Bootstrap intervals of means: bias-corrected and accelerated (Efron 1987).

doi:10.1080/01621459.1987.10478410. The values are differences or (log) ratios of pairs, one a seed or
an instance, so that resampling keeps the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

RESAMPLES = 5_000
FEWEST = 5
"""With fewer values a mean has no bootstrap interval."""
METHOD = f"BCa bootstrap, {RESAMPLES} resamples"
_CHUNK = 4_000_000


def bootstrap_means(
    values: np.ndarray, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """BCa intervals of the mean of every column; all columns are resampled together.

    Args:
        values: float[n, columns], finite, n independent observations of each column.
        level: which share of intervals made like this are to hold the true mean.
        resamples: how many samples are drawn with replacement.
        seed: of the draws.

    Returns:
        Lower and upper ends, float[columns]. Columns whose values are all equal have an interval of
        no width.
    """
    from scipy.special import ndtr, ndtri

    values = np.asarray(values, dtype=np.float64)
    count, columns = values.shape
    mean = values.mean(axis=0)
    centred = values - mean
    means = np.empty((resamples, columns))
    for first, weights in _weights(count, resamples, seed):
        means[first : first + len(weights)] = weights @ centred / count
    spread = centred.std(axis=0)
    constant = spread <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    # Sums in another order are no difference.
    tie = np.abs(means) <= 1e-12 * spread
    below = np.where(tie, 0.5, means < 0).mean(axis=0)
    inner = 0.5 / resamples
    bias = ndtri(np.clip(below, inner, 1 - inner))
    # Of a mean, leaving one value out moves it by a share of that value's distance from it.
    with np.errstate(invalid="ignore", divide="ignore"):
        cubes, squares = (centred**3).sum(axis=0), (centred**2).sum(axis=0)
        acceleration = np.where(constant, 0.0, cubes / (6.0 * squares**1.5))
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + ndtri(tail)
        share = ndtr(bias + z / (1 - acceleration * z))
        ends.append(np.array([np.quantile(means[:, i], share[i]) for i in range(columns)]) + mean)
    low, high = ends
    return np.where(constant, mean, low), np.where(constant, mean, high)


def intervals_of_means(samples: Sequence[np.ndarray]) -> list[tuple[float, float]]:
    """The interval of each sample's mean; NaN where it has fewer than five values.

    Samples of as many values are resampled together, so many of them take little more than one.
    """
    ends = [(float("nan"), float("nan"))] * len(samples)
    lengths: dict[int, list[int]] = {}
    for number, values in enumerate(samples):
        lengths.setdefault(len(values), []).append(number)
    for length, numbers in lengths.items():
        if length >= FEWEST:
            table = np.stack([samples[number] for number in numbers], axis=1)
            lows, highs = bootstrap_means(table)
            for number, low, high in zip(numbers, lows.tolist(), highs.tolist(), strict=True):
                ends[number] = (low, high)
    return ends


def _weights(count: int, resamples: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """Samples as how often each value is in them: (number of the first, float[samples, count])."""
    if count * resamples <= _CHUNK:
        yield 0, _drawn(count, resamples, seed)
        return
    rng = np.random.default_rng(seed)
    size = max(1, _CHUNK // count)
    for first in range(0, resamples, size):
        yield first, _counted(rng, count, min(size, resamples - first))


@lru_cache(maxsize=8)
def _drawn(count: int, resamples: int, seed: int) -> np.ndarray:
    return _counted(np.random.default_rng(seed), count, resamples)


def _counted(rng: np.random.Generator, count: int, samples: int) -> np.ndarray:
    chosen = rng.integers(0, count, (samples, count))
    chosen += count * np.arange(samples)[:, None]
    return np.bincount(chosen.ravel(), minlength=samples * count).reshape(samples, count) * 1.0
