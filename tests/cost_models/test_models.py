"""What every cost model keeps, and the known answers of each."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cost_models import fit
from cost_models.ensemble import MEMBERS, Ensemble, members_among
from cost_models.fitting import fitted_models
from cost_models.mlp import MLP
from cost_models.model import Prediction, model_class, names
from cost_models.polynomial import PARAMETERS, Polynomial, parameters_of
from cost_models.roofline import Roofline
from cost_models.table import load
from simulator.errors import InvalidInput
from tests.cost_models.conftest import (
    BANDWIDTH,
    OVERHEAD,
    PEAK,
    linear_row,
    random_table,
    relu_row,
)

ROOFLINE = Roofline({"float32": PEAK}, BANDWIDTH, OVERHEAD)
ENOUGH: dict[str, dict] = {"mlp": {"steps": 300}, "ensemble": {"mlp": {"steps": 300}}}
"""Half of the usual steps, which learn what these tests ask for."""
FITTED = [name for name in names() if name not in ("roofline", "adapted", "across_devices")]
QUICK = {
    "boosted": {"rounds": 30},
    "mlp": {"steps": 60},
    "ensemble": {"boosted": {"rounds": 30}, "mlp": {"steps": 60}},
}


def quick(table: pd.DataFrame, model: str, **options):
    return fit(table, model, roofline=ROOFLINE, **QUICK.get(model, {}), **options)


@cache
def of_sixty(model: str):
    """Fitted to 60 rows of each kind; only asked."""
    return quick(load(random_table(60)), model)


@pytest.mark.parametrize("model", FITTED)
def test_a_fit_repeats_and_survives_json(model):
    rows = random_table(30, seed=3)
    first, second = of_sixty(model), quick(load(random_table(60)), model)
    assert (first.predict(rows) == second.predict(rows)).all()
    again = model_class(model).from_json(json.loads(json.dumps(first.to_json())))
    before, after = first.predict_in_full(rows), again.predict_in_full(rows)
    assert (before.seconds == after.seconds).all()
    assert (before.in_range == after.in_range).all()
    assert np.array_equal(before.spread, after.spread, equal_nan=True)
    assert again.name == model


@pytest.mark.parametrize("model", FITTED)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_are_enough(model, rows):
    table = random_table(rows)
    predicted = quick(table, model).predict(table)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()


@pytest.mark.parametrize("model", ["roofline", *FITTED])
def test_times_are_not_looked_at(model):
    found = of_sixty(model)
    rows = random_table(10, seed=2)
    bare = rows.drop(columns=["seconds", "device", "source"])
    assert (found.predict(bare) == found.predict(rows)).all()


@pytest.mark.parametrize("model", FITTED)
def test_a_kind_never_measured_is_priced_and_out_of_range(model):
    found = of_sixty(model)
    row = pd.DataFrame([relu_row(10_000) | {"kind": "sigmoid"}])
    predicted = found.predict_in_full(row)
    assert predicted.seconds == pytest.approx(ROOFLINE.predict(row), rel=1.0)
    assert not predicted.in_range[0]


@pytest.mark.parametrize("model", FITTED)
def test_only_what_is_asked_for_is_fitted_and_it_is_the_same(model):
    table, rows = load(random_table(60)), random_table(9, seed=4)[:9]
    whole, part = of_sixty(model), quick(table, model, only={"linear"})
    assert (whole.predict(rows) == part.predict(rows)).all()
    assert len(json.dumps(part.to_json())) < len(json.dumps(whole.to_json()))


@pytest.mark.parametrize("model", FITTED)
def test_cache_states_are_told_apart(model, measured_table):
    found = fit(measured_table, model, roofline=ROOFLINE, **ENOUGH.get(model, {}))
    rows = random_table(40, seed=5)
    warm, graph = (found.predict(rows.assign(cache=state)) for state in ("warm", "graph"))
    assert np.median(warm / graph) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("model", FITTED)
def test_no_better_than_the_noise_and_not_much_worse(model):
    """A roofline with 5% log-normal noise: nothing comes below a mean error of 4%."""
    rng = np.random.default_rng(5)
    size = np.exp(rng.uniform(np.log(16), np.log(1024), (700, 3))).astype(int)
    table = pd.DataFrame([linear_row(*map(int, row), seconds=1.0) for row in size])
    table["seconds"] = ROOFLINE.predict(table) * np.exp(0.05 * rng.standard_normal(len(table)))
    found = fit(table[:500], model, roofline=ROOFLINE, **ENOUGH.get(model, {}))
    error = np.abs(found.predict(table[500:]) / table["seconds"][500:] - 1).mean()
    assert 0.035 < error < 0.07


@pytest.mark.parametrize("model", FITTED)
def test_what_cannot_be_fitted_is_refused(model, table):
    with pytest.raises(InvalidInput, match="no option 'colour'"):
        fit(table, model, colour=3)
    with pytest.raises(InvalidInput, match="no measurements"):
        fit(table[:0], model)


@pytest.mark.parametrize("model", ["roofline", *FITTED])
def test_damaged_documents_are_refused(model):
    whole = of_sixty(model).to_json()
    for key in whole:
        if key not in ("overhead_s", "efficiency"):
            damaged = {name: part for name, part in whole.items() if name != key}
            with pytest.raises(InvalidInput):
                model_class(model).from_json(damaged)


# -- polynomial -----------------------------------------------------------------------------------


def cubic(rows: pd.DataFrame) -> np.ndarray:
    """Seconds that are a cubic polynomial of the parameters, never below zero."""
    flops, first, other, out, *_ = (parameters_of(rows) / 1e6).T
    return 1e-6 * (3 + flops + 2 * first * out + 0.5 * other**2 * out + 0.01 * flops**2 * first)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
@example(27)
@example(10)
def test_noise_free_cubic_times_are_recovered(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(8, 400, (240, 3))
    table = pd.DataFrame([linear_row(*map(int, row), seconds=1.0) for row in size])
    table["seconds"] = cubic(load(table))
    found = Polynomial.fitted(load(table[:200]), roofline=ROOFLINE, seed=seed)
    inside = found.predict_in_full(table[200:]).in_range
    # Shapes within the measured ones may still take a larger multiple of the roofline than any of them, or less
    # than any: what is said then is that multiple, or the least of their times.
    plain, measured = ROOFLINE.predict(table), table["seconds"][:200]
    longest = np.maximum(plain * (measured / plain[:200]).max(), measured.min())
    said = table["seconds"].clip(upper=longest, lower=measured.min())[200:]
    error = np.abs(found.predict(table[200:]) / said - 1)
    assert inside.any()
    assert error[inside].max() < 1e-6


def test_twice_the_measured_size_is_told_as_extrapolated():
    size = np.random.default_rng(1).integers(8, 400, (200, 3))
    table = pd.DataFrame([linear_row(*map(int, row)) for row in size])
    found = Polynomial.fitted(load(table), roofline=ROOFLINE)
    beyond = pd.DataFrame([linear_row(800, 800, 800), linear_row(100, 100, 100)])
    assert list(found.predict_in_full(beyond).in_range) == [False, True]


def test_degree_is_chosen_by_cross_validation():
    rng = np.random.default_rng(3)
    size = np.exp(rng.uniform(2, 6, (150, 3))).astype(int)
    table = load(pd.DataFrame([linear_row(*map(int, row), seconds=1.0) for row in size]))
    # A straight line with 3% noise: quadratic and cubic terms could only follow the noise.
    line = 1e-5 + parameters_of(table)[:, 0] * 1e-11
    table["seconds"] = line * np.exp(0.03 * rng.standard_normal(150))
    found = Polynomial.fitted(table, roofline=ROOFLINE, spaces=("linear",))
    assert found.fits["linear"].degree == 1


def test_no_time_below_the_shortest_measured():
    table = load(random_table(50))
    found = Polynomial.fitted(table, roofline=ROOFLINE, spaces=("linear",), degree=1)
    tiny = pd.DataFrame([linear_row(1, 1, 1)])
    shortest = table["seconds"][table["kind"] == "linear"].min()
    assert found.predict(tiny)[0] >= shortest


def test_no_time_at_more_times_the_roofline_than_measured():
    """A cubic of logarithms that fits what was measured and explodes a hundred times beyond it."""
    size = np.random.default_rng(2).integers(8, 40, (200, 3))
    table = pd.DataFrame([linear_row(*map(int, row), seconds=1.0) for row in size])
    bound = ROOFLINE.predict(table)
    table["seconds"] = bound * np.exp((np.log(bound / bound.min()) / 2) ** 3)
    found = Polynomial.fitted(load(table), roofline=ROOFLINE, spaces=("log",))
    longest = (table["seconds"] / bound).max()
    far = pd.DataFrame([linear_row(4000, 4000, 4000)])
    assert found.predict(far)[0] == pytest.approx(longest * ROOFLINE.predict(far)[0])
    again = Polynomial.from_json(json.loads(json.dumps(found.to_json())))
    assert again.predict(far)[0] == found.predict(far)[0]
    # Fits of profiles that were made before it was kept.
    document = found.to_json()
    del document["fits"]["linear"]["longest"]
    assert Polynomial.from_json(document).predict(far)[0] > 10 * found.predict(far)[0]


def test_parameters_of_a_linear_layer():
    row = load(pd.DataFrame([linear_row(3, 5, 7)]))
    expected = [2 * 3 * 5 * 7, 4 * 15, 4 * 35, 4 * 21, 3, 2, 1]
    assert list(parameters_of(row)[0]) == expected
    assert len(expected) == len(PARAMETERS)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"degree": 4}, "degree is 1 to 3"), ({"spaces": ("cubic",)}, "spaces are of linear, log")],
)
def test_polynomials_that_there_are_not(table, options, message):
    with pytest.raises(InvalidInput, match=message):
        fit(table, "polynomial", **options)


# -- networks -------------------------------------------------------------------------------------


def test_numpy_predicts_what_torch_computes(table):
    torch = pytest.importorskip("torch")
    model = MLP.fitted(load(table), roofline=ROOFLINE, steps=20, members=2)
    network = model.networks["linear"]
    data = np.random.default_rng(0).normal(8, 2, (6, len(network.names)))
    hidden = torch.tensor((data - network.mean) / network.scale).clamp(-4, 4).float()
    hidden = hidden.expand(2, -1, -1)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        hidden = torch.nn.functional.silu(hidden @ torch.tensor(weight) + torch.tensor(bias))
    hidden = hidden @ torch.tensor(network.weights[-1]) + torch.tensor(network.biases[-1])
    expected = hidden[..., 0].numpy() * network.unit + network.centre
    found = network.log_ratios(data, np.array(["linear"] * 6, dtype=object))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_networks_are_told_what_applies_to_some_rows_alone():
    """An element type is 1 or absent; an absent feature takes its mean, which would be 1 as well."""
    table = random_table(150)
    fast = table.assign(dtype="tf32", seconds=table["seconds"] / 3)
    model = fit(pd.concat([table, fast]), "mlp", roofline=ROOFLINE, steps=300)
    rows = random_table(40, seed=5)
    slow, three = (model.predict(rows.assign(dtype=dtype)) for dtype in ("float32", "tf32"))
    assert np.median(slow / three) == pytest.approx(3.0, rel=0.1)


def test_members_disagree_more_far_from_what_was_measured():
    size = np.exp(np.random.default_rng(2).uniform(np.log(64), np.log(256), (150, 3))).astype(int)
    table = pd.DataFrame([linear_row(*map(int, row)) for row in size])
    found = fit(table, "mlp", roofline=ROOFLINE, steps=200)
    near = found.predict_in_full(table).spread
    far = found.predict_in_full(pd.DataFrame([linear_row(4, 2048, 4), linear_row(2, 2, 4096)]))
    assert far.spread.min() > np.quantile(near, 0.9)
    alone = fit(table, "mlp", roofline=ROOFLINE, steps=20, members=1)
    assert np.isnan(alone.predict_in_full(table).spread).all()


# -- ensemble -------------------------------------------------------------------------------------


class Says:
    """A model that gives every row the same."""

    name = "says"

    def __init__(self, seconds: float, inside: bool) -> None:
        self.seconds, self.inside = seconds, inside

    def predict_in_full(self, rows):
        count = len(rows)
        return Prediction(
            np.full(count, self.seconds), np.full(count, np.nan), np.full(count, self.inside)
        )


def test_an_ensemble_is_the_median_and_its_spread_the_distance():
    members = {"a": Says(1.0, True), "b": Says(100.0, False), "c": Says(2.0, True)}
    found = Ensemble(members).predict_in_full(random_table(1))
    assert found.seconds == pytest.approx([2.0, 2.0])
    assert found.spread == pytest.approx([np.std(np.log([1, 100, 2]), ddof=1)] * 2)
    assert found.in_range.all()
    members["c"] = Says(2.0, False)
    assert not Ensemble(members).predict_in_full(random_table(1)).in_range.any()


def test_an_ensemble_is_of_the_models_beside_it():
    assert members_among(["mlp", "ensemble", "boosted"]) == ("boosted", "mlp")
    assert members_among(["polynomial", "boosted", "mlp", "roofline"]) == MEMBERS
    assert members_among(["ensemble"]) == members_among(["mlp", "ensemble"]) == MEMBERS


def test_an_ensemble_of_two_is_their_geometric_mean(table):
    models = fitted_models(load(table), ROOFLINE, ["boosted", "mlp", "ensemble"], options=QUICK)
    assert set(models) == {"boosted", "mlp", "ensemble"}
    rows = random_table(9, seed=4)
    one, other, found = (models[name].predict(rows) for name in ("boosted", "mlp", "ensemble"))
    assert found == pytest.approx(np.sqrt(one * other))


@pytest.mark.parametrize("members", [["boosted"], ["boosted", "ensemble"], []])
def test_an_ensemble_has_two_other_models(table, members):
    with pytest.raises(InvalidInput, match="at least two other models"):
        fit(table, "ensemble", members=members)


@pytest.mark.parametrize("model", [name for name in FITTED if name not in ("polynomial",)])
def test_a_product_never_measured_takes_the_roofline(model):
    """What streaming kinds share says nothing of a matrix product."""
    streaming = random_table(60)[60:].reset_index(drop=True)
    slow = streaming.assign(seconds=streaming["seconds"] * 5)
    found = quick(slow, model)
    row = pd.DataFrame([linear_row(300, 400, 500)])
    assert found.predict(row) == pytest.approx(ROOFLINE.predict(row))
