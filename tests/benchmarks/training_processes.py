"""Training steps over two processes on this machine, held against their simulation.

``python -m tests.benchmarks.training_processes [--models NAME ...] [--repeats N]`` prints what communication takes and,
for each model, a table of measured and simulated seconds. Each process has a core and one torch thread of its own, and
they communicate by gloo over the loopback interface. Nothing that is simulated is fitted to the steps: operators are
timed one by one beforehand (:mod:`calibration.timing`, state ``graph``), communication is measured apart.

``one process``
    a step of the whole batch, and one of half the batch; the other process sleeps.
``both at once``
    half the batch in each process, without communication: what they cost each other is memory bandwidth.
``data parallel``
    half the batch in each process and gradients summed in buckets: by hand behind the backward pass, or by
    ``DistributedDataParallel`` beside it. Simulated with each bucket as one operator that takes what an all-reduce of
    as many bytes took, and as chunks that cross a link and are added.
``pipeline``
    two stages under 1F1B, cut where the plan cuts; activations and gradients go by ``isend`` as soon as they are there
    into receives that were posted before. Simulated over a link that takes what a message took.

``slowed`` says what is simulated if all operators take longer by as much as both processes at once slowed each other.
Before anything is timed one step of each way is held against the step of one process.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import distributed, fx, nn

from calibration import environment
from calibration.plan import MeasurePlan
from calibration.process import Visitor
from calibration.samples import OperatorSample
from calibration.timing import CpuTimer
from calibration.transfers import SIZES, fit_line
from cost_models.optimizer_steps import OPTIMIZERS
from experiments.runs.catalog import entry
from scenarios.model_config import ModelConfig, load_model
from scenarios.partition.partitioner import Problem
from scenarios.training.parallel_training import DataParallel, ParallelTraining
from scenarios.training.step import Step
from scenarios.training_graph import loss_of, trace_training
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.planners.pipeline_schedules import schedule
from simulator.schedulers.planned import Planned

OPTIMIZER, LOSS = "sgd_momentum", "cross_entropy"
BUCKET_MIB = 4
MICRO_BATCHES = (2, 4, 8)
VISITS = 3
"""To each operator; the median of their timings counts."""
WARM_UP = 2
TOLERANCE = 1e-5
TIMEOUT_S = 300
MODELS: Mapping[str, dict[str, Any]] = {
    "vgg16": {
        "arguments": {"classes": 100, "hidden": 512},
        "parameters": {"image_size": 32},
        "batch": 16,
    },
    "alexnet": {
        "arguments": {"classes": 1000, "hidden": 2048},
        "parameters": {"image_size": 224},
        "batch": 16,
    },
    "vit_b_16": {
        "arguments": {"image_size": 112, "layers": 6, "hidden": 384, "heads": 6, "classes": 100},
        "batch": 16,
    },
}
"""What differs from the shipped configuration: small enough that a step takes .2 to 2 s of a core."""

ONE, HALF, BOTH = "one process", "half the batch, one process", "half the batch, both at once"
BY_HAND, OVERLAPPED = "data parallel, by hand", "data parallel, DistributedDataParallel"


def pipeline_name(micro_batches: int) -> str:
    """The row of a pipeline."""
    return f"pipeline, {micro_batches} micro-batches"


def config_of(name: str) -> ModelConfig:
    """A shipped model at the size that is measured here."""
    found = entry("model", name, ())
    assert found is not None
    known = {k: v for k, v in found.content.items() if k in ModelConfig.__dataclass_fields__}
    return replace(ModelConfig(**known), training=True, optimizer=OPTIMIZER, **MODELS[name])


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


# -- two processes ----------------------------------------------------------------------------


def in_two_processes(task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``task(rank, *arguments)`` returns in each of two processes that can communicate."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            running = [pool.submit(_joined, r, meeting, task, arguments) for r in (0, 1)]
            return [future.result() for future in running]


def _joined(rank: int, meeting: str, task: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    from datetime import timedelta

    quieten(rank)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo",
        f"file://{meeting}",
        timedelta(seconds=TIMEOUT_S),
        rank=rank,
        world_size=2,
    )
    try:
        return task(rank, *arguments)
    finally:
        distributed.destroy_process_group()


def quieten(rank: int) -> None:
    """A core, a thread, memory that is kept and no denormal numbers, as operators are timed."""
    cores = sorted(os.sched_getaffinity(0))
    environment.pin(cores[rank % len(cores)])
    torch.set_num_threads(1)
    environment.steady_allocator()
    environment.flush_denormals()


# -- communication ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Communication:
    """Median seconds by bytes, and the share of an all-reduce in which a process's own core computes."""

    all_reduce: Mapping[int, float]
    message: Mapping[int, float]
    computing: float

    @property
    def all_reduce_line(self) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s)."""
        return fit_line(list(self.all_reduce), list(self.all_reduce.values()))

    @property
    def message_line(self) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s)."""
        return fit_line(list(self.message), list(self.message.values()))


def communication(rank: int, sizes: Sequence[int] = SIZES, repeats: int = 15) -> Communication:
    """Measure what gloo takes between two processes that do nothing else."""
    all_reduce, message, busy = {}, {}, 0.0
    for size in sizes:
        buffer = torch.zeros(size // 4)

        def reduce(buffer: torch.Tensor = buffer) -> None:
            distributed.all_reduce(buffer)

        def there_and_back(buffer: torch.Tensor = buffer) -> None:
            back = torch.empty_like(buffer)
            receiving = distributed.irecv(back, 1 - rank)
            if rank == 1:
                receiving.wait()
            sending = distributed.isend(buffer, 1 - rank)
            sending.wait()
            receiving.wait()

        seconds, share = _seconds(reduce, repeats)
        all_reduce[size], busy = seconds, share
        message[size] = _seconds(there_and_back, repeats)[0] / 2
    return Communication(all_reduce, message, busy)


def _seconds(call: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median seconds, and the share in which this process computed."""
    found, computed = [], 0.0
    for repeat in range(repeats + 1):
        distributed.barrier()
        began, used = time.perf_counter(), time.process_time()
        call()
        if repeat:
            found.append(time.perf_counter() - began)
            computed += time.process_time() - used
    return float(np.median(found)), computed / sum(found)


# -- steps ------------------------------------------------------------------------------------


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

    def differences(self) -> dict[str, tuple[float, float]]:
        """For each way, how far one step's parameters are from the single process's, and how far a step goes."""
        self.module.load_state_dict(self.start)
        self._alone(optimizer(self.module.parameters()), self.x, self.target)
        expected = copy.deepcopy(self.module.state_dict())
        found = {}
        for name, way in self.ways.items():
            if name in (ONE, HALF, BOTH) or way is None:
                continue
            module = self.replica.module if name == OVERLAPPED else self.module
            module.load_state_dict(self.start)
            way()
            moved = {
                key: value
                for key, value in module.state_dict().items()
                if not torch.equal(value, self.start[key])
            }
            apart = max(float((v - expected[k]).abs().max()) for k, v in moved.items())
            far = max(float((v - self.start[k]).abs().max()) for k, v in moved.items())
            found[name] = apart, far
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
) -> tuple[dict[str, tuple[float, float]], dict[str, np.ndarray]]:
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


# -- simulation -------------------------------------------------------------------------------


class Measured:
    """Prices operators by timing them, each distinct one once, on the core that this process runs on."""

    def __init__(self) -> None:
        self.devices = 2
        plan = MeasurePlan("cpu", "here", ("graph",))
        self._visitor = Visitor(plan, CpuTimer(("graph",)))
        self._seconds: dict[str, float] = {}

    def on(self, cluster: Cluster) -> Measured:
        """The same times on every device of a cluster."""
        made = copy.copy(self)
        made.devices = len(cluster.devices)
        return made

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """See :class:`simulator.model.costs.Prices`."""
        samples = {g: [_sample(g, o) for o in range(len(g))] for g in graphs}
        new = {s.identity: s for row in samples.values() for s in row}
        new = {key: s for key, s in new.items() if key not in self._seconds}
        timed: dict[str, list[float]] = {key: [] for key in new}
        with torch.inference_mode():
            for visit in range(VISITS):
                keys = list(new)
                random.Random(visit).shuffle(keys)
                for key in keys:
                    timed[key] += [s for _, s, _ in self._visitor.visit(new[key], visit)]
        self._seconds.update({key: float(np.median(found)) for key, found in timed.items()})
        return CostTable({g: GraphCosts(self._column(row)) for g, row in samples.items()})

    def _column(self, samples: Sequence[OperatorSample]) -> np.ndarray:
        column = np.array([self._seconds[s.identity] for s in samples])
        return np.repeat(column[:, None], self.devices, axis=1)


def _sample(graph: DataflowGraph, operator: int) -> OperatorSample:
    """An operator as it is timed."""
    row, reads = graph.operators[operator], graph.reads[operator]
    weights = tuple(i for i, t in enumerate(reads) if graph.tensors[t].role == "weight")
    return OperatorSample(row, weights)


FIRST, SECOND, GLOO = "process 0", "process 1", "gloo"


def two_memories(latency: float, bandwidth: float, beside: bool = False) -> Cluster:
    """A process each, and a link; ``beside``: with a spare device each, which sums gradients."""
    spaces = [MemorySpace(FIRST), MemorySpace(SECOND)]
    devices = [Device(FIRST, FIRST), Device(SECOND, SECOND)]
    if beside:
        devices += [Device(f"sums of {space.name}", space.name) for space in spaces]
    link = Link("loopback", (FIRST, SECOND), bandwidth, latency)
    return Cluster("two processes", spaces, devices, [link])


def with_communicator() -> Cluster:
    """A process each and a device that sums each bucket at once; what goes to it takes no time."""
    both = two_memories(0.0, np.inf)
    links = [Link(f"{GLOO} {end}", (end, GLOO), np.inf) for end in (FIRST, SECOND)]
    spaces, devices = [*both.spaces, MemorySpace(GLOO)], [*both.devices, Device(GLOO, GLOO)]
    return replace(both, spaces=spaces, devices=devices, links=links)


@dataclass(frozen=True)
class Simulation:
    """A plan and the times of its operators.

    Attributes:
        given: operators whose times contain communication: they are not slowed.
    """

    plan: Plan
    cluster: Cluster
    seconds: np.ndarray
    given: np.ndarray

    def makespan(self, slowed: float = 1.0) -> float:
        """Seconds, all operators taking so many times as long."""
        (graph,) = self.plan.graphs
        seconds = np.where(self.given[:, None], self.seconds, self.seconds * slowed)
        costs = CostTable({graph: GraphCosts(seconds)})
        return simulate(
            Workload([Job(graph)]),
            self.cluster,
            costs,
            Planned(self.plan),
            movement="push",
            contention="fifo",
        ).makespan


class Predictor:
    """Simulates the steps of a model.

    Args:
        config: of the model.
        prices: times of operators.
        measured: times of communication.
    """

    def __init__(self, config: ModelConfig, prices: Measured, measured: Communication) -> None:
        self.config, self.prices, self.measured = config, prices, measured
        self.module, self.x, self.target = module_of(config)
        self._graphs: dict[int, DataflowGraph] = {}

    def graph(self, batch: int) -> DataflowGraph:
        """The step of a batch of that size."""
        if batch not in self._graphs:
            self._graphs[batch] = trace_training(
                self.module,
                self.x[:batch],
                loss=LOSS,
                target=self.target[:batch],
                optimizer=OPTIMIZER,
                name=self.config.name,
                batch=batch,
                check=False,  # the differences from the step of one process are measured
            )
        return self._graphs[batch]

    def alone(self, batch: int) -> Simulation:
        """A step of one process."""
        cluster = two_memories(0.0, np.inf)
        problem = self._problem(cluster, batch)
        plan = Plan.single("one", problem.jobs, cluster, 0)
        return self._simulation(problem, plan)

    def pipeline(self, micro_batches: int) -> Simulation:
        """Two stages over a link that takes what a message took."""
        problem = self._problem(two_memories(*self.measured.message_line))
        return self._simulation(
            problem, ParallelTraining(micro_batches=micro_batches).plan(problem)
        )

    def data_parallel(self, overlap: bool, chunks: bool) -> Simulation:
        """Half the batch in each process.

        Args:
            overlap: gradients are summed beside the backward pass, else behind it.
            chunks: as copies and sums over the link that messages took, else as one operator.
        """
        line = self.measured.message_line
        cluster = two_memories(*line, beside=overlap) if chunks else with_communicator()
        problem = self._problem(cluster)
        partition = DataParallel(
            bucket_mb=BUCKET_MIB * (1 << 20) / 1e6,
            communicator=None if chunks else GLOO,
            devices=[FIRST, SECOND],
        )
        plan = partition.plan(problem)
        if not overlap:
            plan = replace(plan, order=np.array(sorted(plan.order, key=_behind(plan.graphs[0]))))
        return self._simulation(problem, plan)

    def cut(self, pipeline: Simulation) -> tuple[str, int]:
        """Where a plan's second stage begins: the module and the position among its kernels."""
        notes = pipeline.plan.notes
        step = Step.of(self.graph(len(self.x) // notes["micro_batches"]))
        paths = {step.graph.operators[o].name: o for o in step.forward}
        path = _path(notes["starts"][1])
        own = [name for name in paths if _path(name) == path]
        return path, own.index(notes["starts"][1])

    def _problem(self, cluster: Cluster, batch: int | None = None) -> Problem:
        graph, prices = self.graph(batch or len(self.x)), self.prices.on(cluster)
        return Problem(
            Workload([Job(graph)]), cluster, prices.price([graph]), prices, at_batch=self.graph
        )

    def _simulation(self, problem: Problem, plan: Plan) -> Simulation:
        (graph,) = plan.graphs
        seconds = problem.price([graph])[graph].seconds.copy()
        given = np.array([o.kind == "all_reduce" for o in graph.operators])
        latency, bandwidth = self.measured.all_reduce_line
        for operator in np.flatnonzero(given).tolist():
            size = float(graph.tensor_bytes[graph.reads[operator][0]])
            place = problem.cluster.device_index[GLOO]
            seconds[operator, place] = latency + size / bandwidth
        return Simulation(plan, problem.cluster, seconds, given)


def _path(operator: str) -> str:
    """The module of an operator's name."""
    return operator.rpartition("/")[0]


def _behind(graph: DataflowGraph) -> Callable[[int], int]:
    """Communication behind the passes, updates behind communication."""
    names = [operator.name for operator in graph.operators]
    return lambda operator: 1 if names[operator].endswith("#C") else 2 * ("#U" in names[operator])


# -- the table --------------------------------------------------------------------------------


def simulations(predictor: Predictor) -> dict[str, Simulation]:
    """Every row of the table."""
    batch = len(predictor.x)
    half = predictor.alone(batch // 2)
    found = {ONE: predictor.alone(batch), HALF: half, BOTH: half}
    for name, overlap in ((BY_HAND, False), (OVERLAPPED, True)):
        found[name] = predictor.data_parallel(overlap, chunks=False)
        found[f"{name}, as chunks"] = predictor.data_parallel(overlap, chunks=True)
    for micro_batches in MICRO_BATCHES:
        found[pipeline_name(micro_batches)] = predictor.pipeline(micro_batches)
    return found


def report(
    name: str, console: Console, prices: Measured, measured: Communication, repeats: int
) -> None:
    """Simulate and measure a model's steps and print the table."""
    predictor = Predictor(config_of(name), prices, measured)
    began = time.perf_counter()
    simulated = simulations(predictor)
    seconds = time.perf_counter() - began
    cuts = {m: predictor.cut(simulated[pipeline_name(m)]) for m in MICRO_BATCHES}
    ranks = in_two_processes(trained, predictor.config, cuts, repeats)
    differences = {way: found for rank in ranks for way, found in rank[0].items()}
    times = {way: np.stack([rank[1][way] for rank in ranks]) for way in ranks[0][1]}
    whole = {way: np.nanmax(t[..., 1], 0) - np.nanmin(t[..., 0], 0) for way, t in times.items()}
    own = {
        way: np.nanmedian(t[..., 1] - t[..., 0]) for way, t in times.items() if way in (HALF, BOTH)
    }
    slowed = float(own[BOTH] / own[HALF])
    graph = predictor.graph(len(predictor.x))
    weights = sum(p.nbytes for p in predictor.module.parameters())
    console.print(
        f"\n{name}, batch {len(predictor.x)}: {len(graph)} operators, {weights / 1e6:.1f} MB of parameters in "
        f"{len(buckets(list(predictor.module.parameters())))} buckets; traced and timed in {seconds:.0f} s; each "
        f"process slows the other {slowed:.3f} times"
    )
    for m, (path, position) in cuts.items():
        made = simulated[pipeline_name(m)].plan.notes["starts"][1]
        console.print(f"  {m} micro-batches: the second stage begins with {made}")
    for way, (apart, far) in differences.items():
        console.print(f"  {way}: parameters differ by {apart:.1e} of {far:.1e} that a step changes")
        if apart > TOLERANCE:
            raise SystemExit(f"{name}, {way}: parameters are not those of one process")
    table = Table(
        "", "measured s", "quartiles", "simulated s", "error", "slowed s", "error", box=None
    )
    for column in ("speed-up", "simulated"):
        table.add_column(column)
    base, base_simulated = float(np.median(whole[ONE])), simulated[ONE].makespan()
    for row, simulation in simulated.items():
        way = row.removesuffix(", as chunks")
        found = float(np.median(whole[way]))
        low, high = np.quantile(whole[way], [0.25, 0.75])
        says, then = simulation.makespan(), simulation.makespan(slowed)
        if way in (ONE, HALF):
            then = says
        table.add_row(
            row,
            f"{found:.4f}",
            f"{low:.4f}-{high:.4f}",
            f"{says:.4f}",
            f"{says / found - 1:+.1%}",
            f"{then:.4f}",
            f"{then / found - 1:+.1%}",
            f"{base / found:.2f}",
            f"{base_simulated / says:.2f}",
        )
    console.print(table)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=15, help="of each step, in shuffled order")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise InvalidInput("Two processes need two cores that this process may use")
    console = Console(width=170)
    console.print(
        f"load {os.getloadavg()[0]:.2f} on {environment.cpu_model()}, torch {torch.__version__}"
    )
    measured, _ = in_two_processes(communication)
    table = Table("bytes", "all-reduce s", "line", "message s", "line", box=None)
    lines = measured.all_reduce_line, measured.message_line
    for size in measured.all_reduce:
        cells = [str(size)]
        for found, (latency, bandwidth) in zip(
            (measured.all_reduce, measured.message), lines, strict=True
        ):
            cells += [f"{found[size]:.6f}", f"{latency + size / bandwidth:.6f}"]
        table.add_row(*cells)
    console.print(table)
    for what, (latency, bandwidth) in zip(("all-reduce", "message"), lines, strict=True):
        console.print(f"{what}: {latency * 1e6:.0f} us and {bandwidth / 1e9:.3f} GB/s")
    console.print(
        f"in the largest all-reduce a process computes for {measured.computing:.0%} of the time"
    )
    cores = os.sched_getaffinity(0)
    quieten(0)
    prices = Measured()
    for name in options.models:
        environment.pin(min(cores))
        # The processes take all cores that there are, this one the first.
        os.sched_setaffinity(0, cores)
        report(name, console, prices, measured, options.repeats)


if __name__ == "__main__":
    main()
