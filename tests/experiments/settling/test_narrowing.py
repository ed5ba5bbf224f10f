"""Variances in closed form, greedy against every subset, expectations against drawing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.table import rows_of
from cost_models.uncertainty import LEARNT, LookedUp, Residuals, draw_factors, narrowing
from experiments.settling.narrowing import (
    Unknowns,
    choose,
    expected_probability,
    probability_above_zero,
)
from tests.cost_models.test_profile import linear


def unknowns(
    sensitivity, *, shared, own, group=None, repeat=0.0, seconds=1.0, measured=False, **more
):
    n = len(sensitivity)
    given = {"shared": shared, "own": own, "repeat": repeat, "seconds": seconds}
    columns = {key: np.broadcast_to(np.asarray(v, float), n).copy() for key, v in given.items()}
    return Unknowns(
        group=np.zeros(n, int) if group is None else np.array(group),
        sensitivity=np.array(sensitivity, float),
        measured=np.broadcast_to(measured, n).copy(),
        **columns,
        **more,
    )


def only(*positions, of):
    chosen = np.zeros(of, bool)
    chosen[list(positions)] = True
    return chosen


def test_a_chain_of_two_with_errors_of_their_own():
    """3 s and 4 s in a row, each off by 10%: 0.1 sqrt(9 + 16); either one known leaves the other."""
    found = unknowns([3, 4], shared=0, own=0.01)
    assert math.sqrt(found.variance()) == pytest.approx(0.5)
    assert math.sqrt(found.variance(only(1, of=2))) == pytest.approx(0.3)
    assert found.variance(only(0, 1, of=2)) == 0


def test_a_chain_of_two_with_one_error():
    """Wrong together by 10%: 0.7 s; and whoever measures one of them learns of the other."""
    found = unknowns([3, 4], shared=0.01, own=0)
    assert math.sqrt(found.variance()) == pytest.approx(0.7)
    assert found.variance(only(0, of=2)) == pytest.approx(16 * 0.01 * (1 - LEARNT))
    assert [choice.operator for choice in choose(found)] == [1]


def test_a_common_error_cancels_between_two_paths():
    found = unknowns([3, -3], shared=0.01, own=0.0004)
    assert found.variance() == pytest.approx(2 * 9 * 0.0004)


def test_kinds_do_not_share():
    found = unknowns([3, 4], shared=0.01, own=0, group=[0, 1])
    assert math.sqrt(found.variance()) == pytest.approx(0.5)
    assert found.variance(only(0, of=2)) == pytest.approx(0.16)


def test_what_is_left_of_the_shared_part_is_that_of_a_mean_of_observations():
    """B = 0.04 seen through W = 0.01 + 0.01 twice: 1 / (1/B + 2/W) = B / 5, of which a part is learnt."""
    found = unknowns([1, 1, 2], shared=0.04, own=0.01, repeat=0.01)
    assert found.variance(only(0, 1, of=3)) == pytest.approx(
        2 * 0.01 + 4 * (0.01 + 0.04 * (1 - LEARNT * 0.8))
    )


def test_variance_is_that_of_the_draws():
    """The formula and the draws that a contest is decided by were written apart."""
    rng = np.random.default_rng(3)
    residuals = Residuals((-0.2, -0.1, 0.0, 0.1, 0.2), Residuals.of(_normal(0.08)).within, 400)
    repeat = Residuals((), Residuals.of(_normal(0.03)).within, 400)
    operators = [linear(2, 2, n) for n in range(1, 7)]
    s = rng.normal(size=6)
    for known in ([], [1], [0, 2, 3]):
        measured = only(*known, of=6)
        found = unknowns(
            s,
            shared=residuals.bias_variance,
            own=residuals.within_variance,
            repeat=repeat.within_variance,
            measured=measured,
        )
        logs = np.array(
            [
                np.log(
                    draw_factors(
                        {"linear": residuals},
                        ["linear"] * 6,
                        np.arange(len(rows_of(operators))),
                        np.random.default_rng([5, i]),
                        LookedUp(measured, {"linear": repeat}),
                    )
                )
                for i in range(1500)
            ]
        )
        assert found.variance() == pytest.approx(float(np.var(logs @ s)), rel=0.15)


# -- two profiles whose errors go together ----------------------------------------------------------


def on_two(sensitivity, r, *, shared=0.0, own=0.0, **more):
    """The operators of one profile, then the same on another."""
    n = len(sensitivity) // 2
    return unknowns(
        sensitivity,
        shared=shared,
        own=own,
        group=[0] * n + [1] * n,
        operator=np.tile(np.arange(n), 2),
        correlation={(0, 1): (r, r)},
        **more,
    )


@pytest.mark.parametrize("part", ["shared", "own"])
def test_two_profiles_in_closed_form(part):
    """3 s on the one against 4 s on the other, each off by 10%: 9 + 16 - 2 r 12, over 100."""
    for r in (0.0, 0.5, 1.0):
        found = on_two([3, -4], r, **{part: 0.01})
        assert found.variance() == pytest.approx(0.01 * (25 - 24 * r))
    # Known on the one, it is the other's error alone.
    assert found.variance(only(0, of=2)) == pytest.approx(0.16)


def test_a_common_error_is_chosen_on_both_or_on_none():
    """The same times on two devices whose errors are the same: no measuring tells anything.

    With an error that is nearly the same either alone would make it worse, and both make it certain.
    """
    assert choose(on_two([3, -3], 1.0, own=0.01)) == []
    found = on_two([3, -3], 0.9, own=0.01, repeat=0.0001)
    assert found.variance() < found.variance(only(0, of=2))
    chosen = choose(found)
    assert [choice.operator for choice in chosen] == [0, 1]
    assert chosen[0].variance == pytest.approx((found.variance() + chosen[1].variance) / 2)
    assert chosen[1].variance == pytest.approx(2 * 9 * 0.0001)
    assert choose(found, budget=1.5) == []  # seconds for one of the two
    assert len(choose(on_two([3, -3], 0.0, own=0.01), enough=1.0)) == 2


def test_only_the_same_operators_go_together():
    found = on_two([3, 0, 0, -4], 1.0, own=0.01)
    assert found.variance() == pytest.approx(0.25)
    assert on_two([3, 0, 0, -4], 1.0, shared=0.01).variance() == pytest.approx(0.01)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(-1, 1))
def test_variance_of_two_profiles_is_that_of_their_covariance(seed, n, r):
    """Against the whole matrix, which the program never makes."""
    rng = np.random.default_rng(seed)
    found = on_two(
        rng.normal(size=2 * n),
        r,
        shared=np.repeat(rng.uniform(0, 0.02, 2), n),
        own=rng.uniform(0.001, 0.02, 2 * n),
        repeat=0.001,
        measured=rng.random(2 * n) < 0.3,
    )
    together = np.where(np.eye(2, dtype=bool), 1, r).repeat(n, 0).repeat(n, 1)
    same = np.tile(np.eye(n), (2, 2)) * together
    unknown = ~found.measured
    shares = []
    for part in (slice(0, n), slice(n, None)):
        known = found.measured[part]
        share = 1.0
        if known.any():
            observation = float((found.own[part][known] + 0.001).mean())
            share = narrowing(float(found.shared[part][0]), observation, int(known.sum()))
        shares.append(share)
    shared = np.sqrt(found.shared * np.repeat(shares, n)) * unknown
    own = np.sqrt(found.own) * unknown
    covariance = together * np.outer(shared, shared) + same * np.outer(own, own)
    covariance += np.diag(np.where(found.measured, found.repeat, 0.0))
    expected = found.sensitivity @ covariance @ found.sensitivity
    assert found.variance() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    chosen = choose(found, enough=1.0)
    falls = [found.variance(), *(choice.variance for choice in chosen)]
    assert all(after < before for before, after in itertools.pairwise(falls))
    measured = only(*(choice.operator for choice in chosen), of=2 * n)
    assert falls[-1] == pytest.approx(found.variance(measured), rel=1e-6, abs=1e-12)


def _normal(sigma):
    import pandas as pd

    values = sigma * np.random.default_rng(0).standard_normal(400)
    return pd.DataFrame({"group": "a", "log_residual": values})


def random_unknowns(seed: int, n: int) -> Unknowns:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    shared, own = rng.uniform(0, 0.02, 3)[group], rng.uniform(0.001, 0.02, 3)[group]
    return unknowns(
        rng.normal(size=n) * rng.uniform(0.1, 2, n),
        shared=shared,
        own=own,
        repeat=(0.1 * own),
        seconds=rng.uniform(0.5, 2, n),
        group=group,
    )


def test_greedy_is_near_the_best_subset_for_its_seconds():
    """Of what the best subset of no more seconds takes off, most at worst and nearly all on average."""
    ratios = []
    for seed in range(40):
        found = random_unknowns(seed, 8)
        chosen = choose(found, budget=4.0, enough=1.0)
        spent = sum(found.seconds[c.operator] for c in chosen)
        assert spent <= 4.0
        start = found.variance()
        best = max(
            start - found.variance(only(*subset, of=8))
            for size in range(9)
            for subset in itertools.combinations(range(8), size)
            if found.seconds[list(subset)].sum() <= 4.0
        )
        ratios.append((start - chosen[-1].variance) / best)
    assert min(ratios) > 0.8
    assert np.mean(ratios) > 0.95


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 12))
def test_variance_never_grows(seed, n):
    found = random_unknowns(seed, n)
    chosen = choose(found, enough=1.0)
    left = [found.variance(), *(c.variance for c in chosen)]
    assert all(after < before for before, after in itertools.pairwise(left))
    assert len({c.operator for c in chosen}) == len(chosen)
    measured = only(*(c.operator for c in chosen), of=n)
    assert left[-1] == pytest.approx(found.variance(measured), rel=1e-6, abs=1e-12)


def test_what_cannot_be_measured_is_not_chosen():
    found = unknowns([3, 4, 5], shared=0, own=0.01, repeat=[0, np.inf, 0], seconds=[1, 1, np.inf])
    assert [c.operator for c in choose(found)] == [0]


def test_noise_as_large_as_the_error_is_not_worth_measuring():
    assert choose(unknowns([3, 4], shared=0, own=0.01, repeat=0.02)) == []


def test_it_stops_where_little_is_left():
    found = unknowns([10, 10, 1, 0.1], shared=0, own=0.01)
    assert {c.operator for c in choose(found)} == {0, 1}
    assert {c.operator for c in choose(found, enough=0.999)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("mean", "variance", "after"), [(0.3, 1.0, 0.4), (-1.0, 2.0, 0.1), (0.0, 1.0, 0.7)]
)
def test_expected_probability_is_that_of_learning_by_chance(mean, variance, after):
    rng = np.random.default_rng(0)
    learnt = mean + math.sqrt(variance - after) * rng.standard_normal(400_000)
    truth = learnt + math.sqrt(after) * rng.standard_normal(400_000)
    share = float(np.mean((learnt > 0) == (truth > 0)))
    assert expected_probability(mean, variance, after) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize("left", [0.9, 0.5, 0.01])
def test_of_equals_it_is_the_orthant_probability(left):
    """Sheppard: 1/2 + arcsin(correlation) / pi."""
    known = 0.5 + math.asin(math.sqrt(1 - left)) / math.pi
    assert expected_probability(0.0, 1.0, left) == pytest.approx(known, abs=1e-9)


def test_nothing_learnt_changes_nothing_and_everything_learnt_decides():
    assert expected_probability(0.5, 1.0, 1.0) == pytest.approx(probability_above_zero(0.5, 1.0))
    assert expected_probability(-0.5, 1.0, 1.0) == pytest.approx(0.6914624612740131)
    assert expected_probability(0.5, 1.0, 0.0) == 1.0
    assert probability_above_zero(0.0, 0.0) == 0.5
