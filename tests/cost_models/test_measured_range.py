"""How far an operator is from what was measured, and what that does to an interval."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.measured_range import APART, BEYOND, NEAR, UNSEEN, Reach
from cost_models.uncertainty import LookedUp, Residuals, draw_factors, stretches
from tests.examples import examples


def relu(*shape):
    return ("relu", "float32", (shape,), (shape,), "{}")


MEASURED = [relu(8, 64), relu(8, 4096), relu(1024, 64)]


def test_distances_of_operators_that_are_near_apart_beyond_and_of_another_kind():
    reach = Reach.of(MEASURED)
    tanh = ("tanh", *relu(8, 64)[1:])
    keys = [relu(8, 64), relu(10, 80), relu(1024, 2048), relu(9, 64), tanh]
    inside = np.array([True, True, True, False, True])
    # Rows of 2,048 were measured, and two million elements would be within the range of both.
    assert reach.distances(keys, inside).tolist() == [NEAR, NEAR, APART, BEYOND, UNSEEN]
    assert Reach.from_json(reach.to_json()) == reach
    with pytest.raises(ValueError, match="three numbers each"):
        Reach.from_json({"relu": [1, 2]})


def rows(distance, sizes):
    return pd.DataFrame({"distance": distance, "log_residual": sizes})


def test_stretches_are_of_what_nine_in_ten_do_not_exceed():
    signs = np.tile([1.0, -1.0], 50)
    ways = {
        "architecture": rows(NEAR, 0.1 * signs),
        "fold": rows(APART, 0.2 * signs),
        "size": rows(BEYOND, 0.15 * signs),  # no nearer than what is apart
        "kind": rows(UNSEEN, 0.9 * signs),
    }
    assert stretches(ways) == (1.0, 2.0, 2.0, 9.0)
    del ways["fold"]
    assert stretches(ways) == (1.0, 1.0, 1.5, 9.0)
    ways["kind"] = ways["kind"][:5]  # too few to say anything
    assert stretches(ways) == (1.0, 1.0, 1.5, 1.5)
    assert stretches({"architecture": rows(NEAR, signs)[["log_residual"]]}) == (1.0,) * 4


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-2, 2)), max_size=200))
def test_nothing_is_surer_for_being_farther(found):
    distance, sizes = [d for d, _ in found], [s for _, s in found]
    times = stretches({"architecture": rows(distance, sizes)})
    assert times[0] == 1.0
    assert list(times) == sorted(times)


@settings(max_examples=examples(120), deadline=None)
@given(
    st.lists(st.floats(-0.5, 0.5), min_size=4, max_size=8),
    st.lists(st.floats(1.0, 10.0), min_size=4, max_size=4).map(sorted),
    st.integers(0, 10_000),
)
def test_a_draw_is_never_nearer_to_the_price_outside_than_inside(biases, times, seed):
    groups = [str(i) for i, _ in enumerate(biases) for _ in range(6)]
    spread = np.random.default_rng(seed).normal(0, 0.2, len(groups))
    own = pd.DataFrame({"group": groups, "log_residual": np.repeat(biases, 6) + spread})
    residuals = {"relu": Residuals.of(own)}
    kinds, identity = ["relu"] * 4, np.arange(4)

    def logs(stretch, looked_up=None):
        rng = np.random.default_rng(seed)
        return np.log(draw_factors(residuals, kinds, identity, rng, looked_up, stretch))

    inside, outside = logs(None), logs(np.array(times))
    assert outside == pytest.approx(inside * times)
    assert (np.abs(outside) >= np.abs(inside) - 1e-12).all()
    # A measured time is as sure wherever it lies.
    known = LookedUp(np.array([True, False, True, False]), {"relu": residuals["relu"]})
    assert logs(np.array(times), known)[::2] == pytest.approx(logs(None, known)[::2])
