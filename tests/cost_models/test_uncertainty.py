import numpy as np
import pandas as pd
import pytest

from cost_models.uncertainty import (
    POOLED,
    LookedUp,
    Residuals,
    draw_factors,
    draws,
    narrowing,
    repeat_residuals,
    residuals_by_kind,
)
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable, GraphCosts
from tests.cost_models.test_profile import graph_of, linear


def errors_of(kind: str, biases: dict[str, float], rows: int, sigma: float, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = [
        pd.DataFrame(
            {"kind": kind, "group": name, "log_residual": b + sigma * rng.standard_normal(rows)}
        )
        for name, b in biases.items()
    ]
    return pd.concat(parts, ignore_index=True)


NETS = {f"net{i}": b for i, b in enumerate([-0.3, -0.1, 0.0, 0.1, 0.3])}


def test_bias_and_spread_are_told_apart():
    found = Residuals.of(errors_of("conv2d", NETS, 400, 0.05))
    assert found.biases == pytest.approx(list(NETS.values()), abs=0.01)
    # The quartiles of N(0, 0.05).
    rng = np.random.default_rng(0)
    sample = np.concatenate([found.draw(rng, 200) for _ in range(1)])
    assert np.std(sample) == pytest.approx(0.05, rel=0.25)
    assert found.systematic == pytest.approx(0.2, abs=0.01)
    assert found.rows == 2000


def test_draws_vary_mostly_together():
    """What averaging would hide: the mean over many operators is as uncertain as the bias."""
    found = Residuals.of(errors_of("conv2d", NETS, 100, 0.1))
    rng = np.random.default_rng(1)
    means = [found.draw(rng, 300).mean() for _ in range(400)]
    assert np.std(means) == pytest.approx(0.2, rel=0.25)


def test_residuals_survive_json():
    found = Residuals.of(errors_of("conv2d", NETS, 30, 0.1))
    assert Residuals.from_json(found.to_json()) == found
    document = found.to_json() | {"within": [0.0]}
    with pytest.raises(InvalidInput, match="quantiles"):
        Residuals.from_json(document)


def test_single_residual_has_a_bias_and_no_spread():
    found = Residuals.of(pd.DataFrame({"group": ["a"], "log_residual": [0.2]}))
    assert found.biases == (0.2,)
    assert set(found.within) == {0.0}


def test_kinds_with_few_architectures_borrow_the_systematic_part():
    errors = pd.concat([errors_of("conv2d", NETS, 10, 0.1), errors_of("lstm", {"net0": 0.5}, 9, 0)])
    fallback = errors_of("lstm", {"0": 0.0, "1": 0.0}, 15, 0.02)
    found = residuals_by_kind(errors, fallback)
    assert set(found) == {POOLED, "conv2d", "lstm"}
    assert found["lstm"].biases == found[POOLED].biases
    assert max(map(abs, found["lstm"].within)) < 0.1
    assert found["conv2d"].rows == 50
    assert residuals_by_kind(errors[:0], fallback[:0]) == {}


RESIDUALS = residuals_by_kind(
    errors_of("linear", NETS, 30, 0.1), errors_of("linear", {"0": 0.0}, 30, 0.1)
)


def test_equal_operators_are_wrong_by_the_same_factor():
    identity = np.array([4, 7, 4, 4])
    factors = draw_factors(RESIDUALS, ["linear"] * 4, identity, np.random.default_rng(0))
    assert factors[0] == factors[2] == factors[3] != factors[1]


def test_kind_without_residuals_takes_the_pooled_ones():
    factors = draw_factors(RESIDUALS, ["warp"] * 2, np.array([0, 1]), np.random.default_rng(0))
    assert (factors != 1).all()
    assert (draw_factors({}, ["warp"], np.array([0]), np.random.default_rng(0)) == 1).all()


def test_unknown_work_that_was_not_measured_may_be_ten_times_more_or_less():
    def drawn(kind: str, residuals=RESIDUALS) -> np.ndarray:
        rngs = map(np.random.default_rng, range(400))
        found = [draw_factors(residuals, [kind] * 2, np.zeros(2, dtype=int), rng) for rng in rngs]
        assert all(factors[0] == factors[1] for factors in found)
        return np.log10([factors[0] for factors in found])

    unknown, streaming = drawn("warp"), drawn("relu")
    low, high = np.quantile(unknown, [0.025, 0.975])
    assert low < -0.85
    assert high > 0.85
    assert np.ptp(streaming) < np.ptp(unknown) / 2
    measured = drawn("warp", RESIDUALS | {"warp": RESIDUALS[POOLED]})
    assert np.ptp(measured) < np.ptp(unknown) / 2


@pytest.fixture
def costs():
    graph = graph_of("g", linear(2, 2, 2, "a"), linear(2, 2, 2, "b"), linear(3, 3, 3, "c"))
    return CostTable({graph: GraphCosts(np.full((3, 3), 2.0))})


def test_devices_of_one_profile_are_wrong_together(costs):
    (graph,) = costs
    (drawn,) = draws(costs, [("p", RESIDUALS), ("p", RESIDUALS), ("q", RESIDUALS)], 1)
    seconds = drawn[graph].seconds
    assert (seconds[:, 0] == seconds[:, 1]).all()
    assert (seconds[:, 0] != seconds[:, 2]).all()
    assert seconds[0, 0] == seconds[1, 0] != seconds[2, 0]
    assert (costs[graph].seconds == 2.0).all()


def test_given_times_stay(costs):
    (graph,) = costs
    for drawn in draws(costs, [None, ("p", {}), ("q", RESIDUALS)], 3):
        assert (drawn[graph].seconds[:, :2] == 2.0).all()


def test_the_hour_slows_everything_alike(costs):
    """One factor for all operators, by each profile's spread, and log factors of that deviation."""
    (graph,) = costs
    calm = draws(costs, [("p", RESIDUALS), ("q", RESIDUALS), None], 400)
    shaky = draws(
        costs, [("p", RESIDUALS), ("q", RESIDUALS), None], 400, drift={"p": 0.1, "q": 0.05}
    )
    logs = np.array(
        [np.log(b[graph].seconds / a[graph].seconds) for a, b in zip(calm, shaky, strict=True)]
    )
    assert (logs[:, :, 2] == 0).all()
    assert np.ptp(logs, axis=1).max() < 1e-12
    assert logs[:, 0, 0] == pytest.approx(2 * logs[:, 0, 1])
    # 400 draws: four standard errors of a standard deviation are a seventh of it.
    assert logs[:, 0, 0].std() == pytest.approx(0.1, rel=0.15)
    assert abs(logs[:, 0, 0].mean()) < 4 * 0.1 / 20


def test_draws_are_reproducible_and_do_not_depend_on_their_number(costs):
    (graph,) = costs
    residuals = [("p", RESIDUALS)] * 3
    few = [d[graph].seconds for d in draws(costs, residuals, 2, seed=5)]
    many = [d[graph].seconds for d in draws(costs, residuals, 4, seed=5)]
    other = [d[graph].seconds for d in draws(costs, residuals, 2, seed=6)]
    assert all((a == b).all() for a, b in zip(few, many[:2], strict=True))
    assert (few[0] != many[2]).any()
    assert (few[0] != other[0]).any()


def test_wrong_number_of_devices_is_refused(costs):
    with pytest.raises(InvalidInput, match="1 profiles for the 3 devices of graph 'g'"):
        next(iter(draws(costs, [None], 1)))


# -- times that were looked up ---------------------------------------------------------------------


UNIFORM = pd.DataFrame({"group": "a", "log_residual": np.linspace(-0.02, 0.02, 2001)})
REPEAT = {POOLED: Residuals((), Residuals.of(UNIFORM).within, 2001)}


def test_moments_are_those_of_the_draws():
    found = Residuals.of(errors_of("conv2d", NETS, 100, 0.1))
    drawn = np.array([found.draw(np.random.default_rng(i), 200) for i in range(2000)])
    within = (drawn - drawn.mean(axis=1, keepdims=True)).var(ddof=0) * 200 / 199
    assert found.within_variance == pytest.approx(within, rel=0.02)
    assert found.bias_variance == pytest.approx(drawn.mean(axis=1).var() - within / 200, rel=0.1)


def test_looked_up_operators_vary_by_what_a_measurement_does_and_the_others_stay_together():
    kinds, identity = ["linear"] * 4 + ["warp"], np.array([0, 1, 0, 2, 3])
    measured = np.array([True, False, True, False, False])
    pairs = [
        [
            np.log(draw_factors(RESIDUALS, kinds, identity, np.random.default_rng(i), looked_up))
            for looked_up in (None, LookedUp(measured, REPEAT))
        ]
        for i in range(600)
    ]
    before, after = np.array(pairs).transpose(1, 0, 2)
    # A uniform distribution of half width 0.02.
    assert after[:, 0].std() == pytest.approx(0.04 / np.sqrt(12), rel=0.1)
    assert np.abs(after[:, 0]).max() <= 0.0201
    assert (after[:, 0] == after[:, 2]).all()
    # A kind without a looked-up operator is drawn as ever.
    assert (after[:, 4] == before[:, 4]).all()
    # The others of the kind keep what is their own, and less of what they share.
    assert after[:, 1] - after[:, 3] == pytest.approx(before[:, 1] - before[:, 3])
    source = RESIDUALS["linear"]
    observation = source.within_variance + REPEAT[POOLED].within_variance
    left = source.bias_variance * narrowing(source.bias_variance, observation, 1)
    shared = np.cov(after[:, 1], after[:, 3])[0, 1]
    assert shared == pytest.approx(left, rel=0.25)
    assert np.cov(before[:, 1], before[:, 3])[0, 1] > 1.5 * shared


def test_nothing_measured_or_nothing_measured_twice_draws_as_ever():
    kinds, identity = ["linear"] * 3, np.arange(3)

    def drawn(looked_up):
        return draw_factors(RESIDUALS, kinds, identity, np.random.default_rng(0), looked_up)

    as_ever = drawn(None)
    assert (drawn(LookedUp(np.zeros(3, bool), REPEAT)) == as_ever).all()
    assert (drawn(LookedUp(np.ones(3, bool), {})) == as_ever).all()


def test_repeat_error_is_half_the_difference_of_halves():
    """With an excess that is exponential, the excess of the minimum over both halves."""
    rng = np.random.default_rng(0)
    a, b = 0.02 * rng.exponential(size=(2, 4000))
    table = pd.DataFrame(
        {"kind": "relu", "cache": "graph", "half_a_s": np.exp(a), "half_b_s": np.exp(b)}
    )
    other = table.assign(cache="warm", half_a_s=5.0)
    few = table[:4].assign(kind="rare")
    found = repeat_residuals(pd.concat([table, other, few], ignore_index=True), "graph")
    assert set(found) == {POOLED, "relu"}
    again = rng.permutation(np.minimum(a, b)) - np.minimum(a, b)
    assert found["relu"].within_variance == pytest.approx(again.var(), rel=0.1)
    assert np.mean(found["relu"].within) == pytest.approx(0, abs=1e-6)
    assert found["relu"].biases == ()
    assert repeat_residuals(table.drop(columns="half_a_s"), "graph") == {}
    assert repeat_residuals(table.assign(half_b_s=np.nan), "graph") == {}


def test_draws_take_what_was_looked_up_by_profile(costs):
    (graph,) = costs
    residuals = [("p", RESIDUALS), ("p", RESIDUALS), ("q", RESIDUALS)]
    looked_up = {"p": LookedUp(np.ones(3, bool), REPEAT)}
    for drawn, before in zip(
        draws(costs, residuals, 20, 0, looked_up), draws(costs, residuals, 20, 0), strict=True
    ):
        seconds = drawn[graph].seconds
        assert (np.abs(np.log(seconds[:, :2] / 2.0)) <= 0.0201).all()
        assert (seconds[:, 2] == before[graph].seconds[:, 2]).all()
