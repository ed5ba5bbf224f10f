"""Bootstrap intervals against SciPy's, and how often they hold the truth."""

import numpy as np
import pytest
from scipy import stats

from experiments.comparison import bootstrap
from experiments.comparison.bootstrap import bootstrap_means, intervals_of_means


@pytest.mark.parametrize("count", [5, 12, 60])
def test_the_same_as_scipy(count):
    values = np.random.default_rng(count).lognormal(0, 0.8, count)
    low, high = bootstrap_means(values[:, None], resamples=60_000)
    reference = stats.bootstrap(
        (values,), np.mean, n_resamples=60_000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    width = reference.high - reference.low
    assert low[0] == pytest.approx(reference.low, abs=0.02 * width)
    assert high[0] == pytest.approx(reference.high, abs=0.03 * width)


@pytest.mark.parametrize(
    ("draw", "truth", "least"),
    [
        # 0.936 in theory: a mean of 40 has no t quantiles here.
        (lambda rng, n: rng.normal(0.3, 1.0, n), 0.3, 0.92),
        # Skewed: known to be held less often than said, and less still by percentiles alone.
        (lambda rng, n: rng.lognormal(0, 0.7, n), np.exp(0.245), 0.91),
    ],
)
def test_intervals_hold_the_true_mean_nearly_as_often_as_they_say(draw, truth, least):
    rng = np.random.default_rng(5)
    table = np.stack([draw(rng, 40) for _ in range(1500)], axis=1)
    low, high = bootstrap_means(table, resamples=1000)
    held = ((low <= truth) & (truth <= high)).mean()
    assert least <= held <= 0.97
    # At level 0.5 half of them: an interval that is merely wide would fail here.
    low, high = bootstrap_means(table, level=0.5, resamples=1000)
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.5, abs=0.05)


def test_skewed_to_the_right_reaches_further_right_than_percentiles():
    values = np.random.default_rng(0).lognormal(0, 1, 30)
    low, high = bootstrap_means(values[:, None])
    resampled = values[np.random.default_rng(1).integers(0, 30, (20_000, 30))].mean(axis=1)
    percentile = np.percentile(resampled, [2.5, 97.5])
    assert low[0] > percentile[0]
    assert high[0] > percentile[1]


def test_equal_values_shifts_and_signs():
    low, high = bootstrap_means(np.full((6, 1), 0.3))
    assert (low[0], high[0]) == (0.3, 0.3)
    values = np.random.default_rng(2).gamma(2.0, size=(20, 1))
    low, high = bootstrap_means(values)
    shifted = bootstrap_means(values + 7.0)
    assert (shifted[0][0], shifted[1][0]) == pytest.approx((low[0] + 7, high[0] + 7))
    turned = bootstrap_means(-values)
    assert (turned[0][0], turned[1][0]) == pytest.approx((-high[0], -low[0]), rel=1e-6)


def test_many_values_are_resampled_in_parts(monkeypatch):
    values = np.random.default_rng(3).normal(size=(200, 2))
    whole = bootstrap_means(values)
    monkeypatch.setattr(bootstrap, "_CHUNK", 10_000)
    parts = bootstrap_means(values)
    # Other draws of the same distribution.
    assert parts[0] == pytest.approx(whole[0], abs=0.02)
    assert parts[1] == pytest.approx(whole[1], abs=0.02)


def test_samples_of_different_lengths():
    rng = np.random.default_rng(4)
    samples = [rng.normal(size=n) for n in (4, 10, 7, 10)]
    ends = intervals_of_means(samples)
    assert np.isnan(ends[0]).all()
    for values, end in zip(samples[1:], ends[1:], strict=True):
        alone = bootstrap_means(values[:, None])
        assert end == pytest.approx((alone[0][0], alone[1][0]))
