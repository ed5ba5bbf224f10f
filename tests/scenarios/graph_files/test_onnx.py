"""ONNX models: the graph of the same PyTorch module; what is folded, unknown and refused."""

import builtins

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="needs the package onnx: pip install 'hetsim[onnx]'")
from onnx import helper

from cost_models.arithmetic import operator_flops
from cost_models.pricing import price_graphs
from cost_models.profile import Profile
from scenarios import load_instance, trace_model
from scenarios.graph_files import onnx_graph, read_graph, read_graph_file
from scenarios.graph_files.onnx_graph import read_onnx
from simulator.errors import InvalidInput
from simulator.model.operator import contiguous_strides
from tests.scenarios.graph_files.onnx_models import Attention, attention, cnn, model, torch_cnn
from tests.scenarios.graph_files.test_kineto import described, edges


@pytest.mark.parametrize(
    ("data", "sizes", "module", "inputs"),
    [
        (cnn(), None, torch_cnn, (8, 3, 32, 32)),
        (cnn("N"), "N:8", torch_cnn, (8, 3, 32, 32)),
        (attention(), None, Attention, (2, 16, 64)),
    ],
    ids=["cnn", "cnn of any batch", "attention"],
)
def test_the_graph_is_that_of_the_traced_module(data, sizes, module, inputs):
    here = trace_model(module().eval(), (torch.randn(inputs),))
    found = read_onnx(data, "net", sizes)
    assert described(found) == described(here)
    assert edges(found) == edges(here)
    assert found.weight_bytes == here.weight_bytes
    assert sum(map(operator_flops, found.operators)) == sum(map(operator_flops, here.operators))


def test_its_price_is_that_of_the_traced_module(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(cnn("batch"))
    found = read_graph_file(f"{path}@batch:8")
    here = trace_model(torch_cnn(), (torch.randn(8, 3, 32, 32),))
    core = Profile.load("amd-epyc-25-17-1core")
    table = price_graphs([found, here], [core.name], {core.name: core})
    np.testing.assert_array_equal(table[found].seconds, table[here].seconds)


def one(op, inputs, outputs, weights=(), opset=17, **attributes):
    """The graph of a model of one operator."""
    node = helper.make_node(op, [*inputs, *dict(weights)], list(outputs), **attributes)
    relu = [helper.make_node("Relu", [name], [f"{name}_"]) for name in outputs]
    given = model([node, *relu], inputs, {f"{n}_": s for n, s in outputs.items()}, weights, opset)
    return read_onnx(given, "one")


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "weights", "attributes", "kind", "found"),
    [
        ("Gemm", {"x": [4, 8]}, {"y": [4, 6]}, {"w": (8, 6)}, {}, "matmul", {}),
        ("Gemm", {"x": [4, 8]}, {"y": [4, 6]}, {"w": (8, 6), "b": (6,)}, {}, "addmm", {}),
        ("MatMul", {"x": [2, 4, 8], "z": [2, 8, 6]}, {"y": [2, 4, 6]}, {}, {}, "matmul", {}),
        (
            "AveragePool",
            {"x": [1, 2, 8, 8]},
            {"y": [1, 2, 4, 4]},
            {},
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            "avg_pool2d",
            {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False},
        ),
        (
            "Conv",
            {"x": [1, 4, 8]},
            {"y": [1, 4, 8]},
            {"w": (4, 2, 3)},
            {"auto_pad": "SAME_UPPER", "group": 2},
            "conv1d",
            {"stride": [1], "padding": [1], "dilation": [1], "groups": 2},
        ),
        ("Concat", {"x": [2, 3], "z": [2, 5]}, {"y": [2, 8]}, {}, {"axis": -1}, "cat", {"dim": 1}),
        ("Gather", {"i": [2, 5]}, {"y": [2, 5, 4]}, {}, {}, "embedding", {}),
        (
            "ReduceMean",
            {"x": [2, 3, 4]},
            {"y": [2, 3]},
            {},
            {"axes": [-1], "keepdims": 0},
            "mean",
            {"dim": [2]},
        ),
        ("Mul", {"x": [2, 3], "z": [2, 3]}, {"y": [2, 3]}, {}, {}, "mul", {"scalar": False}),
        ("Softmax", {"x": [2, 3, 4]}, {"y": [2, 3, 4]}, {}, {}, "softmax", {"dim": 2}),
        (
            "Clip",
            {"x": [2, 3]},
            {"y": [2, 3]},
            {"lo": np.float32(0), "hi": np.float32(3)},
            {},
            "clamp",
            {},
        ),
        ("Pow", {"x": [2, 3]}, {"y": [2, 3]}, {"e": np.float32(3)}, {}, "pow", {"exponent": 3.0}),
        ("LpNormalization", {"x": [2, 3]}, {"y": [2, 3]}, {}, {}, "onnx.LpNormalization", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kinds_and_attributes(op, inputs, outputs, weights, attributes, kind, found):
    if op == "Gather":
        nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
        graph = read_onnx(model(nodes, inputs, outputs, {"t": (9, 4)}), "one")
    else:
        graph = one(
            op,
            inputs,
            outputs,
            {k: np.asarray(v) if np.isscalar(v) else v for k, v in weights.items()},
            **attributes,
        )
    first = graph.operators[0]
    assert (first.kind, dict(first.attributes)) == (kind, found)


def test_views_are_folded_and_shape_arithmetic_goes():
    """A reshape by a computed shape, a slice, a split and a scalar index are views; a reshape behind a transpose copies."""
    node, array = helper.make_node, np.array
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zeros"], ["n1"]),
        node("Concat", ["n1", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["r"]),
        node("Slice", ["r", "zeros", "ends", "last", "twos"], ["c"]),
        node("Split", ["c"], ["a", "b"], axis=0),
        node("Add", ["a", "b"], ["d"]),
        node("Transpose", ["d"], ["t"], perm=[2, 0, 1]),
        node("Reshape", ["t", "flat"], ["f"]),
        node("Gather", ["f", "zero"], ["g"]),
        node("Identity", ["g"], ["y"]),
    ]
    weights = {
        "zero": array(0),
        "zeros": array([0]),
        "rest": array([3, 4]),
        "ends": array([4]),
        "last": array([2]),
        "twos": array([2]),
        "flat": array([3, 2]),
    }
    graph = read_onnx(model(nodes, {"x": [2, 12]}, {"y": [2]}, weights), "views")
    assert described(graph) == [
        ("add", {"scalar": False, "strided": [0, 1]}, [(1, 3, 2), (1, 3, 2)], [(1, 3, 2)]),
        ("copy", {"order": [1, 2, 0], "strided": [0]}, [(2, 1, 3)], [(2, 1, 3)]),
    ]
    assert graph.reads == ((0,), (1,))  # both halves lie in the input


@given(data=st.data())
def test_views_have_torchs_strides(data):
    """Of any tensor with permuted dimensions, as any other shape of as many elements: a view just where torch has one."""
    old = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(old))))
    tensor = torch.empty(old).permute(order)
    flat = data.draw(
        st.permutations([p for n in old for p in {1: [1], 2: [2], 3: [3], 4: [2, 2]}[n]])
    )
    cut = data.draw(st.lists(st.booleans(), min_size=len(flat), max_size=len(flat)))
    new = [1]
    for number, split in zip(flat, cut, strict=True):
        new = [*new, number] if split else [*new[:-1], new[-1] * number]
    found = onnx_graph._reshaped(tuple(tensor.shape), tensor.stride(), new)
    try:
        wanted = tensor.view(new)
    except RuntimeError:
        assert found is None
        return
    lengths = [n for n in new if n > 1]
    assert [s for s, n in zip(found, new, strict=True) if n > 1] == [
        s for s, n in zip(wanted.stride(), new, strict=True) if n > 1
    ], lengths
    assert len(contiguous_strides(new)) == len(found)


@pytest.mark.parametrize(
    ("data", "sizes", "said"),
    [
        (b"", None, "one without operators"),
        (b"not a model at all", None, "no ONNX model"),
        (cnn()[:300], None, "no ONNX model"),
        (cnn("N"), None, r"Dimension 'N' of an input has no size; give it one: FILE@N:8"),
        (cnn("N"), "N:eight", "'N:eight' gives no dimension a size"),
        (cnn(), "M:8", "No input has a dimension 'M'"),
        (
            model(
                [
                    helper.make_node("NonZero", ["x"], ["n"]),
                    helper.make_node("Cast", ["n"], ["y"], to=1),
                ],
                {"x": [3]},
                {"y": ["a", "b"]},
            ),
            None,
            "The shape of 'n'.* cannot be inferred",
        ),
        (
            model([helper.make_node("Relu", ["w"], ["y"])], {}, {"y": [3]}, {"w": (3,)}),
            None,
            "depends on an input",
        ),
        (model([helper.make_node("Relu", ["q"], ["y"])], {"x": [3]}, {"y": [3]}), None, "'q'"),
    ],
)
def test_refusals(data, sizes, said):
    with pytest.raises(InvalidInput, match=said):
        read_onnx(data, "bad", sizes)


def test_where_it_is_refused_and_without_the_package(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(cnn())
    with pytest.raises(InvalidInput, match="is no graph file that is known"):
        read_graph(path)
    with pytest.raises(InvalidInput, match=r"is a model, without devices or times: model\.graph="):
        load_instance(path)
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.partition(".")[0] == "onnx":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInput, match=r"pip install 'hetsim\[onnx\]'"):
        read_graph_file(path)
