import json

import numpy as np
import pandas as pd
import pytest

from calibration import drift
from calibration.drift import Drift, taken_off, without_drift

SQUARE = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}


def convolutions(rows: int, added: np.ndarray | float = 0.0, **columns: str) -> pd.DataFrame:
    """Random ones: 20 us, FLOPs at 4 TFLOP/s and a tenth more where channels are no multiple of four."""
    rng = np.random.default_rng(1)
    n, c, k = (np.exp(rng.uniform(0, np.log(top), rows)).astype(int) for top in (64, 1000, 1000))
    size = rng.integers(5, 40, rows)
    found = pd.DataFrame(
        {
            "device": "tesla-t4", "kind": "conv2d", "dtype": "float32",
            "inputs": [((a, b, s, s), (d, b, 3, 3)) for a, b, d, s in zip(n, c, k, size, strict=True)],
            "outputs": [((a, d, s, s),) for a, d, s in zip(n, k, size, strict=True)],
            "attributes": json.dumps(SQUARE), "source": "neusight",
        }
    )  # fmt: skip
    work = 18.0 * n * c * k * size**2 / 4e12 * np.where(c % 4, 1.1, 1.0)
    return found.assign(seconds=20e-6 + work + added, **columns)


def test_between_two_knots_it_rises_evenly():
    found = Drift(100, (0.0, 1e-3, 1e-3, 5e-3))
    assert list(found.at(np.array([0, 50, 100]))) == pytest.approx([0, 1e-3, 5e-3])
    assert found.at(np.array([25]))[0] == pytest.approx(0.75e-3)


def test_what_is_left_is_never_below_the_fastest_row():
    rows = pd.DataFrame({"seconds": [2e-5, 5e-5, 9e-5, 4e-5]})
    left = taken_off(rows, Drift(4, (0.0, 4e-5)))
    assert list(left["seconds"]) == pytest.approx([2e-5, 4e-5, 7e-5, 2e-5])
    assert list(rows["seconds"]) == [2e-5, 5e-5, 9e-5, 4e-5]


def test_a_known_drift_is_found():
    rows = 1200
    places = np.arange(rows)
    added = np.where(places < 480, 0.0, (places - 480) / 720 * 300e-6)  # a kink at the second knot
    table = convolutions(rows, added)
    found = Drift.fitted(table)
    assert found.rows == rows
    assert found.seconds == pytest.approx((0, 0, 0, 100e-6, 200e-6, 300e-6), abs=12e-6)
    left = taken_off(table, found)["seconds"]
    short = convolutions(rows)["seconds"] < 50e-6
    errors = (left / convolutions(rows)["seconds"] - 1).abs()
    assert errors[short].median() < 0.15
    assert errors.median() < 0.05


def test_where_nothing_drifts_next_to_nothing_is_found():
    found = Drift.fitted(convolutions(1000))
    assert found.seconds[0] == 0
    assert found.seconds[-1] < 5e-6


def test_only_kinds_known_to_drift_and_only_whole_tables_change(monkeypatch):
    monkeypatch.setattr(drift, "LEAST", 300)
    added = np.linspace(0, 300e-6, 300)
    parts = [
        convolutions(300, added),
        convolutions(300, added, device="tesla-p4"),
        convolutions(300, added, source="another"),
        convolutions(300, added, device="tesla-v100-pcie-32gb").iloc[:299],
    ]
    # Rows of several devices may alternate; the order within each is what counts.
    table = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    before = table.copy()
    after, found = without_drift(table)
    pd.testing.assert_frame_equal(table, before)
    assert set(found) == {("tesla-t4", "conv2d"), ("tesla-p4", "conv2d")}
    for device, source in before[["device", "source"]].drop_duplicates().itertuples(index=False):
        chosen = (before["device"] == device) & (before["source"] == source)
        same = (after["seconds"] == before["seconds"])[chosen].all()
        assert same == (source == "another" or "v100" in device)
        assert list(after.loc[chosen, "inputs"]) == list(before.loc[chosen, "inputs"])
