"""Paired differences of factors whose effect is known."""

import numpy as np
import pytest

from experiments.comparison.effects import effects
from experiments.comparison.leaderboard import standings
from tests.experiments.synthetic_sweep import grid_rows


def found(makespan, axes, seeds=range(4)):
    table = effects(standings(*grid_rows(makespan, axes, seeds)))
    return table, table.frame.set_index(["factor", "value"]) if len(table.frame) else None


def test_effects_are_recovered_whatever_else_varies():
    def makespan(scheduler, pricing, contention, ccr, seed):
        base = {"donf": 1.0, "heft": 1.3}[scheduler] * ccr * (1 + 0.37 * seed)
        return (
            base * {"default": 1.0, "per_edge": 0.9}[pricing] * {"none": 1, "fifo": 1.2}[contention]
        )

    axes = {
        "scheduler": ["donf", "heft"],
        "scheduler.options.pricing": ["default", "per_edge"],
        "simulation.contention": ["none", "fifo"],
        "model.ccr": [1, 4],
    }
    table, frame = found(makespan, axes)
    # 2 schedulers x 2 contentions x 2 CCRs x 4 seeds.
    pricing = frame.loc[("pricing", "per_edge")]
    assert pricing["n"] == 32
    assert pricing["ratio"] == pytest.approx(0.9)
    assert (pricing["ratio_low"], pricing["ratio_high"]) == pytest.approx((0.9, 0.9))
    assert pricing["verdict"] == "shorter"
    assert pricing["against"] == "default"
    contention = frame.loc[("contention", "fifo")]
    assert contention["ratio"] == pytest.approx(1.2)
    assert contention["verdict"] == "longer"
    assert frame.loc[("scheduler", "heft"), "ratio"] == pytest.approx(1.3)
    assert frame.loc[("ccr", "4"), "ratio"] == pytest.approx(4.0)
    ingredients = {e.factor.name for e in table.effects if e.ingredient}
    assert ingredients == {"pricing", "contention", "scheduler"}


def test_every_value_against_the_usual_one():
    def makespan(scheduler, contention, seed):
        return {"fair": 2.0, "fifo": 3.0, "none": 1.0}[contention]

    axes = {"scheduler": ["a", "b"], "simulation.contention": ["fair", "fifo", "none"]}
    _, frame = found(makespan, axes)
    assert frame.index.tolist() == [("contention", "fair"), ("contention", "fifo")]
    assert frame["ratio"].tolist() == pytest.approx([2.0, 3.0])
    assert set(frame["against"]) == {"none"}


def test_models_and_whole_schedulers_are_not_effects():
    table, frame = found(lambda *_: 1.0, {"scheduler": ["a", "b"], "model": ["m", "n"]})
    assert table.effects == ()
    assert frame is None


def test_pairs_need_both_runs():
    rows, choices = grid_rows(
        lambda s, c, seed: 1.0 + seed,
        {"scheduler": ["a"], "simulation.contention": ["none", "fifo"]},
    )
    rows = rows[~((rows["contention"] == "fifo") & (rows["seed_workload"] > 1))]
    (effect,) = effects(standings(rows, choices)).effects
    assert len(effect.logs) == 2
    table = effects(standings(rows, choices)).frame
    assert table["verdict"].tolist() == ["too few"]
    assert np.isnan(table["ratio_low"]).all()
