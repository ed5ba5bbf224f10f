"""Correlations in, correlations out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model.noise import mixing


def test_no_correlation_leaves_numbers_as_they_are():
    assert mixing(np.eye(3)).tolist() == np.eye(3).tolist()


def test_full_correlation_makes_them_equal():
    """Two of three are one: to the bit, though the matrix has no inverse."""
    rows = mixing(np.array([[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]]))
    assert rows[0].tolist() == rows[1].tolist() == [1, 0, 0]
    assert rows[2] == pytest.approx([0.5, 0, np.sqrt(0.75)])


def test_cholesky_where_there_is_one():
    wanted = np.array([[1, 0.3, -0.2], [0.3, 1, 0.6], [-0.2, 0.6, 1]])
    assert mixing(wanted) == pytest.approx(np.linalg.cholesky(wanted))


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_it_is_always_a_correlation_and_the_given_one_where_that_is_possible(values):
    wanted = np.eye(4)
    wanted[np.triu_indices(4, 1)] = values
    wanted = wanted + np.triu(wanted, 1).T
    found = mixing(wanted)
    assert (np.triu(found, 1) == 0).all()
    got = found @ found.T
    assert np.diag(got) == pytest.approx(np.ones(4), abs=1e-6)
    if np.linalg.eigvalsh(wanted).min() > 1e-6:
        assert got == pytest.approx(wanted, abs=1e-6)
