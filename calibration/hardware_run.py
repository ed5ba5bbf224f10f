"""One run on hardware: the scheduling context on worker threads.

There is no dispatcher: the worker that has finished an operator applies its completion, lets the
scheduler decide, and hands out what can start, under one lock; then it goes on with its own next
operator. The main thread admits jobs when they arrive, by wall clock, and watches over the workers.

A batch's inputs are concatenated by the worker that reads them first, right before its operator; its
results are divided, as views, when the operator that writes them has finished. A packed message is one
request to the thread that copies, and all of it arrives at its end.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from calibration.joining import Cut, Joint, cut
from calibration.program import Kind, Tensors
from calibration.segment_kernel import Runnable
from calibration.workers import Worker, WorkerSpec
from simulator.batching import SERVING, BatchingContext
from simulator.cluster import Cluster
from simulator.context import EVERYWHERE, RequestedTransfer
from simulator.costs import CostTable
from simulator.errors import ExecutionError, HetsimError, InvalidInput, SchedulingError
from simulator.graph import DataflowGraph
from simulator.links import transfer_model
from simulator.packing import Message, is_weight, message
from simulator.scheduler import Scheduler
from simulator.trace import Trace, TraceRecorder
from simulator.workload import Job, Workload

if TYPE_CHECKING:
    from calibration.copies import Copier
    from calibration.runner import Machine

LOOK_SECONDS = 0.5
"""Between two looks at whether the workers live and get on."""
PATIENCE_FACTOR = 10.0
"""An operator that takes so many times its believed seconds, and the run's patience, hangs."""

Inputs = Mapping[DataflowGraph, Tensors | Sequence[Tensors]]


@dataclass(frozen=True)
class Execution:
    """What a run on hardware left.

    Attributes:
        trace: with ``meta["world"] == "measured"``. Where jobs were served together, ``meta["joins"]``
            has for each batch its leader, how many jobs it served and the seconds that concatenating
            their inputs took; ``wallclock`` has the sum, and that of dividing the results.
        outputs: for each job the tensors of ``graph.outputs`` by name, where they were delivered;
            :func:`calibration.sequential.results_of` makes the model's outputs of them. Empty for a
            job that was refused.
        graphs: for each job the graph that these are the outputs of: its own, or the variant's that
            served it, at the job's own batch.
    """

    trace: Trace
    outputs: list[dict[str, torch.Tensor]]
    graphs: list[DataflowGraph]


class _Request(NamedTuple):
    """A transfer that was asked for at this instant; the first two fields are its key."""

    tensor: int
    space: int
    home: int
    bytes: float


class HardwareRun(BatchingContext):
    """Use :meth:`calibration.runner.Machine.run`.

    Everything below ``serve`` and ``execute`` happens under ``_lock``.
    """

    world = "measured"
    offers = SERVING | {"pack"}

    def __init__(
        self,
        machine: Machine,
        cluster: Cluster,
        workload: Workload,
        costs: CostTable,
        scheduler: Scheduler,
        inputs: Inputs,
        movement: str,
        contention: str,
        patience: float,
    ) -> None:
        super().__init__(cluster, costs, movement, contention)
        self._check_run(workload, scheduler)
        if workload.reacts:
            raise InvalidInput(
                "A closed loop cannot be replayed on hardware: when its requests arrive depends on the "
                "answers; take arrivals that do not (poisson, gamma, trace)"
            )
        self._machine = machine
        self._workload = workload
        self._scheduler = scheduler
        self._patience = patience
        self._given = self._checked_inputs(inputs)
        self._lock = threading.Lock()
        self._attention = threading.Event()  # the main thread has something to do
        self._entered = threading.Semaphore(0)
        self._gone = threading.Semaphore(0)
        self._serving: set[str] = set()
        self._recorder = TraceRecorder()
        self._links = transfer_model(contention)
        self._origin = 0.0
        self._over = False
        self._error: BaseException | None = None
        self._next_job = 0
        self._unfinished = 0
        self._busy = 0  # tasks handed to workers and not finished
        self._copying = 0  # tensors
        # Copies asked for before the clock started.
        self._early: list[tuple[Copier, Sequence[torch.Tensor], Any]] = []
        self._requests: list[_Request] = []  # of this instant
        self._free_before: list[float] = []  # when each channel was free, before them
        self._packed: dict[tuple[int, int], Message] = {}  # by tensor and destination, of these
        self._under_way: set[tuple[int, int]] = set()
        self._wakes: list[float] = []
        self._parked: list[list[Worker]] = [[] for _ in self._slots]
        self._touched: set[int] = set()
        self._present: set[tuple[int, int]] = set()  # (tensor, space) of copies that have arrived
        self._moves = bool(machine.copiers)
        self._decisions = 0
        self._deciding_seconds = 0.0
        # By task: what a worker needs, in global tensor numbers.
        self._kernels: dict[Kind, list[Runnable]] = {kind: [] for kind in machine.kinds}
        self._arguments: list[tuple[int, ...]] = []
        self._results: list[tuple[int, ...]] = []
        self._consumed: list[tuple[int, ...]] = []
        self._start_time: list[float] = []
        # By tensor.
        self._values: list[list[torch.Tensor | None]] = [[] for _ in machine.memories]
        self._readers: list[int] = []
        self._turns: Counter[DataflowGraph] = Counter()  # jobs of each graph so far
        self._taken: list[Tensors] = []  # by job: its inputs
        # Of batches.
        self._joints: dict[int, Joint] = {}  # by leader
        self._joining: dict[int, Joint] = {}  # by task that reads inputs of a batch
        self._cuts: dict[int, dict[int, Cut]] = {}  # by leader: of its graph's outputs
        self._whole: dict[int, Cut] = {}  # leaders' results that later operators read, too
        self._splitting_seconds = 0.0

    def _checked_inputs(self, inputs: Inputs) -> dict[DataflowGraph, list[Tensors]]:
        """For each graph of a job the sets of inputs that its jobs take in turn."""
        for graph in self._workload.graphs:
            self._machine.program(graph)
        found = {}
        for graph in dict.fromkeys(job.graph for job in self._workload):
            given = inputs.get(graph, {})
            sets = [given] if isinstance(given, Mapping) else list(given)
            if not sets:
                raise InvalidInput(f"Graph '{graph.name}' has an empty list of inputs")
            for index in graph.inputs:
                name = graph.tensors[index].name
                if any(name not in tensors for tensors in sets):
                    raise InvalidInput(f"Graph '{graph.name}' needs the input '{name}'")
            found[graph] = sets
        return found

    # -- the main thread ------------------------------------------------------------------------

    def execute(self, limit: float) -> Execution:
        """Run to the end; see :meth:`calibration.runner.Machine.run`."""
        self._scheduler.begin(self)
        self._admit_due()
        if self.arrived:
            self._decide()
        planning = self._deciding_seconds
        workers = self._machine.workers
        try:
            for worker in workers:
                worker.join(self)
            for _ in workers:
                while not self._entered.acquire(timeout=LOOK_SECONDS):
                    self._check_workers()
            with self._lock:
                self._touched.update(range(len(self._slots)))
                self._origin = time.perf_counter()
                for copier, values, arrived in self._early:
                    copier.copy(values, arrived)
                self._early.clear()
                self._proceed(None)
            self._watch(limit)
        except BaseException as error:  # Ctrl-C above all: the workers must not outlive it
            with self._lock:
                self._stop(error)
        self._await_workers()
        if self._error is not None:
            for held in self._values:  # the memory is free although the error refers to this run
                held.clear()
            raise self._error
        outputs = [self._outputs(job) for job in range(len(self.jobs))]
        self._values.clear()  # whoever still holds this run, such as its scheduler, holds no tensors
        graphs = [self._graph_of(job) for job in range(len(self.jobs))]
        return Execution(self._trace(planning), outputs, graphs)

    def _watch(self, limit: float) -> None:
        """Sleep until jobs arrive, a wake-up is due, or the run is over."""
        look = LOOK_SECONDS
        while True:
            with self._lock:
                if self._over:
                    return
                self.now = self._clock()
                due = self._admit_due()
                while self._wakes and self._wakes[0] <= self.now:
                    heappop(self._wakes)
                    due = True
                if due:
                    self._decide()
                    self._proceed(None)
                    continue
                if self.now >= limit:
                    raise ExecutionError(self._too_long(limit))
                if self.now >= look:
                    self._check_workers()
                    look = self.now + LOOK_SECONDS
                moment = min(limit, look, self._next_arrival(), *self._wakes[:1])
                self._attention.clear()
            self._attention.wait(max(0.0, moment - self._clock()))

    def _check_workers(self) -> None:
        """Refuse to wait for a worker that is gone, or that an operator does not give back."""
        for worker in self._machine.workers:
            if not worker.is_alive():
                raise ExecutionError(f"Worker '{worker.name}' died; make a new machine")
        for device, tasks in enumerate(self._running):
            for task in tasks:
                spent, believed = self.now - self._start_time[task], self.seconds(task)[device]
                if spent > self._patience + PATIENCE_FACTOR * believed:
                    name = self.cluster.devices[device].name
                    raise ExecutionError(
                        f"Worker '{name}' hangs: operator '{self.label(task)}' has run for "
                        f"{spent:.3g} s and is believed to take {believed:.3g} s; if it may take so "
                        "long, run with more patience"
                    )

    def _too_long(self, limit: float) -> str:
        running = [
            f"'{self.label(task)}' on '{self.cluster.devices[device].name}'"
            for device, tasks in enumerate(self._running)
            for task in tasks
        ]
        return (
            f"The run has not ended after {limit:g} s; running: {', '.join(running) or 'nothing'}; "
            "raise the limit if that is too short"
        )

    def _next_arrival(self) -> float:
        jobs = self._workload.jobs
        return jobs[self._next_job].arrival if self._next_job < len(jobs) else math.inf

    def _await_workers(self) -> None:
        # After a failure a worker may be inside a kernel, which nothing can interrupt.
        patience = time.monotonic() + (10.0 if self._error is None else 0.5)
        for _ in self._machine.workers:
            if not self._gone.acquire(timeout=max(0.0, patience - time.monotonic())):
                break
        with self._lock:
            self._machine.mark_stuck(sorted(self._serving))
            if self._serving and self._error is None:
                self._error = ExecutionError(f"Worker {', '.join(self._serving)} did not stop")

    # -- a worker's thread ----------------------------------------------------------------------

    def serve(self, worker: Worker) -> None:
        """See :class:`calibration.workers.Session`."""
        worker.task = -1
        worker.bell = self._machine.new_bell()
        with self._lock:
            self._serving.add(worker.name)
            if self._over:
                worker.bell.ring()
            else:
                self._parked[worker.device].append(worker)
        self._entered.release()
        try:
            self._work(worker)
        except Exception as error:
            with self._lock:
                self._stop(error)
        except BaseException as error:  # such as SystemExit, which must not end this process
            with self._lock:
                self._stop(ExecutionError(f"Worker '{worker.name}' died of {_reason(error)}"))
        with self._lock:
            self._serving.discard(worker.name)
        self._gone.release()

    def _work(self, worker: Worker) -> None:
        kernels = self._kernels[worker.spec.kind]
        space = self._space_of[worker.device]
        values = self._values[space]
        arguments, joining, lock = self._arguments, self._joining, self._lock
        synchronise = worker.synchronise
        clock = time.perf_counter
        parked = True
        while True:
            if parked:
                worker.bell.wait()
            task = worker.task
            if task < 0:
                return
            try:
                kernel = kernels[task]
                if task in joining:
                    joining[task].gather(values, space)
                tensors = [values[tensor] for tensor in arguments[task]]
                start = clock()
                written = kernel(*tensors)  # type: ignore[arg-type]
                if synchronise is not None:
                    synchronise()
                finish = clock()
            except HetsimError:
                raise
            except Exception as error:
                raise self._failure(task, worker, error) from error
            with lock:
                if self._over:
                    return
                self._finish(worker, task, start - self._origin, finish - self._origin, written)
                # Asked under the lock: once it is released, another thread may hand over a task, and
                # rings for it.
                parked = worker.task < 0
            # Dropped before the next kernel is timed: freeing is no part of it.
            del tensors, written

    def _failure(self, task: int, worker: Worker, error: Exception) -> ExecutionError:
        device = self.cluster.devices[worker.device].name
        operator = self._job_index[self._job[task]].graph.operators[self.operator_of(task)]
        what = f"Operator '{self.label(task)}' (kind {operator.kind})"
        if is_out_of_memory(error):
            return ExecutionError(
                f"{what} ran out of memory on device '{device}' ({worker.spec.device}): "
                f"{_reason(error)}; run fewer jobs at once, or smaller batches"
            )
        return ExecutionError(f"{what} failed on device '{device}': {_reason(error)}")

    # -- events ---------------------------------------------------------------------------------

    def _clock(self) -> float:
        return time.perf_counter() - self._origin

    def _finish(
        self,
        worker: Worker,
        task: int,
        start: float,
        finish: float,
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """Apply a task's end, decide, and hand out what can start."""
        self.now = self._clock()
        device = worker.device
        job = self._job[task]
        readers = self._readers
        values = self._values[self._space_of[device]]
        for tensor, value in zip(self._results[task], written, strict=True):
            if readers[tensor]:
                values[tensor] = value
        if job in self._cuts:
            self._divide(job, task, values, written)
        for tensor in self._consumed[task]:
            readers[tensor] -= 1
            if not readers[tensor]:
                for held in self._values:
                    held[tensor] = None
        touched = self._touched
        for successor in self._complete(task, device):
            place = self._device[successor]
            if place >= 0:
                touched.add(place)
                if not self._push and self._moves:
                    self._request_inputs(successor, place)
        if self._moves:
            self._request_outputs(task, device)
        self.finished.append(task)
        self._done_at[job] = max(self._done_at[job], finish)
        if not self._left[job]:
            for member in self._members.get(job, ())[1:]:
                self._done_at[member] = self._done_at[job]
        self._unfinished -= 1
        self._busy -= 1
        self._recorder.execution(
            task,
            job,
            task - self._first_task[job],
            device,
            worker.slot,
            self._ready_at[task],
            self._placed_at[task],
            start,
            finish,
        )
        worker.task = -1
        self._parked[device].append(worker)
        touched.add(device)
        self._decide()
        self._proceed(worker)

    def _decide(self) -> None:
        self.ready.sort()
        began = time.perf_counter()
        self._scheduler.decide(self)
        self._deciding_seconds += time.perf_counter() - began
        self._decisions += 1
        self._clear_instant()
        if self._requests:
            self._send()

    def _proceed(self, current: Worker | None) -> None:
        """Give startable heads of queues to parked workers, and see whether the run is over."""
        for device in self._touched:
            workers = self._parked[device]
            while workers:
                task = self._head(device)
                if task < 0 or self._pending[task]:
                    break
                if self._moves and not self._data_is_here(task, device):
                    break
                self._start(device)
                self._started[task] = True
                self._start_time[task] = self.now
                self._busy += 1
                # The thread that is awake goes on itself; another would have to be woken.
                worker = current if current in workers else workers[-1]
                assert worker is not None
                workers.remove(worker)
                worker.task = task
                if worker is not current:
                    worker.bell.ring()
        self._touched.clear()
        if not self._busy and not self._copying and self._next_job == len(self._workload):
            if not self._unfinished:
                self._stop(None)
            elif not self._wakes:
                self._check_finished(self._scheduler)

    def _stop(self, error: BaseException | None) -> None:
        """End the run; the first error is the one that is reported."""
        if self._over:
            return
        self._over = True
        self._error = error
        for workers in self._parked:
            for worker in workers:
                worker.task = -1
                worker.bell.ring()
            workers.clear()
        self._attention.set()

    def _admit_due(self) -> bool:
        """Admit the jobs whose time has come; returns whether there were any."""
        jobs = self._workload.jobs
        before = self._next_job
        while self._next_job < len(jobs) and jobs[self._next_job].arrival <= self.now:
            self._arrive(jobs[self._next_job])
            self._next_job += 1
        return self._next_job > before

    def _arrive(self, job: Job) -> None:
        graph = job.graph
        program = self._machine.program(graph)
        number = self._admit(job)
        first = self._first_tensor[number]
        sets = self._given[graph]
        given = sets[self._turns[graph] % len(sets)]
        self._turns[graph] += 1
        self._taken.append(given)
        self._unfinished += len(graph)
        self._start_time += [0.0] * len(graph)
        for kind, kernels in self._kernels.items():
            kernels += program.kernels[kind]
        for name, rows in (
            ("_arguments", program.reads),
            ("_results", graph.writes),
            ("_consumed", graph.activations_read),
        ):
            getattr(self, name).extend(tuple(first + t for t in row) for row in rows)
        self._readers += program.readers
        for space, (held, weights) in enumerate(zip(self._values, program.weights, strict=True)):
            values: list[torch.Tensor | None] = [None] * len(graph.tensors)
            for tensor, value in weights.items():
                values[tensor] = value
            for tensor in graph.inputs:
                if self._home[first + tensor] in (space, EVERYWHERE):
                    place = self._machine.memories[space]
                    values[tensor] = given[graph.tensors[tensor].name].to(place)
            held += values

    # -- batches --------------------------------------------------------------------------------

    def _may_serve(self) -> bool:
        return bool(SERVING & self._scheduler.needs)

    def _note_batch(self, leader: int, graph: DataflowGraph) -> None:
        members = self._members[leader]
        self._unfinished -= sum(len(self.tasks_of(job)) for job in members[1:])
        own = self.jobs[leader].graph
        if graph is not own:
            self._run_by(leader, own, graph)
        if len(members) == 1:
            return
        first = self._first_tensor[leader]
        inputs = []
        for t in graph.inputs:
            tensors = [self._first_tensor[job] + t for job in members]
            inputs.append((graph.tensors[t].name, tensors, self._cut(members, graph, t)))
        given = frozenset(graph.inputs)
        self._cuts[leader] = {
            t: self._cut(members, graph, t) for t in graph.outputs if t not in given
        }
        home = self._home[first + graph.inputs[0]] if graph.inputs else EVERYWHERE
        joint = self._joints[leader] = Joint(home, len(members), inputs)
        first_task = self._first_task[leader]
        for operator, row in enumerate(graph.activations_read):
            if not given.isdisjoint(row):
                self._joining[first_task + operator] = joint

    def _run_by(self, leader: int, own: DataflowGraph, graph: DataflowGraph) -> None:
        """Let a job's tasks run another graph."""
        if [*own.predecessors] != [*graph.predecessors]:
            raise SchedulingError(
                f"Job {leader} of '{own.name}' cannot be served by '{graph.name}' at batch "
                f"{graph.batch}: their operators depend on each other in different ways"
            )
        program = self._machine.program(graph)
        tasks = slice(self._first_task[leader], self._first_task[leader] + len(graph))
        first = self._first_tensor[leader]
        tensors = slice(first, first + len(graph.tensors))
        for kind, kernels in self._kernels.items():
            kernels[tasks] = program.kernels[kind]
        for name, rows in (
            ("_arguments", program.reads),
            ("_results", graph.writes),
            ("_consumed", graph.activations_read),
        ):
            getattr(self, name)[tasks] = [tuple(first + t for t in row) for row in rows]
        self._readers[tensors] = program.readers
        for held, weights in zip(self._values, program.weights, strict=True):
            for tensor, value in weights.items():
                held[first + tensor] = value

    def _graph_of(self, job: int) -> DataflowGraph:
        """The graph that serves a job, at the job's own batch."""
        entry = self.jobs[job]
        graph, size = self._served_by.get(job, entry.graph), entry.batch or 1
        if (graph.batch or 1) == size:
            return graph
        return self._workload.batches.get(graph, {}).get(size, entry.graph)

    def _cut(self, members: Sequence[int], graph: DataflowGraph, tensor: int) -> Cut:
        alone = [self._machine.program(self._graph_of(job)).specs[tensor] for job in members]
        together = self._machine.program(graph).specs[tensor]
        return cut(graph.tensors[tensor].name, alone, together)

    def _divide(
        self,
        leader: int,
        task: int,
        values: list[torch.Tensor | None],
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """Give each job of a batch its share of the results that a task has written."""
        began = time.perf_counter()
        cuts, first = self._cuts[leader], self._first_tensor[leader]
        members = self._members[leader]
        for tensor, value in zip(self._results[task], written, strict=True):
            how = cuts.get(tensor - first)
            if how is None:
                continue
            shares = how.shares(value)
            for job, share in zip(members[1:], shares[1:], strict=True):
                values[self._first_tensor[job] + tensor - first] = share
            if self._job_index[leader].consumers[tensor - first]:
                self._whole[tensor] = how
            else:
                values[tensor] = shares[0]
        self._splitting_seconds += time.perf_counter() - began

    def reject(self, job: int, reason: str) -> None:
        """See :class:`BatchingContext`."""
        super().reject(job, reason)
        self._unfinished -= len(self.tasks_of(job))

    # -- placement ------------------------------------------------------------------------------

    def _accept(self, task: int, device: int) -> None:
        self._touched.add(device)
        if self._moves and (self._push or not self._pending[task]):
            self._request_inputs(task, device)

    def _release(self, task: int, device: int) -> None:
        self._touched.add(device)

    def _began(self, task: int) -> float:
        return self._start_time[task]

    def _wake(self, time: float) -> None:
        heappush(self._wakes, time)
        self._attention.set()

    # -- data -----------------------------------------------------------------------------------

    def _data_is_here(self, task: int, device: int) -> bool:
        space = self._space_of[device]
        return all(
            self._home[tensor] in (space, EVERYWHERE) or (tensor, space) in self._present
            for tensor in self._consumed[task]
        )

    def _request(self, tensor: int, space: int, size: float) -> None:
        """Ask for a copy; it is sent when the scheduler has decided."""
        if (tensor, space) in self._copies:
            return
        if not self._requests:
            self._free_before = list(self._channel_free)
        request = _Request(tensor, space, self._home[tensor], size)
        self._requests.append(request)
        self._copying += 1
        self._book(request)

    def _book(self, request: _Request) -> None:
        """Until a copy has arrived, what the link's figures say is what schedulers believe."""
        key = request[:2]
        if key in self._copies:  # with the rest of its message
            return
        parcel = self._packed.get(key)
        route = self.cluster.route(request.home, request.space)
        size = request.bytes if parcel is None else parcel.bytes
        end = self._links.book(route, size, self.now, self._channel_free)[1]
        for tensor in (request.tensor,) if parcel is None else parcel.tensors:
            self._copies[tensor, request.space] = end

    def requests(self) -> list[RequestedTransfer]:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        return [
            RequestedTransfer(tensor, size, home, space)
            for tensor, space, home, size in sorted(self._requests)
            if (tensor, space) not in self._packed and not is_weight(self, tensor)
        ]

    def pack(self, transfers: Iterable[tuple[int, int]]) -> None:
        """See :class:`SchedulingContext`."""
        self._check_packs()
        parcel = message(self, transfers)
        space = parcel.destination
        asked = {request[:2] for request in self._requests}
        if not self._requests:
            self._free_before = list(self._channel_free)
        for tensor in parcel.tensors:
            self._packed[tensor, space] = parcel
            if (tensor, space) not in asked:
                size = self._tensor_bytes(tensor)
                self._requests.append(_Request(tensor, space, self._home[tensor], size))
                self._copying += 1
        self._channel_free = list(self._free_before)
        for request in self._requests:
            self._copies.pop(request[:2], None)
        for request in self._requests:
            self._book(request)
        self._stale = [True] * len(self._stale)

    def _check_packs(self) -> None:
        if "pack" not in self._scheduler.needs:
            raise SchedulingError(
                f"Scheduler '{self._scheduler.name}' packs transfers without having declared it: "
                'needs = {"pack"}'
            )

    def _tensor_bytes(self, tensor: int) -> float:
        job = self._job_of_tensor(tensor)
        return self._job_index[job].bytes[tensor - self._first_tensor[job]]

    def _readers_of(self, tensor: int) -> list[int]:
        """The tasks that read a tensor."""
        job = self._job_of_tensor(tensor)
        first = self._first_task[job]
        return [first + r for r in self._job_index[job].consumers[tensor - self._first_tensor[job]]]

    def _send(self) -> None:
        """Have what was asked for at this instant copied, a message's tensors together."""
        messages: dict[tuple[int, int], list[_Request]] = {}
        for request in self._requests:
            parcel = self._packed.get(request[:2])
            first = request.tensor if parcel is None else parcel.tensors[0]
            messages.setdefault((first, request.space), []).append(request)
        self._requests = []
        self._packed.clear()
        for requests in messages.values():
            self._under_way.update(request[:2] for request in requests)
            self._copy(requests)

    def _copy(self, requests: Sequence[_Request]) -> None:
        home, space = requests[0].home, requests[0].space
        requested = self.now

        def arrived(
            copies: Sequence[torch.Tensor] | None, start: float, error: Exception | None
        ) -> None:
            with self._lock:
                if copies is None:
                    assert error is not None
                    names = ", ".join(self._tensor_name(request.tensor) for request in requests)
                    self._stop(
                        ExecutionError(
                            f"Tensor '{names}' could not be copied from "
                            f"'{self.cluster.spaces[home].name}' to "
                            f"'{self.cluster.spaces[space].name}': {_reason(error)}"
                        )
                    )
                elif not self._over:
                    try:
                        self._arrived(requests, requested, start - self._origin, copies)
                    except Exception as problem:
                        self._stop(problem)

        values = [self._value_at_home(request) for request in requests]
        copier = self._machine.copiers[home, space]
        if self._origin:
            copier.copy(values, arrived)
        else:
            self._early.append((copier, values, arrived))

    def _value_at_home(self, request: _Request) -> torch.Tensor:
        tensor = request.tensor
        joint = self._joints.get(self._job_of_tensor(tensor)) if self._joints else None
        if joint is not None:
            joint.gather(self._values[request.home], request.home)
        value = self._values[request.home][tensor]
        assert value is not None
        return value

    def _arrived(
        self,
        requests: Sequence[_Request],
        requested: float,
        start: float,
        copies: Sequence[torch.Tensor],
    ) -> None:
        """Copies are there: tasks that waited for them can start. The scheduler is asked if they were
        sent ahead, and only then, as in the simulation.
        """
        self.now = self._clock()
        for request, copy in zip(requests, copies, strict=True):
            tensor, space, home, size = request
            self._copying -= 1
            self._copies[tensor, space] = self.now
            self._under_way.discard((tensor, space))
            self._present.add((tensor, space))
            if self._readers[tensor]:
                self._values[space][tensor] = copy
            job = self._job_of_tensor(tensor)
            for channel in self.cluster.route(home, space).channels:
                self._recorder.transfer(
                    tensor, job, home, space, channel, requested, start, self.now, size
                )
            local = tensor - self._first_tensor[job]
            if self._destination[job] == space and local in self._job_index[job].outputs:
                self._done_at[job] = max(self._done_at[job], self.now)
            self._note_delivery(tensor, space)
        self._stale = [True] * len(self._stale)
        space = requests[0].space
        self._touched.update(d for d, place in enumerate(self._space_of) if place == space)
        if self.delivered:
            self._decide()
        self._proceed(None)

    def _tensor_name(self, tensor: int) -> str:
        job = self._job_of_tensor(tensor)
        return self.jobs[job].graph.tensors[tensor - self._first_tensor[job]].name

    # -- the end --------------------------------------------------------------------------------

    def _outputs(self, job: int) -> dict[str, torch.Tensor]:
        if job in self._rejected:
            return {}
        graph = self._graph_of(job)
        first = self._first_tensor[job]
        together = len(self._members.get(self._leader.get(job, job), ())) > 1
        found = {}
        for tensor in graph.outputs:
            name = graph.tensors[tensor].name
            if together and tensor in graph.inputs:  # handed on as it came
                own = self.jobs[job].graph
                found[name] = self._taken[job][own.tensors[tensor].name]
                continue
            home = self._home[first + tensor]
            space = self._destination[job]
            if space == EVERYWHERE:
                space = home if home != EVERYWHERE else 0
            value = self._values[space][first + tensor]
            if value is None:  # an input that the model hands on, where it lay
                value = self._values[home][first + tensor]
            assert value is not None
            if first + tensor in self._whole:
                value = self._whole[first + tensor].shares(value)[0]
            found[name] = value
        return found

    def _trace(self, planning: float) -> Trace:
        count = len(self.jobs)
        statuses, reasons = ["finished"] * count, [""] * count
        for job, (_, reason) in self._rejected.items():
            statuses[job], reasons[job] = "rejected", reason
        settings: dict[str, Any] = {
            "world": self.world,
            "scheduler": self._scheduler.name,
            "movement": self.movement,
            "contention": self.contention,
            "workers": [_described(spec) for spec in self._machine.specs],
            "spinning": self._machine.spinning,
        }
        figures = {"planning_seconds": planning}
        if self._joints:
            settings["joins"] = [[job, j.jobs, j.seconds] for job, j in self._joints.items()]
            figures["joining_seconds"] = sum(joint.seconds for joint in self._joints.values())
            figures["splitting_seconds"] = self._splitting_seconds
        trace = self._recorder.trace(
            cluster=self.cluster,
            jobs=self._workload.jobs,
            first_tensor=self._first_tensor,
            finishes=self._done_at,
            settings=settings,
            decisions=self._decisions,
            deciding_seconds=self._deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=self._members,
            served_by=self._served_by,
        )
        return Trace(
            trace.executions,
            trace.members,
            trace.jobs,
            trace.transfers,
            trace.meta,
            {**trace.wallclock, **figures},
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of torch's says that memory is short."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _reason(error: BaseException) -> str:
    """An error's type and first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _described(spec: WorkerSpec) -> dict[str, Any]:
    return {
        "device": spec.device,
        "cores": list(spec.cores),
        "repeat_kernel": spec.repeat_kernel,
        "threads": spec.threads,
    }
