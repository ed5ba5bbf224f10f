"""Writes in place move what they write; graph and module compute the same, and the module keeps its tensors."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from calibration.kernels import build, resolve  # noqa: E402
from calibration.random_tensors import random_reads  # noqa: E402
from calibration.segment_kernel import RepeatedKernel  # noqa: E402
from calibration.sequential import named_inputs, run_graph, weights_of  # noqa: E402
from cost_models.arithmetic import operator_bytes  # noqa: E402
from cost_models.fusion import fuse  # noqa: E402
from cost_models.table import row_of  # noqa: E402
from scenarios import trace_model  # noqa: E402
from simulator.errors import InvalidInput  # noqa: E402
from simulator.model.graph import DataflowGraph  # noqa: E402

ROWS, WIDTH, TOKENS = 512, 32, 4
BUFFER = ROWS * WIDTH * 4
SOURCE = TOKENS * WIDTH * 4
PLACES = TOKENS * 8


class Writing(nn.Module):
    """Calls a function with a buffer, or each of several with a buffer of its own; their results are a flat tuple."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions if isinstance(functions, dict) else {"cache": functions}
        for number, name in enumerate(self.functions):
            random = torch.Generator().manual_seed(number)
            self.register_buffer(name, torch.randn(ROWS, WIDTH, generator=random))

    def forward(self, *inputs):
        found = []
        for name, function in self.functions.items():
            result = function(getattr(self, name), *inputs)
            found += result if isinstance(result, tuple) else [result]
        return tuple(found)


def traced(functions, *inputs):
    """The graph, after it has computed what the module computes and left the module's tensors as they were."""
    module = Writing(functions).eval()
    before = copy.deepcopy(dict(module.named_buffers()))
    graph = trace_model(module, copy.deepcopy(inputs))
    graph = DataflowGraph.from_json(graph.to_json())
    given = copy.deepcopy(inputs)
    for _ in range(2):  # what is changed in place is not changed twice
        got = run_graph(graph, weights_of(module, graph), named_inputs(graph, list(given)))
    assert all(torch.equal(value, before[name]) for name, value in module.named_buffers())
    assert all(torch.equal(a, b) for a, b in zip(given, inputs, strict=True))
    expected = copy.deepcopy(module)(*copy.deepcopy(inputs))
    assert len(got) == len(expected)
    for one, two in zip(got, expected, strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)
    return graph


def written(graph):
    return [operator for operator in graph.operators if operator.in_place]


ROW = torch.randn(TOKENS, WIDTH)
PLACE = torch.tensor([3, 7, 500, 9])
EACH = torch.randint(0, ROWS, (TOKENS, WIDTH))
PARTS = {
    # what writes, its canonical kind, bytes: sources read, what is read of the part, the part, the indices
    "index_copy": (lambda c, x, i: c.index_copy_(0, i, x), "index_copy", 2 * SOURCE + PLACES),
    "index_put": (lambda c, x, i: c.index_put_((i,), x), "index_put", 2 * SOURCE + PLACES),
    "assigned_rows": (lambda c, x, i: c.__setitem__(i, x), "index_put", 2 * SOURCE + PLACES),
    "accumulated": (
        lambda c, x, i: c.index_put_((i,), x, accumulate=True), "index_put", 3 * SOURCE + PLACES,
    ),
    "index_add": (lambda c, x, i: c.index_add_(0, i, x), "index_add", 3 * SOURCE + PLACES),
    "index_fill": (lambda c, x, i: c.index_fill_(0, i, 2.0), "index_fill", SOURCE + PLACES),
    "index_reduce": (
        lambda c, x, i: c.index_reduce_(0, i, x, "amax"), "index_reduce", 3 * SOURCE + PLACES,
    ),
    "columns": (
        lambda c, x, i: c.index_copy_(-1, i % WIDTH, c[:, :TOKENS].clone()),
        "index_copy", 2 * ROWS * TOKENS * 4 + PLACES,
    ),
    "slice": (lambda c, x, i: c.__setitem__(slice(3, 7), x), "copy", 2 * SOURCE),
    "slice_of_slice": (lambda c, x, i: c[2:9][1:5].copy_(x), "copy", 2 * SOURCE),
    "steps": (lambda c, x, i: c[::128].copy_(x), "copy", 2 * SOURCE),
    "transposed": (lambda c, x, i: c.t()[:, 4:8].copy_(x.t()), "copy", 2 * SOURCE),
    "flat": (lambda c, x, i: c.view(-1)[64 : 64 + x.numel()].copy_(x.flatten()), "copy", 2 * SOURCE),
    "halves": (lambda c, x, i: c[3:7].copy_(x.double()), "copy", 3 * SOURCE),
    "added": (lambda c, x, i: c[3:7].add_(x), "add", 3 * SOURCE),
    "zeroed": (lambda c, x, i: c[3:7].zero_(), "zero", SOURCE),
    "filled": (lambda c, x, i: c[3:7].fill_(2.0), "fill", SOURCE),
    "diagonal": (lambda c, x, i: c[:32].diagonal().copy_(x[0]), "copy", 2 * WIDTH * 4),
}  # fmt: skip


SCATTERED = {
    # Indices have 8 bytes, elements 4.
    "scatter": (lambda c, x, i: c.scatter_(0, i, x), "scatter", 4 * SOURCE),
    "scatter_add": (lambda c, x, i: c.scatter_add_(0, i, x), "scatter_add", 5 * SOURCE),
    "scatter_reduce": (
        lambda c, x, i: c.scatter_reduce_(0, i, x, "amax"), "scatter_reduce", 5 * SOURCE,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cases", "places"), [(PARTS, PLACE), (SCATTERED, EACH)])
def test_a_write_into_a_part_of_a_buffer_moves_the_part(cases, places):
    def summed(write):
        def function(cache, x, places):
            write(cache, x, places)
            return cache.sum(0)

        return function

    graph = traced({name: summed(write) for name, (write, _, _) in cases.items()}, ROW, places)
    names = [tensor.name for tensor in graph.tensors]
    for name, (_, kind, size) in cases.items():
        # What becomes of the buffer is as large as the buffer, for whoever needs it elsewhere.
        tensor = names.index(f"{name}:updated")
        assert graph.tensors[tensor].bytes == BUFFER
        operator = graph.operators[graph.producer[tensor]]
        assert (operator.kind, operator_bytes(operator)) == (kind, size), name
    assert len(written(graph)) == len(cases)


def test_what_is_written_out_of_place_moves_the_whole():
    def forward(cache, x, places):
        return (
            torch.index_copy(cache, 0, places, x).sum(0),
            torch.slice_scatter(cache, x, 0, 3, 7).sum(0),
            cache.index_add(0, places, x).sum(0),
        )

    graph = traced(forward, ROW, PLACE)
    assert written(graph) == []
    copies = {o.kind: operator_bytes(o) for o in graph.operators if o.kind != "sum"}
    assert copies == {
        "index_copy": 2 * BUFFER + SOURCE + PLACES,
        "slice_scatter": 2 * BUFFER + SOURCE,
        "index_add": 2 * BUFFER + SOURCE + PLACES,
    }


def test_a_cache_among_the_inputs_is_written_in_place_as_well():
    def forward(_, x, cache):
        cache[:, 2:6] = x
        return cache @ x.t()

    graph = traced(forward, ROW, torch.zeros(3, 64, WIDTH))
    (operator,) = written(graph)
    assert operator_bytes(operator) == SOURCE + 3 * SOURCE


def test_the_last_write_into_a_buffer_stays_although_nothing_reads_it():
    def forward(cache, x):
        cache[3:7] = x
        return x * 2

    assert [o.kind for o in traced(forward, ROW).operators] == ["copy", "mul"]


def test_calls_in_a_loop_write_one_buffer_part_by_part():
    def forward(_, x):
        out = torch.zeros(6, TOKENS, WIDTH)
        for step in range(6):
            out[step] = x * step
        return out

    graph = traced(forward, ROW)
    copies = written(graph)
    assert len(copies) == 6
    assert {operator_bytes(o) for o in copies} == {2 * SOURCE}
    # A row as the measurements of copies have it: the buffer is no part of it.
    assert row_of(copies[0])["inputs"] == ((TOKENS, WIDTH),)


UNORDERED = {
    "readers_before": lambda c, x: (lambda y: (y.exp(), y.sum(), y.__setitem__(0, 1.0), y))(x.relu())[
        0::3
    ],
    "clone_before": lambda c, x: (lambda y: (y.clone(), y.__setitem__(0, 1.0), y))(x.relu())[0::2],
    "clone_is_written": lambda c, x: (lambda y: (y.__setitem__(0, 1.0), x + y))(x.clone())[1],
    "copy_is_written": lambda c, x: (
        lambda y: (y.copy_(x), y.__setitem__(0, 1.0), x + y)
    )(torch.zeros(TOKENS, WIDTH))[2],
    "constant_is_written": lambda c, x: (
        lambda y: (y.__setitem__(0, x.sum()), y[1].add_(1), y)
    )(torch.tensor([1.0, 2.0, 3.0]))[2],
    "result_is_used": lambda c, x: (lambda y: (y[1:3].add_(1).exp(), y))(x.relu()),
    "rolled": lambda c, x: (c[:-4].copy_(c[4:].clone()), c[-4:].copy_(x), c.sum(0))[2],
    "mask": lambda c, x: (c.__setitem__(c > 0, 0.0), c.sum(0))[1],
    "composite": lambda c, x: (c[0].square_(), c[1].clamp_(0, 0.5), c.t()[3].sub_(1).div_(3), c.sum(0))[3],
}  # fmt: skip


def test_a_write_keeps_what_others_need_of_what_was_there():
    graph = traced(UNORDERED, ROW)
    assert len(written(graph)) >= len(UNORDERED)
    # In any order that the graph allows: whoever reads what is overwritten has done so before.
    for position, operator in enumerate(graph.operators):
        if operator.in_place:
            changed = graph.reads[position][0]
            before = set(graph.predecessors[position])
            for reader in reversed(range(position)):
                if reader in before:
                    before.update(graph.predecessors[reader])
            others = [o for o in graph.consumers[changed] if o != position]
            assert set(others) <= before, operator.name


def test_a_write_is_measured_on_indices_that_its_buffer_has():
    def forward(cache, x, places):
        cache.index_copy_(0, places, x)
        cache[1].index_fill_(0, places % WIDTH, 1.0)
        return cache.sum(0)

    for operator in written(traced(forward, ROW, PLACE)):
        reads = random_reads(operator)
        (changed,) = build(operator)(*reads)
        assert changed is reads[0]
        build(operator).bind(*reads)()


def test_a_write_that_is_executed_several_times_changes_its_buffer_once():
    def forward(cache, x, places):
        cache.index_add_(0, places, x)
        return cache.sum(0)

    (operator,) = written(traced(forward, ROW, PLACE))
    cache = torch.zeros(ROWS, WIDTH)
    (changed,) = RepeatedKernel(build(operator), 3)(cache, PLACE, ROW)
    assert torch.equal(changed[PLACE], ROW)


def test_a_fused_graph_keeps_writes_by_themselves():
    def forward(cache, x):
        cache[3:7] = x.relu() * 2
        return cache.exp()

    graph = fuse(trace_model(Writing(forward), (ROW,)))
    (operator,) = written(graph)
    assert operator_bytes(operator) == 2 * SOURCE


def test_what_changes_more_than_its_first_argument_is_no_kernel():
    for target in ("aten.set_.source_Tensor", "aten.resize_.default", "aten.add.out"):
        with pytest.raises(InvalidInput):
            resolve(target, in_place=True)
    with pytest.raises(InvalidInput, match="changes its arguments"):
        resolve("aten.index_copy_.default")


def test_a_decoding_step_costs_its_token():
    class Decode(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 8, 4096, 64))
            self.project = nn.Linear(64, 64)

        def forward(self, x, position):
            self.keys.index_copy_(2, position, self.project(x))
            return x @ self.keys.transpose(-1, -2)

    graph = trace_model(Decode(), (torch.zeros(1, 8, 1, 64), torch.tensor([5])))
    (operator,) = written(graph)
    token = 8 * 64 * 4
    assert operator.kind == "index_copy"
    assert operator_bytes(operator) == 2 * token + 8
    assert math.prod(operator.outputs[0].shape) * 4 == token
