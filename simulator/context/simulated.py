"""A simulated run as the parts of the engine see it: its state, and what they may ask of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import MutableSequence
from typing import TYPE_CHECKING

from simulator.context.packing import Message
from simulator.context.serving import BatchingContext
from simulator.model.cluster import Cluster, Route
from simulator.model.costs import CostTable

if TYPE_CHECKING:
    from simulator.clock import Clock
    from simulator.links.flows import Flow

Request = tuple[int, int, int, float, float, float, float]
"""Tensor, destination, source, when it was made, believed start and end, bytes; start and end are those of its
message if it is packed."""


class SimulatedRun(BatchingContext):
    """Simulated time beside the state that both worlds share.

    Args:
        cluster: as it is.
        believed: as the scheduler sees it, of the same devices, memory spaces and links.
        costs: believed.
        movement: ``push`` or ``pull``.
        contention: the name of a link model.
        clock: simulated time.

    Attributes:
        real: the cluster as it is; ``cluster`` is what is believed of it.
        start_time, finish_time: by task, seconds; ``inf`` until they are known.
        task_slot: by task, the slot of its device that it runs on.
        free_slots: by device.
        touched: devices that look at their queue when the instant ends.
        due: tasks that finish at this instant.
        requested: transfers that were asked for at this instant.
        packed: messages of this instant, by tensor and destination.
        under_way: flows that were sent and have not ended, by tensor and destination.
        serving: whether the scheduler serves jobs in batches.
        attempts: by task that has to run again, its executions that are over.
        failed_jobs: when each failed, seconds, and why.
    """

    world = "simulated"

    def __init__(
        self,
        cluster: Cluster,
        believed: Cluster,
        costs: CostTable,
        movement: str,
        contention: str,
        clock: Clock,
    ) -> None:
        cluster.check_same_parts(believed)
        super().__init__(believed, costs, movement, contention)
        self.real = cluster
        self.clock = clock
        self.start_time: MutableSequence[float] = []
        self.finish_time: MutableSequence[float] = []
        self.task_slot: MutableSequence[int] = []
        self.free_slots: list[list[int]] = [list(range(n)) for n in self.slots]
        self.touched: set[int] = set()
        self.due: list[int] = []
        self.requested: list[Request] = []
        self.packed: dict[tuple[int, int], Message] = {}
        self.under_way: dict[tuple[int, int], Flow] = {}
        self.serving = False
        self.attempts: dict[int, int] = {}
        self.failed_jobs: dict[int, tuple[float, str]] = {}
        self._routes: list[list[Route | None]] = [
            [None] * len(cluster.spaces) for _ in cluster.spaces
        ]

    def _add_tasks(self, count: int) -> None:
        super()._add_tasks(count)
        self.start_time += [math.inf] * count
        self.finish_time += [math.inf] * count
        self.task_slot += [0] * count

    def forget_forecasts(self) -> None:
        """What is believed of when devices are available must be worked out again."""
        self.stale = [True] * len(self.stale)

    def route(self, source: int, destination: int) -> Route:
        """See :class:`SchedulingContext`."""
        route = self._routes[source][destination]
        if route is None:
            route = self.cluster.route(source, destination)
            self._routes[source][destination] = route
        return route

    def tensor_bytes(self, tensor: int) -> float:
        """Bytes of a tensor, as the graph that its job runs has it."""
        job = self.job_of_tensor(tensor)
        return self.job_index[job].bytes[tensor - self.first_tensor[job]]

    def own_bytes(self, tensor: int) -> float:
        """Bytes of a tensor as its job's own graph has it, of which one that leads a batch moves its share."""
        job = self.job_of_tensor(tensor)
        return float(self.jobs[job].graph.tensor_bytes[tensor - self.first_tensor[job]])

    def readers_of(self, tensor: int) -> list[int]:
        """The tasks that read a tensor."""
        job = self.job_of_tensor(tensor)
        first = self.first_task[job]
        return [first + r for r in self.job_index[job].consumers[tensor - self.first_tensor[job]]]

    # -- what the engine does for its parts -----------------------------------------------------

    @abstractmethod
    def request(self, tensor: int, space: int, size: float) -> None:
        """Ask for a transfer now, unless the tensor is there or was asked for."""

    @abstractmethod
    def book_again(self, requests: list[Request]) -> None:
        """Book these in place of all requests of this instant."""

    @abstractmethod
    def is_wanted(self, tensor: int, space: int, without: int) -> bool:
        """Whether a placed task other than ``without``, or its job, wants a tensor in a space."""

    @abstractmethod
    def forget_copy(self, tensor: int, space: int) -> None:
        """A copy is gone, or was given up before it was sent: who wants it must ask again."""

    @abstractmethod
    def is_under_way(self, tensor: int, space: int) -> bool:
        """Whether a transfer of a tensor to a space was sent at an earlier instant and has not ended."""

    @abstractmethod
    def has_left(self, job: int) -> bool:
        """Whether a job has failed or was refused."""

    @abstractmethod
    def is_done(self, task: int) -> bool:
        """Whether a task has finished and need not run again, where tasks may have to."""

    @abstractmethod
    def let_go(self, tensor: int) -> None:
        """A tensor lies nowhere any more; only what runs again could want it."""

    @abstractmethod
    def is_beyond_faults(self, job: int) -> None:
        """A job is done, its results are where they must be."""

    @abstractmethod
    def found_room(self, job: int) -> None:
        """A job's inputs lie where they come from."""

    @abstractmethod
    def admits(self, task: int, device: int) -> bool:
        """Whether the head of a queue, which must be taken then, has its data and its room."""

    @abstractmethod
    def take(self, device: int) -> None:
        """Take the head of a queue out of it: it can no longer be withdrawn."""

    @abstractmethod
    def execute(self, task: int, device: int, slot: int) -> None:
        """Let a task that was taken begin now."""

    @abstractmethod
    def wake(self, moment: float) -> None:
        """Have the scheduler asked at a moment."""
