"""Curves of what a cache keeps: what :mod:`tests.simulator.test_weight_cache` does not ask of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.model.weight_hit_curve import ReuseCurve


@pytest.mark.parametrize(
    ("share", "distance"), [(1.0, 8.0), (0.8, 10.0), (0.5, 16.0), (0.4, 16.0), (0.1, 16.0)]
)
def test_up_to_where_a_share_is_kept(share, distance):
    """From 8 on less, linearly to .6 at 12 and .5 at 16; nothing beyond."""
    curve = ReuseCurve((8.0, 12.0, 16.0), (1.0, 0.6, 0.5))
    assert curve.distance(share) == pytest.approx(distance)


TAKEN = st.lists(st.floats(0.05, 1), min_size=1, max_size=4).map(tuple)


@given(st.floats(0, 0.98), TAKEN)
def test_used_again_and_again_it_is_found_as_the_curve_says(kept, taken):
    curve = ReuseCurve((1.0, 8.0), (1.0, kept), taken)
    survival = curve.survival(8.0)
    assert 0 <= survival <= 1
    missing = curve.unused
    for _ in range(2000):
        missing = curve.survivors(curve.left(missing), survival)
        assert min(missing) >= 0
    assert 1 - sum(missing) == pytest.approx(kept, abs=1e-6)
    assert ReuseCurve.from_json(curve.to_json()) == curve


@given(st.floats(0, 1), st.floats(0.01, 1))
def test_one_share_for_all_uses_survives_by_a_closed_form(kept, taken):
    curve = ReuseCurve((1.0, 8.0), (1.0, kept), (taken,))
    assert curve.survival(8.0) == pytest.approx(kept / (taken + kept * (1 - taken)), abs=1e-9)


@given(TAKEN, st.integers(0, 6))
def test_near_uses_in_a_row_leave_one_share_after_the_other(taken, uses):
    curve = ReuseCurve((8.0,), (1.0,), taken)
    missing = 1.0
    for use in range(uses):
        missing *= 1 - taken[min(use, len(taken) - 1)]
    assert sum(curve.left(curve.unused, uses)) == pytest.approx(missing)
    again = curve.unused
    for _ in range(uses):
        again = curve.survivors(curve.left(again), curve.survival(4.0))
    assert sum(again) == pytest.approx(missing)


def test_what_does_not_survive_is_as_if_it_had_never_been_used():
    """Three uses leave a quarter missing of what a cache takes from the second use on; half survives."""
    curve = ReuseCurve((8.0,), (1.0,), (0.0625, 0.2, 2 / 3))
    missing = curve.left(curve.unused, 3)
    assert missing == pytest.approx((0, 0, 0.25))
    assert curve.survivors(missing, 0.5) == pytest.approx((0.5, 0, 0.125))


def test_one_share_or_a_list_is_read():
    assert ReuseCurve.from_json([[8.0], [1.0], 0.3]).taken == (0.3,)  # as releases before wrote it
    assert ReuseCurve.from_json([[8.0], [1.0]]).taken == (1.0,)


@given(st.data())
def test_it_is_kept_there_and_not_beyond(data):
    points = sorted(data.draw(st.sets(st.integers(1, 40), min_size=1, max_size=5)))
    steps = st.integers(0, 8).map(lambda eighths: eighths / 8)
    kept = sorted((data.draw(steps) for _ in points), reverse=True)
    curve = ReuseCurve(tuple(map(float, points)), tuple(kept))
    share = data.draw(st.integers(1, 16)) / 16
    distance = curve.distance(share)
    assert curve.share(distance * (1 - 1e-9)) >= share - 1e-6
    assert curve.share(distance * (1 + 1e-9)) < share + 1e-6
    assert curve.share(distance + 0.01) < share
