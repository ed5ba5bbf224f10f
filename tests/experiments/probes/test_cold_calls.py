"""What operators find gone from the caches, by hand, and what that costs, from times made up with it."""

import numpy as np
import pytest

from experiments.probes.cold_calls import FORGETTING_S, coldness
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor


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
