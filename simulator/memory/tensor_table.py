"""Tensors of the jobs of a run: whole bytes, where they come from, and which tasks read and write them.

Requests that are served together (:mod:`simulator.context.serving`) run one graph: what its operators write is
shared, inputs and results are each request's own, with its own bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.context import EVERYWHERE
from simulator.context.packing import is_weight
from simulator.model.graph import DataflowGraph

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun


class TensorSizes:
    """Whole bytes of a graph's tensors: memory has no half bytes."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.bytes = [math.ceil(size) for size in graph.tensor_bytes.tolist()]
        weight = set(graph.weights)
        self.weights = [tuple(t for t in row if t in weight) for row in graph.reads]
        """For each operator the weights it reads."""
        self.inner = [math.ceil(size) for size in graph.inner_bytes] or [0] * len(graph)
        """For each operator the bytes that it keeps for itself."""
        self.outputs = [
            sum(self.bytes[t] for t in row) + inner
            for row, inner in zip(graph.writes, self.inner, strict=True)
        ]
        """For each operator the bytes of all that it writes and keeps for itself."""


class JobTensors:
    """What memory asks a run about its tensors. Jobs, tasks, tensors and spaces are the run's numbers."""

    def __init__(self, run: SimulatedRun) -> None:
        self._run = run
        self._sizes: dict[DataflowGraph, TensorSizes] = {}

    # -- bytes ----------------------------------------------------------------------------------

    def sizes(self, graph: DataflowGraph) -> TensorSizes:
        """Of a graph's tensors; from now on the graph is known."""
        found = self._sizes.get(graph)
        if found is None:
            found = self._sizes[graph] = TensorSizes(graph)
        return found

    def knows(self, graph: DataflowGraph) -> bool:
        """Whether anybody has asked for a graph's sizes."""
        return graph in self._sizes

    def bytes(self, tensor: int) -> int:
        """Of a job's tensor."""
        run, job = self._run, self.job(tensor)
        own, index = run.jobs[job].graph, run.job_index[job]
        t = tensor - self.first(job)
        shared = index.graph is not own and t not in index.outputs and t not in index.inputs
        return self._sizes[index.graph if shared else own].bytes[t]

    def inner_bytes(self, task: int) -> int:
        """What a task keeps for itself."""
        run = self._run
        index = run.job_index[run.job_of(task)]
        return self._sizes[index.graph].inner[run.operator_of(task)]

    def output_bytes(self, task: int) -> int:
        """Of all that a task writes and keeps for itself."""
        run = self._run
        job = run.job_of(task)
        if job in run.members:
            return sum(map(self.bytes, self.written(task))) + self.inner_bytes(task)
        return self._sizes[run.jobs[job].graph].outputs[run.operator_of(task)]

    # -- whose they are -------------------------------------------------------------------------

    def first(self, job: int) -> int:
        """The number of the first tensor of a job; those of its graph follow."""
        return self._run.first_tensor[job]

    def job(self, tensor: int) -> int:
        """The job of a tensor."""
        return self._run.job_of_tensor(tensor)

    def read(self, task: int) -> list[int]:
        """All that a task reads but weights."""
        run = self._run
        job = run.job_of(task)
        return self._of_members(job, run.job_index[job].reads[run.operator_of(task)])

    def written(self, task: int) -> list[int]:
        """All that a task writes."""
        run = self._run
        job = run.job_of(task)
        return self._of_members(job, run.job_index[job].writes[run.operator_of(task)])

    def _of_members(self, job: int, tensors: Sequence[int]) -> list[int]:
        """Tensors of a job's graph; of inputs and results of a batch those of all its jobs."""
        run = self._run
        first = run.first_tensor
        members = run.members.get(job, ())
        if len(members) < 2:
            return [first[job] + t for t in tensors]
        index = run.job_index[job]
        return [
            first[member] + t
            for t in tensors
            for member in (members if t in index.outputs or t in index.inputs else (job,))
        ]

    def readers(self, tensor: int) -> list[int]:
        """The tasks that read a tensor."""
        run = self._run
        job = run.job_of_tensor(tensor)
        leader = run.leader.get(job, job)
        first = run.first_task[leader]
        consumers = run.job_index[leader].consumers[tensor - run.first_tensor[job]]
        return [first + operator for operator in consumers]

    def heirs(self, tensor: int) -> list[int]:
        """Of what a weight becomes the tasks that read the weight."""
        run = self._run
        job = run.job_of_tensor(tensor)
        readers = run.job_index[job].updates.get(tensor - run.first_tensor[job], ())
        return [run.first_task[job] + operator for operator in readers]

    def inherited(self, task: int) -> list[int]:
        """What becomes of the weights that a task reads."""
        run = self._run
        job = run.job_of(task)
        inherits = run.job_index[job].inherits
        return [run.first_tensor[job] + t for t in inherits.get(run.operator_of(task), ())]

    # -- where they are -------------------------------------------------------------------------

    def home(self, tensor: int) -> int:
        """The space that a tensor crosses from, or everywhere."""
        return self._run.tensor_home[tensor]

    def move_home(self, tensor: int, space: int) -> None:
        """From now on it crosses from ``space``."""
        self._run.tensor_home[tensor] = space

    def is_brought(self, tensor: int) -> bool:
        """Whether a tensor lies somewhere, and not everywhere."""
        run = self._run
        job = run.job_of_tensor(tensor)
        brought = tensor - run.first_tensor[job] in run.job_index[job].inputs
        if brought and run.jobs[job].origin is None:
            return False
        return self.home(tensor) != EVERYWHERE

    def is_to_come(self, tensor: int) -> bool:
        """Whether a tensor that lies nowhere is a weight, or an input of a job in the system, that waits for room."""
        run = self._run
        if is_weight(run, tensor):
            return True
        wanted = not all(map(run.is_done, self.readers(tensor)))
        return (
            wanted and run.tensor_written[tensor] < math.inf and not run.has_left(self.job(tensor))
        )

    def forget_copy(self, tensor: int, space: int) -> None:
        """A copy is not there, nor on its way."""
        self._run.forget_copy(tensor, space)
