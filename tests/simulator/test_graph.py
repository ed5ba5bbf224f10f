"""Graphs: what is refused and how it is said, the JSON form, and index arrays."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor, TensorSpec
from tests.examples import examples
from tests.simulator.strategies import graphs


def document() -> dict[str, Any]:
    """A small graph of every feature: tied weights, two writers, strides, a template, results."""
    spec = {"shape": [2, 3], "dtype": "float32"}
    return {
        "format": "hetsim.graph/1",
        "name": "small",
        "batch": 2,
        "tensors": [
            {"name": "x", "role": "input", **spec},
            {"name": "w", "role": "weight", "shape": [3, 3], "dtype": "float16"},
            {"name": "h", "role": "activation", **spec, "strides": [1, 2]},
            {"name": "y", "role": "activation", "bytes": 12.5},
            {"name": "c", "role": "weight", "shape": [], "dtype": "float32", "value": "AAAA"},
        ],
        "operators": [
            {
                "name": "second",
                "kind": "relu",
                "target": "aten.relu.default",
                "template": {"args": [{"read": 0, "views": []}], "kwargs": {}},
                "attributes": {"inplace": False},
                "inputs": [spec],
                "outputs": [spec],
                "reads": ["h", "w"],
                "writes": ["y"],
            },
            {
                "name": "first",
                "kind": "linear",
                "target": "",
                "template": None,
                "attributes": {},
                "inputs": [],
                "outputs": [],
                "reads": ["x", "w", "c"],
                "writes": ["h"],
            },
        ],
        "results": [{"tensor": "y", "views": []}, {"value": 3}],
    }


def changed(*path: Any, value: Any = None, remove: bool = False) -> dict[str, Any]:
    """The document with one place changed."""
    result = document()
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


def test_reading_sorts_operators_and_sizes_tensors() -> None:
    graph = DataflowGraph.from_json(document())
    assert [operator.name for operator in graph.operators] == ["first", "second"]
    assert [tensor.bytes for tensor in graph.tensors] == [24.0, 18.0, 24.0, 12.5, 4.0]
    assert graph.tensors[2].spec == TensorSpec((2, 3), "float32", (1, 2))
    assert graph.reads == ((0, 1, 4), (2, 1))
    assert graph.writes == ((2,), (3,))
    assert graph.operators[0].reads[1] == TensorSpec((3, 3), "float16")
    assert (graph.inputs, graph.weights, graph.outputs) == ((0,), (1, 4), (3,))
    assert graph.weight_bytes == 22.0  # the tied weight counts once
    assert graph.successors == ((1,), ())
    assert graph.predecessors == ((), (0,))
    assert graph.activations_read == ((0,), (2,))
    assert graph.consumers == ((0,), (0, 1), (1,), (), (0,))
    assert graph.producer == (-1, -1, 0, 1, -1)
    edges = (graph.edge_source, graph.edge_target, graph.edge_tensor)
    assert [column.tolist() for column in edges] == [[0], [1], [2]]
    assert graph.batch == 2


def test_index_arrays_cannot_be_written() -> None:
    graph = DataflowGraph.from_json(document())
    with pytest.raises(ValueError, match="read-only"):
        graph.edge_source[0] = 1


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([], r"Not a graph of format 'hetsim.graph/1' \(found 'list'\)"),
        ({"format": "hetsim.graph/9"}, r"\(found 'hetsim.graph/9'\)"),
        (changed("tensors", remove=True), "lacks the key 'tensors'"),
        (changed("name", value=3), "A graph needs a text 'name', got 3"),
        (changed("batch", value="two"), "Graph 'small' has batch \"two\", not an integer"),
        (changed("batch", value=0), "has batch 0"),
        (changed("tensors", value={}), "'tensors' must be a list of objects"),
        (changed("tensors", 0, "name", value="w"), "Tensor 'w' stands twice in the graph"),
        (changed("tensors", 0, "role", value="in"), "Tensor 'x' has role \"in\"; known: input"),
        (changed("tensors", 0, "role", value=["in"]), "Tensor 'x' has role"),
        (changed("tensors", 0, "shape", remove=True), "A tensor needs 'shape' and 'dtype'"),
        (changed("tensors", 0, "shape", value=[2, -3]), "integers from 0"),
        (changed("tensors", 0, "shape", value=[2, 2.5]), "integers from 0"),
        (changed("tensors", 0, "shape", value=[True]), "integers from 0"),
        (changed("tensors", 0, "shape", value=[2**62, 2**62]), "Tensor 'x' has bytes"),
        (
            changed("tensors", 0, "dtype", value="float31"),
            'Unknown element type "float31". Known: ',
        ),
        (changed("tensors", 0, "dtype", value=[]), "Unknown element type"),
        (changed("tensors", 2, "strides", value=[1]), "Strides and shape have different lengths"),
        (changed("tensors", 2, "strides", value=7), "Shapes and strides are lists"),
        (changed("tensors", 3, "bytes", value=-1), "Tensor 'y' has -1.0 bytes"),
        (changed("tensors", 3, "bytes", value=math.nan), "Tensor 'y' has bytes NaN"),
        (changed("tensors", 3, "bytes", value=math.inf), "Tensor 'y' has bytes Infinity"),
        (changed("tensors", 3, "bytes", value=10**400), "Tensor 'y' has bytes 1000"),
        (changed("tensors", 3, "bytes", value="many"), "Tensor 'y' has bytes \"many\""),
        (changed("tensors", 4, "value", value=5), "Tensor 'c' needs a text 'value', got 5"),
        (changed("operators", value=[]), "Graph 'small' has no operators"),
        (changed("operators", 0, "name", value="first"), "two operators have the name 'first'"),
        (changed("operators", 0, "name", value=None), "An operator needs a text 'name'"),
        (changed("operators", 0, "kind", remove=True), "Operator 'second' needs a text 'kind'"),
        (changed("operators", 0, "target", value=1), "Operator 'second' needs a text 'target'"),
        (changed("operators", 0, "template", value=[1]), "'second' needs an object 'template'"),
        (changed("operators", 0, "attributes", value=3), "'second' needs an object 'attributes'"),
        (changed("operators", 0, "inputs", value={}), "'second' needs a list 'inputs'"),
        (changed("operators", 0, "reads", value=["h", "q"]), r"'second' has reads \[\"q\"\], not"),
        (changed("operators", 0, "reads", value=[["h"]]), r"'second' has reads \[\[\"h\"\]\], not"),
        (changed("operators", 0, "reads", value="h"), "'second' has reads \"h\", not tensors"),
        (changed("operators", 0, "reads", value=["h", "h"]), "'second' lists a read tensor twice"),
        (changed("operators", 0, "writes", value=["h"]), "writes 'h', which is an input, a weight"),
        (changed("operators", 0, "writes", value=["y", "y"]), "'second' writes 'y', which is"),
        (changed("operators", 0, "writes", value=["w"]), "'second' writes 'w', which is an input"),
        (changed("operators", 0, "writes", value=[]), "No operator writes the tensor 'y'"),
        (
            changed("tensors", 0, "part", value={"of": "w", "views": []}),
            "is a part of 'w' and no weight",
        ),
        (changed("tensors", 0, "part", value=["w"]), "not an object with a text 'of'"),
        (changed("results", value=[{"tensor": "z"}]), "The result \"z\" of graph 'small' is not"),
        (changed("results", value=[{"tensor": {}}]), "The result {} of graph 'small' is not"),
    ],
)
def test_refused(broken: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        DataflowGraph.from_json(broken)


def test_a_cycle_is_named_operator_by_operator() -> None:
    with pytest.raises(
        InvalidInput, match="has a cycle: t1 -> t2 -> t4 -> t1; remove one of these"
    ):
        from_edges("loop", 5, [(0, 1, 1.0), (1, 2, 1.0), (2, 4, 1.0), (4, 1, 1.0), (4, 3, 1.0)])
    with pytest.raises(InvalidInput, match="has a cycle: t0 -> t0;"):
        from_edges("self", 1, [(0, 0, 1.0)])
    looped = changed("operators", 1, "reads", value=["x", "y"])
    with pytest.raises(
        InvalidInput, match=r"cycle: (first -> second -> first|second -> first -> sec)"
    ):
        DataflowGraph.from_json(looped)


def test_a_long_cycle_is_shortened() -> None:
    edges = [(i, (i + 1) % 50, 1.0) for i in range(50)]
    with pytest.raises(InvalidInput, match=r"cycle: t\d+ -> t\d+ -> .* -> \.\.\. -> ") as error:
        from_edges("ring", 50, edges)
    assert len(str(error.value)) < 150


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_the_cycle_that_is_named_is_one(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 8))
    ends = st.integers(0, count - 1)
    edges = data.draw(st.lists(st.tuples(ends, ends), min_size=1, max_size=16, unique=True))
    try:
        graph = from_edges("random", count, [(a, b, 1.0) for a, b in edges])
    except InvalidInput as error:
        names = str(error).split("cycle: ")[1].split(";")[0].split(" -> ")
        path = [int(name[1:]) for name in names]
        assert path[0] == path[-1]
        assert all(pair in edges for pair in itertools.pairwise(path))
    else:
        position = {operator.name: i for i, operator in enumerate(graph.operators)}
        assert all(position[f"t{a}"] < position[f"t{b}"] for a, b in edges)


def test_edges_out_of_range() -> None:
    with pytest.raises(InvalidInput, match=r"Edge \[0, 3\] names a task outside 0..2"):
        from_edges("short", 3, [(0, 3, 1.0)])
    with pytest.raises(InvalidInput, match=r"'t0->t1#0' has nan bytes"):
        from_edges("nan", 2, [(0, 1, math.nan)])


def test_constructor_refuses_what_no_file_can_hold() -> None:
    p, q = Operator("p", "task"), Operator("q", "task")
    t = Tensor("t", "activation", 1.0)
    with pytest.raises(
        InvalidInput, match="reads 't' before it is written; operators must stand in"
    ):
        DataflowGraph("g", [p, q], [t], [[0], []], [[], [0]])
    with pytest.raises(InvalidInput, match="'p' reads tensor 5, not there"):
        DataflowGraph("g", [p], [], [[5]], [[]])
    with pytest.raises(InvalidInput, match="'p' writes tensor -1, not there"):
        DataflowGraph("g", [p], [t], [[]], [[-1]])
    with pytest.raises(InvalidInput, match="operators, reads and writes differ in length"):
        DataflowGraph("g", [p, q], [t], [[]], [[0], []])
    with pytest.raises(InvalidInput, match="two tensors have the same name"):
        DataflowGraph("g", [p], [t, t], [[]], [[0, 1]])


# -- files ----------------------------------------------------------------------------------------


def test_json_round_trip_keeps_everything() -> None:
    graph = DataflowGraph.from_json(document())
    back = DataflowGraph.from_json(json.loads(json.dumps(graph.to_json())))
    assert back.to_json() == graph.to_json()
    for name in ("operators", "tensors", "reads", "writes", "results", "batch", "name", "digest"):
        assert getattr(back, name) == getattr(graph, name), name


@settings(max_examples=examples(60), deadline=None)
@given(graphs())
def test_json_round_trip_of_random_graphs(graph: DataflowGraph) -> None:
    back = DataflowGraph.from_json(json.loads(json.dumps(graph.to_json())))
    assert back.digest == graph.digest
    assert (back.reads, back.writes, back.tensors) == (graph.reads, graph.writes, graph.tensors)


def test_digest_is_the_content() -> None:
    digest = DataflowGraph.from_json(document()).digest
    assert len(digest) == 64
    shuffled = document()
    shuffled["operators"].reverse()
    shuffled["results"][0] = dict(reversed(shuffled["results"][0].items()))
    assert DataflowGraph.from_json(shuffled).digest == digest
    for broken in (
        changed("name", value="other"),
        changed("batch", value=None),
        changed("tensors", 3, "bytes", value=13),
        changed("operators", 0, "attributes", value={"inplace": True}),
        changed("results", value=[]),
    ):
        assert DataflowGraph.from_json(broken).digest != digest


def test_digest_does_not_change_from_version_to_version() -> None:
    """Profiles and caches are found by it; a change of the JSON form must be a new format."""
    assert DataflowGraph.from_json(document()).digest[:16] == "0f93398f10ee4b70"


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document()))
    assert DataflowGraph.load(path).digest == DataflowGraph.from_json(document()).digest
    with pytest.raises(InvalidInput, match=r"Cannot read graph file .*none\.json: No such file"):
        DataflowGraph.load(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match=r"Cannot read graph file .*: Is a directory"):
        DataflowGraph.load(tmp_path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not JSON"):
        DataflowGraph.load(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match="is not JSON"):
        DataflowGraph.load(path)
    path.write_text(json.dumps(changed("batch", value="two")))
    with pytest.raises(InvalidInput, match=r"graph\.json: Graph 'small' has batch"):
        DataflowGraph.load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    text = json.dumps(document())
    path = tmp_path / "cut.json"
    for length in range(0, len(text), 7):
        path.write_text(text[:length])
        with pytest.raises(InvalidInput, match=r"cut\.json is not JSON .*; was it truncated\?"):
            DataflowGraph.load(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["x", "h", "y", "first", "activation", "float32", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["shape", "dtype", "tensor", "name", "k"]), inner)
    ),
    max_leaves=5,
)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_fuzzed_documents_are_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands in the file: a whole graph, or InvalidInput; nothing else escapes, then or
    when the graph is used.
    """
    broken = copy.deepcopy(document())
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = broken
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and data.draw(st.booleans()):
                place = place[key]
                continue
            action = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
            if action == "replace":
                place[key] = data.draw(JSON)
            elif action == "remove":
                del place[key]
            elif isinstance(place, list):
                place.append(copy.deepcopy(place[key]))
            break
    try:
        graph = DataflowGraph.from_json(broken)
    except InvalidInput:
        return
    assert DataflowGraph.from_json(json.loads(json.dumps(graph.to_json()))).digest == graph.digest
    assert len(graph.outputs) <= len(graph.tensors)
    assert graph.networkx().number_of_edges() == len(graph.edge_source)
    repr(graph)


# -- views ----------------------------------------------------------------------------------------


def test_networkx_view() -> None:
    view = DataflowGraph.from_json(document()).networkx()
    assert list(view.nodes(data="kind")) == [(0, "linear"), (1, "relu")]
    assert list(view.edges(data="tensor")) == [(0, 1, "h")]


def test_strides_of_single_dimensions_mean_nothing() -> None:
    assert TensorSpec.of((4, 1, 3), "int8", (3, 99, 1)).strides is None
    assert TensorSpec.of((4, 1, 3), "int8", (1, 99, 4)).strides == (1, 3, 4)
    assert TensorSpec((2, 0), "float64").bytes == 0
    assert TensorSpec((), "float64").bytes == 8
    with pytest.raises(InvalidInput, match='Unknown element type "quad"'):
        TensorSpec((1,), "quad").bytes
