"""Factors drawn together: by hand, at the ends, and against drawn worlds whose factors are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.partial_pooling import PRIOR_MEMBERS, partially_pooled


def test_groups_whose_members_agree_keep_their_factors():
    groups = np.array([0, 0, 1, 1, 2])
    factors = np.array([1.5, 0.5, 3.0])
    said = np.array([1.0, 4.0, 2.0, 2.0, 5.0])
    took = factors[groups] * said
    assert partially_pooled(factors, took, took, groups) == pytest.approx(factors)


def test_groups_that_differ_by_no_more_than_their_members_are_one():
    """Logs of +-0.1 about a group's mean of +-0.01."""
    groups = np.repeat([0, 1], 4)
    took = np.exp(np.tile([0.1, -0.1], 4)) * np.repeat([1.01, 0.99], 4)
    factors = np.array([took[groups == i].mean() for i in (0, 1)])
    found = partially_pooled(factors, factors[groups], took, groups)
    assert found[0] == pytest.approx(found[1])
    assert found[0] == pytest.approx(np.sqrt(factors.prod()))  # equal variances


def test_by_hand():
    """Two groups of two members of a second each as expected, which took 10 and 20% more and less."""
    expected = np.ones(4)
    took = np.array([1.1, 0.9, 1.2, 0.8])
    groups = np.array([0, 0, 1, 1])
    factors = np.array([2.0, 1.0])
    # Of each group: squares of .1 and .1, and of .2 and .2, over two members, one degree of freedom.
    own = np.array([0.02, 0.08])
    variances = (PRIOR_MEMBERS * own.mean() + own) / (PRIOR_MEMBERS + 1) * 2 / 2**2
    between = np.log(2.0) ** 2 / 2 - variances.mean()
    weights = 1 / (between + variances)
    mean = weights[0] * np.log(2.0) / weights.sum()
    believed = between * weights
    by_hand = np.exp(mean + believed * (np.log(factors) - mean))
    assert variances == pytest.approx([0.022, 0.028])
    assert partially_pooled(factors, expected, took, groups) == pytest.approx(by_hand)


def test_a_group_of_one_is_believed_as_its_neighbours_scatter_says():
    """Its own members cannot disagree; those of others do, and it is drawn further than they are."""
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.repeat([0, 1, 2], 30), [3]])
    factors = np.array([1.0, 1.1, 1.2, 1.5])
    took = factors[groups] * np.exp(0.2 * rng.standard_normal(len(groups)))
    factors = np.bincount(groups, took) / np.bincount(groups)
    found = partially_pooled(factors, factors[groups], took, groups)
    alone, others = np.log(factors[3] / found[3]), np.log(factors[0] / found[0])
    assert alone > 3 * abs(others)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_factors_are_drawn_between_themselves(seed, count):
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(count), rng.integers(count, size=rng.integers(0, 40))])
    said = rng.lognormal(0.0, 2.0, len(groups))
    took = said * rng.lognormal(0.0, 0.3, len(groups))
    factors = np.bincount(groups, took) / np.bincount(groups, said)
    found = partially_pooled(factors, factors[groups] * said, took, groups)
    assert np.isfinite(found).all()
    assert found.min() >= factors.min() * (1 - 1e-9)
    assert found.max() <= factors.max() * (1 + 1e-9)


@pytest.mark.parametrize("between", [0.02, 0.1, 0.5])
def test_worlds_whose_factors_are_known(between):
    """Pooled factors err less than each group's own, and less than one for all where groups differ."""
    rng = np.random.default_rng(1)
    sizes = np.array([1, 2, 3, 5, 10, 40])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    errors: dict[str, list[float]] = {"own": [], "one": [], "pooled": []}
    for _ in range(400):
        truth = between * rng.standard_normal(len(sizes))
        said = rng.lognormal(0.0, 1.0, len(groups))
        took = said * np.exp(truth[groups] + 0.12 * rng.standard_normal(len(groups)))
        own = np.bincount(groups, took) / np.bincount(groups, said)
        one = np.full(len(sizes), took.sum() / said.sum())
        pooled = partially_pooled(own, own[groups] * said, took, groups)
        for name, factors in (("own", own), ("one", one), ("pooled", pooled)):
            errors[name].append(float(np.square(np.log(factors) - truth).mean()))
    own, one, pooled = (np.sqrt(np.mean(errors[name])) for name in ("own", "one", "pooled"))
    assert pooled < (0.6 if between < 0.1 else 0.95 if between < 0.3 else 1.02) * own
    if between >= 0.1:
        assert pooled < 0.8 * one
