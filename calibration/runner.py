"""The hardware runner: the scheduling context on real devices.

The same scheduler object that :mod:`simulator.engine` simulates runs here on worker threads. There is
no dispatcher: the worker that has finished an operator applies its completion, lets the scheduler
decide, and hands out what can start, under one lock; then it goes on with its own next operator.

Clock: wall-clock seconds since the start of the run. What is decided for jobs that arrive at time 0 is
decided before the clock starts: the makespan of a static plan does not contain its planning, here as in
the simulation (``wallclock["planning_seconds"]`` has it).

In the trace, ``start`` and ``finish`` of an execution enclose its kernel alone. What the runner itself
needs for an operator (completion, decision, hand-over) is the gap between executions; see
:mod:`calibration.dispatch` for measuring it.

Imports neither simpy nor hydra nor xgboost.
"""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import torch

from calibration.copies import Arrived, Copier
from calibration.environment import steady_allocator
from calibration.kernels import Kernel, build
from calibration.workers import Bell, SleepingBell, SpinningBell, Worker, WorkerSpec, may_spin
from simulator.cluster import Cluster
from simulator.context import EVERYWHERE, SchedulingContext
from simulator.costs import CostTable
from simulator.errors import ExecutionError, HetsimError, InvalidInput
from simulator.graph import DataflowGraph
from simulator.links import transfer_model
from simulator.scheduler import Scheduler
from simulator.trace import Trace, TraceRecorder
from simulator.workload import Job, Workload

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Execution:
    """What a run on hardware left.

    Attributes:
        trace: with ``meta["world"] == "measured"``.
        outputs: for each job the tensors of ``graph.outputs`` by name, where they were delivered;
            :func:`calibration.sequential.results_of` makes the model's outputs of them.
    """

    trace: Trace
    outputs: list[dict[str, torch.Tensor]]


class Program:
    """A graph made runnable on a machine: a kernel for each device type, weights in every memory."""

    def __init__(self, graph: DataflowGraph, weights: Tensors, memories: Sequence[str]) -> None:
        self.graph = graph
        self.kernels: dict[str, list[Kernel]] = {
            place: [build(operator, place) for operator in graph.operators]
            for place in dict.fromkeys(memories)
        }
        self.weights: list[dict[int, torch.Tensor]] = []
        for place in memories:
            held = {}
            for index in graph.weights:
                name = graph.tensors[index].name
                if name not in weights:
                    raise InvalidInput(f"Graph '{graph.name}' needs the weight '{name}'")
                held[index] = weights[name].to(place)
            self.weights.append(held)
        outputs = frozenset(graph.outputs)
        # A result has one reader more than operators: the job's owner. It is never freed.
        self.readers = [
            len(consumers) + (tensor in outputs) for tensor, consumers in enumerate(graph.consumers)
        ]


class Machine:
    """The devices of a cluster as worker threads of this process.

    Use it as a context manager; several runs may follow each other. Creating one makes glibc keep
    freed memory, as measuring does (:func:`calibration.environment.steady_allocator`).

    Args:
        cluster: what schedulers see.
        workers: for each device by name what it is here.
        spin: let idle workers keep their cores busy instead of sleeping; None does so if each has a
            core of its own.

    Raises:
        InvalidInput: a device has no worker, a core or device is not there, or devices of one memory
            space are not of one kind.
    """

    def __init__(
        self, cluster: Cluster, workers: Mapping[str, WorkerSpec], spin: bool | None = None
    ) -> None:
        steady_allocator()
        self.cluster = cluster
        self.specs = [self._spec(device.name, workers) for device in cluster.devices]
        self.memories = self._memories()
        self.spinning = may_spin(self.specs) if spin is None else spin
        self.workers: list[Worker] = []
        self.copiers: dict[tuple[int, int], Copier] = {}
        self._programs: dict[DataflowGraph, Program] = {}
        self._stuck: list[str] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _spec(self, name: str, workers: Mapping[str, WorkerSpec]) -> WorkerSpec:
        spec = workers.get(name)
        if spec is None:
            raise InvalidInput(
                f"Device '{name}' of cluster '{self.cluster.name}' has no worker here; given: "
                f"{', '.join(workers) or 'none'}"
            )
        slots = self.cluster.devices[self.cluster.device_index[name]].slots
        if spec.cores and len(spec.cores) != slots * spec.threads:
            raise InvalidInput(
                f"Device '{name}' has {slots} slots of {spec.threads} threads, its worker "
                f"{len(spec.cores)} cores"
            )
        return spec

    def _memories(self) -> list[str]:
        """For each memory space the torch device that holds its tensors."""
        places: list[str | None] = [None] * len(self.cluster.spaces)
        for device, spec in enumerate(self.specs):
            space = self.cluster.space_of[device]
            if places[space] not in (None, spec.device):
                raise InvalidInput(
                    f"Memory space '{self.cluster.spaces[space].name}' cannot be both on "
                    f"{places[space]} and on {spec.device}"
                )
            places[space] = spec.device
        return [place or "cpu" for place in places]

    def _start(self) -> None:
        for index, (device, spec) in enumerate(zip(self.cluster.devices, self.specs, strict=True)):
            for slot in range(device.slots):
                name = device.name if device.slots == 1 else f"{device.name}/{slot}"
                worker = Worker(index, slot, name, spec, self.new_bell())
                self.workers.append(worker)
                worker.start()
        used = {*self.cluster.space_of}
        if self.cluster.host is not None:
            used.add(self.cluster.space_index[self.cluster.host])
        for source in sorted(used):
            for destination in sorted(used - {source}):
                places = self.memories[source], self.memories[destination]
                self.copiers[source, destination] = Copier(*places)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let all threads end."""
        for worker in self.workers:
            worker.close()
        for copier in self.copiers.values():
            copier.close()

    def load(self, graph: DataflowGraph, weights: Tensors) -> None:
        """Prepare a graph: its kernels and, in every memory space, its weights.

        Raises:
            InvalidInput: a weight is missing, or an operator cannot be made runnable.
        """
        self._programs[graph] = Program(graph, weights, self.memories)

    def program(self, graph: DataflowGraph) -> Program:
        """What :meth:`load` prepared.

        Raises:
            InvalidInput: the graph was not loaded.
        """
        program = self._programs.get(graph)
        if program is None:
            raise InvalidInput(f"Graph '{graph.name}' is not loaded on this machine; load it first")
        return program

    def run(
        self,
        workload: Workload | DataflowGraph,
        costs: CostTable,
        scheduler: Scheduler,
        inputs: Mapping[DataflowGraph, Tensors],
        *,
        believed: Cluster | None = None,
        movement: str = "push",
        contention: str = "none",
        limit: float = 600.0,
    ) -> Execution:
        """Execute a workload under a scheduler, in real time.

        Args:
            workload: jobs, or a graph for one job of it at time 0.
            costs: seconds as the scheduler believes them.
            scheduler: a fresh scheduler.
            inputs: for each graph its input tensors by name; every job of the graph gets them.
            believed: the cluster as the scheduler is to see it: the machine's own unless given, with
                other launch overheads or links.
            movement: ``push`` or ``pull``.
            contention: what schedulers are told about links, ``none`` or ``fifo``.
            limit: seconds after which a run that has not ended is given up.

        Raises:
            ExecutionError: an operator failed (it is named), or the limit was reached.
            InvalidInput: the parts do not fit together.
            SchedulingError: the scheduler broke its protocol or left tasks that can never run.
        """
        if self._stuck:
            raise ExecutionError(
                f"Worker {', '.join(self._stuck)} has not come back from an earlier run; make a new "
                "machine"
            )
        if isinstance(workload, DataflowGraph):
            host = self.cluster.host
            job = Job(workload, batch=workload.batch, origin=host, destination=host)
            workload = Workload([job])
        cluster = self._believed(believed)
        run = _Run(self, cluster, workload, costs, scheduler, inputs, movement, contention)
        with _steady_interpreter():
            return run.execute(limit)

    def _believed(self, cluster: Cluster | None) -> Cluster:
        if cluster is None:
            return self.cluster
        for mine, its in zip(self.cluster.devices, cluster.devices, strict=False):
            if (mine.name, mine.space, mine.slots) != (its.name, its.space, its.slots):
                break
        else:
            if len(self.cluster.devices) == len(cluster.devices):
                return cluster
        raise InvalidInput(
            f"Cluster '{cluster.name}' does not have the devices that this machine was made for: "
            f"{', '.join(device.name for device in self.cluster.devices)}"
        )

    def new_bell(self) -> Bell:
        """A bell for a worker that takes part in a run; none is left rung from an earlier one."""
        return SpinningBell() if self.spinning else SleepingBell()

    def mark_stuck(self, names: Sequence[str]) -> None:
        """Note workers that did not come back from a run that failed."""
        self._stuck += names


@contextlib.contextmanager
def _steady_interpreter() -> Iterator[None]:
    """Without garbage collection, whose pauses would fall on whichever operator comes next."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Run(SchedulingContext):
    """One run. Everything below ``serve`` and ``execute`` happens under ``_lock``."""

    world = "measured"

    def __init__(
        self,
        machine: Machine,
        cluster: Cluster,
        workload: Workload,
        costs: CostTable,
        scheduler: Scheduler,
        inputs: Mapping[DataflowGraph, Tensors],
        movement: str,
        contention: str,
    ) -> None:
        super().__init__(cluster, costs, movement, contention)
        self._check_run(workload, scheduler)
        self._machine = machine
        self._workload = workload
        self._scheduler = scheduler
        self._given = inputs
        for graph in workload.graphs:
            machine.program(graph)
            self._check_inputs(graph)
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
        self._copying = 0
        # Copies asked for before the clock started.
        self._early: list[tuple[Copier, torch.Tensor, Arrived]] = []
        self._wakes: list[float] = []
        self._parked: list[list[Worker]] = [[] for _ in self._slots]
        self._touched: set[int] = set()
        self._present: set[tuple[int, int]] = set()  # (tensor, space) of copies that have arrived
        self._moves = bool(machine.copiers)
        self._decisions = 0
        self._deciding_seconds = 0.0
        # By task: what a worker needs, in global tensor numbers.
        self._kernels: dict[str, list[Kernel]] = {place: [] for place in machine.memories}
        self._arguments: list[tuple[int, ...]] = []
        self._results: list[tuple[int, ...]] = []
        self._consumed: list[tuple[int, ...]] = []
        self._start_time: list[float] = []
        # By tensor.
        self._values: list[list[torch.Tensor | None]] = [[] for _ in machine.memories]
        self._readers: list[int] = []

    def _check_inputs(self, graph: DataflowGraph) -> None:
        given = self._given.get(graph, {})
        for index in graph.inputs:
            if graph.tensors[index].name not in given:
                raise InvalidInput(
                    f"Graph '{graph.name}' needs the input '{graph.tensors[index].name}'"
                )

    # -- the main thread ------------------------------------------------------------------------

    def execute(self, limit: float) -> Execution:
        """Run to the end; see :meth:`Machine.run`."""
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
                self._entered.acquire()
            with self._lock:
                self._touched.update(range(len(self._slots)))
                self._origin = time.perf_counter()
                for copier, value, arrived in self._early:
                    copier.copy(value, arrived)
                self._proceed(None)
            self._watch(limit)
        except BaseException as error:  # Ctrl-C above all: the workers must not outlive it
            with self._lock:
                self._stop(error)
        self._await_workers()
        if self._error is not None:
            raise self._error
        outputs = [self._outputs(job) for job in range(len(self.jobs))]
        self._values.clear()  # whoever still holds this run, such as its scheduler, holds no tensors
        return Execution(self._trace(planning), outputs)

    def _watch(self, limit: float) -> None:
        """Sleep until jobs arrive, a wake-up is due, or the run is over."""
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
                moment = min(limit, self._next_arrival(), *self._wakes[:1])
                self._attention.clear()
            self._attention.wait(max(0.0, moment - self._clock()))

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
        except BaseException as error:
            with self._lock:
                self._stop(error)
        with self._lock:
            self._serving.discard(worker.name)
        self._gone.release()

    def _work(self, worker: Worker) -> None:
        kernels = self._kernels[worker.spec.device]
        values = self._values[self._space_of[worker.device]]
        arguments, lock = self._arguments, self._lock
        extra = range(worker.spec.repeat_kernel - 1)
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
                tensors = [values[tensor] for tensor in arguments[task]]
                start = clock()
                for _ in extra:
                    kernel(*tensors)  # type: ignore[arg-type]
                written = kernel(*tensors)  # type: ignore[arg-type]
                if synchronise is not None:
                    synchronise()
                finish = clock()
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
        operator = self.jobs[self._job[task]].graph.operators[self.operator_of(task)]
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return ExecutionError(
            f"Operator '{self.label(task)}' (kind {operator.kind}) failed on device '{device}': "
            f"{type(error).__name__}: {reason}"
        )

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
        index = self._job_index[number]
        self._unfinished += len(graph)
        self._start_time += [0.0] * len(graph)
        for place, kernels in self._kernels.items():
            kernels += program.kernels[place]
        for name, rows in (
            ("_arguments", graph.reads),
            ("_results", graph.writes),
            ("_consumed", index.reads),
        ):
            getattr(self, name).extend(tuple(first + t for t in row) for row in rows)
        self._readers += program.readers
        for space, (held, weights) in enumerate(zip(self._values, program.weights, strict=True)):
            values: list[torch.Tensor | None] = [None] * len(graph.tensors)
            for tensor, value in weights.items():
                values[tensor] = value
            for tensor in graph.inputs:
                if self._home[first + tensor] in (space, EVERYWHERE):
                    given = self._given[graph][graph.tensors[tensor].name]
                    values[tensor] = given.to(self._machine.memories[space])
            held += values

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
        if (tensor, space) in self._copies:
            return
        home = self._home[tensor]
        route = self.cluster.route(home, space)
        # Until it has arrived, what the link's figures say is what schedulers believe.
        self._copies[tensor, space] = self._links.book(route, size, self.now, self._channel_free)[1]
        self._copying += 1
        value = self._values[home][tensor]
        assert value is not None
        requested = self.now

        def arrived(copy: torch.Tensor | None, start: float, error: Exception | None) -> None:
            with self._lock:
                if copy is None:
                    name = self._tensor_name(tensor)
                    self._stop(ExecutionError(f"Tensor '{name}' could not be copied: {error}"))
                elif not self._over:
                    try:
                        self._arrived(tensor, space, size, requested, start - self._origin, copy)
                    except HetsimError as problem:
                        self._stop(problem)

        copier = self._machine.copiers[home, space]
        if self._origin:
            copier.copy(value, arrived)
        else:
            self._early.append((copier, value, arrived))

    def _arrived(
        self,
        tensor: int,
        space: int,
        size: float,
        requested: float,
        start: float,
        copy: torch.Tensor,
    ) -> None:
        """A copy is there: tasks that waited for it can start. No decision, as in the simulation."""
        self.now = self._clock()
        self._copying -= 1
        self._copies[tensor, space] = self.now
        self._present.add((tensor, space))
        if self._readers[tensor]:
            self._values[space][tensor] = copy
        job = self._job_of_tensor(tensor)
        home = self._home[tensor]
        for channel in self.cluster.route(home, space).channels:
            self._recorder.transfer(
                tensor, job, home, space, channel, requested, start, self.now, size
            )
        local = tensor - self._first_tensor[job]
        if self._destination[job] == space and local in self._job_index[job].outputs:
            self._done_at[job] = max(self._done_at[job], self.now)
        self._stale = [True] * len(self._stale)
        self._touched.update(d for d, place in enumerate(self._space_of) if place == space)
        self._proceed(None)

    def _tensor_name(self, tensor: int) -> str:
        job = self._job_of_tensor(tensor)
        return self.jobs[job].graph.tensors[tensor - self._first_tensor[job]].name

    # -- the end --------------------------------------------------------------------------------

    def _outputs(self, job: int) -> dict[str, torch.Tensor]:
        graph = self.jobs[job].graph
        first = self._first_tensor[job]
        found = {}
        for tensor in graph.outputs:
            home = self._home[first + tensor]
            space = self._destination[job]
            if space == EVERYWHERE:
                space = home if home != EVERYWHERE else 0
            value = self._values[space][first + tensor]
            if value is None:  # an input that the model hands on, where it lay
                value = self._values[home][first + tensor]
            assert value is not None
            found[graph.tensors[tensor].name] = value
        return found

    def _trace(self, planning: float) -> Trace:
        trace = self._recorder.trace(
            cluster=self.cluster,
            jobs=self._workload.jobs,
            first_tensor=self._first_tensor,
            finishes=self._done_at,
            settings={
                "world": self.world,
                "scheduler": self._scheduler.name,
                "movement": self.movement,
                "contention": self.contention,
                "workers": [_described(spec) for spec in self._machine.specs],
                "spinning": self._machine.spinning,
            },
            decisions=self._decisions,
            deciding_seconds=self._deciding_seconds,
        )
        figures = {**trace.wallclock, "planning_seconds": planning}
        return Trace(
            trace.executions, trace.members, trace.jobs, trace.transfers, trace.meta, figures
        )


def _described(spec: WorkerSpec) -> dict[str, Any]:
    return {
        "device": spec.device,
        "cores": list(spec.cores),
        "repeat_kernel": spec.repeat_kernel,
        "threads": spec.threads,
    }
