"""Draws: pinned to PCG64's words, in range, and uniform."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.random_graphs.draws import Draws
from simulator.errors import InvalidInput


def test_the_first_draws_are_pinned():
    # PCG64 seeded by SeedSequence([7, 10]); a change of these changes every instance ever drawn.
    assert Draws(7).uniform(3).tolist() == [
        0.6503558794220734,
        0.7195450783076736,
        0.1224284996142675,
    ]


@given(st.integers(0, 2**63), st.lists(st.integers(0, 6000), max_size=5))
def test_how_draws_are_asked_for_does_not_change_them(seed, counts):
    piecewise = Draws(seed)
    parts = [piecewise.uniform(count) for count in counts]
    whole = Draws(seed).uniform(sum(counts))
    assert np.concatenate([*parts, np.zeros(0)]).tolist() == whole.tolist()


def test_they_are_numpys_doubles():
    ours = Draws(3, 2).uniform(10_000)
    assert ours.tolist() == np.random.Generator(np.random.PCG64([3, 2])).random(10_000).tolist()


@given(st.integers(0, 1000), st.integers(1, 40), st.data())
def test_ranges(seed, bound, data):
    draws = Draws(seed)
    assert 0 <= draws.below(bound) < bound
    count = data.draw(st.integers(0, bound))
    chosen = draws.distinct(count, bound)
    assert len(set(chosen)) == len(chosen) == count
    assert all(0 <= value < bound for value in chosen)
    values = draws.integers(-3, bound, 100)
    assert values.min() >= -3
    assert values.max() <= bound


def test_choices_are_equally_likely():
    draws = Draws(1)
    counts = Counter(tuple(draws.distinct(2, 4)) for _ in range(12_000))
    assert len(counts) == 12
    # 1000 each, standard deviation 30.
    assert all(850 < count < 1150 for count in counts.values())


def test_streams_and_seeds_differ():
    assert len({Draws(s, t).uniform(1)[0] for s in range(10) for t in range(4)}) == 40
    with pytest.raises(InvalidInput, match=r"seed\.workload=-1"):
        Draws(-1)
