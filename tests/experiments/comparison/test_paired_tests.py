"""Tests of pairs against a textbook example and by enumeration of all signs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.comparison import paired_tests as tested
from experiments.comparison.paired_tests import fewest_pairs, paired_tests, rank_biserial
from tests.examples import examples


def test_fishers_own_example(monkeypatch):
    # Fisher 1935, "The Design of Experiments", 21: of Darwin's 15 pairs of maize 1,726 of the 2**15 sign patterns
    # have a sum as far from 0.
    darwin = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48])
    monkeypatch.setattr(tested, "_MEANS", 2**15)
    (exact,) = paired_tests([darwin])
    assert exact.p == 1726 / 2**15
    assert exact.low < 0 < darwin.mean() < exact.high
    assert exact.verdict == 0
    monkeypatch.undo()
    (drawn,) = paired_tests([darwin])
    assert drawn.p == pytest.approx(exact.p, abs=0.01)


@given(
    st.lists(st.integers(-50, 50), min_size=8, max_size=10),
    st.sampled_from([1, 4]),
)
@settings(max_examples=examples(25), deadline=None)
def test_the_interval_holds_what_sign_flips_do_not_reject(given, tests):
    values = np.array(given, dtype=float)
    signs = np.array(list(itertools.product((1, -1), repeat=len(values))))

    def rejects(mean):
        shifted = values - mean
        sums = signs @ shifted
        tail = min((sums >= shifted.sum() - 1e-9).mean(), (sums <= shifted.sum() + 1e-9).mean())
        return 2 * tests * tail <= 0.05

    found = paired_tests([values, *[np.zeros(0)] * (tests - 1)])[0]
    for end, out in ((found.low, -1e-6), (found.high, 1e-6)):
        assert rejects(end + out)
        assert not rejects(end)
    assert (found.p <= 0.05) == (found.verdict != 0) == rejects(0.0)


def test_equal_pairs_are_no_evidence():
    assert paired_tests([np.zeros(9)])[0].p == 1.0
    assert paired_tests([np.full(9, 1e-12)])[0].verdict == 0
    assert rank_biserial(np.zeros(4)) == 0.0


def test_rank_biserial_by_hand():
    # Ranks 1, 2, 3: negative 1 + 3, positive 2.
    assert rank_biserial(np.array([-1.0, 2.0, -3.0])) == pytest.approx((4 - 2) / 6)
    assert rank_biserial(np.array([-1.0, -2.0])) == 1.0
    assert rank_biserial(np.array([1.0, 2.0])) == -1.0


@pytest.mark.parametrize(("tests", "fewest"), [(1, 6), (5, 8), (10, 9), (300, 14)])
def test_fewest_pairs_is_where_all_in_favour_becomes_significant(tests, fewest):
    assert fewest_pairs(tests) == fewest

    def best(count):
        return paired_tests([-np.arange(1.0, count + 1), *[np.zeros(0)] * (tests - 1)])[0]

    assert best(fewest).p <= 0.05
    assert best(fewest).verdict == -1
    assert np.isnan(best(fewest - 1).p)
    assert best(fewest - 1).verdict is None
