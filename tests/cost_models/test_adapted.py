"""A device that is another one with a known change: what few measurements must find out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cost_models import fit
from cost_models.adapted import Adapted
from cost_models.profile import Profile
from cost_models.roofline import Roofline
from cost_models.table import load
from simulator.errors import InvalidInput
from tests.cost_models.conftest import BANDWIDTH, OVERHEAD, PEAK, linear_row, random_table, relu_row

THERE = Roofline({"float32": PEAK}, BANDWIDTH, OVERHEAD)
HERE = Roofline({"float32": 4 * PEAK}, 2 * BANDWIDTH, OVERHEAD / 2)


@pytest.fixture(scope="module")
def other() -> Profile:
    """A device that was measured well."""
    table = load(random_table(300))
    return Profile.fitted("other", table, roofline=THERE)


def here(rows: int, seed: int) -> pd.DataFrame:
    """The same law on faster rates, 30% slower in matrix products and 10% faster in streaming."""
    table = random_table(rows, seed)
    there = table["seconds"] / THERE.predict(table)
    factor = np.where(table["kind"] == "linear", 1.3, 0.9)
    return table.assign(device="here", seconds=there * HERE.predict(table) * factor)


def error(model, table: pd.DataFrame) -> float:
    return float(np.abs(model.predict(table) / table["seconds"] - 1).mean())


def test_few_measurements_go_further_than_from_nothing(other):
    test = here(100, seed=9)
    few = here(10, seed=8)
    adapted = fit(few, "adapted", roofline=HERE, base=other)
    assert error(adapted, test) < 0.5 * error(fit(few, "boosted", roofline=HERE), test)
    assert error(adapted, test) < 0.08


def test_more_measurements_are_better(other):
    test = here(100, seed=9)
    errors = [error(fit(here(n, 8), "adapted", roofline=HERE, base=other), test) for n in (2, 100)]
    assert errors[1] < errors[0]


def test_a_kind_without_measurements_is_corrected_as_the_others_are(other):
    linears = here(40, seed=3)
    slower = linears[linears["kind"] == "linear"]
    model = fit(slower, "adapted", roofline=HERE, base=other)
    rows = pd.DataFrame([relu_row(50_000), linear_row(200, 300, 100)])
    predicted = model.predict_in_full(rows)
    alone = other.models["boosted"].predict(rows) / THERE.predict(rows) * HERE.predict(rows)
    shift = np.log(predicted.seconds / alone)
    assert 0 < shift[0] < shift[1]
    assert shift[1] == pytest.approx(np.log(1.3), abs=0.05)
    assert list(predicted.in_range) == [False, True]
    assert predicted.spread[0] > predicted.spread[1]


def test_noise_free_measurements_are_given_back(other):
    few = here(20, seed=4)
    model = fit(few, "adapted", roofline=HERE, base=other)
    predicted = model.predict_in_full(few)
    assert np.abs(predicted.seconds / few["seconds"] - 1).max() < 0.1
    far = model.predict_in_full(pd.DataFrame([linear_row(4, 4096, 4096)]))
    assert far.spread[0] > predicted.spread[:20].max()


def test_it_survives_json_with_the_other_model_in_it(other):
    model = Adapted.fitted(load(here(15, seed=5)), roofline=HERE, base=other)
    again = Adapted.from_json(json.loads(json.dumps(model.to_json())))
    rows = random_table(20, seed=6)
    before, after = model.predict_in_full(rows), again.predict_in_full(rows)
    assert (before.seconds == after.seconds).all()
    assert (before.spread == after.spread).all()
    assert (before.in_range == after.in_range).all()
    assert again.base_name == "other"


def test_a_datasheet_is_a_start_too():
    sheet = Profile("sheet", "datasheet", THERE)
    test = here(100, seed=9)
    adapted = fit(here(30, seed=8), "adapted", roofline=HERE, base=sheet)
    assert error(adapted, test) < error(HERE, test)


def test_of_very_many_rows_some_are_kept(other, monkeypatch):
    monkeypatch.setattr("cost_models.adapted.MOST_ROWS", 50)
    model = Adapted.fitted(load(here(100, seed=5)), roofline=HERE, base=other, seed=1)
    assert len(model.process.kinds) == 50
    assert error(model, here(50, seed=9)) < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "starts from another device's profile"),
        ({"base": "no-such-profile"}, "No profile 'no-such-profile'"),
        ({"base": Profile("sheet", "datasheet", THERE), "colour": 1}, "no option 'colour'"),
    ],
)
def test_what_cannot_be_adapted_is_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        fit(here(5, seed=1), "adapted", **options)


def test_damage_is_refused(other):
    whole = Adapted.fitted(load(here(5, seed=1)), roofline=HERE, base=other).to_json()
    for key in whole:
        with pytest.raises(InvalidInput):
            Adapted.from_json({name: part for name, part in whole.items() if name != key})
    with pytest.raises(InvalidInput, match="another number of weights"):
        Adapted.from_json({**whole, "weights": ""})


def test_base_may_be_a_name(other, tmp_path, monkeypatch):
    replace(other, name="elsewhere").save(tmp_path / "elsewhere")
    monkeypatch.setenv("HETSIM_PROFILES", str(tmp_path))
    model = Adapted.fitted(load(here(5, seed=1)), roofline=HERE, base="elsewhere")
    assert model.base_name == "elsewhere"
