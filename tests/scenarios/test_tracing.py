"""Tiny modules with a known number of kernels, each run operator by operator against the module."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from cost_models.arithmetic import is_known, operator_flops  # noqa: E402
from scenarios import trace_model  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402


def kinds(graph):
    return [operator.kind for operator in graph.operators]


def check(module, *inputs, **options):
    """Trace, go through JSON, run operator by operator; the outputs must be the module's."""
    module.eval()
    graph = DataflowGraph.from_json(trace_model(module, inputs, **options).to_json())
    with torch.no_grad():
        expected = pytree.tree_leaves(module(*inputs))
    actual = run_graph(graph, weights_of(module, graph), named_inputs(graph, inputs))
    torch.testing.assert_close(actual, expected)
    for result, value in zip(actual, expected, strict=True):
        if isinstance(value, torch.Tensor):
            assert result.stride() == value.stride()
    return graph


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def trace_function(function, *inputs):
    return check(Function(function), *inputs)


X = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))


def test_linear_relu_linear():
    module = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3))
    graph = check(module, X)
    assert kinds(graph) == ["linear", "relu", "linear"]
    assert [o.name for o in graph.operators] == ["0/linear", "1/relu", "2/linear"]
    assert [graph.tensors[i].name for i in graph.weights] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]
    assert [graph.tensors[i].name for i in graph.inputs] == ["input"]
    assert graph.edge_source.tolist() == [0, 1]
    assert graph.edge_target.tolist() == [1, 2]
    assert graph.weight_bytes == 4 * (24 * 8 + 8 + 8 * 3 + 3)


def test_the_views_of_a_packed_attention_are_folded():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(24, 48)

        def forward(self, x):
            q, k, v = (t.view(2, 5, 4, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(2, 5, 16)

    graph = check(Packed(), X)
    # On CPU the attention's output is stored so that the transposed view is contiguous.
    assert kinds(graph) == ["linear", "scaled_dot_product_attention"]
    attention = graph.operators[1]
    assert [spec.shape for spec in attention.inputs] == [(2, 4, 5, 4)] * 3
    assert [spec.shape for spec in attention.reads] == [(2, 5, 48)]
    assert attention.attributes == {"is_causal": True, "strided": [0, 1, 2]}
    views = attention.template["args"][2]["views"]
    assert [view[0] for view in views] == [
        "aten.split.Tensor",
        "getitem",
        "aten.view.default",
        "aten.transpose.int",
    ]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.split([4, 20], dim=2)[1].relu(),
        lambda x: x.unbind(1)[3].relu(),
        lambda x: x[:, 1:4, ::2].relu(),
        lambda x: x[0, -1].relu(),
        lambda x: x[:, None].expand(2, 3, 5, 24).relu(),
        lambda x: x.permute(2, 0, 1).relu(),
        lambda x: x.flatten(1).unsqueeze(0).squeeze().relu(),
        lambda x: x.reshape(-1).view(2, -1).t().relu(),
        lambda x: x.unflatten(2, (4, 6)).movedim(2, 0).relu(),
        lambda x: x.diagonal(dim1=1, dim2=2).relu(),
        lambda x: x.detach().to(torch.float32).type_as(x).contiguous().clone().relu(),
        lambda x: x.unfold(2, 8, 4).relu(),
        lambda x: x.as_strided((2, 3), (5, 7), 1).relu(),
        lambda x: x.view_as(x).reshape_as(x).expand_as(x).relu(),
    ],
)
def test_views_and_idle_calls_cost_nothing(function):
    assert kinds(trace_function(function, X)) == ["relu"]


def test_a_view_of_an_input_can_be_a_result():
    graph = trace_function(lambda x: (x.relu(), x[:, 1], x, 3), X)
    assert kinds(graph) == ["relu"]
    assert graph.results[2] == {"tensor": "inputs_0", "views": []}
    assert graph.results[3] == {"value": 3}


def test_a_clone_goes_only_if_it_keeps_the_layout():
    kept = trace_function(lambda x: (x + 1).transpose(1, 2).contiguous().relu(), X)
    assert kinds(kept) == ["add", "copy", "relu"]
    assert kept.operators[1].attributes == {"order": [0, 2, 1], "strided": [0]}
    gone = trace_function(lambda x: (x + 1).transpose(1, 2).clone().relu(), X)
    assert kinds(gone) == ["add", "relu"]
    assert kinds(trace_function(lambda x: x.half().relu(), X)) == ["copy", "relu"]
    expanded = trace_function(lambda x: x[:, :1].expand(2, 5, 24).clone() * 2, X)
    assert kinds(expanded) == ["copy", "mul"]


def test_reshaping_across_a_transpose_is_one_copy():
    graph = trace_function(lambda x: (x * 2).transpose(1, 2).reshape(2, 30, 4) + 1, X)
    assert kinds(graph) == ["mul", "copy", "add"]


def test_in_place_calls_are_plain_kinds():
    def function(x):
        y = x + 1
        y.relu_()
        y.mul_(3)
        y[:, 0].sigmoid_()
        return y

    graph = trace_function(function, X)
    assert kinds(graph)[:3] == ["add", "relu", "mul"]
    assert "sigmoid" in kinds(graph)


def test_dropout_goes_in_evaluation_and_the_flags_are_put_back():
    module = nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.5), nn.ReLU()).train()
    module[0].eval()
    graph = trace_model(module, X)
    assert kinds(graph) == ["linear", "relu"]
    assert [part.training for part in module] == [False, True, True]
    assert module.training


def test_operators_with_several_results():
    def function(x):
        values, indices = x.max(-1)
        best = x.topk(3)
        return {"v": values, "i": indices.float(), "best": best.indices}

    graph = trace_function(function, X)
    assert kinds(graph) == ["max", "topk", "copy"]
    assert graph.operators[2].attributes["from"] == "int64"
    assert [len(writes) for writes in graph.writes] == [2, 2, 1]
    assert [spec.dtype for spec in graph.operators[1].outputs] == ["float32", "int64"]
    # Of max the second result alone is read.
    assert graph.edge_tensor.tolist() == [graph.writes[0][1]]


def test_lists_of_tensors_and_a_tensor_read_twice():
    graph = trace_function(
        lambda x: torch.cat([x * x, torch.cat(x.split(8, -1), 1).view(2, 5, 24)]), X
    )
    assert kinds(graph) == ["mul", "cat", "cat"]
    assert len(graph.operators[0].inputs) == 2
    assert len(graph.reads[0]) == 1
    assert len(graph.operators[1].inputs) == 3
    assert len(graph.reads[1]) == 1


def test_recurrent_layers_stay_whole():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(24, 6, num_layers=2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(12, 4, batch_first=True)
            self.cell = nn.LSTMCell(4, 4)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, _ = self.gru(y)
            return self.cell(z[:, -1]), h, c

    graph = check(Recurrent(), X)
    assert [kind for kind in kinds(graph) if kind != "zeros"] == ["lstm", "gru", "lstm_cell"]
    lstm = next(o for o in graph.operators if o.kind == "lstm")
    assert lstm.attributes == {"num_layers": 2, "bidirectional": True}


def test_batch_norm_is_the_eager_call():
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2)
    graph = check(module, torch.randn(2, 3, 8, 8))
    assert kinds(graph) == ["conv2d", "batch_norm", "relu"]
    assert graph.operators[1].target == "aten.batch_norm.default"
    names = [graph.tensors[i].name for i in graph.weights]
    assert names == ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"]


def test_tied_weights_count_once_under_their_first_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 24)
            self.head = nn.Linear(24, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    graph = check(Tied(), torch.randint(0, 50, (2, 5)))
    assert [graph.tensors[i].name for i in graph.weights] == ["embedding.weight"]
    assert graph.weight_bytes == 50 * 24 * 4


def test_constants_of_the_code_travel_in_the_graph_and_attributes_by_their_path():
    class Constants(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.randn(24)
            self.register_buffer("shift", torch.randn(24))

        def forward(self, x):
            return x * self.scale + self.shift + torch.tensor(
                [0.5, -float("inf")] * 12
            ), self.scale * 2

    module = Constants()
    graph = check(module, X)
    assert kinds(graph) == ["mul", "add", "add", "mul"]
    constants = {graph.tensors[i].name: graph.tensors[i].value for i in graph.weights}
    assert set(constants) == {"scale", "shift", "lifted_tensor_0"}
    assert constants["scale"] is None
    assert constants["lifted_tensor_0"] is not None


def test_a_module_without_data_gives_the_same_graph():
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(24, 24)
            self.scale = torch.ones(24)

        def forward(self, x):
            return self.layer(x).chunk(2, -1)[1].relu() * 2, self.scale * 2

    with FakeTensorMode():
        module, x = Model(), torch.randn(2, 5, 24)
    assert trace_model(module, x).to_json() == trace_model(Model(), X).to_json()


def test_gradient_switches_and_autocast_free_code_is_inlined():
    def function(x):
        with torch.no_grad():
            y = x.cos()
        return (x * y).relu()

    assert kinds(trace_function(function, X)) == ["cos", "mul", "relu"]


def test_a_module_called_twice_shares_its_weights():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(24, 24)

        def forward(self, x):
            return self.layer(self.layer(x))

    graph = check(Twice(), X)
    assert [o.name for o in graph.operators] == ["layer/linear", "layer/linear_1"]
    assert len(graph.weights) == 2


def test_what_reaches_no_result_goes():
    def function(x):
        torch._assert((x.shape[0] == 2), "batch")
        unused = x.exp()
        unused.sum()
        return x.relu()

    assert kinds(trace_function(function, X)) == ["relu"]


def test_inputs_by_name_and_unused_inputs_stay():
    class Named(nn.Module):
        def forward(self, tokens, mask=None, other=None):
            return tokens.relu()

    graph = trace_model(Named(), {"tokens": X, "other": X})
    assert [graph.tensors[i].name for i in graph.inputs] == ["tokens", "other"]


def test_keywords_dtypes_and_infinities_survive_json():
    def function(x):
        mask = torch.full((5, 24), float("-inf"), dtype=torch.float64).triu(1)
        return x.masked_fill(x > 0, float("inf")), mask, torch.arange(5, dtype=torch.float32)

    trace_function(function, X)


def test_data_dependent_control_flow_is_refused_with_torchs_reason(capfd):
    class Branch(nn.Module):
        def forward(self, x):
            return x.relu() if x.sum() > 0 else x

    with pytest.raises(InvalidInput) as caught:
        trace_model(Branch(), X, name="branching")
    message = str(caught.value)
    assert message.startswith("Model 'branching' cannot be exported: GuardOnDataDependent")
    assert "return x.relu() if x.sum() > 0 else x" in message
    assert "\n" not in message
    assert len(message) < 1000
    assert capfd.readouterr().err == ""


def test_sizes_that_depend_on_data_are_refused():
    with pytest.raises(InvalidInput, match="depends on its data"):
        trace_model(Function(lambda x: x[x > 0].relu()), X)


def test_an_error_of_the_model_itself_is_quoted():
    with pytest.raises(InvalidInput, match=r"cannot be exported: .*24.*7"):
        trace_model(nn.Linear(7, 3), X)


def test_a_model_without_kernels_is_refused():
    with pytest.raises(InvalidInput, match="has no operators"):
        trace_model(nn.Identity(), X)


def test_importing_scenarios_does_not_import_torch():
    code = "import sys, scenarios; assert 'torch' not in sys.modules; scenarios.trace_model"
    subprocess.run([sys.executable, "-c", code], check=True)


MATRICES = [torch.randn(shape) for shape in ((5, 6), (6, 7), (7, 4))]
COMPOSITES = {
    "chain": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), MATRICES),
    "batched": (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), [torch.randn(2, 3, 4, 5)] * 2),
    "tensordot": (
        lambda a, b: torch.tensordot(a, b, dims=2),
        [torch.randn(3, 4, 5), torch.randn(4, 5, 6)],
    ),
    "multi_dot": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), MATRICES),
    "inner": (torch.inner, [torch.randn(3, 5), torch.randn(4, 5)]),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 5), [torch.randn(2, 4, 4)]),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_products_become_the_products_that_they_call(name):
    function, inputs = COMPOSITES[name]
    graph = trace_function(function, *inputs)
    with FlopCounterMode(display=False) as counter:
        function(*inputs)
    assert sum(map(operator_flops, graph.operators)) == counter.get_total_flops() > 0
    assert {"matmul", "bmm"} & {*kinds(graph)}


def test_composite_transforms_and_norms_become_kernels_of_known_work():
    def function(x):
        spectrum = torch.fft.irfft(torch.fft.rfft(x, n=32) * 2, n=32)
        return spectrum, torch.linalg.norm(x[0], "nuc"), torch.linalg.svdvals(x), torch.cdist(x, x)

    graph = trace_function(function, X)
    assert all(is_known(kind) for kind in kinds(graph))
    assert {"fft_r2c", "fft_c2r", "linalg_svdvals", "cdist"} <= {*kinds(graph)}
