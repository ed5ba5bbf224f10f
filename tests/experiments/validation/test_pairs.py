"""Pairs of schedulers whose order on hardware is known."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.validation.cases import Case
from experiments.validation.pairs import Pair, by_draws, kendall_tau, pairs, regret, reliability


def case(model, scheduler, simulated, measured, jobs=1, draws=()):
    repeats = np.array([measured, measured * 1.2, measured * 1.1, measured * 1.4])
    nan = float("nan")
    return Case(
        *(model, scheduler, None, None, simulated, nan, nan, nan, repeats, measured, {}, jobs),
        draws_s=np.array(draws, dtype=np.float64),
    )


def test_pairs_rank_and_regret():
    cases = [
        case("m", "a", 1.0, 1.0),
        case("m", "b", 0.9, 1.03),  # simulation prefers b, wrongly but by less than 5%
        case("m", "c", 2.0, 3.0),
        case("n", "a", 5.0, 4.0),
        case("n", "b", 4.0, 8.0),  # the wrong winner
    ]
    found = pairs(cases)
    assert [(p.model, p.first, p.second) for p in found] == [
        ("m", "a", "b"),
        ("m", "a", "c"),
        ("m", "b", "c"),
        ("n", "a", "b"),
    ]
    assert [p.separate for p in found] == [False, True, True, True]
    assert [p.agrees for p in found] == [False, True, True, False]
    assert all(p.told_apart for p in found)
    assert not Pair("m", "a", "b", 1.04, 1.3).told_apart
    assert Pair("m", "a", "b", 0.94, 1.3).told_apart
    assert kendall_tau(found) == 0.0
    assert regret(cases) == {"m": pytest.approx(0.03), "n": pytest.approx(1.0)}
    assert cases[2].error == pytest.approx(-1 / 3)
    assert not cases[0].covered


def test_jobs_at_once_are_a_setting_of_their_own():
    cases = [
        case("m", "a", 1.0, 1.0),
        case("m", "b", 2.0, 2.0),
        case("m", "a", 4.0, 5.0, jobs=4),
        case("m", "b", 3.0, 4.0, jobs=4),
    ]
    assert [(p.model, p.simulated) for p in pairs(cases)] == [("m", 2.0), ("m x4", 0.75)]
    assert regret(cases) == {"m": 0.0, "m x4": 0.0}


def test_a_simulated_tie_neither_agrees_nor_disagrees():
    assert kendall_tau([Pair("m", "a", "b", 1.0, 1.3), Pair("m", "a", "c", 1.2, 1.3)]) == 0.5
    assert np.isnan(kendall_tau([]))


def race(draws=20, lost=8):
    """a takes 1 s, but 3 s where it loses the race, which it did on hardware; b always takes 1.2 s, c 1.3 s."""
    return [
        case("m", "a", 1.0, 3.0, draws=[3.0] * lost + [1.0] * (draws - lost)),
        case("m", "b", 1.2, 1.2, draws=[1.2] * draws),
        case("m", "c", 1.3, 1.25, draws=[1.3] * draws),
    ]


def test_the_draws_know_that_a_race_may_be_lost():
    cases = race()
    assert cases[0].expected_s == pytest.approx(3 ** (8 / 20))  # 1.55
    assert cases[1].expected_s == pytest.approx(1.2)
    found = pairs(cases)
    assert [p.agrees for p in found] == [False, False, True]
    assert [p.draws_agree for p in found] == [True, True, True]
    assert [p.probability for p in found] == pytest.approx([0.6, 0.6, 1.0])
    assert regret(cases) == {"m": pytest.approx(1.5)}
    assert regret(cases, by_draws) == {"m": 0.0}


def test_pairs_of_few_or_unequally_many_draws_have_no_p_win():
    assert np.isnan(pairs(race(19))[0].probability)
    cases = race()
    cases[1] = replace(cases[1], draws_s=cases[1].draws_s[:-1])
    assert np.isnan([p.probability for p in pairs(cases)]).tolist() == [True, False, True]
    assert np.isnan(pairs([case("m", "a", 1, 1), case("m", "b", 2, 2)])[0].expected)


def test_how_often_p_win_came_true():
    """Turning a pair round changes nothing; who favours none is in no group."""

    def pair(probability, measured):
        return Pair("m", "a", "b", 1.0, measured, 1.0, probability)

    found = reliability(
        [
            pair(0.6, 1.2),
            pair(0.6, 0.98),  # the other one, by less than 5%
            pair(0.4, 0.8),  # turned: the second is favoured at .6, and was shorter
            pair(0.95, 1.01),
            pair(0.0, 1.3),  # in no draw, and yet
            pair(1.0, 1.3),
            pair(0.5, 1.3),
            pair(float("nan"), 1.3),
        ]
    )
    assert [(g.low, g.high, g.pairs, g.right, g.separate, g.separate_right) for g in found] == [
        (0.5, 0.7, 3, 2, 2, 2),
        (0.9, 0.99, 1, 1, 0, 0),
        (1.0, 1.0, 2, 1, 2, 1),
    ]
    assert [g.stated for g in found] == pytest.approx([0.6, 0.95, 1.0])
    assert reliability([]) == []
