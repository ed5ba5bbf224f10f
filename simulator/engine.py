"""The simulator: the scheduling context on SimPy.

The event loop applies all events of one instant, lets the scheduler decide once, books the transfers
that placements and finishes have asked for, and starts what can start. The order within an instant is
the design's: task finish, arrival, decision, transfer requests, start; then id. A task costs one
event, its finish: the end of an uncontended or fifo transfer is an addition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import simpy

from simulator.clock import Clock
from simulator.cluster import Cluster, Route
from simulator.context import EVERYWHERE, SchedulingContext
from simulator.costs import CostTable, NoiseModel
from simulator.errors import InvalidInput
from simulator.execution import ConstantRate, ExecutionModel
from simulator.graph import DataflowGraph
from simulator.links import transfer_model
from simulator.scheduler import Scheduler
from simulator.trace import Table, Trace, assemble, execution_table, transfer_table
from simulator.workload import Job, Workload


class Simulation(SchedulingContext):
    """One run. Use :func:`simulate`."""

    world = "simulated"

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        costs: CostTable,
        scheduler: Scheduler,
        actual: CostTable | NoiseModel | None,
        movement: str,
        contention: str,
        seed: int,
    ) -> None:
        super().__init__(cluster, costs, movement, contention)
        self._check_run(workload, scheduler)
        if isinstance(actual, CostTable):
            actual.check_covers(cluster)
            for graph in workload.graphs:
                _check_possible(graph, cluster, costs[graph].seconds, actual[graph].seconds)
        self._workload = workload
        self._scheduler = scheduler
        self._actual_source = actual
        self._rng = np.random.default_rng(seed)
        self._clock = Clock()
        self._transfers = transfer_model(contention)
        self._models: list[ExecutionModel] = [
            ConstantRate(device.launch_overhead) for device in cluster.devices
        ]
        self._actual: list[list[list[float]]] = []  # [job][operator][device]
        self._shared_actual: dict[int, list[list[float]]] = {}
        # Asked for at this instant: tensor, destination, source, route, bytes, start, end; and
        # whether they stand in that order.
        self._requests: list[tuple[int, int, int, Route, float, float, float]] = []
        self._in_order = True
        self._routes: list[list[Route | None]] = [
            [None] * len(cluster.spaces) for _ in cluster.spaces
        ]
        self._delivers = any(job.destination is not None for job in workload)
        # What happened, for the trace: tasks and their finishes in order; transfers as six numbers
        # each (tensor, source, destination, requested, start, end).
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._moves: list[float] = []
        self._due: list[int] = []  # tasks that finish at this instant
        self._momentary: list[int] = []  # that start and finish at this instant, not started yet
        # By task; inf until it has been taken from its queue.
        self._start_time: list[float] = []
        self._finish_time: list[float] = []
        self._slot: list[int] = []
        devices = len(cluster.devices)
        self._free_slots: list[list[int]] = [list(range(n)) for n in self._slots]
        # Taken from their queue while their data is on its way, in the order of their starts.
        self._waiting: list[list[int]] = [[] for _ in range(devices)]
        self._touched: set[int] = set()
        self._next_job = 0
        self._admit_now = 0
        self._woken = False
        self._settled = -1.0  # the instant whose starts have happened
        self._deciding_seconds = 0.0
        self._decisions = 0

    # -- the loop -------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Run to the end.

        Raises:
            SchedulingError: work is left that can never run; names it.
        """
        clock = self._clock
        queue = clock._queue
        self._scheduler.begin(self)
        self._schedule_arrival()
        while queue:
            clock.step()
            now = clock._now
            if not queue or queue[0][0] > now:
                self.now = now
                self._settle()
        self._check_finished(self._scheduler)
        return self._trace()

    def _settle(self) -> None:
        """One round of an instant; tasks that take no time make another one."""
        # Nothing happens if finishes were foreseen here that have moved since.
        if self._due or self._admit_now or self._woken:
            self._round()
        self._settled = self.now
        for task in self._momentary:
            self._clock.at(self.now, self._on_finish, task)
        self._momentary.clear()

    def _round(self) -> None:
        """Apply everything that happened, decide, and start what can start."""
        self._woken = False
        due = self._due
        if due:
            due.sort()
            for task in due:
                self._finish(task)
            self.finished += due
            self._ended += due
            self._ends += [self.now] * len(due)
            due.clear()
        while self._admit_now:
            self._admit_now -= 1
            self._arrive()
        self.ready.sort()
        began = time.perf_counter()
        self._scheduler.decide(self)
        self._deciding_seconds += time.perf_counter() - began
        self._decisions += 1
        self._clear_instant()
        if self._requests:
            self._book_requests()
        if self._touched:
            touched = sorted(self._touched)
            self._touched.clear()
            for device in touched:
                self._begin_tasks(device)

    # -- arrivals -------------------------------------------------------------------------------

    def _schedule_arrival(self) -> None:
        if self._next_job < len(self._workload):
            job = self._workload.jobs[self._next_job]
            self._clock.at(job.arrival, self._on_arrival, None)

    def _on_arrival(self, _: simpy.Event) -> None:
        self._admit_now += 1
        self._next_job += 1
        self._schedule_arrival()

    def _arrive(self) -> None:
        job = self._workload.jobs[len(self.jobs)]
        self._admit(job)
        tasks = len(job.graph)
        self._start_time += [math.inf] * tasks
        self._finish_time += [math.inf] * tasks
        self._slot += [0] * tasks
        self._actual.append(self._realise(job))

    def _realise(self, job: Job) -> list[list[float]]:
        """Actual seconds [operator][device] of a job."""
        source = self._actual_source
        if source is None:
            return self._index[job.graph].kernel_seconds
        if isinstance(source, CostTable):
            key = id(job.graph)
            if key not in self._shared_actual:
                self._shared_actual[key] = source[job.graph].seconds.tolist()
            return self._shared_actual[key]
        return source.realise(job.graph, self._believed[job.graph], self._rng).tolist()

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
            finish = self._models[device].begin(task, seconds, start)
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

    def _began(self, task: int) -> float:
        return self._start_time[task]

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

    def _wake(self, moment: float) -> None:
        self._clock.at(moment, self._on_wake, None)

    def _on_wake(self, _: simpy.Event) -> None:
        self._woken = True

    # -- data -----------------------------------------------------------------------------------

    def _request(self, tensor: int, space: int, size: float) -> None:
        """Ask for a transfer now; a tensor crosses to a space once.

        Within a decision later questions see it booked in the order of asking; when the instant
        ends, the requests of the whole instant are booked in the order of tensor id.
        """
        key = (tensor, space)
        if key in self._copies:
            return
        requests = self._requests
        if not requests:
            self._free_before = self._channel_free.copy()
        elif tensor <= requests[-1][0] and key < requests[-1][:2]:
            self._in_order = False
        home = self._home[tensor]
        route = self._routes[home][space]
        if route is None:
            route = self._routes[home][space] = self.cluster.route(home, space)
        start, end = self._transfers.book(route, size, self.now, self._channel_free)
        requests.append((tensor, space, home, route, size, start, end))
        self._copies[key] = end

    def _take_back_requests(self, task: int) -> None:
        """Unmake the requests of this instant that nobody but ``task``, now withdrawn, needs."""
        requests = self._requests
        kept = [request for request in requests if self._is_wanted(*request[:2], task)]
        if len(kept) < len(requests):
            self._book_again(kept)

    def _book_again(self, requests: list[tuple[int, int, int, Route, float, float, float]]) -> None:
        """Book these in place of all requests of this instant."""
        before = {request[:2]: self._copies.pop(request[:2]) for request in self._requests}
        self._channel_free = self._free_before
        self._requests = []
        self._in_order = True
        for tensor, space, _, _, size, _, _ in requests:
            self._request(tensor, space, size)
        if any(self._copies.get(key) != end for key, end in before.items()):
            self._stale = [True] * len(self._stale)

    def _is_wanted(self, tensor: int, space: int, without: int) -> bool:
        """Whether a placed task other than ``without``, or its job, wants a tensor in a space."""
        job = self._job_of_tensor(tensor)
        index = self._job_index[job]
        t = tensor - self._first_tensor[job]
        if self._destination[job] == space and t in index.outputs:
            return True
        for reader in index.consumers[t]:
            task = self._first_task[job] + reader
            device = self._device[task]
            here = task != without and device >= 0 and self._space_of[device] == space
            if here and (self._push or not self._pending[task]):
                return True
        return False

    def _book_requests(self) -> None:
        """Make the requests of this instant final."""
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

    def _trace(self) -> Trace:
        jobs: Sequence[Job] = self._workload.jobs
        task = np.array(self._ended, dtype=np.int64)
        job = np.array(self._job, dtype=np.int64)[task]
        executions = execution_table(
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
        return assemble(
            executions,
            self._transfer_table(),
            self.cluster,
            jobs,
            self._first_tensor,
            self._done_at,
            {
                "world": self.world,
                "scheduler": self._scheduler.name,
                "movement": self.movement,
                "contention": self.contention,
            },
            self._decisions,
            self._deciding_seconds,
        )

    def _transfer_table(self) -> Table:
        """One row for each link of every transfer's route."""
        moves = np.array(self._moves, dtype=np.float64).reshape(-1, 6)
        tensor, home, space = moves[:, :3].astype(np.int64).T
        job = np.searchsorted(self._first_tensor, tensor, side="right") - 1
        size = np.concatenate([index.graph.tensor_bytes for index in self._job_index])[tensor]
        # Routes by number: the spaces' pair.
        pair = home * len(self._routes) + space
        routes = [route for row in self._routes for route in row]
        channels = [() if route is None else route.channels for route in routes]
        links = np.array([len(c) for c in channels], dtype=np.int64)
        first = np.cumsum(links) - links
        row = np.repeat(np.arange(len(moves)), links[pair])
        hop = np.arange(len(row)) - np.repeat(np.cumsum(links[pair]) - links[pair], links[pair])
        channel = np.array([c for cs in channels for c in cs], dtype=np.int64)
        requested, start, end = moves[row, 3:].T
        return transfer_table(
            tensor[row],
            job[row],
            home[row],
            space[row],
            channel[first[pair[row]] + hop],
            requested,
            start,
            end,
            size[row],
        )


def _check_possible(
    graph: DataflowGraph, cluster: Cluster, believed: np.ndarray, actual: np.ndarray
) -> None:
    """Refuse a belief that a device can run what it cannot."""
    wrong = np.argwhere(np.isinf(actual) & np.isfinite(believed))
    if len(wrong):
        operator, device = wrong[0].tolist()
        raise InvalidInput(
            f"Operator '{graph.operators[operator].name}' of '{graph.name}' is believed to take "
            f"{believed[operator, device]:g} s on '{cluster.devices[device].name}', which cannot "
            "run it according to the actual times"
        )


def simulate(
    workload: Workload | DataflowGraph,
    cluster: Cluster,
    costs: CostTable,
    scheduler: Scheduler,
    *,
    actual: CostTable | NoiseModel | None = None,
    movement: str = "push",
    contention: str = "none",
    seed: int = 0,
    explain: Callable[[str], None] | None = None,
) -> Trace:
    """Simulate a workload under a scheduler.

    Args:
        workload: jobs, or a graph for one job of it at time 0 (from and to the cluster's host
            memory, where it has one).
        cluster: devices, memory spaces and links.
        costs: seconds of every operator on every device, as the scheduler believes them.
        scheduler: a fresh scheduler (:func:`simulator.schedulers.create`).
        actual: what happens; None: what is believed. A noise model is drawn once a job.
        movement: ``push`` or ``pull``.
        contention: ``none`` or ``fifo``.
        seed: of the noise.
        explain: called with one line for each decision of a scheduler that explains itself.

    Returns:
        The trace; ``trace.makespan`` in seconds.

    Raises:
        InvalidInput: the parts do not fit together.
        SchedulingError: the scheduler broke its protocol or left tasks that can never run.
    """
    if isinstance(workload, DataflowGraph):
        host = cluster.host
        workload = Workload([Job(workload, batch=workload.batch, origin=host, destination=host)])
    simulation = Simulation(workload, cluster, costs, scheduler, actual, movement, contention, seed)
    simulation.explain = explain
    return simulation.run()


__all__ = ["Simulation", "simulate"]
