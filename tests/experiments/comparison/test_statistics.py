"""Every statistic against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.comparison.statistics import (
    bootstrap_mean,
    compare,
    interval,
    probability_best,
    probability_shorter,
    reduction,
)


def test_interval_interpolates_percentiles():
    # 2.5% of the way through 101 points 0..100 is 2.5.
    values = interval(np.arange(101.0))
    assert (values.low, values.high) == pytest.approx((2.5, 97.5))
    values = interval(np.array([1.0, 3.0]), level=0.5)
    assert (values.low, values.high) == (1.5, 2.5)


def test_probabilities_by_hand():
    a, b, c = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 2.0, 5.0]), np.full(4, 2.5)
    # a < b, tie, a > b, a < b
    assert probability_shorter(a, b) == (1 + 0.5 + 0 + 1) / 4
    # a; a and b; b; c
    assert probability_best({"a": a, "b": b, "c": c}) == {
        "a": (1 + 0.5) / 4,
        "b": (0.5 + 1) / 4,
        "c": 1 / 4,
    }
    # Rounding is no win.
    assert probability_shorter(a, a * (1 + 1e-15)) == 0.5
    assert reduction(np.array([8.0]), np.array([10.0])) == pytest.approx([0.2])


@given(
    arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(0.1, 10.0))
)
def test_probabilities_are_consistent(table):
    draws = {str(i): row for i, row in enumerate(table)}
    shares = probability_best(draws)
    assert sum(shares.values()) == pytest.approx(1.0)
    forth, back = probability_shorter(table[0], table[-1]), probability_shorter(table[-1], table[0])
    assert forth + back == pytest.approx(1.0)
    if len(table) == 2:
        assert shares["0"] == pytest.approx(forth)


def test_pairing_removes_the_common_error():
    # Both schedulers share an error of a factor of 2; b is always 2% slower. Unpaired intervals
    # overlap almost wholly; paired, a always wins.
    rng = np.random.default_rng(0)
    a = rng.uniform(1.0, 2.0, 200)
    result = compare([1.5], [1.53], a, a * 1.02)
    assert result.probability == 1.0
    assert result.separable
    assert result.interval.low == pytest.approx(1 - 1 / 1.02)
    assert result.interval.high == pytest.approx(1 - 1 / 1.02)
    assert result.reduction == pytest.approx(1 - 1.5 / 1.53)
    assert result.seeds_interval is None


def test_separable_at_95_percent_and_unknown_without_draws():
    b = np.full(100, 1.0)
    for wins, separable in ((95, True), (94, False), (5, True), (6, False)):
        a = np.where(np.arange(100) < wins, 0.9, 1.1)
        assert compare([1.0], [1.0], a, b).separable is separable
    nothing = compare([1.0], [2.0], np.zeros(0), np.zeros(0))
    assert nothing.separable is None
    assert nothing.interval is None
    assert nothing.reduction == 0.5


def test_bootstrap_over_seeds():
    # The mean of n values of standard deviation s has standard error s / sqrt(n).
    values = np.random.default_rng(1).normal(0.2, 0.05, 400)
    low, high = bootstrap_mean(values).low, bootstrap_mean(values).high
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert bootstrap_mean(np.full(6, 0.3)).low == pytest.approx(0.3)
    none = np.zeros(0)
    assert compare([1.0] * 4, [2.0] * 4, none, none).seeds_interval is None
    assert compare([1.0] * 5, [2.0] * 5, none, none).seeds_interval.low == pytest.approx(0.5)


def test_without_draws_seeds_decide():
    none = np.zeros(0)
    b = np.array([1.0, 1.1, 0.9, 1.2, 1.0, 1.05])
    assert compare(0.9 * b, b, none, none).separable is True
    assert compare(b[::-1], b, none, none).separable is False
    assert compare(b[:4], 2 * b[:4], none, none).separable is None


def test_unpaired_samples_are_refused():
    with pytest.raises(ValueError, match="same number"):
        probability_shorter(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="same number"):
        probability_best({"a": np.zeros(0)})
