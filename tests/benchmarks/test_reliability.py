"""What the benchmark makes of leads whose scores are known."""

import numpy as np
import pytest

from tests.benchmarks.reliability import LEAST, scored


def test_scores_of_known_leads():
    """Ahead in every draw and so on hardware; in three of four and not; always by 1%, and not."""
    leads = [
        (np.full(4, 0.5), 0.1),
        (np.array([0.2, 0.2, 0.2, -0.2]), -0.1),
        (np.full(4, 0.01), -0.1),
    ]
    score, separable, right = scored(leads, 0.0)
    assert (separable, right) == (2, 1)
    assert score == pytest.approx(-np.log([1 - LEAST, 0.25, LEAST]).mean())
    # With 1% of discrepancy a lead of 1% is one of .707 standard deviations.
    score, separable, right = scored(leads, 0.01)
    assert (separable, right) == (1, 1)
    assert score == pytest.approx(-np.log([1 - LEAST, 0.25, 1 - 0.76025]).mean(), rel=1e-4)
