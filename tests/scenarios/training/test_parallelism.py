"""A step over several devices computes what the step of the whole batch does, by torch's own kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from calibration.sequential import run_tensors, weights_of
from scenarios.training.divided import divided
from scenarios.training.parallelism import Layout, Reduction, parallelised
from scenarios.training.step import BACKWARD, FORWARD, UPDATE, Step
from scenarios.training_graph import trace_training
from simulator.errors import InvalidInput
from simulator.planners.pipeline_schedules import schedule
from tests.scenarios.training.chains import chain_step

BATCH, PARTS = 8, 4
PIPE = np.array([[0] * PARTS, [1] * PARTS])
RING = [[0, 1, 2, 3]]


class Residual(torch.nn.Module):
    """An embedding that the last layer shares, a residual branch, and a convolution whose gradient has strides."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(16)
        self.mixed = torch.nn.Conv1d(8, 8, 3, padding=1)
        self.out = torch.nn.Linear(8, 20, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        hidden = self.embedding(x)
        hidden = hidden + self.down(functional.gelu(self.norm(self.up(hidden))))
        return self.out(self.mixed(hidden.mT).mT)


@pytest.fixture(scope="module")
def traced():
    """The model, its inputs, what one step of the whole batch makes of it, and the step of a micro-batch."""
    torch.manual_seed(0)
    model = Residual()
    x, target = torch.randint(0, 20, (2, BATCH, 5)).unbind()
    whole = trace_training(model, x, optimizer="adam", batch=BATCH)
    updated = [f"{name}:updated" for name, _ in model.named_parameters()]
    given = {"x": x, "target": target}
    expected = run_tensors(whole, weights_of(model, whole), given, updated)
    small = trace_training(model, x[: BATCH // PARTS], optimizer="adam", batch=BATCH // PARTS)
    small = divided(small)
    return model, x, target, expected, Step.of(small)


def stage_starts(step, *names):
    """The first forward operator, and those whose names begin so."""
    found = [
        next(i for i in step.forward if step.graph.operators[i].name.startswith(n)) for n in names
    ]
    return [0, *found]


TWO, FOUR = ("norm",), ("up", "down", "mixed")


@pytest.mark.parametrize(
    ("cuts", "worker_of", "name", "chunks", "options"),
    [
        ((), [[0] * PARTS], "1f1b", 1, {}),  # gradient accumulation alone
        (TWO, PIPE, "gpipe", 1, {}),
        (TWO, PIPE, "1f1b", 1, {}),
        (TWO, PIPE, "zb_h1", 1, {}),
        (FOUR, PIPE, "interleaved", 2, {}),
        (TWO, PIPE, "1f1b", 1, {"recompute": TWO}),
        (TWO, PIPE, "gpipe", 1, {"recompute": FOUR}),
        ((), RING, "1f1b", 1, {"reduction": Reduction()}),
        ((), RING, "1f1b", 1, {"reduction": Reduction(bucket_bytes=100)}),
        ((), RING, "1f1b", 1, {"reduction": Reduction("tree", 500)}),
        ((), RING, "1f1b", 1, {"reduction": Reduction("hierarchical", node_size=2)}),
        ((), RING, "1f1b", 1, {"reduction": Reduction("owner")}),
        ((), [[0, 1, 0, 1]], "1f1b", 1, {}),
        (TWO, [[0, 1, 0, 1], [2, 3, 2, 3]], "1f1b", 1, {}),
        (TWO, [[0, 0, 0, 1], [2] * PARTS], "1f1b", 1, {}),  # unequal replicas
        (TWO, [[0, 1, 0, 2], [3, 4, 4, 4]], "zb_h1", 1, {"recompute": TWO}),
    ],
)
def test_one_step_is_that_of_the_whole_batch(traced, cuts, worker_of, name, chunks, options):
    model, x, target, expected, step = traced
    worker_of = np.array(worker_of)
    if "recompute" in options:
        options = {"recompute": step.stages(stage_starts(step, *options["recompute"]))}
    workers = [(worker,) for worker in range(worker_of.max() + 1)]
    slots = schedule(name, worker_of, chunks)
    layout = Layout(step.stages(stage_starts(step, *cuts)), worker_of, workers, slots, **options)
    made = parallelised(step, layout)
    given = {}
    for part in range(PARTS):
        rows = slice(part * BATCH // PARTS, (part + 1) * BATCH // PARTS)
        given |= {f"x#{part}": x[rows], f"target#{part}": target[rows]}
    names = [t.name for t in made.graph.tensors if t.name.endswith(":updated")]
    found = run_tensors(made.graph, weights_of(model, made.graph), given, names)
    owners = 1 if options.get("reduction", Reduction()).algorithm == "owner" else None
    copies = [n for n in names if n.split(":")[0].split("@")[0] == "up.weight" and "exp" not in n]
    first_stage = len(set(worker_of[0].tolist()))
    assert len([n for n in copies if "step" not in n]) == (owners or first_stage)
    for updated in names:
        path, _, rest = updated.partition(":")
        whole = f"{path.split('@')[0]}:{rest}"
        if whole in expected:  # states are held by their effect on the next test
            torch.testing.assert_close(found[updated], expected[whole], atol=1e-5, rtol=1e-5)
    losses = [found[row["tensor"]] for row in made.graph.results]
    assert torch.stack(losses).mean() == pytest.approx(float(expected["nll_loss_forward:0"]))
    assert sorted(made.order.tolist()) == list(range(len(made.graph)))


def test_an_asynchronous_pipeline_is_descent_with_late_gradients(traced):
    """Every stage applies gradients that it computed with the weights of its forward pass (PipeDream's stashing)."""
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2)))
    x, target = torch.randn(2, 6, 3, 4).unbind()
    step = Step.of(trace_training(model, x[0], loss="mse", batch=3))
    worker_of = np.array([[0] * 6, [1] * 6])
    part = step.stages(stage_starts(step, "1"))
    slots = schedule("pipedream", worker_of)
    layout = Layout(part, worker_of, [(0,), (1,)], slots, asynchronous=True)
    graph = parallelised(step, layout).graph
    given = {f"input#{i}": x[i] for i in range(6)} | {f"target#{i}": target[i] for i in range(6)}
    names = [f"{name}:updated" for name, _ in model.named_parameters()]
    found = run_tensors(graph, weights_of(model, graph), given, names)

    late = [[p.detach().clone() for p in model.parameters()] for _ in range(1)]
    for number in range(6):
        # The first stage has one more micro-batch under way: its weights are one update older.
        first, last = late[max(number - 1, 0)][:2], late[number][2:]
        used = [p.clone().requires_grad_() for p in (*first, *last)]
        hidden = functional.linear(x[number], used[0], used[1])
        loss = functional.mse_loss(functional.linear(hidden, used[2], used[3]), target[number])
        gradients = torch.autograd.grad(loss, used)
        late.append([p - 1e-3 * g for p, g in zip(late[-1], gradients, strict=True)])
    for name, value in zip(names, late[-1], strict=True):
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-5)


def test_backward_operators_stand_where_their_forward_operators_do(traced):
    *_, step = traced
    graph = step.graph
    layer = {i: graph.operators[i].name.split("/")[0] for i in range(len(graph))}
    for operator, phase in enumerate(step.phase):
        name = layer[operator].removesuffix(".weight").removesuffix(".bias")
        # What only rearranges a gradient may stand on either side of a cut.
        saved = [p for p in graph.predecessors[operator] if step.phase[p] == FORWARD]
        weights = set(graph.reads[operator]) & set(graph.weights)
        if phase != FORWARD and (saved or weights) and name in ("up", "norm", "down", "mixed"):
            assert layer[step.anchor[operator]] == name, graph.operators[operator].name
    for source, reader in zip(graph.edge_source, graph.edge_target, strict=True):
        if step.phase[source] == BACKWARD and step.phase[reader] == BACKWARD:
            assert step.anchor[reader] <= step.anchor[source]
    tied = graph.operator_names.index("embedding.weight/adam_step")
    assert step.phase[tied] == UPDATE
    assert layer[step.anchor[tied]] == "embedding"


def test_a_divided_convolution_gives_its_weights_gradient_apart(traced):
    *_, step = traced
    graph = step.graph
    parts = [i for i, o in enumerate(graph.operators) if "conv1d_backward" in o.kind]
    assert [graph.operators[i].name.rpartition("/")[2] for i in parts] == ["input", "weight"]
    assert step.weight_only[parts].tolist() == [False, True]
    assert [len(graph.writes[i]) for i in parts] == [1, 2]  # weight and bias


def test_what_cannot_be_is_refused():
    graph = chain_step(2)
    inference = type(graph)("f", graph.operators[:1], graph.tensors[:4], [[0, 1]], [[3]])
    with pytest.raises(InvalidInput, match="no training step"):
        Step.of(inference)
    step = Step.of(graph)
    worker_of = np.array([[0, 1], [2, 3]])
    layout = Layout(
        step.stages([0, 1]),
        worker_of,
        [(d,) for d in range(4)],
        schedule("pipedream", worker_of),
        asynchronous=True,
    )
    with pytest.raises(InvalidInput, match="one device a stage"):
        parallelised(step, layout)


def test_recomputing_what_draws_or_counts_is_refused():
    class Dropping(torch.nn.Module):
        def __init__(self, last):
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), last, torch.nn.Linear(4, 4))

        def forward(self, x):
            return self.layers(x)

    for last, message in (
        (torch.nn.Dropout(0.5), "draws random numbers"),
        (torch.nn.BatchNorm1d(4), "keeps statistics"),
    ):
        step = Step.of(trace_training(Dropping(last), torch.zeros(3, 4), loss="mse", batch=3))
        worker_of = np.zeros((1, 1), dtype=int)
        part = step.stages([0])
        layout = Layout(part, worker_of, [(0,)], schedule("1f1b", worker_of), recompute=part)
        with pytest.raises(InvalidInput, match=message):
            parallelised(step, layout)
