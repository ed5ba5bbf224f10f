"""What torch cannot export ends in one sentence that names the reason; what it can export is traced."""

import re

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from scenarios import trace_model, trace_training  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)).abs()


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, *inputs):
        return self.function(self.layer, *inputs)


def kinds(module, inputs=X):
    return [operator.kind for operator in trace_model(module, inputs).operators]


def refusal(module, inputs=X, trace=trace_model):
    with pytest.raises(InvalidInput) as caught:
        trace(module, inputs, name="mine")
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


# -- gradient modes and autocast inside forward -------------------------------------------------


def switched(layer, x):
    torch.set_grad_enabled(True)
    return layer(layer(x))


def switched_and_back(layer, x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    hidden = layer(x)
    torch.set_grad_enabled(before)
    return layer(hidden)


def under(mode):
    def function(layer, x):
        with mode():
            hidden = layer(x)
        return layer(hidden)

    return function


@pytest.mark.parametrize(
    "function",
    [
        switched,
        switched_and_back,
        *(
            decorate(lambda layer, x: layer(layer(x)))
            for decorate in (torch.no_grad(), torch.enable_grad(), torch.inference_mode())
        ),
        *map(under, (torch.no_grad, torch.enable_grad, torch.inference_mode)),
        under(lambda: torch.set_grad_enabled(True)),
        under(lambda: torch.autocast("cpu", enabled=False)),
    ],
)
def test_gradient_modes_switched_in_forward_leave_the_graph_as_it_is(function):
    assert kinds(Function(function)) == ["linear", "linear"]
    assert torch.is_grad_enabled()


# -- tensors that are not dense -----------------------------------------------------------------


def with_buffer(tensor):
    module = Function(lambda layer, x: layer(x))
    module.register_buffer("adjacency", tensor)
    return module


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        (torch.eye(4).to_sparse(), "sparse"),
        (torch.eye(4).to_sparse_csr(), "sparse"),
        (torch.nested.nested_tensor([X, X[:1]]), "nested"),
        (torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged), "nested"),
        (X.to_mkldnn(), "mkldnn"),
        (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "quantised"),
    ],
)
def test_tensors_that_are_not_dense_are_named(inputs, kind):
    message = refusal(Function(lambda layer, x: x), inputs)
    assert f"one of its inputs is a {kind} tensor; only dense tensors" in message
    if kind in ("sparse", "quantised"):
        assert f"its tensor 'adjacency' is a {kind} tensor" in refusal(with_buffer(inputs))
        message = refusal(with_buffer(inputs), trace=trace_training)
        assert f"its tensor 'adjacency' is a {kind} tensor" in message


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda layer, x: torch.sparse.mm(x.to_sparse(), layer.weight), "to_sparse"),
        (lambda layer, x: x.to_sparse_csr() @ layer.weight, "to_sparse_csr"),
        (lambda layer, x: layer(x.to_mkldnn().to_dense()), "to_mkldnn"),
        (
            lambda layer, x: layer(torch.nested.nested_tensor([x, x]).to_padded_tensor(0.0)),
            "nested",
        ),
        (
            lambda layer, x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
            "quantize_per_tensor",
        ),
    ],
)
def test_calls_that_make_such_tensors_are_named(function, name):
    message = refusal(Function(function))
    assert re.search(rf"(calls|what) '\w*{name}", message)
    assert "only dense tensors" in message
    assert not torch.overrides._get_current_function_mode_stack()  # nothing is left behind


# -- what depends on data -----------------------------------------------------------------------


def checked_length(layer, x):
    length = x.sum().long().item()
    torch._check(length >= 0)
    torch._check(length <= 100)
    return torch.zeros(length).sum() + 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (checked_length, "a length that depends on its data"),
        (lambda layer, x: layer(x) * x.max().item(), "number or a length that depends on its data"),
        (lambda layer, x: layer(x) * sum(x[0].tolist()), "depends on its data"),
        (lambda layer, x: layer(x) if x.sum() > 0 else x, "depends on the values of a tensor"),
        (lambda layer, x: x[: int(x.sum())], "depends on (the values of a tensor|its data)"),
        (lambda layer, x: x.unique(), "size that depends on its data"),
        (
            lambda layer, x: torch.cond(x.sum() > 0, torch.relu, torch.sigmoid, (x,)),
            "control flow over submodules",
        ),
        (lambda layer, x: torch.from_numpy(x.numpy() * 2), "leaves torch for NumPy"),
        (
            lambda layer, x: (
                nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([2]), batch_first=True).data
            ),
            "it packs sequences .*, whose lengths are data",
        ),
        (
            lambda layer, x: torch.func.grad(lambda v: layer(v).sum())(x),
            "gradients that `forward` itself takes",
        ),
    ],
)
def test_what_depends_on_data_or_is_hidden_is_named(function, reason):
    assert re.search(reason, refusal(Function(function)))


# -- operators and modules ----------------------------------------------------------------------


@torch.library.custom_op("hetsim_tests::without_meta", mutates_args=())
def without_meta(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("hetsim_tests::with_meta", mutates_args=())
def with_meta(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("hetsim_tests::in_place", mutates_args={"x"})
def in_place(x: torch.Tensor) -> None:
    x.mul_(2)


with_meta.register_fake(torch.empty_like)


def written_in_place(layer, x):
    hidden = layer(x)
    in_place(hidden)
    return hidden


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda layer, x: without_meta(layer(x)), "hetsim_tests::without_meta"),
        (lambda layer, x: with_meta(layer(x)), "hetsim_tests.with_meta.default"),
        (written_in_place, "hetsim_tests.in_place.default"),
    ],
)
def test_operators_of_a_library_are_named(function, name):
    message = refusal(Function(function))
    assert f"'{name}'" in message
    assert "is no ATen operator" in message
    assert "test_refusals.py" in message


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: torch.jit.script(nn.Linear(4, 4)), "it is a TorchScript module"),
        (
            lambda: nn.Sequential(nn.ReLU(), torch.jit.script(nn.Linear(4, 4))),
            "part '1' is a TorchScript",
        ),
        (lambda: nn.Sequential(nn.LazyLinear(3)), "'0.weight' is not initialised yet"),
        (lambda: "a string", "it is a str, not a torch.nn.Module"),
    ],
)
def test_modules_that_no_export_takes_are_named(module, reason):
    assert reason in refusal(module())


@pytest.mark.parametrize("inputs", [3, None])
def test_inputs_of_another_form_are_refused(inputs):
    with pytest.raises(InvalidInput, match="Example inputs are a tensor, a sequence"):
        trace_model(nn.Linear(4, 4), inputs)


def test_an_exported_module_is_traced():
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (X,)).module()
    assert kinds(exported) == ["linear", "relu"]


def test_what_forward_keeps_is_taken_away_after_tracing():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.seen = []
            self.last = None
            self.register_buffer("total", torch.zeros(2, 4))

        def forward(self, x):
            self.last = self.layer(x)
            self.seen.append(self.last)
            self.total = self.total + self.last
            self.layer.scale = 2 if self.last is None else 3
            return self.last

    module = Keeping()
    kept = module.seen
    hook = module.register_forward_hook(lambda *_: None)
    trace_model(module, X)
    assert module.seen is kept
    assert (module.seen, module.last, module.training) == ([], None, True)
    assert not hasattr(module.layer, "scale")
    assert torch.equal(module.total, torch.zeros(2, 4))
    hook.remove()
    assert not module._forward_hooks
    assert module(X).shape == (2, 4)
