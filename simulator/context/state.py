"""The state of a run: jobs, tasks, tensors and queues as lists indexed by integers, and how events change it.

Tasks, devices, memory spaces, jobs and tensors are integers. A task is one operator of one job: the
tasks of a job are consecutive, in the order of its graph's operators. Tensor numbers are global too:
each job has its own copy of its graph's tensors.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from heapq import heapify, heappop
from typing import TypeVar

import numpy as np

from simulator.context.graph_index import GraphIndex
from simulator.model.cluster import Cluster, Route
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job

EVERYWHERE = -1
"""Home of a tensor that lies in every memory space."""


T = TypeVar("T")
Wire = tuple[int, float, float, tuple[int, ...]]
Queued = tuple[float, int, int]
"""Rank, number of the placement, task."""


def entries(column: Sequence[T] | Mapping[int, T]) -> Iterable[tuple[int, T]]:
    """Numbers and values of a column by job, task or tensor; of a window only those that are kept."""
    return column.items() if isinstance(column, Mapping) else enumerate(column)


class RunState:
    """Columns by job, task, tensor, device and memory space, shared by both worlds.

    Attributes:
        now: the clock, seconds.
        cluster: devices, memory spaces and links.
        movement: ``push`` or ``pull`` (design: semantics).
        contention: ``none``, ``fifo`` or ``fair``.
        arrived: jobs (numbers) that arrived at this instant.
        ready: tasks whose predecessors have all finished as of this instant, ascending.
        finished: tasks that finished at this instant, ascending.
        lost: tasks that a fault took from their device, or whose output it took, at this instant,
            ascending; they are placed nowhere. A batch is lost as a whole: these are its leader's tasks, and
            whoever serves places them again. Of a waiting job whose inputs, sent ahead, were lost or called
            off, the tasks that are ready: its inputs lie where they came from, and must be sent again.
        failed: jobs that failed at this instant; their tasks run no more.
        delivered: jobs whose inputs, sent ahead, are all there as of this instant.
        jobs: every job that has arrived.
    """

    def __init__(self, cluster: Cluster, costs: CostTable, movement: str, contention: str) -> None:
        self.now = 0.0
        self.cluster = cluster
        self.movement = movement
        self.contention = contention
        self.arrived: list[int] = []
        self.ready: list[int] = []
        self.finished: list[int] = []
        self.lost: list[int] = []
        self.failed: list[int] = []
        self.delivered: list[int] = []
        self.jobs: list[Job] = []
        self.explain: Callable[[str], None] | None = None
        """Where schedulers report each decision in one line; None when nobody listens."""

        self.believed_costs = costs
        self.pushes = movement == "push"
        self.space_of = cluster.space_of
        self._overhead = np.array([device.launch_overhead for device in cluster.devices])
        self._index: dict[DataflowGraph, GraphIndex] = {}
        self.job_index: list[GraphIndex] = []
        self.first_task: list[int] = []
        self.first_tensor: list[int] = []
        self.tasks_left: list[int] = []  # unfinished tasks of each job
        self.destination: list[int] = []  # memory space where each job's outputs must arrive
        self.done_at: list[float] = []  # last finish or delivery of each job so far
        # By task.
        self.task_job: list[int] = []
        self.pending: MutableSequence[int] = []
        self.task_device: MutableSequence[int] = []  # -1 until placed
        self.task_sequence: MutableSequence[int] = []  # number of the placement
        self.task_rank: MutableSequence[float] = []
        self.ready_at: MutableSequence[float] = []
        self.placed_at: MutableSequence[float] = []
        self.started: MutableSequence[bool] = []
        self.expected_finish: MutableSequence[float] = []  # believed finish, while placed
        # By tensor.
        self._tensors = 0
        self.tensor_home: MutableSequence[int] = []
        self.tensor_written: MutableSequence[float] = []
        # By memory space: tensor -> arrival.
        self.copies: list[dict[int, float]] = [{} for _ in cluster.spaces]
        # By device.
        devices = len(cluster.devices)
        self.queues: MutableSequence[list[Queued]] = [[] for _ in range(devices)]
        self.slots = [device.slots for device in cluster.devices]
        # Whether a device can begin a task as soon as it has ended the one before.
        self._serial = [d.slots == 1 and not d.completion_latency for d in cluster.devices]
        self._issue_overheads = [device.issue_overhead for device in cluster.devices]
        # Devices whose queue is projected in another way: they are submitted to ahead.
        self._projections: dict[int, Callable[[], float]] = {}
        self.tail_rank = [0.0] * devices  # largest rank in the queue, where it is not empty
        self.load: MutableSequence[int] = [0] * devices  # placed and unfinished
        self._idle = list(range(devices))  # those of fewer than their slots, ascending
        self.down = [0] * devices  # failures in force
        self._fails = False  # whether any device may ever be down
        self.running: MutableSequence[list[int]] = [[] for _ in range(devices)]
        self._available: MutableSequence[float] = [0.0] * devices
        # Whether _available must be worked out again.
        self.stale: MutableSequence[bool] = [False] * devices
        self._placements = 0
        # Told of a task and the rank that was asked for before its placement changes.
        self.noted: Callable[[int, float | None], None] | None = None
        self.returned = False  # whether a task ever left a device unfinished, or runs again
        self._restricted = False  # whether some tasks must not be placed although they are not
        self.members: dict[int, tuple[int, ...]] = {}  # by leader: all jobs of its batch
        self.channel_free: MutableSequence[float] = [0.0] * len(cluster.channels)
        # By source and destination: first channel, latency, bandwidth and all channels of the route.
        self.wires: list[list[Wire | None]] = [[None] * len(cluster.spaces) for _ in cluster.spaces]

    def job_of(self, task: int) -> int:
        """The job that a task belongs to."""
        return self.task_job[task]

    def tasks_of(self, job: int) -> range:
        """The tasks of a job, in the topological order of its graph."""
        first = self.first_task[job]
        return range(first, first + len(self.job_index[job].pending))

    def operator_of(self, task: int) -> int:
        """Index of a task's operator in its job's graph."""
        return task - self.first_task[self.task_job[task]]

    def label(self, task: int) -> str:
        """A task's name for people: the operator, and the job where there are several."""
        job = self.task_job[task]
        name = self.job_index[job].graph.operators[self.operator_of(task)].name
        return name if len(self.jobs) == 1 else f"{name}#{job}"

    def is_ready(self, task: int) -> bool:
        """Whether all predecessors have finished."""
        return not self.pending[task]

    def device_of(self, task: int) -> int:
        """The device a task is placed on, -1 if none."""
        return self.task_device[task]

    def job_of_tensor(self, tensor: int) -> int:
        """The job that a (global) tensor belongs to."""
        return bisect_right(self.first_tensor, tensor) - 1

    def head(self, device: int) -> int:
        """The task that a device must run next, -1 if its queue is empty."""
        queue = self.queues[device]
        return queue[0][2] if queue else -1

    def route(self, source: int, destination: int) -> Route:
        """The route between two memory spaces."""
        return self.cluster.route(source, destination)

    def lay_wire(self, source: int, destination: int) -> Wire:
        """Keep a route as plain numbers, for pricing."""
        route = self.route(source, destination)
        wire = (route.channels[0], route.latency, route.bandwidth, route.channels)
        self.wires[source][destination] = wire
        return wire

    def successors_of(self, task: int) -> list[int]:
        """The tasks that wait for a task."""
        job = self.task_job[task]
        first = self.first_task[job]
        return [first + s for s in self.job_index[job].successors[task - first]]

    def predecessors_of(self, task: int) -> list[int]:
        """The tasks that a task waits for."""
        job = self.task_job[task]
        first = self.first_task[job]
        return [first + p for p in self.job_index[job].graph.predecessors[task - first]]

    def _index_of(self, graph: DataflowGraph) -> GraphIndex:
        index = self._index.get(graph)
        if index is None:
            index = GraphIndex(graph, self.believed_costs[graph], self._overhead)
            self._index[graph] = index
        return index

    def _admit(self, job: Job) -> int:
        """Register a job that arrives now; its source tasks become ready."""
        number = len(self.jobs)
        graph = job.graph
        index = self._index_of(graph)
        first_task = len(self.task_job)
        first_tensor = self._tensors
        tasks = len(graph)
        self._tensors += len(graph.tensors)
        self.jobs.append(job)
        self.job_index.append(index)
        self.first_task.append(first_task)
        self.first_tensor.append(first_tensor)
        self.tasks_left.append(tasks)
        self.destination.append(
            EVERYWHERE if job.destination is None else self.cluster.space_index[job.destination]
        )
        self.done_at.append(self.now)
        self.task_job += [number] * tasks
        self._add_to_data(index)
        self._add_tasks(tasks)
        origin = EVERYWHERE if job.origin is None else self.cluster.space_index[job.origin]
        for tensor in index.inputs:
            self.tensor_home[first_tensor + tensor] = origin
            self.tensor_written[first_tensor + tensor] = self.now
        self.arrived.append(number)
        for operator in index.sources:
            self.ready.append(first_task + operator)
            self.ready_at[first_task + operator] = self.now
        return number

    def _add_tasks(self, count: int) -> None:
        """Make room for what is kept of a new job's tasks."""
        self.task_device += [-1] * count
        self.task_sequence += [0] * count
        self.task_rank += [0.0] * count
        self.ready_at += [math.inf] * count
        self.placed_at += [math.inf] * count
        self.started += [False] * count
        self.expected_finish += [math.inf] * count

    def _add_to_data(self, index: GraphIndex) -> None:
        """Make room for what is kept of a new job's tensors and of what its tasks wait for."""
        tensors = len(index.graph.tensors)
        self.pending += index.pending
        self.tensor_home += [EVERYWHERE] * tensors
        self.tensor_written += [math.inf] * tensors

    def _complete(self, task: int, device: int) -> list[int]:
        """Apply a task's finish now; returns the tasks that it made ready."""
        job = self.task_job[task]
        index = self.job_index[job]
        first = self.first_task[job]
        space = self.space_of[device]
        first_tensor = self.first_tensor[job]
        homes, written, now = self.tensor_home, self.tensor_written, self.now
        for tensor in index.writes[task - first]:
            number = first_tensor + tensor
            if written[number] == math.inf:  # or else it ran again, and this was not lost
                homes[number] = space
                written[number] = now
        load = self.load[device] = self.load[device] - 1
        if load == self.slots[device] - 1:
            insort(self._idle, device)
        self.running[device].remove(task)
        if self.expected_finish[task] != now:
            self.stale[device] = True
        left_of = self.tasks_left
        left_of[job] -= 1
        if self.members and not left_of[job] and job in self.members:
            for member in self.members[job][1:]:
                left_of[member] = 0
                self.done_at[member] = now
        pending, device_of, returned = self.pending, self.task_device, self.returned
        released = []
        for operator in index.successors[task - first]:
            successor = first + operator
            left = pending[successor] = pending[successor] - 1
            if left:
                continue
            self.ready_at[successor] = now
            if returned and self.started[successor]:  # before this task had to run again
                continue
            released.append(successor)
            if device_of[successor] >= 0:  # when its data arrives is known from now on
                self.stale[device_of[successor]] = True
        self.ready += released
        return released

    def _start(self, device: int) -> int:
        """Take the head of a device's queue into execution."""
        task = heappop(self.queues[device])[2]
        self.running[device].append(task)
        return task

    def occupy(self, device: int) -> None:
        """One task more is placed on a device."""
        load = self.load[device] = self.load[device] + 1
        if load == self.slots[device]:
            self._idle.remove(device)

    def vacate(self, device: int) -> None:
        """One task fewer is."""
        load = self.load[device] = self.load[device] - 1
        if load == self.slots[device] - 1:
            insort(self._idle, device)

    def _unqueue(self, task: int, device: int) -> None:
        """Take a task out of a device's queue."""
        queue = self.queues[device]
        queue.remove((self.task_rank[task], self.task_sequence[task], task))
        heapify(queue)

    def drop(self, task: int) -> None:
        """Take a started task from its device; its execution is lost."""
        self.returned = True
        device = self.task_device[task]
        self.running[device].remove(task)
        self.started[task] = False
        self.task_device[task] = -1
        self.vacate(device)
        self.stale[device] = True

    def reopen(self, task: int) -> list[int]:
        """A finished task must run again; returns the tasks that were ready and wait for it now."""
        job = self.task_job[task]
        first = self.first_task[job]
        self.returned = True
        self.tasks_left[job] += 1
        self.started[task] = False
        self.task_device[task] = -1
        held = []
        for operator in self.job_index[job].successors[task - first]:
            successor = first + operator
            if not self.pending[successor]:
                held.append(successor)
            self.pending[successor] += 1
        return held

    def _clear_instant(self) -> None:
        """The scheduler has heard of everything."""
        self.ready.clear()
        self.finished.clear()
        if self.arrived:
            self.arrived.clear()
        if self.delivered:
            self.delivered.clear()
        if self.lost or self.failed:
            self.lost.clear()
            self.failed.clear()
