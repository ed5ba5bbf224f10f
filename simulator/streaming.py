"""Runs of any number of requests: state for those in the system, figures of those that have left.

Everything happens as in :class:`simulator.simulation.Simulation`, whose decisions, starts and ends these runs
repeat. What differs is what is kept: the columns by job, task and tensor are mappings, a job that is done is
counted (:class:`simulator.streamed_figures.StreamedFigures`) and dropped from them, and no rows are written.
Links that do not share carry transfers whose ends are known when they are asked for, without an object each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, MutableSequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Generic, TypeVar

import simpy

from simulator.clock import Clock, Occurrence
from simulator.context import EVERYWHERE
from simulator.errors import InvalidInput, SchedulingError
from simulator.flows import Flow
from simulator.scheduler import Scheduler
from simulator.simulation import Setting, Simulation
from simulator.streamed_figures import StreamedFigures
from simulator.workload import Job, Workload

T = TypeVar("T")


class Window(dict[int, T], Generic[T]):
    """A column of which the entries of jobs that have left are gone; its length counts these, too.

    Args:
        default: of entries that nobody has set; None: such an entry has left.
    """

    __slots__ = ("default", "length")

    def __init__(self, default: T | None = None) -> None:
        super().__init__()
        self.default = default
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def __missing__(self, number: int) -> T:
        if self.default is None:
            raise SchedulingError(
                f"Number {number} is of a request that has left: this run keeps figures only. Keep the "
                "whole trace for a scheduler that looks back"
            )
        return self.default


class StreamClock(Clock):
    """A clock whose entries name what is called and with what; all calls get one event."""

    def at(self, moment: float, callback: Any, value: Any) -> None:
        """See :class:`Clock`."""
        heappush(self._queue, (moment, 1, next(self._eid), callback, value))

    def run_instants(self, settle: Callable[[], None]) -> None:
        """See :class:`Clock`."""
        queue: list[Any] = self._queue
        event = Occurrence(self, None, None)
        while queue:
            self._now = now = queue[0][0]
            while queue and queue[0][0] == now:
                _, _, _, callback, event._value = heappop(queue)
                callback(event)
            settle()


class StreamedSimulation(Simulation):
    """One run; see the module docstring. Use :func:`simulator.engine.simulate_stream`.

    Args:
        setting: of the run.
        warm_up: seconds from the start that figures leave out.
    """

    def __init__(self, setting: Setting, warm_up: float = 0.0) -> None:
        self._warm_up = warm_up
        self._checked: set[tuple[object, ...]] = set()  # kinds of jobs that can be run
        super().__init__(setting)

    def _check_run(self, workload: Workload, scheduler: Scheduler) -> None:
        self._check_abilities(scheduler)

    def _prepare(self) -> None:
        self._clock = StreamClock()
        # By job.
        self.jobs = Window()  # type: ignore[assignment]
        self._job_index = Window()  # type: ignore[assignment]
        self._first_task = Window()  # type: ignore[assignment]
        self._first_tensor = Window()  # type: ignore[assignment]
        self._left = Window()  # type: ignore[assignment]
        self._destination = Window()  # type: ignore[assignment]
        self._done_at = Window()  # type: ignore[assignment]
        self._actual = Window()  # type: ignore[assignment]
        # By task; of what is not known until it is placed or starts only what is.
        self._job = Window()  # type: ignore[assignment]
        self._pending = Window()  # type: ignore[assignment]
        self._device = Window()  # type: ignore[assignment]
        self._ready_at = Window(math.inf)  # type: ignore[assignment]
        self._sequence = Window(0)  # type: ignore[assignment]
        self._rank = Window(0.0)  # type: ignore[assignment]
        self._placed_at = Window(math.inf)  # type: ignore[assignment]
        self._started = Window(False)  # type: ignore[assignment]
        self._expected = Window(math.inf)  # type: ignore[assignment]
        self._start_time = Window(math.inf)  # type: ignore[assignment]
        self._finish_time = Window(math.inf)  # type: ignore[assignment]
        self._slot = Window(0)  # type: ignore[assignment]
        # By tensor.
        self._job_with: dict[int, int] = {}
        self._home = Window(EVERYWHERE)  # type: ignore[assignment]
        self._written = Window(math.inf)  # type: ignore[assignment]
        self._of_job: tuple[MutableSequence[Any], ...] = (
            *(self.jobs, self._left, self._destination, self._done_at, self._actual),
        )
        self._of_task: tuple[MutableSequence[Any], ...] = (self._job, self._pending)
        self._of_placed: tuple[MutableSequence[Any], ...] = (
            *(self._ready_at, self._sequence, self._rank, self._placed_at, self._started),
            *(self._expected, self._start_time, self._finish_time, self._slot),
        )
        super()._prepare()
        self.figures = StreamedFigures(self.cluster, self._warm_up)
        self._booked = self.contention != "fair"  # whether ends of transfers are known beforehand
        self._landed: list[tuple[tuple[int, ...], int, float]] = []  # tensors, space, bytes
        # By job: how many transfers of its tensors are under way; then all (tensor, space) so far.
        self._crossings: dict[int, list[Any]] = {}
        self._leaving: list[int] = []  # jobs that may be done
        self._to_come: Iterator[Job] = iter(())
        self._next: Job | None = None

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> StreamedFigures:  # type: ignore[override]
        """Run to the end, or to the horizon.

        Raises:
            SchedulingError: work is left that can never run.
            InvalidInput: a request comes before the one that came last, or cannot be served.
        """
        self._to_come = iter(self._workload)
        super().run()
        return self.figures

    def _settle(self) -> None:
        """See :class:`Simulation`: one round of an instant, without what cannot happen here."""
        self.now = self._clock._now
        due, admitted = self._due, self._admit_now
        news = self._woken or admitted > 0 or (bool(due) and not self._scheduler.static)
        self._woken = False
        if due:
            if len(due) > 1:
                due.sort()
            for task in due:
                self._finish(task)
            self.finished += due
            due.clear()
        if self._landed:
            self._deliver()
        while self._admit_now:
            self._admit_now -= 1
            self._admit(self._joining.popleft())
        if news or self.delivered:
            self._decide()
        if self._requests:
            self._send()
        if not self._booked:
            self._links.settle()
        if self._touched:
            self._begin_touched()
        for shared in self._shared_rates.values() if self._shared_rates else ():
            shared.settle(self.now)
        if self._leaving:
            self._let_go()

    def _decide(self) -> None:
        if len(self.ready) > 1:
            self.ready.sort()
        began = time.perf_counter()
        self._scheduler.decide(self)
        self._deciding_seconds += time.perf_counter() - began
        self._decisions += 1
        self.arrived.clear()
        self.ready.clear()
        self.finished.clear()
        self.delivered.clear()

    # -- arrivals ---------------------------------------------------------------------------------

    def _schedule_arrival(self) -> None:
        job = next(self._to_come, None)
        if job is None:
            return
        last = -math.inf if self._next is None else self._next.arrival
        if job.arrival < last:
            raise InvalidInput(
                f"Job {self._next_job} arrives at {job.arrival} s, before job {self._next_job - 1} at "
                f"{last} s; sort the jobs by arrival"
            )
        kind = (job.graph, job.origin, job.destination)
        if kind not in self._checked:
            self._check_job(job)
            self._checked.add(kind)
        self._next = job
        self._clock.at(job.arrival, self._on_arrival, job)

    def _on_arrival(self, event: simpy.Event) -> None:
        self._admit_now += 1
        self._joining.append(event._value)
        self._next_job += 1
        self._schedule_arrival()

    def _admit(self, job: Job) -> int:
        graph, now = job.graph, self.now
        index = self._index.get(graph) or self._index_of(graph)
        number, first_task, first_tensor = self.jobs.length, self._job.length, self._tensors  # type: ignore[attr-defined]
        tasks = len(index.pending)
        self.jobs.length = number + 1  # type: ignore[attr-defined]
        self._job.length = first_task + tasks  # type: ignore[attr-defined]
        self._tensors = self._home.length = first_tensor + len(index.bytes)  # type: ignore[attr-defined]
        self.jobs[number] = job
        self._job_index[number] = index
        self._first_task[number] = first_task
        self._first_tensor[number] = first_tensor
        self._left[number] = tasks
        spaces = self.cluster.space_index
        destination, origin = job.destination, job.origin
        self._destination[number] = EVERYWHERE if destination is None else spaces[destination]
        self._done_at[number] = now
        self._actual[number] = self._actual_of(graph, job.arrival)
        for task, waits in enumerate(index.pending, first_task):
            self._job[task] = number
            self._pending[task] = waits
            self._device[task] = -1
        for tensor in range(first_tensor, self._tensors):
            self._job_with[tensor] = number
        home = EVERYWHERE if origin is None else spaces[origin]
        for t in index.inputs:
            self._home[first_tensor + t] = home
            self._written[first_tensor + t] = now
        self.arrived.append(number)
        for operator in index.sources:
            self.ready.append(first_task + operator)  # when it was is told by the trace alone
        self.figures.arrive(job.arrival)
        return number

    def reject(self, job: int, reason: str) -> None:
        """See :class:`BatchingContext`."""
        super().reject(job, reason)
        self._leaving.append(job)

    # -- tasks ------------------------------------------------------------------------------------

    def _finish(self, task: int) -> None:
        super()._finish(task)
        job = self._job[task]
        if not self._left[job]:
            self._leaving += self._members.get(job, (job,))

    def _record(self, task: int, device: int, finish: float, status: str) -> None:
        job = self._job[task]
        self.figures.execute(
            self._job_index[job].graph,
            task - self._first_task[job],
            device,
            self._start_time[task],
            finish,
            len(self._members[job]) if job in self._members else 1,
        )

    # -- data -------------------------------------------------------------------------------------

    def _job_of_tensor(self, tensor: int) -> int:
        return self._job_with[tensor]

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`SchedulingContext`."""
        if not self._booked:
            return super().copy_time(tensor, space)
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        return self._copies.get((tensor, space))

    def _send(self) -> None:
        crossings, job_with = self._crossings, self._job_with
        for request in self._requests:
            key = request[:2]
            job = job_with[key[0]]
            known = crossings.get(job)
            if known is None:
                crossings[job] = [1, key]
            else:
                known[0] += 1
                known.append(key)
        if self._booked:
            self._send_booked()
        else:
            super()._send()
            self._sent.clear()
        while self._landed:  # what takes no time
            self._deliver()
        if self.delivered:  # the scheduler is asked in another round of this instant
            self._wake(self.now)

    def _send_booked(self) -> None:
        """Send what was asked for at this instant, whose ends are known."""
        if not self._in_order:
            self._book_again(sorted(self._requests))
        now, packed, under_way = self.now, self._packed, self._under_way
        queue: list[Any] = self._clock._queue
        number, on_landed = self._clock._eid, self._on_landed
        for tensor, space, _, _, size, _, end in self._requests:
            tensors: tuple[int, ...] = (tensor,)
            if packed and (tensor, space) in packed:
                parcel = packed[tensor, space]
                if tensor != parcel.tensors[0]:
                    continue
                tensors, size = parcel.tensors, parcel.bytes
            for each in tensors:
                under_way[each, space] = None  # type: ignore[assignment]
            if end == now:
                self._landed.append((tensors, space, size))
            else:
                heappush(queue, (end, 1, next(number), on_landed, (tensors, space, size)))
        self._requests.clear()
        if packed:
            packed.clear()
            self._in_order = True

    def _on_landed(self, event: simpy.Event) -> None:
        self._landed.append(event._value)

    def _on_delivered(self, flow: Flow) -> None:
        self._landed.append((flow.tensors, flow.destination, flow.size))

    def _deliver(self) -> None:
        landed = self._landed
        if not landed:
            return
        now, copies, under_way, left = self.now, self._copies, self._under_way, self._left
        for tensors, space, size in landed:
            for tensor in tensors:
                key = (tensor, space)
                del under_way[key]
                if copies[key] != now:
                    copies[key] = now
                    self._stale = [True] * len(self._stale)
                self._note_arrival(tensor, space)
                job = self._job_with[tensor]
                self._crossings[job][0] -= 1
                if not left[job]:
                    self._leaving.append(job)
            if len(tensors) > 1:
                size = sum(self._own_bytes(tensor) for tensor in tensors)
            self.figures.move(len(tensors), size)
        landed.clear()

    def _note_arrival(self, tensor: int, space: int) -> None:
        job = self._job_with[tensor]
        index, first = self._job_index[job], self._first_task[job]
        t = tensor - self._first_tensor[job]
        for reader in index.consumers[t]:
            device = self._device[first + reader]
            if device >= 0 and self._space_of[device] == space:
                self._touched.add(device)
        if self._destination[job] == space and t in index.outputs:
            self._done_at[job] = self.now
            if self._workload.reacts:
                self._follow(job)
        coming = self._coming.get(job)
        if coming is not None and coming[0] == space and t in index.inputs:
            self._home[tensor] = space
            self._written[tensor] = self.now
            if coming[1] > 1:
                self._coming[job] = (space, coming[1] - 1)
            else:
                del self._coming[job]
                self.delivered.append(job)

    def _own_bytes(self, tensor: int) -> float:
        """Of a tensor as its job's own graph has it."""
        job = self._job_with[tensor]
        return float(self.jobs[job].graph.tensor_bytes[tensor - self._first_tensor[job]])

    # -- the end ----------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Count and forget the jobs that are done."""
        kept: dict[int, Job] = self.jobs  # type: ignore[assignment]
        for job in self._leaving:
            if job not in kept or self._left[job]:
                continue
            crossing = self._crossings.get(job)
            if crossing is not None and crossing[0]:
                continue
            entry = kept[job]
            if job in self._rejected:
                self.figures.reject(entry, self._rejected.pop(job)[0])
            else:
                graph = self._served_by.pop(job, entry.graph)
                self.figures.finish(entry, self._done_at[job], graph)
            self._forget_job(job)
        self._leaving.clear()

    def _forget_job(self, job: int) -> None:
        index = self._job_index.pop(job)
        first = self._first_task.pop(job)
        for task in range(first, first + len(index.pending)):
            for column in self._of_task:
                del column[task]
            if self._device.pop(task) >= 0:  # of most in a batch nothing ran
                for column in self._of_placed:
                    column.pop(task, None)  # type: ignore[call-arg]
        first = self._first_tensor.pop(job)
        home, written, job_with = self._home, self._written, self._job_with
        for tensor in range(first, first + len(index.bytes)):
            del job_with[tensor]
            home.pop(tensor, None)  # type: ignore[call-arg]
            written.pop(tensor, None)  # type: ignore[call-arg]
        crossing = self._crossings.pop(job, None)
        if crossing is not None:
            copies = self._copies
            for key in islice(crossing, 1, None):
                copies.pop(key, None)
        for column in self._of_job:
            del column[job]
        if job in self._members:
            del self._members[job]
        elif job in self._leader:
            del self._leader[job]
        if self._followed:
            self._followed.discard(job)

    def _check_finished(self, scheduler: Scheduler) -> None:
        left = sum(self._left.values())  # type: ignore[attr-defined]
        if not left:
            return
        unplaced = [t for t, d in self._device.items() if d < 0 and self._left[self._job[t]]]  # type: ignore[attr-defined]
        if unplaced:
            raise SchedulingError(
                f"Scheduler '{scheduler.name}' ended with {left} tasks not run: {len(unplaced)} were "
                f"never placed, the first is '{self.label(unplaced[0])}'"
            )
        device = next(d for d, queue in enumerate(self._queues) if queue)
        raise SchedulingError(
            f"Scheduler '{scheduler.name}' ended with {left} tasks not run: device "
            f"'{self.cluster.devices[device].name}' must run '{self.label(self._head(device))}' next, "
            "whose predecessors wait behind other tasks; the queues' order contradicts the graph"
        )

    def _trace(self) -> Any:
        figures, horizon = self.figures, self._setting.horizon
        if horizon < math.inf:
            figures.horizon = horizon
            for row, status in self._cut_off():
                task, job, device = row[:3]
                operator = task - self._first_task[job]
                requests = len(self._members.get(job, (job,)))
                graph = self._job_index[job].graph
                figures.execute(
                    graph, operator, device, *row[6:], requests, done=status == "finished"
                )
        for entry in self.jobs.values():  # type: ignore[attr-defined]
            figures.queue(entry)
        figures.settings = self._settings()
        figures.wallclock = {
            "decisions": float(self._decisions),
            "deciding_seconds": self._deciding_seconds,
        }
        return None
