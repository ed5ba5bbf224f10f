"""What a call in the runner adds to a kernel.

A chain's kernels say what calling them in the runner adds. They read and write more than a core's private
cache, as those of models do: after kernels that leave the cache alone the interpreter is twice as fast. What lies
between two kernels is measured on a model (:mod:`experiments.runner_overhead`).
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
from simulator.costs import CostTable
from simulator.graph import DataflowGraph, Tensor, TensorSpec
from simulator.scheduler import Scheduler
from simulator.workload import Job, Workload


class DispatchProbe:
    """Measures it on a machine.

    Args:
        machine: any; the chain is loaded on it.
        operators: length of the chain.
    """

    def __init__(self, machine: Machine, operators: int = 60) -> None:
        self._machine = machine
        self._graph = _chain("dispatch probe", 2 * private_cache(), operators)
        spec = self._graph.tensors[0].spec
        assert spec is not None
        self._inputs = {self._graph: {"x": torch.ones(spec.shape)}}
        # The first device is believed to be the fastest, so the chain stays there.
        beliefs = 1e-4 * np.arange(1.0, len(machine.cluster.devices) + 1)
        self._costs = CostTable.of(self._graph, np.tile(beliefs, (len(self._graph), 1)))
        self._calling: float | None = None
        machine.load(self._graph, {})

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
                    whole.append(self._in_a_run())
                    alone.append(self._alone())
                low = [float(np.percentile(np.concatenate(r[1:]), 10)) for r in (whole, alone)]
                self._calling = max(0.0, low[0] - low[1])
        return self._calling

    def _in_a_run(self) -> np.ndarray:
        """Seconds of each kernel of the chain, executed on the first device."""
        host = self._machine.cluster.host
        jobs = Workload([Job(self._graph, origin=host, destination=host)])
        trace = self._machine.run(jobs, self._costs, OneByOne([0]), self._inputs).trace
        return np.asarray(trace.executions["finish"] - trace.executions["start"])

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
