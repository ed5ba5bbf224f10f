import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration import drift
from cost_models.across_devices import FIT, AcrossDevices, shipped
from cost_models.profile import Profile
from cost_models.profile_files import SHIPPED
from cost_models.table import load
from experiments.datasheets import (
    FAMILIES,
    PUBLISHED,
    SEED,
    left_out,
    measured,
    profiles,
    roofline_residuals,
    typical_shares,
)
from experiments.public_profiles import PROFILES
from tests.calibration.test_drift import convolutions

DATASETS = os.environ.get("HETSIM_DATASETS")
ROWS = 1200


def of_two_gpus(added: np.ndarray | float = 0.0) -> pd.DataFrame:
    """What was measured on each, the second 1.3 times as long; both with the same time added."""
    parts = [convolutions(ROWS).assign(device=d) for d in ("tesla-t4", "tesla-v100-pcie-32gb")]
    parts[1]["seconds"] *= 1.3
    return load(pd.concat([part.assign(seconds=part["seconds"] + added) for part in parts]))


def test_a_share_knows_nothing_of_a_drift(monkeypatch):
    true = typical_shares(roofline_residuals(of_two_gpus()))["conv2d"]
    drifted = of_two_gpus(np.arange(ROWS) / ROWS * 2e-3)
    before = drifted.copy()
    found = typical_shares(roofline_residuals(drifted))["conv2d"]
    pd.testing.assert_frame_equal(drifted, before)
    assert found == pytest.approx(true, rel=0.05)
    monkeypatch.setattr(drift, "LEAST", ROWS + 1)  # nothing is taken off
    assert typical_shares(roofline_residuals(drifted))["conv2d"] < 0.8 * true


def test_all_shipped_profiles_have_the_same_shares():
    """Also what public profiles did not measure; .519 for convolutions is that with the drift."""
    shares = {name: Profile.load(name).roofline.efficiency for name in (*PUBLISHED, *PROFILES)}
    for name, found in shares.items():
        assert found == shares[PUBLISHED[0]], name
    assert shares[PUBLISHED[0]]["conv2d"] == pytest.approx(0.661, abs=0.005)


def test_residuals_are_those_of_gpus_left_out():
    """Every family of GPUs that measured a kind is one observation of its common error; other kinds have all kinds'."""
    across = Profile.load("geforce-rtx-3090").residuals["across_devices"]
    devices = {device for family in FAMILIES for device in family}
    assert 4 <= len(across["linear"].biases) <= len(devices)
    assert 4 <= len(across["conv2d"].biases) <= len(devices)
    assert "batch_norm" not in across
    assert across["*"].systematic > 0.1
    for name in PUBLISHED:
        profile = Profile.load(name)
        assert profile.residuals["across_devices"] == across
        assert profile.held_out["across_devices"]["device"]["conv2d"]["mean"] > 0.05


def test_small():
    assert sum((SHIPPED / name / "profile.json").stat().st_size for name in PUBLISHED) < 600_000
    assert FIT.stat().st_size < 1_500_000


@pytest.mark.slow
@pytest.mark.skipif(not DATASETS, reason="HETSIM_DATASETS does not name the public data sets")
def test_shipped_datasheets_are_what_the_command_makes():
    folder = Path(str(DATASETS))
    bare = roofline_residuals(load(folder / "neusight_gpus.parquet"))
    table = measured(folder)
    fit = AcrossDevices.fitted(table, seed=SEED)
    assert fit.to_json() == shipped()[0].to_json()
    errors = pd.concat(list(left_out(table)), ignore_index=True)
    for made in profiles(bare, errors, table, fit):
        kept = Profile.load(made.name)
        assert kept.roofline == made.roofline
        assert kept.residuals == made.residuals
        assert kept.held_out == made.held_out
        assert kept.provenance == made.provenance
