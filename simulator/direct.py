"""Runs in which every end is known as soon as it is asked for: one event a task.

Where devices run at constant rates, memory is plentiful and transfers are ``none`` or ``fifo``, the
end of a transfer is an addition, and a task whose data is on its way can be taken from its queue at
once, with a start in the future. The trace is that of :class:`simulator.simulation.Simulation`.

A copy of a tensor is known by one number: tensor times the number of spaces, plus the space.
"""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from simulator.clock import Occurrence
from simulator.cluster import Route
from simulator.context import EVERYWHERE, GraphIndex
from simulator.simulation import Simulation
from simulator.trace import Table, execution_table, transfer_table

FIELDS = 4
"""Numbers that are kept of a transfer: copy, requested, start, end."""


class DirectSimulation(Simulation):
    """See the module docstring."""

    def _prepare(self) -> None:
        cluster = self.cluster
        self._overheads = [device.launch_overhead for device in cluster.devices]
        self._delivers = any(job.destination is not None for job in self._workload)
        self._spaces = len(cluster.spaces)
        self._arrivals_of: dict[int, float] = {}  # copy -> when it is there
        self._fetch = self._fetch_alone
        if self.contention == "fifo":
            single = all(
                len(cluster.route(a, b).channels) == 1 for a, b in self._used_pairs() if a != b
            )
            self._fetch = self._fetch_queued if single else self._fetch_routed
        # What happened, for the trace: tasks and their finishes in order; transfers.
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._moves = array("d")
        self._sent_moves = 0  # how many numbers of them are final
        self._sent_at: list[int] = []  # how many they were after each round of an instant
        self._last_copy = -1  # the last one asked for at this instant
        self._disordered = False  # whether one of this instant came before a smaller one
        self._before: list[list[float]] = []  # when a route's channels were free, for each move
        self._placed_now: list[int] = []
        self._momentary: list[int] = []  # that start and finish at this instant, not started yet
        # Taken from their queue while their data is on its way, in the order of their starts.
        self._waiting: list[list[int]] = [[] for _ in cluster.devices]
        self._settled = -1.0  # the instant whose starts have happened
        self._data_at: list[float] = []  # by task: when its data is in its device's space; or -1
        self._early = 0  # tasks that are placed and not ready
        self._idle = list(range(len(cluster.devices)))
        self._tracking = False  # whether somebody asks when devices are available
        self._exact = self._actual_source is None
        self._events = [
            [Occurrence(self._clock, None, -1) for _ in range(slots)] for slots in self._slots
        ]
        self._marks: list[object] = [None]  # what a task's end in the clock's queue is known by

    def _used_pairs(self) -> list[tuple[int, int]]:
        """Every pair of spaces between which something may move."""
        used = {*self._space_of}
        for job in self._workload:
            for name in (job.origin, job.destination):
                if name is not None:
                    used.add(self.cluster.space_index[name])
        return [(a, b) for a in sorted(used) for b in sorted(used)]

    # -- the loop -------------------------------------------------------------------------------

    def _run_events(self) -> None:
        """All events; a task's end is dealt with in the loop itself."""
        clock = self._clock
        queue, marks, due = clock._queue, self._marks, self._due
        start_time, finish_time = self._start_time, self._finish_time
        static = self._scheduler.static
        never = math.inf
        while queue:
            now, _, _, event = heappop(queue)
            callbacks = event.callbacks
            event.callbacks = None
            if callbacks is marks:
                task = event._value
                # Not if it was taken back, nor twice if it was then begun anew to the same end.
                if finish_time[task] == now:
                    if start_time[task] == now != self._settled:
                        self._momentary.append(task)
                    else:
                        finish_time[task] = never
                        due.append(task)
            else:
                clock._now = now
                for callback in callbacks:
                    callback(event)
            if queue and queue[0][0] == now:
                continue
            clock._now = self.now = now
            # Nothing happens if finishes were foreseen here that have moved since.
            if due or self._admit_now or self._woken:
                news = self._woken or self._admit_now or not static
                self._woken = False
                if due:
                    self._finish_due()
                while self._admit_now:
                    self._admit_now -= 1
                    self._arrive()
                if news:
                    self._decide()
                if len(self._moves) > self._sent_moves:
                    self._send()
                if self._placed_now:
                    self._placed_now.clear()
                touched = self._touched
                if touched:
                    for device in sorted(touched) if len(touched) > 1 else touched:
                        self._begin_tasks(device)
                    touched.clear()
            self._settled = now
            if self._momentary:
                for task in self._momentary:
                    event = Occurrence(clock, marks, task)
                    heappush(queue, (now, 1, next(clock._eid), event))
                self._momentary.clear()

    # -- tasks ----------------------------------------------------------------------------------

    def _arrive(self) -> None:
        super()._arrive()
        self._data_at += [-1.0] * (len(self._job) - len(self._data_at))

    def _finish_due(self) -> None:
        """Apply the finishes of this instant."""
        due, now = self._due, self.now
        if len(due) > 1:
            due.sort()
        pending, device_of, ready_at, ready = (
            self._pending,
            self._device,
            self._ready_at,
            self.ready,
        )
        home, written, expected, load = self._home, self._written, self._expected, self._load
        touched, stale = self._touched, self._stale
        for task in due:
            device = device_of[task]
            if self._waiting[device]:
                self._mark_started(device)
            self._started[task] = True
            heappush(self._free_slots[device], self._slot[task])
            touched.add(device)
            job = self._job[task]
            index = self._job_index[job]
            first, first_tensor = self._first_task[job], self._first_tensor[job]
            operator = task - first
            space = self._space_of[device]
            for tensor in index.writes[operator]:
                home[first_tensor + tensor] = space
                written[first_tensor + tensor] = now
            if load[device] == self._slots[device]:
                insort(self._idle, device)
            load[device] -= 1
            self._running[device].remove(task)
            if expected[task] != now:
                stale[device] = True
            self._left[job] -= 1
            self._done_at[job] = max(self._done_at[job], now)
            early = self._early
            for successor in index.successors[operator]:
                successor += first
                left = pending[successor] - 1
                pending[successor] = left
                if not left:
                    ready_at[successor] = now
                    ready.append(successor)
                    place = device_of[successor]
                    if place >= 0:  # when its data arrives is known from now on
                        self._early -= 1
                        stale[place] = True
                        touched.add(place)
                        if not self._push:
                            self._request_inputs(successor, place)
            if early or self._delivers:
                self._request_outputs(task, device)
        self.finished += due
        self._ended += due
        self._ends += [now] * len(due)
        due.clear()

    def _begin_tasks(self, device: int) -> None:
        """Take ready heads of the queue into free slots.

        A head whose data is on its way is taken, too, and starts when it is there; those behind it
        start no earlier. Nothing can go in front of it but by :meth:`_return_waiting`.
        """
        slots = self._free_slots[device]
        queue = self._queues[device]
        now = self.now
        while slots and queue:
            task = queue[0][2]
            if self._pending[task]:
                return
            heappop(queue)
            self._running[device].append(task)
            start = self._data_at[task]
            if start < 0:
                start = self._data_arrival(task, device)
            if start < now:
                start = now
            waiting = self._waiting[device]
            if waiting and self._start_time[waiting[-1]] > start:
                start = self._start_time[waiting[-1]]
            job = self._job[task]
            seconds = self._actual[job][task - self._first_task[job]][device]
            finish = start + (self._overheads[device] + seconds)
            slot = self._slot[task] = heappop(slots)
            self._start_time[task] = start
            self._finish_time[task] = finish
            if start > now:
                waiting.append(task)
            event = self._events[device][slot]
            if event.callbacks is not None:  # it waits in the queue for a task that was taken back
                event = self._events[device][slot] = Occurrence(self._clock, None, -1)
            event.callbacks = self._marks
            event._value = task
            heappush(self._clock._queue, (finish, 1, next(self._clock._eid), event))

    def _mark_started(self, device: int) -> None:
        """Tasks that waited for their data and have started wait no more."""
        waiting = self._waiting[device]
        count = 0
        while count < len(waiting) and self._has_started(waiting[count]):
            count += 1
        del waiting[:count]

    def _has_started(self, task: int) -> bool:
        # A start has no event of its own; at its instant, decisions precede it.
        start = self._start_time[task]
        return (
            start < self.now
            or self._started[task]
            or (start == self.now and self._settled == start)
        )

    def _return_waiting(self, device: int) -> None:
        """Put tasks that wait for their data back into the queue, whose order is about to change."""
        for task in self._waiting[device]:
            self._start_time[task] = self._finish_time[task] = math.inf
            heappush(self._free_slots[device], self._slot[task])
            self._running[device].remove(task)
            heappush(self._queues[device], (self._rank[task], self._sequence[task], task))
        self._waiting[device].clear()

    # -- placement ------------------------------------------------------------------------------

    @property
    def idle(self) -> list[int]:
        """See :class:`simulator.context.SchedulingContext`."""
        return self._idle.copy()

    def available(self, device: int) -> float:
        """See :class:`simulator.context.SchedulingContext`."""
        if not self._tracking:
            self._tracking = True
            self._stale[:] = [True] * len(self._stale)
        if self._exact and self._load[device] and not self._stale[device]:
            moment = self._available[device]
            return moment if moment > self.now else self.now
        return super().available(device)

    def availabilities(self, devices: Sequence[int]) -> list[float]:
        """See :class:`simulator.context.SchedulingContext`."""
        if not (self._exact and self._tracking):
            return [self.available(device) for device in devices]
        now, stale, known = self.now, self._stale, self._available
        return [
            self.available(d) if stale[d] else known[d] if known[d] > now else now for d in devices
        ]

    def place(self, task: int, device: int, rank: float | None = None) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        now = self.now
        if rank is None:
            rank = now
        device_of = self._device
        if not (
            0 <= task < len(device_of)
            and 0 <= device < len(self._load)
            and device_of[task] < 0
            and rank == rank  # no NaN
        ):
            self._check_placement(task, device, rank)
        job = self._job[task]
        index = self._job_index[job]
        operator = task - self._first_task[job]
        seconds = index.seconds[operator][device]
        if seconds == math.inf:
            self._check_placement(task, device, rank)
        sequence = self._placements = self._placements + 1
        device_of[task] = device
        self._sequence[task] = sequence
        self._rank[task] = rank
        self._placed_at[task] = now
        self._touched.add(device)
        if self._waiting[device]:
            self._mark_started(device)
            waiting = self._waiting[device]
            if waiting and rank < self._rank[waiting[-1]]:
                self._return_waiting(device)
        if self._pending[task]:
            self._early += 1
            self._data_at[task] = -1.0
            if self._push:
                self._fetch(index, operator, self._first_tensor[job], self._space_of[device])
        else:
            self._data_at[task] = self._fetch(
                index, operator, self._first_tensor[job], self._space_of[device]
            )
            self._placed_now.append(task)
        queue = self._queues[device]
        load = self._load[device]
        tail = not queue or rank >= self._tail_rank[device]
        stale = self._stale
        if (
            self._tracking
            and self._slots[device] == 1
            and (not load or (tail and not stale[device]))
        ):
            begin = self.available(device)
            data = (
                self._data_at[task]
                if self._data_at[task] >= 0
                else self._data_expected(task, device)
            )
            end = (data if data > begin else begin) + seconds
            self._available[device] = self._expected[task] = end
            stale[device] = False
        else:
            stale[device] = True
        if tail:
            self._tail_rank[device] = rank
        heappush(queue, (rank, sequence, task))
        self._load[device] = load = load + 1
        if load == self._slots[device]:
            self._idle.remove(device)

    def withdraw(self, task: int) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        device = self._device[task] if 0 <= task < len(self._device) else -1
        super().withdraw(task)
        self._early -= self._pending[task] > 0
        if self._load[device] == self._slots[device] - 1:
            insort(self._idle, device)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._mark_started(device)
        if task in self._waiting[device]:
            self._return_waiting(device)
        if len(self._moves) > self._sent_moves:
            self._take_back(task)

    # -- data -----------------------------------------------------------------------------------

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`simulator.context.SchedulingContext`."""
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        return self._arrivals_of.get(tensor * self._spaces + space)

    def _fetch_alone(
        self, index: GraphIndex, operator: int, first_tensor: int, space: int
    ) -> float:
        """Bring the inputs of an operator that exist to a space, from now on; a tensor crosses to a
        space once. Returns when they will all be there, at least now.
        """
        now = latest = self.now
        home_of, arrivals, wires = self._home, self._arrivals_of, self._wires
        for tensor in index.reads[operator]:
            number = first_tensor + tensor
            home = home_of[number]
            if home == space or home < 0:
                continue
            copy = number * self._spaces + space
            end = arrivals.get(copy)
            if end is None:
                _, latency, bandwidth, _ = wires[home][space] or self._lay(home, space)
                end = arrivals[copy] = now + (latency + index.bytes[tensor] / bandwidth)
                self._moves.extend((copy, now, now, end))
                if copy < self._last_copy:
                    self._disordered = True
                self._last_copy = copy
            if end > latest:
                latest = end
        return latest

    def _fetch_queued(
        self, index: GraphIndex, operator: int, first_tensor: int, space: int
    ) -> float:
        """The same, one at a time over each channel."""
        now = latest = self.now
        home_of, arrivals, wires = self._home, self._arrivals_of, self._wires
        free = self._channel_free
        for tensor in index.reads[operator]:
            number = first_tensor + tensor
            home = home_of[number]
            if home == space or home < 0:
                continue
            copy = number * self._spaces + space
            end = arrivals.get(copy)
            if end is None:
                channel, latency, bandwidth, _ = wires[home][space] or self._lay(home, space)
                start = free[channel]
                if start < now:
                    start = now
                end = start + (latency + index.bytes[tensor] / bandwidth)
                arrivals[copy] = free[channel] = end
                self._moves.extend((copy, now, start, end))
                if copy < self._last_copy:
                    self._disordered = True
                self._last_copy = copy
            if end > latest:
                latest = end
        return latest

    def _fetch_routed(
        self, index: GraphIndex, operator: int, first_tensor: int, space: int
    ) -> float:
        """The same, where routes have several links."""
        latest = self.now
        for tensor in index.reads[operator]:
            number = first_tensor + tensor
            home = self._home[number]
            if home == space or home < 0:
                continue
            copy = number * self._spaces + space
            if copy not in self._arrivals_of:
                self._book(copy, home, space, index.bytes[tensor])
            latest = max(latest, self._arrivals_of[copy])
        return latest

    def _book(self, copy: int, home: int, space: int, size: float) -> None:
        """Ask for one transfer now."""
        route = self._route(home, space)
        free = self._channel_free
        self._before.append([free[channel] for channel in route.channels])
        start, end = self._transfers.book(route, size, self.now, free)
        self._arrivals_of[copy] = end
        self._moves.extend((copy, self.now, start, end))
        self._disordered |= copy < self._last_copy
        self._last_copy = copy

    def _request(self, tensor: int, space: int, size: float) -> None:
        copy = tensor * self._spaces + space
        if copy not in self._arrivals_of:
            self._book(copy, self._home[tensor], space, size)
            if self._fetch != self._fetch_routed:
                self._before.clear()

    def _take_back(self, task: int) -> None:
        """Unmake the requests of this instant that nobody but ``task``, now withdrawn, needs."""
        asked = self._asked()
        kept = [copy for copy in asked if self._is_wanted(*divmod(copy, self._spaces), task)]
        if len(kept) < len(asked):
            self._book_copies(kept)

    def _asked(self) -> list[int]:
        """The copies asked for at this instant, in that order."""
        return [int(copy) for copy in self._moves[self._sent_moves :: FIELDS]]

    def _book_copies(self, copies: list[int]) -> None:
        """Book these in place of all requests of this instant."""
        moves, free = self._moves, self._channel_free
        before = {}
        for at in range(len(moves) - FIELDS, self._sent_moves - 1, -FIELDS):
            copy = int(moves[at])
            tensor, space = divmod(copy, self._spaces)
            before[copy] = self._arrivals_of.pop(copy)
            channels = self._route(self._home[tensor], space).channels
            if self._before:
                for channel, moment in zip(channels, self._before.pop(), strict=True):
                    free[channel] = moment
            else:  # a channel that was free before now is as good as one that is free from now on
                free[channels[0]] = moves[at + 2]
        del moves[self._sent_moves :]
        self._last_copy = -1
        self._disordered = False
        for copy in copies:
            tensor, space = divmod(copy, self._spaces)
            job = self._job_of_tensor(tensor)
            size = self._job_index[job].bytes[tensor - self._first_tensor[job]]
            self._request(tensor, space, size)
        if any(self._arrivals_of.get(copy) != end for copy, end in before.items()):
            self._stale[:] = [True] * len(self._stale)
        for task in self._placed_now:
            self._data_at[task] = -1.0

    def _send(self) -> None:
        """Make the requests of this instant final."""
        if self._disordered and self.contention == "fifo":
            self._book_copies(sorted(self._asked()))
        if self._delivers:
            for at in range(self._sent_moves, len(self._moves), FIELDS):
                tensor, space = divmod(int(self._moves[at]), self._spaces)
                end = self._moves[at + 3]
                job = self._job_of_tensor(tensor)
                result = tensor - self._first_tensor[job] in self._job_index[job].outputs
                if result and self._destination[job] == space and end > self._done_at[job]:
                    self._done_at[job] = end
        self._sent_moves = len(self._moves)
        self._sent_at.append(self._sent_moves)
        self._last_copy = -1
        self._disordered = False
        self._before.clear()

    def _data_arrival(self, task: int, device: int) -> float:
        """When the last input of a ready, placed task is in its device's space; at least now."""
        job = self._job[task]
        index = self._job_index[job]
        first = self._first_tensor[job]
        space = self._space_of[device]
        latest = self.now
        for t in index.reads[task - self._first_task[job]]:
            if self._home[first + t] not in (space, EVERYWHERE):
                arrival = self._arrivals_of[(first + t) * self._spaces + space]
                if arrival > latest:
                    latest = arrival
        return latest

    # -- the end --------------------------------------------------------------------------------

    def _execution_table(self) -> Table:
        task = np.array(self._ended, dtype=np.int64)
        job = np.array(self._job, dtype=np.int64)[task]
        return execution_table(
            task,
            job,
            task - np.array(self._first_task)[job],
            np.array(self._device)[task],
            np.array(self._slot)[task],
            np.array(self._ready_at)[task],
            np.array(self._placed_at)[task],
            np.array(self._start_time)[task],
            self._ends,
        )

    def _transfer_table(self) -> Table:
        copy, requested, start, end = np.frombuffer(self._moves).reshape(-1, FIELDS).T
        tensor, space = np.divmod(copy.astype(np.int64), self._spaces)
        home = np.array(self._home, dtype=np.int64)[tensor]
        turn = np.searchsorted(self._sent_at, np.arange(len(copy)) * FIELDS, side="right")
        order = np.lexsort((copy, turn))
        columns = (tensor, home, space, requested, start, end)
        return rows_of_moves(
            [column[order] for column in columns],
            self._routes,
            self._job_index,
            self._first_tensor,
        )


def rows_of_moves(
    moves: Sequence[np.ndarray],
    routes: Sequence[Sequence[Route | None]],
    indices: Sequence[GraphIndex],
    first_tensor: Sequence[int],
) -> Table:
    """The transfers of a trace: one row for each link of every move's route.

    Args:
        moves: columns: tensor, source, destination, requested, start and end.
        routes: by source and destination.
        indices: of every job.
        first_tensor: of every job.
    """
    tensor, home, space, requested, start, end = moves
    job = np.searchsorted(first_tensor, tensor, side="right") - 1
    size = np.concatenate([index.graph.tensor_bytes for index in indices])[tensor]
    # Routes by number: the spaces' pair.
    pair = home * len(routes) + space
    channels = [() if route is None else route.channels for row in routes for route in row]
    links = np.array([len(c) for c in channels], dtype=np.int64)
    first = np.cumsum(links) - links
    channel = np.array([c for cs in channels for c in cs], dtype=np.int64)
    hops = links[pair]
    if (hops == 1).all():
        link = channel[first[pair]]
        return transfer_table(tensor, job, home, space, link, requested, start, end, size)
    row = np.repeat(np.arange(len(tensor)), hops)
    hop = np.arange(len(row)) - np.repeat(np.cumsum(hops) - hops, hops)
    link = channel[first[pair[row]] + hop]
    moved = (column[row] for column in (tensor, job, home, space))
    return transfer_table(*moved, link, requested[row], start[row], end[row], size[row])
