"""Training steps of one process, of two replicas and of a pipeline of two stages, by eager PyTorch and gloo.

All ways train the same parameters (``DistributedDataParallel`` has copies): one after the other they take the same steps.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed, fx, nn

from cost_models.optimizer_steps import OPTIMIZERS
from scenarios.model_config import ModelConfig, load_model
from scenarios.training_graph import loss_of
from simulator.planners.pipeline_schedules import schedule

OPTIMIZER, LOSS = "sgd_momentum", "cross_entropy"
BUCKET_MIB = 4
WARM_UP = 2
ONE, HALF, BOTH = "one process", "half the batch, one process", "half the batch, both at once"
BY_HAND, OVERLAPPED = "data parallel, by hand", "data parallel, DistributedDataParallel"


def pipeline_name(micro_batches: int) -> str:
    """The row of a pipeline."""
    return f"pipeline, {micro_batches} micro-batches"


def module_of(config: ModelConfig) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The module without dropout and in-place kernels, its batch, and targets."""
    module, ((x,), _) = load_model(config)
    for part in module.modules():
        for name, child in part.named_children():
            if isinstance(child, nn.Dropout):
                setattr(part, name, nn.Identity())
            elif isinstance(child, nn.ReLU):
                child.inplace = False
    with torch.no_grad():
        classes = module(x).shape[-1]
    generator = torch.Generator().manual_seed(1)
    return module.train(), x, torch.randint(classes, (len(x),), generator=generator)


class Training:
    """The steps of one process.

    Args:
        rank: 0 or 1; 0 has the first stage.
        config: of the model.
        cuts: for each number of micro-batches the module and the position among its kernels that the second stage
            begins with.
    """

    def __init__(self, rank: int, config: ModelConfig, cuts: Mapping[int, tuple[str, int]]) -> None:
        self.rank = rank
        self.module, self.x, self.target = module_of(config)
        self.start = copy.deepcopy(self.module.state_dict())
        self.loss = loss_of(LOSS)
        rows = slice(rank * len(self.x) // 2, (rank + 1) * len(self.x) // 2)
        own = self.x[rows].clone(), self.target[rows].clone()
        self.replica = nn.parallel.DistributedDataParallel(
            copy.deepcopy(self.module), bucket_cap_mb=BUCKET_MIB, gradient_as_bucket_view=True
        )
        parameters = list(self.module.parameters())
        self.buckets = buckets(parameters)
        one, half, hand, ddp = (
            optimizer(parameters if i < 3 else self.replica.parameters()) for i in range(4)
        )
        first = rank == 0
        self.ways: dict[str, Callable[[], None] | None] = {
            ONE: (lambda: self._alone(one, self.x, self.target)) if first else None,
            HALF: (lambda: self._alone(half, *own)) if first else None,
            BOTH: lambda: self._alone(half, *own),
            BY_HAND: lambda: self._by_hand(hand, *own),
            OVERLAPPED: lambda: self._overlapped(ddp, *own),
        }
        for micro_batches, cut in cuts.items():
            pipeline = Pipeline(
                rank,
                self.module,
                cut,
                self.x.chunk(micro_batches),
                self.target.chunk(micro_batches),
            )
            self.ways[pipeline_name(micro_batches)] = pipeline.step

    def _alone(self, steps: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor) -> None:
        self.loss(self.module(x), target).backward()
        steps.step()
        steps.zero_grad()

    def _by_hand(self, steps: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor) -> None:
        (self.loss(self.module(x), target) / 2).backward()
        for bucket in self.buckets:
            flat = torch.cat([gradient_of(p).reshape(-1) for p in bucket])
            distributed.all_reduce(flat)
            parts = flat.split([p.numel() for p in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)
        steps.step()
        steps.zero_grad()

    def _overlapped(
        self, steps: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor
    ) -> None:
        self.loss(self.replica(x), target).backward()
        steps.step()
        steps.zero_grad()

    def differences(self) -> dict[str, dict[str, tuple[float, float]]]:
        """For each way with communication and each of its parameters here, how far it is from that of one process
        after a step, and how far the step goes.
        """
        self.module.load_state_dict(self.start)
        self._alone(optimizer(self.module.parameters()), self.x, self.target)
        expected = copy.deepcopy(self.module.state_dict())
        found = {}
        for name, way in self.ways.items():
            if name in (ONE, HALF, BOTH):
                continue
            assert way is not None
            module = self.replica.module if name == OVERLAPPED else self.module
            module.load_state_dict(self.start)
            way()
            found[name] = {
                key: (
                    float((value - expected[key]).abs().max()),
                    float((value - self.start[key]).abs().max()),
                )
                for key, value in module.state_dict().items()
                if not torch.equal(value, self.start[key])  # another stage's
            }
        return found

    def times(self, repeats: int, seed: int = 0) -> dict[str, np.ndarray]:
        """float64[repeats, 2] of each way: when its steps began and ended; NaN where this process has no part."""
        rng = random.Random(seed)
        found = {name: np.full((repeats, 2), np.nan) for name in self.ways}
        for repeat in range(-WARM_UP, repeats):
            names = list(self.ways)
            rng.shuffle(names)
            for name in names:
                way = self.ways[name]
                distributed.barrier()
                if way is None:
                    continue
                began = time.perf_counter()
                way()
                if repeat >= 0:
                    found[name][repeat] = began, time.perf_counter()
        return found


def trained(
    rank: int, config: ModelConfig, cuts: Mapping[int, tuple[str, int]], repeats: int
) -> tuple[dict[str, dict[str, tuple[float, float]]], dict[str, np.ndarray]]:
    """Differences and times of one process."""
    training = Training(rank, config, cuts)
    return training.differences(), training.times(repeats)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser whose steps are in the traced graph."""
    constants = OPTIMIZERS[OPTIMIZER].constants
    return torch.optim.SGD(parameters, **constants, foreach=False)


def gradient_of(parameter: nn.Parameter) -> torch.Tensor:
    """What the backward pass has left."""
    assert parameter.grad is not None
    return parameter.grad


def buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The last parameters first, at least so many bytes together."""
    found: list[list[nn.Parameter]] = [[]]
    for parameter in reversed(parameters):
        if sum(p.nbytes for p in found[-1]) >= BUCKET_MIB << 20:
            found.append([])
        found[-1].append(parameter)
    return found


class Pipeline:
    """One of two stages under 1F1B.

    Args:
        rank: 0 or 1, the stage.
        module: both stages.
        cut: the second one's beginning (:class:`Training`).
        x: the micro-batches.
        target: theirs.
    """

    def __init__(
        self,
        rank: int,
        module: nn.Module,
        cut: tuple[str, int],
        x: Sequence[torch.Tensor],
        target: Sequence[torch.Tensor],
    ) -> None:
        self.rank, self.other = rank, 1 - rank
        self.x, self.target, self.loss = x, target, loss_of(LOSS)
        stages, self.crossing = stages_of(module, cut, x[0])
        self.stage = stages[rank]
        self.steps = optimizer(self.stage.parameters())
        self.slots = schedule("1f1b", np.repeat([[0], [1]], len(x), axis=1))[rank]

    def step(self) -> None:
        """One step: what comes is received from the beginning on, what goes is sent when it is there."""
        coming = [[torch.empty_like(t) for t in self.crossing] for _ in self.x]
        receiving = [
            [distributed.irecv(t, self.other, tag=self._tag(m, i)) for i, t in enumerate(row)]
            for m, row in enumerate(coming)
        ]
        sending: list[Any] = []
        kept: dict[int, tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]] = {}

        def received(m: int) -> Sequence[torch.Tensor]:
            for work in receiving[m]:
                work.wait()
            return coming[m]

        def send(m: int, tensors: Iterable[torch.Tensor]) -> None:
            for i, tensor in enumerate(tensors):
                dense = tensor.contiguous()
                sending.append((distributed.isend(dense, self.other, tag=self._tag(m, i)), dense))

        for phase, m, _ in self.slots:
            if phase == "F" and self.rank == 0:
                kept[m] = (), self.stage(self.x[m])
                send(m, [t.detach() for t in kept[m][1]])
            elif phase == "F":
                given = [t.requires_grad_() for t in received(m)]
                (out,) = self.stage(*given)
                kept[m] = given, [self.loss(out, self.target[m]) / len(self.x)]
            else:
                given, made = kept.pop(m)
                torch.autograd.backward(made, received(m) if self.rank == 0 else None)
                send(m, [t.grad for t in given if t.grad is not None])
        for work, _ in sending:
            work.wait()
        self.steps.step()
        self.steps.zero_grad()

    def _tag(self, micro_batch: int, number: int) -> int:
        return micro_batch * len(self.crossing) + number


def stages_of(
    module: nn.Module, cut: tuple[str, int], x: torch.Tensor
) -> tuple[list[fx.GraphModule], list[torch.Tensor]]:
    """Two modules with a module's own parameters, and tensors like those that go from one to the other.

    Args:
        module: of one input and one output.
        cut: path of a module and position among its kernels.
        x: a micro-batch.
    """
    exported = torch.export.export(module, (x,))
    nodes = [n for n in exported.module().graph.nodes if n.op in ("placeholder", "call_function")]
    (given,) = (n for n in nodes if n.op == "placeholder")
    of_path = [n for n in nodes if n.op == "call_function" and path_of(n) == cut[0]]
    first = nodes.index([n for n in of_path if not is_view(n)][cut[1]])
    halves = nodes[1:first], nodes[first:]
    crossing = [n for n in nodes[:first] if any(u in halves[1] for u in n.users)]
    results = [n for n in nodes if any(u.op == "output" for u in n.users)]
    made = []
    for inputs, half, outputs in (([given], halves[0], crossing), (crossing, halves[1], results)):
        graph = fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in inputs}

        def copied(
            node: fx.Node, graph: fx.Graph = graph, copies: dict[fx.Node, fx.Node] = copies
        ) -> fx.Node:
            if node not in copies and node.op == "get_attr":
                copies[node] = graph.get_attr(str(node.target))
            return copies[node]

        for node in half:
            copies[node] = graph.node_copy(node, copied)
        graph.output(tuple(copies[node] for node in outputs))
        made.append(fx.GraphModule(module, graph))
    return made, [torch.empty(n.meta["val"].shape, dtype=n.meta["val"].dtype) for n in crossing]


def path_of(node: fx.Node) -> str:
    """The module that makes a call."""
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    return str(list(stack.values())[-1][0])


def is_view(node: fx.Node) -> bool:
    """Whether a call runs no kernel."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(value.alias_info is not None for value in schema.returns)
