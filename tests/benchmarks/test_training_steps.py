"""A step in two processes, by each way, leaves the parameters that a step of one process does."""

import pytest

torch = pytest.importorskip("torch")

from scenarios.model_config import InputConfig, ModelConfig  # noqa: E402
from tests.benchmarks.gloo import in_two_processes  # noqa: E402
from tests.benchmarks.training_steps import (  # noqa: E402
    BY_HAND,
    OVERLAPPED,
    pipeline_name,
    stages_of,
    trained,
)

PARAMETERS = {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"}


def perceptron() -> torch.nn.Module:
    """Three layers with dropout, which the steps leave out."""
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.Dropout(), nn.Linear(16, 5)
    )


class Residual(torch.nn.Module):
    """Two tensors cross a cut before the second layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without gloo")
def test_a_step_in_two_processes_is_that_of_one():
    config = ModelConfig("mlp", f"{__name__}.perceptron", inputs=[InputConfig(["batch", 6])])
    config.batch = 8
    ways = {BY_HAND, OVERLAPPED, pipeline_name(2), pipeline_name(4)}
    first, second = (r[0] for r in in_two_processes(trained, config, {2: ("2", 0), 4: ("1", 0)}, 0))
    assert first.keys() == second.keys() == ways
    for way in ways:
        assert first[way].keys() | second[way].keys() == PARAMETERS
        assert way in (BY_HAND, OVERLAPPED) or not first[way].keys() & second[way].keys()
        for rank in (first, second):
            for apart, far in rank[way].values():
                assert apart < 1e-2 * far
                assert apart < 1e-5


def test_stages_send_whatever_is_read_behind_the_cut():
    module, x = Residual(), torch.randn(3, 6)
    (before, behind), crossing = stages_of(module, ("second", 0), x)
    assert [t.shape for t in crossing] == [x.shape, x.shape]
    assert torch.equal(behind(*before(x))[0], module(x))
    assert behind.second.weight is module.second.weight
