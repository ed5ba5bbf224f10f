"""Curves of what a cache keeps: what :mod:`tests.simulator.test_weight_cache` does not ask of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reuse_curve import ReuseCurve


@pytest.mark.parametrize(
    ("share", "distance"), [(1.0, 8.0), (0.8, 10.0), (0.5, 16.0), (0.4, 16.0), (0.1, 16.0)]
)
def test_up_to_where_a_share_is_kept(share, distance):
    """From 8 on less, linearly to .6 at 12 and .5 at 16; nothing beyond."""
    curve = ReuseCurve((8.0, 12.0, 16.0), (1.0, 0.6, 0.5))
    assert curve.distance(share) == pytest.approx(distance)


@given(st.floats(0, 1), st.floats(0.01, 1))
def test_used_again_and_again_it_is_found_as_the_curve_says(kept, taken):
    curve = ReuseCurve((1.0, 8.0), (1.0, kept), taken)
    assert 0 <= curve.survival(8.0) <= 1
    assert curve.left(kept) * curve.survival(8.0) == pytest.approx(kept)
    assert ReuseCurve.from_json(curve.to_json()) == curve


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
