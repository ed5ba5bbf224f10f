"""Training steps over two processes on this machine, held against their simulation.

``python -m tests.benchmarks.training_processes [--models NAME ...] [--repeats N]`` prints what communication takes and,
for each model, a table of measured and simulated seconds. Each process has a core and one torch thread of its own, and
they communicate by gloo over the loopback interface. Nothing that is simulated is fitted to the steps: operators are
timed one by one before and after them (:mod:`tests.benchmarks.timed_operators`), communication is measured apart.

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
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from calibration import environment
from experiments.runs.catalog import entry
from scenarios.model_config import ModelConfig
from scenarios.partition.partitioner import Problem
from scenarios.training.parallel_training import DataParallel, ParallelTraining
from scenarios.training.step import Step
from scenarios.training_graph import trace_training
from simulator.engine.run import simulate
from simulator.errors import ExecutionError
from simulator.model.cluster import Cluster, Device, Link, MemorySpace
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.model.workload import Job, Workload
from simulator.schedulers.planned import Planned
from tests.benchmarks.gloo import Communication, communication, in_two_processes, settle
from tests.benchmarks.timed_operators import TimedOperators
from tests.benchmarks.training_steps import (
    BOTH,
    BUCKET_MIB,
    BY_HAND,
    HALF,
    LOSS,
    ONE,
    OPTIMIZER,
    OVERLAPPED,
    buckets,
    module_of,
    pipeline_name,
    trained,
)

MICRO_BATCHES = (2, 4, 8)
TOLERANCE = 1e-5
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
CHUNKS = ", as chunks"
COLUMNS = (
    *("", "measured s", "quartiles", "simulated s", "error", "slowed s", "error"),
    *("speed-up", "simulated", "slowed"),
)


def config_of(name: str) -> ModelConfig:
    """A shipped model at the size that is measured here."""
    found = entry("model", name, ())
    assert found is not None
    known = {k: v for k, v in found.content.items() if k in ModelConfig.__dataclass_fields__}
    return replace(ModelConfig(**known), training=True, optimizer=OPTIMIZER, **MODELS[name])


# -- simulation -------------------------------------------------------------------------------

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


class Simulated(NamedTuple):
    """A plan and where it runs."""

    plan: Plan
    cluster: Cluster


class Predictor:
    """Simulates the steps of a model.

    Args:
        config: of the model.
        prices: times of operators.
        measured: times of communication.
    """

    def __init__(
        self, config: ModelConfig, prices: TimedOperators, measured: Communication
    ) -> None:
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

    def alone(self, batch: int) -> Simulated:
        """A step of one process."""
        cluster = two_memories(0.0, np.inf)
        problem = self._problem(cluster, batch)
        plan = Plan.single("one", problem.jobs, cluster, 0)
        return Simulated(plan, problem.cluster)

    def pipeline(self, micro_batches: int) -> Simulated:
        """Two stages over a link that takes what a message took."""
        problem = self._problem(two_memories(*self.measured.message_line))
        plan = ParallelTraining(micro_batches=micro_batches).plan(problem)
        return Simulated(plan, problem.cluster)

    def data_parallel(self, overlap: bool, chunks: bool) -> Simulated:
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
        return Simulated(plan, problem.cluster)

    def cut(self, pipeline: Simulated) -> tuple[str, int]:
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

    def makespan(self, simulated: Simulated, slowed: float = 1.0) -> float:
        """Seconds if all operators, but for communication, take so many times as long as was timed so far."""
        plan, cluster = simulated
        (graph,) = plan.graphs
        seconds = self.prices.on(cluster).price([graph])[graph].seconds * slowed
        latency, bandwidth = self.measured.all_reduce_line
        for operator, row in enumerate(graph.operators):
            if row.kind == "all_reduce":
                size = float(graph.tensor_bytes[graph.reads[operator][0]])
                seconds[operator] = latency + size / bandwidth
        costs = CostTable({graph: GraphCosts(seconds)})
        jobs = Workload([Job(graph)])
        return simulate(
            jobs, cluster, costs, Planned(plan), movement="push", contention="fifo"
        ).makespan


def _path(operator: str) -> str:
    """The module of an operator's name."""
    return operator.rpartition("/")[0]


def _behind(graph: DataflowGraph) -> Callable[[int], int]:
    """Communication behind the passes, updates behind communication."""
    names = [operator.name for operator in graph.operators]
    return lambda operator: 1 if names[operator].endswith("#C") else 2 * ("#U" in names[operator])


# -- the table --------------------------------------------------------------------------------


def simulations(predictor: Predictor) -> dict[str, Simulated]:
    """Every row of the table."""
    batch = len(predictor.x)
    half = predictor.alone(batch // 2)
    found = {ONE: predictor.alone(batch), HALF: half, BOTH: half}
    for name, overlap in ((BY_HAND, False), (OVERLAPPED, True)):
        found[name] = predictor.data_parallel(overlap, chunks=False)
        found[f"{name}{CHUNKS}"] = predictor.data_parallel(overlap, chunks=True)
    for micro_batches in MICRO_BATCHES:
        found[pipeline_name(micro_batches)] = predictor.pipeline(micro_batches)
    return found


def check(differences: Sequence[Mapping[str, Mapping[str, tuple[float, float]]]]) -> str:
    """What is said of the parameters after a step.

    Args:
        differences: of both processes, for each way and parameter.

    Raises:
        ExecutionError: some are not those of one process.
    """
    apart, far = 0.0, np.inf
    everything = set().union(*(found.keys() for rank in differences for found in rank.values()))
    for way in differences[0]:
        found = [pair for rank in differences for pair in rank[way].values()]
        missing = everything - differences[0][way].keys() - differences[1][way].keys()
        apart = max(apart, *(a for a, _ in found))
        far = min(far, max(f for _, f in found))
        if missing or apart > TOLERANCE:
            raise ExecutionError(
                f"After a step of '{way}' parameters are {apart:.1e} from those of one process, and "
                f"{len(missing)} stayed as they were"
            )
    return f"parameters after a step: at most {apart:.1e} from those of one process, which change by up to {far:.1e}"


def report(name: str, console: Console, measured: Communication, repeats: int) -> None:
    """Simulate and measure a model's steps and print the table."""
    prices, others = TimedOperators(), Others()
    predictor = Predictor(config_of(name), prices, measured)
    with environment.alone_on(min(os.sched_getaffinity(0))):
        simulated = simulations(predictor)
    rows = {m: simulated[pipeline_name(m)] for m in MICRO_BATCHES}
    cuts = {m: predictor.cut(simulation) for m, simulation in rows.items()}
    ranks = in_two_processes(trained, predictor.config, cuts, repeats)
    with environment.alone_on(min(os.sched_getaffinity(0))):
        drift = prices.again()
    busy = others.cores()
    times = {way: np.stack([rank[1][way] for rank in ranks]) for way in ranks[0][1]}
    whole = {way: np.nanmax(t[..., 1], 0) - np.nanmin(t[..., 0], 0) for way, t in times.items()}
    own = {way: np.nanmedian(t[..., 1] - t[..., 0]) for way, t in times.items()}
    slowed = float(own[BOTH] / own[HALF])
    parameters = list(predictor.module.parameters())
    console.print(
        f"\n{name}, batch {len(predictor.x)}: {len(predictor.graph(len(predictor.x)))} operators, "
        f"{sum(p.nbytes for p in parameters) / 1e6:.1f} MB of parameters in {len(buckets(parameters))} buckets; "
        f"both at once take {slowed:.3f} times as long; operators took {drift:.3f} times as long after the steps as "
        f"before; meanwhile others kept {busy:.2f} cores busy\n{check([rank[0] for rank in ranks])}"
    )
    for m, simulation in rows.items():
        begins = simulation.plan.notes["starts"][1]
        console.print(f"{m} micro-batches: the second stage begins with {begins}")
    table = Table(*COLUMNS, box=None)
    alone = float(np.median(whole[ONE])), predictor.makespan(simulated[ONE])
    for row, simulation in simulated.items():
        way = row.removesuffix(CHUNKS)
        found, says = float(np.median(whole[way])), predictor.makespan(simulation)
        then = predictor.makespan(simulation, 1.0 if way in (ONE, HALF) else slowed)
        low, high = np.quantile(whole[way], [0.25, 0.75])
        table.add_row(
            row,
            *(f"{found:.3f}", f"{low:.3f}-{high:.3f}"),
            *(f"{says:.3f}", f"{says / found - 1:+.1%}"),
            *(f"{then:.3f}", f"{then / found - 1:+.1%}"),
            *(f"{alone[0] / found:.2f}", f"{alone[1] / says:.2f}", f"{alone[1] / then:.2f}"),
        )
    console.print(table)


class Others:
    """How busy everything else keeps this machine from now on."""

    def __init__(self) -> None:
        self._began, self._before = time.perf_counter(), self._seconds()

    def cores(self) -> float:
        """Cores on average; of this process's children those count as its own that it has seen end."""
        return (self._seconds() - self._before) / (time.perf_counter() - self._began)

    @staticmethod
    def _seconds() -> float:
        ticks = [int(w) for w in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]  # idle, and waiting for input or output
        return busy / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def said_of(measured: Communication) -> Table:
    """What communication takes, and the lines that the simulation has of it."""
    table = Table("bytes", "all-reduce s", "line", "message s", "line", box=None)
    both = (
        (measured.all_reduce, measured.all_reduce_line),
        (measured.message, measured.message_line),
    )
    for size in measured.all_reduce:
        cells = [
            f"{seconds:.6f}"
            for found, (latency, bandwidth) in both
            for seconds in (found[size], latency + size / bandwidth)
        ]
        table.add_row(f"{size}", *cells)
    lines = [
        f"{latency * 1e6:.0f} us, {bandwidth / 1e9:.2f} GB/s" for _, (latency, bandwidth) in both
    ]
    table.add_row("line", "", lines[0], "", lines[1])
    return table


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=15, help="of each step, in shuffled order")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("Two processes need two cores that this process may use")
    settle()
    console = Console(width=170)
    others = Others()
    measured, _ = in_two_processes(communication)
    console.print(said_of(measured))
    console.print(
        f"{environment.cpu_model()}, torch {torch.__version__}; a process computes for {measured.computing:.0%} of the "
        f"largest all-reduce; meanwhile others kept {others.cores():.2f} cores busy"
    )
    for name in options.models:
        report(name, console, measured, options.repeats)


if __name__ == "__main__":
    main()
