"""The curve of cooling launches is found in the gaps of runs."""

import numpy as np
import pytest

from experiments.probes.cooling_launches import AFTER, cooling_curve
from simulator.model.launch_cold_start import CoolingCurve

KNOWN = CoolingCurve(AFTER, tuple(np.linspace(0.5, 3.0, len(AFTER)).tolist()))


def test_the_curve_is_found_and_its_mean_is_one():
    rng = np.random.default_rng(1)
    took = np.exp(rng.uniform(np.log(1e-5), np.log(2e-2), 400))
    gaps = 2e-5 * np.array([KNOWN.factor(seconds) for seconds in took])
    usual = took[:50]
    found = cooling_curve(np.tile(took, (3, 1)), np.tile(gaps, (3, 1)), usual)
    mean = np.mean([KNOWN.factor(seconds) for seconds in usual])
    assert np.array(found.factors) * mean == pytest.approx(np.array(KNOWN.factors))
    assert np.mean([found.factor(seconds) for seconds in usual]) == pytest.approx(1.0)


def test_a_gap_in_which_the_system_did_something_else_does_not_count():
    took = np.geomspace(1e-5, 2e-2, 60)
    gaps = np.full((3, 60), 1e-5)
    gaps[1, 20] = 1.0
    found = cooling_curve(np.tile(took, (3, 1)), gaps, took)
    assert found.factors == pytest.approx([1.0] * len(AFTER))


def test_none_without_gaps():
    assert cooling_curve(np.empty((0, 5)), np.empty((0, 5)), np.ones(3)) is None
    assert cooling_curve(np.ones((2, 5)), np.zeros((2, 5)), np.ones(3)) is None
