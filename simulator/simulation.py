"""The simulator: the scheduling context on SimPy.

The event loop applies all events of one instant, lets the scheduler decide once, sends what placements
and finishes have asked for, and starts what can start. The order within an instant is the design's:
task finish, transfer end, device or link change, arrival, decision, transfer requests, start; then id.

:class:`Simulation` is the general form: every transfer has an event for its end, a task starts at the
instant at which its device has a slot, its data and its room, and devices, links and memory may change
while the run goes on. Runs without any of that take the shorter way of :mod:`simulator.direct`, which
gives the same trace.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import simpy

from simulator.batching import SERVING, BatchingContext
from simulator.clock import Clock
from simulator.cluster import Cluster, Route
from simulator.context import EVERYWHERE, RequestedTransfer
from simulator.costs import CostTable, GraphCosts, NoiseModel, rows_of
from simulator.decision_cost import DecisionCost
from simulator.errors import InvalidInput, SchedulingError
from simulator.far_inputs import FarInputs, reads_far
from simulator.faults import Faults
from simulator.flows import Flow
from simulator.graph import DataflowGraph
from simulator.launched_flows import flows_of
from simulator.launchers import launchers_of
from simulator.links import transfer_model
from simulator.memory import Memory, abilities, make_memory
from simulator.packing import Message, is_weight, message
from simulator.rates import execution_models
from simulator.scheduler import Scheduler
from simulator.submission import Asynchronous, Feeder, feeder
from simulator.trace import Table, Trace, assemble, execution_table, transfer_table
from simulator.unlimited_memory import UnlimitedMemory
from simulator.weight_cache import WeightCaches, caches_weights
from simulator.workload import Job, Workload


@dataclass(frozen=True)
class Setting:
    """All that decides a run; see :func:`simulator.engine.simulate`."""

    workload: Workload
    cluster: Cluster
    costs: CostTable
    scheduler: Scheduler
    actual: CostTable | NoiseModel | None = None
    movement: str = "push"
    contention: str = "none"
    seed: int = 0
    memory: str = "unlimited"
    weights: str = "resident"
    horizon: float = math.inf
    faults: Faults = field(default_factory=Faults)
    decision_cost: DecisionCost | None = None
    believed: Cluster | None = None


FINISHED, LOST = "finished", "lost"
"""What became of an execution."""
Request = tuple[int, int, int, Route, float, float, float]
"""Tensor, destination, source, route, bytes, believed start and end; the latter two are those of its
message if it is packed."""
Execution = tuple[int, int, int, int, float, float, float, float]
"""Task, job, device, slot, ready, placed, start, finish."""


class Simulation(BatchingContext):
    """One run. Use :func:`simulator.engine.simulate`."""

    world = "simulated"
    _packs: ClassVar[bool] = True
    """Whether this way of simulating offers packed transfers."""
    _serves: ClassVar[bool] = True
    """Whether it offers batches, inputs sent ahead and refusals."""
    _ways_out: ClassVar[Mapping[str, str]] = {
        "evict": "load weights on demand (weights=on_demand)",
        "batch": "keep weights resident (weights=resident), and leave devices that fail out",
    }

    def __init__(self, setting: Setting) -> None:
        cluster, costs = setting.cluster, setting.costs
        self._setting = setting
        believed = cluster if setting.believed is None else setting.believed
        cluster.check_same_parts(believed)
        super().__init__(believed, costs, setting.movement, setting.contention)
        self.real = cluster
        self.offers = abilities(setting.weights) | ({"pack"} if self._packs else set())
        resident = setting.weights == "resident"
        if self._serves and resident and not setting.faults.fails_devices:
            self.offers |= SERVING
        self._check_run(setting.workload, setting.scheduler)
        if isinstance(setting.actual, CostTable):
            setting.actual.check_covers(cluster)
            for graph in setting.workload.graphs:
                _check_possible(graph, cluster, costs[graph], setting.actual[graph])
        self._workload = setting.workload
        self._scheduler = setting.scheduler
        self._actual_source = setting.actual
        self._rng = np.random.default_rng(setting.seed)
        self._clock = Clock()
        self._actual: list[list[Sequence[float]]] = []  # [job][operator][device]
        # What is believed of transfers: booked as if nothing slowed them.
        self._transfers = transfer_model(setting.contention)
        self._requests: list[Request] = []  # asked for at this instant
        self._in_order = True  # whether they stand in the order of (tensor, destination)
        self._packed: dict[tuple[int, int], Message] = {}  # by tensor and destination, of these
        self._routes: list[list[Route | None]] = [
            [None] * len(cluster.spaces) for _ in cluster.spaces
        ]
        self._due: list[int] = []  # tasks that finish at this instant
        # By task; inf until it is known.
        self._start_time: MutableSequence[float] = []
        self._finish_time: MutableSequence[float] = []
        self._slot: MutableSequence[int] = []
        self._free_slots: list[list[int]] = [list(range(n)) for n in self._slots]
        self._touched: set[int] = set()
        self._next_job = 0
        self._joining: deque[Job] = deque()  # jobs of this instant, where jobs follow on others
        self._followed: set[int] = set()  # jobs that are done, there
        self._admit_now = 0
        self._woken = False
        self._deciding_seconds = 0.0
        self._decisions = 0
        self._under_way: dict[tuple[int, int], Flow] = {}  # by tensor and destination
        self._attempts: dict[int, int] = {}  # executions that are over, of tasks to run again
        self._failed_jobs: dict[int, tuple[float, str]] = {}  # when and why
        self._awaiting: set[int] = (
            set()
        )  # jobs of which it will be told that their inputs have room
        self._serving = bool(SERVING & self.offers & setting.scheduler.needs)
        self._memory: Memory = UnlimitedMemory()
        self._prepare()

    def _prepare(self) -> None:
        """Make what carries out transfers and executions, and what counts memory."""
        cluster = self.real
        launchers = launchers_of(cluster)
        self._models, self._shared_rates = execution_models(
            cluster, self._bytes_of, self.finish_at, launchers, self._slowed()
        )
        self._feeders: list[Feeder] = [feeder(self, d) for d in range(len(cluster.devices))]
        self._caches = WeightCaches(cluster) if caches_weights(cluster) else None
        self._far_inputs = FarInputs(cluster) if reads_far(cluster) else None
        self._submits_ahead = any(device.completion_latency for device in cluster.devices)
        for device, fed in enumerate(self._feeders):
            if isinstance(fed, Asynchronous):
                self._projections[device] = fed.window.project
        self._links = flows_of(cluster, self.contention, self._clock, launchers, self._on_delivered)
        setting = self._setting
        self._memory = make_memory(
            self, self._links, setting.memory, setting.weights, setting.workload
        )
        self._delivered: list[Flow] = []
        self._executions: list[Execution] = []
        self._sent: list[Flow] = []  # in order of request
        self._arrivals: set[Flow] = set()  # those that have ended
        self._outcomes: list[tuple[int, str]] = []  # attempt and status of each

    # -- the loop -------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Run to the end, or to the horizon.

        Raises:
            SchedulingError: work is left that can never run; names it.
        """
        self._scheduler.begin(self)
        self._workload.begin()
        self._schedule_arrival()
        self._run_to_horizon()
        while self._is_at_rest() and self._memory.relax():
            self._run_to_horizon()
        if self._is_at_rest():
            self._check_rest()
        return self._trace()

    def _is_at_rest(self) -> bool:
        """Whether nothing is left to happen."""
        return not self._clock._queue

    def _check_rest(self) -> None:
        """Nothing is left to happen: refuse that anything is left to do."""
        self._memory.check()
        self._check_finished(self._scheduler)

    def _run_to_horizon(self) -> None:
        """Run until the horizon, or until nothing is left to happen."""
        if self._setting.horizon == math.inf:
            self._run_events()
            return
        # The first instant that is no longer part of the run.
        self._clock.at(math.nextafter(self._setting.horizon, math.inf), _stop, None)
        with contextlib.suppress(_HorizonReached):
            self._run_events()
        self._clock._now = self.now

    def _run_events(self) -> None:
        self._clock.run_instants(self._settle)

    def _settle(self) -> None:
        """One round of an instant: apply what happened, decide, send and start what can be.

        Tasks that take no time end in another round of the same instant.
        """
        self.now = self._clock._now
        if self._apply():
            self._decide()
        self._memory.settle()
        self._send()
        self._links.settle()
        self._begin_touched()
        for shared in self._shared_rates.values():
            shared.settle(self.now)

    def _apply(self) -> bool:
        """Apply everything that happened; returns whether the scheduler must be asked."""
        news = self._woken or bool(self._due) or bool(self._admit_now)
        if self._scheduler.static:
            news = self._woken or bool(self._admit_now)
        self._woken = False
        if self._due:
            due = sorted(self._due)
            self._due.clear()
            for task in due:
                self._finish(task)
            self.finished += due
        self._deliver()
        news |= bool(self.delivered)
        news |= self._change()
        while self._admit_now:
            self._admit_now -= 1
            self._arrive()
        if self._serving:  # inputs that find room at once are there as well
            self._memory.settle()
            news |= bool(self.delivered)
        return news

    def _change(self) -> bool:
        """Apply what has changed about devices and links; returns whether anything has."""
        return False

    def _decide(self) -> None:
        self.ready.sort()
        began = time.perf_counter()
        self._scheduler.decide(self)
        self._deciding_seconds += time.perf_counter() - began
        self._decisions += 1
        self._clear_instant()

    def _begin_touched(self) -> None:
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
        if self._workload.reacts:
            self._joining.append(self._workload.jobs[self._next_job])
        self._next_job += 1
        self._schedule_arrival()

    def _on_follower(self, event: simpy.Event) -> None:
        self._admit_now += 1
        self._joining.append(event._value)

    def _follow(self, job: int) -> None:
        """A job may be done: if its outputs are where they must be, another may follow on it."""
        if self._left[job] or job in self._followed:
            return
        destination, first = self._destination[job], self._first_tensor[job]
        for t in self._job_index[job].outputs if destination != EVERYWHERE else ():
            at = self.copy_time(first + t, destination)
            if at is None or at > self.now or (first + t, destination) in self._under_way:
                return
        self._send_next(job)

    def _send_next(self, job: int) -> None:
        self._followed.add(job)
        follower = self._workload.follow(self.jobs[job], self.now)
        if follower is not None:
            self._clock.at(follower.arrival, self._on_follower, follower)

    def reject(self, job: int, reason: str) -> None:
        """See :class:`BatchingContext`."""
        super().reject(job, reason)
        self._awaiting.discard(job)
        self._memory.rejected(job)
        if self._requests:
            self._take_back_requests(-1)
        if self._workload.reacts:
            self._send_next(job)

    def _arrive(self) -> None:
        reacts = self._workload.reacts
        job = self._joining.popleft() if reacts else self._workload.jobs[len(self.jobs)]
        self._memory.arrived(self._admit(job))
        self._note_actual(job)

    def _may_serve(self) -> bool:
        return self._serving

    def _note_batch(self, leader: int, graph: DataflowGraph) -> None:
        self._actual[leader] = self._actual_of(graph, self.now)
        self._memory.batched(leader)

    def awaits_room(self, job: int) -> bool:
        """See :class:`BatchingContext`."""
        if not self._memory.is_outside(job):
            return False
        self._awaiting.add(job)
        return True

    def _found_room(self, job: int) -> None:
        """A job's inputs lie where they come from."""
        if job in self._awaiting:
            self._awaiting.discard(job)
            self.delivered.append(job)

    def _add_tasks(self, count: int) -> None:
        super()._add_tasks(count)
        self._start_time += [math.inf] * count
        self._finish_time += [math.inf] * count
        self._slot += [0] * count

    def _realise(self, graph: DataflowGraph, moment: float) -> np.ndarray:
        """Actual seconds [operators, devices] of an execution of a graph that was known from then on."""
        source = self._actual_source
        if source is None:
            return self._believed[graph].seconds
        if isinstance(source, CostTable):
            return source[graph].seconds
        return source.realise(graph, self._believed[graph], self._rng, moment)

    def _actual_of(self, graph: DataflowGraph, moment: float) -> list[Sequence[float]]:
        """The same row by row; executions with one table share them."""
        source = self._actual_source
        if source is None:
            return self._believed[graph].lists
        if isinstance(source, CostTable):
            return source[graph].lists
        return rows_of(self._realise(graph, moment))

    def _note_actual(self, job: Job) -> None:
        """Keep the actual seconds of the job that arrives."""
        self._actual.append(self._actual_of(job.graph, job.arrival))

    # -- tasks ----------------------------------------------------------------------------------

    def _begin_tasks(self, device: int) -> None:
        """Let a device begin what it can."""
        self._feeders[device].feed()

    def _admits(self, task: int, device: int) -> bool:
        """Whether the head of a queue, which must be taken then, has its data and its room."""
        return self._data_is_here(task, device) and self._memory.admit(task, device)

    def _take(self, device: int) -> None:
        """Take the head of a queue out of it: it can no longer be withdrawn."""
        self._started[self._start(device)] = True

    def _execute(self, task: int, device: int, slot: int) -> None:
        """Let a task that was taken begin now."""
        self._slot[task] = slot
        self._start_time[task] = self.now
        job = self._job[task]
        operator = task - self._first_task[job]
        seconds = self._actual[job][operator][device]
        if self._caches is not None:
            index = self._job_index[job]
            seconds *= self._caches.execute(index.costs, index.graph, operator, device)
        if self._far_inputs is not None:
            graph = self._job_index[job].graph
            seconds += self._far_inputs.execute(graph, job, operator, device)
        self._models[device].begin(task, seconds, self.now)

    def finish_at(self, task: int, moment: float) -> None:
        """Let a running task end then; an earlier word about it no longer counts."""
        self._finish_time[task] = moment
        self._clock.at(moment, self._on_finish, task)

    def _on_finish(self, event: simpy.Event) -> None:
        task = event._value
        # Not if it was re-timed since, nor twice if that led back to the same end.
        if self._finish_time[task] == self._clock._now:
            self._finish_time[task] = math.inf
            device = self._device[task]
            if self._models[device].goes_on(task, self._clock._now):
                return
            self._models[device].end(task, self._clock._now)
            self._feeders[device].ended(task)

    def _finish(self, task: int) -> None:
        device = self._device[task]
        job = self._job[task]
        finish = self._feeders[device].known(task)
        self._touched.add(device)
        self._record(task, device, finish, FINISHED)
        for successor in self._complete(task, device):
            place = self._device[successor]
            if place >= 0:
                self._touched.add(place)
                if not self._push:
                    self._fetch(successor, place)
        for successor in self._successors(task) if self._submits_ahead else ():
            # The others that it waits for may all be submitted to its own device.
            if self._pending[successor] and self._device[successor] >= 0:
                self._touched.add(self._device[successor])
        self._request_outputs(task, device)
        self._memory.finished(task, device)
        self._done_at[job] = self.now
        if self._workload.reacts:
            for member in self._members.get(job, (job,)):
                self._follow(member)

    def _record(self, task: int, device: int, finish: float, status: str) -> None:
        """An execution is over."""
        start = self._start_time[task]
        ready, placed = min(self._ready_at[task], start), self._placed_at[task]
        self._executions.append(
            (task, self._job[task], device, self._slot[task], ready, placed, start, finish)
        )
        self._outcomes.append((self._attempts.get(task, 0), status))

    def _bytes_of(self, task: int) -> float:
        """Bytes that a task reads and writes, weights included."""
        job = self._job[task]
        return self._job_index[job].moved_bytes[task - self._first_task[job]]

    def _slowed(self) -> Collection[int]:
        """Devices whose speed may change while the run goes on."""
        return ()

    def _began(self, task: int) -> float:
        return self._start_time[task]

    # -- placement ------------------------------------------------------------------------------

    def _accept(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._memory.placed(task, device)
        if self._push or not self._pending[task]:
            self._fetch(task, device)

    def _fetch(self, task: int, device: int) -> None:
        """Ask for what a placed task reads and may be brought now."""
        self._request_inputs(task, device)
        self._memory.fetch(task, device)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)
        self._memory.withdrawn(task, device)
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
        ends, the requests of the whole instant are sent in the order of tensor id.
        """
        key = (tensor, space)
        if key in self._copies:
            return
        requests = self._requests
        if not requests:
            self._free_before = list(self._channel_free)
        elif tensor <= requests[-1][0] and key < requests[-1][:2]:
            self._in_order = False
        home = self._home[tensor]
        route = self._routes[home][space] or self._route(home, space)
        start, end = self._transfers.book(route, size, self.now, self._channel_free)
        requests.append((tensor, space, home, route, size, start, end))
        self._copies[key] = end

    def _route(self, source: int, destination: int) -> Route:
        route = self._routes[source][destination]
        if route is None:
            route = self.cluster.route(source, destination)
            self._routes[source][destination] = route
        return route

    def _take_back_requests(self, task: int) -> None:
        """Unmake the requests of this instant that nobody but ``task``, now withdrawn, needs."""
        requests = self._requests
        kept = [
            request
            for request in requests
            if request[:2] in self._packed or self._is_wanted(*request[:2], task)
        ]
        if len(kept) < len(requests):
            self._book_again(kept)

    def _book_again(self, requests: list[Request]) -> None:
        """Book these in place of all requests of this instant."""
        before = {request[:2]: self._copies.pop(request[:2]) for request in self._requests}
        self._channel_free = self._free_before
        self._requests = []
        self._in_order = True
        for tensor, space, _, _, size, _, _ in requests:
            if (tensor, space) in self._packed:
                self._request_message(self._packed[tensor, space])
            else:
                self._request(tensor, space, size)
        if any(self._copies.get(key) != end for key, end in before.items()):
            self._stale = [True] * len(self._stale)

    def requests(self) -> list[RequestedTransfer]:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        return [
            RequestedTransfer(tensor, size, home, space)
            for tensor, space, home, _, size, _, _ in sorted(self._requests)
            if (tensor, space) not in self._packed and not is_weight(self, tensor)
        ]

    def pack(self, transfers: Iterable[tuple[int, int]]) -> None:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        parcel = message(self, transfers)
        keys = {(tensor, parcel.destination) for tensor in parcel.tensors}
        others = [request for request in self._requests if request[:2] not in keys]
        if not self._requests:
            self._free_before = list(self._channel_free)
        self._packed |= dict.fromkeys(keys, parcel)
        self._book_again(others)
        self._request_message(parcel)
        self._stale = [True] * len(self._stale)

    def _check_packs(self) -> None:
        if "pack" not in self.offers & self._scheduler.needs:
            raise SchedulingError(
                f"Scheduler '{self._scheduler.name}' packs transfers without having declared it: "
                'needs = {"pack"}'
            )

    def _request_message(self, parcel: Message) -> None:
        """Ask for a message now unless that was done: a row for each tensor, booked as one."""
        space = parcel.destination
        if (parcel.tensors[0], space) in self._copies:
            return
        if not self._requests:
            self._free_before = list(self._channel_free)
        home = self._home[parcel.tensors[0]]
        route = self._route(home, space)
        start, end = self._transfers.book(route, parcel.bytes, self.now, self._channel_free)
        self._in_order = False  # its rows stand together, at its first tensor
        for tensor in parcel.tensors:
            size = self._tensor_bytes(tensor)
            self._requests.append((tensor, space, home, route, size, start, end))
            self._copies[tensor, space] = end

    def _is_wanted(self, tensor: int, space: int, without: int) -> bool:
        """Whether a placed task other than ``without``, or its job, wants a tensor in a space."""
        if self._memory.wants(tensor, space) or self._is_sent_ahead(tensor, space):
            return True
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

    def _send(self) -> None:
        """Send what was asked for at this instant, in the order of tensor id."""
        if self._requests:
            if not self._in_order:
                self._book_again(sorted(self._requests))
            packed = self._packed
            for tensor, space, home, route, size, _, _ in self._requests:
                parcel = packed.get((tensor, space)) if packed else None
                if parcel is None:
                    flow = Flow(
                        (tensor,), home, space, self._way(route, home, space), size, self.now
                    )
                    self._under_way[tensor, space] = flow
                elif tensor == parcel.tensors[0]:
                    way = self._way(route, home, space)
                    flow = Flow(parcel.tensors, home, space, way, parcel.bytes, self.now)
                    self._under_way |= {(t, space): flow for t in parcel.tensors}
                else:
                    continue
                self._sent.append(flow)
                self._memory.send(flow)
            self._requests.clear()
            if packed:
                packed.clear()
                self._in_order = True
            self._memory.settle()
        while self._delivered:  # what takes no time
            self._deliver()
            self._memory.settle()
        if self.delivered:  # the scheduler is asked in another round of this instant
            self._wake(self.now)

    def _way(self, believed: Route, source: int, destination: int) -> Route:
        """The route that transfers really take."""
        if self.real is self.cluster:
            return believed
        return self.real.route(source, destination)

    def _on_delivered(self, flow: Flow) -> None:
        self._delivered.append(flow)

    def _deliver(self) -> None:
        """Apply the transfers that have ended."""
        for flow in self._delivered:
            space = flow.destination
            self._arrivals.add(flow)
            for tensor in flow.tensors:
                key = (tensor, space)
                del self._under_way[key]
                if self._copies[key] != self.now:
                    self._copies[key] = self.now
                    self._stale = [True] * len(self._stale)
                self._note_arrival(tensor, space)
                self._memory.delivered(tensor, space)
        self._delivered.clear()

    def _forget(self, tensor: int, space: int) -> None:
        """A copy is gone, or was given up before it was sent: who wants it must ask again."""
        self._under_way.pop((tensor, space), None)
        del self._copies[tensor, space]

    def _note_arrival(self, tensor: int, space: int) -> None:
        """A tensor is there: its readers may start, and its job may be done."""
        job = self._job_of_tensor(tensor)
        index = self._job_index[job]
        t = tensor - self._first_tensor[job]
        for reader in index.consumers[t]:
            device = self._device[self._first_task[job] + reader]
            if device >= 0 and self._space_of[device] == space:
                self._touched.add(device)
        if self._destination[job] == space and t in index.outputs:
            self._done_at[job] = self.now
            if self._workload.reacts:
                self._follow(job)
        self._note_delivery(tensor, space)

    def transfer_end(self, size: float, source: int, destination: int) -> float:
        """See :class:`SchedulingContext`."""
        if self.contention != "fair" or source in (destination, EVERYWHERE):
            return super().transfer_end(size, source, destination)
        return self._links.estimate(self._route(source, destination), size)

    def copy_time(self, tensor: int, space: int) -> float | None:
        """See :class:`SchedulingContext`; transfers under way by what is known of them now."""
        flow = self._under_way.get((tensor, space))
        if flow is not None:
            return self._memory.expected(flow)
        return super().copy_time(tensor, space)

    def _data_is_here(self, task: int, device: int) -> bool:
        """Whether all that finished predecessors wrote for a placed task is in its device's space."""
        job = self._job[task]
        first = self._first_tensor[job]
        space = self._space_of[device]
        for t in self._job_index[job].reads[task - self._first_task[job]]:
            home = self._home[first + t]
            if home not in (space, EVERYWHERE):
                key = (first + t, space)
                if key in self._under_way or key not in self._copies:
                    return False
        return True

    def _tensor_bytes(self, tensor: int) -> float:
        job = self._job_of_tensor(tensor)
        return self._job_index[job].bytes[tensor - self._first_tensor[job]]

    def _readers_of(self, tensor: int) -> list[int]:
        """The tasks that read a tensor."""
        job = self._job_of_tensor(tensor)
        first = self._first_task[job]
        return [first + r for r in self._job_index[job].consumers[tensor - self._first_tensor[job]]]

    # -- memory ---------------------------------------------------------------------------------

    def free_bytes(self, space: int) -> float:
        """See :class:`SchedulingContext`."""
        return self._memory.free_bytes(space)

    def waiting_bytes(self, space: int) -> float:
        """See :class:`SchedulingContext`."""
        return self._memory.waiting_bytes(space)

    def resident_bytes(self, graph: DataflowGraph, space: int) -> float:
        """See :class:`SchedulingContext`."""
        return self._memory.resident_bytes(graph, space)

    def evict(
        self, graph: DataflowGraph, space: int, weights: Sequence[str] | None = None
    ) -> float:
        """See :class:`SchedulingContext`."""
        return self._memory.evict(graph, space, weights)

    # -- the end --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, object]:
        """What a trace's description says beside the names of things."""
        settings: dict[str, object] = {
            "world": self.world,
            "scheduler": self._scheduler.name,
            "movement": self.movement,
            "contention": self.contention,
            "memory": self._setting.memory,
            "weights": self._setting.weights,
            **self._memory.report(),
            **self._report(),
        }
        if self._setting.horizon < math.inf:
            settings["horizon_s"] = self._setting.horizon
        return settings

    def _trace(self) -> Trace:
        settings = self._settings()
        # Ends of jobs come last: some ways work them out with the tables.
        executions, transfers = self._execution_table(), self._transfer_table()
        finishes, statuses, reasons = self._fates()
        return assemble(
            executions,
            transfers,
            self.cluster,
            self.jobs,
            self._first_tensor,
            finishes,
            settings,
            self._decisions,
            self._deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=self._members,
            served_by=self._served_by,
        )

    def _fates(self) -> tuple[list[float], list[str], list[str]]:
        """Of every job the finish, what it ended as, and why if it failed."""
        count = len(self.jobs)
        finishes, statuses, reasons = self._done_at.copy(), ["finished"] * count, [""] * count
        # A run without a horizon ends when all is done.
        unfinished = self._unfinished_jobs() if self._setting.horizon < math.inf else ()
        for job in unfinished:
            finishes[job], statuses[job] = math.inf, "queued"
        for status, jobs in (("failed", self._failed_jobs), ("rejected", self._rejected)):
            for job, (moment, reason) in jobs.items():
                finishes[job], statuses[job], reasons[job] = moment, status, reason
        return finishes, statuses, reasons

    def _unfinished_jobs(self) -> set[int]:
        """Jobs of which tasks are not known to be finished, or outputs not delivered."""
        unfinished = {job for job, left in enumerate(self._left) if left}
        for tensor, space in self._under_way:
            job = self._job_of_tensor(tensor)
            output = tensor - self._first_tensor[job] in self._job_index[job].outputs
            if output and self._destination[job] == space:
                unfinished.add(job)
        return unfinished

    def _cut_off(self) -> list[tuple[Execution, str]]:
        """The executions of which the host knew no end at the horizon, with what they were."""
        rows = []
        for device, tasks in enumerate(self._running):
            for task in sorted(tasks):
                start = self._start_time[task]
                end = self._feeders[device].end_of(task)
                if start < math.inf:  # not if it was submitted only
                    ready = min(self._ready_at[task], start)
                    place = (task, self._job[task], device, self._slot[task])
                    finish = self._setting.horizon if end is None else end
                    row = (*place, ready, self._placed_at[task], start, finish)
                    rows.append((row, "running" if end is None else "finished"))
        return rows

    def _execution_table(self) -> Table:
        cut_off = self._cut_off()
        rows = [*self._executions, *(row for row, _ in cut_off)]
        table = np.array(rows, dtype=np.float64).reshape(-1, 8)
        # They were written when the host learnt of them; devices may differ in how late that is.
        order = np.argsort(table[:, 7], kind="stable")
        table = table[order]
        attempt = [attempt for attempt, _ in self._outcomes]
        attempt += [self._attempts.get(row[0], 0) for row, _ in cut_off]
        status = [status for _, status in self._outcomes] + [was for _, was in cut_off]
        task, job, device, slot = table[:, :4].astype(np.int64).T
        operator = task - np.array(self._first_task)[job]
        return execution_table(
            task,
            job,
            operator,
            device,
            slot,
            *table[:, 4:].T,
            attempt=np.array(attempt, dtype=np.int64)[order],
            status=np.array(status, dtype=str)[order],
        )

    def _carried(self, flow: Flow) -> float:
        """Share of its bytes that a transfer has carried."""
        return 1.0

    def _report(self) -> dict[str, Any]:
        """What the trace's description says beside the settings."""
        return {}

    def _transfer_table(self) -> Table:
        """One row for each tensor and link of every transfer's route."""
        # In order of request; those that waited for room were numbered before they were requested.
        order = {flow: number for number, flow in enumerate(self._sent)}
        last = len(order)
        flows = sorted(
            self._arrivals,
            key=lambda f: (f.requested, order.get(f, last), f.tensors, f.destination),
        )
        # By flow; then by tensor of every flow; then by channel of these.
        columns = np.array(
            [
                (f.source, f.destination, f.requested, f.start, f.end, self._carried(f))
                for f in flows
            ],
            dtype=np.float64,
        ).reshape(-1, 6)
        tensor = np.array([t for f in flows for t in f.tensors], dtype=np.int64)
        job = np.searchsorted(self._first_tensor, tensor, side="right") - 1
        # What led a batch moves its own share of results, and perhaps what is in between for all.
        first = np.array(self._first_tensor)
        sizes = np.array(
            [
                f.size if len(f.tensors) == 1 else self.jobs[j].graph.tensor_bytes[t - first[j]]
                for f, j, t in zip(
                    (f for f in flows for _ in f.tensors),
                    job.tolist(),
                    tensor.tolist(),
                    strict=True,
                )
            ],
            dtype=np.float64,
        )
        counts = np.array([len(f.tensors) for f in flows], dtype=np.int64)
        flow = np.repeat(np.arange(len(flows)), counts)
        hops = np.array([len(f.route.channels) for f in flows], dtype=np.int64)[flow]
        channel = [c for f in flows for _ in f.tensors for c in f.route.channels]
        row = np.repeat(np.arange(len(tensor)), hops)
        source, destination, requested, start, end, carried = columns[flow[row]].T
        ends = (source, destination, channel, requested, start, end)
        return transfer_table(tensor[row], job[row], *ends, sizes[row] * carried)


class _HorizonReached(Exception):
    """Ends a run; SimPy's own StopSimulation would put its event back into the queue."""


def _stop(_: simpy.Event) -> None:
    raise _HorizonReached


def _check_possible(
    graph: DataflowGraph, cluster: Cluster, believed: GraphCosts, actual: GraphCosts
) -> None:
    """Refuse a belief that a device can run what it cannot."""
    wrong = np.argwhere(np.isinf(actual.seconds) & np.isfinite(believed.seconds))
    if len(wrong):
        operator, device = wrong[0].tolist()
        raise InvalidInput(
            f"Operator '{graph.operators[operator].name}' of '{graph.name}' is believed to take "
            f"{believed.seconds[operator, device]:g} s on '{cluster.devices[device].name}', which "
            "cannot run it according to the actual times"
        )
