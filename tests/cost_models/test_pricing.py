"""Profiles are used for what they have: element types, and what was measured nearest to an operator."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.pricing import element_type, nearest_measured, price_graphs, shapes_text
from cost_models.profile import Profile
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec


def graph_of_linears(dtype: str, norm: str | None = None) -> DataflowGraph:
    """Three products and, in an element type of its own, a norm."""
    x, weight = TensorSpec((64, 256), dtype), TensorSpec((256, 256), dtype)
    tensors = [Tensor("x", "input", x.bytes, x)]
    operators, reads, writes = [], [], []
    for number in range(3):
        tensors += [
            Tensor(f"w{number}", "weight", weight.bytes, weight),
            Tensor(f"y{number}", "activation", x.bytes, x),
        ]
        operators.append(Operator(f"y{number}", "linear", (x, weight), (x,), template={}))
        reads.append([2 * number, 2 * number + 1])
        writes.append([2 * number + 2])
    if norm is not None:
        other = TensorSpec(x.shape, norm)
        tensors.append(Tensor("norm", "activation", other.bytes, other))
        operators.append(Operator("norm", "layer_norm", (other,), (other,), template={}))
        reads.append([6])
        writes.append([7])
    return DataflowGraph(
        "linears", operators, tensors, reads, writes, [{"tensor": operators[-1].name}], 1
    )


@pytest.fixture(scope="module")
def h100():
    return Profile.load("nvidia-h100-sxm")


def test_a_profile_without_the_element_type_is_refused(h100):
    profiles = {h100.name: h100}
    graph = graph_of_linears("float32")
    assert element_type(graph) == "float32"
    with pytest.raises(InvalidInput) as refused:
        price_graphs([graph], [h100.name], profiles)
    assert str(refused.value) == (
        "Profile 'nvidia-h100-sxm' (public) has bfloat16 and not float32, in which 'linears' computes: take "
        "nvidia-h100-pcie (datasheet), or model.dtype=bfloat16"
    )
    # A norm in float32 among products in bfloat16 is no model in float32.
    mixed = graph_of_linears("bfloat16", norm="float32")
    assert element_type(mixed) == "bfloat16"
    priced = price_graphs([mixed], [h100.name], profiles)
    assert np.isfinite(priced[mixed].seconds).all()
    assert not priced[mixed].in_range[-1, 0]


def test_where_no_profile_of_such_a_device_has_it(h100):
    core = Profile.load("amd-epyc-25-17-1core")
    graph = graph_of_linears("float16")
    with pytest.raises(
        InvalidInput, match=r"no profile of such a device has it, or model\.dtype=float32"
    ):
        price_graphs([graph], [core.name], {core.name: core})


def test_the_nearest_measured_operator_is_found():
    core = Profile.load("amd-epyc-25-17-1core")
    table = core.measurements
    row = table[(table["kind"] == "linear") & (table["dtype"] == "float32")].iloc[7]
    specs = [TensorSpec(tuple(shape), "float32") for shape in row["inputs"]]
    outputs = [TensorSpec(tuple(shape), "float32") for shape in row["outputs"]]
    operator = Operator("mine", "linear", tuple(specs), tuple(outputs))
    text = shapes_text(row["inputs"], row["outputs"])
    # What was itself measured is nearest to itself.
    assert nearest_measured(operator, core) == f"the nearest measured is {text} in float32"
    alien = replace(operator, kind="no_such_kind")
    assert nearest_measured(alien, core) == "the profile holds no measurement of kind no_such_kind"
