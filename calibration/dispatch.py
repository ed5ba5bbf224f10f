"""What a call in the runner adds to a kernel, and what workers wait for that share an interpreter.

A chain's kernels say what calling them in the runner adds. They read and write more than a core's private
cache, as those of models do: after kernels that leave the cache alone the interpreter is twice as fast. What lies
between two kernels is measured on a model (:mod:`experiments.runner_overhead`).

Two workers share one interpreter. One that comes back from a kernel while the other one has it sleeps and
must be woken, which takes longer than what it was waiting for. How long is what a simulation of two chains
beside each other, of short kernels, must be told so that they take what they take for real
(:mod:`simulator.launchers`).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from calibration.environment import pin, private_cache
from calibration.kernels import build, make_operator
from calibration.runner import Machine
from simulator.context import SchedulingContext
from simulator.costs import CostTable, GraphCosts
from simulator.graph import DataflowGraph, Tensor, TensorSpec
from simulator.launchers import Launcher
from simulator.scheduler import Scheduler
from simulator.trace import Trace
from simulator.workload import Job, Workload

MOST_HANDOVER = 1e-3
"""Seconds; a longer hand-over is no waking of a thread."""


class DispatchProbe:
    """Measures both on a machine.

    Args:
        machine: any; the chain is loaded on it.
        operators: length of the chain.
    """

    def __init__(self, machine: Machine, operators: int = 60) -> None:
        self._machine = machine
        self._graph = _chain("dispatch probe", 2 * private_cache(), operators)
        self._short = _chain("handover probe", private_cache() // 2, operators)
        self._inputs = {
            graph: {"x": torch.ones(graph.tensors[0].spec.shape)}  # type: ignore[union-attr]
            for graph in (self._graph, self._short)
        }
        # The first device is believed to be the fastest, so the chain stays there.
        beliefs = 1e-4 * np.arange(1.0, len(machine.cluster.devices) + 1)
        self._costs = CostTable(
            {graph: GraphCosts(np.tile(beliefs, (len(graph), 1))) for graph in self._inputs}
        )
        self._calling: float | None = None
        for graph in self._inputs:
            machine.load(graph, {})

    def calling_seconds(self, repeats: int = 5) -> float:
        """Seconds by which kernels take longer in a run than called one by one, as measuring does.

        The 10th percentiles of both, measured once; 0 where the first device is a GPU, whose kernels are
        called while others run.
        """
        if self._calling is None:
            self._calling = 0.0
            if self._machine.specs[0].device == "cpu":
                whole, alone = [], []
                for _ in range(repeats + 1):
                    whole.append(_durations(self._run([0]), 0))
                    alone.append(self._alone())
                low = [float(np.percentile(np.concatenate(r[1:]), 10)) for r in (whole, alone)]
                self._calling = max(0.0, low[0] - low[1])
        return self._calling

    def handover_seconds(self, repeats: int = 7) -> float | None:
        """Seconds until a worker that had to wait for the interpreter goes on.

        Two chains of short kernels, each on a device of its own, first one by one and then beside each
        other. The answer makes the simulation of both take what they took, in the median of the runs.

        Args:
            repeats: of each, after one that is not counted.

        Returns:
            None where there is one device, or the first two are not both CPUs'.
        """
        if [spec.device for spec in self._machine.specs[:2]] != ["cpu", "cpu"]:
            return None
        kernels, gaps = [], []
        for device in (0, 1):
            runs = [self._run([device], self._short) for _ in range(repeats + 1)][1:]
            kernels.append(np.median([_durations(run, device) for run in runs], axis=0))
            gaps.append(
                np.median([_span(run, device) - _durations(run, device).sum() for run in runs])
            )
        both = [self._run([0, 1], self._short) for _ in range(repeats + 1)][1:]
        measured = float(np.median([_span(run, 0) + _span(run, 1) for run in both]))
        count = len(self._short)
        overhead = [max(0.0, float(gap)) / (count - 1) for gap in gaps]
        launches = [spec.repeat_kernel for spec in self._machine.specs[:2]]
        return handover(np.stack(kernels, 1), overhead, measured, launches)

    def _run(self, devices: list[int], graph: DataflowGraph | None = None) -> Trace:
        """A chain on each of these devices at once."""
        graph = graph or self._graph
        jobs = _jobs(graph, len(devices), self._machine.cluster.host)
        scheduler = OneByOne(devices)
        return self._machine.run(jobs, self._costs, scheduler, self._inputs).trace

    def _alone(self) -> np.ndarray:
        """Seconds of each kernel of the chain, timed by itself where the first worker runs."""
        spec, found = self._machine.specs[0], []
        kernels = [build(operator) for operator in self._graph.operators]

        def time_kernels() -> None:
            if spec.cores:
                pin(spec.cores[: spec.threads])
            torch.set_num_threads(spec.threads)
            with torch.inference_mode():
                value = self._inputs[self._graph]["x"]
                for kernel in kernels:
                    call = kernel.bind(value)
                    began = time.perf_counter()
                    value = call()
                    found.append(time.perf_counter() - began)

        thread = threading.Thread(target=time_kernels)
        thread.start()
        thread.join()
        return np.array(found) * spec.repeat_kernel


class OneByOne(Scheduler):
    """Each job on a given device, its operators in the graph's order, and behind the jobs before it there.

    Args:
        devices: of the jobs, in their order.
    """

    name = "one_by_one"

    def __init__(self, devices: Sequence[int]) -> None:
        self._waiting: list[dict[int, int]] = [{} for _ in devices]
        self._placed = [0] * len(devices)
        self._turns: dict[int, deque[int]] = {}  # jobs that are not all placed, by device
        for job, device in enumerate(devices):
            self._turns.setdefault(device, deque()).append(job)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in context.ready:
            self._waiting[context.job_of(task)][context.operator_of(task)] = task
        for device, jobs in self._turns.items():
            while jobs and jobs[0] < len(context.jobs):
                job = jobs[0]
                while (task := self._waiting[job].pop(self._placed[job], -1)) >= 0:
                    context.place(task, device)
                    self._placed[job] += 1
                if self._placed[job] < len(context.tasks_of(job)):
                    break
                jobs.popleft()


def _chain(name: str, size: int, operators: int) -> DataflowGraph:
    """Kernels one after the other that read and write ``size`` bytes each."""
    spec = TensorSpec((size // 4,))
    operator = make_operator("aten.relu.default", spec)
    tensors = [Tensor("x", "input", float(spec.bytes), spec)]
    tensors += [Tensor(f"y{i}", "activation", float(spec.bytes), spec) for i in range(operators)]
    return DataflowGraph(
        name,
        [replace(operator, name=f"relu{i}") for i in range(operators)],
        tensors,
        [[i] for i in range(operators)],
        [[i + 1] for i in range(operators)],
    )


def _jobs(graph: DataflowGraph, count: int, host: str | None) -> Workload:
    return Workload([Job(graph, origin=host, destination=host) for _ in range(count)])


def _durations(trace: Trace, device: int) -> np.ndarray:
    """Of the executions on a device, in their order, seconds."""
    rows = trace.executions
    mine = rows["device"] == device
    return (rows["finish"] - rows["start"])[mine][np.argsort(rows["start"][mine])]


def _span(trace: Trace, device: int) -> float:
    """From the first start on a device to the last finish, seconds."""
    rows = trace.executions
    mine = rows["device"] == device
    return float(rows["finish"][mine].max() - rows["start"][mine].min())


def handover(
    kernels: np.ndarray,
    overheads: Sequence[float],
    measured: float,
    launches: Sequence[int] = (1, 1),
) -> float:
    """The hand-over with which two chains beside each other take as long as they did, by bisection.

    Args:
        kernels: float64[operators, 2] seconds.
        overheads: of the launches of both, seconds.
        measured: seconds from the first kernel's start to the last one's end, the sum of both chains.
        launches: equal parts of every operator that each of both comes back to the launcher for.
    """
    low, high = 0.0, MOST_HANDOVER
    if chains_beside(kernels, overheads, low, launches) >= measured:
        return low
    for _ in range(30):
        middle = (low + high) / 2
        enough = chains_beside(kernels, overheads, middle, launches) >= measured
        low, high = (low, middle) if enough else (middle, high)
    return high


def chains_beside(
    kernels: np.ndarray,
    overheads: Sequence[float],
    handover: float,
    launches: Sequence[int] = (1, 1),
) -> float:
    """What two chains behind one launcher take, seconds; see :func:`handover`."""
    launcher, now, done = Launcher(), [0.0, 0.0], [0, 0]
    parts = [len(kernels) * count for count in launches]
    while open_chains := [c for c in (0, 1) if done[c] < parts[c]]:
        # At the same time who comes back is before who begins.
        chain = min(open_chains, key=lambda c: (now[c], done[c] % launches[c] == 0))
        operator, part = divmod(done[chain], launches[chain])
        overhead = 0.0 if part else overheads[chain]
        now[chain] += launcher.wait(now[chain], overhead, handover) + overhead
        now[chain] += float(kernels[operator, chain]) / launches[chain]
        done[chain] += 1
    return sum(now) - sum(overheads)
