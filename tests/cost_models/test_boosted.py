import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models import fit
from cost_models.boosted import Boosted
from cost_models.folds import folds_of
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


def test_unseen_shapes_of_a_known_law():
    model = Boosted.fitted(load(random_table(400)), roofline=ROOFLINE)
    test = random_table(100, seed=1)
    error = np.abs(model.predict(test) / test["seconds"] - 1)
    bare = np.abs(ROOFLINE.predict(test) / test["seconds"] - 1)
    assert np.median(error) < 0.03
    assert error[:100].mean() < 0.4 * bare[:100].mean()


def test_prediction_does_not_look_at_times():
    model = fit(random_table(40))
    rows = random_table(10, seed=2)
    expected = model.predict(rows)
    assert (model.predict(rows.drop(columns=["seconds", "device", "source"])) == expected).all()


def test_fit_is_deterministic_and_survives_json():
    table = load(random_table(60))
    first, second = (Boosted.fitted(table, roofline=ROOFLINE) for _ in range(2))
    rows = random_table(30, seed=3)
    assert (first.predict(rows) == second.predict(rows)).all()
    again = Boosted.from_json(json.loads(json.dumps(first.to_json())))
    assert (again.predict(rows) == first.predict(rows)).all()
    assert (again.predict_in_full(rows).in_range == first.predict_in_full(rows).in_range).all()
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_are_enough(rows):
    table = random_table(rows)
    predicted = fit(table).predict(table)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()


def test_in_range_is_the_box_of_the_kind():
    table = pd.DataFrame([linear_row(m, k, 64) for m in (8, 64, 512) for k in (16, 128)])
    model = fit(pd.concat([table, random_table(5)[5:]], ignore_index=True))
    asked = pd.DataFrame(
        [
            linear_row(64, 128, 64),
            linear_row(100, 48, 64),
            linear_row(64, 100, 64),  # not a multiple of 16 as all that were measured
            linear_row(1024, 64, 64),  # more rows than measured
            linear_row(64, 64, 4096),  # wider than measured
            relu_row(64) | {"kind": "sigmoid"},  # a kind never measured
        ]
    )
    assert list(model.predict_in_full(asked).in_range) == [True, True, False, False, False, False]


def test_in_range_needs_the_same_features():
    model = fit(pd.DataFrame([linear_row(m, 16, 16) for m in (2, 4, 8)]))
    strided = linear_row(4, 16, 16) | {"attributes": '{"layouts":[[1,0],null],"strided":[0]}'}
    assert list(model.predict_in_full(pd.DataFrame([strided])).in_range) == [False]


def test_unseen_kind_is_priced_near_its_traffic():
    model = Boosted.fitted(load(random_table(80)), roofline=ROOFLINE)
    row = pd.DataFrame([relu_row(10_000) | {"kind": "sigmoid"}])
    assert model.predict(row) == pytest.approx(ROOFLINE.predict(row), rel=0.5)


def test_own_models_only_for_matrix_kinds_with_enough_rows():
    table = load(random_table(50))
    assert set(Boosted.fitted(table, roofline=ROOFLINE, own_model=50).groups) == {"linear", "*"}
    assert set(Boosted.fitted(table, roofline=ROOFLINE, own_model=51).groups) == {"*"}


def test_only_what_is_asked_for_is_fitted():
    table = load(random_table(50))
    assert set(Boosted.fitted(table, roofline=ROOFLINE, only={"linear"}).groups) == {"linear"}
    assert set(Boosted.fitted(table, roofline=ROOFLINE, only={"relu"}).groups) == {"*"}
    whole, part = (
        Boosted.fitted(table, roofline=ROOFLINE),
        Boosted.fitted(table, roofline=ROOFLINE, only={"linear"}),
    )
    rows = random_table(9, seed=4)[:9]
    assert (whole.predict(rows) == part.predict(rows)).all()


def test_cache_states_are_told_apart(measured_table):
    model = Boosted.fitted(load(measured_table), roofline=ROOFLINE)
    rows = random_table(40, seed=5)
    warm, graph = (model.predict(rows.assign(cache=state)) for state in ("warm", "graph"))
    assert np.median(warm / graph) == pytest.approx(0.8, abs=0.03)


def test_element_types_of_one_size_are_told_apart():
    """TF32 at three times the rate of float32, which its tensors are."""
    table = random_table(400)
    fast = table.assign(dtype="tf32", seconds=table["seconds"] / 3)
    model = Boosted.fitted(load(pd.concat([table, fast])), roofline=ROOFLINE)
    rows = random_table(40, seed=5)
    slow, three = (model.predict(rows.assign(dtype=dtype)) for dtype in ("float32", "tf32"))
    assert np.median(slow / three) == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: fit(t, depth=3), "no option 'depth'"),
        (lambda t: fit(t, model="oracle"), "No cost model 'oracle'"),
        (lambda t: fit(t[:0]), "no measurements"),
        (lambda t: fit(t.assign(device=["a", "b"] * (len(t) // 2))), "2 devices"),
        (lambda t: Boosted.from_json({"groups": {"*": {}}}), "incomplete or damaged"),
        (lambda t: Boosted.from_json({}), "incomplete or damaged"),
    ],
)
def test_refusals(table, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(table)


def test_damaged_booster_is_refused(table):
    document = fit(table).to_json()
    (booster,) = document["groups"]["*"]["boosters"]
    document["groups"]["*"]["boosters"] = [booster[:-100]]
    with pytest.raises(InvalidInput, match="damaged"):
        Boosted.from_json(document)


DATASETS = os.environ.get("HETSIM_DATASETS")


@pytest.mark.slow
@pytest.mark.skipif(not DATASETS, reason="HETSIM_DATASETS does not name the public data sets")
@pytest.mark.parametrize(("kind", "most"), [("layer_norm", 0.04), ("softmax", 0.04)])
def test_public_gpu_measurements(kind, most):
    """Held-out mean error on a T4, near what the data's description gives for plain trees."""
    table = pd.read_parquet(Path(str(DATASETS)) / "neusight_gpus.parquet")
    table = load(table[(table["device"] == "tesla-t4") & (table["kind"] == kind)])
    held = folds_of(table) == 0
    model = fit(table[~held])
    error = np.abs(model.predict(table[held]) / table["seconds"][held] - 1)
    assert error.mean() < most
