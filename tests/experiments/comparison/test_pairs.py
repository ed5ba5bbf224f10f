"""Pairs of schedulers: counts and ratios by hand, units, verdicts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.comparison.factors import Factor
from experiments.comparison.instances import Instances
from experiments.comparison.overall import by_factor, overall
from experiments.comparison.paired_tests import paired_tests
from experiments.comparison.pairs import choose_unit, compare_pairs, pair_counts, unit_makespans


def instances(makespans, contest=None, names=None, work=None, **facts):
    makespans = np.array(makespans, dtype=np.float64)
    count = len(makespans)
    contest = np.arange(count) if contest is None else np.array(contest)
    return Instances(
        tuple(names or "abcdefgh"[: makespans.shape[1]]),
        makespans,
        np.full(makespans.shape, 1e-3),
        np.full(count, np.nan),
        np.nanmin(makespans, axis=1) / 2,
        contest,
        np.zeros(count, dtype=int),
        contest if work is None else np.array(work),
        pd.DataFrame(facts, index=range(count)),
    )


def test_pair_counts_by_hand():
    #            a     b      c
    makespans = np.array(
        [
            [1.0, 2.0, np.nan],  # a wins
            [1.0, 1.005, 4.0],  # a tie: within 1%
            [3.0, 1.0, 1.0],  # b wins
        ]
    )
    counts = pair_counts(makespans)
    assert (counts.wins[0, 1], counts.ties[0, 1], counts.losses[0, 1]) == (1, 1, 1)
    assert (counts.wins[1, 2], counts.ties[1, 2], counts.losses[1, 2]) == (1, 1, 0)
    # Worst-case ratios: 3/1 for a against b, 2/1 for b against a, c only where both have results.
    assert counts.worst[0, 1] == 3.0
    assert counts.worst[1, 0] == 2.0
    assert counts.worst[2, 1] == pytest.approx(4 / 1.005)
    assert (counts.wins == counts.losses.T).all()
    assert (counts.ties == counts.ties.T).all()


def test_seeds_of_a_model_are_averaged_before_models_are_compared():
    table = instances([[1.0, 2.0], [4.0, 2.0], [1.0, np.nan]], contest=[0, 0, 1])
    means = unit_makespans(table, "contest")
    assert means[0] == pytest.approx([2.0, 2.0])
    assert means[1] == pytest.approx([1.0, np.nan], nan_ok=True)
    assert unit_makespans(table, "seed") is table.makespans


def test_seeds_count_singly_only_where_models_are_too_few():
    many = instances(np.ones((60, 2)), contest=np.repeat(np.arange(10), 6))
    assert choose_unit(many, 1) == "contest"
    few = instances(np.ones((60, 2)), contest=np.repeat(np.arange(5), 12))
    assert choose_unit(few, 1) == "seed"
    # Nothing is gained where every model has one seed.
    assert choose_unit(instances(np.ones((3, 2))), 1) == "contest"
    # More tests need more models.
    assert choose_unit(many, 300) == "seed"


def test_each_drawn_graph_is_an_instance_of_its_own():
    makespans = np.random.default_rng(0).uniform(1, 2, (60, 2))
    table = replace(
        instances(makespans, contest=np.repeat(np.arange(10), 6)),
        drawn=True,
        seed=np.tile(np.arange(6), 10),
    )
    assert choose_unit(table, 1) == "seed"
    found = compare_pairs(table)
    assert (found.units, found.unit_text, found.frame["n"].tolist()) == (60, "drawn graphs", [60])
    assert found.caution.startswith("They are of 6 seeds: graphs that one seed draws in several")
    assert overall(table).units == 60
    # Asked for, settings are paired as those of models are.
    averaged = compare_pairs(table, unit="contest")
    assert (averaged.units, averaged.unit_text) == (10, "models and settings, seeds averaged")


def test_a_row_by_hand():
    rng = np.random.default_rng(0)
    b = rng.uniform(1, 2, 12)
    a = b * np.array([0.8, 0.9, 0.7, 0.95, 0.85, 0.9, 0.6, 0.99, 0.97, 1.05, 0.92, 0.88])
    found = compare_pairs(instances(np.stack([b, a], axis=1), names=("b", "a")))
    (row,) = found.frame.to_dict("records")
    logs = np.log(a / b)
    assert (row["scheduler"], row["against"], row["n"]) == ("a", "b", 12)
    assert row["ratio"] == pytest.approx(np.exp(logs.mean()))
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"] < 1
    # 1.05 is the one loss and the worst case; 0.99 is about a tie.
    assert row["wins"] + row["ties"] == 11
    assert row["losses"] == 1
    assert row["worst_ratio"] == pytest.approx(1.05)
    (test,) = paired_tests([logs])
    assert row["p"] == test.p <= 0.05
    assert row["ratio_high"] == pytest.approx(np.exp(test.high))
    assert row["verdict"] == "shorter"
    assert found.needed == 6


def test_too_few_and_not_separable():
    rng = np.random.default_rng(1)
    few = compare_pairs(instances(np.stack([np.ones(5), np.full(5, 2.0)], axis=1)))
    assert few.frame["verdict"].tolist() == ["too few"]
    assert np.isnan(few.frame["p"]).all()
    even = compare_pairs(instances(rng.uniform(1, 2, (30, 2))))
    assert even.frame["verdict"].tolist() == ["not separable"]
    # Nearly always a little shorter, once a hundred times as long: on average longer, and nobody knows.
    b = np.ones(30)
    a = np.append(np.full(29, 0.97) + np.arange(29) * 1e-5, 100.0)
    mixed = compare_pairs(instances(np.stack([a, b], axis=1)))
    assert mixed.frame["verdict"].tolist() == ["not separable"]


def test_settings_of_one_model_are_said_not_to_be_independent():
    makespans = np.random.default_rng(0).uniform(1, 2, (12, 2))
    alike = compare_pairs(instances(makespans, work=[0, 1, 2] * 4))
    assert alike.unit_text == "models and settings"
    assert alike.caution.startswith("They are of 3 models: settings of one model count as")
    seeds = compare_pairs(instances(makespans, contest=[0, 1] * 6, work=[0, 0] * 6))
    assert seeds.unit_text == "seeds of the models and settings"
    assert seeds.caution.startswith("They are of 1 model: settings and seeds of one model")
    assert compare_pairs(instances(makespans)).caution == ""
    averaged = compare_pairs(instances(makespans, contest=list(range(6)) * 2))
    assert averaged.unit_text == "models and settings, seeds averaged"


def test_a_baseline_makes_fewer_tests_to_correct_for():
    rng = np.random.default_rng(2)
    base = rng.uniform(1, 2, 20)
    skill = np.array([1.0, 1.03, 1.2, 1.04])
    table = instances(base[:, None] * skill * rng.lognormal(0, 0.04, (20, 4)))
    every = compare_pairs(table)
    assert len(every.frame) == 6
    against = compare_pairs(table, "c")
    assert len(against.frame) == 3
    assert {"c"} == set(against.frame["against"])
    pair = ("a", "c")
    p_every = every.frame.set_index(["scheduler", "against"]).loc[pair]
    p_against = against.frame.set_index(["scheduler", "against"]).loc[pair]
    assert p_every["p"] > p_against["p"]
    assert p_every["ratio_high"] > p_against["ratio_high"]


def test_false_claims_are_as_rare_as_said():
    """Of sweeps of four equal schedulers at most 5% claim that one beats another."""
    rng = np.random.default_rng(3)
    claims = 0
    for _ in range(100):
        table = instances(rng.lognormal(0, 0.2, (16, 4)))
        claims += (compare_pairs(table).frame["verdict"] == "shorter").any()
    assert claims <= 12  # the 99.9% quantile of 100 draws at 5%


def test_overall_by_hand():
    table = instances(
        [[1.0, 2.0], [2.0, 1.0], [1.0, np.nan], [1.0, 1.005]], ccr=[0.1, 0.1, 1.0, 1.0]
    )
    result = overall(table)
    frame = result.frame.set_index("scheduler")
    assert result.instances == 4
    # A scheduler that lacks a result comes after those that have all.
    assert frame.index.tolist() == ["a", "b"]
    assert frame.loc["a", "ratio_to_best"] == pytest.approx(2 ** (1 / 4))
    assert frame.loc["b", "ratio_to_best"] == pytest.approx((2 * 1.005) ** (1 / 3))
    assert frame.loc["a", "share_best"] == 0.75
    assert frame.loc["b", "share_best"] == 0.5
    assert frame.loc["b", "worst_ratio"] == 2.0
    assert frame.loc["b", "n"] == 3
    assert frame.loc["a", "ratio_to_bound"] == pytest.approx(2 * 2 ** (1 / 4), rel=1e-3)
    rows = by_factor(table, (Factor("ccr", "ccr", (0.1, 1.0), True),)).set_index("value")
    assert rows.loc["0.1", "a"] == rows.loc["0.1", "b"] == pytest.approx(2**0.5)
    assert rows.loc["1", "best"] == "a"


def test_the_time_of_decisions_is_the_median_of_the_instances_that_have_one():
    times = np.array([[1.0, np.nan], [2.0, np.nan], [9.0, np.nan], [np.nan, np.nan]])
    table = replace(instances([[1.0, 2.0]] * 4), planning=times)
    frame = overall(table).frame.set_index("scheduler")
    assert frame.loc["a", "decision_s"] == 2.0
    assert np.isnan(frame.loc["b", "decision_s"])
