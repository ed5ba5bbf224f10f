"""Outputs of every form are listed in one order, and modules run the kernels that their graphs have."""

import collections
import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.profiler import profile  # noqa: E402

from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from scenarios import trace_model  # noqa: E402
from scenarios.outputs import leaves_of, run_module  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Answer:
    scores: torch.Tensor
    more: Any = None


class Cache:
    def __init__(self, **values):
        self.size = 3
        self.whole = self  # an object may refer to itself
        vars(self).update(values)


class Giving(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.form = form

    def forward(self, x):
        hidden = self.layer(x)
        return self.form(hidden, hidden.relu())


FORMS = [
    Answer,
    lambda a, b: Answer(a, Answer(b, [a, None, 2])),
    lambda a, b: Pair(a, {"z": b, "n": 1, "k": Answer(b)}),
    lambda a, b: Cache(layers=[Cache(keys=a, values=b)]),
    lambda a, b: {"answer": Answer(a), "cache": Cache(keys=(b,))},
    lambda a, b: torch.distributions.Normal(a, b + 1, validate_args=False),
    lambda a, b: (a, b, torch.float32, a.shape, "word"),
]


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_every_form_are_traced_and_come_in_one_order(form):
    module = Giving(form).eval()
    graph = trace_model(module, X)
    expected = run_module(module, (X,))
    assert isinstance(expected[0], torch.Tensor)
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, [X]))
    torch.testing.assert_close(actual, expected)


def test_nothing_of_an_output_is_lost():
    a, b = X, X.relu()
    assert leaves_of(Answer(a, {"k": [b, None, 3]})) == [a, b, None, 3]
    assert leaves_of(Cache(keys=a, values=[b])) == [a, b]


@pytest.mark.parametrize("form", [lambda a, b: {a, b}, lambda a, b: iter((a, b))])
def test_outputs_without_an_order_are_refused(form):
    with pytest.raises(InvalidInput, match=r"its output holds a (set|tuple_iterator)"):
        trace_model(Giving(form), X)


def test_caches_of_transformers_are_taken():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(config).eval()
    tokens = {"input_ids": torch.arange(6).reshape(2, 3)}
    graph = trace_model(module, tokens)
    expected = run_module(module, (), tokens)
    assert [tuple(value.shape) for value in expected] == [(2, 3, 32), (2, 1, 3, 8), (2, 1, 3, 8)]
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, tokens))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1),
        (
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
            ),
            1,
        ),
        (lambda: nn.MultiheadAttention(8, 2, batch_first=True), 3),
    ],
)
def test_modules_run_the_kernels_of_their_graph_and_no_fused_fast_path(module, inputs):
    fused = {"_transformer_encoder_layer_fwd", "_native_multi_head_attention"}
    module = module().eval()
    given = [torch.randn(2, 3, 8)] * inputs
    with profile() as separate:
        expected = run_module(module, given)
    assert "linear" in calls(separate)
    assert not calls(separate) & fused
    assert torch.backends.mha.get_fastpath_enabled()
    graph = trace_model(module, given)
    assert not {operator.kind for operator in graph.operators} & fused
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, given))
    torch.testing.assert_close(actual, expected)
    # Eager PyTorch does take it, so that the switch is what makes the two alike.
    with torch.inference_mode(), profile() as usual:
        module(*given)
    assert calls(usual) & fused


def calls(profiled):
    return {event.key.removeprefix("aten::") for event in profiled.key_averages()}
