"""What loads are shares of: a capacity that agrees with itself, and a word where it may be wrong."""

import pytest

from experiments.serving_validation.figures import Figures, measure_capacity, settled
from experiments.serving_validation.report import doubts


@pytest.mark.parametrize(
    ("each", "capacity"),
    [
        ([80.0, 82.0, 1.0], 81.0),
        # Something else ran for the first two, and not for as long as it takes to measure three.
        ([66.0, 72.0, 83.0, 82.0, 1.0], 82.5),
        ([50.0, 60.0, 75.0, 90.0, 110.0], 75.0),  # nothing agrees
        ([100.0, 105.0, 1.0], 102.5),  # 5% is agreement
        ([105.0, 100.0, 1.0], 102.5),
        ([100.0, 105.1, 100.0, 100.0, 1.0], 100.0),
    ],
)
def test_a_capacity_is_measured_until_two_in_a_row_agree(each, capacity):
    rates, found = iter(each), Figures("key")
    measure_capacity(found, lambda: next(rates))
    assert found.capacity_per_s == capacity
    assert found.capacities_per_s == [rate for rate in each if rate != 1.0]


def test_one_capacity_agrees_with_nothing():
    assert not settled([])
    assert not settled([80.0])


def figures(simulated, *each):
    return Figures("key", each[-1], [*each], simulated_capacity_per_s=simulated)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (figures(83.0, 82.0, 83.0), []),
        (figures(100.0, 91.0, 92.0), []),
        (figures(83.0, 66.0, 66.0), ["a load of 1 is 0.80 of the simulated capacity"]),
        (figures(60.0, 66.0, 67.0), ["a load of 1 is 1.12 of the simulated capacity"]),
        (figures(83.0, 70.0, 80.0), ["the capacity did not settle: 70, 80/s"]),
        (figures(60.0, 66.0, 80.0), ["the capacity did not settle", "a load of 1 is 1.33"]),
    ],
)
def test_a_capacity_that_may_be_wrong_is_said_to_be(found, words):
    said = doubts(found)
    assert len(said) == len(words)
    assert all(text.startswith(start) for text, start in zip(said, words, strict=True))
