"""Memory spaces of finite capacity: what jobs, tasks and transfers take of them, and give back.

Whole bytes, each tensor rounded up. :mod:`simulator.memory.memory` says what a run may rely on; the parts are the
room itself (:mod:`simulator.memory.room`), who waits for it (:mod:`simulator.memory.room_queues`), who still
wants a tensor (:mod:`simulator.memory.liveness`), weights (:mod:`simulator.memory.weights`) and copies
(:mod:`simulator.memory.incoming_transfers`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.context import EVERYWHERE
from simulator.errors import SchedulingError
from simulator.memory.blocked_devices import BlockedDevices
from simulator.memory.incoming_transfers import ArrivingCopies
from simulator.memory.liveness import LiveTensor, LiveTensors
from simulator.memory.room import Room
from simulator.memory.room_queues import FIRST, Lines, Waiting, order_of
from simulator.memory.tensor_table import JobTensors
from simulator.memory.weights import LoadedWeights
from simulator.model.graph import DataflowGraph
from simulator.model.units import exact_bytes

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun
    from simulator.links.flows import Flow
    from simulator.memory.memory import Links


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

    keeps_jobs = True

    def __init__(
        self,
        run: SimulatedRun,
        links: Links,
        capacities: Sequence[float],
        store: dict[DataflowGraph, int] | None,
        inputs: Sequence[float],
    ) -> None:
        self._run = run
        self._tensors = JobTensors(run)
        self._blocked = BlockedDevices(run)
        self._room = Room(capacities, inputs, self._drop, self._blocked.try_again)
        self._lines = Lines(self._room, self._blocked.ask_scheduler)
        self._live = LiveTensors(run, self._room, self._tensors, self._let_go)
        self._weights = LoadedWeights(
            run, self._room, self._lines, self._tensors, self._blocked, store
        )
        self._copies = ArrivingCopies(
            run, links, self._room, self._lines, self._tensors, self._live, self._weights
        )
        self._back: set[int] = set()  # inputs that are to lie once more where they came from
        self._outside: set[int] = set()  # jobs whose inputs have found no room yet
        self._waited: list[tuple[int, float]] = []  # jobs whose inputs waited for room, until when
        # Of tasks that run again: space and bytes of what they write that is left from before.
        self._spare: dict[int, tuple[int, int]] = {}

    def _drop(self, tensor: int, space: int) -> None:
        self._live.drop(tensor, space)

    # -- room -----------------------------------------------------------------------------------

    def free_bytes(self, space: int) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._room.free(space)

    def waiting_bytes(self, space: int) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        line = sum(waiting.bytes for waiting in self._lines.waiting_in(space))
        if line:
            return line + self._lines.to_write[space]
        space_of = self._run.cluster.space_of
        return sum(size for d, _, size in self._blocked.heads() if space_of[d] == space)

    def store_of(self, graph: DataflowGraph) -> int | None:
        """See :class:`simulator.memory.memory.Memory`."""
        store = self._weights.store
        return None if store is None else store.get(graph)

    def settle(self) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._lines.settle()

    def relax(self) -> bool:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._lines.relax()

    # -- jobs -----------------------------------------------------------------------------------

    def arrived(self, job: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        run = self._run
        graph = run.jobs[job].graph
        new = self._weights.arrived(job, graph)
        store = self._weights.store
        if store is not None and new:
            first, space = self._tensors.first(job), store[graph]
            for t in new:
                self._tensors.move_home(first + t, space)
            self._lines.ask(space, self._bringing(job, space, new, True))
        origin = run.jobs[job].origin
        read = [t for t in graph.inputs if graph.consumers[t]]
        if origin is not None and read:
            space = run.cluster.space_index[origin]
            self._outside.add(job)
            self._lines.ask(space, self._bringing(job, space, read, False))

    def _bringing(self, job: int, space: int, tensors: Sequence[int], weights: bool) -> Waiting:
        """A job's inputs, or the weights of its model, want to lie where they come from."""
        run = self._run
        first = self._tensors.first(job)
        size = self._tensors.sizes(run.jobs[job].graph).bytes
        total = sum(size[t] for t in tensors)

        def cancel() -> None:
            self._outside.discard(job)
            self._back.difference_update(first + t for t in tensors)

        def take() -> None:
            if not weights and run.has_left(job):
                cancel()
                return
            self._room.take(space, total)
            for t in tensors:
                if weights:
                    self._weights.here[space][first + t] = size[t]
                    continue
                live = LiveTensor(size[t], space, False, EVERYWHERE, True, True)
                self._room.inputs[space] += live.bytes
                self._live.hold(first + t, live)
                self._back.discard(first + t)
                self._live.review(first + t, live)
            if job in self._outside and not weights:
                self._outside.discard(job)
                if run.now > run.jobs[job].arrival:
                    self._waited.append((job, run.now))
                run.found_room(job)
            self._blocked.try_all(space)
            for t in tensors:
                self._copies.has_source(first + t)

        what = "weights" if weights else "inputs"
        name = run.jobs[job].graph.name
        limited = not weights and self._room.most_inputs[space] < math.inf
        return Waiting(
            FIRST,
            total,
            lambda: weights or not run.has_left(job),
            take,
            cancel,
            lambda: f"the {what} of job {job} ('{name}') need",
            inputs=total if limited else 0,
        )

    def is_outside(self, job: int) -> bool:
        """See :class:`simulator.memory.memory.Memory`."""
        return job in self._outside

    def rejected(self, job: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        first = self._tensors.first(job)
        for t in self._run.job_index[job].inputs:
            live = self._live.all.get(first + t)
            if live is not None:
                live.unplaced = 0
                self._live.review(first + t, live)

    def batched(self, leader: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        run = self._run
        index = run.job_index[leader]
        self._weights.batched(leader, index.graph)
        for job in run.members[leader]:
            first = self._tensors.first(job)
            for t in index.inputs:
                live = self._live.all.get(first + t)
                if live is not None:
                    live.unplaced = len(index.consumers[t])
                    self._live.review(first + t, live)

    def _settle_job(self, job: int) -> None:
        """A job may be done: then nobody wants its results here any more."""
        run = self._run
        if run.tasks_left[job] or run.has_left(job):
            return
        first = self._tensors.first(job)
        results = [first + t for t in run.jobs[job].graph.outputs if first + t in self._live.all]
        state = [self._live.all.get(first + t) for t in run.job_index[job].updates]
        if any(live is not None and (live.owed or live.flying) for live in state):
            return
        if all(self._live.all[tensor].is_delivered for tensor in results):
            run.is_beyond_faults(job)
            for tensor in results:
                live = self._live.all[tensor]
                live.result = False
                self._live.review(tensor, live)

    def failed(self, job: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        first = self._tensors.first(job)
        for tensor in range(first, first + len(self._run.jobs[job].graph.tensors)):
            live = self._live.all.get(tensor)
            self._copies.abandon(tensor)
            if live is not None:
                live.unplaced, live.heirs, live.result = 0, 0, False
                live.owed.clear()
                self._live.review(tensor, live)

    # -- tasks ----------------------------------------------------------------------------------

    def placed(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        space = self._run.cluster.space_of[device]
        self._check_together(task, space)
        order, size = order_of(self._run, task), self._tensors.output_bytes(task)
        self._lines.queue(task, space, order, size)
        for tensor, live in self._live.read_by(task):
            live.unplaced -= 1
            live.users[space] = live.users.get(space, 0) + 1
            self._live.review(tensor, live)
        for tensor, live in self._live.inherited_by(task):
            self._live.owe(tensor, live)
        self._weights.placed(task, space)

    def _check_together(self, task: int, space: int) -> None:
        """Refuse that a batch leaves the memory space of its inputs."""
        run = self._run
        job = run.job_of(task)
        if len(run.members.get(job, ())) < 2:
            return
        first = self._tensors.first(job)
        for t in run.job_index[job].inputs:
            home = self._tensors.home(first + t)
            if home not in (space, EVERYWHERE):
                names = [run.cluster.spaces[s].name for s in (space, home)]
                raise SchedulingError(
                    f"Task '{run.label(task)}' of a batch was placed in memory space '{names[0]}', but the "
                    f"batch's inputs lie in '{names[1]}'; with limited memory a batch stays where they are"
                )

    def withdrawn(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._lines.unqueue(task, self._run.cluster.space_of[device])
        self._leave(task, device, back=not self._run.has_left(self._run.job_of(task)))
        self._blocked.withdrawn(task, device)

    def _leave(self, task: int, device: int, back: bool) -> None:
        """A task needs its data no more, or (``back``) does not know where."""
        space = self._run.cluster.space_of[device]
        for tensor, live in self._live.read_by(task):
            live.unplaced += back
            live.users[space] -= 1
            if not live.users[space]:
                del live.users[space]
            self._live.review(tensor, live)
        for tensor, live in self._live.inherited_by(task):
            if back:
                self._live.owe(tensor, live, task)
            self._live.review(tensor, live)
        self._weights.released(task, space)

    def fetch(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._weights.fetch(task, self._run.cluster.space_of[device])

    def wants(self, tensor: int, space: int) -> bool:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.wants(tensor, space)

    def admit(self, task: int, device: int) -> bool:
        """See :class:`simulator.memory.memory.Memory`."""
        run, tensors = self._run, self._tensors
        self._blocked.free(device)
        space = run.cluster.space_of[device]
        for tensor in tensors.read(task):
            if tensor not in self._live.all and tensors.is_brought(tensor):
                return False  # a job's input that waits for room
        if not self._weights.are_there(task, space):
            return False
        size = self._lines.queued_bytes(task, space)
        if not self._room.fits(space, size):
            self._blocked.block(device, task, size)
            return False
        self._room.take(space, size)
        self._lines.unqueue(task, space)
        for tensor in tensors.written(task):
            if tensor in self._live.all:
                self._spare[tensor] = (space, tensors.bytes(tensor))
            else:
                self._write(tensor, space)
        return True

    def _write(self, tensor: int, space: int) -> None:
        """A tensor is being written in a space, where its room was taken."""
        run, tensors = self._run, self._tensors
        job = tensors.job(tensor)
        result = tensor - tensors.first(job) in run.job_index[job].outputs
        target = run.destination[job]
        live = LiveTensor(tensors.bytes(tensor), space, result, target, False)
        self._live.hold(tensor, live)

    def finished(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        run = self._run
        space = run.cluster.space_of[device]
        job = run.job_of(task)
        if self._tensors.inherited(task):
            self._live.have_read.add(task)
        for _, live in self._live.inherited_by(task):
            live.heirs = max(live.heirs - 1, 0)
        self._leave(task, device, back=False)
        self._give_back_inner(task, space)
        for tensor in self._tensors.written(task):
            if self._give_back_spare(tensor):
                continue
            live = self._live.all[tensor]
            live.written = True
            self._live.review(tensor, live)
        for member in run.members.get(job, (job,)):
            self._settle_job(member)

    def lost(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._leave(task, device, back=not self._run.has_left(self._run.job_of(task)))
        self._give_back_inner(task, self._run.cluster.space_of[device])
        for tensor in self._tensors.written(task):
            if not self._give_back_spare(tensor):
                live = self._live.all.pop(tensor)
                self._room.give_back(live.home, live.bytes)

    def _give_back_spare(self, tensor: int) -> bool:
        """What was written once more and is left from before is not kept; whether this is such a tensor."""
        if tensor not in self._spare:
            return False
        self._room.give_back(*self._spare.pop(tensor))
        return True

    def reopened(self, task: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        for tensor in self._tensors.read(task):
            live = self._live.all.get(tensor)
            if live is not None:
                live.unplaced += 1
                self._live.review(tensor, live)
            elif self._tensors.is_brought(tensor):
                self._bring_back(tensor)
        self._live.have_read.discard(task)
        for tensor, live in self._live.inherited_by(task):
            live.heirs += 1
            self._live.owe(tensor, live, task)
            self._live.review(tensor, live)

    def _give_back_inner(self, task: int, space: int) -> None:
        if inner := self._tensors.inner_bytes(task):
            self._room.give_back(space, inner)

    # -- transfers ------------------------------------------------------------------------------

    def send(self, flow: Flow) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._copies.send(flow)

    def expected(self, flow: Flow) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._copies.expected(flow)

    def delivered(self, tensor: int, space: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        live = self._live.all.get(tensor)
        if live is None:
            self._weights.delivered(tensor, space)
            return
        job = self._tensors.job(tensor)
        live.copies[space] = True
        live.owed.discard(space)
        live.flying -= 1
        if self._tensors.home(tensor) == space:
            self._live.move(tensor, live, space)
        changes = tensor - self._tensors.first(job) in self._run.job_index[job].updates
        last = (changes and not live.owed) or (live.result and space == live.target)
        self._live.review(tensor, live)
        if last:
            self._settle_job(job)

    # -- what faults take -----------------------------------------------------------------------

    def called_off(self, flow: Flow) -> bool:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._copies.called_off(flow)

    def lose(self, space: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._weights.lose(space)
        for tensor, live in list(self._live.all.items()):
            if space in live.copies:
                self._live.lose_copy(tensor, live, space)
                self._live.owe(tensor, live)

    def moved(self, tensor: int, space: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        live = self._live.all.get(tensor)
        if live is not None:
            self._live.move_home(tensor, live, space)

    def gone(self, tensor: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        live = self._live.all.get(tensor)
        if live is not None:
            self._live.lose(tensor, live)
            if live.input and not self._run.has_left(self._tensors.job(tensor)):
                self._bring_back(tensor)

    def _let_go(self, tensor: int) -> None:
        """A tensor lies nowhere any more; if it is being written again, it is kept."""
        self._run.let_go(tensor)
        if tensor in self._spare:
            self._write(tensor, self._spare.pop(tensor)[0])

    def _bring_back(self, tensor: int) -> None:
        """An input that is wanted again comes from where its job arose, as at its arrival."""
        if tensor in self._back:
            return
        self._back.add(tensor)
        job = self._tensors.job(tensor)
        space = self._run.cluster.space_index[self._run.jobs[job].origin or ""]
        t = tensor - self._tensors.first(job)
        self._lines.ask(space, self._bringing(job, space, [t], False))

    def request_again(self, tensor: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._weights.request_again(tensor)

    def jobs_waiting_for(self, tensor: int, space: int) -> list[int]:
        """See :class:`simulator.memory.memory.Memory`."""
        waiting = self._weights.waiting_for(tensor, space)
        return sorted({self._run.job_of(task) for task in waiting})

    # -- weights --------------------------------------------------------------------------------

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.bytes_of(graph, space)

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.evict(graph, space, weights)

    @property
    def evicted(self) -> int:
        """See :class:`simulator.memory.memory.Memory`."""
        return len(self._weights.evictions)

    def take_back_evictions(self, count: int) -> list[tuple[int, int]]:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.take_back_evictions(count)

    def evict_weight(self, number: int, space: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        if self._weights.may_go(number, space):
            self._weights.evict_weight(number, space)

    # -- the end --------------------------------------------------------------------------------

    def check(self) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        run = self._run
        for device, task, size in self._blocked.heads():
            what = f"task '{run.label(task)}' on device '{run.cluster.devices[device].name}' needs"
            raise self._stuck(run.cluster.space_of[device], what, size)
        for space in range(len(run.cluster.spaces)):
            for waiting in self._lines.waiting_in(space):
                raise self._stuck(space, waiting.describe(), waiting.bytes)

    def _stuck(self, space: int, what: str, size: int) -> SchedulingError:
        way = "take a smaller batch, fewer jobs at once or another movement"
        if self._weights.store is None:
            way += ", or load weights on demand (weights=on_demand)"
        else:
            way += ", or a scheduler that evicts weights (lru_eviction)"
        name = self._run.cluster.spaces[space].name
        return SchedulingError(
            f"Out of memory: nothing is left to happen, and {what} {exact_bytes(size)} in memory space "
            f"'{name}', of whose {exact_bytes(self._room.capacity[space])} {self.free_bytes(space):.0f} are "
            f"free. Give it a larger capacity, {way}"
        )

    def report(self) -> dict[str, Any]:
        """See :class:`simulator.memory.memory.Memory`."""
        found: dict[str, Any] = {"peak_bytes": [float(peak) for peak in self._room.peak]}
        if self._weights.evictions:
            found["evictions"] = [
                [
                    e.moment,
                    e.space,
                    job := self._tensors.job(e.number),
                    e.number - self._tensors.first(job),
                ]
                for e in self._weights.evictions
            ]
        waited = [*self._waited, *((job, None) for job in sorted(self._outside))]
        if waited:
            found["inputs_waited"] = [list(row) for row in waited]
        return found
