"""What the runner itself needs for an operator: completion, decision and hand-over.

Measured as the median gap between the kernels of a chain, under the scheduler whose decisions it
contains. The chain's kernels read and write more than a core's private cache, as those of models do:
after kernels that leave the cache alone the interpreter is twice as fast.

Within a segment there is neither completion nor decision; what remains for each operator is calling its
kernel and keeping its tensors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from calibration.environment import pin, private_cache
from calibration.kernels import build, make_operator
from calibration.runner import Machine
from simulator.costs import CostTable
from simulator.graph import DataflowGraph, Tensor, TensorSpec
from simulator.scheduler import Scheduler
from simulator.segments import coarsen


class DispatchProbe:
    """Measures the runner's overhead on a machine.

    Args:
        machine: any; the chain is loaded on it.
        operators: length of the chain.
    """

    def __init__(self, machine: Machine, operators: int = 60) -> None:
        self._machine = machine
        spec = TensorSpec((2 * private_cache() // 4,))
        operator = make_operator("aten.relu.default", spec)
        size = float(spec.bytes)
        tensors = [Tensor("x", "input", size, spec)]
        tensors += [Tensor(f"y{i}", "activation", size, spec) for i in range(operators)]
        self._graph = DataflowGraph(
            "dispatch probe",
            [replace(operator, name=f"relu{i}") for i in range(operators)],
            tensors,
            [[i] for i in range(operators)],
            [[i + 1] for i in range(operators)],
        )
        self._inputs = {self._graph: {"x": torch.ones(spec.shape)}}
        # The first device is believed to be the fastest, so the chain stays there.
        beliefs = 1e-4 * np.arange(1.0, len(machine.cluster.devices) + 1)
        self._costs = CostTable.of(self._graph, np.tile(beliefs, (operators, 1)))
        machine.load(self._graph, {})
        self._segment = coarsen(self._graph)
        machine.load(self._segment.graph, {}, self._segment)

    def seconds(self, make_scheduler: Callable[[], Scheduler], repeats: int = 5) -> float:
        """Median seconds between an operator's end and the next one's start on the same worker.

        Args:
            make_scheduler: gives a fresh scheduler for each run.
            repeats: runs, after one that is not counted.
        """
        gaps: list[np.ndarray] = []
        for number in range(repeats + 1):
            trace = self._machine.run(
                self._graph, self._costs, make_scheduler(), self._inputs
            ).trace
            rows = trace.executions
            if number:
                same = (rows["device"][1:] == rows["device"][:-1]) & (
                    rows["slot"][1:] == rows["slot"][:-1]
                )
                gaps.append((rows["start"][1:] - rows["finish"][:-1])[same])
        return float(np.median(np.concatenate(gaps)))

    def segment_seconds(self, make_scheduler: Callable[[], Scheduler], repeats: int = 5) -> float:
        """Seconds that a segment takes for each of its operators beyond the operator's own.

        The chain as one segment against its kernels timed one by one, as measuring does: the fastest of
        each.

        Args:
            make_scheduler: gives a fresh scheduler for each run.
            repeats: of both, taken in turns, after one that is not counted.

        Returns:
            0 where the first device is a GPU, whose kernels are queued while others run.
        """
        if self._machine.specs[0].device != "cpu":
            return 0.0
        graph = self._segment.graph
        costs = CostTable.of(graph, self._costs[self._graph].seconds.sum(axis=0, keepdims=True))
        whole, alone = [], []
        for _ in range(repeats + 1):
            rows = self._machine.run(
                graph, costs, make_scheduler(), {graph: self._inputs[self._graph]}
            ).trace.executions
            whole.append(float(rows["finish"][0] - rows["start"][0]))
            alone.append(self._alone())
        count = len(self._graph)
        return max(0.0, (min(whole[1:]) - min(alone[1:])) / count)

    def _alone(self) -> float:
        """Seconds of all kernels of the chain, each timed by itself where the first worker runs."""
        spec, found = self._machine.specs[0], [0.0]
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
                    found[0] += time.perf_counter() - began

        thread = threading.Thread(target=time_kernels)
        thread.start()
        thread.join()
        return found[0] * spec.repeat_kernel
