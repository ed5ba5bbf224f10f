"""Noise: moments in closed form, what is correlated and what is not, and the same truth for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import fully_connected
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.noise import (
    ANY_KIND,
    Compose,
    EmpiricalNoise,
    LogNormalNoise,
    NoiseModel,
    RandomDrift,
    SteadyDrift,
    Stragglers,
    SystematicError,
)
from simulator.model.operator import Operator
from simulator.model.workload import Job, Workload
from simulator.schedulers import create
from tests.examples import examples
from tests.simulator.scripted import StaticPlan

MANY = 40_000


def graph_of(kinds: list[str]) -> DataflowGraph:
    """Operators of these kinds, without edges."""
    operators = [Operator(f"o{i}", kind) for i, kind in enumerate(kinds)]
    empty: list[list[int]] = [[] for _ in kinds]
    return DataflowGraph("kinds", operators, [], empty, empty)


def factors(
    noise: NoiseModel, graph: DataflowGraph, devices: int = 1, seed: int = 0, arrival: float = 0.0
) -> np.ndarray:
    """Actual over believed times, believed ones being 2 s."""
    believed = GraphCosts(np.full((len(graph), devices), 2.0))
    return noise.realise(graph, believed, np.random.default_rng(seed), arrival) / 2.0


# -- moments --------------------------------------------------------------------------------------
# Tolerances are 5 standard errors: fixed seeds pass forever, a wrong formula does not.


def test_log_normal_moments() -> None:
    sigma = 0.4
    drawn = factors(LogNormalNoise(sigma), graph_of(["k"] * MANY))[:, 0]
    mean, variance = math.exp(sigma**2 / 2), math.exp(sigma**2) * math.expm1(sigma**2)
    assert drawn.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / MANY))
    assert np.log(drawn).std() == pytest.approx(sigma, abs=5 * sigma / math.sqrt(2 * MANY))
    # The median's standard error is sqrt(pi / 2) times the mean's.
    assert np.median(drawn) == pytest.approx(1, abs=5 * 1.2533 * sigma / math.sqrt(MANY))


def test_empirical_noise_takes_each_sample_equally_often() -> None:
    samples = np.log([1.0, 1.1, 1.5, 4.0])
    graph = graph_of(["conv"] * MANY + ["relu"] * 10 + ["other"] * 10)
    noise = EmpiricalNoise(
        {
            ("gpu", "conv"): samples,
            ("cpu", "relu"): np.log([2.0]),
            ("cpu", ANY_KIND): np.log([3.0]),
        },
        ["gpu", "cpu", "none"],
    )
    drawn = factors(noise, graph, 3)
    values, counts = np.unique(drawn[:MANY, 0].round(9), return_counts=True)
    assert values.tolist() == [1.0, 1.1, 1.5, 4.0]
    assert counts == pytest.approx(np.full(4, MANY / 4), abs=5 * math.sqrt(MANY * 3 / 16))
    assert np.all(drawn[MANY:, 0] == 1)  # nothing known of these kinds there
    assert drawn[:MANY, 1] == pytest.approx(3)
    assert drawn[MANY : MANY + 10, 1] == pytest.approx(2)
    assert np.all(drawn[:, 2] == 1)


def test_a_straggler_takes_the_factor_on_every_device() -> None:
    drawn = factors(Stragglers(0.05, 7.0), graph_of(["k"] * MANY), 3)
    assert np.all(drawn[:, 0] == drawn[:, 1])
    assert np.all(drawn[:, 0] == drawn[:, 2])
    assert sorted({*drawn[:, 0].tolist()}) == [1.0, 7.0]
    assert (drawn[:, 0] == 7).mean() == pytest.approx(0.05, abs=5 * math.sqrt(0.05 * 0.95 / MANY))


def test_pareto_stragglers() -> None:
    least, shape = 2.0, 5.0
    drawn = factors(Stragglers(0.5, least, shape), graph_of(["k"] * MANY))[:, 0]
    slow = drawn[drawn > 1]
    assert slow.min() >= least
    mean = least * shape / (shape - 1)
    deviation = least / (shape - 1) * math.sqrt(shape / (shape - 2))
    assert slow.mean() == pytest.approx(mean, abs=5 * deviation / math.sqrt(len(slow)))
    tail = (least / 3) ** shape
    error = math.sqrt(tail * (1 - tail) / len(slow))
    assert (slow > 3).mean() == pytest.approx(tail, abs=5 * error)
    assert np.all(factors(Stragglers(0.0, 9.0, 2.0), graph_of(["k"] * 100)) == 1)
    assert np.all(factors(Stragglers(1.0, 9.0), graph_of(["k"] * 100)) == 9)


def test_steady_drift_compounds() -> None:
    noise = SteadyDrift([0.02, -0.5, 0.0])
    graph = graph_of(["k"])
    assert factors(noise, graph, 3, arrival=0.0).tolist() == [[1.0, 1.0, 1.0]]
    assert factors(noise, graph, 3, arrival=7200.0)[0] == pytest.approx([1.02**2, 0.25, 1.0])
    assert factors(SteadyDrift(0.1), graph, 2, arrival=1800.0)[0] == pytest.approx([1.1**0.5] * 2)


def test_random_drift_has_the_moments_of_its_process() -> None:
    sigma, tau, lag = 0.2, 60.0, 30.0
    noise = RandomDrift(["d"], sigma, tau)
    graph = graph_of(["k"])
    runs = 1500
    at = {
        time: np.log([factors(noise, graph, seed=seed, arrival=time)[0, 0] for seed in range(runs)])
        for time in (0.0, lag, 1e6, 1e6 + lag)
    }
    for values in at.values():  # stationary from the start
        assert values.mean() == pytest.approx(0, abs=5 * sigma / math.sqrt(runs))
        assert values.std() == pytest.approx(sigma, abs=5 * sigma / math.sqrt(2 * runs))
    rho = math.exp(-lag / tau)
    for a, b in ((0.0, lag), (1e6, 1e6 + lag)):
        found = np.corrcoef(at[a], at[b])[0, 1]
        assert found == pytest.approx(rho, abs=5 * (1 - rho**2) / math.sqrt(runs))
    far = np.corrcoef(at[0.0], at[1e6])[0, 1]
    assert abs(far) < 5 / math.sqrt(runs)


def test_random_drift_is_one_path_through_all_its_blocks() -> None:
    """An autoregressive process: what each step adds is independent noise, also between blocks."""
    tau = 16.0  # steps of one second
    names = [*"abcdefgh", "a"]
    noise = RandomDrift(names, 1.0, tau)
    graph, steps, devices = graph_of(["k"]), 2000, len(names)
    rows = [factors(noise, graph, devices, 5, float(time))[0] for time in range(steps)]
    path = np.log(rows)
    assert np.all(path[:, 0] == path[:, -1])
    fade = math.exp(-1 / 16)
    added = (path[1:, :-1] - fade * path[:-1, :-1]) / math.sqrt(1 - fade**2)
    assert added.std() == pytest.approx(1, abs=5 / math.sqrt(2 * added.size))
    assert np.abs(added).max() < 5.5
    assert np.abs(np.corrcoef(added.T) - np.eye(8)).max() < 5 / math.sqrt(steps)
    assert abs(np.corrcoef(added[1:, 0], added[:-1, 0])[0, 1]) < 5 / math.sqrt(steps)
    # Held between steps; the order of asking does not matter.
    assert (
        factors(noise, graph, devices, 5, 700.9).tolist()
        == factors(noise, graph, devices, 5, 700.0).tolist()
    )
    assert np.log(factors(noise, graph, devices, 5, 3.0)[0]).tolist() == path[3].tolist()


# -- systematic errors ----------------------------------------------------------------------------


def test_a_systematic_error_is_one_within_a_device_and_kind_and_independent_across() -> None:
    kinds = ["conv", "relu", "conv", "relu"]
    noise = SystematicError(["gpu", "cpu", "gpu"], 0.3)
    runs = 1500
    logs = np.log([factors(noise, graph_of(kinds), 3, seed) for seed in range(runs)])
    assert np.all(logs[:, 0] == logs[:, 2])  # the same kind: correlation 1
    assert np.all(logs[:, 1] == logs[:, 3])
    assert np.all(logs[:, :, 0] == logs[:, :, 2])  # devices of one group too
    columns = [logs[:, 0, 0], logs[:, 1, 0], logs[:, 0, 1], logs[:, 1, 1]]
    correlation = np.corrcoef(columns)
    assert np.abs(correlation - np.eye(4)).max() < 5 / math.sqrt(runs)
    for column in columns:
        assert column.mean() == pytest.approx(0, abs=5 * 0.3 / math.sqrt(runs))
        assert column.std() == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(2 * runs))


def test_a_systematic_error_is_the_same_for_every_job_and_graph_of_a_run() -> None:
    noise = SystematicError(["gpu"], 0.5)
    rng = np.random.default_rng(3)
    one, other = graph_of(["relu", "conv"]), graph_of(["add", "conv", "conv"])
    believed = [GraphCosts(np.ones((len(g), 1))) for g in (one, other)]
    first = noise.realise(one, believed[0], rng, 0.0)
    rng.random(1000)
    second = noise.realise(other, believed[1], rng, 50.0)
    assert first[1, 0] == second[1, 0] == second[2, 0]
    assert first[1, 0] != first[0, 0]


def test_given_factors_and_sigmas() -> None:
    noise = SystematicError(
        ["gpu", "cpu"],
        {("gpu", "conv"): 0.0, ("cpu", ANY_KIND): 0.2},
        factors={("gpu", "relu"): 1.5},
    )
    drawn = factors(noise, graph_of(["conv", "relu", "add"]), 2)
    assert drawn[:, 0].tolist() == [1.0, 1.5, 1.0]
    assert len({*drawn[:, 1].tolist(), 1.0}) == 4


def test_systematic_errors_that_go_together() -> None:
    """As much as is said of the kind, else of any; a group that is not named goes with nobody."""
    kinds = ["conv", "relu"]
    groups = ["a", "b", "c"]
    alone = SystematicError(groups, 0.3)
    noise = SystematicError(
        groups, 0.3, correlation={("a", "b", "conv"): 1.0, ("a", "b", ANY_KIND): 0.7}
    )
    runs = 1500
    logs = np.log([factors(noise, graph_of(kinds), 3, seed) for seed in range(runs)])
    assert np.all(logs[:, 0, 0] == logs[:, 0, 1])
    found = np.corrcoef([logs[:, 1, 0], logs[:, 1, 1], logs[:, 1, 2], logs[:, 0, 0]])
    expected = np.eye(4)
    expected[0, 1] = expected[1, 0] = 0.7
    assert np.abs(found - expected).max() < 5 / math.sqrt(runs)
    assert logs[:, 1, 1].std() == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(2 * runs))
    for seed in range(5):
        before = factors(alone, graph_of(kinds), 3, seed)
        after = factors(noise, graph_of(kinds), 3, seed)
        assert (before[:, [0, 2]] == after[:, [0, 2]]).all()
        assert (before[:, 1] != after[:, 1]).all()
    # Without sizes alike the factors still are functions of one number.
    sizes = {("a", ANY_KIND): 0.1, ("b", ANY_KIND): 0.2}
    two = SystematicError(["a", "b"], sizes, correlation={("a", "b", ANY_KIND): 1.0})
    drawn = factors(two, graph_of(kinds), 2)
    assert drawn[:, 1] == pytest.approx(drawn[:, 0] ** 2)


# -- composition and the protocol -------------------------------------------------------------------


def test_composed_factors_multiply() -> None:
    graph = graph_of(["k"] * 50)
    steady, error = SteadyDrift(1.0), SystematicError(["d"], 0.5)
    both = factors(Compose([error, steady]), graph, arrival=3600.0)
    assert both == pytest.approx(factors(error, graph) * 2)
    assert factors(Compose([]), graph).tolist() == [[1.0]] * 50
    # A part's measured spread is passed on.
    believed = GraphCosts(np.ones((50, 1)), spread=np.full((50, 1), 0.2))
    drawn = Compose([steady, LogNormalNoise()]).realise(graph, believed, np.random.default_rng(1))
    assert (
        drawn.tolist()
        == LogNormalNoise().realise(graph, believed, np.random.default_rng(1)).tolist()
    )


SIGMA = st.floats(0, 1)


@st.composite
def noises(draw: st.DrawFn, devices: int, depth: int = 1) -> NoiseModel:
    """Any noise model for so many devices."""
    groups = draw(st.lists(st.sampled_from("abc"), min_size=devices, max_size=devices))
    keys = st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", ANY_KIND]))
    samples = st.lists(st.floats(-1, 1), min_size=1, max_size=5).map(np.array)
    kinds = [
        st.builds(LogNormalNoise, SIGMA),
        st.builds(EmpiricalNoise, st.dictionaries(keys, samples), st.just(groups)),
        st.builds(
            SystematicError,
            st.just(groups),
            st.one_of(SIGMA, st.dictionaries(keys, SIGMA)),
            st.dictionaries(keys, st.floats(0.1, 10)),
        ),
        st.builds(
            Stragglers, st.floats(0, 1), st.floats(1, 20), st.one_of(st.none(), st.floats(1.1, 5))
        ),
        st.builds(SteadyDrift, st.floats(-0.5, 1)),
        st.builds(RandomDrift, st.just(groups), SIGMA, st.floats(1e-3, 1e3)),
    ]
    if depth:
        kinds.append(st.builds(Compose, st.lists(noises(devices, depth - 1), max_size=3)))
    return draw(st.one_of(kinds))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_truth_is_finite_and_depends_on_the_seed_alone(data: st.DataObject, seed: int) -> None:
    """Under any scheduler; what a device cannot run it still cannot, and no time turns negative."""
    noise = data.draw(noises(2))
    graph = DataflowGraph(
        "g", [Operator("a", "x"), Operator("b", "y"), Operator("c", "x")], [], [[]] * 3, [[]] * 3
    )
    believed = np.array([[1.0, math.inf], [2.0, 3.0], [0.0, 1.0]])
    workload = Workload([Job(graph), Job(graph, 5.0), Job(graph, 1e4)])
    cluster = fully_connected("two", 2)
    table = CostTable.of(graph, believed)
    lengths = []
    for ranks in ((0.0, 1.0, 2.0), (2.0, 1.0, 0.0)):
        trace = simulate(
            workload,
            cluster,
            table,
            StaticPlan([(0, ranks[0]), (1, ranks[1]), (1, ranks[2])]),
            actual=noise,
            seed=seed,
        )
        # Where a task starts late its length is a difference of larger numbers.
        lengths.append(trace.tasks["finish"] - trace.tasks["start"])
        assert np.all(np.isfinite(lengths[-1]))
        assert np.all(lengths[-1] >= 0)
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-9, abs=1e-7)
    rng = np.random.default_rng(seed)
    for job in workload:
        actual = noise.realise(graph, table[graph], rng, job.arrival)
        assert actual.shape == (3, 2)
        assert np.isinf(actual[0, 1])
        assert np.all(actual >= 0)


def test_the_engine_gives_drift_each_jobs_arrival() -> None:
    graph = from_edges("one", 1, [])
    workload = Workload([Job(graph), Job(graph, 3600.0), Job(graph, 7200.0)])
    trace = simulate(
        workload,
        fully_connected("one", 1),
        CostTable.of(graph, np.array([[10.0]])),
        create("fcfs"),
        actual=SteadyDrift(0.5),
    )
    assert (trace.tasks["finish"] - trace.tasks["start"]).round(6).tolist() == [10.0, 15.0, 22.5]


def test_a_scheduler_does_not_see_noise() -> None:
    """HEFT plans for what is believed: the same plan, whatever happens."""
    graph = from_edges("fork", 4, [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0)])
    costs = CostTable.of(graph, np.array([[2.0, 4.0], [6.0, 3.0], [6.0, 3.0], [2.0, 4.0]]))
    cluster = fully_connected("two", 2)
    noise = Compose([SystematicError(["a", "b"], 1.0), Stragglers(0.5, 10.0)])
    plans = [
        simulate(graph, cluster, costs, create("heft"), actual=actual).tasks["device"].tolist()
        for actual in (None, noise)
    ]
    assert plans[0] == plans[1]


# -- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogNormalNoise(11.0), "Noise needs a sigma >= 0 and at most 10, got 11"),
        (lambda: SystematicError(["a"], -1.0), "A systematic error needs a sigma >= 0"),
        (lambda: SystematicError(["a"], {("a", "k"): math.nan}), "needs a sigma >= 0"),
        (lambda: SystematicError(["a"], factors={("a", "k"): 0.0}), "factor of 'k' on 'a' is 0"),
        (lambda: SystematicError(["a"], correlation={("a", "b", "k"): 1.1}), "correlate by 1.1"),
        (lambda: SystematicError(["a"], correlation={("b", "a", "k"): 0.1}), "lesser name first"),
        (lambda: EmpiricalNoise({("a", "k"): np.zeros(0)}, ["a"]), "deviations of 'k' on 'a'"),
        (lambda: EmpiricalNoise({("a", "k"): np.array([math.nan])}, ["a"]), "must be log ratios"),
        (lambda: Stragglers(1.5, 2.0), "a probability from 0 to 1, got 1.5"),
        (lambda: Stragglers(math.nan, 2.0), "a probability from 0 to 1"),
        (lambda: Stragglers(0.1, 0.5), "a factor from 1"),
        (lambda: Stragglers(0.1, 2.0, 1.0), "a shape above 1, got 1.0"),
        (lambda: SteadyDrift(-1.0), "relative change per hour above -1"),
        (lambda: SteadyDrift(math.inf), "relative change per hour"),
        (lambda: RandomDrift(["a"], 0.1, 0.0), "a time constant above 0 s"),
        (lambda: RandomDrift(["a"], math.nan, 1.0), "A drift needs a sigma"),
    ],
)
def test_refused_when_made(make: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()  # type: ignore[operator]


def test_refused_when_drawn() -> None:
    graph = graph_of(["k"])
    with pytest.raises(InvalidInput, match="The noise is for 1 devices, the times"):
        factors(SystematicError(["a"], 0.1), graph, 2)
    with pytest.raises(InvalidInput, match=r"more than a factor of 1e9 until 3\.6e\+06 s"):
        factors(SteadyDrift(1.0), graph, arrival=3.6e6)
    believed = GraphCosts(np.ones((1, 1)), spread=np.array([[math.nan]]))
    with pytest.raises(InvalidInput, match="measured spread of graph 'kinds' holds values outside"):
        LogNormalNoise().realise(graph, believed, np.random.default_rng(0))
