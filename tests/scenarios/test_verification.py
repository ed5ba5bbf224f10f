"""Writes into parts of tensors, and graphs held against their modules."""

import itertools
import logging

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from calibration.sequential import (  # noqa: E402
    named_inputs,
    results_of,
    run_tensors,
    weights_of,
)
from scenarios import (  # noqa: E402  # noqa: E402
    model_config,
    trace_family,
    trace_model,
    trace_training,
    training_graph,
    verification,
)
from scenarios.graph_cache import GraphCache  # noqa: E402
from scenarios.kernel_graph import GraphBuilder  # noqa: E402
from scenarios.model_config import ModelConfig, graph_of  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(2, 6, generator=GENERATOR)
C = torch.randn(2, 6, dtype=torch.complex64, generator=GENERATOR)


class Function(nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def kinds(graph):
    return [operator.kind for operator in graph.operators]


def loop(self, x):
    out, h = torch.zeros(2, 6), torch.zeros(2)
    for step in range(6):
        h = torch.tanh(x[:, step] + h)
        out[:, step] = h
    return out


def layouts(self, x):
    turned = torch.zeros(6, 2).t()
    turned.copy_(x)
    wide = torch.zeros(2, 6, dtype=torch.float64)
    wide[:] = x
    spread = torch.zeros(3, 2, 6)
    spread[:] = x.exp()
    spread[0, :, ::2] = x[:, :3].half()
    return turned, wide, spread, turned.reshape(-1)


def views_of_views(self, x):
    out = torch.zeros(2, 3, 6)
    part = out[:, 1]
    part.copy_(x.double())
    part.t()[0].fill_(3.0)
    out[:, 2].add_(x).mul_(2)
    out.diagonal(dim1=1, dim2=2)[0] = x[0, :3].sigmoid()
    return out, part


def detection_head(self, x):
    y = x.view(2, 2, 3).clone()
    y[..., :2] = (y[..., :2].sigmoid() * 2 - 0.5) * 8
    y[..., 2:] = (y[..., 2:].sigmoid() * 2) ** 2
    return y.view(2, -1)


def pieces(self, x):
    y = x * 1
    first, second = y.chunk(2, 1)
    first.relu_()
    second[:, :2].masked_fill_(x[:, :2] > 0, 7.0)
    torch.sigmoid(first, out=first)
    return y


def complex_views(self, c):
    out = torch.zeros_like(c)
    out[:, :3] = c[:, :3].conj()
    out.imag[0] = c.real[1]
    real = torch.view_as_real(c.conj().resolve_conj())
    return out, c.conj(), c.conj().imag * 3, c.imag.neg(), real * 2


CASES = [
    (loop, X, "tanh"),
    (layouts, X, "exp"),
    (views_of_views, X, "sigmoid"),
    (detection_head, X, "pow"),
    (pieces, X, "relu"),
    (complex_views, C, "neg"),
]


@pytest.mark.parametrize(("function", "x", "kind"), CASES)
def test_what_is_written_into_parts_of_tensors_is_kept(function, x, kind):
    module = Function(function)
    graph = DataflowGraph.from_json(trace_model(module, x).to_json())
    values = run_tensors(graph, weights_of(module, graph), named_inputs(graph, [x.clone()]), ())
    torch.testing.assert_close(results_of(graph, values), pytree.tree_leaves(module(x.clone())))
    assert kind in kinds(graph)
    assert graph.unchecked is None


def test_a_copy_reads_what_is_copied_alone():
    def function(self, x):
        out = torch.zeros(2, 6, dtype=torch.float64)
        out.copy_(x)
        return out

    zeros, copy = trace_model(Function(function), X).operators  # eager PyTorch runs both
    assert zeros.kind == "zeros"
    assert (copy.kind, copy.attributes["from"]) == ("copy", "float32")
    assert [spec.shape for spec in copy.inputs] == [(2, 6)]


def test_buffers_that_a_module_changes_keep_what_led_to_them():
    def function(self, x, position):
        self.steps += 1
        self.cache.index_copy_(1, position, x.relu())
        return x.exp()

    module = Function(function, cache=torch.zeros(2, 4), steps=torch.zeros((), dtype=torch.int64))
    x, position = X[:, :1], torch.tensor([2])
    graph = trace_model(module, (x, position))
    assert {"relu", "exp", "add"} <= set(kinds(graph))
    changed = ["cache:updated", "steps:updated"]
    weights = {name: value.clone() for name, value in weights_of(module, graph).items()}
    found = run_tensors(graph, weights, named_inputs(graph, [x, position]), changed)
    module(x, position)
    torch.testing.assert_close(found["cache:updated"], module.cache)
    assert int(found["steps:updated"]) == 1


def test_a_tensor_given_twice_is_two_inputs():
    graph = trace_model(Function(lambda self, a, b: a.relu() + b.sigmoid()), (X, X))
    assert [len(graph.consumers[i]) for i in graph.inputs] == [1, 1]


# -- the guard ------------------------------------------------------------------------------------


@pytest.fixture
def faulty(monkeypatch):
    """Tracing with a fault: sigmoid hands its argument on."""
    right = GraphBuilder._unchanged

    def wrong(self, node):
        if "sigmoid" in str(node.target):
            return self._values[node.args[0]]
        return right(self, node)

    monkeypatch.setattr(GraphBuilder, "_unchanged", wrong)


class Gated(nn.Module):
    """A branch that a zero hides, as residual branches are commonly begun."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x.exp() + self.gain * x.sigmoid()


@pytest.mark.parametrize(
    ("module", "x", "where"),
    [
        (
            Function(lambda self, x: (x.exp(), x.sigmoid() * 2)),
            X,
            r"output 1 \(of operator 'mul'\)",
        ),
        (Function(lambda self, x: x.sigmoid() * 2), torch.zeros(2, 6), "output 0"),
        (Gated(), X, "output 0"),
        (
            Function(lambda self, x: (self.seen.copy_(x.sigmoid()), x.exp())[1], seen=X * 0),
            X,
            "seen",
        ),
    ],
    ids=["output", "zeros given", "hidden by a zero", "buffer"],
)
def test_a_graph_that_computes_something_else_is_refused(faulty, module, x, where):
    with pytest.raises(
        InvalidInput, match=rf"something else than the module: {where}.* differs in"
    ):
        trace_model(module, x, name="wrong")
    assert trace_model(module, x, check=False).unchecked == "it was not asked for"


def test_a_module_without_data_is_held_against_its_graph_too(faulty):
    with FakeTensorMode():
        module, x = Gated(), torch.zeros(2, 6)
    with pytest.raises(InvalidInput, match="something else than the module"):
        trace_model(module, x)


def test_a_wrong_gradient_is_refused(monkeypatch):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x).relu())

    assert trace_training(Tied(), X, loss="mse").unchecked is None
    right = training_graph._Converter._accumulated
    monkeypatch.setattr(
        training_graph._Converter,
        "_accumulated",
        lambda self, parameter, parts: right(self, parameter, parts[:1]),
    )
    with pytest.raises(InvalidInput, match=r"the gradient of 'first\.weight'"):
        trace_training(Tied(), X, loss="mse")


def test_indices_are_drawn_below_what_they_index():
    module = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 2))
    with FakeTensorMode():
        empty, tokens = nn.Sequential(nn.Embedding(3, 4)), torch.zeros(2, 5, dtype=torch.int64)
    assert trace_model(module, torch.tensor([[2, 0], [1, 1]])).unchecked is None
    assert trace_model(empty, tokens).unchecked is None


def test_why_a_graph_was_not_held_against_its_module(monkeypatch):
    numbers = itertools.count(1)
    unsteady = Function(lambda self, x: x * next(numbers))
    assert trace_model(unsteady, X).unchecked == "the module gives other values every time"
    never = Function(lambda self, x: x.exp() * float("nan"))
    assert "not finite" in trace_model(never, X).unchecked
    monkeypatch.setattr(verification, "MOST_FLOPS", 10)
    graph = trace_model(nn.Linear(6, 6), X)
    assert graph.unchecked == "it is too large to be executed beside its trace (0 GFLOP)"
    again = DataflowGraph.from_json(graph.to_json())
    assert again.unchecked == graph.unchecked
    assert again.digest == trace_model(nn.Linear(6, 6), X, check=False).digest


def test_tracing_leaves_a_module_as_it_was():
    def function(self, x):
        self.count.add_(1)
        return x * self.count

    module = Function(function, count=torch.zeros(()))
    x = X.clone()
    trace_model(module, x)
    assert int(module.count) == 0
    torch.testing.assert_close(x, X)


# -- batches --------------------------------------------------------------------------------------

SOURCE = """
from torch import nn

class Alone(nn.Module):
    def forward(self, x):
        return x.relu() if x.shape[0] in (1, 8) else x.sigmoid()

class Permuted(nn.Module):
    def forward(self, x):
        return (x * 2).permute(1, 0, 2).reshape(3, -1)
"""


@pytest.mark.parametrize(
    ("name", "shape", "own", "shared"),
    [
        ("Alone", ["batch", 4], {1: ["relu"], 8: ["relu"]}, ["sigmoid"]),
        ("Permuted", ["batch", 3, 5], {1: ["mul"]}, ["mul", "copy"]),
    ],
)
def test_the_batch_that_is_asked_for_has_its_own_graph(
    name, shape, own, shared, tmp_path, caplog, monkeypatch
):
    (tmp_path / "net.py").write_text(SOURCE)
    model = ModelConfig(name, f"{tmp_path / 'net.py'}:{name}", inputs=[{"shape": shape}])
    for _ in range(2):  # traced, then from the cache
        monkeypatch.setattr(model_config, "_families", {})
        monkeypatch.setattr(model_config, "_graphs", {})
        cache = GraphCache(tmp_path / "cache")
        for batch in (1, 2, 7, 8):
            assert kinds(graph_of(model, batch, cache)) == own.get(batch, shared)
        said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert [f"at batch {batch} than" in text for batch, text in zip(own, said, strict=True)]
        caplog.clear()


def test_a_family_of_python_traces_what_is_asked_for():
    def make(batch):
        module = Function(lambda self, x: x.relu() if len(x) == 1 else x.sigmoid())
        return module, ((torch.zeros(batch, 4),), {})

    family = trace_family(make)
    assert kinds(family.at(4)) == ["sigmoid"]
    assert kinds(family.at(1)) == ["relu"]
    again = type(family).from_json(family.to_json())
    with pytest.raises(InvalidInput, match=r"a graph of its own at batch 1 .*'relu' found"):
        again.at(1)
