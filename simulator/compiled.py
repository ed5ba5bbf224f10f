"""The direct way with its state in arrays and its steps compiled: one call for each placement, each
finish, and what begins at an instant.

A run of a hundred thousand tasks pays for loading numba several times over; one of a traced model does
not. The trace is that of :class:`simulator.direct.DirectSimulation`.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable
from heapq import heappush
from typing import Any, ClassVar

import numpy as np

from simulator import kernels
from simulator.arrays import ArrayedSimulation
from simulator.clock import TASK_ENDS
from simulator.compiling import entry
from simulator.context import Queued
from simulator.costs import CostTable
from simulator.direct import DirectSimulation, in_turn, rows_of_moves
from simulator.graph import DataflowGraph
from simulator.pricing import PRICINGS
from simulator.scheduler import Scheduler
from simulator.trace import Table
from simulator.workload import Job


class _Arrivals:
    """When every copy is there, read as a dictionary of those that were asked for."""

    def __init__(self, header: Any, arrival: Any) -> None:
        self._header = header
        self._arrival = arrival

    def __len__(self) -> int:
        moves: int = self._header[kernels.MOVES]
        return moves

    def __contains__(self, copy: int) -> bool:
        asked: bool = self._arrival[copy] != 0.0
        return asked

    def __getitem__(self, copy: int) -> float:
        arrival: float = self._arrival[copy]
        return 0.0 if arrival == kernels.AT_ZERO else arrival

    def get(self, copy: int) -> float | None:
        """None if nobody asked for it."""
        arrival = self[copy]
        return arrival if arrival or copy in self else None


class _Running:
    """The tasks that every device has taken and that have not ended."""

    def __init__(self, run: CompiledSimulation) -> None:
        self._taken, self._slots = run._taken, run._slots

    def __getitem__(self, device: int) -> list[int]:
        begin = device * max(self._slots)
        tasks = self._taken[begin : begin + self._slots[device]]
        return [task for task in tasks if task >= 0]


class _Queues:
    """What waits in the queue of every device, in order."""

    def __init__(self, run: CompiledSimulation) -> None:
        self._heads, self._child, self._next = run._heads, run._child, run._next
        self._rank, self._sequence = run._rank, run._sequence

    def __getitem__(self, device: int) -> list[Queued]:
        found, beside = [], [self._heads[device]]
        while beside:
            task = beside.pop()
            while task >= 0:
                found.append((self._rank[task], self._sequence[task], task))
                beside.append(self._child[task])
                task = self._next[task]
        return sorted(found)


class CompiledSimulation(ArrayedSimulation, DirectSimulation):
    """See the module docstring. For routes of one channel, or links without contention."""

    _names: ClassVar[Any] = kernels

    def _prepare(self) -> None:
        self._lay_out()
        super()._prepare()
        self._best_device = self._make_best_device()

    # -- the arrays -----------------------------------------------------------------------------

    def _parts(self, jobs: int, tasks: int, tensors: int) -> dict[int, int]:
        spaces, devices = len(self.cluster.spaces), len(self.cluster.devices)
        shared = self._actual_source is None or isinstance(self._actual_source, CostTable)
        return {
            **super()._parts(jobs, tasks, tensors),
            **dict.fromkeys((*_WHOLE_BY_TASK, *_REAL_BY_TASK), tasks),
            **dict.fromkeys(_BY_DEVICE, devices),
            kernels.CHANNEL: spaces * spaces,
            kernels.ACTUAL: jobs,
            kernels.TAKEN: devices * max(self._slots),
            kernels.BEGUN: devices * max(self._slots),
            kernels.ARRIVAL: tensors * spaces,
            kernels.FREE: len(self.cluster.channels),
            kernels.START: self._room,
            kernels.REALISED: 0 if shared else tasks * devices,
            kernels.SETTLED: 1,
            kernels.PARCELS: spaces,
        }

    def _arrays_of(self, graph: DataflowGraph) -> list[tuple[bool, int, np.ndarray]]:
        tables = [(kernels.SECONDS, self._believed)]
        if isinstance(self._actual_source, CostTable):
            tables.append((kernels.HAPPENS, self._actual_source))
        return [
            *super()._arrays_of(graph),
            *((False, name, self._with_overhead(table[graph].seconds)) for name, table in tables),
        ]

    def _with_overhead(self, seconds: np.ndarray) -> np.ndarray:
        return (self._overhead + seconds if self._overhead.any() else seconds).ravel()

    def _lay_out(self) -> None:
        super()._lay_out()
        spaces, devices = len(self.cluster.spaces), len(self.cluster.devices)
        tasks = sum(len(job.graph) for job in self._workload)
        slots = devices * max(self._slots)
        for name, value in (
            (kernels.REAL, self._real.ctypes.data),
            (kernels.DEVICES, devices),
            (kernels.MOST_SLOTS, max(self._slots)),
            (kernels.ROOM, self._room),
            (kernels.QUEUED, self.contention == "fifo"),
            (kernels.PUSH, self._push),
            (kernels.EXACT, self._actual_source is None),
        ):
            self._whole[name] = value
        for name, count, start in (
            (kernels.CHANNEL, spaces * spaces, -1),
            (kernels.DEVICE, tasks, -1),
            (kernels.HEAD, devices, -1),
            (kernels.TAKEN, slots, -1),
            (kernels.READY_AT, tasks, math.inf),
            (kernels.PLACED_AT, tasks, math.inf),
            (kernels.BEGINS, tasks, math.inf),
            (kernels.ENDS, tasks, math.inf),
            (kernels.EXPECTED, tasks, math.inf),
        ):
            self._array(name, count)[:] = start
        self._array(kernels.SLOTS, devices)[:] = self._slots
        self._channels = self._view(kernels.CHANNEL, spaces * spaces)
        self._channel_free = self._view(kernels.FREE, len(self.cluster.channels))
        copies = sum(len(job.graph.tensors) for job in self._workload) * spaces
        self._arrival = self._view(kernels.ARRIVAL, copies)
        self._flushed: list[list[np.ndarray]] = []  # moves that were taken out to make room
        # By task, in whose place the arrays are.
        self._device = self._view(kernels.DEVICE, tasks)
        self._sequence = self._view(kernels.SEQUENCE, tasks)
        self._rank = self._view(kernels.RANK, tasks)
        self._ready_at = self._view(kernels.READY_AT, tasks)
        self._placed_at = self._view(kernels.PLACED_AT, tasks)
        self._started = self._view(kernels.STARTED, tasks)
        self._expected = self._view(kernels.EXPECTED, tasks)
        self._start_time = self._view(kernels.BEGINS, tasks)
        self._finish_time = self._view(kernels.ENDS, tasks)
        self._slot = self._view(kernels.SLOT, tasks)
        self._child = self._view(kernels.CHILD, tasks)
        self._next = self._view(kernels.NEXT, tasks)
        # By device.
        self._heads = self._view(kernels.HEAD, devices)
        self._load = self._view(kernels.LOAD, devices)
        self._stale = self._view(kernels.STALE, devices)
        self._called = self._view(kernels.CALLED, devices)
        self._available = self._view(kernels.AVAILABLE, devices)
        self._taken = self._view(kernels.TAKEN, slots)
        self._running: Any = _Running(self)
        self._queues: Any = _Queues(self)

    def _add_tasks(self, count: int) -> None:
        self._header[kernels.TASKS] += count

    def _note_actual(self, job: Job) -> None:
        number, graph = len(self.jobs) - 1, self._graph_at[job.graph]
        source, devices = self._actual_source, len(self.cluster.devices)
        at = self._header[graph + kernels.SECONDS]
        if isinstance(source, CostTable):
            at = self._header[graph + kernels.HAPPENS]
        elif source is not None:
            at = self._header[kernels.REALISED] + self._first_task[number] * devices
            self._real[at : at + len(job.graph) * devices] = self._with_overhead(
                self._realise(job.graph, job.arrival)
            )
        self._array(kernels.ACTUAL, number + 1)[number] = at

    def _make_arrivals(self) -> Any:
        return _Arrivals(self._header, self._arrival)

    @property
    def _early(self) -> int:
        early: int = self._header[kernels.EARLY]
        return early

    @_early.setter
    def _early(self, count: int) -> None:
        self._header[kernels.EARLY] = count

    @property
    def _tracking(self) -> bool:
        return bool(self._header[kernels.TRACKING])

    @_tracking.setter
    def _tracking(self, tracks: bool) -> None:
        self._header[kernels.TRACKING] = tracks

    @property
    def _settled(self) -> float:
        return float(self._array(kernels.SETTLED, 1)[0])

    @_settled.setter
    def _settled(self, moment: float) -> None:
        self._array(kernels.SETTLED, 1)[0] = moment

    # -- what happens to every task -------------------------------------------------------------

    def _make_finish_due(self) -> Callable[[], None]:
        due, ready, finished, idle = self._due, self.ready, self.finished, self._idle
        finish, at, released = entry(kernels.finish), self._whole.ctypes.data, self._released
        device_of, push, delivers = self._device, self._push, self._delivers
        freed, earlier, releases = kernels.FREED, kernels.EARLIER, kernels.RELEASES

        def finish_due() -> None:
            """Apply the finishes of this instant."""
            now = self.now
            if len(due) > 1:
                due.sort()
            for task in due:
                found = finish(at, task, now)
                if found & freed:
                    insort(idle, device_of[task])
                count = left = found // releases
                while left:
                    left -= 1
                    ready.append(released[left])
                if found & earlier or delivers:
                    if not push:
                        for successor in released[:count]:
                            if device_of[successor] >= 0:
                                self._request_inputs(successor, device_of[successor])
                    self._request_outputs(task, device_of[task])
            finished.extend(due)
            due.clear()

        return finish_due

    def _make_place(self) -> Callable[[int, int, float | None], None]:
        run, at, idle = entry(kernels.place), self._whole.ctypes.data, self._idle

        def place(task: int, device: int, rank: float | None = None) -> None:
            """See :class:`simulator.context.SchedulingContext`."""
            now = self.now
            if rank is None:
                rank = now
            found = run(at, task, device, rank, now)
            while found < 0:
                if found == kernels.REFUSED:
                    self._check_placement(task, device, rank)
                elif found == kernels.OUT_OF_DATE:
                    self.available(device)
                elif found == kernels.FULL:
                    self._make_room()
                else:
                    self._lay_routes(task)
                found = run(at, task, device, rank, now)
            if found:
                idle.remove(device)

        return place

    def _make_settle(self) -> Callable[[], None]:
        run, at = entry(kernels.settle), self._whole.ctypes.data
        begun = self._view(kernels.BEGUN, len(self._taken))
        finish_time, end_of_task = self._finish_time, self._end_of_task
        occurrences = self._clock._queue

        def settle() -> None:
            """Send what was asked for at this instant, and let devices take what they can."""
            count = run(at, self.now)
            while count:
                count -= 1
                task = begun[count]
                heappush(occurrences, (finish_time[task], TASK_ENDS, task, end_of_task))

        return settle

    def _make_best_device(self) -> Callable[[int, str], int]:
        run, at, devices = entry(kernels.best_device), self._whole.ctypes.data, len(self._load)

        def best_device(task: int, pricing: str) -> int:
            price = _PRICES[pricing]
            device: int = run(at, task, self.now, price)
            while device < -1:
                if device == kernels.OUT_OF_DATE:
                    for other in range(devices):
                        self.available(other)
                else:
                    self._lay_routes(task)
                device = run(at, task, self.now, price)
            return device

        return best_device

    def _release(self, task: int, device: int) -> None:
        kernels.touch(self._whole, device)
        if task in self._running[device]:
            kernels.return_waiting(self._whole, self._real, device, self.now)
        if self._header[kernels.MOVES] > self._header[kernels.FINAL]:
            self._take_back(task)

    def _unqueue(self, task: int, device: int) -> None:
        kernels.unqueue(self._whole, self._real, task, device)

    def _lay_routes(self, task: int) -> None:
        """Note the routes on which the inputs of a task may come to any device."""
        job = self._job[task]
        first = self._first_tensor[job]
        for tensor in self._job_index[job].reads[task - self._first_task[job]]:
            home = self._home[first + tensor]
            if home >= 0:
                for space in {*self._space_of}:
                    self._note_route(home, space)

    def _note_route(self, source: int, destination: int) -> None:
        wire = source * self._spaces + destination
        if source == destination or self._channels[wire] >= 0:
            return
        channel, latency, bandwidth, _ = self._lay(source, destination)
        self._channels[wire] = channel
        self._latencies[wire] = latency
        self._bandwidths[wire] = bandwidth

    # -- requests of an instant -----------------------------------------------------------------

    def _book(self, copy: int, home: int, space: int, size: float) -> None:
        self._note_route(home, space)
        if self._header[kernels.MOVES] == self._room:
            self._make_room()
        kernels.book(self._whole, self._real, copy, home, space, size, self.now)

    def _make_room(self) -> None:
        """Take the final moves out of the arrays."""
        final, moves = self._header[kernels.FINAL], self._header[kernels.MOVES]
        parts = [self._array(name, self._room) for name in _MOVE]
        self._flushed.append([part[:final].copy() for part in parts])
        for part in parts:
            part[: moves - final] = part[final:moves].copy()
        self._header[kernels.MOVES] = moves - final
        self._header[kernels.FINAL] = 0
        if moves - final == self._room:  # every copy that anybody can want has been asked for
            raise RuntimeError("more copies are under way than tasks can want")

    def _asked(self) -> list[int]:
        final, moves = self._header[kernels.FINAL], self._header[kernels.MOVES]
        asked: list[int] = self._array(kernels.COPY, self._room)[final:moves].tolist()
        return asked

    def _book_copies(self, copies: list[int]) -> None:
        before = {copy: self._arrivals_of[copy] for copy in self._asked()}
        kernels.take_back(self._whole, self._real)
        for copy in copies:
            tensor, space = divmod(copy, self._spaces)
            job = self._job_of_tensor(tensor)
            size = self._job_index[job].bytes[tensor - self._first_tensor[job]]
            self._request(tensor, space, size)
        if any(self._arrivals_of.get(copy) != end for copy, end in before.items()):
            self._booked_anew()

    def _booked_anew(self) -> None:
        for device, called in enumerate(self._called):
            if called:
                self._stale[device] = True

    # -- the end --------------------------------------------------------------------------------

    def _check_finished(self, scheduler: Scheduler) -> None:
        self._ended = self._array(kernels.ENDED, self._header[kernels.FINISHED]).tolist()
        super()._check_finished(scheduler)

    def _transfer_table(self) -> Table:
        moves = self._header[kernels.MOVES]
        last = [self._array(name, self._room)[:moves] for name in _MOVE]
        columns = [np.concatenate(parts) for parts in zip(*self._flushed, last, strict=True)]
        copy, turn, requested, start = columns
        tensor, space = np.divmod(copy, self._spaces)
        if self._delivers:
            job = np.searchsorted(self._first_tensor, tensor, side="right") - 1
            self._note_deliveries(copy[np.array(self._destination)[job] == space].tolist())
        home = self._array(kernels.HOME, self._tensors)[tensor]
        end = self._real[int(self._whole[kernels.ARRIVAL]) + copy]
        end[end == kernels.AT_ZERO] = 0.0
        order = in_turn(turn, copy)
        found = (tensor, home, space, requested, start, end)
        return rows_of_moves(
            [column[order] for column in found], self._routes, self._job_index, self._first_tensor
        )


_MOVE = (kernels.COPY, kernels.ROUND, kernels.REQUESTED, kernels.START)
_WHOLE_BY_TASK = (
    kernels.DEVICE,
    kernels.SEQUENCE,
    kernels.SLOT,
    kernels.STARTED,
    kernels.CHILD,
    kernels.NEXT,
    kernels.BEFORE,
    kernels.ENDED,
)
_REAL_BY_TASK = (
    kernels.RANK,
    kernels.READY_AT,
    kernels.PLACED_AT,
    kernels.BEGINS,
    kernels.ENDS,
    kernels.EXPECTED,
)
_BY_DEVICE = (
    kernels.HEAD,
    kernels.LOAD,
    kernels.SLOTS,
    kernels.STALE,
    kernels.TOUCHED,
    kernels.IS_TOUCHED,
    kernels.CALLED,
    kernels.AVAILABLE,
    kernels.TAIL_RANK,
)
_PRICES = {name: number for number, name in enumerate(PRICINGS)}
