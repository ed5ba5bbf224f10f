"""What operators find gone from the caches, by hand, and what that costs, from times made up with it."""

import numpy as np
import pytest

from experiments.probes.cold_calls import FORGETTING_S, coldness, fitted
from simulator.graph import DataflowGraph, Operator, Tensor


def chain(kinds):
    return DataflowGraph(
        "chain",
        [Operator(f"{kind}{i}", kind) for i, kind in enumerate(kinds)],
        [Tensor(f"t{i}", "activation" if i else "input", 4.0) for i in range(len(kinds) + 1)],
        [[i] for i in range(len(kinds))],
        [[i + 1] for i in range(len(kinds))],
    )


def test_coldness_by_hand():
    """A convolution of 2 ms, a normalisation of 1 ms, and the same again."""
    found = coldness(chain(["conv", "norm", "conv", "norm"]), np.array([2e-3, 1e-3, 2e-3, 1e-3]))

    def gone(milliseconds):
        return 1 - np.exp(-milliseconds * 1e-3 / FORGETTING_S)

    everything = 1.0
    assert found == pytest.approx(
        np.array(
            [
                [everything, everything],  # nothing ran before
                [gone(2), everything],
                [gone(1), gone(1)],
                [gone(2), gone(2)],
            ]
        )
    )


def test_what_cold_code_costs_is_found():
    rng = np.random.default_rng(0)
    said, groups = rng.uniform(1e-5, 2e-4, 60), np.arange(60) % 2
    cold = rng.random((60, 2))
    took = np.array([1.5, 1.2])[groups] * said + cold @ [4e-5, 1e-5]
    factors, costs = fitted(said, took, cold, groups)
    assert factors == pytest.approx([1.5, 1.2])
    assert costs == pytest.approx([4e-5, 1e-5])


def test_nothing_is_gained_where_code_is_gone():
    """Operators that take less behind long ones are no reason to predict so."""
    said, groups = np.full(20, 1e-4), np.zeros(20, dtype=int)
    cold = np.linspace(0, 1, 40).reshape(20, 2)
    factors, costs = fitted(said, 2 * said - 1e-5 * cold[:, 0], cold, groups)
    assert (costs == 0).all()
    assert factors == pytest.approx([2.0], rel=0.1)
