"""Room in memory spaces: what occupies it, what waits for it, and what gives it back.

``unlimited`` memory counts nothing. ``limited`` memory counts whole bytes, each tensor rounded up:

- An output occupies its space from its execution's start (on a device with a completion latency: from
  its submission, and to when the host knows); a job's input its origin from the job's arrival. Either stays until every reader has finished there, or has its copy elsewhere, and no
  transfer of it is under way. A reader that is not placed yet may still want it where it is.
- What an operator keeps for itself (``inner_bytes`` of a graph) occupies its space while it executes.
- A copy occupies its destination from the request of its transfer until every reader has finished or
  is placed elsewhere.
- A result stays until its job is done: at the job's destination, or where it was written.
- Weights, counted once for all jobs of a model (the same graph name, weight name and size): *resident*
  ones occupy a space from the first placement of a reader there to the end of the run and take no time
  to get there; *on demand* they lie in the host memory and cross like any other tensor, each alone,
  when a reader is placed (``push``) or placed and ready (``pull``); they stay until they are evicted.

What finds no room waits. Copies and weights wait in one line for each space, in the order in which the
queues of its devices need them: by (rank, placement) of the first task that asked. They also leave room
for the outputs of the tasks up to that one in these queues; only when nothing else is left to happen
they do not. Jobs' inputs and results to be delivered are first in line, what no placed task wants there
yet is last. A packed message takes the room of all its tensors at once; when nothing else is left to
happen, one that still waits is taken apart. A task that finds no room for its outputs holds up its device,
not the line. While there is room for everything, order does not matter.

Data that nobody wants any more gives its room back, yet it can be used again without another transfer
until its room is taken; what was unwanted first is dropped first.

Requests that are served together (:mod:`simulator.batching`) share what their batch's operators write; the
inputs and results of each are its own, with its own bytes. Inputs that were sent ahead leave the space where
they lay. In the memory spaces of nodes inputs take no more than :mod:`simulator.node_room` allows; those that
find no room wait in a line of their own, in the order of asking.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simulator.cluster import Cluster
from simulator.context import EVERYWHERE
from simulator.costs import CostTable
from simulator.errors import InvalidInput, SchedulingError
from simulator.graph import DataflowGraph
from simulator.node_room import node_rooms
from simulator.units import format_bytes
from simulator.workload import Workload

if TYPE_CHECKING:
    from simulator.flows import Flow
    from simulator.simulation import Simulation

MEMORIES = ("unlimited", "limited")
WEIGHTS = ("resident", "on_demand")


class Links(Protocol):
    """What carries transfers."""

    def request(self, flow: Flow) -> None:
        """Start a transfer, or queue it."""
        ...

    def expected(self, flow: Flow) -> float:
        """When it will be there, seconds."""
        ...


class Memory(Protocol):
    """What the event loop tells and asks. Tasks, devices, spaces and tensors are its numbers."""

    def send(self, flow: Flow) -> None:
        """Hand a transfer to its links once there is room for what it brings."""
        ...

    def expected(self, flow: Flow) -> float:
        """When a transfer is believed to be there, seconds."""
        ...

    def arrived(self, job: int) -> None:
        """A job has arrived, with its inputs."""

    def is_outside(self, job: int) -> bool:
        """Whether a job's inputs have found no room yet where they come from."""
        ...

    def batched(self, leader: int) -> None:
        """Jobs are to be served by the graph that their leader runs from now on."""

    def rejected(self, job: int) -> None:
        """A job will not be served."""

    def placed(self, task: int, device: int) -> None:
        """A task has entered a device's queue."""

    def fetch(self, task: int, device: int) -> None:
        """A placed task may have its data brought from now on."""

    def withdrawn(self, task: int, device: int) -> None:
        """A queued task is taken back."""

    def wants(self, tensor: int, space: int) -> bool:
        """Whether a weight is asked for in a space."""
        ...

    def settle(self) -> None:
        """After the decision of an instant: let those go on that waited for room."""

    def admit(self, task: int, device: int) -> bool:
        """Whether a task can start as far as memory is concerned; takes room for its outputs."""
        ...

    def finished(self, task: int, device: int) -> None:
        """A task has finished."""

    def lost(self, task: int, device: int) -> None:
        """A running task was taken from its device; it will be placed again."""

    def delivered(self, tensor: int, space: int) -> None:
        """A transfer has ended."""

    def relax(self) -> bool:
        """Nothing is left to happen: let something go on that waited for others' sake, if it can."""
        ...

    def check(self) -> None:
        """Nothing is left to happen: refuse that anything waits for room.

        Raises:
            SchedulingError: names it.
        """

    def free_bytes(self, space: int) -> float:
        """Bytes that nothing occupies."""
        ...

    def waiting_bytes(self, space: int) -> float:
        """Bytes of what waits for room."""
        ...

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """Bytes of a graph's weights that are there."""
        ...

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :meth:`simulator.context.SchedulingContext.evict`."""
        ...

    def report(self) -> dict[str, Any]:
        """What the trace's ``meta`` says of it."""
        ...


class UnlimitedMemory:
    """Room for everything, and every weight is everywhere.

    Args:
        links: what carries transfers; None where nobody sends any through here.
    """

    def __init__(self, links: Links | None = None) -> None:
        if links is not None:
            self.send = links.request  # type: ignore[method-assign]
            self.expected = links.expected  # type: ignore[method-assign]

    def send(self, flow: Flow) -> None:
        """See :class:`Memory`."""
        raise NotImplementedError

    def expected(self, flow: Flow) -> float:
        """See :class:`Memory`."""
        raise NotImplementedError

    def arrived(self, job: int) -> None:
        """See :class:`Memory`."""

    batched = rejected = arrived

    def is_outside(self, job: int) -> bool:
        """See :class:`Memory`."""
        return False

    def placed(self, task: int, device: int) -> None:
        """See :class:`Memory`."""

    fetch = withdrawn = finished = lost = placed

    def wants(self, tensor: int, space: int) -> bool:
        """See :class:`Memory`."""
        return False

    def settle(self) -> None:
        """See :class:`Memory`."""

    check = settle

    def admit(self, task: int, device: int) -> bool:
        """See :class:`Memory`."""
        return True

    def relax(self) -> bool:
        """See :class:`Memory`."""
        return False

    def delivered(self, tensor: int, space: int) -> None:
        """See :class:`Memory`."""

    def free_bytes(self, space: int) -> float:
        """See :class:`Memory`."""
        return math.inf

    def waiting_bytes(self, space: int) -> float:
        """See :class:`Memory`."""
        return 0.0

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`Memory`."""
        return graph.weight_bytes

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :class:`Memory`."""
        raise SchedulingError("This run keeps weights resident: there is nothing to evict")

    def report(self) -> dict[str, Any]:
        """See :class:`Memory`."""
        return {}


class _Held:
    """A tensor that exists or is being written, and who still wants it."""

    __slots__ = (
        "bytes",
        "copies",
        "flying",
        "home",
        "idle",
        "input",
        "result",
        "target",
        "unplaced",
        "users",
        "written",
    )

    def __init__(
        self,
        size: int,
        home: int,
        result: bool,
        target: int,
        written: bool,
        brought: bool = False,
    ) -> None:
        self.bytes = size
        self.home = home
        self.input = brought  # by its job
        self.result = result  # and its job is not done
        self.target = target  # space where the job wants it
        self.written = written
        self.unplaced = 0  # readers in no queue
        self.users: dict[int, int] = {}  # space -> placed readers that have not finished
        self.copies: dict[int, bool] = {}  # space -> whether it has arrived
        self.flying = 0  # transfers under way
        self.idle: set[int] = set()  # spaces where nobody wants it, and it still lies


@dataclass(eq=False, slots=True)
class _Waiting:
    """Something that waits in a space's line; ``order`` is that of the task that asked for it."""

    order: tuple[float, int]
    bytes: int
    wanted: Callable[[], bool]
    take: Callable[[], None]
    cancel: Callable[[], None]
    describe: Callable[[], str]
    take_apart: Callable[[], None] | None = None
    """Of a message of several tensors: let each of them wait alone."""
    inputs: int = 0
    """Of its bytes those of inputs of requests that wait, where their room is limited."""


_FIRST = (-math.inf, 0)
"""Order of what jobs ask for: their inputs, and results to be delivered."""
_LAST = (math.inf, 0)
"""Order of a message that brings what no placed task wants there yet."""


class _Sizes:
    """Whole bytes of a graph's tensors."""

    def __init__(self, graph: DataflowGraph) -> None:
        self.bytes: list[int] = whole_bytes(graph)
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


def whole_bytes(graph: DataflowGraph) -> list[int]:
    """Bytes that each tensor of a graph occupies: memory has no half bytes."""
    return [math.ceil(size) for size in graph.tensor_bytes.tolist()]


class LimitedMemory:
    """Memory spaces of finite capacity, weights resident or on demand.

    Args:
        run: the simulation that it serves.
        links: what carries transfers.
        capacities: bytes of each space; ``inf`` for no limit.
        store: for each graph the space where its weights lie, for those on demand; None: they are
            resident.
        inputs: bytes that inputs may take in each space; ``inf`` for no limit of their own.
    """

    def __init__(
        self,
        run: Simulation,
        links: Links,
        capacities: Sequence[float],
        store: dict[DataflowGraph, int] | None,
        inputs: Sequence[float],
    ) -> None:
        spaces = range(len(capacities))
        self.peak = [0 for _ in spaces]
        """Most bytes that each space has held."""
        self._run = run
        self._links = links
        self._store = store
        self._capacity = [c if c == math.inf else math.floor(c) for c in capacities]
        self._used = [0 for _ in spaces]
        self._idle: list[dict[int, int]] = [{} for _ in spaces]  # tensor -> bytes, oldest first
        self._idle_bytes = [0 for _ in spaces]
        self._held: dict[int, _Held] = {}
        self._most_inputs = list(inputs)
        self._inputs = [0 for _ in spaces]  # of the used bytes those of inputs
        # In line where inputs have a limit of their own, the first to ask first.
        self._inputs_waiting: list[deque[_Waiting]] = [deque() for _ in spaces]
        self._outside: set[int] = set()  # jobs whose inputs have found no room yet
        self._waited: list[tuple[int, float]] = []  # jobs whose inputs waited for room, until when
        self._sizes: dict[DataflowGraph, _Sizes] = {}
        # In line: order, number, what waits.
        self._lines: list[list[tuple[tuple[float, int], int, _Waiting]]] = [[] for _ in spaces]
        self._asked = 0
        # By space: queued tasks with their order and the bytes of their outputs; and all these bytes.
        self._queued: list[dict[int, tuple[tuple[float, int], int]]] = [{} for _ in spaces]
        self._to_write = [0 for _ in spaces]
        self._blocked: dict[int, tuple[int, int]] = {}  # device -> task, bytes of its outputs
        self._told: dict[int, int] = {}  # device -> the task that the scheduler was told of
        self._asking: list[tuple[int, _Waiting]] = []  # at this instant, of a space
        self._delayed: set[Flow] = set()  # in a line, or waiting for what they are to carry
        self._sourceless: dict[int, list[Flow]] = {}  # by tensor
        self._open: list[int] = []  # by job: unfinished tasks and results not yet delivered
        # Weights by the number that they have in the first job that brought them.
        self._number: dict[tuple[str, str, int], int] = {}
        self._weights_of: list[dict[int, int]] = []  # by job: tensor of the graph -> that number
        self._weights: list[dict[int, int]] = [{} for _ in spaces]  # number -> bytes
        self._needing: dict[tuple[int, int], int] = {}  # (number, space) -> tasks that need it now
        self._loading: set[tuple[int, int]] = set()
        self._pinning: set[tuple[int, int]] = set()  # resident weights in a line
        self._first_need: dict[tuple[int, int], tuple[float, int]] = {}  # of weights not there
        self._evictions: list[tuple[float, int, int, int]] = []

    # -- room -----------------------------------------------------------------------------------

    def free_bytes(self, space: int) -> float:
        """See :class:`Memory`."""
        return self._capacity[space] - self._used[space]

    def _fits(self, space: int, size: int) -> bool:
        return self._used[space] + size <= self._capacity[space]

    def _take(self, space: int, size: int) -> None:
        """Occupy room that is there; data that nobody wants makes way."""
        used = self._used[space] = self._used[space] + size
        if used > self.peak[space]:
            self.peak[space] = used
        while used + self._idle_bytes[space] > self._capacity[space]:
            self._drop(next(iter(self._idle[space])), space)

    def _give_back(self, space: int, size: int) -> None:
        self._used[space] -= size
        space_of = self._run.cluster.space_of
        self._run._touched |= {d for d in self._blocked if space_of[d] == space}

    def _hold_room(self, held: _Held, space: int) -> None:
        self._inputs[space] += held.input * held.bytes
        self._take(space, held.bytes)

    def _give_back_room(self, held: _Held, space: int) -> None:
        self._inputs[space] -= held.input * held.bytes
        self._give_back(space, held.bytes)

    def _drop(self, tensor: int, space: int) -> None:
        """Let unwanted data go for good."""
        self._idle_bytes[space] -= self._idle[space].pop(tensor)
        held = self._held[tensor]
        held.idle.discard(space)
        if space == held.home:
            # From now on it crosses from where it is still wanted.
            held.home = min(s for s, here in held.copies.items() if here and s not in held.idle)
            del held.copies[held.home]
            self._move_home(tensor, held.home)
        else:
            del held.copies[space]
            self._forget_copy(tensor, space)

    # -- lines ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """See :class:`Memory`."""
        self._serve()
        while self._asking:
            asking, self._asking = self._asking, []
            self._line_up(asking)

    def _line_up(self, asking: list[tuple[int, _Waiting]]) -> None:
        """Let those go on that ask at this instant, or stand in line."""
        wanted, inputs = self._to_write.copy(), self._inputs.copy()
        for space, waiting in asking:
            wanted[space] += waiting.bytes
            inputs[space] += waiting.inputs
        calm = [
            not line
            and not self._inputs_waiting[s]
            and self._fits(s, wanted[s])
            and inputs[s] <= self._most_inputs[s]
            for s, line in enumerate(self._lines)
        ]
        for space, waiting in asking:
            if calm[space]:
                waiting.take()
            elif waiting.inputs:
                self._inputs_waiting[space].append(waiting)
            else:
                self._asked += 1
                heappush(self._lines[space], (waiting.order, self._asked, waiting))
        if not all(calm):
            self._serve()
            left = {entry[2] for line in self._lines for entry in line}
            if any(waiting in left for _, waiting in asking):
                self._ask_scheduler()

    def _serve(self) -> None:
        """Let those at the heads of the lines go on for which there is room."""
        moved = True
        while moved:
            moved = False
            for space, line in enumerate(self._lines):
                while line:
                    _, _, waiting = line[0]
                    if not waiting.wanted():
                        heappop(line)
                        waiting.cancel()
                    elif self._may_go(space, waiting):
                        heappop(line)
                        waiting.take()
                    else:
                        break
                    moved = True
            for space, first_in_line in enumerate(self._inputs_waiting):
                while first_in_line:
                    waiting = first_in_line[0]
                    wanted = waiting.wanted()
                    if wanted and not self._may_come(space, waiting):
                        break
                    first_in_line.popleft()
                    if wanted:
                        waiting.take()
                    else:
                        waiting.cancel()
                    moved = True

    def _may_come(self, space: int, waiting: _Waiting) -> bool:
        """Whether there is room for inputs beside all that is to be written."""
        inputs = self._inputs[space] + waiting.inputs
        return inputs <= self._most_inputs[space] and self._fits(
            space, waiting.bytes + self._to_write[space]
        )

    def _may_go(self, space: int, waiting: _Waiting) -> bool:
        """Whether there is room for it beside the outputs that are to be written before."""
        if not self._fits(space, waiting.bytes):
            return False
        before = sum(size for at, size in self._queued[space].values() if at <= waiting.order)
        return self._fits(space, waiting.bytes + before)

    def relax(self) -> bool:
        """See :class:`Memory`."""
        for space, line in enumerate(self._lines):
            for entry in sorted(line, key=lambda entry: entry[:2]):
                waiting = entry[2]
                if waiting.wanted() and self._fits(space, waiting.bytes):
                    line.remove(entry)
                    heapify(line)
                    waiting.take()
                    self._ask_scheduler()
                    return True
        return self._take_apart()

    def _take_apart(self) -> bool:
        """Let the tensors of the first message that waits in a line go on one by one."""
        for first_in_line in self._inputs_waiting:
            for waiting in first_in_line:
                if waiting.take_apart is not None and waiting.wanted():
                    first_in_line.remove(waiting)
                    waiting.take_apart()
                    self._ask_scheduler()
                    return True
        for line in self._lines:
            for entry in sorted(line, key=lambda entry: entry[:2]):
                waiting = entry[2]
                if waiting.take_apart is not None and waiting.wanted():
                    line.remove(entry)
                    heapify(line)
                    waiting.take_apart()
                    self._ask_scheduler()
                    return True
        return False

    def waiting_bytes(self, space: int) -> float:
        """See :class:`Memory`."""
        waits = [*(entry[2] for entry in self._lines[space]), *self._inputs_waiting[space]]
        line = sum(waiting.bytes for waiting in waits if waiting.wanted())
        if line:
            return line + self._to_write[space]
        space_of = self._run.cluster.space_of
        return sum(size for d, _, size in self._heads_blocked() if space_of[d] == space)

    # -- who wants what -------------------------------------------------------------------------

    def _hold(self, tensor: int, held: _Held, readers: Sequence[int]) -> None:
        """Keep account of a tensor whose room was taken; ``readers`` are tasks."""
        run = self._run
        for reader in readers:
            device = run.device_of(reader)
            if device < 0:
                held.unplaced += 1
            else:
                space = run.cluster.space_of[device]
                held.users[space] = held.users.get(space, 0) + 1
        self._held[tensor] = held

    def _review(self, tensor: int, held: _Held) -> None:
        """Give back the room of what nobody wants, take it for what is wanted again."""
        if held.written and not (held.unplaced or held.users or held.flying or held.result):
            for space in (held.home, *held.copies):
                if space in held.idle:
                    self._idle_bytes[space] -= self._idle[space].pop(tensor)
                else:
                    self._give_back_room(held, space)
            del self._held[tensor]
            return
        for space in (held.home, *held.copies):
            wanted = self._is_wanted(held, space)
            if wanted and space in held.idle:
                held.idle.discard(space)
                self._idle_bytes[space] -= self._idle[space].pop(tensor)
                self._hold_room(held, space)
            elif not wanted and space not in held.idle:
                held.idle.add(space)
                self._idle[space][tensor] = held.bytes
                self._idle_bytes[space] += held.bytes
                self._give_back_room(held, space)

    def _is_wanted(self, held: _Held, space: int) -> bool:
        if held.unplaced or not held.written or space in held.users:
            return True
        delivers = held.result and held.target != EVERYWHERE
        if space != held.home:
            return not held.copies[space] or (delivers and space == held.target)
        if held.flying or not all(held.copies.get(other) for other in held.users):
            return True
        return held.result and not (delivers and held.copies.get(held.target, False))

    def _reads(self, task: int) -> list[tuple[int, _Held]]:
        """The tensors that a task reads and that are accounted for."""
        held = self._held
        return [(t, held[t]) for t in self._tensors_read(task) if t in held]

    # -- jobs -----------------------------------------------------------------------------------

    def arrived(self, job: int) -> None:
        """See :class:`Memory`."""
        run = self._run
        graph = run.jobs[job].graph
        sizes = self._sizes.get(graph)
        if sizes is None:
            sizes = self._sizes[graph] = _Sizes(graph)
        first = self._first_tensor(job)
        self._open.append(len(graph))
        numbers: dict[int, int] = {}
        new = []
        for t in graph.weights:
            identity = (graph.name, graph.tensors[t].name, sizes.bytes[t])
            if identity not in self._number:
                self._number[identity] = first + t
                new.append(t)
            numbers[t] = self._number[identity]
        self._weights_of.append(numbers)
        if self._store is not None and new:
            store = self._store[graph]
            for t in new:
                self._move_home(first + t, store)
            self._asking.append((store, self._bringing(job, store, new, sizes, True)))
        origin = run.jobs[job].origin
        read = [t for t in graph.inputs if graph.consumers[t]]
        if origin is not None and read:
            space = run.cluster.space_index[origin]
            self._outside.add(job)
            self._asking.append((space, self._bringing(job, space, read, sizes, False)))

    def _bringing(
        self, job: int, space: int, tensors: Sequence[int], sizes: _Sizes, weights: bool
    ) -> _Waiting:
        """A job's inputs, or the weights of its model, want to lie where they come from."""
        run = self._run
        first = self._first_tensor(job)
        total = sum(sizes.bytes[t] for t in tensors)

        def take() -> None:
            self._take(space, total)
            for t in tensors:
                if weights:
                    self._weights[space][first + t] = sizes.bytes[t]
                    continue
                held = _Held(sizes.bytes[t], space, False, EVERYWHERE, True, True)
                self._inputs[space] += held.bytes
                self._hold(first + t, held, self._readers(first + t))
            if not weights:
                self._outside.discard(job)
                if run.now > run.jobs[job].arrival:
                    self._waited.append((job, run.now))
                run._found_room(job)
            self._touch_space(space)
            for t in tensors:
                for flow in self._sourceless.pop(first + t, ()):
                    self.send(flow)

        what = "weights" if weights else "inputs"
        name = run.jobs[job].graph.name
        limited = not weights and self._most_inputs[space] < math.inf
        return _Waiting(
            _FIRST,
            total,
            lambda: weights or job not in run._rejected,
            take,
            lambda: self._outside.discard(job),
            lambda: f"the {what} of job {job} ('{name}') need",
            inputs=total if limited else 0,
        )

    def is_outside(self, job: int) -> bool:
        """See :class:`Memory`."""
        return job in self._outside

    def rejected(self, job: int) -> None:
        """See :class:`Memory`."""
        first = self._first_tensor(job)
        for t in self._run._job_index[job].inputs:
            held = self._held.get(first + t)
            if held is not None:
                held.unplaced = 0
                self._review(first + t, held)

    def batched(self, leader: int) -> None:
        """See :class:`Memory`."""
        run = self._run
        index = run._job_index[leader]
        graph = index.graph
        sizes = self._sizes.get(graph)
        if sizes is None:
            sizes = self._sizes[graph] = _Sizes(graph)
        numbers = {}
        for t in graph.weights:
            identity = (graph.name, graph.tensors[t].name, sizes.bytes[t])
            # Below 0: no tensor of a job has such a number.
            numbers[t] = self._number.setdefault(identity, -1 - len(self._number))
        self._weights_of[leader] = numbers
        for job in run._members[leader]:
            first = self._first_tensor(job)
            for t in index.inputs:
                held = self._held.get(first + t)
                if held is not None:
                    held.unplaced = len(index.consumers[t])
                    self._review(first + t, held)

    def _settle_job(self, job: int, change: int) -> None:
        self._open[job] += change
        if not self._open[job]:
            first = self._first_tensor(job)
            for t in self._run.jobs[job].graph.outputs:
                held = self._held.get(first + t)
                if held is not None:
                    held.result = False
                    self._review(first + t, held)

    # -- tasks ----------------------------------------------------------------------------------

    def placed(self, task: int, device: int) -> None:
        """See :class:`Memory`."""
        run = self._run
        space = run.cluster.space_of[device]
        self._check_together(task, space)
        outputs = self._output_bytes(task)
        self._queued[space][task] = (self._order(task), outputs)
        self._to_write[space] += outputs
        for tensor, held in self._reads(task):
            held.unplaced -= 1
            held.users[space] = held.users.get(space, 0) + 1
            self._review(tensor, held)
        if self._store is None:
            for number, size in self._weights_read(task):
                key = self._need(number, space, task)
                if number not in self._weights[space] and key not in self._pinning:
                    self._pinning.add(key)
                    self._asking.append((space, self._pin(number, space, size, task)))

    def _check_together(self, task: int, space: int) -> None:
        """Refuse that a batch leaves the memory space of its inputs."""
        run = self._run
        job = run.job_of(task)
        if len(run._members.get(job, ())) < 2:
            return
        first = self._first_tensor(job)
        for t in run._job_index[job].inputs:
            home = self._home_of(first + t)
            if home not in (space, EVERYWHERE):
                names = [run.cluster.spaces[s].name for s in (space, home)]
                raise SchedulingError(
                    f"Task '{run.label(task)}' of a batch was placed in memory space '{names[0]}', but the "
                    f"batch's inputs lie in '{names[1]}'; with limited memory a batch stays where they are"
                )

    def withdrawn(self, task: int, device: int) -> None:
        """See :class:`Memory`."""
        self._unqueue(task, self._run.cluster.space_of[device])
        asked = self._store is None or self._run._push or self._run.is_ready(task)
        self._leave(task, device, asked, back=True)
        if self._blocked.get(device, (-1, 0))[0] == task:
            del self._blocked[device]

    def _unqueue(self, task: int, space: int) -> None:
        _, outputs = self._queued[space].pop(task)
        self._to_write[space] -= outputs

    def _leave(self, task: int, device: int, asked: bool, back: bool) -> None:
        """A task needs its data no more, or (``back``) does not know where."""
        space = self._run.cluster.space_of[device]
        for tensor, held in self._reads(task):
            held.unplaced += back
            held.users[space] -= 1
            if not held.users[space]:
                del held.users[space]
            self._review(tensor, held)
        if asked:
            for number, _ in self._weights_read(task):
                self._needing[number, space] -= 1

    def fetch(self, task: int, device: int) -> None:
        """See :class:`Memory`."""
        run = self._run
        space = run.cluster.space_of[device]
        if self._store is not None:
            for number, _ in self._weights_read(task):
                self._need(number, space, task)
                if self._home_of(number) != space:
                    self._request_tensor(number, space)

    def _need(self, number: int, space: int, task: int) -> tuple[int, int]:
        """One task more needs a weight in a space."""
        key = (number, space)
        self._needing[key] = self._needing.get(key, 0) + 1
        if number not in self._weights[space]:
            order = self._order(task)
            self._first_need[key] = min(self._first_need.get(key, order), order)
        return key

    def _weights_read(self, task: int) -> list[tuple[int, int]]:
        """Number and bytes of the weights that a task reads."""
        run = self._run
        job = run.job_of(task)
        sizes, numbers = self._sizes[run._job_index[job].graph], self._weights_of[job]
        return [(numbers[t], sizes.bytes[t]) for t in sizes.weights[run.operator_of(task)]]

    def _pin(self, number: int, space: int, size: int, task: int) -> _Waiting:
        """Resident weights want to lie where they are used first."""

        def take() -> None:
            self._pinning.discard((number, space))
            self._first_need.pop((number, space), None)
            if not self.wants(number, space):
                return
            self._weights[space][number] = size
            self._take(space, size)
            self._touch_space(space)

        return _Waiting(
            self._order(task),
            size,
            lambda: self.wants(number, space),
            take,
            lambda: self._pinning.discard((number, space)),
            lambda: f"weights of task '{self._run.label(task)}' need",
        )

    def wants(self, tensor: int, space: int) -> bool:
        """See :class:`Memory`."""
        return self._needing.get((tensor, space), 0) > 0

    def admit(self, task: int, device: int) -> bool:
        """See :class:`Memory`."""
        run = self._run
        self._blocked.pop(device, None)
        space = run.cluster.space_of[device]
        for tensor in self._tensors_read(task):
            if tensor not in self._held and self._is_brought(tensor):
                return False  # a job's input that waits for room
        for number, _ in self._weights_read(task):
            if number not in self._weights[space] or (number, space) in self._loading:
                return False
        size = self._queued[space][task][1]
        if not self._fits(space, size):
            self._blocked[device] = (task, size)
            if self._told.get(device) != task:
                self._told[device] = task
                self._ask_scheduler()
            return False
        self._take(space, size)
        self._unqueue(task, space)
        for tensor in self._tensors_written(task):
            job = self._job_of_tensor(tensor)
            result = tensor - self._first_tensor(job) in run._job_index[job].outputs
            target = self._destination_of(job)
            held = _Held(self._bytes_of(tensor), space, result, target, False)
            self._hold(tensor, held, self._readers(tensor))
        return True

    def finished(self, task: int, device: int) -> None:
        """See :class:`Memory`."""
        run = self._run
        space = run.cluster.space_of[device]
        job = run.job_of(task)
        self._leave(task, device, asked=True, back=False)
        if inner := self._inner_of(task):
            self._give_back(space, inner)
        under_way = dict.fromkeys(run._members.get(job, (job,)), 0)
        for tensor in self._tensors_written(task):
            held = self._held[tensor]
            held.written = True
            under_way[self._job_of_tensor(tensor)] += held.result and held.target not in (
                EVERYWHERE,
                space,
            )
            self._review(tensor, held)
        for member, count in under_way.items():
            self._settle_job(member, count - 1)

    def lost(self, task: int, device: int) -> None:
        """See :class:`Memory`."""
        self._leave(task, device, asked=True, back=True)
        if inner := self._inner_of(task):
            self._give_back(self._run.cluster.space_of[device], inner)
        for tensor in self._tensors_written(task):
            held = self._held.pop(tensor)
            self._give_back(held.home, held.bytes)

    # -- transfers ------------------------------------------------------------------------------

    def send(self, flow: Flow) -> None:
        """See :class:`Memory`."""
        self._delayed.add(flow)
        for tensor in flow.tensors:
            if tensor not in self._held and tensor not in self._weights[flow.source]:
                self._sourceless.setdefault(tensor, []).append(flow)
                return
        size = sum(self._bytes_of(tensor) for tensor in flow.tensors)
        waiting = (
            flow.destination,
            _Waiting(
                self._order_of(flow),
                size,
                lambda: any(self._is_copy_wanted(t, flow.destination) for t in flow.tensors),
                lambda: self._start(flow, size),
                lambda: self._cancel(flow),
                lambda: self._describe(flow),
                (lambda: self._send_singly(flow)) if len(flow.tensors) > 1 else None,
                self._inputs_ahead(flow),
            ),
        )
        self._asking.append(waiting)

    def _inputs_ahead(self, flow: Flow) -> int:
        """Of a flow the bytes of inputs that are sent ahead to where their room is limited."""
        space = flow.destination
        if self._most_inputs[space] == math.inf:
            return 0
        ahead = [t for t in flow.tensors if self._run._is_sent_ahead(t, space)]
        return sum(map(self._bytes_of, ahead))

    def _send_singly(self, flow: Flow) -> None:
        """A message has no room as a whole: ask for each of its tensors alone."""
        run = self._run
        self._delayed.discard(flow)
        space = flow.destination
        for tensor in flow.tensors:
            if not self._is_copy_wanted(tensor, space):
                self._forget_copy(tensor, space)
                continue
            size = run._tensor_bytes(tensor)
            single = type(flow)((tensor,), flow.source, space, flow.route, size, run.now)
            run._under_way[tensor, space] = single
            self.send(single)

    def _order_of(self, flow: Flow) -> tuple[float, int]:
        """That of the first task that is to read what a flow brings."""
        space = flow.destination
        orders = [self._first_need.get((tensor, space), _FIRST) for tensor in flow.tensors]
        queued = self._queued[space]
        orders += [queued[r][0] for t in flow.tensors for r in self._readers(t) if r in queued]
        delivers = any(
            held.result and held.target == space
            for t in flow.tensors
            if (held := self._held.get(t)) is not None
        )
        none = _FIRST if delivers else _LAST
        return min([order for order in orders if order != _FIRST], default=none)

    def _bytes_of(self, tensor: int) -> int:
        run, job = self._run, self._job_of_tensor(tensor)
        own, index = run.jobs[job].graph, run._job_index[job]
        t = tensor - self._first_tensor(job)
        shared = index.graph is not own and t not in index.outputs and t not in index.inputs
        return self._sizes[index.graph if shared else own].bytes[t]

    def _inner_of(self, task: int) -> int:
        """Bytes that a task keeps for itself."""
        run = self._run
        index = run._job_index[run.job_of(task)]
        return self._sizes[index.graph].inner[run.operator_of(task)]

    def _output_bytes(self, task: int) -> int:
        """Bytes of all that a task writes and keeps for itself."""
        run = self._run
        job = run.job_of(task)
        if job in run._members:
            return sum(map(self._bytes_of, self._tensors_written(task))) + self._inner_of(task)
        return self._sizes[run.jobs[job].graph].outputs[run.operator_of(task)]

    def _is_copy_wanted(self, tensor: int, space: int) -> bool:
        held = self._held.get(tensor)
        if held is None:
            return self.wants(tensor, space)
        if held.home == space:
            return False  # the original was dropped, and what is left of it is here
        return bool(held.unplaced or space in held.users or (held.result and held.target == space))

    def _start(self, flow: Flow, size: int) -> None:
        """Let a transfer that has found room begin."""
        self._delayed.discard(flow)
        if len(flow.tensors) == 1:
            held = self._held.get(flow.tensors[0])
            if held is None and not self.wants(flow.tensors[0], flow.destination):
                self._cancel(flow)  # its job was refused
                return
            self._depart(flow, flow.tensors, flow.source if held is None else held.home, size)
            return
        # Of a message that waited, what nobody may want there any more stays; and where the rest lies
        # may have changed, so that it comes from several spaces.
        waited = flow.requested != self._run.now
        parts: dict[int, list[int]] = {}
        for tensor in flow.tensors:
            held = self._held.get(tensor)
            if held is None or (waited and not self._is_copy_wanted(tensor, flow.destination)):
                self._forget_copy(tensor, flow.destination)
            else:
                parts.setdefault(held.home, []).append(tensor)
        for source, tensors in sorted(parts.items()):
            self._depart(flow, tuple(tensors), source, sum(map(self._bytes_of, tensors)))

    def _depart(self, flow: Flow, tensors: tuple[int, ...], source: int, size: int) -> None:
        """Let these tensors of a flow cross from ``source``; there is room for them."""
        run, space = self._run, flow.destination
        self._take(space, size)
        if (source, run.now, tensors) != (flow.source, flow.requested, flow.tensors):  # it waited
            route = run.cluster.route(source, space)
            total = flow.size
            if tensors != flow.tensors:
                total = math.fsum(run._tensor_bytes(tensor) for tensor in tensors)
            flow = type(flow)(tensors, source, space, route, total, run.now)
            run._under_way |= {(tensor, space): flow for tensor in flow.tensors}
        for tensor in flow.tensors:
            held = self._held.get(tensor)
            if held is None:
                self._weights[space][tensor] = self._bytes_of(tensor)
                self._first_need.pop((tensor, space), None)
                self._loading.add((tensor, space))
            else:
                held.copies[space] = False
                held.flying += 1
                self._inputs[space] += held.input * held.bytes
        self._links.request(flow)

    def _cancel(self, flow: Flow) -> None:
        self._delayed.discard(flow)
        for tensor in flow.tensors:
            self._forget_copy(tensor, flow.destination)

    def expected(self, flow: Flow) -> float:
        """See :class:`Memory`."""
        if flow in self._delayed:
            return self._run.now + flow.route.seconds(flow.size)
        return self._links.expected(flow)

    def delivered(self, tensor: int, space: int) -> None:
        """See :class:`Memory`."""
        held = self._held.get(tensor)
        if held is None:
            self._loading.discard((tensor, space))
            self._touch_space(space)
            return
        held.copies[space] = True
        held.flying -= 1
        if self._home_of(tensor) == space:
            self._move(tensor, held, space)
        job = self._job_of_tensor(tensor)
        last = held.result and space == held.target
        self._review(tensor, held)
        if last:
            self._settle_job(job, -1)

    def _move(self, tensor: int, held: _Held, space: int) -> None:
        """What was sent ahead lies in ``space`` from now on, and no longer where it lay."""
        before = held.home
        del held.copies[space]
        held.home = space
        if before in held.idle:
            held.idle.discard(before)
            self._idle_bytes[before] -= self._idle[before].pop(tensor)
        else:
            self._give_back_room(held, before)

    # -- weights --------------------------------------------------------------------------------

    def _known(self, graph: DataflowGraph) -> dict[str, int]:
        """Name -> number of the weights of a graph of which a job has arrived."""
        sizes = self._sizes.get(graph)
        if sizes is None:
            return {}
        names = {t: graph.tensors[t].name for t in graph.weights}
        return {n: self._number[graph.name, n, sizes.bytes[t]] for t, n in names.items()}

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`Memory`."""
        here = self._weights[space]
        return float(sum(here.get(number, 0) for number in self._known(graph).values()))

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :class:`Memory`."""
        run = self._run
        name = run.cluster.spaces[space].name
        if self._store is None:
            raise SchedulingError(
                "Weights are resident in this run and cannot be evicted; set weights=on_demand"
            )
        if self._store.get(graph) == space:
            if weights is None:
                return 0.0
            raise SchedulingError(
                f"The weights of '{graph.name}' lie in memory space '{name}' and come from there; "
                "they cannot be evicted from it"
            )
        known = self._known(graph)
        freed = 0
        for weight in known if weights is None else weights:
            number = known.get(weight, -1)
            key = (number, space)
            here = number in self._weights[space]
            free = here and key not in self._loading and not self.wants(*key)
            if free:
                size = self._weights[space].pop(number)
                self._give_back(space, size)
                freed += size
                self._forget_copy(number, space)
                job = self._job_of_tensor(number)
                self._evictions.append((run.now, space, job, number - self._first_tensor(job)))
            elif weights is not None:
                why = "a task placed there needs it" if here else "it is not there"
                raise SchedulingError(
                    f"Weight '{weight}' of '{graph.name}' cannot be evicted from memory space "
                    f"'{name}': {why}"
                )
        return float(freed)

    # -- what it asks of the run ----------------------------------------------------------------

    def _first_tensor(self, job: int) -> int:
        return self._run._first_tensor[job]

    def _job_of_tensor(self, tensor: int) -> int:
        return self._run._job_of_tensor(tensor)

    def _destination_of(self, job: int) -> int:
        return self._run._destination[job]

    def _order(self, task: int) -> tuple[float, int]:
        """Where a placed task stands in its queue."""
        return self._run._rank[task], self._run._sequence[task]

    def _home_of(self, tensor: int) -> int:
        return self._run._home[tensor]

    def _move_home(self, tensor: int, space: int) -> None:
        self._run._home[tensor] = space

    def _tensors_read(self, task: int) -> list[int]:
        """All that a task reads but weights."""
        run = self._run
        job = run.job_of(task)
        return self._of_members(job, run._job_index[job].reads[run.operator_of(task)])

    def _tensors_written(self, task: int) -> list[int]:
        run = self._run
        job = run.job_of(task)
        return self._of_members(job, run._job_index[job].writes[run.operator_of(task)])

    def _of_members(self, job: int, tensors: Sequence[int]) -> list[int]:
        """Tensors of a job's graph; of inputs and results of a batch those of all its jobs."""
        run = self._run
        first = run._first_tensor
        members = run._members.get(job, ())
        if len(members) < 2:
            return [first[job] + t for t in tensors]
        index = run._job_index[job]
        return [
            first[member] + t
            for t in tensors
            for member in (members if t in index.outputs or t in index.inputs else (job,))
        ]

    def _readers(self, tensor: int) -> list[int]:
        run = self._run
        job = run._job_of_tensor(tensor)
        leader = run._leader.get(job, job)
        first = run._first_task[leader]
        consumers = run._job_index[leader].consumers[tensor - run._first_tensor[job]]
        return [first + operator for operator in consumers]

    def _is_brought(self, tensor: int) -> bool:
        """Whether a tensor lies somewhere, and not everywhere."""
        run = self._run
        job = run._job_of_tensor(tensor)
        brought = tensor - run._first_tensor[job] in run._job_index[job].inputs
        if brought and run.jobs[job].origin is None:
            return False
        return self._home_of(tensor) != EVERYWHERE

    def _request_tensor(self, tensor: int, space: int) -> None:
        run = self._run
        job = run._job_of_tensor(tensor)
        run._request(tensor, space, run._job_index[job].bytes[tensor - run._first_tensor[job]])

    def _forget_copy(self, tensor: int, space: int) -> None:
        self._run._forget(tensor, space)

    def _touch_space(self, space: int) -> None:
        """Let the devices of a space see whether they can start something."""
        self._run._touched |= {d for d, s in enumerate(self._run.cluster.space_of) if s == space}

    def _ask_scheduler(self) -> None:
        """Let it decide once more at this instant: something waits for room."""
        self._run._wake(self._run.now)

    def _heads_blocked(self) -> list[tuple[int, int, int]]:
        """Device, task and bytes wherever the head of a queue waits for room."""
        return [
            (device, task, size)
            for device, (task, size) in sorted(self._blocked.items())
            if self._run._head(device) == task
        ]

    # -- the end --------------------------------------------------------------------------------

    def check(self) -> None:
        """See :class:`Memory`."""
        run = self._run
        for device, task, size in self._heads_blocked():
            what = f"task '{run.label(task)}' on device '{run.cluster.devices[device].name}' needs"
            raise self._stuck(run.cluster.space_of[device], what, size)
        for space, line in enumerate(self._lines):
            in_line = [entry[2] for entry in sorted(line, key=lambda entry: entry[:2])]
            for waiting in (*in_line, *self._inputs_waiting[space]):
                if waiting.wanted():
                    raise self._stuck(space, waiting.describe(), waiting.bytes)

    def _stuck(self, space: int, what: str, size: int) -> SchedulingError:
        way = "take a smaller batch, fewer jobs at once or another movement"
        if self._store is None:
            way += ", or load weights on demand (weights=on_demand)"
        else:
            way += ", or a scheduler that evicts weights (lru_eviction)"
        name = self._run.cluster.spaces[space].name
        return SchedulingError(
            f"Out of memory: nothing is left to happen, and {what} {_amount(size)} in memory space "
            f"'{name}', of whose {_amount(self._capacity[space])} {self.free_bytes(space):.0f} are "
            f"free. Give it a larger capacity, {way}"
        )

    def _describe(self, flow: Flow) -> str:
        run, space = self._run, flow.destination
        tensor = flow.tensors[0]
        job = self._job_of_tensor(tensor)
        name = run.jobs[job].graph.tensors[tensor - self._first_tensor(job)].name
        readers = [
            run.label(task)
            for tensor in flow.tensors
            for task in self._readers(tensor)
            if run.device_of(task) >= 0 and run.cluster.space_of[run.device_of(task)] == space
        ]
        whose = f"task '{readers[0]}'" if readers else f"job {job}"
        return f"a copy of '{name}' for {whose} needs"

    def report(self) -> dict[str, Any]:
        """See :class:`Memory`."""
        found: dict[str, Any] = {"peak_bytes": [float(peak) for peak in self.peak]}
        if self._evictions:
            found["evictions"] = [list(row) for row in self._evictions]
        waited = [*self._waited, *((job, None) for job in sorted(self._outside))]
        if waited:
            found["inputs_waited"] = [list(row) for row in waited]
        return found


def make_memory(
    run: Simulation, links: Links, memory: str, weights: str, workload: Workload
) -> Memory:
    """What carries out the settings ``memory`` and ``weights``; see :func:`simulator.simulate`."""
    if not counts_memory(memory, weights):
        return UnlimitedMemory(links)
    capacities = [
        space.capacity if memory == "limited" else math.inf for space in run.cluster.spaces
    ]
    store = _weight_store(workload, run.cluster) if weights == "on_demand" else None
    inputs = [math.inf] * len(capacities)
    if memory == "limited" and run._serving:
        rooms = node_rooms(workload, run.cluster, run._believed)
        inputs = [room.inputs for room in rooms]
    return LimitedMemory(run, links, capacities, store, inputs)


def abilities(weights: str) -> frozenset[str]:
    """What schedulers may do with weights that are ``resident`` or ``on_demand``."""
    return frozenset({"evict"}) if weights == "on_demand" else frozenset()


def counts_memory(memory: str, weights: str) -> bool:
    """Whether room matters, or weights move.

    Raises:
        InvalidInput: a setting is unknown.
    """
    for what, value, known in (("memory", memory, MEMORIES), ("weights", weights, WEIGHTS)):
        if value not in known:
            raise InvalidInput(f"Unknown {what} '{value}'; known: {', '.join(known)}")
    return memory != "unlimited" or weights != "resident"


def _weight_store(workload: Workload, cluster: Cluster) -> dict[DataflowGraph, int]:
    """For each graph the memory space where its weights lie."""
    place: dict[str, str] = {}
    store = {}
    for job in workload:
        if not job.graph.weights:
            continue
        space = cluster.host or job.origin
        if space is None and job.graph.name not in place:
            raise InvalidInput(
                f"weights=on_demand: the weights of '{job.graph.name}' lie nowhere; give cluster "
                f"'{cluster.name}' a host memory, or the job an origin"
            )
        store[job.graph] = cluster.space_index[place.setdefault(job.graph.name, space or "")]
    return store


def within_capacity(
    costs: CostTable, workload: Workload, cluster: Cluster, weights: str
) -> CostTable:
    """Costs in which no device can run what its memory cannot hold at once: an operator's weights,
    inputs and outputs.

    Raises:
        InvalidInput: an operator, a job's inputs or results, or the weights on demand fit nowhere
            that they can or must lie.
    """
    capacity = np.array(
        [math.floor(s.capacity) if s.capacity < math.inf else math.inf for s in cluster.spaces]
    )
    if not np.isfinite(capacity).any():
        return costs
    _check_jobs(workload, cluster, capacity, weights)
    fitting = dict(costs)
    for graph in workload.graphs:
        brought = all(job.origin is not None for job in workload if job.graph is graph)
        need = _operator_bytes(graph, brought)
        believed = costs[graph]
        seconds = believed.seconds.copy()
        seconds[need[:, None] > capacity[list(cluster.space_of)]] = math.inf
        wrong = np.flatnonzero(~np.isfinite(seconds).any(axis=1))
        if len(wrong):
            operator = int(wrong[0])
            able = np.flatnonzero(np.isfinite(believed.seconds[operator]))
            space = max({cluster.space_of[d] for d in able.tolist()}, key=lambda s: capacity[s])
            raise InvalidInput(
                f"Operator '{graph.operators[operator].name}' of '{graph.name}' needs "
                f"{_amount(need[operator])} for its weights, inputs and outputs; the largest memory of a device that can run it, "
                f"'{cluster.spaces[space].name}', has {capacity[space]:.0f}. Take a smaller batch or "
                "a larger memory"
            )
        fitting[graph] = replace(believed, seconds=seconds)
    return CostTable(fitting)


def _operator_bytes(graph: DataflowGraph, inputs: bool) -> np.ndarray:
    """float64[operators]: what must lie in one space for each operator to run.

    Args:
        graph: the graph.
        inputs: count the tensors that a job brings.
    """
    size = np.ceil(graph.tensor_bytes)
    if not inputs:
        size[list(graph.inputs)] = 0.0
    total = np.zeros(len(graph))
    for rows in (graph.reads_csr, graph.writes_csr):
        total += np.bincount(rows.row_of, weights=size[rows.values], minlength=len(graph))
    if graph.inner_bytes:
        total += np.ceil(graph.inner_bytes)
    return total


def _check_jobs(workload: Workload, cluster: Cluster, capacity: np.ndarray, weights: str) -> None:
    """Refuse what must lie in one space and is larger than it."""
    stored: dict[int, dict[tuple[str, str], float]] = {}
    known: set[tuple[DataflowGraph, str | None, str | None]] = set()
    for number, job in enumerate(workload):
        graph = job.graph
        if (graph, job.origin, job.destination) in known:
            continue
        known.add((graph, job.origin, job.destination))
        size = np.ceil(graph.tensor_bytes)
        results = [t for t in graph.outputs if graph.producer[t] >= 0]
        for what, tensors, place in (
            ("inputs", graph.inputs, job.origin),
            ("results", results, job.destination),
        ):
            if place is not None:
                _check_room(
                    f"The {what} of job {number} ('{graph.name}')",
                    float(size[list(tensors)].sum()),
                    cluster,
                    cluster.space_index[place],
                    capacity,
                )
    if weights != "on_demand":
        return
    for graph, space in _weight_store(workload, cluster).items():
        rows = stored.setdefault(space, {})
        for t in graph.weights:
            rows[graph.name, graph.tensors[t].name] = math.ceil(graph.tensors[t].bytes)
    for space, rows in stored.items():
        _check_room("The weights of the workload", sum(rows.values()), cluster, space, capacity)


def _check_room(what: str, size: float, cluster: Cluster, space: int, capacity: np.ndarray) -> None:
    if size > capacity[space]:
        raise InvalidInput(
            f"{what} take {_amount(size)}, and memory space "
            f"'{cluster.spaces[space].name}', where they must lie, has {capacity[space]:.0f}; give it "
            "a larger capacity"
        )


def _amount(size: float) -> str:
    """``123456 bytes (123 kB)``."""
    exact = f"{size:.0f} bytes"
    return exact if size < 1000 else f"{exact} ({format_bytes(size)})"
