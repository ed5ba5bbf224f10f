"""Correlations of two profiles' errors: measured, and found again in draws."""

import numpy as np
import pandas as pd
import pytest

from cost_models.correlation import (
    Correlation,
    Correlations,
    few_of_each_kind,
    measured,
    of_ranks,
    read_rows,
    residual_rows,
    signature,
    write_rows,
)
from cost_models.table import load
from cost_models.uncertainty import POOLED, LookedUp, Residuals, draws, residuals_by_kind
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.schedulers import create
from tests.cost_models.test_profile import graph_of, linear

MODELS = {"p": "boosted", "q": "boosted"}


def residuals_of(shared: float, own: float, seed=0, groups=400, each=6, kind="linear"):
    """Two profiles' residuals: normal means of groups and normal rests that correlate as given."""
    rng = np.random.default_rng(seed)

    def pair(r: float, count: int) -> np.ndarray:
        z = rng.standard_normal((2, count))
        return np.array([z[0], r * z[0] + np.sqrt(1 - r * r) * z[1]])

    means = np.repeat(pair(shared, groups), each, axis=1)
    rests = pair(own, groups * each)
    logs = np.array([0.2, 0.3])[:, None] * means + 0.1 * rests
    group = np.repeat([f"net{i}" for i in range(groups)], each)
    return {
        name: pd.DataFrame(
            {
                "operator": np.arange(groups * each),
                "kind": kind,
                "group": group,
                "boosted": values.astype(np.float32),
            }
        )
        for name, values in zip(MODELS, logs, strict=True)
    }


def by_kind(rows: pd.DataFrame) -> dict[str, Residuals]:
    errors = rows.rename(columns={"boosted": "log_residual"})
    return residuals_by_kind(errors, errors)


def test_measured_as_it_was_made():
    found = measured(residuals_of(0.8, 0.5), MODELS).of("q", "p", "linear")
    assert (found.means, found.rows) == (400, 2400)
    # A mean of six has a sixth of the variance of what is each operator's own.
    own = 0.1**2 / 6
    expected = (0.8 * 0.2 * 0.3 + 0.5 * own) / np.sqrt((0.04 + own) * (0.09 + own))
    assert found.shared == pytest.approx(expected, abs=0.04)
    assert found.own == pytest.approx(0.5, abs=0.04)


def test_independent_profiles_correlate_by_nothing():
    assert measured(residuals_of(0.0, 0.0, seed=1), MODELS).pairs == {}


def test_identical_profiles_correlate_by_one():
    rows = residuals_of(0.0, 0.0)["p"]
    found = measured({"p": rows, "q": rows}, MODELS)
    assert found.of("p", "q", "linear") == Correlation(1.0, 1.0, 400, 2400)


def test_only_operators_held_out_with_the_same_architecture_count():
    rows = residuals_of(0.9, 0.9)
    elsewhere = rows["q"].assign(group="other")
    assert measured({"p": rows["p"], "q": elsewhere}, MODELS).pairs == {}
    unknown = rows["q"].assign(operator=rows["q"]["operator"] + 10**6)
    assert measured({"p": rows["p"], "q": unknown}, MODELS).pairs == {}
    assert measured(rows, {"p": "boosted", "q": "mlp"}).pairs == {}  # nothing kept of that fit
    half = measured({"p": rows["p"], "q": rows["q"][::2]}, MODELS).of("p", "q", "linear")
    assert half.rows == 1200


def test_what_few_operators_of_a_kind_do_not_tell_all_kinds_do():
    many, few = residuals_of(0.9, 0.9), residuals_of(-0.9, -0.9, groups=5, each=3, kind="rare")
    rows = {name: pd.concat([many[name], few[name]], ignore_index=True) for name in MODELS}
    found = measured(rows, MODELS).pairs["p", "q"]
    logs = pd.DataFrame({"log_one": few["p"]["boosted"], "log_other": few["q"]["boosted"]})
    group = few["p"]["group"]
    alone = of_ranks(logs.groupby(group).mean())
    around = of_ranks(logs - logs.groupby(group).transform("mean"))
    assert (found["rare"].means, found["rare"].rows) == (5, 15)
    # Five pairs beside ten that are as all are, fifteen beside twenty.
    assert found["rare"].shared == pytest.approx((5 * alone + 10 * found[POOLED].shared) / 15)
    assert found["rare"].own == pytest.approx((15 * around + 20 * found[POOLED].own) / 35)
    assert alone < -0.5
    assert around < -0.5
    assert found["linear"].own > 0.8
    every = Correlations({("p", "q"): found})
    assert every.of("p", "q", "unheard of") == found[POOLED]
    assert every.of("p", "stranger", "linear").shared == 0.0


def test_one_outlier_does_not_decide():
    rng = np.random.default_rng(0)
    pairs = pd.DataFrame(rng.standard_normal((200, 2)), columns=["log_one", "log_other"])
    before = of_ranks(pairs)
    pairs.loc[0] = 100.0
    assert np.corrcoef(pairs.T)[0, 1] > 0.9
    assert of_ranks(pairs) == pytest.approx(before, abs=0.02)
    assert of_ranks(pairs.assign(log_other=-pairs["log_one"])) == pytest.approx(-1.0)
    assert of_ranks(pairs.assign(log_other=1.0)) == 0.0
    assert of_ranks(pairs[:2]) == 0.0


# -- draws -------------------------------------------------------------------------------------------


@pytest.fixture
def costs():
    graph = graph_of("g", *(linear(m, 3, 3, f"o{m}") for m in range(1, 9)))
    return CostTable({graph: GraphCosts(np.full((8, 2), 1.0))})


def logs_of(costs, residuals, count, correlations, looked_up=None):
    (graph,) = costs
    tables = draws(costs, residuals, count, 0, looked_up, correlations=correlations)
    return np.log([table[graph].seconds for table in tables])


@pytest.mark.parametrize(("shared", "own"), [(0.8, 0.4), (-0.5, 0.9)])
def test_draws_correlate_as_was_measured(costs, shared, own):
    rows = residuals_of(shared, own)
    residuals = [(name, by_kind(frame)) for name, frame in rows.items()]
    known = measured(rows, MODELS)
    logs = logs_of(costs, residuals, 1500, known)
    means = logs.mean(axis=1)
    rest = (logs - logs.mean(axis=1, keepdims=True)).reshape(-1, 2)
    entry = known.of("p", "q", "linear")
    # The mean of eight still has an eighth of what is each operator's own.
    part = 0.1**2 / 8
    sizes = np.array([0.04, 0.09]) + 0.1**2 / 6
    expected = (entry.shared * np.sqrt(sizes.prod()) + entry.own * part) / np.sqrt(
        (sizes + part).prod()
    )
    assert np.corrcoef(means.T)[0, 1] == pytest.approx(expected, abs=0.06)
    assert np.corrcoef(rest.T)[0, 1] == pytest.approx(entry.own, abs=0.03)
    # Each alone varies as without the other.
    alone = logs_of(costs, residuals, 1500, None)
    assert means.std(axis=0) == pytest.approx(alone.mean(axis=1).std(axis=0), rel=0.1)
    assert np.quantile(logs, [0.1, 0.5, 0.9], axis=(0, 1)) == pytest.approx(
        np.quantile(alone, [0.1, 0.5, 0.9], axis=(0, 1)), abs=0.03
    )


def test_without_correlation_draws_are_as_ever_to_the_bit(costs):
    rows = residuals_of(0.0, 0.0, seed=1)
    residuals = [(name, by_kind(frame)) for name, frame in rows.items()]
    as_ever = logs_of(costs, residuals, 5, None)
    assert (logs_of(costs, residuals, 5, measured(rows, MODELS)) == as_ever).all()
    # One whose partner is in another cluster too.
    elsewhere = Correlations({("p", "z"): {POOLED: Correlation(0.9, 0.9, 99, 99)}})
    assert (logs_of(costs, residuals, 5, elsewhere) == as_ever).all()
    third = [*residuals[:1], ("z", residuals[1][1])]
    changed = logs_of(costs, third, 5, elsewhere)
    assert (changed[:, :, 1] != as_ever[:, :, 1]).any()


def test_who_does_not_correlate_is_drawn_as_ever(costs):
    (graph,) = costs
    rows = residuals_of(0.8, 0.8)
    p, q = (by_kind(frame) for frame in rows.values())
    three = CostTable({graph: GraphCosts(np.full((8, 3), 1.0))})
    residuals = [("p", p), ("q", q), ("r", p)]
    known = measured(rows, MODELS)
    both, alone = logs_of(three, residuals, 4, known), logs_of(three, residuals, 4, None)
    assert (both[:, :, 2] == alone[:, :, 2]).all()
    assert (both[:, :, 1] != alone[:, :, 1]).all()


def test_a_device_that_is_slower_by_a_constant_always_loses(costs):
    """The same errors on both: who is believed to be faster is faster in every draw, else in some."""
    (graph,) = costs
    rows = residuals_of(0.0, 0.0)["p"]
    residuals = [("p", by_kind(rows)), ("q", by_kind(rows))]
    believed = CostTable({graph: GraphCosts(np.tile([1.0, 1.02], (8, 1)))})
    cores = [Device("a", "ram"), Device("b", "ram")]
    cluster = Cluster("two", [MemorySpace("ram")], cores, host="ram")
    known = measured({"p": rows, "q": rows}, MODELS)

    def wins(correlations):
        found = []
        for table in draws(believed, residuals, 100, 0, correlations=correlations):
            first, second = (
                simulate(
                    graph,
                    cluster,
                    believed,
                    create("single_device", device=device.name),
                    actual=table,
                ).makespan
                for device in cluster.devices
            )
            found.append((first < second, second / first))
        return np.array(found).T

    won, ratio = wins(known)
    assert won.all()
    assert ratio == pytest.approx(np.full(100, 1.02))
    assert 0.3 < wins(None)[0].mean() < 0.8


def test_errors_of_measurements_do_not_go_together(costs):
    """Measured on one, the other is as unsure as before; measured on both, each repeats on its own."""
    rows = residuals_of(0.9, 0.9)
    residuals = [(name, by_kind(frame)) for name, frame in rows.items()]
    known = measured(rows, MODELS)
    quiet = pd.DataFrame({"group": "a", "log_residual": np.linspace(-0.01, 0.01, 101)})
    of_one = LookedUp(np.ones(8, bool), {POOLED: Residuals((), Residuals.of(quiet).within, 101)})
    before = logs_of(costs, residuals, 400, known)
    one = logs_of(costs, residuals, 400, known, {"p": of_one})
    assert (one[:, :, 1] == before[:, :, 1]).all()
    assert np.abs(one[:, :, 0]).max() < 0.0101
    limit = 5 / np.sqrt(one[:, :, 0].size)
    assert abs(np.corrcoef(one[:, :, 0].ravel(), one[:, :, 1].ravel())[0, 1]) < limit
    both = logs_of(costs, residuals, 400, known, {"p": of_one, "q": of_one})
    assert abs(np.corrcoef(both[:, :, 0].ravel(), both[:, :, 1].ravel())[0, 1]) < limit


# -- what is kept ------------------------------------------------------------------------------------


def test_signatures_are_of_content():
    one = ("linear", "float32", ((1, 2), (3, 2)), ((1, 3),), "{}")
    assert signature(one) == signature(("linear", "float32", ((1, 2), (3, 2)), ((1, 3),), "{}"))
    assert signature(one) != signature(("linear", "float32", ((1, 2), (2, 3)), ((1, 3),), "{}"))
    # The same on every machine and in every release: profiles were saved with it.
    assert signature(one) == -2153690779619661366


def errors_of(way: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {"architecture": way, "fold": way.assign(group="0")}


def test_rows_of_architectures_else_of_folds(measured_table, tmp_path):
    table = load(measured_table)
    way = pd.DataFrame({"row": [3, 1], "group": ["a", "a"], "log_residual": [0.25, -0.5]})
    found = residual_rows(table, {"boosted": errors_of(way), "roofline": errors_of(way[:1])})
    assert found["boosted"].tolist() == [-0.5, 0.25]
    assert found["roofline"].isna().tolist() == [True, False]
    assert found["kind"].tolist() == table["kind"][[1, 3]].tolist()
    folds = residual_rows(table, {"boosted": {**errors_of(way), "architecture": way[:0]}})
    assert set(folds["group"]) == {"0"}
    write_rows(found, tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(read_rows(tmp_path / "rows.parquet"), found)
    write_rows(found.drop(columns="kind"), tmp_path / "rows.parquet")
    with pytest.raises(InvalidInput, match="holds no residuals"):
        read_rows(tmp_path / "rows.parquet")


def test_few_of_each_kind_are_the_same_operators_on_every_profile():
    rng = np.random.default_rng(0)
    numbers = rng.choice(10**6, 300, replace=False)
    kinds = np.repeat(["linear", "bmm"], 150)
    every = pd.DataFrame({"operator": numbers, "kind": kinds, "group": "0", "boosted": 0.0})
    again = every[:1].assign(group="1")  # the same operator, held out twice
    p = pd.concat([every, again], ignore_index=True)
    q = every.sample(frac=1.0, random_state=0)
    q = q[q["operator"] != np.sort(numbers[:150])[3]]  # one that this device did not measure
    few, of_other = few_of_each_kind(p, 20), few_of_each_kind(q, 20)
    for kind, part in few.groupby("kind"):
        smallest = np.sort(numbers[kinds == kind])[:20]
        assert sorted(set(part["operator"])) == smallest.tolist()
        shared = {*part["operator"]} & {*of_other.loc[of_other["kind"] == kind, "operator"]}
        assert len(shared) == (19 if kind == "linear" else 20)
    assert few["operator"].tolist() == [n for n in p["operator"] if n in {*few["operator"]}]
    pd.testing.assert_frame_equal(few_of_each_kind(p, 1000), p)
    all_of_one = few_of_each_kind(pd.concat([again, every[:1]], ignore_index=True), 1)
    assert len(all_of_one) == 2
