"""Runs in which every end is known as soon as it is asked for: one event a task.

Where devices run at constant rates, memory is plentiful and transfers are ``none`` or ``fifo``, the
end of a transfer is an addition, and a task whose data is on its way can be taken from its queue at
once, with a start in the future. The trace is that of :class:`simulator.simulation.Simulation`.

A copy of a tensor is known by one number: tensor times the number of spaces, plus the space.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np

from simulator.clock import TASK_ENDS, Occurrence
from simulator.cluster import Route
from simulator.context import EVERYWHERE, GraphIndex
from simulator.scheduler import Scheduler
from simulator.simulation import Setting, Simulation
from simulator.trace import Table, execution_table, transfer_table
from simulator.workload import Job


def is_routed(setting: Setting) -> bool:
    """Whether something may move over a route of several links, and wait for them."""
    used = {*setting.cluster.space_of}
    for job in setting.workload:
        for name in (job.origin, job.destination):
            if name in setting.cluster.space_index:  # others are refused
                used.add(setting.cluster.space_index[name])
    return setting.contention == "fifo" and not setting.cluster.joins(used)


class DirectSimulation(Simulation):
    """See the module docstring."""

    _packs = False
    _serves = False

    def _prepare(self) -> None:
        cluster = self.cluster
        self._overheads = [device.launch_overhead for device in cluster.devices]
        self._delivers = any(job.destination is not None for job in self._workload)
        self._spaces = len(cluster.spaces)
        # Copy -> when it is there, in the order in which they were asked for, and the starts of the
        # transfers in the same order (``fifo``; without contention they start when they are asked for).
        self._arrivals_of: Any = self._make_arrivals()
        self._starts: list[float] = []
        self._routed = is_routed(self._setting)
        self._ended: list[int] = []  # tasks in the order in which they ended, for the trace
        self._final = 0  # how many transfers are final
        self._sent_by: list[int] = []  # how many they were after each round of an instant
        self._sent_at: list[float] = []  # when that was
        # The last copy asked for at this instant, and whether one came before a smaller one.
        self._asking: list[int] = [-1, False]
        self._before: list[list[float]] = []  # when a route's channels were free, for each move
        self._placed_now: list[int] = []
        self._called_for: list[int] = []  # devices for whose early tasks data was asked for now
        # Taken from their queue while their data is on its way, in the order of their starts.
        self._waiting: list[list[int]] = [[] for _ in cluster.devices]
        self._settled = -1.0  # the instant whose starts have happened
        # By task: seconds on every device.
        self._believed_rows: list[Sequence[float]] = []
        self._actual_rows: list[Sequence[float]] = []
        self._data_at: list[float] = []  # by task: when its data is in its device's space; or -1
        self._early = 0  # tasks that are placed and not ready
        self._idle = list(range(len(cluster.devices)))
        self._tracking = False  # whether somebody asks when devices are available
        self._exact = self._actual_source is None
        self._end_of_task = Occurrence(self._clock, None, None)  # the queue says whose end it is
        self.place = self._make_place()  # type: ignore[method-assign,assignment]
        self._finish_due = self._make_finish_due()
        self._decide = self._make_decide()  # type: ignore[method-assign]
        self._settle = self._make_settle()  # type: ignore[method-assign]

    def _make_arrivals(self) -> Any:
        return {}

    # -- the loop -------------------------------------------------------------------------------

    def _run_events(self) -> None:
        """All events; a task's end is dealt with in the loop itself."""
        clock = self._clock
        queue, due, end_of_task = clock._queue, self._due, self._end_of_task
        start_time, finish_time, started = self._start_time, self._finish_time, self._started
        decide, settle, finish_due = self._decide, self._settle, self._finish_due
        asked_at_finishes = not self._scheduler.static
        other = False  # whether something else than the end of a task happened
        momentary: list[int] = []  # tasks that start and end at this instant, not started yet
        while queue:
            now, what, task, event = heappop(queue)
            if what == TASK_ENDS:
                # Not if it was taken back, nor twice if it was then begun anew to the same end.
                if finish_time[task] == now and not started[task]:
                    if start_time[task] == now != self._settled:
                        momentary.append(task)
                    else:
                        started[task] = True
                        due.append(task)
            else:
                other = True
                clock._now = now
                callbacks, event.callbacks = event.callbacks, None
                for callback in callbacks:
                    callback(event)
            if queue and queue[0][0] == now:
                continue
            clock._now = self.now = now
            # Nothing happens if finishes were foreseen here that have moved since.
            if due or other:
                if due:
                    finish_due()
                if other:
                    self._woken = False
                    while self._admit_now:
                        self._admit_now -= 1
                        self._arrive()
                if other or asked_at_finishes:
                    other = False
                    decide()
                settle()
            elif momentary:
                settle()
            if momentary:
                for task in momentary:
                    heappush(queue, (now, TASK_ENDS, task, end_of_task))
                momentary.clear()

    # -- tasks ----------------------------------------------------------------------------------
    #
    # What happens to every task is done by functions that are made once a run around its lists:
    # looking these up in the object each time would take a third of the time.

    def _make_finish_due(self) -> Callable[[], None]:
        due, device_of, ready_at = self._due, self._device, self._ready_at
        ready, finished, ended = self.ready, self.finished, self._ended
        home, written, pending, job_of = self._home, self._written, self._pending, self._job
        job_index, first_task, first_tensor = self._job_index, self._first_task, self._first_tensor
        expected, load, touched, stale = self._expected, self._load, self._touched, self._stale
        waiting, running, start_time = self._waiting, self._running, self._start_time
        slots, free_slots, slot_of = self._slots, self._free_slots, self._slot
        space_of, idle, push, delivers = self._space_of, self._idle, self._push, self._delivers

        def finish_due() -> None:
            """Apply the finishes of this instant."""
            now = self.now
            if len(due) > 1:
                due.sort()
            for task in due:
                device = device_of[task]
                line = waiting[device]
                if line:
                    if start_time[line[-1]] < now:  # they start one after the other
                        line.clear()
                    else:
                        self._mark_started(device)
                if slots[device] > 1:
                    self._number_slots(device)
                    heappush(free_slots[device], slot_of[task])
                touched.add(device)
                count = load[device]
                if count == slots[device]:
                    insort(idle, device)
                load[device] = count - 1
                running[device].remove(task)
                if expected[task] != now:
                    stale[device] = True
                job, space = job_of[task], space_of[device]
                index, first, base = job_index[job], first_task[job], first_tensor[job]
                for tensor in index.writes[task - first]:
                    home[base + tensor] = space
                    written[base + tensor] = now
                early = self._early
                for successor in index.successors[task - first]:
                    successor += first
                    left = pending[successor] - 1
                    pending[successor] = left
                    if left:
                        continue
                    ready_at[successor] = now
                    ready.append(successor)
                    if early and device_of[successor] >= 0:
                        # When its data arrives is known from now on.
                        place = device_of[successor]
                        self._early -= 1
                        stale[place] = True
                        touched.add(place)
                        self._called_for.append(place)
                        if not push:
                            self._request_inputs(successor, place)
                if early or delivers:
                    self._request_outputs(task, device)
            finished.extend(due)
            ended.extend(due)
            due.clear()

        return finish_due

    def _make_decide(self) -> Callable[[], None]:
        decide, clock = self._scheduler.decide, time.perf_counter
        ready, arrived, finished = self.ready, self.arrived, self.finished

        def ask() -> None:
            """Let the scheduler decide."""
            if len(ready) > 1:
                ready.sort()
            began = clock()
            decide(self)
            self._deciding_seconds += clock() - began
            self._decisions += 1
            if arrived:
                arrived.clear()
            ready.clear()
            finished.clear()

        return ask

    def _make_settle(self) -> Callable[[], None]:
        send, begin_tasks = self._make_send(), self._make_begin_tasks()
        touched, placed_now, called_for = self._touched, self._placed_now, self._called_for

        def settle() -> None:
            """Send what was asked for at this instant, and let devices begin what they can."""
            send()
            if placed_now:
                placed_now.clear()
            if called_for:
                called_for.clear()
            if touched:
                for device in sorted(touched) if len(touched) > 1 else touched:
                    begin_tasks(device)
                touched.clear()
            self._settled = self.now

        return settle

    def _make_begin_tasks(self) -> Callable[[int], None]:
        slots_of, queues, pending, running = (
            self._slots,
            self._queues,
            self._pending,
            self._running,
        )
        data_at, waiting_on, start_time = self._data_at, self._waiting, self._start_time
        actual, overheads = self._actual_rows, self._overheads
        slot_of, finish_time, end_of_task = self._slot, self._finish_time, self._end_of_task
        occurrences = self._clock._queue

        def begin_tasks(device: int) -> None:
            """Take ready heads of the queue into free slots.

            A head whose data is on its way is taken, too, and starts when it is there; those behind
            it start no earlier. Nothing can go in front of it but by :meth:`_return_waiting`.
            """
            slots, queue, taken = slots_of[device], queues[device], running[device]
            while queue and len(taken) < slots:
                task = queue[0][2]
                if pending[task]:
                    return
                now = self.now
                heappop(queue)
                taken.append(task)
                start = data_at[task]
                if start < 0:
                    start = self._data_arrival(task, device)
                if start < now:
                    start = now
                waiting = waiting_on[device]
                if waiting and start_time[waiting[-1]] > start:
                    start = start_time[waiting[-1]]
                finish = start + (overheads[device] + actual[task][device])
                slot_of[task] = -1 if slots > 1 else 0  # none yet: it may be put back
                start_time[task] = start
                finish_time[task] = finish
                if start > now:
                    waiting.append(task)
                heappush(occurrences, (finish, TASK_ENDS, task, end_of_task))

        return begin_tasks

    def _note_actual(self, job: Job) -> None:
        super()._note_actual(job)
        self._data_at += [-1.0] * len(job.graph)
        self._believed_rows += self._job_index[-1].seconds
        self._actual_rows += self._actual[-1]

    def _number_slots(self, device: int) -> None:
        """Give tasks that have started the lowest slots that were free then: before another one is."""
        free, slot_of = self._free_slots[device], self._slot
        for task in self._running[device]:
            if slot_of[task] < 0 and self._has_started(task):
                slot_of[task] = heappop(free)

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
            self._running[device].remove(task)
            heappush(self._queues[device], (self._rank[task], self._sequence[task], task))
        self._waiting[device].clear()

    # -- placement ------------------------------------------------------------------------------

    @property
    def idle(self) -> list[int]:
        """See :class:`simulator.context.SchedulingContext`."""
        return self._idle.copy()

    @property
    def forecasts_hold(self) -> bool:
        """See :class:`simulator.context.SchedulingContext`."""
        return self.contention == "none" and not self._returned

    def available(self, device: int) -> float:
        """See :class:`simulator.context.SchedulingContext`."""
        if not self._load[device]:
            return self.now
        if not self._tracking:
            self._tracking = True
            for other in range(len(self._stale)):
                self._stale[other] = True
        if self._exact and not self._stale[device]:
            moment = self._available[device]
            return moment if moment > self.now else self.now
        return super().available(device)

    def availabilities(self, devices: Sequence[int]) -> list[float]:
        """See :class:`simulator.context.SchedulingContext`."""
        now, load, available = self.now, self._load, self.available
        if not (self._exact and self._tracking):
            return [available(d) if load[d] else now for d in devices]
        stale, known = self._stale, self._available
        return [available(d) if stale[d] else known[d] if known[d] > now else now for d in devices]

    def _make_place(self) -> Callable[[int, int, float | None], None]:
        fetch = self._make_fetch()
        device_of, load, rows = self._device, self._load, self._believed_rows
        sequence_of, rank_of, placed_at = self._sequence, self._rank, self._placed_at
        touched, waiting_on, pending = self._touched, self._waiting, self._pending
        start_time = self._start_time
        data_at, space_of, placed_now = self._data_at, self._space_of, self._placed_now
        queues, tail_rank, stale, slots = self._queues, self._tail_rank, self._stale, self._slots
        known, expected, idle, push = self._available, self._expected, self._idle, self._push
        devices = len(load)
        never = math.inf

        def place(task: int, device: int, rank: float | None = None) -> None:
            """See :class:`simulator.context.SchedulingContext`."""
            now = self.now
            if rank is None:
                rank = now
            seconds = never
            if 0 <= task < len(device_of) and 0 <= device < devices:
                seconds = rows[task][device]
            if seconds == never or device_of[task] >= 0 or rank != rank:  # NaN
                self._check_placement(task, device, rank)
            sequence = self._placements = self._placements + 1
            device_of[task] = device
            sequence_of[task] = sequence
            rank_of[task] = rank
            placed_at[task] = now
            touched.add(device)
            waiting = waiting_on[device]
            if waiting:
                if start_time[waiting[-1]] < now:
                    waiting.clear()
                else:
                    self._mark_started(device)
                    if waiting and rank < rank_of[waiting[-1]]:
                        self._return_waiting(device)
            waits = pending[task]
            if push or not waits:
                data = fetch(task, space_of[device], now)
            if waits:
                self._early += 1
                data = -1.0
            else:
                placed_now.append(task)
            data_at[task] = data
            queue = queues[device]
            count = load[device]
            tail = not queue or rank >= tail_rank[device]
            if (
                self._tracking
                and slots[device] == 1
                and (not count or (tail and not stale[device]))
            ):
                begin = self.available(device) if count else now
                if data < 0:
                    data = self._data_expected(task, device)
                end = (data if data > begin else begin) + seconds
                known[device] = expected[task] = end
                stale[device] = False
            else:
                stale[device] = True
            if tail:
                tail_rank[device] = rank
            heappush(queue, (rank, sequence, task))
            load[device] = count + 1
            if count + 1 == slots[device]:
                idle.remove(device)

        return place

    def withdraw(self, task: int) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        device = self._device[task] if 0 <= task < len(self._job) else -1
        super().withdraw(task)
        self._early -= self._pending[task] > 0
        if self._load[device] == self._slots[device] - 1:
            insort(self._idle, device)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._mark_started(device)
        if task in self._waiting[device]:
            self._return_waiting(device)
        if len(self._arrivals_of) > self._final:
            self._take_back(task)

    # -- data -----------------------------------------------------------------------------------

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`simulator.context.SchedulingContext`."""
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        return self._arrivals_of.get(tensor * self._spaces + space)

    def _make_fetch(self) -> Callable[[int, int, float], float]:
        home_of, arrivals, wires = self._home, self._arrivals_of, self._wires
        free, spaces, asking = self._channel_free, self._spaces, self._asking
        job_index, first_tensor = self._job_index, self._first_tensor
        job_of, first_task = self._job, self._first_task
        begins, queued = self._starts.append, self.contention == "fifo"

        def fetch(task: int, space: int, now: float) -> float:
            """Bring the inputs of a task that exist to a space, from now on; a tensor crosses to
            a space once. Returns when they will all be there, at least now.
            """
            latest = now
            job = job_of[task]
            index, first = job_index[job], first_tensor[job]
            sizes = index.bytes
            for tensor in index.reads[task - first_task[job]]:
                number = first + tensor
                home = home_of[number]
                if home == space or home < 0:
                    continue
                copy = number * spaces + space
                end = arrivals.get(copy)
                if end is None:
                    channel, latency, bandwidth, _ = wires[home][space] or self._lay(home, space)
                    start = free[channel] if queued else now
                    if start < now:
                        start = now
                    end = arrivals[copy] = start + (latency + sizes[tensor] / bandwidth)
                    if queued:
                        free[channel] = end
                        begins(start)
                        if copy < asking[0]:
                            asking[1] = True
                        asking[0] = copy
                if end > latest:
                    latest = end
            return latest

        def fetch_routed(task: int, space: int, now: float) -> float:
            """The same where routes have several links."""
            latest = now
            job = job_of[task]
            index, first = job_index[job], first_tensor[job]
            for tensor in index.reads[task - first_task[job]]:
                number = first + tensor
                home = home_of[number]
                if home == space or home < 0:
                    continue
                copy = number * spaces + space
                if copy not in arrivals:
                    self._book(copy, home, space, index.bytes[tensor])
                latest = max(latest, arrivals[copy])
            return latest

        return fetch_routed if self._routed else fetch

    def _book(self, copy: int, home: int, space: int, size: float) -> None:
        """Ask for one transfer now."""
        route = self._route(home, space)
        free = self._channel_free
        self._before.append([free[channel] for channel in route.channels])
        start, end = self._transfers.book(route, size, self.now, free)
        self._arrivals_of[copy] = end
        if self.contention == "fifo":
            self._starts.append(start)
        self._asking[:] = copy, self._asking[1] or copy < self._asking[0]

    def _request(self, tensor: int, space: int, size: float) -> None:
        copy = tensor * self._spaces + space
        if copy not in self._arrivals_of:
            self._book(copy, self._home[tensor], space, size)
            if not self._routed:
                self._before.clear()

    def _take_back(self, task: int) -> None:
        """Unmake the requests of this instant that nobody but ``task``, now withdrawn, needs."""
        asked = self._asked()
        kept = [copy for copy in asked if self._is_wanted(*divmod(copy, self._spaces), task)]
        if len(kept) < len(asked):
            self._book_copies(kept)

    def _asked(self) -> list[int]:
        """The copies asked for at this instant, in that order."""
        arrivals = self._arrivals_of
        return list(islice(reversed(arrivals), len(arrivals) - self._final))[::-1]

    def _book_copies(self, copies: list[int]) -> None:
        """Book these in place of all requests of this instant."""
        free, before = self._channel_free, {}
        for copy in reversed(self._asked()):
            tensor, space = divmod(copy, self._spaces)
            before[copy] = self._arrivals_of.pop(copy)
            channels = self._route(self._home[tensor], space).channels
            start = self._starts.pop() if self._starts else self.now
            if self._before:
                for channel, moment in zip(channels, self._before.pop(), strict=True):
                    free[channel] = moment
            else:  # a channel that was free before now is as good as one that is free from now on
                free[channels[0]] = start
        self._asking[:] = -1, False
        for copy in copies:
            tensor, space = divmod(copy, self._spaces)
            job = self._job_of_tensor(tensor)
            size = self._job_index[job].bytes[tensor - self._first_tensor[job]]
            self._request(tensor, space, size)
        if any(self._arrivals_of.get(copy) != end for copy, end in before.items()):
            self._booked_anew()

    def _booked_anew(self) -> None:
        """What was asked for at this instant arrives at other times than was said."""
        stale, device_of = self._stale, self._device
        for task in self._placed_now:
            self._data_at[task] = -1.0
            if device_of[task] >= 0:
                stale[device_of[task]] = True
        for device in self._called_for:
            stale[device] = True

    def _make_send(self) -> Callable[[], None]:
        asking, arrivals, before = self._asking, self._arrivals_of, self._before
        sent_by, sent_at, delivers = self._sent_by, self._sent_at, self._delivers

        def send() -> None:
            """Make the requests of this instant final."""
            if len(arrivals) == self._final:
                return
            if asking[1]:
                self._book_copies(sorted(self._asked()))
            asking[:] = -1, False
            if delivers:
                self._note_deliveries(self._asked())
            self._final = len(arrivals)
            sent_by.append(self._final)
            sent_at.append(self.now)
            if before:
                before.clear()

        return send

    def _note_deliveries(self, copies: Sequence[int]) -> None:
        """These copies are final: some are results that are delivered."""
        for copy in copies:
            tensor, space = divmod(copy, self._spaces)
            end = self._arrivals_of[copy]
            job = self._job_of_tensor(tensor)
            result = tensor - self._first_tensor[job] in self._job_index[job].outputs
            if result and self._destination[job] == space and end > self._done_at[job]:
                self._done_at[job] = end

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

    def _check_finished(self, scheduler: Scheduler) -> None:
        counts = [len(index.graph) for index in self._job_index]
        task = np.array(self._ended, dtype=np.int64)
        job = np.repeat(np.arange(len(counts)), counts)[task]
        self._finish_array = finish = np.array(self._finish_time)[task]
        done = np.array(self._done_at)
        np.maximum.at(done, job, finish)
        self._done_at = done.tolist()
        self._left = (counts - np.bincount(job, minlength=len(counts))).tolist()
        super()._check_finished(scheduler)

    def _execution_table(self) -> Table:
        return table_of_ends(self, self._ended, self._finish_array)

    def _transfer_table(self) -> Table:
        moves = len(self._arrivals_of)
        copy = np.fromiter(self._arrivals_of, np.int64, moves)
        end = np.fromiter(self._arrivals_of.values(), np.float64, moves)
        tensor, space = np.divmod(copy, self._spaces)
        home = np.array(self._home, dtype=np.int64)[tensor]
        sent_by = np.array(self._sent_by, dtype=np.int64)
        turn = np.repeat(np.arange(len(sent_by)), np.diff(sent_by, prepend=0))
        requested = np.array(self._sent_at)[turn]
        start = np.array(self._starts) if self.contention == "fifo" else requested
        order = in_turn(turn, copy)
        columns = (tensor, home, space, requested, start, end)
        return rows_of_moves(
            [column[order] for column in columns],
            self._routes,
            self._job_index,
            self._first_tensor,
        )


def table_of_ends(
    run: Simulation, ended: Sequence[int], ends: np.ndarray | Sequence[float]
) -> Table:
    """The executions of a run, of which these tasks ended then, in this order."""
    task = np.array(ended, dtype=np.int64)
    counts = [len(index.graph) for index in run._job_index]
    job = np.repeat(np.arange(len(counts)), counts)[task]
    return execution_table(
        task,
        job,
        task - np.array(run._first_task, dtype=np.int64)[job],
        np.array(run._device)[task],
        np.array(run._slot)[task] if max(run._slots) > 1 else np.zeros(len(task)),
        np.array(run._ready_at)[task],
        np.array(run._placed_at)[task],
        np.array(run._start_time)[task],
        ends,
    )


def in_turn(turn: np.ndarray, copy: np.ndarray) -> np.ndarray | slice:
    """The order of moves by ``turn``, in which they stand already, and then by ``copy``."""
    if ((copy[1:] < copy[:-1]) & (turn[1:] == turn[:-1])).any():
        return np.lexsort((copy, turn))
    return slice(None)


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
    sizes = [index.graph.tensor_bytes for index in indices]
    if len(indices) > 1:
        job = np.searchsorted(first_tensor, tensor, side="right") - 1
        size = np.concatenate(sizes)[tensor]
    else:
        job, size = np.zeros(len(tensor), dtype=np.int64), sizes[0][tensor]
    pair = home * len(routes) + space
    pairs = np.flatnonzero(np.bincount(pair))
    number = np.zeros(pairs.max(initial=-1) + 1, dtype=np.int32)
    number[pairs] = np.arange(len(pairs))
    pair = number[pair]
    used = [routes[both // len(routes)][both % len(routes)] for both in pairs.tolist()]
    channels = [() if route is None else route.channels for route in used]
    links = np.array([len(c) for c in channels], dtype=np.int64)
    first = np.cumsum(links) - links
    channel = np.array([c for cs in channels for c in cs], dtype=np.int32)
    if (links == 1).all():
        link = channel[pair]
        return transfer_table(tensor, job, home, space, link, requested, start, end, size)
    hops = links[pair]
    row = np.repeat(np.arange(len(tensor)), hops)
    hop = np.arange(len(row)) - np.repeat(np.cumsum(hops) - hops, hops)
    link = channel[first[pair[row]] + hop]
    moved = (column[row] for column in (tensor, job, home, space))
    return transfer_table(*moved, link, requested[row], start[row], end[row], size[row])
