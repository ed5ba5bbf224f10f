"""Weights in memory spaces, counted once for all jobs of a model (the same graph name, weight name and size).

*Resident* ones occupy a space from the first placement of a reader there to the end of the run and take no
time to get there. *On demand* they lie in the host memory and cross like any other tensor, each alone, when
a reader is placed (``push``) or placed and ready (``pull``); they stay until they are evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simulator.errors import InvalidInput, SchedulingError
from simulator.memory.blocked_devices import BlockedDevices
from simulator.memory.room import Room
from simulator.memory.room_queues import Lines, Order, Waiting, order_of
from simulator.memory.tensor_table import JobTensors
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Kind

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun


def weight_store(kinds: Iterable[Kind], cluster: Cluster) -> dict[DataflowGraph, int]:
    """For each graph the memory space where its weights lie that are loaded on demand.

    Raises:
        InvalidInput: there is none.
    """
    place: dict[str, str] = {}
    store = {}
    for graph, origin, _ in kinds:
        if not graph.weights:
            continue
        space = cluster.host or origin
        if space is None and graph.name not in place:
            raise InvalidInput(
                f"weights=on_demand: the weights of '{graph.name}' lie nowhere; give cluster "
                f"'{cluster.name}' a host memory, or the job an origin"
            )
        store[graph] = cluster.space_index[place.setdefault(graph.name, space or "")]
    return store


class Eviction(NamedTuple):
    """A weight that was taken out of a space."""

    moment: float
    space: int
    number: int
    arrived: float
    """When it had come there."""


class LoadedWeights:
    """Which weights lie where, which tasks need them there, and which were evicted.

    A weight goes by the number that it has in the first job that brought it.

    Args:
        run: the simulation.
        room: what they occupy.
        lines: where they wait for it.
        tensors: of the run's jobs.
        blocked: devices that may start something once weights are there.
        store: :func:`weight_store` of those on demand; None: they are resident.
    """

    def __init__(
        self,
        run: SimulatedRun,
        room: Room,
        lines: Lines,
        tensors: JobTensors,
        blocked: BlockedDevices,
        store: dict[DataflowGraph, int] | None,
    ) -> None:
        self._run = run
        self._room = room
        self._lines = lines
        self._tensors = tensors
        self._blocked = blocked
        self.store = store
        self.evictions: list[Eviction] = []
        self.here: list[dict[int, int]] = [{} for _ in room.capacity]
        """By space: number -> bytes of what is there or on its way."""
        self._number: dict[tuple[str, str, int], int] = {}
        self._of_job: list[dict[int, int]] = []  # by job: tensor of the graph -> number
        self._needing: dict[tuple[int, int], int] = {}  # (number, space) -> tasks that need it now
        self._asked: set[int] = set()  # these tasks
        self._first_need: dict[tuple[int, int], Order] = {}  # of weights not there
        self._loading: set[tuple[int, int]] = set()
        self._pinning: set[tuple[int, int]] = set()  # resident ones in a line

    # -- jobs -----------------------------------------------------------------------------------

    def arrived(self, job: int, graph: DataflowGraph) -> list[int]:
        """A job has arrived, after all those of smaller number; tensors of weights not known before."""
        sizes, first = self._tensors.sizes(graph), self._tensors.first(job)
        numbers: dict[int, int] = {}
        new = []
        for t in graph.weights:
            identity = (graph.name, graph.tensors[t].name, sizes.bytes[t])
            if identity not in self._number:
                self._number[identity] = first + t
                new.append(t)
            numbers[t] = self._number[identity]
        self._of_job.append(numbers)
        return new

    def batched(self, leader: int, graph: DataflowGraph) -> None:
        """A job is to run the graph of a batch from now on."""
        sizes = self._tensors.sizes(graph)
        numbers = {}
        for t in graph.weights:
            identity = (graph.name, graph.tensors[t].name, sizes.bytes[t])
            # Below 0: no tensor of a job has such a number.
            numbers[t] = self._number.setdefault(identity, -1 - len(self._number))
        self._of_job[leader] = numbers

    # -- tasks ----------------------------------------------------------------------------------

    def wants(self, number: int, space: int) -> bool:
        """Whether a task needs a weight in a space now."""
        return self._needing.get((number, space), 0) > 0

    def placed(self, task: int, space: int) -> None:
        """Resident weights want to lie where a task that reads them was placed."""
        if self.store is not None:
            return
        self._need(task, space)
        for number, size in self._read_by(task):
            key = (number, space)
            if number not in self.here[space] and key not in self._pinning:
                self._pinning.add(key)
                self._lines.ask(space, self._pin(number, space, size, task))

    def fetch(self, task: int, space: int) -> None:
        """Weights on demand are to be brought to where a task that reads them was placed."""
        if self.store is None:
            return
        self._need(task, space)
        for number, _ in self._read_by(task):
            if self._tensors.home(number) != space:
                self._request(number, space)

    def released(self, task: int, space: int) -> None:
        """A task needs its weights there no more, if it had asked for them."""
        if task not in self._asked:
            return
        self._asked.discard(task)
        for number, _ in self._read_by(task):
            self._needing[number, space] -= 1

    def are_there(self, task: int, space: int) -> bool:
        """Whether all weights that a task reads have arrived."""
        return all(
            number in self.here[space] and (number, space) not in self._loading
            for number, _ in self._read_by(task)
        )

    def first_need(self, number: int, space: int) -> Order | None:
        """The order of the first task that asked for a weight which is not there."""
        return self._first_need.get((number, space))

    def _need(self, task: int, space: int) -> None:
        """One task more needs its weights in a space."""
        if task in self._asked:
            return
        self._asked.add(task)
        order = order_of(self._run, task)
        for number, _ in self._read_by(task):
            key = (number, space)
            self._needing[key] = self._needing.get(key, 0) + 1
            if number not in self.here[space]:
                self._first_need[key] = min(self._first_need.get(key, order), order)

    def _read_by(self, task: int) -> list[tuple[int, int]]:
        """Number and bytes of the weights that a task reads."""
        run = self._run
        job = run.job_of(task)
        sizes, numbers = self._tensors.sizes(run.job_index[job].graph), self._of_job[job]
        return [(numbers[t], sizes.bytes[t]) for t in sizes.weights[run.operator_of(task)]]

    def _pin(self, number: int, space: int, size: int, task: int) -> Waiting:
        """Resident weights want to lie where they are used first."""

        def take() -> None:
            self._pinning.discard((number, space))
            self._first_need.pop((number, space), None)
            if not self.wants(number, space):
                return
            self.here[space][number] = size
            self._room.take(space, size)
            self._blocked.try_all(space)

        return Waiting(
            order_of(self._run, task),
            size,
            lambda: self.wants(number, space),
            take,
            lambda: self._pinning.discard((number, space)),
            lambda: f"weights of task '{self._run.label(task)}' need",
        )

    def _request(self, number: int, space: int) -> None:
        run = self._run
        job = self._tensors.job(number)
        run.request(number, space, run.job_index[job].bytes[number - self._tensors.first(job)])

    # -- transfers ------------------------------------------------------------------------------

    def departed(self, number: int, space: int) -> None:
        """A weight is on its way to a space in which its room was taken."""
        self.here[space][number] = self._tensors.bytes(number)
        self._first_need.pop((number, space), None)
        self._loading.add((number, space))

    def delivered(self, number: int, space: int) -> None:
        """It has arrived there."""
        self._loading.discard((number, space))
        self._blocked.try_all(space)

    # -- what faults take -----------------------------------------------------------------------

    def called_off(self, number: int, space: int) -> None:
        """It does not arrive."""
        self._loading.discard((number, space))
        self._vanish(number, space)

    def lose(self, space: int) -> None:
        """A space has lost what lay in it: weights that were brought there are gone."""
        for number in list(self.here[space] if self.store is not None else ()):
            if self._tensors.home(number) != space:
                self._vanish(number, space)

    def _vanish(self, number: int, space: int) -> None:
        self._room.give_back(space, self.here[space].pop(number))
        orders = [order_of(self._run, task) for task in self.waiting_for(number, space)]
        if orders:
            self._first_need[number, space] = min(orders)

    def waiting_for(self, number: int, space: int) -> list[int]:
        """The queued tasks that need a weight in a space."""
        run = self._run
        devices = (d for d, s in enumerate(run.cluster.space_of) if s == space)
        queued = (task for d in devices for _, _, task in run.queues[d] if task in self._asked)
        return [t for t in queued if any(number == n for n, _ in self._read_by(t))]

    def request_again(self, number: int) -> None:
        """Ask for a weight wherever it is needed and neither there nor on its way."""
        for (n, space), count in list(self._needing.items()):
            if n == number and count and self._tensors.home(number) != space:
                self._request(number, space)

    # -- what schedulers ask --------------------------------------------------------------------

    def _known(self, graph: DataflowGraph) -> dict[str, int]:
        """Name -> number of the weights of a graph of which a job has arrived."""
        if not self._tensors.knows(graph):
            return {}
        sizes = self._tensors.sizes(graph)
        names = {t: graph.tensors[t].name for t in graph.weights}
        return {n: self._number[graph.name, n, sizes.bytes[t]] for t, n in names.items()}

    def bytes_of(self, graph: DataflowGraph, space: int) -> float:
        """Of a graph's weights those that are there."""
        here = self.here[space]
        return float(sum(here.get(number, 0) for number in self._known(graph).values()))

    def evict(self, graph: DataflowGraph, space: int, weights: Sequence[str] | None) -> float:
        """See :meth:`simulator.context.scheduling.SchedulingContext.evict`."""
        name = self._run.cluster.spaces[space].name
        if self.store is None:
            raise SchedulingError(
                "Weights are resident in this run and cannot be evicted; set weights=on_demand"
            )
        if self.store.get(graph) == space:
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
            if self.may_go(number, space):
                freed += self.evict_weight(number, space)
            elif weights is not None:
                here = number in self.here[space]
                why = "a task placed there needs it" if here else "it is not there"
                raise SchedulingError(
                    f"Weight '{weight}' of '{graph.name}' cannot be evicted from memory space "
                    f"'{name}': {why}"
                )
        return float(freed)

    def may_go(self, number: int, space: int) -> bool:
        """Whether a weight is in a space to which it was brought, and no task there needs it."""
        key = (number, space)
        return number in self.here[space] and key not in self._loading and not self.wants(*key)

    def evict_weight(self, number: int, space: int) -> int:
        """Take a weight out of a space; returns its bytes."""
        size = self.here[space].pop(number)
        self._room.give_back(space, size)
        arrived = self._run.copies[space][number]
        self._tensors.forget_copy(number, space)
        self.evictions.append(Eviction(self._run.now, space, number, arrived))
        return size

    def take_back_evictions(self, count: int) -> list[tuple[int, int]]:
        """See :class:`simulator.memory.memory.Memory`; what asked for a weight since then was withdrawn."""
        undone = self.evictions[count:]
        del self.evictions[count:]
        for _, space, number, arrived in undone:
            size = self.here[space][number] = self._tensors.bytes(number)
            self._room.take(space, size)
            self._first_need.pop((number, space), None)
            self._run.copies[space][number] = arrived
        return [(e.number, e.space) for e in undone]
