"""Pairs, regret and operator errors on traces whose figures are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.probes.overhead import Overhead
from experiments.runs.prepare import prepare
from experiments.validation.cases import (
    Case,
    ModelValidation,
    Validation,
    durations,
    kind_errors,
    nearest,
    repeatability,
    statistic_of,
)
from experiments.validation.contestants import plan_grid
from experiments.validation.figures import summary
from experiments.validation.simulated_vs_measured import Prediction, interval_of
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import from_edges
from simulator.model.noise import LogNormalNoise
from simulator.schedulers import create


def shared():
    return Cluster(
        "two", [MemorySpace("ram")], [Device("a", "ram"), Device("b", "ram")], host="ram"
    )


def test_durations_by_operator_and_device():
    graph = from_edges("pair", 2, [])
    costs = CostTable.of(graph, np.array([[1.0, 5.0], [7.0, 2.0]]))
    traces = [simulate(graph, shared(), costs, create("heft")) for _ in range(2)]
    found = durations(traces, 2, 2)
    expected = [[1.0, np.nan], [np.nan, 2.0]]
    np.testing.assert_array_equal(found, [expected, expected])


def test_operator_errors_by_kind():
    graph = from_edges("four", 4, [])
    predicted = np.array([[1.0], [2.0], [3.0], [4.0]])
    measured = np.array([[2.0], [2.0], [2.0], [np.nan]])
    (everything, kind) = kind_errors(graph, predicted, measured, ["a"])
    assert (everything.kind, kind.kind) == ("all", "task")
    assert everything.operators == 3  # one was not measured
    assert everything.measured_s == 6.0
    assert everything.total == 0.0
    assert everything.median == 0.0
    assert everything.mean == pytest.approx(0.0)
    assert everything.median_absolute == 0.5


def case(model, scheduler, simulated, measured, jobs=1):
    repeats = np.array([measured, measured * 1.2, measured * 1.1, measured * 1.4])
    nan = float("nan")
    trace = None
    return Case(
        model, scheduler, trace, trace, simulated, nan, nan, nan, repeats, measured, {}, jobs
    )


def test_statistics():
    values = np.array([[3.0, 1.0], [1.0, 5.0], [2.0, 9.0]])
    np.testing.assert_array_equal(statistic_of(values, "minimum"), [1.0, 1.0])
    np.testing.assert_array_equal(statistic_of(values, "median"), [2.0, 5.0])
    with pytest.raises(InvalidInput, match="No statistic 'mean'"):
        statistic_of(values, "mean")
    # Even repeats 1.0, 1.1; odd ones 1.2, 1.4.
    assert repeatability(case("m", "a", 1.0, 1.0), "minimum") == pytest.approx(1 - 1 / 1.2)


def test_the_nearest_trace():
    graph = from_edges("one", 1, [])
    traces = [
        simulate(graph, shared(), CostTable.of(graph, np.array([[t, t]])), create("heft"))
        for t in (1.0, 2.0, 4.0)
    ]
    assert nearest(traces, 2.6).makespan == 2.0


def validated(found, slowness, slowed, one_factor=float("nan"), without_cold=float("nan")):
    """A model of one case whose times were predicted, and were, so many times the profiles'."""
    return SimpleNamespace(
        cases=[found],
        slowness=slowness,
        slowed=slowed,
        one_factor=one_factor,
        without_cold=without_cold,
        on_average=lambda factors: factors,
    )


def test_errors_on_a_machine_as_fast_as_it_was():
    """One model met a machine that was 10% slower, another one that was as fast as then."""
    slow = validated(case("a", "heft", 10.0, 11.0), 1.1, 1.0)
    same = validated(case("b", "heft", 9.0, 10.0), 1.0, 1.0)
    found = summary(Validation([slow, same]))
    assert found["mean_signed_error"] == pytest.approx((10 / 11 + 0.9) / 2 - 1)
    assert found["mean_signed_error_steady"] == pytest.approx((1.0 + 0.9) / 2 - 1)
    assert found["mean_absolute_error_steady"] == pytest.approx(0.05)
    assert found["slowness"] == pytest.approx(1.05)
    assert not found["at_speed"]
    unknown = validated(slow.cases[0], float("nan"), 1.0)
    assert np.isnan(summary(Validation([unknown]))["mean_absolute_error_steady"])


def test_errors_of_predictions_at_the_machines_speed():
    """Predicted 11 s for a machine 10% slow, which the profiles alone would have said to be 10 s."""
    found = summary(Validation([validated(case("a", "heft", 11.0, 11.0), 1.1, 1.1, 1.2, 1.3)]))
    assert found["at_speed"]
    assert found["mean_signed_error"] == found["mean_signed_error_steady"] == 0
    assert found["mean_signed_error_unscaled"] == pytest.approx(10 / 11 - 1)
    assert found["mean_absolute_error_unscaled"] == pytest.approx(1 - 10 / 11)
    assert found["mean_signed_error_one_factor"] == pytest.approx(12 / 11 - 1)
    assert found["mean_signed_error_without_cold"] == pytest.approx(13 / 11 - 1)


def test_factors_are_averaged_over_the_time_that_operators_take():
    """Devices alike, operators by their share: (2 x 1 + 1 x 3) / 4 and (1 x 5 + 1 x 1) / 6."""
    costs = GraphCosts(np.array([[1.0, 5.0], [3.0, 1.0]]))
    model = ModelValidation(
        *("m", "key", None, shared(), (), (), costs, None, "p10", "", {}, 0.0, (), {})
    )
    factors = np.array([[2.0, 1.0], [1.0, 1.0]])
    assert model.on_average(factors) == pytest.approx((5 / 4 + 1) / 2)
    assert model.on_average(model.slowed) == 1.0
    assert np.isnan(model.on_average(model.slowness))


def test_a_slow_machine_takes_longer_and_schedulers_do_not_know():
    """Times grow by half; what is believed, so what is decided, stays."""
    group = plan_grid(["model=squeezenet1_1", "scheduler=mct", "cluster=cpu_1x_3x"], ()).groups[0]
    world, one = prepare(group.scenario, ()), group.contestants[0]
    fast = Prediction(world).run(one, Overhead())
    slow = Prediction(world, 1.5).run(one, Overhead())
    assert slow.makespan == pytest.approx(1.5 * fast.makespan)
    assert (slow.tasks["device"] == fast.tasks["device"]).all()
    noisy = LogNormalNoise(0.1)
    drawn = [Prediction(world, slowness).run(one, Overhead(), noisy) for slowness in (1.0, 1.5)]
    assert drawn[1].makespan == pytest.approx(1.5 * drawn[0].makespan)


def test_intervals_hold_what_measuring_again_would_differ_by(monkeypatch):
    """Draws that are all alike, of a makespan and a speed that are each found with 10% of noise."""
    words = ["model=squeezenet1_1", "scheduler=mct", "cluster=cpu_1x_3x", "simulation.draws=400"]
    words.append("simulation.discrepancy=0")
    group = plan_grid(words, ()).groups[0]
    world, one = prepare(group.scenario, ()), group.contestants[0]
    monkeypatch.setattr(world, "draws", lambda scenario: [None] * scenario.simulation.draws)
    run = Prediction(world).run(one, Overhead())
    certain = run.makespan
    assert interval_of(Prediction(world).draws(one, Overhead(), run)) == (certain, certain)
    low, high = interval_of(Prediction(world, noise=0.1).draws(one, Overhead(), run))
    assert np.log(high / low) == pytest.approx(2 * 1.645 * np.sqrt(2) * 0.1, rel=0.2)
    assert np.sqrt(low * high) == pytest.approx(certain, rel=0.05)
