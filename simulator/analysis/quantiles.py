"""Percentiles of numbers that are counted and forgotten: bins whose bounds grow by 1%.

A value above 0 counts in the bin ``i`` with ``g^(i-1) < value <= g^i``, and is taken for
``2 g^i / (g + 1)``, which is at most the share :data:`ERROR` away from all values of the bin. Percentiles
interpolate linearly between ranks as :func:`numpy.percentile` does, and so are off by at most that share,
too. Bins are kept where something lies: some 230 for each factor of ten.

Source: C. Masson, J. E. Rim and H. K. Lee, *DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees*, PVLDB 12(12), 2019; the idea of G. Tene's HdrHistogram.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

ERROR = 0.005
"""Relative error of a percentile at most."""
_GROWTH = (1 + ERROR) / (1 - ERROR)
SCALE = 1 / math.log(_GROWTH)
"""The bin of a value above 0 is ``ceil(log(value) * SCALE)``."""


class Spread:
    """Count, sum, extremes and percentiles of numbers of at least 0.

    Attributes:
        count, total: of all of them.
        least, most: the extremes; ``inf`` and ``-inf`` of none.
        zeros: how many are 0.
        bins: how many of the others lie in each bin.
    """

    __slots__ = ("bins", "count", "least", "most", "total", "zeros")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least, self.most = math.inf, -math.inf
        self.zeros = 0
        self.bins: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count a number."""
        self.count += 1
        self.total += value
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        if value > 0:
            bin = math.ceil(math.log(value) * SCALE)
            bins = self.bins
            bins[bin] = bins.get(bin, 0) + 1
        else:
            self.zeros += 1

    @property
    def mean(self) -> float | None:
        """None of none."""
        return self.total / self.count if self.count else None

    def percentiles(self, shares: Sequence[float]) -> list[float] | None:
        """The numbers below which these shares lie, in percent, ascending; None of none."""
        if not self.count:
            return None
        bounds: list[
            tuple[int, float]
        ] = []  # how many are at most in this bin, what they are taken for
        below = 0
        for value, number in self._values():
            below += number
            bounds.append((below, value))
        found, at = [], 0
        for share in shares:
            place = (self.count - 1) * share / 100
            low = math.floor(place)
            while bounds[at][0] <= low:
                at += 1
            after = at + (bounds[at][0] <= low + 1 and at + 1 < len(bounds))
            one, two = bounds[at][1], bounds[after][1]
            found.append(one + (place - low) * (two - one))
        # The extremes are known.
        return [
            self.least if share <= 0 else self.most if share >= 100 else value
            for share, value in zip(shares, found, strict=True)
        ]

    def _values(self) -> Iterable[tuple[float, int]]:
        if self.zeros:
            yield 0.0, self.zeros
        for bin in sorted(self.bins):
            middle = 2 * math.exp(bin / SCALE) / (_GROWTH + 1)
            yield min(max(middle, self.least), self.most), self.bins[bin]


def together(spreads: Iterable[Spread]) -> Spread:
    """All numbers of several."""
    found = Spread()
    for spread in spreads:
        found.count += spread.count
        found.total += spread.total
        found.least = min(found.least, spread.least)
        found.most = max(found.most, spread.most)
        found.zeros += spread.zeros
        for bin, number in spread.bins.items():
            found.bins[bin] = found.bins.get(bin, 0) + number
    return found
