"""Split operators compute what the whole one does, are what their templates run, and send only slices."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from calibration.kernels import arguments_of, build, make_operator, spec_of  # noqa: E402
from calibration.random_tensors import random_reads  # noqa: E402
from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from cost_models.arithmetic import operator_flops  # noqa: E402
from cost_models.canonical import attributes_of  # noqa: E402
from scenarios import trace_model  # noqa: E402
from scenarios.partition.operator_parts import Split  # noqa: E402
from scenarios.partition.part_rules import INNER  # noqa: E402
from scenarios.partition.split_graph import split_graph  # noqa: E402
from scenarios.partition.split_rules import axes_of  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402
from simulator.model.operator import Tensor, TensorSpec  # noqa: E402
from tests.examples import examples  # noqa: E402


def spec(*shape, dtype="float32"):
    return TensorSpec(shape, dtype)


def graph_of_one(operator, weights=()):
    """A job of one operator; its reads are inputs, or weights of a module that is given with them."""
    roles = ["weight" if r in weights else "input" for r in range(len(operator.reads))]
    tensors = [
        Tensor(f"t{r}", role, float(s.bytes), s)
        for r, (role, s) in enumerate(zip(roles, operator.reads, strict=True))
    ]
    outs = [
        Tensor(f"out{n}", "activation", float(s.bytes), s) for n, s in enumerate(operator.outputs)
    ]
    reads, writes = range(len(tensors)), range(len(tensors), len(tensors) + len(outs))
    results = [{"tensor": out.name, "views": []} for out in outs]
    graph = DataflowGraph("one", [operator], tensors + outs, [reads], [writes], results)
    module, inputs = torch.nn.Module(), {}
    for r, (role, value) in enumerate(zip(roles, random_reads(operator), strict=True)):
        if role == "weight":
            module.register_buffer(f"t{r}", value)
        else:
            inputs[f"t{r}"] = value
    return graph, module, inputs


def checked_run(graph, weights, inputs):
    """The results, every operator being exactly what its specs and attributes say."""
    values = {t.name: weights.get(t.name, inputs.get(t.name)) for t in graph.tensors}
    for operator, reads, writes in zip(graph.operators, graph.reads, graph.writes, strict=True):
        given = [values[graph.tensors[t].name] for t in reads]
        assert [spec_of(t) for t in given] == list(operator.reads), operator.name
        with torch.inference_mode():
            made = build(operator)(*given)
        assert [spec_of(t) for t in made] == list(operator.outputs), operator.name
        expected = attributes_of(
            operator.kind, arguments_of(operator), operator.inputs, operator.outputs
        )
        assert operator.attributes == expected, operator.name
        for tensor, value in zip(writes, made, strict=True):
            values[graph.tensors[tensor].name] = value
    return run_graph(graph, weights, inputs)


def assert_same(graph, module, inputs, splits, device=None, space_of=(0, 1, 2), home=0):
    expected = run_graph(graph, weights_of(module, graph), inputs)
    placed = split_graph(graph, device or [0] * len(graph), splits, space_of, home)
    found = checked_run(placed.graph, weights_of(module, placed.graph), inputs)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    again = DataflowGraph.from_json(placed.graph.to_json())
    assert again.digest == placed.graph.digest
    return placed


def sizes_of(data, axis, parts=3):
    """Sizes of two or more parts, multiples of the axis' unit."""
    units = axis.length // axis.unit
    cuts = data.draw(st.sets(st.integers(1, units - 1), min_size=1, max_size=parts - 1))
    bounds = [0, *sorted(cuts), units]
    return tuple((b - a) * axis.unit for a, b in pairwise(bounds))


@settings(max_examples=examples(240), deadline=None)
@given(st.data(), st.integers(1, 3))
def test_convolutions(data, spatial):
    integer = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    groups, kernel = integer(1, 3), [integer(1, 3) for _ in range(spatial)]
    ins, outs = groups * integer(1, 3), groups * integer(1, 3)
    stride, dilation = ([integer(1, 2) for _ in range(spatial)] for _ in range(2))
    padding = [integer(0, 2) for _ in range(spatial)]
    size = [d * (k - 1) + integer(1, 5) for k, d in zip(kernel, dilation, strict=True)]
    bias = spec(outs) if integer(0, 1) else None
    operator = make_operator(
        f"aten.conv{spatial}d.default", spec(integer(1, 3), ins, *size),
        spec(outs, ins // groups, *kernel), bias, stride, padding, dilation, groups,
    )  # fmt: skip
    split_and_compare(data, operator, weights=(1, 2))


@settings(max_examples=examples(120), deadline=None)
@given(st.data(), st.integers(1, 3), st.sampled_from(["max", "avg"]))
def test_pools(data, spatial, name):
    integer = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    kernel, stride = (
        [integer(2, 3) for _ in range(spatial)],
        [integer(1, 3) for _ in range(spatial)],
    )
    padding, ceil = [integer(0, 1) for _ in range(spatial)], bool(integer(0, 1))
    rest = [[1] * spatial, ceil] if name == "max" else [ceil, bool(integer(0, 1))]
    x = spec(integer(1, 2), integer(1, 2), *(integer(3, 8) for _ in range(spatial)))
    operator = make_operator(
        f"aten.{name}_pool{spatial}d.default", x, kernel, stride, padding, *rest
    )
    split_and_compare(data, operator)


def split_and_compare(data, operator, weights=()):
    axes = axes_of(operator)
    if not axes:
        return
    axis = axes[data.draw(st.sampled_from(sorted(axes)))]
    sizes = sizes_of(data, axis)
    devices = tuple(range(len(sizes)))
    graph, module, inputs = graph_of_one(operator, weights)
    try:
        placed = assert_same(graph, module, inputs, {0: Split(axis.dim, sizes, devices)})
    except InvalidInput as error:
        assert "would read padding alone" in str(error)  # noqa: PT017
        return
    rows = (
        axis.name in ("rows", "columns") and "c" in operator.kind[:4] and "p" not in operator.kind
    )
    if not (rows and operator.kind.startswith("conv")):
        flops = sum(map(operator_flops, placed.graph.operators))
        assert flops == pytest.approx(operator_flops(operator))


FORMAT = {"memory_format": "contiguous_format"}


def cases():
    x, image = spec(4, 6, 8), spec(4, 6, 5, 5)
    m = make_operator
    yield m("aten.linear.default", x, spec(10, 8), spec(10)), (1, 2)
    yield m("aten.linear.default", spec(8), spec(10, 8)), (1,)
    yield m("aten.addmm.default", spec(10), spec(6, 8), spec(8, 10)), (0, 2)
    yield m("aten.addmm.default", spec(6, 10), spec(6, 8), spec(8, 10), beta=0.5), (2,)
    yield m("aten.mm.default", spec(6, 8), spec(8, 10)), (1,)
    yield m("aten.matmul.default", spec(3, 1, 6, 8), spec(4, 8, 10)), ()
    yield m("aten.bmm.default", spec(4, 6, 8), spec(4, 8, 10)), ()
    query = TensorSpec.of((2, 4, 6, 8), "float32", (192, 8, 32, 1))
    yield m("aten.scaled_dot_product_attention.default", query, query, query), ()
    mask = spec(1, 1, 6, 6)
    yield m("aten.scaled_dot_product_attention.default", query, query, query, mask), ()
    yield m("aten.scaled_dot_product_attention.default", query, query, query, None, 0.0, True), ()
    norm = [spec(6)] * 4
    yield m("aten.batch_norm.default", image, *norm, False, 0.1, 1e-5, True), (1, 2, 3, 4)
    yield m("aten.layer_norm.default", x, [8], spec(8), spec(8)), (1, 2)
    yield m("aten.group_norm.default", image, 3, spec(6), spec(6)), (1, 2)
    yield m("aten.softmax.int", x, 1), ()
    yield m("aten.cumsum.default", x, -1), ()
    yield m("aten.add.Tensor", x, spec(6, 1), alpha=2), ()
    yield m("aten.mul.Tensor", x, 2.0), ()
    yield m("aten.where.self", spec(6, 8, dtype="bool"), x, x), ()
    yield m("aten.gelu.default", x), ()
    yield m("aten.relu.default", query), ()
    yield m("aten.mean.dim", image, [2, 3], True), ()
    yield m("aten.mean.dim", image, [-2], False), ()
    yield m("aten.cat.default", [x, x], 1), ()
    yield m("aten.stack.default", [x, x], 1), ()
    yield m("aten.embedding.default", spec(20, 8), spec(4, 6, dtype="int64")), (0,)
    yield m("aten.adaptive_avg_pool2d.default", image, [2, 2]), ()
    gates = [spec(4 * 5, 8), spec(4 * 5, 5), spec(20), spec(20)]
    yield m("aten.lstm_cell.default", spec(6, 8), [spec(6, 5)] * 2, *gates), (3, 4, 5, 6)
    gates = [spec(3 * 5, 8), spec(3 * 5, 5), spec(15), spec(15)]
    yield m("aten.gru_cell.default", spec(6, 8), spec(6, 5), *gates), (2, 3, 4, 5)
    yield m("aten.clone.default", query, memory_format=FORMAT), ()


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case[0].kind)
def test_every_dimension_of_every_kind(case):
    operator, weights = case
    axes = axes_of(operator)
    assert axes
    for axis in axes.values():
        graph, module, inputs = graph_of_one(operator, weights)
        half = axis.length // (2 * axis.unit) * axis.unit
        split = Split(axis.dim, (axis.length - half, half), (1, 0))
        placed = assert_same(graph, module, inputs, {0: split})
        if axis.dim != INNER or operator.kind in ("matmul", "linear", "bmm"):
            total = sum(map(operator_flops, placed.graph.operators))
            assert total == pytest.approx(operator_flops(operator))


class Net(torch.nn.Module):
    """A residual block with branches, and attention over its pixels."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.pool = torch.nn.MaxPool2d(3, 2, 1)
        self.qkv = torch.nn.Linear(8, 24)
        self.mixed = torch.nn.Linear(8, 8)
        self.token_norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = self.pool(torch.cat([x + self.second(x), x], 1))[:, :8]
        x = x.flatten(2).transpose(1, 2)
        q, k, v = (
            t.view(t.shape[0], -1, 2, 4).transpose(1, 2) for t in self.qkv(x).split(8, dim=2)
        )
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        y = self.mixed(y.transpose(1, 2).reshape(x.shape))
        return self.head(self.token_norm(x + y)).softmax(-1), y


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    module, x = Net().eval(), torch.randn(2, 3, 8, 8)
    graph = trace_model(module, (x,))
    return graph, module, named_inputs(graph, (x,))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), spaces=st.sampled_from([(0, 1, 2), (0, 0, 1), (0, 0, 0), (1, 2, 2)]))
def test_any_splits_of_a_network(net, data, spaces):
    graph, module, inputs = net
    splits = {}
    for index, operator in enumerate(graph.operators):
        axes = axes_of(operator)
        if axes and data.draw(st.booleans()):
            axis = axes[data.draw(st.sampled_from(sorted(axes)))]
            sizes = sizes_of(data, axis)
            first = data.draw(st.integers(0, 2))
            devices = tuple((first + n) % 3 for n in range(len(sizes)))
            splits[index] = Split(axis.dim, sizes, devices)
    device = data.draw(st.lists(st.integers(0, 2), min_size=len(graph), max_size=len(graph)))
    home = data.draw(st.sampled_from([0, 1, None]))
    expected = run_graph(graph, weights_of(module, graph), inputs)
    try:
        placed = split_graph(graph, device, splits, spaces, home)
    except InvalidInput as error:
        assert "would read padding alone" in str(error)  # noqa: PT017
        return
    found = run_graph(placed.graph, weights_of(module, placed.graph), inputs)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    for operator, reads in zip(placed.graph.operators, placed.graph.reads, strict=True):
        assert operator.reads == tuple(placed.graph.tensors[t].spec for t in reads)


def kinds_between(graph, splits, spaces=(0, 1)):
    placed = split_graph(graph, [0] * len(graph), splits, spaces, 0)
    return [o.kind for o in placed.graph.operators]


def test_operators_of_one_layout_need_nothing_between_them(net):
    graph, _, _ = net
    chain = [
        i for i, o in enumerate(graph.operators) if o.kind in ("conv2d", "batch_norm", "relu")
    ][:3]
    channels = {i: Split(1, (4, 4), (0, 1)) for i in chain}
    assert kinds_between(graph, channels)[:6] == [
        "conv2d", "conv2d", "batch_norm", "batch_norm", "relu", "relu"
    ]  # fmt: skip
    # Heads: columns of queries, keys and values, then the inner dimension of what mixes them.
    heads = {"scaled_dot_product_attention": 1, "linear": INNER}
    found = {}
    for index, operator in enumerate(graph.operators):
        if operator.name.startswith("mixed") or operator.kind == "scaled_dot_product_attention":
            dim = heads[operator.kind]
            found[index] = Split(dim, (1, 1) if dim == 1 else (4, 4), (0, 0))
    kinds = kinds_between(graph, found)
    at = kinds.index("scaled_dot_product_attention")
    assert kinds[at : at + 5] == ["scaled_dot_product_attention"] * 2 + ["linear"] * 2 + ["add"]


def test_row_splits_read_the_overlap_and_slices_alone_are_stored():
    conv = make_operator(
        "aten.conv2d.default", spec(1, 4, 20, 6), spec(8, 4, 5, 1), None, [2, 1], [0, 0]
    )
    graph, _, _ = graph_of_one(conv, (1,))
    parts = split_graph(graph, [0], {0: Split(2, (3, 3, 2), (0, 0, 0))}, (0,), 0).graph
    rows = [o.inputs[0].shape[2] for o in parts.operators if o.kind == "conv2d"]
    whole = (conv.outputs[0].shape[2] - 1) * 2 + 5
    assert sum(rows) == whole + 2 * max(0, 5 - 2)
    columns = split_graph(graph, [0], {0: Split(1, (6, 2), (0, 0))}, (0,), 0).graph
    assert {columns.tensors[t].spec.shape[0] for t in columns.weights} == {6, 2}
    assert columns.weight_bytes == graph.weight_bytes


@pytest.mark.parametrize(
    ("operator", "split", "message"),
    [
        ("grouped", Split(1, (3, 3), (0, 1)), "a group's 2 channels stay together"),
        ("grouped", Split(INNER, (3, 3), (0, 1)), "cannot be split along the inner dimension"),
        ("grouped", Split(0, (2, 0), (0, 1)), "a share rounds to nothing"),
        ("grouped", Split(0, (1, 2), (0, 1)), "which has length 2"),
        ("grouped", Split(0, (2,), (0,)), "two or more"),
        ("sort", Split(0, (1, 1), (0, 1)), "no rule for kind 'sort'"),
        ("softmax", Split(1, (1, 1), (0, 1)), "cannot be split along dimension 1"),
        ("uncounted", Split(2, (2, 2), (0, 1)), "cannot be split along dimension 2"),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(operator, split, message):
    x = spec(2, 6, 4, 4)
    made = {
        "grouped": lambda: make_operator(
            "aten.conv2d.default", x, spec(6, 2, 1, 1), None, [1, 1], [0, 0], [1, 1], 3
        ),
        "sort": lambda: make_operator("aten.sort.default", x),
        "softmax": lambda: make_operator("aten.softmax.int", x, 1),
        "uncounted": lambda: make_operator(
            "aten.avg_pool2d.default", x, [3, 3], [1, 1], [1, 1], False, False
        ),
    }[operator]()
    graph, _, _ = graph_of_one(made)
    with pytest.raises(InvalidInput, match=message):
        split_graph(graph, [0], {0: split}, (0, 1), 0)
