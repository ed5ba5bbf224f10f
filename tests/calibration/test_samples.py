from dataclasses import replace

import pytest

from calibration.samples import (
    OperatorSample,
    distinct,
    read_samples,
    samples_of,
    write_samples,
)
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph, Tensor, TensorSpec
from tests.calibration.conftest import linear, relu


@pytest.mark.parametrize("name", ["ops.json", "ops.json.gz"])
def test_file_keeps_every_field(tmp_path, tiny_operators, name):
    write_samples(tmp_path / name, tiny_operators)
    assert read_samples(tmp_path / name) == tiny_operators
    assert [path.name for path in tmp_path.iterdir()] == [name]


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
