"""What varies in a sweep, however it is written down."""

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.factors import ERROR, find_factor, with_factors
from experiments.comparison.leaderboard import standings
from simulator.errors import InvalidInput
from tests.experiments.comparison.test_leaderboard import row
from tests.experiments.synthetic_sweep import grid_rows


def flat(*_):
    return 1.0


def names(table):
    return [factor.name for factor in table.factors]


def test_axes_options_and_labels_become_factors():
    axes = {
        "scheduler": ["donf", "heft"],
        "scheduler.options.pricing": ["default", "per_edge"],
        "model.ccr": [0.1, 1.0, 10.0],
        "simulation.contention": ["none", "fifo"],
    }
    rows, choices = grid_rows(flat, axes)
    table = standings(rows, choices)
    assert set(names(table)) == {"scheduler", "pricing", "ccr", "contention"}
    ccr = find_factor(table.factors, "ccr")
    assert ccr.numeric
    assert ccr.values == (0.1, 1.0, 10.0)
    pricing = find_factor(table.factors, "pricing")
    assert pricing.of_scheduler
    assert pricing.values == ("default", "per_edge")
    # Without the grid labels say the same.
    again = standings(rows)
    assert set(names(again)) == set(names(table))
    assert len(again.contests) == len(table.contests) == 6
    assert table.schedulers == ("donf", "donf(pricing=per_edge)", "heft", "heft(pricing=per_edge)")
    assert table.scheduler_factors["heft(pricing=per_edge)"]["scheduler of"] == "heft"


def test_what_no_label_shows_still_tells_cells_apart():
    rows, choices = grid_rows(flat, {"scheduler": ["a", "b"], "simulation.horizon": ["1s", "2s"]})
    table = standings(rows, choices)
    assert [contest.model for contest in table.contests] == [
        "daggen(horizon=1s)",
        "daggen(horizon=2s)",
    ]
    assert [len(contest.standings) for contest in table.contests] == [2, 2]
    rows, choices = grid_rows(flat, {"scheduler.class_path": ["x.A", "x.B"]})
    rows["scheduler"] = "mine"
    assert standings(rows, choices).schedulers == ("mine(class_path=x.A)", "mine(class_path=x.B)")
    with pytest.raises(InvalidInput, match=r"Cells 0+ and 0+3 differ in nothing .* grid\.yaml"):
        standings(rows)


def test_columns_of_other_origin():
    rows, _ = grid_rows(
        flat, {"scheduler": ["a", "b"], "model": ["m(seed=1)", "n(seed=2)"]}, range(4)
    )
    rows["fat"] = [0.2 if m.startswith("m") else 0.8 for m in rows["model"]]
    # A measured figure differs between seeds or schedulers: no part of the configuration.
    rows["measured_width"] = np.arange(len(rows))
    table = standings(rows)
    assert "measured_width" not in [factor.column for factor in table.factors]
    assert find_factor(table.factors, "fat").values == (0.2, 0.8)


def test_columns_that_vary_together_are_one_factor():
    rows, choices = grid_rows(flat, {"scheduler": ["a", "b"], "model.ccr": [1, 2]})
    rows["cluster"] = rows["model"].map({"daggen(ccr=1)": "x", "daggen(ccr=2)": "y"})
    assert sorted(names(standings(rows, choices))) == ["ccr", "scheduler"]


def test_a_label_that_sums_up_other_factors_is_none():
    rows, choices = grid_rows(flat, {"scheduler": ["a", "b"], "x.ccr": [1, 2], "x.fat": [3, 4]})
    choice = [choices[cell] for cell in rows["cell"]]
    rows["model"] = [f"d-{c['x.ccr']}-{c['x.fat']}" for c in choice]
    assert sorted(names(standings(rows, choices))) == ["ccr", "fat", "scheduler"]


def test_the_error_of_estimates():
    noises = ["none", "systematic(sigma=0.1)", "systematic(sigma=0.4)+lognormal(sigma=0.1)"]
    rows, choices = grid_rows(flat, {"scheduler": ["a", "b"], "simulation.noise": noises})
    (error,) = [f for f in standings(rows, choices).factors if f.column == ERROR]
    assert error.values == (0.0, 0.1, 0.4)
    rows["noise"] = ["none" if n == "none" else "systematic" for n in rows["noise"]]
    # Of unknown width.
    assert ERROR not in with_factors(standings_ready(rows))[0].columns


def standings_ready(rows):
    return rows.assign(
        memory="unlimited", decision_cost="none", seed_noise=np.arange(len(rows)), seed_search=0
    )


def test_unknown_and_ambiguous_names():
    rows, choices = grid_rows(flat, {"a.x": [1, 2], "b.x": [1, 2]})
    factors = standings(rows, choices).factors
    assert [factor.name for factor in factors] == ["a.x", "b.x"]
    with pytest.raises(
        InvalidInput, match=r"'y' is not what varies in this sweep; it varies a\.x, b\.x"
    ):
        find_factor(factors, "y")
    with pytest.raises(InvalidInput, match="'x' is ambiguous"):
        find_factor(factors, "x")
    with pytest.raises(InvalidInput, match="it varies nothing"):
        find_factor((), "x")


def test_seeds_are_no_factor_and_one_cell_has_none():
    assert standings(pd.DataFrame([row("a", 1.0)])).factors == ()
    assert standings(pd.DataFrame([row("a", 1.0, seed=s) for s in range(3)])).factors == ()
