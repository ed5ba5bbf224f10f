import pytest

from calibration.samples import OperatorSample
from simulator.model.operator import Operator, TensorSpec


def linear(rows: int, k: int, n: int, name: str = "fc", architectures=()) -> OperatorSample:
    """A linear layer without bias, written by hand: an oracle for what tracing would give."""
    x, weight = TensorSpec((rows, k)), TensorSpec((n, k))
    operator = Operator(
        name,
        "linear",
        inputs=(x, weight),
        outputs=(TensorSpec((rows, n)),),
        target="aten.linear.default",
        template={"args": [{"read": 0, "views": []}, {"read": 1, "views": []}], "kwargs": {}},
        reads=(x, weight),
    )
    return OperatorSample(operator, (1,), tuple(architectures))


def relu(*shape: int, architectures=()) -> OperatorSample:
    spec = TensorSpec(shape)
    operator = Operator(
        "act",
        "relu",
        inputs=(spec,),
        outputs=(spec,),
        target="aten.relu.default",
        template={"args": [{"read": 0, "views": []}], "kwargs": {}},
        reads=(spec,),
    )
    return OperatorSample(operator, (), tuple(architectures))


@pytest.fixture
def tiny_operators() -> list[OperatorSample]:
    return [linear(2, 8, 4, architectures=["net"]), linear(3, 16, 8), relu(5, 7)]
