"""Runs whose transfers share links max-min fairly, with data and flows in compiled functions.

What :class:`simulator.simulation.Simulation` does where devices run at constant rates, ends are known at
once, memory is plentiful and nothing breaks: one event for each task's end, and one for the next end of
a transfer. The trace is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import product
from typing import Any, ClassVar

import numpy as np

from simulator import flow_kernels as kernels
from simulator.arrays import ArrayedSimulation
from simulator.clock import TASK_ENDS, TRANSFERS_END, Occurrence
from simulator.context import EVERYWHERE, GraphIndex, SchedulingContext
from simulator.direct import in_turn, rows_of_moves, table_of_ends
from simulator.flow_kernels import COPY, FINAL, MOVES, REQUESTED, ROUND
from simulator.flows import duration, seconds
from simulator.graph import DataflowGraph
from simulator.simulation import Setting
from simulator.trace import Table

_BY_FLOW = [
    kernels.JOB_OF,
    kernels.WIRE,
    kernels.STATE,
    kernels.PLACE,
    kernels.FIXED,
    kernels.ALARMS,
    kernels.SINCE,
    kernels.REMAINING,
    kernels.RATE,
    kernels.SHARE,
    kernels.END,
    kernels.BELIEVED,
    kernels.ALARM,
]
_BY_CHANNEL = [
    kernels.FIRST,
    kernels.COUNT,
    kernels.SEEN,
    kernels.DIRTY,
    kernels.IS_DIRTY,
    kernels.QUEUE,
    kernels.OPEN,
    kernels.CAPACITY,
    kernels.LEFT,
    kernels.LEVEL,
]


class FairSimulation(ArrayedSimulation):
    """See the module docstring."""

    _names: ClassVar[Any] = kernels

    def _prepare(self) -> None:
        cluster = self.cluster
        self._spaces = len(cluster.spaces)
        self._lay_routes()
        self._lay_out()
        self._fill_in()
        self._overheads = [device.launch_overhead for device in cluster.devices]
        self._ring_at = math.inf  # of the earliest event for transfers
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._an_end = Occurrence(self._clock, None, None)  # the queue says of what
        self._finish_due = self._make_finish_due()
        self._begin_tasks = self._make_begin_tasks()  # type: ignore[method-assign,assignment]

    def _lay_routes(self) -> None:
        """All routes that anything may take."""
        self._route_of: list[tuple[int, ...]] = [()] * (self._spaces * self._spaces)
        for source, space in pairs_of_spaces(self._setting):
            route = self._route(source, space)
            self._route_of[source * self._spaces + space] = route.channels

    def _most_moves(self) -> int:
        # As many as there can be copies. Numbers that are never written take no memory.
        return sum(len(job.graph.tensors) for job in self._workload) * self._spaces

    def _parts(self, jobs: int, tasks: int, tensors: int) -> dict[int, int]:
        channels, pairs = len(self.cluster.channels), self._spaces**2
        devices, room = len(self.cluster.devices), self._room
        self._most_hops = max(1, *map(len, self._route_of))
        return {
            **super()._parts(jobs, tasks, tensors),
            **dict.fromkeys(_BY_FLOW, room),
            **dict.fromkeys(_BY_CHANNEL, channels),
            kernels.DEVICE: tasks,
            kernels.DESTINATION: jobs,
            kernels.FLOW: tensors * self._spaces,
            kernels.NEXT: room * self._most_hops,
            kernels.LAST: room * self._most_hops,
            kernels.ROUTE: pairs,
            kernels.HOPS: pairs,
            kernels.CHANNELS: sum(map(len, self._route_of)),
            kernels.CALLED: devices,
            kernels.IS_CALLED: devices,
            kernels.DELIVERED: jobs,
        }

    def _arrays_of(self, graph: DataflowGraph) -> list[tuple[bool, int, np.ndarray]]:
        output = np.zeros(len(graph.tensors), dtype=np.int64)
        output[list(graph.outputs)] = 1
        return [
            *super()._arrays_of(graph),
            (True, kernels.CONSUMERS, graph.consumers_csr.values),
            (True, kernels.CONSUMERS_AT, graph.consumers_csr.offsets),
            (True, kernels.OUTPUT, output),
        ]

    def _fill_in(self) -> None:
        """Write what stands from the beginning, and make views of what Python reads."""
        pairs, tasks = self._spaces**2, sum(len(job.graph) for job in self._workload)
        hops = np.array([len(channels) for channels in self._route_of], dtype=np.int64)
        begin = int(self._whole[kernels.CHANNELS])
        self._array(kernels.HOPS, pairs)[:] = hops
        self._array(kernels.ROUTE, pairs)[:] = begin + np.cumsum(hops) - hops
        self._array(kernels.CHANNELS, int(hops.sum()))[:] = [
            channel for channels in self._route_of for channel in channels
        ]
        self._array(kernels.CAPACITY, len(self.cluster.channels))[:] = self.cluster.capacities
        for pair, channels in enumerate(self._route_of):
            if channels:
                route = self._route(*divmod(pair, self._spaces))
                self._latencies[pair], self._bandwidths[pair] = route.latency, route.bandwidth
        self._array(kernels.DEVICE, tasks)[:] = -1
        self._whole[kernels.MOST_HOPS] = self._most_hops
        self._whole[kernels.PUSH] = self._push
        copies = self._room
        self._places = self._view(kernels.DEVICE, tasks)
        self._flow_of = self._view(kernels.FLOW, copies)
        self._state = self._view(kernels.STATE, copies)
        self._end = self._view(kernels.END, copies)
        self._end_believed = self._view(kernels.BELIEVED, copies)
        self._since = self._view(kernels.SINCE, copies)
        self._size = self._view(kernels.SIZE, copies)
        self._counts = self._view(kernels.COUNT, len(self.cluster.channels))
        self._called = self._view(kernels.CALLED, len(self.cluster.devices))

    def _add_to_data(self, index: GraphIndex) -> None:
        super()._add_to_data(index)
        job = len(self.jobs) - 1
        self._array(kernels.DESTINATION, job + 1)[job] = self._destination[job]

    # -- the loop -------------------------------------------------------------------------------

    def _run_events(self) -> None:
        """All events; ends of tasks and of transfers are dealt with in the loop itself."""
        clock, header, whole, real = self._clock, self._header, self._whole, self._real
        queue, due, touched, called = clock._queue, self._due, self._touched, self._called
        static, moves, final, calls = self._scheduler.static, MOVES, FINAL, kernels.CALLS
        dirties = kernels.DIRTIES
        go_on, begin_tasks = kernels.go_on, self._begin_tasks
        ringing = False
        while queue:
            now, what, task, event = heappop(queue)
            if what == TASK_ENDS:
                due.append(task)
            elif what == TRANSFERS_END:
                ringing = True
                if self._ring_at == now:
                    self._ring_at = math.inf
            else:
                clock._now = now
                callbacks, event.callbacks = event.callbacks, None
                for callback in callbacks:
                    callback(event)
            if queue and queue[0][0] == now:
                continue
            clock._now = self.now = now
            rang = ringing
            if due or self._admit_now or self._woken:
                news = self._woken or self._admit_now or not static
                self._woken = False
                if due:
                    self._finish_due()
                if news:
                    if ringing:
                        ringing = False
                        kernels.ring(whole, real, now)
                        self._note_calls()
                    self._ask()
            if rang or header[moves] > header[final] or header[dirties]:
                self._set_event(go_on(whole, real, now, ringing))
                if ringing:
                    ringing = False
                    for at in range(header[calls]):
                        touched.add(called[at])
            if touched:
                for device in sorted(touched) if len(touched) > 1 else touched:
                    begin_tasks(device)
                touched.clear()

    def _note_calls(self) -> None:
        for at in range(self._header[kernels.CALLS]):
            self._touched.add(self._called[at])

    def _ask(self) -> None:
        """Admit the jobs that arrive and let the scheduler decide."""
        while self._admit_now:
            self._admit_now -= 1
            self._arrive()
        if self._header[kernels.STALE]:
            self._header[kernels.STALE] = 0
            self._stale[:] = [True] * len(self._stale)
        self._decide()

    def _set_event(self, moment: float) -> None:
        """Something happens to a transfer then."""
        if moment < self._ring_at:
            self._ring_at = moment
            entry = (moment, TRANSFERS_END, next(self._clock._eid), self._an_end)
            heappush(self._clock._queue, entry)

    # -- tasks ----------------------------------------------------------------------------------

    def _make_finish_due(self) -> Callable[[], None]:
        due, device_of, job_of, touched = self._due, self._device, self._job, self._touched
        ready_at, ready, finished = self._ready_at, self.ready, self.finished
        expected, load, stale, running = self._expected, self._load, self._stale, self._running
        free_slots, slot_of, space_of = self._free_slots, self._slot, self._space_of
        tasks_left, done_at, ended, ends = self._left, self._done_at, self._ended, self._ends
        finish, whole, real, released = kernels.finish, self._whole, self._real, self._released
        push = self._push

        def finish_due() -> None:
            """Apply the finishes of this instant."""
            now = self.now
            if len(due) > 1:
                due.sort()
            for task in due:
                device = device_of[task]
                heappush(free_slots[device], slot_of[task])
                touched.add(device)
                load[device] -= 1
                running[device].remove(task)
                if expected[task] != now:
                    stale[device] = True
                job = job_of[task]
                tasks_left[job] -= 1
                done_at[job] = now
                for number in range(finish(whole, real, task, space_of[device], now)):
                    successor = released[number]
                    ready_at[successor] = now
                    ready.append(successor)
                    place = device_of[successor]
                    if place >= 0:  # when its data arrives is known from now on
                        stale[place] = True
                        touched.add(place)
                        if not push:
                            kernels.fetch(whole, real, successor, space_of[place], now)
                ended.append(task)
                ends.append(now)
            finished.extend(due)
            due.clear()

        return finish_due

    def _make_begin_tasks(self) -> Callable[[int], None]:
        free_slots, queues, pending = self._free_slots, self._queues, self._pending
        running, started, start_time = self._running, self._started, self._start_time
        job_of, actual, first_task = self._job, self._actual, self._first_task
        overheads, slot_of, an_end = self._overheads, self._slot, self._an_end
        events, space_of = self._clock._queue, self._space_of
        is_here, whole, real = kernels.is_here, self._whole, self._real

        def begin_tasks(device: int) -> None:
            """Let ready heads of the queue whose data is here begin in free slots."""
            slots, queue = free_slots[device], queues[device]
            while slots and queue:
                task = queue[0][2]
                if pending[task] or not is_here(whole, real, task, space_of[device]):
                    return
                heappop(queue)
                running[device].append(task)
                started[task] = True
                slot_of[task] = heappop(slots)
                start_time[task] = now = self.now
                seconds = actual[job_of[task]][task - first_task[job_of[task]]][device]
                finish = now + (overheads[device] + seconds)
                heappush(events, (finish, TASK_ENDS, task, an_end))

        return begin_tasks

    # -- placement ------------------------------------------------------------------------------

    def place_job(self, job: int, devices: Sequence[int], ranks: Sequence[float]) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        first, count = self._check_job_placement(job, devices, ranks)
        places = np.asarray(devices).tolist()
        self._device[first : first + count] = places
        self._array(kernels.DEVICE, first + count)[first:] = places
        self._rank[first : first + count] = np.asarray(ranks, dtype=np.float64).tolist()
        self._placed_at[first : first + count] = [self.now] * count
        sequence = self._placements + 1
        self._placements += count
        self._sequence[first : first + count] = range(sequence, sequence + count)
        self._touched.update(places)
        brings = bool(self._job_index[job].inputs) and self.jobs[job].origin is not None
        now, rank_of, seconds = self.now, self._rank, self._job_index[job].seconds
        queues, load, tail_rank, stale = self._queues, self._load, self._tail_rank, self._stale
        running, available, expected = self._running, self._available, self._expected
        pending, serial, space_of = self._pending, self._serial, self._space_of
        for operator, device in enumerate(places):
            task = first + operator
            waits = pending[task]
            if brings and (self._push or not waits):
                kernels.fetch(self._whole, self._real, task, space_of[device], now)
            rank, queue = rank_of[task], queues[device]
            tail = not queue or rank >= tail_rank[device]
            # As :meth:`place` does: no projection for a task at the tail of a queue whose end is known.
            if serial[device] and (not load[device] or (tail and not stale[device])):
                if running[device] or not load[device]:
                    begin = self.available(device)
                else:
                    begin = available[device]
                    if begin < now:
                        begin = now
                if waits:
                    data = rank if rank > now else now
                else:
                    data = self._data_expected(task, device)
                end = (data if data > begin else begin) + seconds[operator][device]
                available[device] = expected[task] = end
                stale[device] = False
            else:
                stale[device] = True
            if tail:
                tail_rank[device] = rank
            heappush(queue, (rank, sequence + operator, task))
            load[device] += 1

    def _accept(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._places[task] = device
        if self._push or not self._pending[task]:
            kernels.fetch(self._whole, self._real, task, self._space_of[device], self.now)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._places[task] = -1
        if self._header[MOVES] > self._header[FINAL]:
            self._take_back_requests(task)

    # -- data -----------------------------------------------------------------------------------

    def _request(self, tensor: int, space: int, size: float) -> None:
        copy, home = tensor * self._spaces + space, self._home[tensor]
        job = self._job_of_tensor(tensor)
        kernels.request(self._whole, self._real, copy, home, space, job, size, self.now)

    def _take_back_requests(self, task: int) -> None:
        final, moves = self._header[FINAL], self._header[MOVES]
        asked = self._array(COPY, moves)[final:].tolist()
        spaces = self._spaces
        kept = [copy for copy in asked if self._is_wanted(copy // spaces, copy % spaces, task)]
        if len(kept) == len(asked):
            return
        for copy in asked:
            self._flow_of[copy] = 0
        self._header[MOVES] = final
        for copy in kept:
            tensor, space = divmod(copy, self._spaces)
            job = self._job_of_tensor(tensor)
            size = self._job_index[job].bytes[tensor - self._first_tensor[job]]
            self._request(tensor, space, size)
        self._stale[:] = [True] * len(self._stale)

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`SchedulingContext`; transfers under way by what is known of them now."""
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        flow: int = self._flow_of[tensor * self._spaces + space] - 1
        if flow < 0:
            return None
        state = self._state[flow]
        if state == kernels.ASKED:
            return self._end_believed[flow]
        if state == kernels.LATENT:  # with the rate that it would get now
            rate = self._prospect(self._route(home, space).channels)
            return self._since[flow] + duration(self._size[flow], rate)
        if state != kernels.OVER and self._header[kernels.DIRTIES]:
            self._set_event(kernels.settle(self._whole, self._real, self.now))
        return self._end[flow]

    def _prospect(self, channels: Sequence[int]) -> float:
        """See :meth:`simulator.maxmin.MaxMin.prospect`."""
        capacities = self.cluster.capacities
        return min(capacities[c] / (self._counts[c] + 1) for c in channels)

    def transfer_end(self, size: float, source: int, destination: int) -> float:
        """See :class:`SchedulingContext`; at an equal share of the narrowest channel."""
        if source in (destination, EVERYWHERE):
            return SchedulingContext.transfer_end(self, size, source, destination)
        route = self._route(source, destination)
        return self.now + seconds(route, size, self._prospect(route.channels))

    # -- the end --------------------------------------------------------------------------------

    def _execution_table(self) -> Table:
        return table_of_ends(self, self._ended, self._ends)

    def _transfer_table(self) -> Table:
        for job, moment in enumerate(self._array(kernels.DELIVERED, len(self.jobs)).tolist()):
            self._done_at[job] = max(self._done_at[job], moment)
        count = self._header[MOVES]
        # Copies: a trace must not keep the arrays.
        copy, turn, requested, end, wire = (
            self._array(name, count).copy()
            for name in (COPY, ROUND, REQUESTED, kernels.END, kernels.WIRE)
        )
        tensor, space = np.divmod(copy, self._spaces)
        order = in_turn(turn, copy)
        columns = (tensor, wire // self._spaces, space, requested, requested, end)
        return rows_of_moves(
            [column[order] for column in columns], self._routes, self._job_index, self._first_tensor
        )


def pairs_of_spaces(setting: Setting) -> set[tuple[int, int]]:
    """Memory spaces between which something may move, as (from, to)."""
    cluster = setting.cluster
    devices = {*cluster.space_of}
    origins, destinations = (
        {cluster.space_index[name] for name in names if name in cluster.space_index}
        for names in zip(*((job.origin, job.destination) for job in setting.workload), strict=True)
    )
    pairs = {*product(devices | origins, devices), *product(devices, destinations)}
    return {(a, b) for a, b in pairs if a != b}
