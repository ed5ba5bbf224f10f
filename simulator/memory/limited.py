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
        self._live = LiveTensors(run, self._room, self._tensors)
        self._weights = LoadedWeights(
            run, self._room, self._lines, self._tensors, self._blocked, store
        )
        self._copies = ArrivingCopies(
            run, links, self._room, self._lines, self._tensors, self._live, self._weights
        )
        self._outside: set[int] = set()  # jobs whose inputs have found no room yet
        self._waited: list[tuple[int, float]] = []  # jobs whose inputs waited for room, until when
        self._open: list[int] = []  # by job: unfinished tasks and results not yet delivered

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
        self._open.append(len(graph))
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

        def take() -> None:
            self._room.take(space, total)
            for t in tensors:
                if weights:
                    self._weights.here[space][first + t] = size[t]
                    continue
                live = LiveTensor(size[t], space, False, EVERYWHERE, True, True)
                self._room.inputs[space] += live.bytes
                self._live.hold(first + t, live)
            if not weights:
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
            lambda: weights or job not in run.rejected,
            take,
            lambda: self._outside.discard(job),
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

    def _settle_job(self, job: int, change: int) -> None:
        self._open[job] += change
        if not self._open[job]:
            first = self._tensors.first(job)
            for t in self._run.jobs[job].graph.outputs:
                live = self._live.all.get(first + t)
                if live is not None:
                    live.result = False
                    self._live.review(first + t, live)

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
        asked = self._weights.store is None or self._run.pushes or self._run.is_ready(task)
        self._leave(task, device, asked, back=True)
        self._blocked.withdrawn(task, device)

    def _leave(self, task: int, device: int, asked: bool, back: bool) -> None:
        """A task needs its data no more, or (``back``) does not know where."""
        space = self._run.cluster.space_of[device]
        for tensor, live in self._live.read_by(task):
            live.unplaced += back
            live.users[space] -= 1
            if not live.users[space]:
                del live.users[space]
            self._live.review(tensor, live)
        if asked:
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
            job = tensors.job(tensor)
            result = tensor - tensors.first(job) in run.job_index[job].outputs
            target = run.destination[job]
            live = LiveTensor(tensors.bytes(tensor), space, result, target, False)
            self._live.hold(tensor, live)
        return True

    def finished(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        run = self._run
        space = run.cluster.space_of[device]
        job = run.job_of(task)
        self._leave(task, device, asked=True, back=False)
        self._give_back_inner(task, space)
        under_way = dict.fromkeys(run.members.get(job, (job,)), 0)
        for tensor in self._tensors.written(task):
            live = self._live.all[tensor]
            live.written = True
            under_way[self._tensors.job(tensor)] += live.result and live.target not in (
                EVERYWHERE,
                space,
            )
            self._live.review(tensor, live)
        for member, count in under_way.items():
            self._settle_job(member, count - 1)

    def lost(self, task: int, device: int) -> None:
        """See :class:`simulator.memory.memory.Memory`."""
        self._leave(task, device, asked=True, back=True)
        self._give_back_inner(task, self._run.cluster.space_of[device])
        for tensor in self._tensors.written(task):
            live = self._live.all.pop(tensor)
            self._room.give_back(live.home, live.bytes)

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
        live.copies[space] = True
        live.flying -= 1
        if self._tensors.home(tensor) == space:
            self._live.move(tensor, live, space)
        last = live.result and space == live.target
        self._live.review(tensor, live)
        if last:
            self._settle_job(self._tensors.job(tensor), -1)

    # -- weights --------------------------------------------------------------------------------

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.bytes_of(graph, space)

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :class:`simulator.memory.memory.Memory`."""
        return self._weights.evict(graph, space, weights)

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
            found["evictions"] = [list(row) for row in self._weights.evictions]
        waited = [*self._waited, *((job, None) for job in sorted(self._outside))]
        if waited:
            found["inputs_waited"] = [list(row) for row in waited]
        return found
