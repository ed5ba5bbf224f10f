"""Every statistic against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.comparison.statistics import (
    SEPARABLE,
    bootstrap_mean,
    compare,
    interval,
    probability_best,
    probability_shorter,
    reduction,
)
from tests.examples import examples


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


def test_one_rule_by_hand():
    b = np.full(200, 1.0)
    # 2.5% of 200 draws are 5: with 5 on the other side the interval leaves 0 out, with 6 it does not.
    for losses, verdict in ((5, 1), (6, 0), (194, 0), (195, -1)):
        a = np.where(np.arange(200) < losses, 1.1, 0.9)
        result = compare([1.0], [1.0], a, b)
        assert result.verdict == verdict
        assert result.separable is (verdict != 0)
        assert (0.0 in result.interval) is (verdict == 0)
        assert result.turned.verdict == -verdict
    nothing = compare([1.0], [2.0], np.zeros(0), np.zeros(0))
    assert nothing.separable is None
    assert nothing.interval is None
    assert nothing.reduction == 0.5
    # Given times and nothing that varies: the difference is what it is.
    assert compare([1.0], [2.0], np.zeros(0), np.zeros(0), exact=True).verdict == 1
    assert compare([1.0], [1.0 + 1e-12], np.zeros(0), np.zeros(0), exact=True).verdict == 0


@given(arrays(float, st.tuples(st.just(2), st.integers(20, 120)), elements=st.floats(0.1, 10.0)))
@settings(max_examples=examples(60), deadline=None)
def test_interval_and_probability_never_disagree(table):
    a, b = table
    result = compare([a.mean()], [b.mean()], a, b)
    shares = ((b - a > 1e-9 * b).mean(), (a - b > 1e-9 * b).mean())
    assert (result.verdict == 1) == (shares[0] >= SEPARABLE)
    assert (result.verdict == -1) == (shares[1] >= SEPARABLE)
    if result.verdict == 1:
        assert result.probability >= SEPARABLE
    back = compare([b.mean()], [a.mean()], b, a)
    assert back.verdict == result.turned.verdict
    assert back.interval.low == pytest.approx(result.turned.interval.low)
    assert back.estimate == pytest.approx(result.turned.estimate, rel=1e-6, abs=1e-9)


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
