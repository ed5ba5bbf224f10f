"""Closed forms of single layers against torch's own modules and traced graphs; the shipped models: test_models."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.arithmetic import operator_flops
from simulator.errors import InvalidInput
from tests.examples import examples

torch = pytest.importorskip("torch")

from scenarios import trace_model, trace_training  # noqa: E402
from scenarios.training.model_profile import profile_model  # noqa: E402

nn = torch.nn


def flops_of(graph):
    return sum(map(operator_flops, graph.operators))


def checked(module, *inputs):
    """The layers of a module of which parameters, buffers, outputs and FLOPs are torch's."""
    before = {name: value.clone() for name, value in module.state_dict().items()}
    layers = profile_model(module, inputs)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert sum(la.parameters for la in layers) == sum(p.numel() for p in module.parameters())
    buffers = sum(la.statistics + la.counters + la.constants for la in layers)
    assert buffers == sum(b.numel() for b in module.buffers())
    graph = trace_model(module.eval(), inputs, check=False)
    assert sum(la.flops for la in layers) == flops_of(graph)
    step = trace_training(module.train(), inputs, loss="mse", check=False)
    kept = {operator.name.rpartition("/")[0] for operator in step.operators}
    assert sum(la.training_flops for la in layers if la.path in kept) == flops_of(step)
    return layers


def test_the_first_layer_of_vgg16():
    (layer,) = checked(nn.Conv2d(3, 64, 3, padding=1), torch.zeros(1, 3, 224, 224))
    assert layer.parameters == (27 + 1) * 64 == 1792
    assert layer.outputs == 64 * 224 * 224
    assert layer.macs == 64 * 224 * 224 * 27
    assert layer.training_flops == 2 * layer.flops  # no gradient of its input
    assert layer.parameter_bytes == 4 * 1792
    assert layer.output_bytes == 4 * 64 * 224 * 224


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 2, 4]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
)
def test_convolutions_and_pools(
    dimensions, kernel, groups, stride, padding, dilation, bias, turned
):
    options = {"stride": stride, "padding": padding, "dilation": dilation, "bias": bias}
    kind = getattr(nn, f"Conv{'Transpose' if turned else ''}{dimensions}d")
    layer = kind(4, 8, kernel, groups=groups, **options)
    pools = [
        getattr(nn, f"MaxPool{dimensions}d")(kernel, stride, min(padding, kernel // 2), dilation),
        getattr(nn, f"AvgPool{dimensions}d")(kernel, stride, min(padding, kernel // 2), bias),
    ]
    x = torch.zeros(2, 4, 9, *[7] * (dimensions - 1), device="meta")
    first = layer.to("meta")(x)
    rows = profile_model(layer, (x,))
    assert [row.outputs for row in rows] == [first.numel()]
    assert sum(row.parameters for row in rows) == sum(p.numel() for p in layer.parameters())
    positions = x[0, 0].numel() if turned else first[0, 0].numel()
    assert rows[0].macs == 2 * positions * layer.weight.numel()
    for pool in pools:
        (row,) = profile_model(pool, (x,))
        assert (row.outputs, row.parameters, row.macs) == (pool(x).numel(), 0, 0)


class Both(nn.Module):
    """Self-attention by one function, its output alone."""

    def __init__(self, **options):
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True, **options)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


class Last(nn.Module):
    """What a recurrent layer gives for every step."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class Unused(nn.Module):
    """A layer that the first output does not need, a buffer and a parameter that no function takes."""

    def __init__(self):
        super().__init__()
        self.used, self.other = nn.Linear(4, 4), nn.Linear(4, 6)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x):
        return self.used(x) * self.scale + self.shift, self.other(x)


X = torch.zeros(2, 6, 16)


@pytest.mark.parametrize(
    ("module", "inputs", "parameters"),
    [
        (nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4, bias=False)), X, 17 * 8 + 32),
        (nn.Sequential(nn.Linear(16, 16), Both()), X, 272 + 4 * 16**2 + 4 * 16),
        (Last(nn.LSTM(16, 5, 2, proj_size=3)), X, 20 * (16 + 3 + 3 + 3) + 80 + 2 * 3 * 5),
        (Last(nn.GRU(16, 5, batch_first=True, bidirectional=True)), X, 2 * (3 * 5 * 21 + 30)),
        (nn.Sequential(nn.BatchNorm1d(6), nn.GroupNorm(2, 6), nn.LayerNorm(16)), X, 12 + 12 + 32),
        (Unused(), torch.zeros(3, 4), 20 + 30 + 4),
    ],
)
def test_layers(module, inputs, parameters):
    layers = checked(module, inputs)
    assert sum(layer.parameters for layer in layers) == parameters


def test_an_lstm_has_two_biases():
    """Whose training kernel on CPUs is one call of which a graph says nothing."""
    (layer,) = profile_model(nn.LSTM(16, 5), (X,))
    assert layer.parameters == 4 * 5 * (16 + 5) + 8 * 5
    (layer,) = profile_model(nn.LSTM(16, 5, bias=False), (X,))
    assert layer.parameters == 4 * 5 * (16 + 5)
    assert layer.macs == 2 * 6 * 4 * 5 * (16 + 5)
    # Two gradients but of the input, and of the first step's state.
    assert layer.training_flops == 3 * layer.flops - 2 * 12 * 20 * 16 - 2 * 6 * 20 * 5


def test_buffers_are_told_apart():
    (norm,) = checked(nn.BatchNorm2d(8), torch.zeros(2, 8, 3, 3))
    assert (norm.parameters, norm.statistics, norm.counters, norm.constants) == (16, 16, 1, 0)


def test_a_module_that_does_not_run_is_refused():
    with pytest.raises(InvalidInput, match=re.escape("Model 'Linear' cannot be profiled")):
        profile_model(nn.Linear(3, 3), (torch.zeros(2, 4),))
