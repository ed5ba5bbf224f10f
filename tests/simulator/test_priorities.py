"""Priorities rounded to 10 significant digits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.planners.priorities import rounded


def test_rounding_errors_vanish() -> None:
    assert 0.1 + 0.2 != 0.3
    assert rounded(0.1 + 0.2) == rounded(0.3) == 0.3
    assert rounded(1e-9 * (0.1 + 0.2)) == rounded(1e-9 * 0.3)


def test_differences_in_the_tenth_digit_stay() -> None:
    assert rounded(1.000000001) != rounded(1.000000002)
    assert rounded(1.00000000001) == rounded(1.0)
    assert rounded(0.0) == 0.0


@given(st.floats(1e-12, 1e12), st.floats(1e-12, 1e12))
def test_rounding_keeps_the_order(a: float, b: float) -> None:
    assert (rounded(a) <= rounded(b)) or a > b
