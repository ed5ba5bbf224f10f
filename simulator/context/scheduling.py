"""The scheduling context: all that a scheduler may see and do, in both worlds.

The base class keeps what simulation and hardware have in common: jobs, tasks and their readiness,
device queues, where tensors are, and what is *believed* about times. The engine adds simulated time,
the hardware runner adds threads and streams. Nothing here knows the actual times.

Tasks, devices, memory spaces, jobs and tensors are integers. A task is one operator of one job: the
tasks of a job are consecutive, in the order of its graph's operators. Tensor numbers are global too:
each job has its own copy of its graph's tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from simulator.context.state import EVERYWHERE, RunState, entries
from simulator.errors import InvalidInput, SchedulingError
from simulator.links.registry import link_model
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload

MOVEMENTS = ("push", "pull")


class InputTensor(NamedTuple):
    """One tensor that a task reads, as the context knows it."""

    tensor: int
    bytes: float
    space: int
    """Memory space where it was written; ``EVERYWHERE`` needs no transfer."""
    time: float
    """When it was written, seconds; ``inf`` if its producer has not finished."""


class RequestedTransfer(NamedTuple):
    """One tensor that was asked for at this instant, not under way yet."""

    tensor: int
    bytes: float
    source: int
    """Memory space where it lies."""
    destination: int
    """Memory space where it is wanted."""


class Decider(Protocol):
    """What a context must know of a scheduler."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """Abilities beyond placing and withdrawing that it uses."""
        ...


def name_of(scheduler: Decider) -> str:
    """The name of a scheduler in messages: its own, or its class's where it has none."""
    return scheduler.name or type(scheduler).__name__


class SchedulingContext(RunState):
    """See the module docstring. What :class:`RunState` adds to the protocol is for the worlds and their parts."""

    world: ClassVar[str] = ""
    """Where schedules happen: ``simulated`` or ``measured``; the trace says it."""
    offers: frozenset[str] = frozenset()
    """Abilities beyond placing and withdrawing that a scheduler may need."""
    _ways_out: ClassVar[Mapping[str, str]] = {}
    """Which setting offers an ability."""

    def __init__(
        self, cluster: Cluster, costs: CostTable, movement: str = "push", contention: str = "none"
    ) -> None:
        if movement not in MOVEMENTS:
            raise InvalidInput(f"Unknown movement '{movement}'; known: {', '.join(MOVEMENTS)}")
        link_model(contention)
        costs.check_covers(cluster)
        cluster.check_connected()
        super().__init__(cluster, costs, movement, contention)

    # -- what a scheduler may ask ---------------------------------------------------------------

    @property
    def idle(self) -> list[int]:
        """Devices that work and have fewer tasks, running and queued together, than slots, ascending."""
        if self._fails:
            return [device for device in self._idle if not self.down[device]]
        return self._idle.copy()

    @property
    def placeable(self) -> list[int]:
        """What a scheduler that places ready tasks may place from this instant on: those lost that
        are ready, then those that became ready. Tasks lost while their predecessors must run again
        come when they are ready.
        """
        if not self.lost:
            return self.ready
        known = set(self.ready)
        return [t for t in self.lost if self.is_ready(t) and t not in known] + self.ready

    def is_idle(self, device: int) -> bool:
        """Whether a device is among :attr:`idle`."""
        return self.load[device] < self.slots[device]

    def slots_in_use(self, device: int) -> int:
        """Slots of a device that run a task, or have one queued for them."""
        return min(self.load[device], self.slots[device])

    @property
    def forecasts_hold(self) -> bool:
        """Whether :meth:`available` gets earlier only where a task finishes, and a transfer that was
        asked for is believed to take what it would take at any time.
        """
        return False

    @property
    def may_fail(self) -> bool:
        """Whether devices may fail in this run."""
        return self._fails

    def is_up(self, device: int) -> bool:
        """Whether a device works; what is placed on one that does not waits for its recovery."""
        return not self.down[device]

    def seconds(self, task: int) -> Sequence[float]:
        """Believed seconds of a task on every device, launch overhead included; ``inf`` where it
        cannot run.
        """
        job = self.task_job[task]
        return self.job_index[job].seconds[task - self.first_task[job]]

    def able(self, task: int) -> Sequence[int]:
        """The devices that can run a task, ascending."""
        job = self.task_job[task]
        return self.job_index[job].able[task - self.first_task[job]]

    def cost_matrix(self, job: int) -> np.ndarray:
        """Believed seconds [operators, devices] of a job's graph, launch overhead included."""
        return self.job_index[job].matrix

    def cached_parts(self, job: int) -> np.ndarray | None:
        """Believed parts [operators, devices] of the seconds that are left when all weights are cached;
        None where nobody knows.
        """
        return self.job_index[job].costs.cached

    def is_queued(self, task: int) -> bool:
        """Whether a task is placed and has not started: it can still be withdrawn."""
        return self.task_device[task] >= 0 and not self.has_started(task)

    def has_started(self, task: int) -> bool:
        """Whether a placed task has begun to execute: it can no longer be withdrawn."""
        return self.started[task]

    def inputs(self, task: int) -> list[InputTensor]:
        """The tensors a task reads, weights left out."""
        job = self.task_job[task]
        index = self.job_index[job]
        first = self.first_tensor[job]
        return [
            InputTensor(
                first + t,
                index.bytes[t],
                self.tensor_home[first + t],
                self.tensor_written[first + t],
            )
            for t in index.reads[task - self.first_task[job]]
        ]

    def copy_time(self, tensor: int, space: int) -> float | None:
        """When a tensor is (believed to be) in a space; None if no transfer was requested."""
        home = self.tensor_home[tensor]
        if home in (space, EVERYWHERE):
            return self.tensor_written[tensor]
        return self.copies[space].get(tensor)

    def transfer_seconds(self, size: float, source: int, destination: int) -> float:
        """Believed seconds for ``size`` bytes between two spaces over an idle route; 0 within one."""
        if source in (destination, EVERYWHERE):
            return 0.0
        return self.cluster.route(source, destination).seconds(size)

    def transfer_end(self, size: float, source: int, destination: int) -> float:
        """When ``size`` bytes are believed to be there if they are sent now, behind or beside what
        the links carry already.
        """
        begin = self.link_free(source, destination)
        return begin + self.transfer_seconds(size, source, destination)

    def link_free(self, source: int, destination: int) -> float:
        """When the route between two spaces is believed to be free; never before now."""
        if source in (destination, EVERYWHERE):
            return self.now
        free = self.channel_free
        route = self.cluster.route(source, destination)
        return max(self.now, max(free[channel] for channel in route.channels))

    def availabilities(self, devices: Sequence[int]) -> list[float]:
        """:meth:`available` of several devices."""
        now, load, stale, known = self.now, self.load, self.stale, self._available
        running, expected, down = self.running, self.expected_finish, self.down
        found = []
        for device in devices:
            if not load[device] or stale[device] or down[device]:
                found.append(self.available(device))
                continue
            moment = known[device]
            for task in running[device]:
                if expected[task] < now:  # longer than believed
                    moment = self.available(device)
            found.append(moment if moment > now else now)
        return found

    def available(self, device: int) -> float:
        """When a task appended to a device's queue now could begin, its data aside; ``inf`` while the device is
        down.
        """
        if self.down[device]:
            return math.inf
        if not self.load[device]:
            return self.now + self._issue_overheads[device]
        if not self.stale[device]:
            # A task that runs longer than believed moves everything behind it.
            for task in self.running[device]:
                if self.expected_finish[task] < self.now:
                    self.stale[device] = True
        if self.stale[device]:
            self._available[device] = self._project(device)
            self.stale[device] = False
        return max(self.now, self._available[device])

    def free_bytes(self, space: int) -> float:
        """Bytes of a memory space that nothing occupies; ``inf`` where nobody counts."""
        return math.inf

    def waiting_bytes(self, space: int) -> float:
        """Bytes of the copies, weights, inputs and outputs that wait for room in a space."""
        return 0.0

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """Bytes of a graph's weights that lie in a space or are on their way to it."""
        return graph.weight_bytes

    def requests(self) -> list[RequestedTransfer]:
        """What may be packed at this instant, by tensor and destination: the transfers that the
        placements of this decision and the finishes before it asked for, those apart that are packed
        already, and weights, which cross alone.

        Needs the ability ``pack``.

        Raises:
            SchedulingError: the run does not offer packing, or the scheduler did not declare it.
        """
        raise SchedulingError(f"{self.world.capitalize()} runs do not offer pack")

    # -- what a scheduler may do ----------------------------------------------------------------

    def place(self, task: int, device: int, rank: float | None = None) -> None:
        """Put a task into a device's queue; legal before it is ready.

        A device runs its queue strictly in the order of (rank, placement). Without a rank the time
        of placement is the rank.

        Raises:
            SchedulingError: the task is unknown, placed already, or cannot run there; the rank is
                not a number.
        """
        now, seconds = self.now, math.inf
        if 0 <= task < len(self.task_job) and 0 <= device < len(self.load):
            job = self.task_job[task]
            seconds = self.job_index[job].seconds[task - self.first_task[job]][device]
        if seconds == math.inf or self.task_device[task] >= 0 or rank != rank or self._restricted:
            self._check_placement(task, device, rank)
        if self.noted is not None:
            self.noted(task, rank)
        if rank is None:
            rank = now
        sequence = self._placements = self._placements + 1
        self.task_device[task] = device
        self.task_sequence[task] = sequence
        self.task_rank[task] = rank
        self.placed_at[task] = now
        data = self.accept(task, device, rank)
        self._request_state(task, device)
        queue = self.queues[device]
        tail = not queue or rank >= self.tail_rank[device]
        # The common case, a task at the tail of a queue whose end is known, needs no projection.
        known = not self.load[device] or (tail and not self.stale[device])
        if known and self._serial[device]:
            begin = self.available(device)
            if data is None:
                data = self.data_expected(task, device)
            end = (begin if begin > data else data) + seconds
            self._available[device] = self.expected_finish[task] = end
            self.stale[device] = False
        else:
            self.stale[device] = True
        if tail:
            self.tail_rank[device] = rank
        heappush(queue, (rank, sequence, task))
        self.occupy(device)

    def place_job(self, job: int, devices: Sequence[int], ranks: Sequence[float]) -> None:
        """Place every task of a job, as :meth:`place` does one by one in the order of operators.

        Args:
            job: its number.
            devices: for each operator the device.
            ranks: for each operator the rank.

        Raises:
            SchedulingError: as :meth:`place`, or a length is not the number of operators.
        """
        first, _ = self._check_job_placement(job, devices, ranks)
        for task, (device, rank) in enumerate(zip(devices, ranks, strict=True), first):
            self.place(task, int(device), float(rank))

    def withdraw(self, task: int) -> None:
        """Take a task back from its device's queue.

        Raises:
            SchedulingError: it is not placed, or has started.
        """
        device = self.task_device[task]
        if device < 0:
            raise SchedulingError(f"Task '{self.label(task)}' is not placed, so not to withdraw")
        if self.has_started(task):
            raise SchedulingError(f"Task '{self.label(task)}' has started; only queued tasks move")
        if self.noted is not None:
            self.noted(task, None)
        self.returned = True
        self._release(task, device)
        self._unqueue(task, device)
        self.task_device[task] = -1
        self.vacate(device)
        self.stale[device] = True

    def empty_queue(self, device: int) -> list[int]:
        """Withdraw all that is queued on a device; returns the tasks in the queue's order."""
        self.returned = True
        tasks = [task for _, _, task in sorted(self.queues[device])]
        for task in tasks:
            self._release(task, device)
            self.task_device[task] = -1
            self.vacate(device)
        self.queues[device] = []
        self.stale[device] = True
        return tasks

    def wake_at(self, time: float) -> None:
        """Ask for a decision at ``time`` even if nothing else happens then.

        Raises:
            SchedulingError: the time has passed, or is not finite.
        """
        if not self.now <= time < math.inf:
            raise SchedulingError(f"Cannot wake at {time} s: it is {self.now} s now")
        self._wake(time)

    def evict(
        self, graph: DataflowGraph, space: int, weights: Sequence[str] | None = None
    ) -> float:
        """Take weights out of a memory space; whoever reads them there next has them brought again.

        Needs the ability ``evict``, which runs with weights on demand offer.

        Args:
            graph: whose weights.
            space: the memory space.
            weights: their names; None: all that are there and that no task placed there needs.

        Returns:
            Bytes of room that it made.

        Raises:
            SchedulingError: a named weight is not there, or a task placed there needs it; the
                weights come from this very space; the run does not offer eviction.
        """
        raise SchedulingError(f"{self.world.capitalize()} runs do not offer evict")

    def pack(self, transfers: Iterable[tuple[int, int]]) -> None:
        """Ask now for one message that carries tensors from the one memory space where they lie to
        one other space: the latency once, the sum of their bytes, all there at its end.

        A tensor crosses to a space once. What placements and finishes of this instant asked for is
        taken out of its own transfer and into the message; what is placed later finds the message. A
        message goes even if the tasks that its tensors are for are withdrawn. It may bring what no
        placed task wants there yet. Needs the ability ``pack``.

        Args:
            transfers: (tensor, memory space) pairs, tensors as numbered by :meth:`inputs`.

        Raises:
            SchedulingError: there are none, or one twice; they go to several spaces, or lie in several;
                a tensor is not written yet, is there or on its way (packed or from an earlier
                instant), is a weight, or nobody has yet to read it; the run does not offer packing, or
                the scheduler did not declare it.
        """
        raise SchedulingError(f"{self.world.capitalize()} runs do not offer pack")

    # -- what the two worlds supply -------------------------------------------------------------

    def accept(self, task: int, device: int, rank: float) -> float | None:
        """A task was placed: request the transfers that its placement allows. Returns when its data is
        expected in the device's memory space; None where :meth:`data_expected` has to find out.
        """
        raise NotImplementedError

    def _release(self, task: int, device: int) -> None:
        """A placed task that has not started is about to be withdrawn."""
        raise NotImplementedError

    def _wake(self, time: float) -> None:
        raise NotImplementedError

    def request(self, tensor: int, space: int, size: float) -> None:
        """Have a tensor brought to another space, from now on; a tensor crosses to a space once."""
        raise NotImplementedError

    # -- bookkeeping shared by both worlds ------------------------------------------------------

    def _check_placement(self, task: int, device: int, rank: float | None) -> None:
        if not 0 <= task < len(self.task_job):
            raise SchedulingError(f"There is no task {task} to place")
        if not 0 <= device < len(self.load):
            raise SchedulingError(
                f"There is no device {device} for task '{self.label(task)}'; the cluster has "
                f"{len(self.load)}"
            )
        if self.task_device[task] >= 0:
            name = self.cluster.devices[self.task_device[task]].name
            raise SchedulingError(f"Task '{self.label(task)}' is placed on '{name}' already")
        if self.seconds(task)[device] == math.inf:
            name = self.cluster.devices[device].name
            raise SchedulingError(f"Device '{name}' cannot run task '{self.label(task)}'")
        if rank is not None and rank != rank:
            raise SchedulingError(f"Task '{self.label(task)}' was placed with rank {rank}")

    def _check_job_placement(
        self, job: int, devices: Sequence[int], ranks: Sequence[float]
    ) -> tuple[int, int]:
        """The job's first task and their number, if every placement is possible."""
        if not 0 <= job < len(self.jobs):
            raise SchedulingError(f"There is no job {job} to place")
        first, matrix = self.first_task[job], self.job_index[job].matrix
        count = len(matrix)
        if len(devices) != count or len(ranks) != count:
            raise SchedulingError(
                f"Job {job} has {count} tasks; got {len(devices)} devices and {len(ranks)} ranks"
            )
        place, rank = np.asarray(devices), np.asarray(ranks, dtype=np.float64)
        wrong = (place < 0) | (place >= matrix.shape[1]) | np.isnan(rank)
        if not wrong.any():
            wrong = ~np.isfinite(matrix[np.arange(count), place])
        taken = [*self.task_device[first : first + count]]
        if taken.count(-1) < count:
            wrong |= np.array(taken) >= 0
        if wrong.any():  # say which and why
            task = int(np.argmax(wrong))
            self._check_placement(first + task, int(place[task]), float(rank[task]))
        return first, count

    def _check_run(self, workload: Workload, scheduler: Decider) -> None:
        """Refuse before the run what cannot be run.

        Raises:
            SchedulingError: the scheduler needs an ability that this world lacks.
            InvalidInput: a job's memory space or times are missing.
        """
        self._check_abilities(scheduler)
        different = {(job.graph, job.origin, job.destination): job for job in workload}
        for job in different.values():
            self._check_job(job)

    def _check_abilities(self, scheduler: Decider) -> None:
        """Refuse a scheduler that needs an ability that this world lacks."""
        missing = scheduler.needs - self.offers
        if missing:
            ways = [self._ways_out[ability] for ability in sorted(missing & self._ways_out.keys())]
            raise SchedulingError(
                f"Scheduler '{name_of(scheduler)}' needs {', '.join(sorted(missing))}, which "
                f"{self.world} runs do not offer{'; '.join(['', *ways])}"
            )

    def _check_job(self, job: Job) -> None:
        """Refuse a job that cannot be run.

        Raises:
            InvalidInput: its memory space or times are missing.
        """
        self.believed_costs[job.graph]
        for what, space in (("origin", job.origin), ("destination", job.destination)):
            if space is not None and space not in self.cluster.space_index:
                raise InvalidInput(
                    f"A job of '{job.graph.name}' has {what} '{space}', which is no memory space "
                    f"of cluster '{self.cluster.name}'; it has "
                    f"{', '.join(self.cluster.space_index)}"
                )
        for device in {*self.cluster.space_of}:
            for what, space in (("origin", job.origin), ("destination", job.destination)):
                other = device if space is None else self.cluster.space_index[space]
                if other != device:
                    ends = (other, device) if what == "origin" else (device, other)
                    self.cluster.route(*ends)

    def _check_finished(self, scheduler: Decider) -> None:
        """Called when nothing runs and nothing can start.

        Raises:
            SchedulingError: work is left; names the task that holds it up.
        """
        left = sum(count for _, count in entries(self.tasks_left))
        if not left:
            return
        unplaced = [
            t for t, d in entries(self.task_device) if d < 0 and self.tasks_left[self.task_job[t]]
        ]
        if unplaced:
            raise SchedulingError(
                f"Scheduler '{name_of(scheduler)}' ended with {left} tasks not run: {len(unplaced)} were "
                f"never placed, the first is '{self.label(unplaced[0])}'"
            )
        device = next(d for d, queue in enumerate(self.queues) if queue)
        raise SchedulingError(
            f"Scheduler '{name_of(scheduler)}' ended with {left} tasks not run: device "
            f"'{self.cluster.devices[device].name}' must run '{self.label(self.head(device))}' next, "
            "whose predecessors wait behind other tasks; the queues' order contradicts the graph"
        )

    def _request_inputs(self, task: int, device: int) -> None:
        """Ask for the inputs of a placed task that exist and are not on their way to its space."""
        job = self.task_job[task]
        index = self.job_index[job]
        first = self.first_tensor[job]
        space = self.space_of[device]
        for t in index.reads[task - self.first_task[job]]:
            home = self.tensor_home[first + t]
            if home not in (space, EVERYWHERE):
                self.request(first + t, space, index.bytes[t])

    def _request_outputs(self, task: int, device: int) -> None:
        """Ask for what a finished task wrote to go where it is wanted: to the spaces of placed
        consumers (``push``) and, if it is a result, to the job's destination.
        """
        job = self.task_job[task]
        index = self.job_index[job]
        first_task, first_tensor = self.first_task[job], self.first_tensor[job]
        home = self.space_of[device]
        for t in index.writes[task - first_task]:
            if self.pushes:
                for reader in index.consumers[t]:
                    place = self.task_device[first_task + reader]
                    if place < 0 or (space := self.space_of[place]) == home:
                        continue
                    if first_tensor + t not in self.copies[space]:
                        self.request(first_tensor + t, space, index.bytes[t])
            if t in index.wanted:
                self._request_result(job, t, home)

    def _request_state(self, task: int, device: int) -> None:
        """A reader of weights is placed: ask for what has become of them already."""
        job = self.task_job[task]
        index, first = self.job_index[job], self.first_tensor[job]
        for t in index.inherits.get(task - self.first_task[job], ()) if index.inherits else ():
            if self.tensor_home[first + t] not in (self.space_of[device], EVERYWHERE):
                self.request(first + t, self.space_of[device], index.bytes[t])

    def goals(self, job: int, tensor: int, without: int = -1) -> list[int]:
        """Memory spaces in which a tensor (of a job's graph) is wanted for itself: a result at the job's destination,
        what becomes of a weight where the weight lies.
        """
        delivers = tensor in self.job_index[job].outputs and self.destination[job] != EVERYWHERE
        found = [self.destination[job]] if delivers else []
        return list(dict.fromkeys([*found, *self.state_goals(job, tensor, without)]))

    def state_goals(self, job: int, tensor: int, without: int = -1) -> list[int]:
        """Memory spaces in which readers, other than the task ``without``, of the weight that becomes a tensor are placed,
        and the one that weights on demand come from.
        """
        readers = self.job_index[job].updates.get(tensor, ())
        tasks = [self.first_task[job] + reader for reader in readers]
        devices = [self.task_device[task] for task in tasks if task != without]
        return [self.space_of[device] for device in devices if device >= 0]

    def is_awaited(self, job: int, tensor: int, space: int) -> bool:
        """Whether a job is not done before a transfer of a tensor (of its graph) to a space has ended."""
        index = self.job_index[job]
        delivers = self.destination[job] == space and tensor in index.outputs
        return delivers or tensor in index.updates

    def _request_result(self, job: int, output: int, space: int) -> None:
        """Ask for a result, just written in a space, to go where it must arrive."""
        tensor = self.first_tensor[job] + output
        for goal in self.goals(job, output):
            if goal != space and tensor not in self.copies[goal]:
                self.request(tensor, goal, self.job_index[job].bytes[output])

    def data_expected(self, task: int, device: int) -> float:
        """When all inputs of a placed task are believed to be in its device's memory."""
        if self.pending[task]:
            # Some producer has not finished: the planned start is the best that is known.
            return max(self.now, self.task_rank[task])
        job = self.task_job[task]
        space = self.space_of[device]
        first = self.first_tensor[job]
        latest = self.now
        for t in self.job_index[job].reads[task - self.first_task[job]]:
            time = self.copy_time(first + t, space)
            if time is not None and time > latest:
                latest = time
        return latest

    def _project(self, device: int) -> float:
        """Believed time at which a task behind everything queued on a device could begin."""
        project = self._projections.get(device)
        if project is not None:
            return project()
        free = []
        last = self.now  # tasks start in the order of the queue
        for task in self.running[device]:
            began = self._began(task)
            last = max(last, began)
            free.append(max(self.now, began + self.seconds(task)[device]))
            self.expected_finish[task] = free[-1]
        free += [self.now] * (self.slots[device] - len(free))
        heapify(free)
        for _, _, task in sorted(self.queues[device]):
            last = max(last, heappop(free), self.data_expected(task, device))
            end = self.expected_finish[task] = last + self.seconds(task)[device]
            heappush(free, end)
        return max(last, free[0])

    def _began(self, task: int) -> float:
        """When a task that was taken into execution starts or started."""
        raise NotImplementedError
