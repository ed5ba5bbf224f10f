import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration import drift
from cost_models.profile import Profile
from cost_models.table import load
from experiments.datasheets import PUBLISHED, profiles, roofline_residuals, typical_shares
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


@pytest.mark.slow
@pytest.mark.skipif(not DATASETS, reason="HETSIM_DATASETS does not name the public data sets")
def test_shipped_datasheets_are_what_the_command_makes():
    bare = roofline_residuals(load(Path(str(DATASETS)) / "neusight_gpus.parquet"))
    for made in profiles(bare):
        shipped = Profile.load(made.name)
        assert shipped.roofline == made.roofline
        assert shipped.residuals == made.residuals
        assert shipped.provenance == made.provenance
