"""Performance profiles against an example worked out by hand."""

import numpy as np

from experiments.comparison.performance_profile import performance_profile


def test_by_hand():
    makespans = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0], [2.0, np.nan]])
    points, shares = performance_profile(makespans)
    assert points.tolist() == [1.0, 2.0, 3.0]
    # a is best in 3 of 4 and within 3 of the best always; b has one result too few.
    assert shares.tolist() == [[0.75, 0.5], [0.75, 0.75], [1.0, 0.75]]


def test_against_a_bound():
    makespans = np.array([[1.0, 2.0], [3.0, 1.5]])
    points, shares = performance_profile(makespans, np.array([1.0, 1.0]))
    assert points.tolist() == [1.0, 1.5, 2.0, 3.0]
    assert shares.tolist() == [[0.5, 0.0], [0.5, 0.5], [0.5, 1.0], [1.0, 1.0]]


def test_rounding_is_no_loss():
    makespans = np.array([[1.0, 1.0 + 1e-15]])
    assert performance_profile(makespans)[1][0].tolist() == [1.0, 1.0]


def test_never_falls_and_the_best_of_an_instance_counts_at_one():
    rng = np.random.default_rng(0)
    makespans = rng.uniform(1, 3, (50, 4))
    points, shares = performance_profile(makespans)
    assert (np.diff(shares, axis=0) >= 0).all()
    assert shares[0].sum() == 1.0
    assert (shares[-1] == 1.0).all()
    direct = [
        ((makespans / makespans.min(axis=1, keepdims=True)) <= p + 1e-12).mean(axis=0)
        for p in points
    ]
    assert (shares == np.array(direct)).all()
