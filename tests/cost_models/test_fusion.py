"""Fusion against graphs drawn here and against inductor's own scheduler."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from calibration.kernels import build, make_operator  # noqa: E402
from cost_models.arithmetic import operator_bytes, operator_flops  # noqa: E402
from cost_models.fusion import fuse, fused_members  # noqa: E402
from cost_models.profile import Profile  # noqa: E402
from scenarios import trace_model  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402
from simulator.model.operator import Tensor, TensorSpec  # noqa: E402
from tests.benchmarks.fusion import fused_kernels, inductor_kernels  # noqa: E402

LIBRARY = ("conv2d", "linear", "matmul", "bmm", "scaled_dot_product_attention")


class Function(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.function = function

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def traced(function, *inputs, parts=()):
    return trace_model(Function(function, *parts).eval(), inputs)


def shown(graph):
    """Members of fused operators, kinds of others."""
    return ["+".join(o.attributes.get("members", [o.kind])) for o in fuse(graph).operators]


X, Y = torch.randn(2, 6, 16), torch.randn(2, 6, 16)
IMAGE, OTHER = torch.randn(2, 8, 10, 10), torch.randn(2, 8, 10, 10)


def test_a_chain_of_pointwise_operators_is_one_kernel():
    graph = traced(lambda x, y: torch.tanh((x + y).relu() * y), X, Y)
    (operator,) = fuse(graph).operators
    assert operator.kind == "fused"
    assert operator.attributes["members"] == ["add", "relu", "mul", "tanh"]
    # Two tensors in, one out: x + y and its successors never reach the memory.
    assert operator_bytes(operator) == 3 * 4 * X.numel()
    assert sum(map(operator_bytes, graph.operators)) == (3 + 2 + 3 + 2) * 4 * X.numel()
    assert [t.name for t in fuse(graph).tensors][:2] == ["inputs_0", "inputs_1"]


def test_nothing_is_fused_behind_a_library_kernel():
    def function(a, b, x):
        return b(F.gelu(a(x)))

    assert shown(traced(function, X, parts=(nn.Linear(16, 32), nn.Linear(32, 8)))) == [
        "linear",
        "gelu",
        "linear",
    ]


def test_convolutions_get_their_weights_and_images_in_channels_last():
    parts = (nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    graph = traced(lambda a, n, b, x: b(n(a(x)).relu()), IMAGE, parts=parts)
    fused = fuse(graph)
    assert shown(graph) == ["copy", "copy", "conv2d", "batch_norm+relu", "conv2d"]
    first, second, convolution, *_ = range(len(fused))
    assert {fused.operators[i].name for i in (first, second)} == {
        "inputs_0/channels_last",
        "parts.0.weight/channels_last",
    }
    # The convolution waits for both; a kernel of one pixel has no layout to change.
    edges = set(zip(fused.edge_source.tolist(), fused.edge_target.tolist(), strict=True))
    assert {(first, convolution), (second, convolution)} <= edges
    assert len(edges) == 4


def test_a_normalisation_takes_its_pointwise_neighbours_along():
    norm = nn.LayerNorm(16)
    assert shown(traced(lambda n, x, y: n(x + y).relu(), X, Y, parts=(norm,))) == [
        "add+layer_norm+relu"
    ]
    (alone,) = fuse(traced(lambda n, x: n(x), X, parts=(norm,))).operators
    assert alone.kind == "layer_norm"
    assert alone.template is not None
    assert shown(traced(lambda x: (x * 2).softmax(-1), X)) == ["mul+softmax"]
    assert shown(traced(lambda x: (x.relu() * 3).mean(-1), X)) == ["relu+mul+mean"]


def test_a_cheap_value_with_two_readers_is_computed_twice_and_a_costly_one_kept():
    def twice(a, b, x, make):
        y = make(x)
        return a(y.relu()), b(y.t().abs())

    parts = (nn.Linear(6, 3), nn.Linear(6, 3))
    square = torch.randn(6, 6)
    cheap = traced(lambda a, b, x: twice(a, b, x, lambda v: v + 1), square, parts=parts)
    assert Counter(shown(cheap)) == Counter(["add+relu+abs", "linear", "linear"])
    nodes = fused_members(cheap)
    assert sum(0 in members for members in nodes) == 1
    costly = traced(lambda a, b, x: twice(a, b, x, torch.exp), square, parts=parts)
    assert Counter(shown(costly)) == Counter(["exp+relu+abs", "linear", "linear"])
    (fused,) = (o for o in fuse(costly).operators if o.kind == "fused")
    assert len(fused.outputs) == 2


def test_windows_do_not_share_a_loop_with_what_they_look_at():
    assert shown(traced(lambda x, y: F.max_pool2d((x + y).exp(), 3, 1, 1), IMAGE, OTHER)) == [
        "add+exp",
        "max_pool2d",
    ]
    assert shown(traced(lambda x: F.max_pool2d(x, 3).relu(), IMAGE)) == ["max_pool2d+relu"]


def test_a_table_counts_by_the_rows_that_are_looked_up():
    table = nn.Embedding(1000, 16)
    graph = traced(lambda t, i: t(i) * 2, torch.zeros(4, dtype=torch.int64), parts=(table,))
    (operator,) = fuse(graph).operators
    assert operator_bytes(operator) == 4 * 8 + 4 * 16 * 4 + 4 * 16 * 4
    assert operator_flops(operator) == 0


def test_fused_operators_are_priced_as_extrapolated_and_not_run():
    graph = fuse(traced(lambda x, y: (x + y).relu(), X, Y))
    priced = Profile.load("amd-epyc-25-17-1core").price(list(graph.operators))
    assert not priced.in_range.any()
    assert (priced.seconds > 0).all()
    with pytest.raises(InvalidInput, match="has no template"):
        build(graph.operators[0])


# -- any graph --------------------------------------------------------------------------------

SHAPE = TensorSpec((4, 8))
MADE = {
    1: [
        make_operator("aten.relu.default", SHAPE),
        make_operator("aten.exp.default", SHAPE),
        make_operator("aten._softmax.default", SHAPE, -1, False),
        make_operator("aten.layer_norm.default", SHAPE, [8]),
    ],
    2: [
        make_operator("aten.add.Tensor", SHAPE, SHAPE),
        make_operator("aten.mul.Tensor", SHAPE, SHAPE),
        make_operator("aten.mm.default", SHAPE, TensorSpec((8, 8))),
    ],
}
drawn = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=14,
)


def random_graph(rows):
    weight = Tensor("w", "weight", 256.0, TensorSpec((8, 8)))
    tensors, reads, writes, operators = [Tensor("x", "input", 128.0, SHAPE), weight], [], [], []
    for number, (parents, which, a, b) in enumerate(rows):
        made = MADE[parents][which % len(MADE[parents])]
        stored = [0, *range(2, 2 + number)]
        read = [stored[a % len(stored)]]
        if parents == 2:
            read.append(1 if made.kind == "matmul" else stored[b % len(stored)])
        if len(set(read)) < len(read):
            made, read = MADE[1][0], read[:1]
        operators.append(make_named(made, f"o{number}"))
        tensors.append(Tensor(f"y{number}", "activation", 128.0, SHAPE))
        reads.append(read)
        writes.append([2 + number])
    read_by = set(itertools.chain(*reads))
    results = [
        {"tensor": tensors[t].name, "views": []} for t in range(2, len(tensors)) if t not in read_by
    ]
    return DataflowGraph("random", operators, tensors, reads, writes, results)


def make_named(operator, name):
    from dataclasses import replace

    return replace(operator, name=name)


@settings(max_examples=200, deadline=None)
@given(drawn)
def test_every_kernel_can_be_computed_from_what_it_reads(rows):
    graph = random_graph(rows)
    fused, members = fuse(graph), fused_members(graph)
    assert fused.results == graph.results
    assert len(members) == len(fused)
    index = {tensor.name: number for number, tensor in enumerate(graph.tensors)}
    read_by = {fused.tensors[t].name for row in fused.reads for t in row}
    wanted = read_by | {result["tensor"] for result in graph.results}
    for number, positions in enumerate(members):
        names = [fused.tensors[t].name for t in fused.reads[number]]
        known = {index[name] for name in names if name in index}
        # What the pass stored on the way to an operator's result (exponentials and sums of a softmax's
        # rows, the sum of a mean) is all that the rest of that operator reads.
        begun = {name.rpartition(":")[0] for name in names if name not in index}
        for position in positions:
            operator = graph.operators[position]
            finishes = operator.name in begun and operator.kind not in ("layer_norm", "rms_norm")
            reads = set(graph.reads[position])
            if reads <= known or finishes or fused.operators[number].kind != "fused":
                known.update(graph.writes[position])
        written = [fused.tensors[t].name for t in fused.writes[number]]
        assert wanted.issuperset(written)
        assert {index[name] for name in written if name in index} <= known
    library = {o.name for o in graph.operators if o.kind in LIBRARY}
    assert {o.name for o in fused.operators if o.kind in LIBRARY} == library
    assert set().union(*members) == set(range(len(graph)))


# -- inductor ---------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.wide = nn.Linear(16, 32)
        self.back = nn.Linear(32, 16)
        self.last = nn.LayerNorm(16)

    def forward(self, x):
        q, k, v = (
            t.view(2, 6, 4, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 6, 16)
        x = x + self.out(y)
        return self.last(x + self.back(F.gelu(self.wide(x))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 4, 1)
        self.right = nn.Conv2d(8, 4, 3, padding=1)
        self.end = nn.Conv2d(8, 24, 1)

    def forward(self, x):
        y = self.norm(self.first(x)).relu()
        y = torch.cat([self.left(y).relu(), self.right(y).relu()], 1)
        return self.end(F.max_pool2d(y, 2)).mean((2, 3))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Block(), (X,)),
        (Residual(), (IMAGE,)),
        (Function(lambda x, y: (torch.exp(x + y) * y).sum(-1)), (X, Y)),
    ],
    ids=["transformer", "residual", "reduction"],
)
def test_live_check_kernels_are_those_of_inductor(module, inputs):
    module.eval()
    graph = trace_model(module, inputs)
    mine = fused_kernels(graph, fuse(graph))
    assert Counter(mine) == Counter(inductor_kernels(module, inputs, {}))
