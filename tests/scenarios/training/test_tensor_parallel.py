"""Steps over shards compute what the unsplit step does, move what closed forms say, and hold a part of the weights."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from calibration.kernels import view
from calibration.sequential import run_tensors, weights_of
from cost_models.arithmetic import operator_flops
from scenarios.partition import backward_rules
from scenarios.partition.operator_parts import Split
from scenarios.partition.partitioner import Problem
from scenarios.partition.split_graph import split_graph
from scenarios.partition.split_rules import axes_of
from scenarios.training.parallel_training import ParallelTraining, TensorParallel
from scenarios.training.parallelism import Layout, parallelised
from scenarios.training.step import Step
from scenarios.training.tensor_parallel import sharded
from scenarios.training_graph import trace_training
from simulator.errors import InvalidInput
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.workload import Job, Workload
from simulator.planners.pipeline_schedules import schedule
from tests.examples import examples
from tests.scenarios.partition.test_split_graph import checked_run
from tests.scenarios.training.chains import chain_step, simulated, switched

WIDTH, BATCH, TOKENS = 8, 4, 5
SIZE = 4.0 * BATCH * TOKENS * WIDTH
"""Bytes between two layers."""


class Feedforward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 24), torch.nn.Linear(24, WIDTH)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Attention(torch.nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.heads, self.norm = heads, torch.nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        rows = self.norm(x)
        q, k, v = (
            m(rows).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(x.shape))


class Convolutions(torch.nn.Module):
    """Two pairs, with statistics of each channel by itself between their products."""

    def __init__(self):
        super().__init__()
        self.first, self.bn = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.second, self.pool = torch.nn.Conv2d(8, 6, 3), torch.nn.MaxPool2d(2)
        self.third, self.bn3 = torch.nn.Conv2d(6, 4, 1), torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, WIDTH)

    def forward(self, x):
        x = torch.relu(self.bn(self.first(x[:, None])))
        x = self.pool(torch.nn.functional.pad(self.second(x), (1, 1, 1, 1)))
        x = torch.nn.functional.silu(self.bn3(self.third(x)))
        x = x.flatten(2)
        return self.head((x.softmax(-1) * x).sum(2))


def block():
    return torch.nn.Sequential(Attention(), Feedforward())


def four_heads():
    return Attention(heads=4)


def chain():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)))


@functools.cache
def unsplit(module, batch=BATCH, optimizer="sgd_momentum"):
    """A step, its inputs, and what it makes of weights and of momenta, which are gradients after one step."""
    torch.manual_seed(0)
    model = module()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    target = torch.randn_like(model(x))
    options = {"loss": "mse", "optimizer": optimizer, "check": False}
    graph = trace_training(model, x, batch=BATCH, target=target, **options)
    names = [row.name for row in graph.tensors if row.name.endswith(":updated")]
    model = module()
    inputs = dict(zip((graph.tensors[t].name for t in graph.inputs), (x, target), strict=True))
    found = run_tensors(graph, weights_of(model, graph), inputs, names)
    expected = {name: found[name] for name in names}
    if batch != BATCH:
        graph = trace_training(model, x[:batch], batch=batch, target=target[:batch], **options)
    return model, inputs, expected, Step.of(graph)


def assert_same(model, graph, inputs, expected):
    """Every update of a graph is that of the unsplit step, or a slice of it; returns names of those that were cut."""
    names = [row.name for row in graph.tensors if row.name.endswith(":updated")]
    found = run_tensors(graph, weights_of(model, graph), inputs, names)
    rows = {row.name: row for row in (graph.tensors[t] for t in graph.weights)}
    seen = set()
    for name in names:
        row = rows[name.removesuffix(":updated")]
        whole = expected[f"{row.part.of if row.part else row.name}:updated"]
        wanted = view(whole, row.part.views) if row.part else whole
        torch.testing.assert_close(found[name], wanted, atol=1e-5, rtol=1e-5)
        seen.add(row.part.of if row.part else row.name)
    cut = {row.part.of for row in rows.values() if row.part and row.part.views}
    assert cut.isdisjoint(rows), "a slice that is not updated, or not read"
    assert {f"{name}:updated" for name in seen} == expected.keys()
    return cut


@pytest.mark.parametrize(
    ("module", "shards", "whole"),
    [
        (Feedforward, 2, {"norm.weight", "norm.bias", "down.bias"}),
        (Feedforward, 3, {"norm.weight", "norm.bias", "down.bias"}),
        (Attention, 2, {"norm.weight", "norm.bias", "o.bias"}),
        (chain, 4, {"1.bias", "2.weight", "2.bias"}),  # no product reads what the last one writes
        (Convolutions, 2, {"second.bias", "head.bias"}),
    ],
)
def test_pairs_are_split_and_compute_the_same(module, shards, whole):
    model, inputs, expected, step = unsplit(module)
    made = sharded(step, shards)
    cut = assert_same(model, made.step.graph, inputs, expected)
    parameters = dict(model.named_parameters())
    assert parameters.keys() - cut == whole
    checked_run(made.step.graph, weights_of(model, made.step.graph), inputs)
    # A memory holds its shard's slices alone, of weights and of momenta, and the first one what is whole.
    graph, held = made.step.graph, [set() for _ in range(shards)]
    for operator, reads in enumerate(graph.reads):
        held[made.shard[operator]] |= set(reads) & made.step.updates.keys()
    sizes = [sum(graph.tensor_bytes[t] for t in tensors) for tensors in held]
    size = {name: expected[f"{name}:updated"].nbytes for name in cut}
    assert sizes[1:] == [sum(size.values()) / shards] * (shards - 1)
    assert sum(sizes) == sum(value.nbytes for value in expected.values())


def test_each_slice_has_its_own_count_of_steps():
    model, inputs, expected, step = unsplit(Feedforward, BATCH, "adam")
    graph = sharded(step, 2).step.graph
    assert_same(model, graph, inputs, expected)
    names = {row.name for row in graph.tensors}
    for state in ("", ":step", ":exp_avg"):
        for part in ("0-12", "12-24"):
            assert f"up.weight[0, {part}]{state}" in names
            assert f"down.weight[1, {part}]{state}:updated" in names


RING = [[0, 1]]


@pytest.mark.parametrize(
    ("cuts", "worker_of", "name", "options"),
    [
        ((), [[0, 0]], "1f1b", {}),
        ((), RING, "1f1b", {}),
        (("1.norm",), [[0, 0], [1, 1]], "1f1b", {}),
        (("1.norm",), [[0, 0], [1, 1]], "zb_h1", {}),
        (("1.norm",), [[0, 0], [1, 1]], "1f1b", {"recompute": ("0.o", "1.norm")}),
        (("1.norm",), [[0, 1], [2, 2]], "1f1b", {}),
    ],
)
def test_shards_of_stages_and_replicas_compute_the_same(cuts, worker_of, name, options):
    model, inputs, expected, step = unsplit(block, BATCH // 2)

    def starts(names):
        named = [step.graph.operators[i].name for i in step.forward]
        return [
            0,
            *(step.forward[next(i for i, n in enumerate(named) if n.startswith(c))] for c in names),
        ]

    worker_of = np.array(worker_of)
    if "recompute" in options:
        options = {"recompute": step.stages(starts(options["recompute"]))}
    workers = [(2 * worker, 2 * worker + 1) for worker in range(worker_of.max() + 1)]
    made = sharded(step, 2)
    layout = Layout(
        step.stages(starts(cuts)), worker_of, workers, schedule(name, worker_of), **options
    )
    parallel = parallelised(made.step, made.laid_out(layout))
    parts = {f"{n}#{p}": half for n, v in inputs.items() for p, half in enumerate(v.chunk(2))}
    assert_same(model, parallel.graph, parts, expected)
    # Slices of the second shard are where it is, those of each stage on its devices.
    for operator, reads in enumerate(parallel.graph.reads):
        for tensor in reads:
            row = parallel.graph.tensors[tensor]
            if row.role == "weight" and "4-8]" in row.name:
                assert parallel.device[operator] % 2 == 1
                stage = int(row.name.startswith("1.")) if cuts else 0
                assert parallel.device[operator] // 2 in worker_of[stage]


def run(made, shards, seconds, bandwidth=np.inf):
    order = np.arange(len(made.step.graph))
    costs = np.repeat(np.asarray(seconds)[:, None], shards, axis=1)
    return simulated(made.step.graph, costs, switched(shards, bandwidth), made.shard, order)


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize(("module", "sums"), [(Feedforward, 2), (four_heads, 4)])
def test_bytes_that_cross(module, sums, shards):
    """A pair's input goes to the other shards and their summands come back, forward and backward.

    In attention three products give the gradient of the input, so three sums. What a backward kernel needs of the
    forward pass is there already, and nothing moves in updates.
    """
    made = sharded(unsplit(module)[-1], shards)
    moved = run(made, shards, np.ones(len(made.shard))).transfers["bytes"]
    assert moved.sum() / 2 == (2 + sums) * (shards - 1) * SIZE  # two links a way


def work(graph):
    """Operations, which are as many in parts as in whole; none for what adds up summands."""
    return np.array(
        [0 if o.name.endswith(":out/sum") else operator_flops(o) for o in graph.operators], float
    )


def test_split_operators_take_a_share_of_the_time():
    """Equal devices, links that take nothing, times in proportion to the work: Amdahl's law."""
    step = unsplit(block)[-1]
    made = sharded(step, 2)
    parts, total = work(made.step.graph), work(step.graph).sum()
    second = parts[made.shard == 1].sum()
    assert parts.sum() == pytest.approx(total)
    assert second > total / 3
    assert run(made, 2, parts).makespan == pytest.approx(total - 2 * second + second)
    estimate = made.seconds(np.repeat(parts[:, None], 2, axis=1), [(0, 1)])
    assert estimate.sum() == pytest.approx(total - second)


class ByWork:
    """Seconds as many as operations, on four devices."""

    def price(self, graphs):
        return CostTable({g: GraphCosts(np.repeat(work(g)[:, None], 4, axis=1)) for g in graphs})


def test_the_partition_splits_over_groups_of_devices():
    graph = unsplit(block)[-1].graph
    prices, cluster = ByWork(), switched(4, np.inf)
    problem = Problem(Workload([Job(graph)]), cluster, prices.price([graph]), prices)
    alone = problem.makespan(ParallelTraining(devices=["d-m0"], micro_batches=1).plan(problem))
    assert alone == pytest.approx(work(graph).sum())
    made = sharded(Step.of(graph), 2)
    second = work(made.step.graph)[made.shard == 1].sum()
    plan = TensorParallel(shards=2, micro_batches=1, devices=["d-m0", "d-m1"]).plan(problem)
    assert plan.notes["stages"] == [["d-m0+d-m1"]]
    assert problem.makespan(plan) == pytest.approx(alone - second)
    # Two stages of two shards, and two heads for four devices: only the feed-forward layer is split over all.
    stages = ParallelTraining(shards=2, stages=2, micro_batches=1).plan(problem)
    assert [len(stage) for stage in stages.notes["stages"]] == [1, 1]
    assert problem.makespan(stages) == pytest.approx(alone - second)
    every = TensorParallel(shards=None).plan(problem)
    assert every.notes["stages"] == [["d-m0+d-m1+d-m2+d-m3"]]
    assert 0 < every.notes["split_operators"] < plan.notes["split_operators"]


def test_what_cannot_be_split_is_refused():
    step = unsplit(block)[-1]
    with pytest.raises(InvalidInput, match="No product of 'Sequential' can be shared by 5 shards"):
        sharded(step, 5)
    with pytest.raises(InvalidInput, match="Graph 'chain' does not say what its operators compute"):
        sharded(Step.of(chain_step(2)), 2)
    prices = ByWork()
    times = prices.price([step.graph])
    timed = Problem(Workload([Job(step.graph)]), switched(4), times)
    with pytest.raises(InvalidInput, match="times of 'Sequential' are given with it"):
        TensorParallel(shards=2, micro_batches=1, devices=["d-m0", "d-m1"]).plan(timed)
    with pytest.raises(InvalidInput, match="5 shards take as many devices, and 4 can"):
        ParallelTraining(shards=5).plan(timed)
    with pytest.raises(InvalidInput, match="has shards=0"):
        ParallelTraining(shards=0)


@pytest.mark.parametrize("module", [Convolutions, block])
def test_every_split_of_what_only_training_has(module):
    """Backward kernels, statistics and optimiser steps one by one, along every dimension, on unequal parts."""
    model, inputs, expected, step = unsplit(module)
    graph, seen = step.graph, set()
    for index, operator in enumerate(graph.operators):
        kind = operator.kind
        if kind not in backward_rules.RULES and kind not in backward_rules.ELEMENTWISE:
            continue
        for axis in axes_of(operator).values():
            if (kind, axis.dim, len(operator.outputs)) in seen:
                continue
            seen.add((kind, axis.dim, len(operator.outputs)))
            less = max(1, axis.length // 3)
            split = Split(axis.dim, (axis.length - less, less), (1, 0))
            made = split_graph(graph, [0] * len(graph), {index: split}, (0, 1)).graph
            assert len(made) > len(graph) or "step" in kind  # a weight that others read whole
            assert_same(model, made, inputs, expected)
            checked_run(made, weights_of(model, made), inputs)
    kinds = {kind for kind, *_ in seen}
    wanted = {"conv2d_backward", "batch_norm_training", "batch_norm_backward", "sgd_step"}
    wanted |= {"max_pool2d_backward", "threshold_backward", "silu_backward", "softmax_backward"}
    assert kinds >= (wanted if module is Convolutions else {"gelu_backward", ATTENTION})


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), module=st.sampled_from([Convolutions, Feedforward]))
def test_any_splits_of_a_step(data, module):
    """A weight whose readers need other slices of it stays whole everywhere, and so does its update."""
    model, inputs, expected, step = unsplit(module)
    splits = {}
    for index, operator in enumerate(step.graph.operators):
        axes = [axis for axis in axes_of(operator).values() if axis.length % (2 * axis.unit) == 0]
        if axes and data.draw(st.integers(0, 3)):
            axis = data.draw(st.sampled_from(axes))
            splits[index] = Split(axis.dim, (axis.length // 2,) * 2, (0, 1))
    try:
        graph = split_graph(step.graph, [0] * len(step.graph), splits, (0, 1)).graph
    except InvalidInput as error:
        assert "would read padding alone" in str(error)  # noqa: PT017
        return
    assert_same(model, graph, inputs, expected)


ATTENTION = "scaled_dot_product_attention_backward"
