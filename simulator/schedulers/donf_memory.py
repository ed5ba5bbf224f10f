"""DONF that looks after memory.

Source: DONFM in TripletRun, the simulator of DONF's first author (lanhin/TripletRun): when a device is
more than 90% full, a ready consumer of the block with fewest outstanding readers is preferred, and
tasks wait for a device that has room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop
from typing import ClassVar

from simulator.context import EVERYWHERE, InputTensor, SchedulingContext
from simulator.context.scheduler import compared
from simulator.errors import InvalidInput
from simulator.schedulers._pricing import best_device, estimated_finishes
from simulator.schedulers.donf import Donf

Entry = tuple[float, float, int]
"""Of the ready list: minus priority, when it became ready, task."""


class DonfMemory(Donf):
    """DONF that holds ready tasks until a device's memory has room for what they bring, and that,
    while a memory is nearly full, prefers those that let data there go.

    While more than ``threshold`` of a memory space is occupied, the ready task comes first that reads
    the tensor there with fewest readers left (ties: as ``donf``). A task goes to the device of least
    estimated finish among those whose space has room for its outputs and for the inputs that are not
    there, beside what waits there already and what queued tasks will write; weights aside. If there is
    none it is held; when nothing runs or starts whose end could make room, all go as ``donf`` places them.
    Without limited memory it is ``donf``.

    Args:
        threshold: share of a space's capacity, 0 to 1.
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
    """

    name: ClassVar[str] = "donf_memory"

    def __init__(self, threshold: float = 0.9, pricing: str = "per_link") -> None:
        super().__init__(pricing)
        if not 0 <= threshold <= 1:
            raise InvalidInput(
                f"Scheduler 'donf_memory' takes a threshold from 0 to 1, not {threshold}"
            )
        self.threshold = threshold
        self._limited: list[int] = []
        self._open: dict[int, int] = {}  # device of what is placed and not finished
        self._has_read: dict[int, int] = {}  # by tensor: readers that have finished

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        super().begin(context)
        spaces = sorted({*context.cluster.space_of})
        self._limited = [space for space in spaces if context.free_bytes(space) < math.inf]

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        if not self._limited:
            super().decide(context)
            return
        for task in context.finished:
            self._open.pop(task, None)
            for item in context.inputs(task):
                self._has_read[item.tensor] = self._has_read.get(item.tensor, 0) + 1
        if context.failed:
            self._ready = [entry for entry in self._ready if context.is_ready(entry[2])]
            heapify(self._ready)
        self._take_in(context)
        if not self._ready:
            return
        room, full = self._room(context), self._full(context)
        held, placed = [], False
        while self._ready:
            entry, why = self._next(context, full)
            negative, _, task = entry
            able = context.able(task)
            fits = [
                d for d in able if self._need(context, task, d) <= room[context.cluster.space_of[d]]
            ]
            if not fits:
                held.append(entry)
                continue
            self._put(context, task, fits, f"priority {-negative:.6g}{why}", room)
            placed = True
        runs = placed or not all(context.is_queued(task) for task in self._open)
        if held and not runs:
            for negative, _, task in held:
                able = context.able(task)
                self._put(context, task, able, f"priority {-negative:.6g}, no room anywhere", room)
            return
        self._ready = held
        heapify(self._ready)

    def _put(
        self,
        context: SchedulingContext,
        task: int,
        devices: Sequence[int],
        why: str,
        room: list[float],
    ) -> None:
        """Place a task on the best of some devices."""
        device = best_device(context, task, devices, self.pricing)
        if context.explain:
            finishes = estimated_finishes(context, task, devices, self.pricing)
            name = context.cluster.devices[device].name
            context.explain(
                f"{context.label(task)} ({why}) -> {name}: {compared(device, finishes)}"
            )
        room[context.cluster.space_of[device]] -= self._need(context, task, device)
        context.place(task, device)
        self._open[task] = device

    def _next(self, context: SchedulingContext, full: list[int]) -> tuple[Entry, str]:
        """Take the task that comes first out of the list, with what speaks for it beside priority."""
        if not full:
            return heappop(self._ready), ""
        readers = [self._fewest_readers(context, entry[2], full) for entry in self._ready]
        place = min(range(len(readers)), key=lambda i: (readers[i], self._ready[i]))
        if readers[place] == math.inf:
            return heappop(self._ready), ""
        entry = self._ready.pop(place)
        heapify(self._ready)
        return entry, f", memory is full and {readers[place]:.0f} left to read"

    def _fewest_readers(self, context: SchedulingContext, task: int, full: list[int]) -> float:
        """How many have yet to read what a task reads in one of some spaces; ``inf`` if it reads
        nothing there.
        """
        consumers = context.jobs[context.job_of(task)].graph.consumers
        fewest = math.inf
        for item, tensor in self._inputs(context, task):
            if item.space != EVERYWHERE and any(_lies(context, item, space) for space in full):
                left = len(consumers[tensor]) - self._has_read.get(item.tensor, 0)
                fewest = min(fewest, left)
        return fewest

    def _inputs(self, context: SchedulingContext, task: int) -> Iterator[tuple[InputTensor, int]]:
        """What a task reads, and which tensor of its graph that is."""
        graph = context.jobs[context.job_of(task)].graph
        return zip(
            context.inputs(task),
            graph.activations_read[context.operator_of(task)],
            strict=True,
        )

    def _need(self, context: SchedulingContext, task: int, device: int) -> float:
        """Bytes that a task would add to a device's space: its outputs, and inputs not there."""
        space = context.cluster.space_of[device]
        brought = sum(
            math.ceil(item.bytes)
            for item in context.inputs(task)
            if item.space != EVERYWHERE and not _lies(context, item, space)
        )
        return brought + _written(context, task)

    def _room(self, context: SchedulingContext) -> list[float]:
        """By space: free bytes that nothing waits for."""
        room = [math.inf] * len(context.cluster.spaces)
        to_write = dict.fromkeys(self._limited, 0.0)
        for task, device in self._open.items():
            space = context.cluster.space_of[device]
            if space in to_write and context.is_queued(task):
                to_write[space] += _written(context, task)
        for space in self._limited:
            waits = max(to_write[space], context.waiting_bytes(space))
            room[space] = context.free_bytes(space) - waits
        return room

    def _full(self, context: SchedulingContext) -> list[int]:
        """Spaces of which more than the threshold is occupied."""
        spaces = context.cluster.spaces
        return [
            space
            for space in self._limited
            if 1 - context.free_bytes(space) / spaces[space].capacity > self.threshold
        ]


def _lies(context: SchedulingContext, item: InputTensor, space: int) -> bool:
    """Whether an input is in a space or on its way there."""
    return context.copy_time(item.tensor, space) is not None


def _written(context: SchedulingContext, task: int) -> float:
    """Bytes that a task writes."""
    graph = context.jobs[context.job_of(task)].graph
    sizes = graph.tensor_bytes
    return sum(math.ceil(sizes[t]) for t in graph.writes[context.operator_of(task)])
