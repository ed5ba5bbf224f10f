"""The operators that calibrations measure: those of every shipped model are among them."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from calibration.constructors import KINDS  # noqa: E402
from calibration.samples import read_samples, samples_of  # noqa: E402
from experiments.calibration_set import PATH, graphs, shipped  # noqa: E402


@pytest.fixture(scope="module")
def committed():
    return read_samples(PATH)


def test_every_shipped_model_is_measured(committed, pytestconfig):
    configs = {path.stem for path in (pytestconfig.rootpath / "conf" / "model").glob("*.yaml")}
    cases = [name for name, _, _ in shipped()]
    assert sorted(cases) == sorted(configs - {"from_class"})
    measured = {name for sample in committed for name in sample.architectures}
    assert set(cases) <= measured


def test_every_kind_is_measured(committed):
    assert set(KINDS) <= {sample.operator.kind for sample in committed}


@pytest.mark.parametrize("name", ["squeezenet1_1", "two_tower"])
def test_the_committed_file_holds_the_models_operators(name, committed):
    known = {sample.identity for sample in committed if name in sample.architectures}
    ((_, build, inputs),) = [case for case in shipped() if case[0] == name]
    for _, graph in graphs([(name, build, inputs[:1])]):
        assert {sample.identity for sample in samples_of(graph, name)} <= known
