"""Regret and the flip point by hand."""

import numpy as np
import pytest

from experiments.comparison.leaderboard import standings
from experiments.comparison.robustness import error_factor, flip_point, robustness
from tests.experiments.synthetic_sweep import grid_rows

NOISES = ["none", "systematic(sigma=0.1)", "systematic(sigma=0.3)"]


def test_regret_and_flip_by_hand():
    # heft loses 1% more with each 0.1 of error, fcfs nothing: level at 0.2.
    level = dict(zip(NOISES, (0, 1, 3), strict=True))

    def makespan(scheduler, noise, seed):
        return (1 + seed) * {"heft": 1.0 + 0.01 * level[noise], "fcfs": 1.02}[scheduler]

    table = standings(
        *grid_rows(makespan, {"scheduler": ["heft", "fcfs"], "simulation.noise": NOISES}, range(6))
    )
    found = robustness(table.instances, error_factor(table.factors))
    regret = found.frame.set_index(["error", "scheduler"])["regret"]
    assert regret[(0.0, "fcfs")] == pytest.approx(0.02)
    assert regret[(0.0, "heft")] == 0.0
    assert regret[(0.3, "heft")] == pytest.approx(1.03 / 1.02 - 1)
    assert found.order == ("heft", "fcfs")
    # Between 0.1 (lead 1/101) and 0.3 (lead -1/102) by a straight line.
    ahead, behind = 1.02 / 1.01 - 1, 1.03 / 1.02 - 1
    assert found.flip[0] == pytest.approx(0.1 + 0.2 * ahead / (ahead + behind))
    assert found.flip[1] == "fcfs"


def test_flip_point():
    regret = np.array([[0.0, 1.0, 4.0], [1.0, 1.5, 2.0], [2.0, 1.0, 1.0]])
    # The second is 0.5 behind at 1 and 1 ahead at 2; the third 1 behind and 1 ahead.
    assert flip_point([0.0, 1.0, 2.0], regret) == (1.0 + 0.5 / 1.5, 1)
    assert flip_point([0.0, 1.0], np.array([[0.0, 1.0], [0.5, 1.0]])) is None
    assert flip_point([0.0, 1.0], np.array([[0.0, 0.0], [0.1, 0.1]])) is None


def test_only_where_the_error_varies():
    rows, choices = grid_rows(lambda *_: 1.0, {"scheduler": ["a", "b"], "model.ccr": [1, 2]})
    factors = standings(rows, choices).factors
    assert error_factor(factors) is None
    assert error_factor(factors, "ccr").name == "ccr"
