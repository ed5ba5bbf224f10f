"""Operators timed inside networks and one by one, in turns in one process.

Generated networks (``data/networks.json.gz``, :mod:`scenarios.models.generated`) are executed operator by operator, as
the hardware runner does. Each of their operators is also visited alone, as calibration visits it. The two differ: inside
a network other operators' code and data displace an operator's own from the caches between two uses, and its outputs
take memory that other operators have freed. :mod:`cost_models.context` fits what a profile keeps of the difference.
"""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from calibration.kernels import build
from calibration.random_tensors import random_reads
from calibration.segment_kernel import RepeatedKernel, Runnable
from calibration.timing import CpuTimer
from simulator.model.graph import DataflowGraph

PATH = Path(__file__).resolve().parent / "data" / "networks.json.gz"
FORMAT = "hetsim.networks/1"
ROUNDS, EXECUTIONS, UNCOUNTED = 2, 4, 2
"""Turns in a process, and executions of a network in each, the first of which are not counted."""
LEAST_SECONDS = 90.0
"""Seconds that a process must live to measure networks, which takes it some 15 s."""

Note = Callable[[int, float, Sequence[Any]], None]


class Network:
    """A graph on the current core, executed operator by operator.

    Args:
        graph: of operators.
        given: its inputs and weights, by tensor.
        times: how often a kernel runs for one operator.

    Attributes:
        graph: as given.
        kernels: of its operators.
        weights: for each operator which of its reads are weights.
    """

    def __init__(
        self, graph: DataflowGraph, given: Mapping[int, torch.Tensor], times: int = 1
    ) -> None:
        self.graph = graph
        self.kernels: list[Runnable] = [build(operator) for operator in graph.operators]
        if times > 1:
            self.kernels = [RepeatedKernel(kernel, times) for kernel in self.kernels]
        stored = set(graph.weights)
        self.weights = [[i for i, t in enumerate(row) if t in stored] for row in graph.reads]
        self._given = dict(given)
        self._dead_after: list[list[int]] = [[] for _ in graph.reads]
        for tensor, readers in enumerate(graph.consumers):
            if readers and tensor not in self._given and tensor not in graph.outputs:
                self._dead_after[readers[-1]].append(tensor)

    def execute(self, note: Note) -> None:
        """Run the graph; ``note`` is told each operator's position, its seconds and what it read."""
        values = dict(self._given)
        rows = zip(self.kernels, self.graph.reads, self.graph.writes, strict=True)
        for position, (kernel, reads, writes) in enumerate(rows):
            arguments = [values[tensor] for tensor in reads]
            start = time.perf_counter()
            written = kernel(*arguments)
            seconds = time.perf_counter() - start
            values.update(zip(writes, written, strict=True))
            note(position, seconds, arguments)
            del arguments, written
            for tensor in self._dead_after[position]:
                del values[tensor]


def random_given(graph: DataflowGraph, seed: int = 0) -> dict[int, torch.Tensor]:
    """Inputs and weights of a graph as single operators get them, matrices scaled by what they sum over."""
    found: dict[int, torch.Tensor] = {}
    wanted = {*graph.inputs, *graph.weights}
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        if new := [tensor for tensor in reads if tensor in wanted and tensor not in found]:
            made = dict(zip(reads, random_reads(operator, "cpu", seed), strict=True))
            for tensor in new:
                value = made[tensor]
                if tensor in graph.weights and value.dim() > 1:
                    value = value * (value.shape[0] / value.numel()) ** 0.5
                found[tensor] = value
    return found


@cache
def networks() -> tuple[DataflowGraph, ...]:
    """The project's generated networks."""
    document = json.loads(gzip.decompress(PATH.read_bytes()))
    return tuple(DataflowGraph.from_json(graph) for graph in document["graphs"])


def _run(kernel: Runnable, reads: Sequence[Any]) -> Any:
    return kernel(*reads)


def measure(
    clock: CpuTimer, times: int = 1, rounds: int = ROUNDS, seed: int = 0
) -> dict[str, dict[str, list[list[float]]]]:
    """Seconds of every operator of every network, in place and by visits.

    Args:
        clock: times visits; of its states the first is taken.
        times: how often a kernel runs for one operator.
        rounds: turns.
        seed: of the order.

    Returns:
        By name of the network ``placed``, for each execution the operators' seconds, and ``visited``, for each
        operator the seconds of its visits.
    """
    order = random.Random(seed)
    found: dict[str, dict[str, list[list[float]]]] = {}
    state = clock.states[0]
    with torch.inference_mode():
        all_ = [Network(graph, random_given(graph), times) for graph in networks()]
        for _ in range(rounds):
            for network in order.sample(all_, len(all_)):
                name, count = network.graph.name, len(network.graph)
                entry = found.setdefault(
                    name, {"placed": [], "visited": [[] for _ in range(count)]}
                )
                reads: list[Sequence[Any]] = [()] * count
                for number in range(UNCOUNTED + EXECUTIONS):
                    row = [0.0] * count

                    def note(
                        position: int, seconds: float, given: Sequence[Any], row: list[float] = row,
                        reads: list[Sequence[Any]] = reads,
                    ) -> None:  # fmt: skip
                        row[position], reads[position] = seconds, given

                    network.execute(note)
                    if number >= UNCOUNTED:
                        entry["placed"].append([round(seconds, 8) for seconds in row])
                for position in order.sample(range(count), count):
                    call = partial(_run, network.kernels[position])
                    timings = clock.visit(call, reads[position], network.weights[position])
                    entry["visited"][position] += [
                        round(one.seconds, 8) for one in timings if one.cache == state
                    ]
    return found
