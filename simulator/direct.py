"""Runs in which every end is known as soon as it is asked for: one event a task.

Where devices run at constant rates, memory is plentiful and transfers are ``none`` or ``fifo``, the
end of a transfer is an addition, and a task whose data is on its way can be taken from its queue at
once, with a start in the future. The trace is that of :class:`simulator.simulation.Simulation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import simpy

from simulator.cluster import Route
from simulator.context import EVERYWHERE, GraphIndex
from simulator.simulation import Simulation
from simulator.trace import Table, execution_table, transfer_table


class DirectSimulation(Simulation):
    """See the module docstring."""

    def _prepare(self) -> None:
        self._overheads = [device.launch_overhead for device in self.cluster.devices]
        self._delivers = any(job.destination is not None for job in self._workload)
        # What happened, for the trace: tasks and their finishes in order; transfers as six numbers
        # each (tensor, source, destination, requested, start, end).
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._moves: list[float] = []
        self._momentary: list[int] = []  # that start and finish at this instant, not started yet
        # Taken from their queue while their data is on its way, in the order of their starts.
        self._waiting: list[list[int]] = [[] for _ in self.cluster.devices]
        self._settled = -1.0  # the instant whose starts have happened

    def _settle(self) -> None:
        self.now = self._clock._now
        # Nothing happens if finishes were foreseen here that have moved since.
        if self._due or self._admit_now or self._woken:
            if self._apply():
                self._decide()
            self._send()
            self._begin_touched()
        self._settled = self.now
        for task in self._momentary:
            self._clock.at(self.now, self._on_finish, task)
        self._momentary.clear()

    def _deliver(self) -> None:
        """Nothing: arrivals are no events."""

    # -- tasks ----------------------------------------------------------------------------------

    def _begin_tasks(self, device: int) -> None:
        """Take ready heads of the queue into free slots.

        A head whose data is on its way is taken, too, and starts when it is there; those behind it
        start no earlier. Nothing can go in front of it but by :meth:`_return_waiting`.
        """
        slots = self._free_slots[device]
        waiting = self._waiting[device]
        while slots:
            task = self._head(device)
            if task < 0 or self._pending[task]:
                return
            self._start(device)
            start = self._data_arrival(task, device)
            if waiting:
                start = max(start, self._start_time[waiting[-1]])
            job = self._job[task]
            seconds = self._actual[job][task - self._first_task[job]][device]
            finish = start + (self._overheads[device] + seconds)
            self._slot[task] = heappop(slots)
            self._start_time[task] = start
            self._finish_time[task] = finish
            if start > self.now:
                waiting.append(task)
            self._clock.at(finish, self._on_finish, task)

    def _on_finish(self, event: simpy.Event) -> None:
        task = event._value
        now = self._clock._now
        # Not if the task was taken back, nor twice if it was then begun anew to the same end.
        if self._finish_time[task] != now:
            return
        if self._start_time[task] == now != self._settled:
            self._momentary.append(task)
            return
        self._finish_time[task] = math.inf
        self._due.append(task)

    def _finish(self, task: int) -> None:
        device = self._device[task]
        if self._waiting[device]:
            self._mark_started(device)
        self._started[task] = True
        heappush(self._free_slots[device], self._slot[task])
        self._ended.append(task)
        self._ends.append(self.now)
        touched = self._touched
        touched.add(device)
        for successor in self._complete(task, device):
            place = self._device[successor]
            if place >= 0:
                touched.add(place)
                if not self._push:
                    self._request_inputs(successor, place)
        job = self._job[task]
        self._request_outputs(task, device)
        if self.now > self._done_at[job]:
            self._done_at[job] = self.now

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

    def _accept(self, task: int, device: int) -> None:
        self._touched.add(device)
        if self._waiting[device]:
            self._mark_started(device)
            waiting = self._waiting[device]
            if waiting and self._rank[task] < self._rank[waiting[-1]]:
                self._return_waiting(device)
        if self._push or not self._pending[task]:
            self._request_inputs(task, device)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._mark_started(device)
        if task in self._waiting[device]:
            self._return_waiting(device)
        if self._requests:
            self._take_back_requests(task)

    # -- data -----------------------------------------------------------------------------------

    def _send(self) -> None:
        """Make the requests of this instant final."""
        if not self._requests:
            return
        if not self._in_order:
            self._book_again(sorted(self._requests))
        now, moves = self.now, self._moves
        for tensor, space, home, _, _, start, end in self._requests:
            moves += (tensor, home, space, now, start, end)
        if self._delivers:
            for tensor, space, *_, end in self._requests:
                job = self._job_of_tensor(tensor)
                result = tensor - self._first_tensor[job] in self._job_index[job].outputs
                if result and self._destination[job] == space and end > self._done_at[job]:
                    self._done_at[job] = end
        self._requests.clear()

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`simulator.context.SchedulingContext`."""
        home = self._home[tensor]
        if home in (space, EVERYWHERE):
            return self._written[tensor]
        return self._copies.get((tensor, space))

    def _data_arrival(self, task: int, device: int) -> float:
        """When the last input of a ready, placed task is in its device's space; at least now."""
        job = self._job[task]
        index = self._job_index[job]
        first = self._first_tensor[job]
        space = self._space_of[device]
        latest = self.now
        for t in index.reads[task - self._first_task[job]]:
            if self._home[first + t] not in (space, EVERYWHERE):
                arrival = self._copies[first + t, space]
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
        moves = np.array(self._moves, dtype=np.float64).reshape(-1, 6).T
        numbers = moves[:3].astype(np.int64)
        return rows_of_moves(
            (*numbers, *moves[3:]), self._routes, self._job_index, self._first_tensor
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
