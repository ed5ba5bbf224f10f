import pandas as pd
import pytest

from cost_models.profile import Profile
from cost_models.table import identities, layout_of, load, row_of, rows_of, telling, write
from simulator.errors import InvalidInput
from simulator.model.operator import Operator, TensorSpec
from tests.cost_models.conftest import linear_row, random_table, relu_row

STATES = ["graph", "warm", "cold", "awaited"]
SPECS = [TensorSpec((size,)) for size in (64, 4096, 100_000)]


def test_file_round_trip(tmp_path, measured_table):
    path = tmp_path / "m.parquet"
    write(measured_table, path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.parquet"]
    again = load(path)
    assert again["inputs"][0] == measured_table["inputs"][0]
    for column in ("seconds", "cache", "spread", "half_a_s", "repeats"):
        assert list(again[column]) == list(measured_table[column])
    assert [list(a) for a in again["architectures"]] == list(measured_table["architectures"])


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(float("nan"), "nan"), (-1e-6, "-1e-06"), (0.0, "0.0"), (float("inf"), "inf"), ("x", "x")],
)
def test_impossible_times_are_refused_with_their_row(seconds, said):
    frame = pd.DataFrame([linear_row(2, 3, 4), relu_row(5, seconds)])
    with pytest.raises(InvalidInput, match=rf"row 1 \(relu\) has seconds = {said}"):
        load(frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float99"}, "unknown element type 'float99'"),
        ({"attributes": "{"}, "attributes that are no JSON object"),
        ({"attributes": "[1]"}, "attributes that are no JSON object"),
        ({"inputs": 7}, "row 0 has no list of shapes in 'inputs'"),
        ({"outputs": [[-2]]}, "negative dimension in 'outputs'"),
        ({"kind": ""}, "has no operator kind"),
        ({"kind": None}, "has no operator kind"),
        ({"colour": "red"}, "unknown column 'colour'"),
    ],
)
def test_bad_rows_are_refused(change, message):
    with pytest.raises(InvalidInput, match=message):
        load(pd.DataFrame([relu_row(5) | change]))


@pytest.mark.parametrize("column", ["kind", "seconds", "source", "attributes"])
def test_missing_column_is_named(column):
    frame = pd.DataFrame([relu_row(5)]).drop(columns=column)
    with pytest.raises(InvalidInput, match=f"lacks the column '{column}'"):
        load(frame)


def test_prediction_needs_no_times():
    frame = pd.DataFrame([relu_row(5)])[["kind", "dtype", "inputs", "outputs", "attributes"]]
    assert len(load(frame, timed=False)) == 1


def test_missing_truncated_and_foreign_files_are_refused(tmp_path, table):
    with pytest.raises(InvalidInput, match="No measurement table at"):
        load(tmp_path / "none.parquet")
    path = tmp_path / "m.parquet"
    write(table, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InvalidInput, match=r"cannot be read as Parquet .* was it truncated"):
        load(path)


def test_invalid_table_is_not_written(tmp_path):
    with pytest.raises(InvalidInput):
        write(pd.DataFrame([relu_row(5, float("nan"))]), tmp_path / "m.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3), None, None),
        ((2, 3), (3, 1), None),
        ((2, 3), (1, 2), [1, 0]),
        ((2, 12, 16, 64), (12288, 64, 768, 1), [0, 2, 1, 3]),
        ((2, 3), (0, 1), [-1, 1]),  # broadcast over the first dimension
        ((2, 3), (6, 1), [0, 1]),  # gaps between the rows
        ((1, 3), (99, 1), None),  # the stride of a single row means nothing
    ],
)
def test_layout(shape, strides, expected):
    layout = layout_of(TensorSpec(shape, "float32", strides))
    if expected and expected[0] < 0:
        assert sorted(layout) == sorted(expected)
    else:
        assert layout == expected


def test_row_of_an_operator():
    operator = Operator(
        "emb",
        "embedding",
        inputs=(TensorSpec((10, 4)), TensorSpec((3,), "int64")),
        outputs=(TensorSpec((3, 4)),),
        attributes={"b": 1, "a": 2},
    )
    assert row_of(operator) == {
        "kind": "embedding",
        "dtype": "float32",
        "inputs": ((10, 4), (3,)),
        "outputs": ((3, 4),),
        "attributes": '{"a":2,"b":1}',
    }


def test_identities_ignore_everything_but_the_operator():
    rows = pd.DataFrame([linear_row(2, 3, 4, 1.0), relu_row(5), linear_row(2, 3, 4, 9.0)])
    assert list(identities(rows)) == [0, 1, 0]


def test_rows_of_nothing_is_an_empty_table():
    assert len(load(rows_of([]), timed=False)) == 0


def test_load_does_not_touch_the_callers_frame(table):
    before = table.copy(deep=True)
    loaded = load(table)
    loaded["seconds"] = -1.0
    pd.testing.assert_frame_equal(table, before)


def test_what_is_awaited_tells_nothing_of_kernels():
    rows = pd.DataFrame([linear_row(2, 3, 4) | {"cache": state} for state in STATES])
    assert list(telling(rows, "graph")) == [True, True, True, False]
    assert list(telling(rows, "awaited")) == [False, False, False, True]
    assert telling(rows, None).all()
    assert telling(rows.drop(columns="cache"), "graph").all()


def test_a_profile_of_kernels_is_fitted_without_what_is_awaited():
    """Awaited operators take ten times as long: a model that had seen them would be told."""
    graph = random_table(60).assign(cache="graph", architectures=None)
    awaited = graph.assign(cache="awaited", seconds=graph["seconds"] * 10)
    both = pd.concat([graph, awaited], ignore_index=True)
    alone, found = (
        Profile.fitted("box", rows, models=("boosted",), options={"boosted": {"rounds": 20}})
        for rows in (graph, both)
    )
    operators = [Operator("s", "relu", inputs=(spec,), outputs=(spec,)) for spec in SPECS]
    assert (alone.price(operators).seconds == found.price(operators).seconds).all()
