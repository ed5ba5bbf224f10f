"""Runs of fixed plans without contention: all that a finish sets off is known beforehand.

Where a static scheduler has placed every task of a job at its arrival, transfers do not wait for each
other and devices run at constant rates, each edge of the graph is a delay that the placement decides.
A task then costs one event, its finish, and an addition and a comparison for each edge: when its device
is free, its start follows from the finishes of its predecessors, which are known as soon as those have
been taken from their queues. Transfers are derived from the finishes when the trace is made. The trace
is that of the other ways of simulating.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from simulator.clock import TASK_ENDS, Occurrence
from simulator.context import EVERYWHERE, InputTensor
from simulator.csr import entries_of, python_integers
from simulator.direct import rows_of_moves
from simulator.errors import SchedulingError
from simulator.graph import DataflowGraph
from simulator.simulation import Simulation
from simulator.trace import Table, Trace, execution_table
from simulator.workload import Job


def argsort_of_numbers(numbers: np.ndarray) -> np.ndarray:
    """Stable argsort of integers from 0 on: by 16 bits at a time, in a tenth of the usual time."""
    order: np.ndarray = np.argsort(numbers.astype(np.uint16), kind="stable")
    rest = numbers >> 16
    while rest.any():
        order = order[np.argsort(rest.astype(np.uint16)[order], kind="stable")]
        rest >>= 16
    return order


def _taken(columns: tuple[np.ndarray, ...], rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """These rows of all columns."""
    return tuple(column[rows] for column in columns)


class PlannedSimulation(Simulation):
    """See the module docstring."""

    def _prepare(self) -> None:
        cluster = self.cluster
        self._space_array = np.array(cluster.space_of, dtype=np.int32)
        # By task, in the order of the tasks' numbers; there is one offset more.
        self._since: MutableSequence[
            float
        ] = []  # when what its job brings is in its device's memory
        self._duration: MutableSequence[float] = []
        self._offset: MutableSequence[int] = [0]
        self._source: MutableSequence[
            int
        ] = []  # by edge, in the order of the tasks that they lead to
        # By edge: seconds from the finish to the data's arrival.
        self._delay: MutableSequence[float] = []
        self._edge_delays: list[np.ndarray] = []  # by job: the same, in the order of the graph
        # Devices whose head waits for a task to be taken.
        self._watchers: dict[int, list[int]] = {}
        # By device.
        devices = len(cluster.devices)
        self._order: list[Any] = [self._ordered(np.zeros(0, np.int64)) for _ in range(devices)]
        self._next: MutableSequence[int] = [0] * devices  # position of the head in the order
        self._free: MutableSequence[int] = list(self._slots)
        self._last_start: MutableSequence[float] = [0.0] * devices
        self._planned_jobs = 0
        self._planned_tasks = 0
        # Of jobs that were placed at once and are not compiled yet: devices and ranks of their tasks.
        self._whole_plans: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._placed: list[np.ndarray] = []  # by job: the devices of its tasks
        self._seconds: list[np.ndarray] = []  # by job: actual [operators, devices]

    def _note_actual(self, job: Job) -> None:
        self._seconds.append(self._realise(job.graph, job.arrival))

    # -- what a scheduler does ------------------------------------------------------------------

    def place(self, task: int, device: int, rank: float | None = None) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        self._check_placement(task, device, rank)
        self._device[task] = device
        self._rank[task] = self.now if rank is None else rank
        self._placements += 1
        self._sequence[task] = self._placements

    def place_job(self, job: int, devices: Sequence[int], ranks: Sequence[float]) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        first, count = self._check_job_placement(job, devices, ranks)
        place, rank = np.array(devices, dtype=np.int64), np.array(ranks, dtype=np.float64)
        self._whole_plans[job] = place, rank
        self._device[first : first + count] = place.tolist()
        self._rank[first : first + count] = rank.tolist()
        self._sequence[first : first + count] = range(
            self._placements + 1, self._placements + count + 1
        )
        self._placements += count

    def withdraw(self, task: int) -> None:
        """Refused: a static scheduler stands by its plan."""
        raise SchedulingError(
            f"Scheduler '{self._scheduler.name}' calls itself static, so it cannot withdraw "
            f"'{self.label(task)}'; let its class say static = False"
        )

    # -- the loop -------------------------------------------------------------------------------

    def _run_events(self) -> None:
        """All events; a task's end lets devices take tasks at once, which decides their own ends."""
        clock = self._clock
        queue, free_of, device_of = clock._queue, self._free, self._device
        start_time = self._start_time
        advance = self._make_advance()
        news = False
        while queue:
            now, what, task, event = heappop(queue)
            if what != TASK_ENDS:  # these come first of an instant
                news = True
                clock._now = now
                callbacks, event.callbacks = event.callbacks, None
                for callback in callbacks:
                    callback(event)
            elif news:
                if start_time[task] < now:  # else it goes back to its queue
                    free_of[device_of[task]] += 1
            else:
                advance(task, now)
            if news and not (queue and queue[0][0] == now):
                news = False
                self.now = now
                self._plan()
                advance(None, now)

    def _make_advance(self) -> Callable[[int | None, float], None]:
        queue, devices = self._clock._queue, range(len(self._order))
        since, device_of, duration = self._since, self._device, self._duration
        offset, source, delay, watchers = self._offset, self._source, self._delay, self._watchers
        order_of, next_of, free_of = self._order, self._next, self._free
        last_start = self._last_start
        start_time, finish_time = self._start_time, self._finish_time
        never = math.inf
        # One for all: the queue says whose end it is.
        end_of_task = Occurrence(self._clock, None, None)

        def advance(ended: int | None, now: float) -> None:
            """A task has ended, or (None) devices may take more: let them take what they can, and
            those whose heads waited for that.
            """
            if ended is None:
                free = list(devices)
            else:
                device = device_of[ended]
                free_of[device] += 1
                free = [device]
            for device in free:  # grows while it is gone through
                order, position = order_of[device], next_of[device]
                while free_of[device] and position < len(order):
                    head = order[position]
                    begin, end = offset[head], offset[head + 1]
                    start = since[head]
                    for task, seconds in zip(source[begin:end], delay[begin:end]):  # noqa: B905
                        moment = finish_time[task] + seconds
                        if moment > start:
                            start = moment
                    if start == never:
                        for task in source[begin:end]:
                            if finish_time[task] == never:
                                watchers.setdefault(task, []).append(device)
                                break
                        break
                    if start < now:
                        start = now
                    if start < last_start[device]:
                        start = last_start[device]
                    last_start[device] = start_time[head] = start
                    finish = finish_time[head] = start + duration[head]
                    heappush(queue, (finish, TASK_ENDS, head, end_of_task))
                    if head in watchers:
                        free += watchers.pop(head)
                    position += 1
                    free_of[device] -= 1
                next_of[device] = position

        return advance

    def _plan(self) -> None:
        """Let the scheduler plan the jobs that have arrived; its plan may change every queue."""
        self._woken = False
        while self._admit_now:
            self._admit_now -= 1
            self._arrive()
        self._decide()
        returned: set[int] = set()
        for device in range(len(self._order)):
            returned.update(self._return_waiting(device))
        if returned:
            self._forget_ends(returned)
        if self._planned_jobs < len(self.jobs):
            self._compile()
        self._forget_watchers()

    def _forget_watchers(self) -> None:
        self._watchers.clear()

    def _return_waiting(self, device: int) -> list[int]:
        """Put tasks that have not started back into the queue, whose order may change; returns them."""
        order, last = self._order[device], self._next[device]
        while self._next[device]:
            task = order[self._next[device] - 1]
            if self._start_time[task] < self.now:
                break
            self._start_time[task] = self._finish_time[task] = math.inf
            self._next[device] -= 1
            self._free[device] += 1
        before = self._next[device]
        self._last_start[device] = self._start_time[order[before - 1]] if before else 0.0
        return order[before:last]

    def _forget_ends(self, tasks: set[int]) -> None:
        """Take the ends of tasks that went back to their queues out of the clock's queue."""
        queue = self._clock._queue
        queue[:] = [e for e in queue if e[1] != TASK_ENDS or e[2] not in tasks]
        heapify(queue)

    # -- from a plan to delays ------------------------------------------------------------------

    def _compile(self) -> None:
        """Make the plans of the jobs that have arrived ready to run."""
        fresh = self._planned_jobs
        first = self._first_task[fresh]
        for job in range(fresh, len(self.jobs)):
            self._compile_job(job)
        self._planned_jobs, self._planned_tasks = len(self.jobs), len(self._job)
        rank, sequence = self._rank, self._sequence
        if fresh in self._whole_plans and fresh + 1 == self._planned_jobs:
            placed, ranks = self._whole_plans[fresh]  # placed in the order of the tasks
            by_rank = np.argsort(ranks, kind="stable")
        else:
            placed = np.concatenate(self._placed[fresh:])
            by_rank = np.lexsort((np.array(sequence[first:]), np.array(rank[first:])))
        self._whole_plans.clear()
        by_rank = by_rank[argsort_of_numbers(placed[by_rank])]
        ends = np.cumsum(np.bincount(placed, minlength=len(self._order)))
        for device, (new, order) in enumerate(
            zip(np.split(by_rank + first, ends[:-1]), self._order, strict=True)
        ):
            position = self._next[device]
            queued = order[position:]
            if queued:
                tasks = [*queued, *new.tolist()]
                new = np.array(sorted(tasks, key=lambda task: (rank[task], sequence[task])))
            order[position:] = self._ordered(new)

    def _ordered(self, tasks: np.ndarray) -> Any:
        """Tasks of a device, as its order keeps them."""
        return tasks.tolist()

    def _compile_job(self, number: int) -> None:
        graph = self._job_index[number].graph
        first, count = self._first_task[number], len(graph)
        plan = self._whole_plans.get(number)
        placed = np.array(self._device[first : first + count]) if plan is None else plan[0]
        if (placed < 0).any():
            unplaced = int(np.argmin(placed))
            raise SchedulingError(
                f"Scheduler '{self._scheduler.name}' calls itself static, but did not place "
                f"'{self.label(first + unplaced)}' when its job arrived; let its class say "
                "static = False"
            )
        self._placed_at[first : first + count] = [self.now] * count
        self._placed.append(placed)
        duration = self._overhead[placed] + self._seconds[number][np.arange(count), placed]
        space = self._space_array[placed]
        source, target = graph.edge_source, graph.edge_target
        delay = self._delays(graph, graph.edge_tensor, space[source], space[target])
        since = np.full(count, self.now)
        self._deliver_inputs(number, graph, space, since)
        by_target, ends = graph.edges_by_target, np.cumsum(np.bincount(target, minlength=count))
        self._add_delays(first, duration, since, ends, source[by_target], delay[by_target])
        self._edge_delays.append(delay)

    def _add_delays(
        self,
        first: int,
        duration: np.ndarray,
        since: np.ndarray,
        ends: np.ndarray,
        source: np.ndarray,
        delay: np.ndarray,
    ) -> None:
        """Keep what the loop needs of a job's tasks, from ``first`` on: columns by task, the last one
        where its edges end; and by edge, the operator from which it comes and its delay.
        """
        self._duration += duration.tolist()
        self._since += since.tolist()
        self._offset += (ends + len(self._source)).tolist()
        self._source += python_integers(len(ends), first)[source].tolist()
        self._delay += delay.tolist()

    def _delays(
        self, graph: DataflowGraph, tensor: np.ndarray, a: np.ndarray, b: np.ndarray
    ) -> np.ndarray:
        """Seconds of tensors from spaces to spaces; 0 within one."""
        spaces = len(self.cluster.spaces)
        pair = a * spaces + b
        latency, bandwidth = np.zeros(spaces * spaces), np.full(spaces * spaces, math.inf)
        for key in np.flatnonzero(np.bincount(pair, minlength=spaces * spaces)).tolist():
            source, destination = divmod(key, spaces)
            if source != destination:
                route = self._route(source, destination)
                latency[key], bandwidth[key] = route.latency, route.bandwidth
        delay: np.ndarray = graph.tensor_bytes[tensor]
        delay /= bandwidth[pair]
        delay += latency[pair]
        return delay

    def _input_reads(self, graph: DataflowGraph) -> tuple[np.ndarray, np.ndarray]:
        """(tensor, operator) of every read of a job's input."""
        rows = [(t, reader) for t in graph.inputs for reader in graph.consumers[t]]
        table = np.array(rows, dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _deliver_inputs(
        self, number: int, graph: DataflowGraph, space: np.ndarray, since: np.ndarray
    ) -> None:
        origin = self.jobs[number].origin
        if origin is not None and graph.inputs:
            tensor, reader = self._input_reads(graph)
            home = np.full(len(tensor), self.cluster.space_index[origin])
            delay = self._delays(graph, tensor, home, space[reader])
            np.maximum.at(since, reader, self.now + delay)

    # -- what a scheduler asks ------------------------------------------------------------------

    def available(self, device: int) -> float:
        """See :class:`simulator.context.SchedulingContext`."""
        order, position = self._order[device], self._next[device]
        running = order[max(0, position - self._slots[device]) : position]
        self._running[device] = [t for t in running if self._finish_time[t] > self.now]
        queued = order[position:]
        if self._planned_jobs < len(self.jobs):
            fresh = range(self._first_task[self._planned_jobs], len(self._device))
            queued += [t for t in fresh if self._device[t] == device]
        self._queues[device] = self._entries(queued)
        return max(self.now, self._project(device))

    def _entries(self, tasks: list[int]) -> list[tuple[float, int, int]]:
        return [(self._rank[task], self._sequence[task], task) for task in tasks]

    def _data_expected(self, task: int, device: int) -> float:
        if task >= self._planned_tasks or not self.is_ready(task):
            return max(self.now, self._rank[task])
        edges = range(self._offset[task], self._offset[task + 1])
        arrivals = (self._finish_time[self._source[e]] + self._delay[e] for e in edges)
        return max(self.now, self._since[task], *arrivals)

    def is_ready(self, task: int) -> bool:
        """See :class:`simulator.context.SchedulingContext`."""
        if task >= self._planned_tasks:
            return not self._pending[task]
        edges = range(self._offset[task], self._offset[task + 1])
        return all(self._finish_time[self._source[e]] <= self.now for e in edges)

    def _has_started(self, task: int) -> bool:
        return self._start_time[task] < self.now

    def inputs(self, task: int) -> list[InputTensor]:
        """See :class:`simulator.context.SchedulingContext`."""
        self._note_writes(self._job[task])
        return super().inputs(task)

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`simulator.context.SchedulingContext`."""
        job = self._job_of_tensor(tensor)
        self._note_writes(job)
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        index, first = self._job_index[job], self._first_task[job]
        t = tensor - self._first_tensor[job]
        devices = [self._device[first + reader] for reader in index.consumers[t]]
        wanted = any(device >= 0 and self._space_of[device] == space for device in devices)
        delivered = t in index.outputs and self._destination[job] == space
        if not (wanted or delivered):
            return None
        return self._written[tensor] + self._route(home, space).seconds(index.bytes[t])

    def _note_writes(self, job: int) -> None:
        """Say where the tensors of a job are that have been written."""
        first, first_tensor = self._first_task[job], self._first_tensor[job]
        for operator, tensors in enumerate(self._job_index[job].writes):
            finish = self._finish_time[first + operator]
            if finish <= self.now:
                for t in tensors:
                    self._home[first_tensor + t] = self._space_of[self._device[first + operator]]
                    self._written[first_tensor + t] = finish

    # -- the end --------------------------------------------------------------------------------

    def _check_finished(self, scheduler: object) -> None:
        self._finish_array = np.array(self._finish_time)
        left = int(np.isinf(self._finish_array).sum())
        if left:
            self._left = [left]
            for device, order in enumerate(self._order):
                self._queues[device] = self._entries(order[self._next[device] :])
            super()._check_finished(self._scheduler)

    def _trace(self) -> Trace:
        # What only the loop needs goes before the tables come: half of the memory.
        self._forget_delays()
        finish = self._finish_array
        self._device_array = np.concatenate([np.zeros(0, dtype=np.int64), *self._placed])
        # Instants are numbered: 0, 2, ... are those at which a task finished, between them others.
        self._by_finish = np.argsort(finish, kind="stable")
        ascending = finish[self._by_finish]
        later = np.ones(len(finish), dtype=bool)
        later[1:] = ascending[1:] != ascending[:-1]
        self._instants = ascending[later]
        self._instant_of = np.empty(len(finish), dtype=np.int64)
        self._instant_of[self._by_finish] = 2 * np.cumsum(later) - 2
        return super()._trace()

    def _forget_delays(self) -> None:
        for done in (self._since, self._duration, self._offset, self._source, self._delay):
            done.clear()

    def _number_of(self, moment: float) -> int:
        """The number of an instant."""
        after = int(np.searchsorted(self._instants, moment))
        exact = after < len(self._instants) and self._instants[after] == moment
        return 2 * after if exact else 2 * after - 1

    def _execution_table(self) -> Table:
        finish, task = self._finish_array, self._by_finish
        counts = [len(index.graph) for index in self._job_index]
        arrivals = [job.arrival for job in self.jobs]
        job = np.repeat(np.arange(len(counts)), counts)
        ready = np.empty(len(finish))
        for number, index in enumerate(self._job_index):
            first = self._first_task[number]
            rows = slice(first, first + len(index.pending))
            ready[rows] = self.jobs[number].arrival
            source = index.graph.edge_source + first
            np.maximum.at(ready, index.graph.edge_target + first, finish[source])
        self._note_ends(finish)
        start = np.array(self._start_time)
        return execution_table(
            task,
            job[task],
            task - np.array(self._first_task, dtype=np.int64)[job[task]],
            self._device_array[task],
            self._slots_taken(start, finish)[task],
            ready[task],
            np.repeat(arrivals, counts)[task],
            start[task],
            finish[task],
        )

    def _slots_taken(self, start: np.ndarray, finish: np.ndarray) -> np.ndarray:
        """The lowest slot that was free when each task was taken."""
        slot = np.zeros(len(start), dtype=np.int32)
        for device, order in enumerate(self._order):
            if self._slots[device] > 1:
                free_from = [-math.inf] * self._slots[device]
                for task in order:
                    slot[task] = next(s for s, time in enumerate(free_from) if time <= start[task])
                    free_from[slot[task]] = finish[task]
        return slot

    def _note_ends(self, finish: np.ndarray) -> None:
        for number in range(len(self.jobs)):
            first = self._first_task[number]
            last = finish[first : first + len(self._job_index[number].pending)].max()
            self._done_at[number] = max(self.jobs[number].arrival, float(last))

    def _transfer_table(self) -> Table:
        """Every crossing follows from the placement and the finishes."""
        finish = self._finish_array
        space_of_task = self._space_array[self._device_array]
        parts = [
            self._moves_of(number, index.graph, finish, space_of_task)
            for number, index in enumerate(self._job_index)
        ]
        columns = parts[0]
        if len(parts) > 1:  # jobs' tensors ascend, and within a job the order is there
            columns = tuple(map(np.concatenate, zip(*parts, strict=True)))
            columns = _taken(columns, argsort_of_numbers(columns[-1] + 1))
        tensor, home, space, requested, end, _ = columns
        return rows_of_moves(
            (tensor, home, space, requested, requested, end),
            self._routes,
            self._job_index,
            self._first_tensor,
        )

    def _moves_of(
        self, number: int, graph: DataflowGraph, finish: np.ndarray, space_of_task: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Tensor, source, destination, requested, end and the number of the instant of the request, of
        a job's crossings, by the latter and then by tensor.
        """
        first, first_tensor = self._first_task[number], self._first_tensor[number]
        job = self.jobs[number]
        space = space_of_task[first : first + len(graph)]
        ends = finish[first : first + len(graph)]
        a, b = space[graph.edge_source], space[graph.edge_target]
        moving = a != b
        instant = self._instant_of[first : first + len(graph)]
        edges = np.flatnonzero(moving)
        tensor, source = graph.edge_tensor[edges], graph.edge_source[edges]
        # No two tasks finish together, each tensor crosses once: one task's edges after another's.
        alone = not graph.inputs and job.destination is None and len(self._instants) == len(finish)
        if alone and bool(((tensor[1:] > tensor[:-1]) | (source[1:] != source[:-1])).all()):
            by_finish = (
                self._by_finish if len(graph) == len(finish) else argsort_of_numbers(instant)
            )
            edges = edges[entries_of(by_finish, np.bincount(source, minlength=len(graph)))]
        else:
            alone = False
            edges = graph.edges_by_tensor
            edges = edges[moving[edges]]
        tensor, source = graph.edge_tensor[edges], graph.edge_source[edges]
        since = ends[source]
        end = since + self._edge_delays[number][edges]
        columns: tuple[np.ndarray, ...] = (tensor, a[edges], b[edges], since, end, instant[source])
        if alone:
            return (tensor + first_tensor if first_tensor else tensor, *columns[1:])
        parts = [columns]
        if job.origin is not None and graph.inputs:
            read, reader = self._input_reads(graph)
            home = np.full(len(read), self.cluster.space_index[job.origin])
            delay = self._delays(graph, read, home, space[reader])
            since = np.full(len(read), job.arrival)
            at = np.full(len(read), self._number_of(job.arrival))
            parts.append((read, home, space[reader], since, since + delay, at))
        if job.destination is not None:
            written = np.array([t for t in graph.outputs if graph.producer[t] >= 0], dtype=np.int64)
            writer = np.array([graph.producer[t] for t in written.tolist()], dtype=np.int64)
            away = np.full(len(written), self.cluster.space_index[job.destination])
            delay = self._delays(graph, written, space[writer], away)
            since, at = ends[writer], instant[writer]
            parts.append((written, space[writer], away, since, since + delay, at))
        if len(parts) > 1:
            columns = tuple(map(np.concatenate, zip(*parts, strict=True)))
            columns = _taken(columns, columns[1] != columns[2])
        key = columns[0] * len(self.cluster.spaces) + columns[2]
        if (key[1:] <= key[:-1]).any():  # several readers of a tensor in a space, inputs, outputs
            columns = _taken(columns, np.unique(key, return_index=True)[1])
        columns = _taken(columns, argsort_of_numbers(columns[-1] + 1))
        tensors, homes, aways, requested, end, at = columns
        if job.destination is not None:
            to = self.cluster.space_index[job.destination]
            result = np.isin(tensors, written) & (aways == to)
            if result.any():
                self._done_at[number] = max(self._done_at[number], float(end[result].max()))
        return tensors + first_tensor, homes, aways, requested, end, at
