import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import constructors, sampling
from calibration.broad_constructors import BROAD
from calibration.constructors import KINDS, VARIANTS
from calibration.samples import distinct, read_samples, write_samples
from calibration.training_constructors import TRAINING
from cost_models.arithmetic import operator_bytes, operator_flops
from simulator.errors import InvalidInput
from simulator.model.operator import TensorSpec

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("label", [*sorted(KINDS), *sorted(VARIANTS), *sorted(TRAINING)])
def test_every_kind_draws_operators_that_run_as_described(label):
    from calibration.kernels import build
    from calibration.random_tensors import random_reads

    kind = label if label in KINDS else (VARIANTS | TRAINING)[label][0]
    drawn = sampling.draw(label, 3, candidates=1)  # how they are chosen is another test's
    assert len({sample.identity for sample in drawn}) == 3
    for sample in drawn:
        operator = sample.operator
        assert operator.kind == kind
        assert operator_flops(operator) <= sampling.MAX_FLOPS
        assert operator_bytes(operator) <= sampling.MAX_BYTES
        assert all(0 <= index < len(operator.reads) for index in sample.weights)
    smallest = min((sample.operator for sample in drawn), key=operator_bytes)
    with torch.inference_mode():
        outputs = build(smallest)(*random_reads(smallest))
    assert [tuple(t.shape) for t in outputs] == [spec.shape for spec in smallest.outputs]
    assert not any(t.is_floating_point() and t.isnan().any() for t in outputs)


@pytest.mark.parametrize("label", sorted(BROAD))
def test_further_forms_draw_an_operator_that_runs_as_described(label):
    from calibration.kernels import build
    from calibration.random_tensors import random_reads

    (sample,) = sampling.draw(label, 1, candidates=1)
    operator = sample.operator
    assert operator.kind == BROAD[label][0]
    assert operator_bytes(operator) <= sampling.MAX_BYTES
    with torch.inference_mode():
        outputs = build(operator)(*random_reads(operator))
    assert [tuple(t.shape) for t in outputs] == [spec.shape for spec in operator.outputs]


def test_draws_are_reproducible_and_prefixes_of_longer_draws():
    short = [sample.identity for sample in sampling.draw("linear", 4)]
    assert [sample.identity for sample in sampling.draw("linear", 9)][:4] == short
    assert [sample.identity for sample in sampling.draw("linear", 4, seed=1)] != short


@pytest.mark.parametrize("label", ["linear", "relu", "conv2d"])
def test_draws_fill_the_space_better_than_chance(label):
    def nearest(candidates):
        places = np.array([sampling.place(s) for s in sampling.draw(label, 30, 0, candidates)])
        gaps = np.linalg.norm(places[:, None] - places[None], axis=2)
        np.fill_diagonal(gaps, np.inf)
        return np.quantile(gaps.min(axis=1), 0.1)

    # A tenth of plain draws have a neighbour nearer than that; chosen ones keep their distance.
    assert nearest(sampling.CANDIDATES) > 1.3 * nearest(1)


def test_sampled_set_has_at_least_eight_of_each_kind():
    found = sampling.sampled_operators(scale=0.001, kinds=("relu", "arange"))
    kinds = [sample.operator.kind for sample in found]
    # Behind them are the variants of relu: on permuted tensors, and of any shape.
    assert kinds == ["relu"] * 8 + ["arange"] * 8 + ["relu"] * 16
    assert all(sample.operator.inputs[0].strides for sample in found[16:24])


def test_unknown_kind_is_refused():
    with pytest.raises(InvalidInput, match="No way to sample kind 'warp'"):
        sampling.draw("warp", 1)


@given(st.integers(0, 2**31), st.integers(1, 50), st.integers(1, 4000))
def test_channels_stay_near_their_range(seed, low, width):
    value = constructors.channels(np.random.default_rng(seed), low, low + width)
    assert low <= value <= low + width + 32  # rounded to a multiple of up to 32


@settings(max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.data())
def test_transposed_spec_is_that_of_a_transposed_tensor(shape, data):
    a = data.draw(st.integers(0, len(shape) - 1))
    b = data.draw(st.integers(0, len(shape) - 1).filter(lambda d: d != a))
    stored = list(shape)
    stored[a], stored[b] = stored[b], stored[a]
    tensor = torch.empty(stored).transpose(a, b)
    spec = constructors.transposed(shape, a, b)
    assert spec == TensorSpec.of(tensor.shape, "float32", tensor.stride())


@pytest.mark.parametrize("label", ["scaled_dot_product_attention", "cat, tokens", "copy"])
def test_drawn_operators_are_the_same_after_a_file(tmp_path, label):
    drawn = sampling.draw(label, 30, candidates=1)
    write_samples(tmp_path / "o.json", drawn)
    again = read_samples(tmp_path / "o.json")
    assert [s.identity for s in again] == [s.identity for s in drawn]


def test_model_operators_leave_out_what_is_too_long():
    from simulator.model.graph import DataflowGraph
    from simulator.model.operator import Tensor
    from tests.calibration.conftest import linear

    small, large = linear(2, 8, 4, "small"), linear(2000, 800, 400, "large")
    tensors, reads, writes, operators = [], [], [], []
    for number, sample in enumerate((small, large)):
        x, w = sample.operator.reads
        for name, role, spec in (
            ("x", "input", x),
            ("w", "weight", w),
            ("y", "activation", sample.operator.outputs[0]),
        ):
            tensors.append(Tensor(f"{name}{number}", role, spec.bytes, spec))
        operators.append(sample.operator)
        reads.append((3 * number, 3 * number + 1))
        writes.append((3 * number + 2,))
    graph = DataflowGraph("g", operators, tensors, reads, writes)
    both = sampling.model_operators([("a", graph), ("b", graph)])
    assert [sample.architectures for sample in both] == [("a", "b")] * 2
    (kept,) = sampling.model_operators([("a", graph)], max_flops=1e6)
    assert kept.identity == small.identity
    assert len(distinct([*both, kept])) == 2
