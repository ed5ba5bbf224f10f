"""Tests of pairs against textbook examples, tables and SciPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.comparison.paired_tests import (
    fewest_pairs,
    holm,
    rank_biserial,
    sign_test,
    wilcoxon,
)


def test_holm_by_hand():
    # Four hypotheses at 0.05: 0.005 < 0.05/4 and 0.01 < 0.05/3 are rejected, 0.03 > 0.05/2 stops it.
    adjusted = holm(np.array([0.01, 0.04, 0.03, 0.005]))
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (adjusted <= 0.05).tolist() == [True, False, False, True]
    # What was not tested counts for nothing; nothing goes above 1.
    assert holm(np.array([np.nan, 0.02, 0.8])) == pytest.approx([np.nan, 0.04, 0.8], nan_ok=True)
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
    assert len(holm(np.zeros(0))) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_none_and_bonferroni_and_keeps_the_order(values):
    p = np.array(values)
    adjusted = holm(p)
    assert (adjusted >= p - 1e-15).all()
    assert (adjusted <= np.minimum(p * len(p), 1.0) + 1e-15).all()
    for i, j in itertools.combinations(range(len(p)), 2):
        if p[i] < p[j]:
            assert adjusted[i] <= adjusted[j]


def test_wilcoxon_of_the_textbook():
    # Wilcoxon 1945's own example, Darwin's cross- and self-fertilised maize: T = 24 of 15 pairs.
    darwin = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48])
    assert stats.wilcoxon(darwin).statistic == 24
    assert wilcoxon(darwin) == pytest.approx(0.0413, abs=5e-4)
    # Two-sided and 13 of 15 on one side.
    assert sign_test(darwin) == pytest.approx(2 * (1 + 15 + 105) / 2**15)


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=9, unique=True), st.randoms())
def test_wilcoxon_by_enumeration(sizes, random):
    signs = [random.choice((-1, 1)) for _ in sizes]
    values = np.array(sizes) * np.array(signs)
    ranks = stats.rankdata(sizes)
    observed = min(ranks[values > 0].sum(), ranks[values < 0].sum())
    total = ranks.sum()
    sums = [
        ranks[np.array(choice)].sum()
        for choice in itertools.product((True, False), repeat=len(sizes))
    ]
    extreme = sum(min(s, total - s) <= observed for s in sums)
    assert wilcoxon(values) == pytest.approx(min(extreme / len(sums), 1.0))


def test_equal_pairs_are_left_out():
    values = np.array([0.1, -0.2, 0.3, 0.4, 0.5, 0.7, 0.9])
    padded = np.concatenate([values, np.zeros(5), [1e-12]])
    assert wilcoxon(padded) == wilcoxon(values)
    assert sign_test(padded) == sign_test(values)
    assert rank_biserial(padded) == rank_biserial(values)
    assert wilcoxon(np.zeros(4)) == sign_test(np.zeros(4)) == 1.0
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
        return holm(np.array([wilcoxon(-np.arange(1.0, count + 1))] + [1.0] * (tests - 1)))[0]

    assert best(fewest) <= 0.05 < best(fewest - 1)
