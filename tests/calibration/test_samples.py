from dataclasses import replace

import pytest

from calibration.samples import (
    DTYPES,
    OperatorSample,
    distinct,
    in_dtype,
    in_dtypes,
    read_samples,
    samples_of,
    write_samples,
)
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec
from tests.calibration.conftest import linear, relu


@pytest.mark.parametrize("name", ["ops.json", "ops.json.gz"])
def test_file_keeps_every_field(tmp_path, tiny_operators, name):
    write_samples(tmp_path / name, tiny_operators)
    assert read_samples(tmp_path / name) == tiny_operators
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_other_element_types_change_floats_and_nothing_else():
    sample = linear(2, 8, 4, architectures=["net"])
    half = in_dtype(sample, "bfloat16")
    specs = (*half.operator.inputs, *half.operator.outputs, *half.operator.reads)
    assert {spec.dtype for spec in specs} == {"bfloat16"}
    assert [s.shape for s in half.operator.reads] == [s.shape for s in sample.operator.reads]
    assert (half.weights, half.architectures, half.dtype) == ((1,), ("net",), "bfloat16")
    assert in_dtype(half, "float16") == half  # it is no operator of float32
    rounded = in_dtype(sample, "tf32")
    assert (rounded.operator, rounded.dtype) == (sample.operator, "tf32")
    identities = [in_dtype(sample, dtype).identity for dtype in DTYPES]
    assert len(set(identities)) == len(DTYPES)
    assert identities[0] == sample.identity
    with pytest.raises(InvalidInput, match="No element type 'float8'"):
        in_dtype(sample, "float8")


def test_named_element_types_follow_and_indices_stay():
    table, indices = TensorSpec((10, 4)), TensorSpec((3,), "int64")
    template = {"args": [{"read": 0}, {"read": 1}], "kwargs": {"dtype": {"dtype": "float32"}}}
    operator = Operator(
        "e", "embedding", inputs=(table, indices), outputs=(TensorSpec((3, 4)),),
        target="aten.embedding.default", template=template, reads=(table, indices),
    )  # fmt: skip
    changed = in_dtype(OperatorSample(operator, (0,)), "float16").operator
    assert [spec.dtype for spec in changed.reads] == ["float16", "int64"]
    assert changed.template["kwargs"] == {"dtype": {"dtype": "float16"}}
    assert operator.template["kwargs"] == {"dtype": {"dtype": "float32"}}


def test_types_of_a_set_survive_the_file(tmp_path, tiny_operators):
    integers = OperatorSample(replace(relu(5).operator, outputs=(), inputs=(), reads=()))
    several = in_dtypes([*tiny_operators, integers], DTYPES)
    assert len(several) == 4 * len(tiny_operators) + 1
    write_samples(tmp_path / "ops.json", several)
    assert read_samples(tmp_path / "ops.json") == several
    with pytest.raises(InvalidInput, match="at least one element type"):
        in_dtypes(tiny_operators, [])


def test_identity_ignores_name_and_picked_view_only():
    first, second = linear(2, 8, 4, "a"), linear(2, 8, 4, "b", ["net"])
    assert first.identity == second.identity
    assert linear(2, 8, 5).identity != first.identity
    # Weights decide what is cold, so they are part of what is measured.
    assert OperatorSample(first.operator, ()).identity != first.identity

    def picking(step: int) -> OperatorSample:
        view = ["aten.select.int", [{"self": True}, 0, step], {}]
        spec = TensorSpec((7,))
        operator = replace(
            relu(7).operator,
            template={"args": [{"read": 0, "views": [view]}], "kwargs": {}},
            inputs=(spec,),
            outputs=(spec,),
            reads=(TensorSpec((5, 7)),),
        )
        return OperatorSample(operator)

    assert picking(0).identity == picking(3).identity


def test_distinct_unites_architectures_in_order():
    found = distinct([linear(2, 8, 4, "a", ["x"]), relu(3), linear(2, 8, 4, "b", ["w", "x"])])
    assert [sample.operator.kind for sample in found] == ["linear", "relu"]
    assert found[0].architectures == ("w", "x")
    assert found[0].operator.name == "a"


def test_samples_of_graph_know_which_reads_are_weights():
    sample = linear(2, 8, 4)
    tensors = [
        Tensor("x", "input", 64, TensorSpec((2, 8))),
        Tensor("w", "weight", 128, TensorSpec((4, 8))),
        Tensor("y", "activation", 32, TensorSpec((2, 4))),
    ]
    graph = DataflowGraph("g", [sample.operator], tensors, [(0, 1)], [(2,)])
    (found,) = samples_of(graph, "net")
    assert found.weights == (1,)
    assert found.architectures == ("net",)


def test_samples_of_bare_graph_are_refused():
    operator = replace(linear(2, 8, 4).operator, template=None)
    tensors = [Tensor("x", "input", 1), Tensor("w", "weight", 1), Tensor("y", "activation", 1)]
    graph = DataflowGraph("bare", [operator], tensors, [(0, 1)], [(2,)])
    with pytest.raises(InvalidInput, match="no argument template"):
        samples_of(graph, "net")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the operators file"),
        (b'{"format": "hetsim.operators/1", "operators": [', "truncated"),
        (b'{"format": "other"}', "not an operators file of format"),
        (b'{"format": "hetsim.operators/1", "operators": [{"name": "x"}]}', "lacks the key"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "ops.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        read_samples(path)


def test_truncated_gzip_is_refused(tmp_path, tiny_operators):
    path = tmp_path / "ops.json.gz"
    write_samples(path, tiny_operators)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="truncated"):
        read_samples(path)


def test_weight_outside_reads_is_refused(tmp_path):
    write_samples(tmp_path / "o.json", [OperatorSample(relu(3).operator, (4,))])
    with pytest.raises(InvalidInput, match="weight that it does not read"):
        read_samples(tmp_path / "o.json")
