"""The operators that calibrations measure: those of every shipped model are among them."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from calibration.constructors import KINDS  # noqa: E402
from calibration.samples import read_samples, samples_of  # noqa: E402
from calibration.training_constructors import TRAINING  # noqa: E402
from cost_models.table import row_of  # noqa: E402
from experiments.calibration_set import (  # noqa: E402
    PATH,
    TRAINING_PATH,
    graphs,
    shipped,
    trained,
    training_graphs,
)


@pytest.fixture(scope="module")
def committed():
    return read_samples(PATH)


def test_every_shipped_model_is_measured(committed, pytestconfig):
    configs = {path.stem for path in (pytestconfig.rootpath / "conf" / "model").glob("*.yaml")}
    cases = [name for name, _, _ in shipped()]
    # The two-tower LSTM came after the shipped profiles were measured; its kinds are LSTM cells' and linear layers'.
    assert sorted(cases) == sorted(
        configs - {"from_class", "from_graph", "layer_profile", "two_tower_lstm"}
    )
    measured = {name for sample in committed for name in sample.architectures}
    assert set(cases) <= measured


def test_every_kind_is_measured(committed):
    assert set(KINDS) <= {sample.operator.kind for sample in committed}


def test_batch_normalisations_are_the_ones_that_graphs_have(committed):
    targets = {s.operator.target for s in committed if s.operator.kind == "batch_norm"}
    assert targets == {"aten.batch_norm.default"}


@pytest.mark.parametrize("name", ["squeezenet1_1", "two_tower"])
def test_the_committed_file_holds_the_models_operators(name, committed):
    known = {sample.identity for sample in committed if name in sample.architectures}
    ((_, build, inputs),) = [case for case in shipped() if case[0] == name]
    for _, graph in graphs([(name, build, inputs[:1])]):
        assert {sample.identity for sample in samples_of(graph, name)} <= known


@pytest.fixture(scope="module")
def committed_training():
    return read_samples(TRAINING_PATH)


def test_every_kind_of_training_is_measured(committed_training):
    assert {kind for kind, _, _ in TRAINING.values()} <= {
        sample.operator.kind for sample in committed_training
    }
    measured = {name for sample in committed_training for name in sample.architectures}
    assert measured == {name for (name, _, _), _ in trained()}


def test_no_operator_is_measured_for_inference_and_for_training(committed, committed_training):
    rows = [tuple(row_of(sample.operator).values()) for sample in committed_training]
    assert not set(rows) & {tuple(row_of(sample.operator).values()) for sample in committed}


def test_the_committed_files_hold_the_operators_of_a_training_step(
    committed, committed_training, monkeypatch
):
    from experiments import calibration_set

    (((name, build, inputs), optimizer),) = [c for c in trained() if c[0][0] == "resnet18"]
    monkeypatch.setattr(
        calibration_set, "trained", lambda: [((name, build, inputs[:1]), optimizer)]
    )
    rows = {tuple(row_of(s.operator).values()) for s in [*committed, *committed_training]}
    for _, graph in training_graphs():
        assert {tuple(row_of(operator).values()) for operator in graph.operators} <= rows
