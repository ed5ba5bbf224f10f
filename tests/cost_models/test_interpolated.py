import json

import numpy as np
import pandas as pd
import pytest

from cost_models import fit
from cost_models.boosted import Boosted
from cost_models.interpolated import Curve, Interpolated, axis_of
from cost_models.roofline import Roofline
from cost_models.table import load
from simulator.errors import InvalidInput
from tests.cost_models.conftest import linear_row

ROOFLINE = Roofline({"float32": 1e13}, 1e12, 5e-6)
QUICK = {"rounds": 80, "members": 2}
LENGTHS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def attention_row(batch: int, heads: int, length: int, width: int = 64, queries: int | None = None):
    query = (batch, heads, queries or length, width)
    key = (batch, heads, length, width)
    flops = 4 * batch * heads * query[2] * length * width
    # Longer sequences come nearer to the peak, with a hump that no power law has.
    share = 0.2 + 0.5 * length / (length + 300) + 0.05 * np.sin(np.log(length))
    seconds = 8e-6 + flops / (1e13 * share)
    return linear_row(1, 1, 1) | {
        "kind": "scaled_dot_product_attention",
        "inputs": (query, key, key),
        "outputs": (query,),
        "attributes": '{"is_causal":false}',
        "seconds": seconds,
    }


def sequences(lengths) -> pd.DataFrame:
    pairs = [(b, h) for b in (1, 2, 4, 8) for h in (4, 8, 12)]
    return load(pd.DataFrame([attention_row(b, h, n) for n in lengths for b, h in pairs]))


def test_a_length_between_measured_ones():
    """Held out as a whole: curves and trees together are far nearer than trees that see the length."""
    seen = [n for n in LENGTHS if n not in (128, 1024)]
    train, test = sequences(seen), sequences([128, 1024])
    both = Interpolated.fitted(train, roofline=ROOFLINE, **QUICK)
    trees = Boosted.fitted(train, roofline=ROOFLINE, **QUICK)
    error, bare = (np.abs(m.predict(test) / test["seconds"] - 1).median() for m in (both, trees))
    assert error < 0.1
    assert error < bare
    assert both.on_curve(test).all()


def test_a_curve_passes_through_its_points_and_keeps_its_ends():
    curve = Curve(np.array([2.0, 8.0, 64.0]), np.array([0.5, 0.1, -0.3]))
    assert curve.at(np.array([2.0, 8.0, 64.0])) == pytest.approx([0.5, 0.1, -0.3])
    assert curve.at(np.array([1.0, 1000.0])) == pytest.approx([0.5, -0.3])
    between = curve.at(np.exp(np.linspace(np.log(2), np.log(64), 50)))
    assert (np.diff(between) <= 0).all()  # monotone, as its points are
    line = Curve(np.array([2.0, 8.0]), np.array([0.0, 1.0]))
    assert line.at(np.array([4.0])) == pytest.approx([0.5])


def test_axes():
    attention = "scaled_dot_product_attention"
    first, second = ((2, 4, n, 8) for n in (32, 64))
    key = (2, 1, 64, 8)

    def axis(query, keys, **attributes):
        return axis_of(attention, (query, keys, keys), (query,), attributes)

    assert axis(first, first)[0] == 32
    assert axis(first, first)[1] == axis(second, second)[1]
    # A single query is another curve, and so are shared heads and another attribute.
    one = (2, 4, 1, 8)
    others = {axis(one, second)[1], axis(second, key)[1], axis(second, second, is_causal=True)[1]}
    assert len(others | {axis(first, first)[1]}) == 4
    assert axis_of("linear", ((2, 3, 8), (4, 8)), ((2, 3, 4),), {})[0] == 6
    assert axis_of("relu", ((4,),), ((4,),), {}) is None
    assert axis_of("linear", ((6, 8), (4, 8)), ((6, 4),), {"layouts": [[1, 0], None]}) is None


def test_where_there_is_no_curve_the_trees_say_it():
    table = sequences(LENGTHS)
    model = Interpolated.fitted(table, roofline=ROOFLINE, **QUICK)
    row = load(pd.DataFrame([attention_row(3, 5, 256)]), timed=False)
    assert not model.on_curve(row).any()
    assert model.predict(row) == pytest.approx(model.boosted.predict(row))


def test_spread_is_the_distance_of_curve_and_trees():
    table = sequences(LENGTHS)
    model = Interpolated.fitted(table, roofline=ROOFLINE, rounds=80, members=1)
    test = sequences([300])
    trees = np.log(model.boosted.predict(test))
    both = np.log(model.predict(test))
    # Half way between the two, so the curve is as far on the other side.
    assert model.predict_in_full(test).spread == pytest.approx(np.abs(both - trees) * np.sqrt(2))


def test_json_and_back():
    model = fit(sequences(LENGTHS), model="interpolated", roofline=ROOFLINE, **QUICK)
    again = Interpolated.from_json(json.loads(json.dumps(model.to_json())))
    rows = sequences([100, 256, 3000])
    assert again.predict(rows) == pytest.approx(model.predict(rows), rel=1e-4)
    assert (again.predict_in_full(rows).in_range == model.predict_in_full(rows).in_range).all()


@pytest.mark.parametrize(
    "change",
    [
        {"curves": {"a": [[4, 2], [0, 0]]}},
        {"curves": {"a": [[1, 2], [0]]}},
        {"curves": {"a": [[1], [0]]}},
        {"curves": {"a": [[1, 2], [0, float("nan")]]}},
        {"curves": []},
        {"boosted": {}},
    ],
)
def test_damage_is_refused(change):
    document = fit(sequences((64, 128)), model="interpolated", roofline=ROOFLINE, **QUICK).to_json()
    with pytest.raises(InvalidInput, match="incomplete or damaged"):
        Interpolated.from_json(document | change)
