"""Jobs of a run on hardware: what makes their tasks runnable, alone and several as one.

A batch's inputs are concatenated by the worker that reads them first, right before its operator; its
results are divided, as views, when the operator that writes them has finished.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from calibration.joining import Cut, Joint, cut
from calibration.moving import MovingRun
from calibration.program import Kind, Tensors
from calibration.segment_kernel import Runnable
from simulator.context import EVERYWHERE
from simulator.context.serving import SERVING
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job

Inputs = Mapping[DataflowGraph, Tensors | Sequence[Tensors]]


class ServingRun(MovingRun):
    """The part of a run that knows what jobs execute. Everything happens under ``_lock``."""

    offers = SERVING | {"pack"}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unfinished = 0  # tasks
        self._given: dict[DataflowGraph, list[Tensors]] = {}
        self._turns: Counter[DataflowGraph] = Counter()  # jobs of each graph so far
        self._taken: list[Tensors] = []  # by job: its inputs
        # By task: what a worker needs, in global tensor numbers.
        self._kernels: dict[Kind, list[Runnable]] = {kind: [] for kind in self._machine.kinds}
        self._arguments: list[tuple[int, ...]] = []
        self._results: list[tuple[int, ...]] = []
        self._consumed: list[tuple[int, ...]] = []
        self.start_time: list[float] = []
        # Of batches.
        self._joints: dict[int, Joint] = {}  # by leader
        self._joining: dict[int, Joint] = {}  # by task that reads inputs of a batch
        self._cuts: dict[int, dict[int, Cut]] = {}  # by leader: of its graph's outputs
        self._whole: dict[int, Cut] = {}  # leaders' results that later operators read, too
        self._splitting_seconds = 0.0

    def _checked_inputs(self, inputs: Inputs) -> dict[DataflowGraph, list[Tensors]]:
        """For each graph of a job the sets of inputs that its jobs take in turn."""
        for graph in self._workload.graphs:
            self._machine.program(graph)
        found = {}
        for graph in dict.fromkeys(job.graph for job in self._workload):
            given = inputs.get(graph, {})
            sets = [given] if isinstance(given, Mapping) else list(given)
            if not sets:
                raise InvalidInput(f"Graph '{graph.name}' has an empty list of inputs")
            for index in graph.inputs:
                name = graph.tensors[index].name
                if any(name not in tensors for tensors in sets):
                    raise InvalidInput(f"Graph '{graph.name}' needs the input '{name}'")
            found[graph] = sets
        return found

    def _arrive(self, job: Job) -> None:
        graph = job.graph
        program = self._machine.program(graph)
        number = self._admit(job)
        first = self.first_tensor[number]
        sets = self._given[graph]
        given = sets[self._turns[graph] % len(sets)]
        self._turns[graph] += 1
        self._taken.append(given)
        self._unfinished += len(graph)
        self.start_time += [0.0] * len(graph)
        for kind, kernels in self._kernels.items():
            kernels += program.kernels[kind]
        for name, rows in (
            ("_arguments", program.reads),
            ("_results", graph.writes),
            ("_consumed", graph.activations_read),
        ):
            getattr(self, name).extend(tuple(first + t for t in row) for row in rows)
        self._readers += program.readers
        for space, (held, weights) in enumerate(zip(self._values, program.weights, strict=True)):
            values: list[torch.Tensor | None] = [None] * len(graph.tensors)
            for tensor, value in weights.items():
                # What an operator changes is the job's own; other jobs and the module keep theirs.
                values[tensor] = value.clone() if tensor in program.changed else value
            for tensor in graph.inputs:
                if self.tensor_home[first + tensor] in (space, EVERYWHERE):
                    place = self._machine.memories[space]
                    value = given[graph.tensors[tensor].name]
                    values[tensor] = value.to(place, copy=tensor in program.changed)
            held += values

    def _may_serve(self) -> bool:
        return bool(SERVING & self.scheduler.needs)

    def _note_batch(self, leader: int, graph: DataflowGraph) -> None:
        members = self.members[leader]
        self._unfinished -= sum(len(self.tasks_of(job)) for job in members[1:])
        own = self.jobs[leader].graph
        if graph is not own:
            self._run_by(leader, own, graph)
        if len(members) == 1:
            return
        first = self.first_tensor[leader]
        inputs = []
        for t in graph.inputs:
            tensors = [self.first_tensor[job] + t for job in members]
            inputs.append((graph.tensors[t].name, tensors, self._cut(members, graph, t)))
        given = frozenset(graph.inputs)
        self._cuts[leader] = {
            t: self._cut(members, graph, t) for t in graph.outputs if t not in given
        }
        home = self.tensor_home[first + graph.inputs[0]] if graph.inputs else EVERYWHERE
        joint = self._joints[leader] = Joint(home, len(members), inputs)
        first_task = self.first_task[leader]
        for operator, row in enumerate(graph.activations_read):
            if not given.isdisjoint(row):
                self._joining[first_task + operator] = joint

    def _run_by(self, leader: int, own: DataflowGraph, graph: DataflowGraph) -> None:
        """Let a job's tasks run another graph."""
        if [*own.predecessors] != [*graph.predecessors]:
            raise SchedulingError(
                f"Job {leader} of '{own.name}' cannot be served by '{graph.name}' at batch "
                f"{graph.batch}: their operators depend on each other in different ways"
            )
        program = self._machine.program(graph)
        tasks = slice(self.first_task[leader], self.first_task[leader] + len(graph))
        first = self.first_tensor[leader]
        tensors = slice(first, first + len(graph.tensors))
        for kind, kernels in self._kernels.items():
            kernels[tasks] = program.kernels[kind]
        for name, rows in (
            ("_arguments", program.reads),
            ("_results", graph.writes),
            ("_consumed", graph.activations_read),
        ):
            getattr(self, name)[tasks] = [tuple(first + t for t in row) for row in rows]
        self._readers[tensors] = program.readers
        for held, weights in zip(self._values, program.weights, strict=True):
            for tensor, value in weights.items():
                held[first + tensor] = value

    def _graph_of(self, job: int) -> DataflowGraph:
        """The graph that serves a job, at the job's own batch."""
        entry = self.jobs[job]
        graph, size = self.served_by.get(job, entry.graph), entry.batch or 1
        if (graph.batch or 1) == size:
            return graph
        return self._workload.batches.get(graph, {}).get(size, entry.graph)

    def _cut(self, members: Sequence[int], graph: DataflowGraph, tensor: int) -> Cut:
        alone = [self._machine.program(self._graph_of(job)).specs[tensor] for job in members]
        together = self._machine.program(graph).specs[tensor]
        return cut(graph.tensors[tensor].name, alone, together)

    def _divide(
        self,
        leader: int,
        task: int,
        values: list[torch.Tensor | None],
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """Give each job of a batch its share of the results that a task has written."""
        began = time.perf_counter()
        cuts, first = self._cuts[leader], self.first_tensor[leader]
        members = self.members[leader]
        for tensor, value in zip(self._results[task], written, strict=True):
            how = cuts.get(tensor - first)
            if how is None:
                continue
            shares = how.shares(value)
            for job, share in zip(members[1:], shares[1:], strict=True):
                values[self.first_tensor[job] + tensor - first] = share
            if self.job_index[leader].consumers[tensor - first]:
                self._whole[tensor] = how
            else:
                values[tensor] = shares[0]
        self._splitting_seconds += time.perf_counter() - began

    def reject(self, job: int, reason: str) -> None:
        """See :class:`BatchingContext`."""
        super().reject(job, reason)
        self._unfinished -= len(self.tasks_of(job))

    def _join(self, job: int, space: int) -> None:
        joint = self._joints.get(job)
        if joint is not None:
            joint.gather(self._values[space], space)

    def _outputs(self, job: int) -> dict[str, torch.Tensor]:
        if job in self.rejected:
            return {}
        graph = self._graph_of(job)
        first = self.first_tensor[job]
        together = len(self.members.get(self.leader.get(job, job), ())) > 1
        found = {}
        for tensor in graph.outputs:
            name = graph.tensors[tensor].name
            if together and tensor in graph.inputs:  # handed on as it came
                own = self.jobs[job].graph
                found[name] = self._taken[job][own.tensors[tensor].name]
                continue
            home = self.tensor_home[first + tensor]
            space = self.destination[job]
            if space == EVERYWHERE:
                space = home if home != EVERYWHERE else 0
            value = self._values[space][first + tensor]
            if value is None:  # an input that the model hands on, where it lay
                value = self._values[home][first + tensor]
            assert value is not None
            if first + tensor in self._whole:
                value = self._whole[first + tensor].shares(value)[0]
            found[name] = value
        return found
