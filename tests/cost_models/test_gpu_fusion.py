"""What a GPU's kernels are made of, worked out by hand; no torch is needed."""

import pandas as pd
import pytest

from cost_models.gpu_fusion import fuse_for_gpu, with_epilogues
from cost_models.graph_features import graph_features, save_features
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph, from_edges
from simulator.model.operator import Operator, Tensor, TensorSpec

IMAGE, WEIGHT = TensorSpec((2, 8, 6, 6)), TensorSpec((8, 8, 3, 3))


def network(*operators):
    """A graph of ``(name, kind, tensors read)`` on images; each writes a tensor of its name."""
    tensors = {"x": Tensor("x", "input", IMAGE.bytes, IMAGE)}
    rows = []
    for name, kind, reads in operators:
        if kind == "conv2d":
            tensors[f"{name}.w"] = Tensor(f"{name}.w", "weight", WEIGHT.bytes, WEIGHT)
            reads = [*reads, f"{name}.w"]
        inputs = tuple(tensors[read].spec for read in reads)
        attributes = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
        own = attributes if kind == "conv2d" else {}
        operator = Operator(name, kind, inputs, (IMAGE,), own, template={})
        rows.append((operator, reads))
        tensors[name] = Tensor(name, "activation", IMAGE.bytes, IMAGE)
    number = {name: index for index, name in enumerate(tensors)}
    return DataflowGraph(
        "net",
        [operator for operator, _ in rows],
        list(tensors.values()),
        [[number[read] for read in reads] for _, reads in rows],
        [[number[operator.name]] for operator, _ in rows],
        [{"tensor": rows[-1][0].name}],
        2,
    )


def test_a_chain_of_point_wise_operators_ends_the_kernel_before_it():
    graph = network(
        ("c", "conv2d", ["x"]),
        ("b", "batch_norm", ["c"]),
        ("r", "relu", ["b"]),
        ("d", "conv2d", ["r"]),
    )
    found = fuse_for_gpu(graph)
    assert [(o.name, o.kind) for o in found.operators] == [("c", "conv2d"), ("d", "conv2d")]
    assert [found.tensors[t].name for row in found.writes for t in row] == ["r", "d"]
    assert found.operators[0].template is None  # it is no kernel that could be run here


def test_a_shortcut_is_read_by_one_of_two_kernels():
    graph = network(
        ("c", "conv2d", ["x"]),
        ("s", "conv2d", ["x"]),
        ("a", "add", ["c", "s"]),
        ("r", "relu", ["a"]),
    )
    found = with_epilogues(graph)
    assert [o.name for o in found.operators] == ["s", "c"]
    # The shortcut's kernel stands before, and what ends in the sum reads what it wrote.
    assert [found.tensors[t].name for t in found.reads[1]] == ["x", "c.w", "s"]
    assert [found.tensors[t].name for t in found.writes[1]] == ["r"]


def test_what_others_read_is_stored_and_no_layout_is_copied():
    graph = network(
        ("c", "conv2d", ["x"]), ("r", "relu", ["c"]), ("t", "tanh", ["c"]), ("a", "add", ["r", "t"])
    )
    found = fuse_for_gpu(graph)
    assert [o.kind for o in found.operators] == ["conv2d", "fused"]
    assert found.operators[1].attributes["members"] == ["relu", "tanh", "add"]


def test_features_of_a_network_by_hand(tmp_path):
    graph = network(
        ("c", "conv2d", ["x"]),
        ("s", "conv2d", ["x"]),
        ("r", "relu", ["c"]),
        ("a", "add", ["r", "s"]),
    )
    found = save_features(graph, tmp_path / "f.parquet")
    conv = 2.0 * 2 * 36 * 8 * 8 * 9
    assert found["flops"].tolist() == [conv, conv, 0, 0]
    size, weight = IMAGE.bytes, WEIGHT.bytes
    assert found["bytes"].tolist() == [2 * size + weight, 2 * size + weight, 2 * size, 3 * size]
    assert found["parameters"].tolist() == [576, 576, 0, 0]
    assert found["weight_bytes"].tolist() == [weight, weight, 0, 0]
    assert found["sent_bytes"].tolist() == [size, size, size, 0]
    assert found["level"].tolist() == [0, 0, 1, 2]
    assert found["key"].tolist() == [True, True, False, True]
    assert found["log2_paths"].tolist() == [0, 0, 0, 1]
    read = pd.read_parquet(tmp_path / "f.parquet")
    assert list(read.columns) == list(found.columns)
    assert [shape.tolist() for shape in read["inputs"][0]] == [[2, 8, 6, 6], [8, 8, 3, 3]]


def test_bare_tasks_have_no_features():
    with pytest.raises(InvalidInput, match="no shapes"):
        graph_features(from_edges("bare", 2, [(0, 1, 1.0)]))
