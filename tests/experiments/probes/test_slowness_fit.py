"""What was put in is found, and nothing that was not."""

import numpy as np
import pytest

from experiments.probes.slowness_fit import fitted


def drawn(seed):
    rng = np.random.default_rng(seed)
    said = 10.0 ** rng.uniform(-6, -2, 200)
    more = np.stack([rng.uniform(0, 1, 200), said * rng.uniform(0, 1, 200)], axis=1)
    return said, more, rng.integers(0, 3, 200)


def test_factors_and_costs_of_any_unit_are_found():
    """One cost is of an execution, the other of seconds."""
    said, more, groups = drawn(1)
    factors, costs = np.array([1.2, 0.9, 3.0]), np.array([4e-5, 0.7])
    found = fitted(said, factors[groups] * said + more @ costs, more, groups)
    assert found[0] == pytest.approx(factors)
    assert found[1] == pytest.approx(costs)


def test_what_makes_operators_faster_is_no_reason_to_predict_so():
    said, more, groups = drawn(2)
    factors, costs = fitted(said, 2 * said - 0.3 * more[:, 1], more, groups)
    assert (costs == 0).all()
    assert factors == pytest.approx([2.0] * 3, rel=0.1)


def test_what_never_occurs_costs_nothing():
    said, more, groups = drawn(3)
    factors, costs = fitted(said, 1.5 * said, np.zeros_like(more), groups)
    assert costs.tolist() == [0.0, 0.0]
    assert factors == pytest.approx([1.5] * 3)
