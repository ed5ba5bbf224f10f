"""Runs whose data lies in arrays that compiled functions share: :mod:`simulator.kernels` and
:mod:`simulator.flow_kernels`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from simulator.context import EVERYWHERE, GraphIndex
from simulator.graph import DataflowGraph
from simulator.simulation import Simulation


class _Layout:
    """Parts of an array, one behind the other."""

    def __init__(self, begin: int) -> None:
        self.end = begin

    def add(self, count: int) -> int:
        """Where a new part of so many numbers begins."""
        begin, self.end = self.end, self.end + count
        return begin


class ArrayedSimulation(Simulation):
    """See the module docstring; two arrays, ``whole`` and ``real``, hold everything."""

    _packs = False
    _serves = False

    _names: ClassVar[Any]
    """The module whose functions work on the arrays: it names the positions in the headers."""

    def _lay_out(self) -> None:
        """Make the two arrays, and write into them what stands from the beginning."""
        names, workload = self._names, self._workload
        spaces, devices = len(self.cluster.spaces), len(self.cluster.devices)
        graphs = workload.graphs
        jobs = [job.graph for job in workload]
        tasks, tensors = sum(map(len, jobs)), sum(len(graph.tensors) for graph in jobs)
        self._room = self._most_moves()
        whole, real = _Layout(names.HEADER), _Layout(0)
        header = {
            name: (real if name in names.REALS else whole).add(count)
            for name, count in self._parts(len(jobs), tasks, tensors).items()
        }
        self._graph_at: dict[DataflowGraph, int] = {}
        contents: list[tuple[bool, int, np.ndarray]] = []
        for graph in graphs:
            at = self._graph_at[graph] = whole.add(names.GRAPH_HEADER)
            for is_whole, name, array in self._arrays_of(graph):
                header[at + name] = (whole if is_whole else real).add(len(array))
                contents.append((is_whole, header[at + name], array))
        self._whole = np.zeros(whole.end, dtype=np.int64)
        self._real = np.zeros(real.end)
        for is_whole, begin, array in contents:
            target = self._whole if is_whole else self._real
            target[begin : begin + len(array)] = array
        for position, value in header.items():
            self._whole[position] = value
        self._whole[names.SPACES] = spaces
        self._array(names.HOME, tensors)[:] = EVERYWHERE
        self._array(names.WRITTEN, tensors)[:] = math.inf
        self._array(names.SPACE_OF, devices)[:] = self._space_of
        self._home = self._view(names.HOME, tensors)
        self._written = self._view(names.WRITTEN, tensors)
        self._pending = self._view(names.PENDING, tasks)
        self._released = self._view(names.RELEASED, max(map(len, jobs)))
        self._latencies = self._view(names.LATENCY, spaces * spaces)
        self._bandwidths = self._view(names.BANDWIDTH, spaces * spaces)
        self._header: Any = memoryview(self._whole)  # type: ignore[arg-type]

    def _most_moves(self) -> int:
        """For how many transfers there is room: the copies that somebody wants at one instant, as no
        task is placed twice.
        """
        graphs = [job.graph for job in self._workload]
        return sum(len(g.activations_csr.values) + len(g.outputs) for g in graphs)

    def _parts(self, jobs: int, tasks: int, tensors: int) -> dict[int, int]:
        """How many numbers everything has that the header says the place of."""
        names, pairs = self._names, len(self.cluster.spaces) ** 2
        return {
            names.JOB: tasks,
            names.GRAPH: jobs,
            names.FIRST_TASK: jobs,
            names.FIRST_TENSOR: jobs,
            names.HOME: tensors,
            names.PENDING: tasks,
            names.SPACE_OF: len(self.cluster.devices),
            names.RELEASED: max(len(job.graph) for job in self._workload),
            names.COPY: self._room,
            names.ROUND: self._room,
            names.WRITTEN: tensors,
            names.LATENCY: pairs,
            names.BANDWIDTH: pairs,
            names.REQUESTED: self._room,
            names.SIZE: self._room,
        }

    def _arrays_of(self, graph: DataflowGraph) -> list[tuple[bool, int, np.ndarray]]:
        """What is kept of a graph: whether it is whole numbers, its name, and the numbers."""
        names = self._names
        rows = [
            (graph.activations_csr, names.READS, names.READS_AT),
            (graph.writes_csr, names.WRITES, names.WRITES_AT),
            (graph.successors_csr, names.SUCCESSORS, names.SUCCESSORS_AT),
        ]
        return [
            *((True, name, csr.values) for csr, name, _ in rows),
            *((True, name, csr.offsets) for csr, _, name in rows),
            (False, names.BYTES, graph.tensor_bytes),
        ]

    def _array(self, name: int, count: int) -> np.ndarray:
        """A part of the arrays."""
        begin = int(self._whole[name])
        array = self._real if name in self._names.REALS else self._whole
        return array[begin : begin + count]

    def _view(self, name: int, count: int) -> Any:
        """A part of the arrays, of which Python reads and writes single numbers fast."""
        return memoryview(self._array(name, count))  # type: ignore[arg-type]

    def _add_to_data(self, index: GraphIndex) -> None:
        names = self._names
        tasks, job = len(index.graph), len(self.jobs) - 1
        first = self._first_task[job]
        self._array(names.JOB, first + tasks)[first:] = job
        self._array(names.PENDING, first + tasks)[first:] = index.pending
        for name, value in (
            (names.GRAPH, self._graph_at[index.graph]),
            (names.FIRST_TASK, first),
            (names.FIRST_TENSOR, self._first_tensor[job]),
        ):
            self._array(name, job + 1)[job] = value
