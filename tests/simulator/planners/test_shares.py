"""Shares: the closed form against a search, whole units against all that there are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.planners.shares import tuned_units, whole_units
from tests.examples import examples
from tests.simulator.planners.linear_shares import linear_shares


def test_the_known_answer():
    end, shares = linear_shares((3, 1), (0, 0.1))
    assert end == pytest.approx(0.275)
    np.testing.assert_allclose(shares, (0.825, 0.175))


def test_devices_whose_overhead_is_as_long_as_all_take_none():
    end, shares = linear_shares((3, 1, 5), (0, 1 / 3, 2))
    assert end == pytest.approx(1 / 3)
    np.testing.assert_allclose(shares, (1, 0, 0))


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_equal_devices_are_so_many_times_as_fast(devices):
    end, shares = linear_shares([2.0] * devices, [0.0] * devices)
    assert end == pytest.approx(0.5 / devices)
    np.testing.assert_allclose(shares, 1 / devices)


positive = st.floats(0.1, 10)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(positive, st.floats(0, 2)), min_size=1, max_size=5))
def test_no_subset_of_linear_devices_ends_sooner(devices):
    speed, overhead = np.array(devices).T
    end, shares = linear_shares(speed, overhead)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    ends = []
    for size in range(1, len(devices) + 1):
        for chosen in itertools.combinations(range(len(devices)), size):
            s, o = speed[list(chosen)], overhead[list(chosen)]
            ends.append(max((1 + (o * s).sum()) / s.sum(), o.max()))
    assert end == pytest.approx(min(ends))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any), st.integers(0, 50))
def test_whole_units_differ_by_less_than_one(weights, units):
    shares = np.array(weights) / sum(weights)
    found = whole_units(shares, units)
    assert found.sum() == units
    assert (np.abs(found - shares * units) < 1 + 1e-6).all()


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 8))
def test_tuned_units_are_the_best_of_convex_times(data, devices, units):
    """Where times grow ever faster, no single move away is better than none: the climb ends at the best."""
    steps = data.draw(
        st.lists(
            st.lists(st.integers(1, 9), min_size=units, max_size=units),
            min_size=devices,
            max_size=devices,
        )
    )
    times = np.array([[0.0, *np.cumsum(sorted(row))] for row in steps]).T
    vector, end = tuned_units(times)
    assert vector.sum() == units
    every = np.arange(devices)
    best = min(
        times[list(v), every].max()
        for v in itertools.product(range(units + 1), repeat=devices)
        if sum(v) == units
    )
    assert end == times[vector, every].max() == best
