"""Arrivals: known times, the mean of a Poisson stream, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from scenarios.arrivals import WorkloadConfig, arrival_times, build_workload, priorities
from simulator.errors import InvalidInput
from simulator.model.graph import from_edges


def test_single_concurrent_and_periodic_times():
    assert arrival_times(WorkloadConfig("one"), seed=5) == [0.0]
    assert arrival_times(WorkloadConfig("four", "concurrent", jobs=4), seed=5) == [0.0] * 4
    periodic = WorkloadConfig("camera", "periodic", jobs=3, period="80ms")
    assert arrival_times(periodic, seed=5) == [0.0, 0.08, 0.16]


def test_poisson_gaps_are_exponential_and_belong_to_the_seed():
    config = WorkloadConfig("load", "poisson", jobs=20_001, rate="50/s")
    times = arrival_times(config, seed=1)
    gaps = np.diff(times)
    assert times[0] == 0.0
    # Mean and standard deviation of an exponential are equal; 20000 gaps, 4 standard errors.
    assert gaps.mean() == pytest.approx(0.02, rel=4 / 20_000**0.5)
    assert gaps.std() == pytest.approx(0.02, rel=8 / 20_000**0.5)
    assert times == arrival_times(config, seed=1)
    assert times != arrival_times(config, seed=2)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gamma_gaps_have_their_mean_and_variation(cv):
    config = WorkloadConfig("load", "gamma", jobs=40_001, rate="50/s", cv=cv)
    gaps = np.diff(arrival_times(config, seed=1))
    # Standard error of the mean: cv / sqrt(n); of the variance: sqrt((kurtosis - 1) / n) of it, with
    # the gamma distribution's kurtosis 3 + 6 cv^2. Four of each.
    assert gaps.mean() == pytest.approx(0.02, rel=4 * cv / 200 + 1e-9)
    error = 4 * ((2 + 6 * cv**2) / 40_000) ** 0.5
    assert gaps.var() == pytest.approx((0.02 * cv) ** 2, rel=error, abs=1e-12)


def test_a_modulated_stream_has_its_rate_and_dispersion():
    """Mean rate and the limit of the variance of counts over their mean, for two states.

    Source: Fischer and Meier-Hellstern, Performance Evaluation 18(2):149-171, 1993,
    doi:10.1016/0166-5316(93)90035-S.
    """
    fast, slow, long, short = 40.0, 5.0, 2.0, 1.0
    config = WorkloadConfig(
        "load", "mmpp", jobs=400_000, rates=["40/s", "5/s"], sojourns=["2s", "1s"]
    )
    times = np.array(arrival_times(config, seed=3))
    assert times[0] == 0.0
    assert (np.diff(times) >= 0).all()
    rate = (fast * long + slow * short) / (long + short)
    leave, back = 1 / long, 1 / short
    dispersion = 1 + 2 * (fast - slow) ** 2 * leave * back / (
        (leave + back) ** 2 * (fast * back + slow * leave)
    )
    window = 40.0  # many changes of the state
    counts = np.bincount((times // window).astype(int))[:-1]
    n = len(counts)
    # The closed form is the limit; a finite window falls short by a share of 1 / ((r1 + r2) window).
    short_fall = 1 / ((leave + back) * window)
    assert counts.mean() / window == pytest.approx(
        rate, rel=4 * (dispersion / (rate * window * n)) ** 0.5
    )
    assert counts.var(ddof=1) / counts.mean() == pytest.approx(
        dispersion, rel=4 * (2 / n) ** 0.5 + short_fall
    )


def test_on_and_off_gaps_are_either_short_or_across_a_silence():
    config = WorkloadConfig(
        "load", "mmpp", jobs=50_000, rates=["100/s", "0/s"], sojourns=["1s", "4s"]
    )
    gaps = np.diff(arrival_times(config, seed=3))
    # After an arrival: another before the end with probability 100 / (100 + 1), else a silence.
    share = (gaps > 0.2).mean()
    # P(gap > 0.2 s) = P(silence) * P(rest > 0.2) to within e^-20; the rest is 4 s exponential plus
    # little more.
    assert share == pytest.approx(np.exp(-0.05) / 101, rel=0.25)
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.15)


def test_recorded_times_and_priorities(tmp_path):
    path = tmp_path / "arrivals.csv"
    path.write_text("priority,arrival_s\n0,0.5\n2,0.5\n1,3\n")
    config = WorkloadConfig("log", "trace", jobs=None, file=str(path))
    jobs = build_workload(config, from_edges("g", 1, []), None, seed=0).jobs
    assert [(job.arrival, job.priority) for job in jobs] == [(0.5, 0), (0.5, 2), (3.0, 1)]
    config = WorkloadConfig("log", "trace", jobs=2, file=str(path))
    assert arrival_times(config, seed=0) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0.5\n1.0\n", "no column 'arrival_s'"),
        ("arrival_s\n1.0\n0.5\n", "line 3: arrives before"),
        ("arrival_s\nsoon\n", "line 2: 'soon' must be seconds"),
        ("arrival_s\n-1\n", "line 2: a job cannot arrive at -1"),
        ("arrival_s,priority\n1,high\n", "line 2"),
        ("arrival_s\n", "has 0"),
        (
            "arrival_s\n1700000000.5\n1700000001\n",
            "as if counted from 1970; .* subtract 1700000000.5",
        ),
        ("arrival_s\n1700000000500\n1700000001000\n", "as if counted from 1970"),
        (None, "Cannot read arrivals"),
    ],
)
def test_bad_records_are_refused(tmp_path, text, reason):
    path = tmp_path / "arrivals.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        arrival_times(WorkloadConfig("log", "trace", jobs=None, file=str(path)), seed=0)


def test_a_share_of_jobs_is_urgent_and_the_arrivals_stay():
    plain = WorkloadConfig("load", "poisson", jobs=10_000, rate="1/s")
    urgent = WorkloadConfig("load", "poisson", jobs=10_000, rate="1/s", urgent=0.2)
    drawn = priorities(urgent, 10_000, seed=4)
    assert set(drawn) == {0, 1}
    assert np.mean(drawn) == pytest.approx(0.2, abs=4 * (0.16 / 10_000) ** 0.5)
    assert priorities(plain, 3, seed=4) == [0, 0, 0]
    assert arrival_times(plain, seed=4) == arrival_times(urgent, seed=4)
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInput, match="share, 0 to 1"):
            priorities(WorkloadConfig("w", "poisson", urgent=share), 1, seed=0)


def test_jobs_begin_and_end_at_the_host():
    graph = from_edges("g", 2, [(0, 1, 1.0)])
    config = WorkloadConfig("camera", "periodic", jobs=2, period="1s")
    jobs = build_workload(config, graph, "ram", seed=0).jobs
    assert [(j.arrival, j.origin, j.destination, j.model) for j in jobs] == [
        (0.0, "ram", "ram", "g"),
        (1.0, "ram", "ram", "g"),
    ]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (WorkloadConfig("w", "poison", jobs=2), "unknown arrivals 'poison'"),
        (WorkloadConfig("w", "poisson", jobs=2), "needs workload.rate"),
        (WorkloadConfig("w", "poisson", jobs=2, rate="0/s"), "above 0"),
        (WorkloadConfig("w", "periodic", jobs=2, period="80"), "no unit"),
        (WorkloadConfig("w", jobs=2), "workload=poisson"),
        (WorkloadConfig("w", jobs=0), "at least 1"),
        (WorkloadConfig("w", "poisson", jobs=None, rate="1/s"), "needs workload.jobs"),
        (WorkloadConfig("w", "gamma", jobs=2, rate="1/s"), "cv=None"),
        (WorkloadConfig("w", "gamma", jobs=2, rate="1/s", cv=-1.0), "cv=-1"),
        (WorkloadConfig("w", "mmpp", jobs=2, rates=["1/s"], sojourns=["1s"]), "at least 2"),
        (
            WorkloadConfig("w", "mmpp", jobs=2, rates=["0/s", "0/s"], sojourns=["1s", "1s"]),
            "one must be above",
        ),
        (
            WorkloadConfig("w", "mmpp", jobs=9, rates=["1/h", "0/s"], sojourns=["1ns", "1s"]),
            "changes its rate over",
        ),
        (WorkloadConfig("w", "trace", jobs=None), "needs workload.file"),
    ],
)
def test_refusals(config, reason):
    with pytest.raises(InvalidInput, match=reason):
        arrival_times(config, seed=0)


@pytest.mark.parametrize(("phase", "peak"), [(0.0, 0.25), (0.4, 0.85), (1.0, 0.25)])
def test_the_phase_moves_the_peak_of_a_day(phase: float, peak: float):
    config = WorkloadConfig(
        "w", "diurnal", jobs=20_000, rate="20/s", period="10s", amplitude=0.8, phase=phase
    )
    angle = 2 * np.pi * np.array(arrival_times(config, seed=1)) / 10
    # The first moment of the angles is half the amplitude, at the angle of the peak.
    moment = np.exp(1j * angle).mean()
    assert abs(moment) == pytest.approx(0.4, abs=0.02)
    assert np.angle(moment * np.exp(-2j * np.pi * peak)) == pytest.approx(0.0, abs=0.05)
    with pytest.raises(InvalidInput, match=r"phase=1\.5"):
        arrival_times(replace(config, phase=1.5), seed=1)
