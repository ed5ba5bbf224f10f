"""Arrivals: known times, the mean of a Poisson stream, refusals."""

import numpy as np
import pytest

from scenarios.arrivals import WorkloadConfig, arrival_times, build_workload
from simulator.errors import InvalidInput
from simulator.graph import from_edges


def test_single_and_periodic_times():
    assert arrival_times(WorkloadConfig("one"), seed=5) == [0.0]
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
    ],
)
def test_refusals(config, reason):
    with pytest.raises(InvalidInput, match=reason):
        arrival_times(config, seed=0)
