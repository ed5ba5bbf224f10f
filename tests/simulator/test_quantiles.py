"""Percentiles from bins, beside NumPy's of the numbers themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.analysis.quantiles import ERROR, Spread, together

numbers = st.floats(0, 1e12, allow_subnormal=False)
SHARES = (0, 1, 25, 50, 95, 99, 99.9, 100)


def spread(values: list[float]) -> Spread:
    found = Spread()
    for value in values:
        found.add(value)
    return found


@given(st.lists(numbers, min_size=1, max_size=200))
def test_percentiles_are_within_the_stated_error(values: list[float]) -> None:
    found = spread(values).percentiles(SHARES)
    assert found == pytest.approx(np.percentile(values, SHARES).tolist(), rel=ERROR + 1e-9)


@given(st.lists(numbers, max_size=100), st.lists(numbers, max_size=100))
def test_parts_together_are_the_whole(one: list[float], two: list[float]) -> None:
    parts, whole = together([spread(one), spread(two)]), spread(one + two)
    assert parts.bins == whole.bins
    assert (parts.count, parts.zeros, parts.least, parts.most) == (
        whole.count,
        whole.zeros,
        whole.least,
        whole.most,
    )
    assert parts.total == pytest.approx(whole.total)
    assert parts.percentiles(SHARES) == whole.percentiles(SHARES)


def test_extremes_and_zeros_are_exact() -> None:
    found = spread([0.0, 0.0, 0.0, 0.123456789])
    assert found.percentiles((0, 50, 100)) == [0.0, 0.0, 0.123456789]
    assert (found.mean, found.zeros) == (0.123456789 / 4, 3)
    assert Spread().percentiles((50,)) is None
    assert Spread().mean is None


def test_bins_do_not_grow_with_the_numbers() -> None:
    drawn = np.random.default_rng(0).lognormal(-3, 1, 200_000).tolist()
    few, many = spread(drawn[:20_000]), spread(drawn)
    assert len(many.bins) < 1.4 * len(few.bins) < 1400
    assert many.percentiles((50, 99)) == pytest.approx(np.percentile(drawn, (50, 99)), rel=ERROR)
