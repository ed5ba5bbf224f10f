import copy
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.family import GraphFamily, read_json, write_json
from simulator.model.graph import DataflowGraph
from tests.examples import examples


def document(batch, **changes):
    """y = reshape(x, [batch * 3, 4]) @ w, then a copy whose rows run the other way."""
    view = ["aten.view.default", [{"self": True}, [batch * 3, 4]], {}]
    flat = {"shape": [batch * 3, 4], "dtype": "float32"}
    weight = {"shape": [4, 5], "dtype": "float32"}
    product = {"shape": [batch * 3, 5], "dtype": "float32"}
    turned = {"shape": [5, batch * 3], "dtype": "float32", "strides": [1, 5]}
    return {
        "format": "hetsim.graph/1",
        "name": "net",
        "batch": batch,
        "tensors": [
            {"name": "x", "role": "input", "shape": [batch, 3, 4], "dtype": "float32"},
            {"name": "w", "role": "weight", "shape": [4, 5], "dtype": "float32"},
            {"name": "y", "role": "activation", **product},
            {"name": "z", "role": "activation", "shape": [5, batch * 3], "dtype": "float32"},
        ],
        "operators": [
            {
                "name": "product",
                "kind": "matmul",
                "target": "aten.mm.default",
                "template": {
                    "args": [{"read": 0, "views": [view]}, {"read": 1, "views": []}],
                    "kwargs": {},
                },
                "attributes": {"scale": changes.get("scale", 0.5)},
                "inputs": [flat, weight],
                "outputs": [product],
                "reads": ["x", "w"],
                "writes": ["y"],
            },
            {
                "name": "turn",
                "kind": changes.get("kind", "copy"),
                "target": "aten.clone.default",
                "template": {"args": [{"read": 0, "views": []}], "kwargs": {}},
                "attributes": {"strided": [0], "rows": changes.get("rows", 3 * batch)},
                "inputs": [turned],
                "outputs": [{"shape": [5, batch * 3], "dtype": "float32"}],
                "reads": ["y"],
                "writes": ["z"],
            },
        ],
        "results": [{"tensor": "z", "views": []}],
    }


def graph(batch, **changes):
    return DataflowGraph.from_json(document(batch, **changes))


def family():
    return GraphFamily.from_graphs(graph(2), graph(3), graph(5))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 10_000))
def test_every_batch_is_the_graph_made_at_that_batch(batch):
    assert family().at(batch).to_json() == graph(batch).to_json()


def test_a_batch_gives_the_same_object_every_time():
    made = family()
    assert made.at(4) is made.at(4)
    assert made.at(4).batch == 4


def test_strides_that_mean_nothing_at_batch_one_are_forgotten():
    def narrow(batch):
        turned = {"shape": [7, batch], "dtype": "float32", "strides": [1, 7]}
        text = document(batch)
        text["operators"][1]["inputs"] = [turned]
        return DataflowGraph.from_json(text)

    made = GraphFamily.from_graphs(narrow(2), narrow(3), narrow(5))
    assert made.at(2).operators[1].attributes["strided"] == [0]
    assert made.at(1).operators[1].inputs[0].strides is None
    assert "strided" not in made.at(1).operators[1].attributes


@pytest.mark.parametrize("batch", [0, -1, 1.0, True, "2"])
def test_a_batch_is_a_positive_integer(batch):
    with pytest.raises(InvalidInput, match="a batch is an integer >= 1"):
        family().at(batch)


@pytest.mark.parametrize(
    ("graphs", "where"),
    [
        # Quadratic: two batches cannot tell, the third does.
        ([graph(b, rows=b * b) for b in (2, 3, 5)], "operators / turn / attributes / rows"),
        # A slope of one half, which would leave the integers at odd batches.
        ([graph(b, rows=b // 2) for b in (2, 4, 8)], "operators / turn / attributes / rows"),
        ([graph(b, scale=1 / b) for b in (2, 3, 5)], "operators / product / attributes / scale"),
        ([graph(2), graph(3, kind="relu"), graph(5)], "operators / turn / kind"),
        ([graph(2), graph(3), graph(5, kind="relu")], "operators / turn / kind"),
    ],
)
def test_what_is_not_affine_is_refused_with_its_place(graphs, where):
    with pytest.raises(InvalidInput, match=f"'net' is not affine in the batch: at {where}"):
        GraphFamily.from_graphs(*graphs)


def test_batches_must_differ():
    with pytest.raises(InvalidInput, match="two different batches"):
        GraphFamily.from_graphs(graph(2), graph(2), graph(5))
    with pytest.raises(InvalidInput, match="cannot check itself"):
        GraphFamily.from_graphs(graph(2), graph(3), graph(3))
    with pytest.raises(InvalidInput, match="must say its batch"):
        GraphFamily.from_graphs(
            DataflowGraph.from_json({**document(2), "batch": None}), graph(2), graph(3)
        )


@pytest.mark.parametrize("name", ["family.json", "family.json.gz"])
def test_saving_and_loading(tmp_path, name):
    path = tmp_path / "folder" / name
    made = family()
    made.save(path)
    assert GraphFamily.load(path).at(7).digest == made.at(7).digest
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "family.json.gz"
    family().save(path)
    data = path.read_bytes()
    for damaged in (data[:-20], b"", b"not gzip", gzip.compress(b'{"format": 1')):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="truncated"):
            GraphFamily.load(path)
    with pytest.raises(InvalidInput, match="Cannot read"):
        GraphFamily.load(tmp_path / "none.json")
    for other in ({}, [], {"format": "hetsim.family/1", "graphs": [1]}):
        write_json(path, other)
        with pytest.raises(InvalidInput):
            GraphFamily.load(path)
    broken = family().to_json()
    broken = copy.deepcopy(broken)
    for part in broken["graphs"]:
        part["operators"][0]["reads"] = ["nothing"]
    write_json(path, broken)
    with pytest.raises(InvalidInput, match="nothing"):
        GraphFamily.load(path)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
