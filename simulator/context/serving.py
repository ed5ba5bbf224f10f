"""Serving verbs of the scheduling context: inputs sent ahead, jobs served together, jobs refused.

A batch is one execution of a graph of a larger batch for several jobs that wait in one memory space:
their inputs are concatenated there, every operator runs once for all, and each job's share of the results
goes its own way. The first of them *leads*: its tasks run the batch's graph, the others' never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simulator.context.scheduling import EVERYWHERE, SchedulingContext
from simulator.errors import SchedulingError
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Workload

SERVING = frozenset({"batch"})
"""Ability that a scheduler declares for :meth:`BatchingContext.batch`, ``send`` and ``reject``."""


class BatchingContext(SchedulingContext):
    """See the module docstring; what both worlds have in common."""

    _workload: Workload

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.leader: dict[int, int] = {}  # of the others
        self.served_by: dict[int, DataflowGraph] = {}  # by job, where not by its own graph
        self.coming: dict[int, tuple[int, int]] = {}  # job: space, inputs still on their way
        self.rejected: dict[int, tuple[float, str]] = {}  # when and why

    # -- what a scheduler may ask ---------------------------------------------------------------

    @property
    def workload(self) -> Workload:
        """All jobs, those to come among them: for ceilings, not for schedulers."""
        return self._workload

    def graphs_for(self, job: int) -> Mapping[int, DataflowGraph]:
        """The graphs that can serve a job, alone and with others, by their batch."""
        graph = self.jobs[job].graph
        return self._workload.batches.get(graph) or {graph.batch or 1: graph}

    def variants_of(self, job: int) -> list[DataflowGraph]:
        """The graphs by which a job alone may be served: its own, and those of other models that are
        accurate enough for it; its own comes first, whatever its accuracy.
        """
        entry = self.jobs[job]
        accuracies = self._workload.accuracies
        others = [
            graph
            for graph in self._workload.variants.get(entry.graph, ())
            if accuracies.get(graph, 1.0) >= entry.least_accuracy
        ]
        return [entry.graph, *others]

    def accuracy_of(self, graph: DataflowGraph) -> float:
        """Of the model of a graph, 0 to 1; 1 where nobody said."""
        return self._workload.accuracies.get(graph, 1.0)

    def serving_seconds(self, graph: DataflowGraph) -> list[float]:
        """Believed seconds of all operators of a graph one after another, on every device."""
        total: list[float] = self._index_of(graph).matrix.sum(axis=0).tolist()
        return total

    def is_waiting(self, job: int) -> bool:
        """Whether nothing of a job was placed yet, and it belongs to no batch."""
        if job in self.leader or job in self.members or job in self.rejected:
            return False
        first, count = self.first_task[job], len(self.job_index[job].pending)
        if count == 1:  # the usual request
            return self.task_device[first] < 0 and bool(self.tasks_left[job])
        return all(self.task_device[t] < 0 for t in range(first, first + count)) and bool(
            self.tasks_left[job]
        )

    def inputs_in(self, job: int) -> set[int] | None:
        """Memory spaces where all of a job's inputs are now; None: wherever they are wanted."""
        first = self.first_tensor[job]
        found: set[int] | None = None
        inputs = self.job_index[job].inputs
        if len(inputs) == 1:
            home = self.tensor_home[first + inputs[0]]
            return None if home == EVERYWHERE else {home}
        for t in inputs:
            home = self.tensor_home[first + t]
            if home != EVERYWHERE:
                found = {home} if found is None else found & {home}
        return found

    def awaits_room(self, job: int) -> bool:
        """Whether a waiting job's inputs have found no room yet in the memory space where it arose; it
        is among :attr:`delivered` when they have.
        """
        return False

    def inputs_under_way(self, job: int) -> list[int]:
        """The tensors of a job that were sent ahead and are not there yet."""
        if job not in self.coming:
            return []
        space, first = self.coming[job][0], self.first_tensor[job]
        tensors = (first + t for t in self.job_index[job].inputs)
        return [t for t in tensors if self.tensor_home[t] not in (space, EVERYWHERE)]

    def has_failed(self, job: int) -> bool:
        """Whether a job has failed, so that its tasks run no more."""
        return False

    # -- what a scheduler may do ----------------------------------------------------------------

    def send(self, job: int, space: int) -> None:
        """Bring a waiting job's inputs to a memory space ahead of any placement; they lie there then.

        When all of them are there, the job is among :attr:`delivered`, and the scheduler is asked.

        Raises:
            SchedulingError: the job does not wait, its inputs are there or on their way already, or the
                scheduler did not declare the ability ``batch``.
        """
        self._check_serving(job)
        if not 0 <= space < len(self.cluster.spaces):
            raise SchedulingError(f"There is no memory space {space} to send job {job} to")
        here = self.inputs_in(job)
        if here is None or space in here or job in self.coming:
            raise SchedulingError(
                f"The inputs of job {job} are in '{self.cluster.spaces[space].name}', or on their way, "
                "already"
            )
        index, first = self.job_index[job], self.first_tensor[job]
        away = [t for t in index.inputs if self.tensor_home[first + t] not in (space, EVERYWHERE)]
        self.coming[job] = (space, len(away))
        for t in away:
            self.request(first + t, space, index.bytes[t])

    def batch(self, jobs: Iterable[int], graph: DataflowGraph | None = None) -> int:
        """Serve waiting jobs as one, by a graph of the sum of their batches.

        Args:
            jobs: their numbers; their inputs lie in one memory space, and the batch runs from there.
            graph: which graph serves them; None: that of :meth:`graphs_for` the first job for the sum
                of their batches. Another model's graph (a *variant*) must have as many operators and
                tensors, the same of them inputs and outputs.

        Returns:
            The leader, a job whose tasks now run ``graph``: place these.

        Raises:
            SchedulingError: a job does not wait, or one twice; their inputs lie apart; there is no graph
                for so many; the scheduler did not declare the ability ``batch``.
        """
        members = tuple(jobs)
        if not members or len(set(members)) < len(members):
            raise SchedulingError(f"A batch needs jobs, each once; got {list(members)}")
        for job in members:
            self._check_serving(job)
        leader = members[0]
        own = self.jobs[leader].graph
        total = sum(self.jobs[job].batch or 1 for job in members)
        if graph is None:
            graph = self.graphs_for(leader).get(total)
            if graph is None:
                raise SchedulingError(
                    f"There is no graph of '{own.name}' for a batch of {total}; prepared are "
                    f"{', '.join(str(b) for b in self.graphs_for(leader))}"
                )
        if (graph.batch or 1) != total:
            raise SchedulingError(
                f"Jobs of {total} in all cannot be served by '{graph.name}' at batch {graph.batch}"
            )
        alike: DataflowGraph | None = None
        for job in members:
            other = self.jobs[job].graph
            if other is not alike and not _is_alike(other, graph):
                raise SchedulingError(
                    f"Job {job} of '{other.name}' cannot be served by '{graph.name}': they differ in "
                    "the number of operators or tensors, or in which of them are inputs or outputs"
                )
            alike = other
        space = self._common_space(members)
        index = self._index_of(graph)
        first = self.first_tensor[leader]
        if space is not None:
            for t in index.inputs:
                self.tensor_home[first + t] = space
                self.tensor_written[first + t] = min(self.tensor_written[first + t], self.now)
        self.job_index[leader] = index
        self.members[leader] = members
        self._restricted = True
        for job in members:
            if self.jobs[job].graph is not graph:
                self.served_by[job] = graph
        others = set(members[1:])
        self.leader.update(dict.fromkeys(others, leader))
        if others and self.ready:
            self.ready = [task for task in self.ready if self.task_job[task] not in others]
        self._note_batch(leader, graph)
        return leader

    def reject(self, job: int, reason: str) -> None:
        """Refuse to serve a waiting job.

        Raises:
            SchedulingError: the job does not wait, or the scheduler did not declare the ability
                ``batch``.
        """
        self._check_serving(job)
        self._restricted = True
        self.rejected[job] = (self.now, reason)
        self.coming.pop(job, None)  # what is under way arrives, but nobody is told
        self.tasks_left[job] = 0
        self.done_at[job] = self.now
        self.ready = [task for task in self.ready if self.task_job[task] != job]

    # -- bookkeeping ----------------------------------------------------------------------------

    def is_barred(self, task: int) -> bool:
        """Whether a task never runs: another leads its batch, or its job was refused."""
        return self.task_job[task] in self.leader or self.task_job[task] in self.rejected

    def take_back_rejection(self, job: int, done_at: float, coming: tuple[int, int] | None) -> None:
        """A job that was refused in this decision is not refused yet."""
        del self.rejected[job]
        self.tasks_left[job], self.done_at[job] = len(self.tasks_of(job)), done_at
        if coming is not None:
            self.coming[job] = coming

    def _may_serve(self) -> bool:
        """Whether the scheduler of this run may use these verbs."""
        raise NotImplementedError

    def _note_batch(self, leader: int, graph: DataflowGraph) -> None:
        """A job's tasks will run another graph."""

    def _check_serving(self, job: int) -> None:
        if not self._may_serve():
            raise SchedulingError(
                "The scheduler serves, sends or refuses jobs without having declared it: "
                'needs = {"batch"}'
            )
        if not 0 <= job < len(self.jobs):
            raise SchedulingError(f"There is no job {job}")
        if not self.is_waiting(job):
            raise SchedulingError(
                f"Job {job} does not wait: it is placed, in a batch, refused or done already"
            )

    def _common_space(self, members: tuple[int, ...]) -> int | None:
        common: set[int] | None = None
        for job in members:
            here = self.inputs_in(job)
            if here is not None and here != common:
                common = here if common is None else common & here
            if job in self.coming or common == set() or self.awaits_room(job):
                raise SchedulingError(
                    f"Job {job} cannot be batched: its inputs are not where those of job {members[0]} "
                    "are; send them there first, or wait until they are"
                )
        if common is None:
            return None
        return min(common)

    def _check_placement(self, task: int, device: int, rank: float | None) -> None:
        super()._check_placement(task, device, rank)
        job = self.task_job[task]
        if job in self.leader:
            raise SchedulingError(
                f"Task '{self.label(task)}' runs with job {self.leader[job]}, which leads its batch"
            )
        if job in self.rejected:
            raise SchedulingError(f"Task '{self.label(task)}' belongs to a job that was refused")

    def _request_result(self, job: int, output: int, space: int) -> None:
        members = self.members.get(job)
        if members is None:
            super()._request_result(job, output, space)
            return
        is_result = output in self.job_index[job].outputs
        for member in members if is_result else (job,):
            tensor = self.first_tensor[member] + output
            if member != job:
                self.tensor_home[tensor] = space
                self.tensor_written[tensor] = self.now
            # The leader's index is that of the batch.
            own = self.job_index[member]
            if is_result and member == job:
                own = self._index_of(self.jobs[member].graph)
            for goal in self.goals(member, output):
                if goal != space:
                    self.request(tensor, goal, own.bytes[output])

    def _note_delivery(self, tensor: int, space: int) -> None:
        """A tensor has arrived: it may have been sent ahead."""
        if not self.coming:
            return
        job = self.job_of_tensor(tensor)
        to, away = self.coming.get(job, (-1, 0))
        if to == space and tensor - self.first_tensor[job] in self.job_index[job].inputs:
            self.tensor_home[tensor] = space
            self.tensor_written[tensor] = self.now
            if away > 1:
                self.coming[job] = (to, away - 1)
            else:
                del self.coming[job]
                self.delivered.append(job)

    def is_sent_ahead(self, tensor: int, space: int) -> bool:
        """Whether a tensor is on its way to a space because a job's inputs were sent there."""
        job = self.job_of_tensor(tensor)
        return self.coming.get(job, (-1, 0))[0] == space


def _is_alike(one: DataflowGraph, two: DataflowGraph) -> bool:
    return one is two or (
        len(one) == len(two)
        and len(one.tensors) == len(two.tensors)
        and one.inputs == two.inputs
        and one.outputs == two.outputs
    )
