"""Gaps of a timeline, against a search through all of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.planners.timeline import Timeline
from tests.examples import examples


def booked(*spans: tuple[float, float]) -> Timeline:
    line = Timeline()
    for start, end in spans:
        line.book(start, end - start)
    return line


def test_gaps() -> None:
    line = booked((2, 4), (9, 10), (5, 7))
    assert line.earliest(0, 2) == 0
    assert line.earliest(0, 3) == 10  # 0-2, 4-5 and 7-9 are too short
    assert line.earliest(0, 3, insertion=False) == 10
    assert line.earliest(3, 1) == 4
    assert line.earliest(3, 2) == 7
    assert line.earliest(8, 1) == 8
    assert line.earliest(8, 1.5) == 10
    assert line.earliest(11, 5) == 11
    assert Timeline().earliest(3, 5) == 3


def test_an_interval_of_no_length_does_not_start_where_another_does() -> None:
    line = booked((5, 7))
    assert line.earliest(5, 0) == 7
    assert line.earliest(4, 0) == 4
    line.book(4, 0)
    assert line.earliest(4, 1) == 4


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=12),
    st.integers(0, 40),
    st.integers(1, 6),
)
def test_the_earliest_gap(requests: list[tuple[int, int]], ready: int, duration: int) -> None:
    line, taken = Timeline(), set()
    for wanted, length in requests:
        start = line.earliest(wanted, length)
        cells = set(range(int(start), int(start) + length))
        assert start >= wanted
        assert not cells & taken
        taken |= cells
        line.book(start, length)
    expected = next(t for t in range(ready, 500) if not set(range(t, t + duration)) & taken)
    assert line.earliest(ready, duration) == expected
    last = max(taken, default=-1) + 1
    assert line.earliest(ready, duration, insertion=False) == max(ready, last)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8),
)
def test_what_is_undone_leaves_nothing(
    kept: list[tuple[int, int]], tried: list[tuple[int, int]]
) -> None:
    line = Timeline()
    for wanted, length in kept:
        line.book(line.earliest(wanted, length), length)
    before = {key: [*value] if key != "_end" else value for key, value in vars(line).items()}
    done = [line.book(line.earliest(wanted, length), length) for wanted, length in tried]
    for booking in reversed(done):
        line.undo(booking)
    assert vars(line) == before
