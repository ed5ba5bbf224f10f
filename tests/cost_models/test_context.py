"""What networks cost beyond single operators is found again where it is known."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.context import Context, group_of
from cost_models.profile import Profile
from cost_models.profile_files import load_profile
from cost_models.roofline import Roofline
from simulator.errors import InvalidInput
from tests.examples import examples

CONV = ("conv1d", "float32", ((1, 8, 64), (8, 8, 3)), ((1, 8, 62),), '{"groups": 1}')
LINEAR = ("linear", "float32", ((4, 64), (32, 64)), ((4, 32),), "{}")
RELU = ("relu", "float32", ((4, 64),), ((4, 64),), "{}")


def test_products_convolutions_and_what_moves_are_told_apart():
    assert [group_of(key) for key in (CONV, LINEAR, RELU)] == ["convolutions", "products", "moving"]


@settings(max_examples=examples(60), deadline=None)
@given(st.tuples(*[st.floats(0.8, 1.5)] * 3), st.floats(0, 5e-6), st.integers(0, 1000))
def test_factors_and_constant_are_found_again(factors, constant, seed):
    rng = np.random.default_rng(seed)
    keys = [[CONV, LINEAR, RELU] * 8 for _ in range(3)]
    visited = [np.exp(rng.uniform(np.log(3e-6), np.log(3e-3), 24)) for _ in keys]
    placed = [np.tile(np.tile(factors, 8) * v + constant, (5, 1)) for v in visited]
    found = Context.fitted(keys, placed, visited, 0.1)
    assert list(found.factors.values()) == pytest.approx(factors, rel=1e-4)
    assert found.constant == pytest.approx(constant, abs=2e-9)
    assert found.spread == pytest.approx(0, abs=1e-4)
    for row, times, runs in zip(keys, visited, placed, strict=True):
        assert found.of(row, times) == pytest.approx(runs[0], rel=1e-3)


def test_a_sum_repeats_better_than_its_parts():
    """The 10th percentile of an execution is more than that of each operator, and counts."""
    rng = np.random.default_rng(0)
    keys, visited = [[RELU] * 40] * 4, [np.full(40, 1e-4)] * 4
    placed = [1e-4 * rng.choice([1.0, 1.4], (400, 40)) for _ in keys]
    found = Context.fitted(keys, placed, visited, 0.1)
    said = found.of(keys[0], visited[0]).sum()
    assert said == pytest.approx(np.quantile(placed[0].sum(axis=1), 0.1), rel=0.01)
    assert said > 1.1 * np.quantile(placed[0], 0.1, axis=0).sum()


def test_networks_that_disagree_widen_the_interval():
    keys, visited = [[RELU] * 20] * 2, [np.full(20, 1e-4)] * 2
    placed = [np.full((3, 20), 1e-4), np.full((3, 20), 1.3e-4)]
    context = Context.fitted(keys, placed, visited, 0.1)
    assert context.spread == pytest.approx(np.log(1.3) / np.sqrt(2), rel=1e-6)
    profile = Profile(
        "p", "measured", Roofline({"float32": 1e9}, 1e9, 0.0), context=context,
        provenance={"reference_spread": 0.05},
    )  # fmt: skip
    assert profile.drift == pytest.approx(np.hypot(0.05, context.spread))


def test_what_another_thing_explains_is_not_believed():
    placed, visited = [np.full((3, 20), 1e-3)] * 2, [np.full(20, 1e-5)] * 2
    found = Context.fitted([[RELU] * 20] * 2, placed, visited, 0.1)
    assert 0.7 <= found.factors["moving"] <= 1.6


def test_every_price_has_it_and_a_file_keeps_it(tmp_path):
    roofline = Roofline({"float32": 1e9}, 1e9, 0.0)
    bare = Profile("p", "measured", roofline)
    context = Context({"convolutions": 1.2, "products": 1.1, "moving": 1.5}, 2e-6, 0.03, 14)
    profile = Profile("p", "measured", roofline, context=context)
    alone = bare.price_rows([CONV, LINEAR, RELU]).seconds
    expected = alone * [1.2, 1.1, 1.5] + 2e-6
    assert profile.price_rows([CONV, LINEAR, RELU]).seconds == pytest.approx(expected)
    profile.save(tmp_path)
    again = load_profile(tmp_path)
    assert again.context == context
    document = json.loads((tmp_path / "profile.json").read_text())
    document["context"]["constant_s"] = -1.0
    (tmp_path / "profile.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=r"profile\.json is incomplete"):
        load_profile(tmp_path)
