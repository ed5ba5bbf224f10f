"""The map of winners: who wins where is known, and so is how surely."""

import numpy as np
import pytest

from experiments.comparison.leaderboard import standings
from experiments.comparison.winners import choose_map, winner_map
from simulator.errors import InvalidInput
from tests.experiments.synthetic_sweep import grid_rows

AXES = {"scheduler": ["a", "b"], "model.ccr": [0.1, 10], "model.heterogeneity": [1, 2]}


def table(seeds=12, noise=0.02):
    rng = np.random.default_rng(0)

    def makespan(scheduler, ccr, heterogeneity, seed):
        # a wins at a low CCR, b at a high one; at heterogeneity 2 they are alike.
        lead = 0.1 * (heterogeneity == 1)
        behind = (scheduler == "b") == (ccr < 1)
        return (1 + seed) * (1 + lead * behind) * np.exp(noise * rng.normal())

    return standings(*grid_rows(makespan, AXES, range(seeds)))


def test_winners_and_whether_they_are_separable():
    found = table()
    axes = choose_map(found.factors)
    assert [factor.name for factor in axes] == ["ccr", "heterogeneity"]
    result = winner_map(found.instances, *axes)
    cells = result.frame.set_index([factor.column for factor in axes])
    assert result.needed == 8
    assert cells.loc[(0.1, 1), "winner"] == "a"
    assert cells.loc[(10, 1), "winner"] == "b"
    assert cells.loc[(0.1, 1), "lead"] == pytest.approx(0.1, abs=0.03)
    assert cells["separable"].tolist() == [True, True, False, False]
    assert (cells["n"] == 12).all()
    assert result.warning == ""


def test_too_few_seeds_are_never_separable():
    found = table(seeds=7)
    result = winner_map(found.instances, *choose_map(found.factors))
    assert not result.frame["separable"].any()
    assert result.warning == (
        "Too few seeds for the map of winners: no cell has the 8 instances that its test needs (at most 7 a cell); "
        "give seed.workload more values."
    )


def test_choosing_the_two_factors():
    factors = table(2).factors
    assert [f.name for f in choose_map(factors, ("heterogeneity", "ccr"))] == [
        "heterogeneity",
        "ccr",
    ]
    with pytest.raises(InvalidInput, match="'fat' is not what varies"):
        choose_map(factors, ("fat", "ccr"))
    with pytest.raises(InvalidInput, match="two different factors"):
        choose_map(factors, ("ccr", "ccr"))
    with pytest.raises(InvalidInput, match="part of the schedulers"):
        choose_map(factors, ("scheduler", "ccr"))
    assert choose_map(factors[:1]) is None


def test_a_scheduler_without_all_results_does_not_win_a_cell():
    rows, choices = grid_rows(
        lambda s, c, h, seed: 1.0 if s == "a" else 2.0, AXES | {"scheduler": ["a", "b", "c"]}
    )
    rows = rows[~((rows["scheduler"] == "a") & (rows["seed_workload"] == 1))]
    found = standings(rows, choices)
    result = winner_map(found.instances, *choose_map(found.factors))
    assert set(result.frame["winner"]) == {"b"}
