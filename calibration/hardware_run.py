"""One run on hardware: the scheduling context on worker threads.

There is no dispatcher: the worker that has finished an operator applies its completion, lets the
scheduler decide, and hands out what can start, under one lock; then it goes on with its own next
operator. The main thread admits jobs when they arrive, by wall clock, and watches over the workers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import torch

from calibration.issuing import Issuing
from calibration.moving import reason_of
from calibration.serving_run import Inputs, ServingRun
from calibration.workers import Worker, WorkerSpec
from simulator.context.scheduler import Scheduler
from simulator.errors import ExecutionError, HetsimError, InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.trace import Trace, TraceRecorder
from simulator.model.workload import Workload

if TYPE_CHECKING:
    from calibration.runner import Machine

LOOK_SECONDS = 0.5
"""Between two looks at whether the workers live and get on."""
Call = Callable[[int], tuple[float, float, tuple[torch.Tensor, ...]]]
"""Calls a task's kernel: when that began and when the call was over (``time.perf_counter``), and what it wrote."""
PATIENCE_FACTOR = 10.0
"""An operator that takes so many times its believed seconds, and the run's patience, hangs."""


@dataclass(frozen=True)
class Execution:
    """What a run on hardware left.

    Attributes:
        trace: with ``meta["world"] == "measured"``. Where jobs were served together, ``meta["joins"]``
            has for each batch its leader, how many jobs it served and the seconds that concatenating
            their inputs took, ``meta["splitting_s"]`` the seconds of dividing all results;
            ``meta["launched"]`` has for each device whose operators were launched on a stream ahead
            its number, how many, and the seconds of its worker that they took;
            ``wallclock`` has both sums.
        outputs: for each job the tensors of ``graph.outputs`` by name, where they were delivered;
            :func:`calibration.sequential.results_of` makes the model's outputs of them. Empty for a
            job that was refused.
        graphs: for each job the graph that these are the outputs of: its own, or the variant's that
            served it, at the job's own batch.
    """

    trace: Trace
    outputs: list[dict[str, torch.Tensor]]
    graphs: list[DataflowGraph]


class HardwareRun(ServingRun):
    """Use :meth:`calibration.runner.Machine.run`.

    Everything below ``serve`` and ``execute`` happens under ``_lock``.
    """

    world = "measured"

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
        super().__init__(machine, cluster, costs, movement, contention)
        self._check_run(workload, scheduler)
        if workload.reacts:
            raise InvalidInput(
                "A closed loop cannot be replayed on hardware: when its requests arrive depends on the "
                "answers; take arrivals that do not (poisson, gamma, trace)"
            )
        self._workload = workload
        self.scheduler = scheduler
        self._patience = patience
        self._given = self._checked_inputs(inputs)
        self._lock = threading.Lock()
        self._attention = threading.Event()  # the main thread has something to do
        self._entered = threading.Semaphore(0)
        self._gone = threading.Semaphore(0)
        self.serving: set[str] = set()
        self._recorder = TraceRecorder()
        self._origin = 0.0
        self._over = False
        self._error: BaseException | None = None
        self._next_job = 0
        self._busy = 0  # tasks handed to workers and not finished
        self._wakes: list[float] = []
        self._parked: list[list[Worker]] = [[] for _ in self.slots]
        self.touched: set[int] = set()
        self.decisions = 0
        self.deciding_seconds = 0.0
        # Devices that are submitted to ahead of what is known.
        self._issuing = {
            worker.device: Issuing(self, worker)
            for worker in machine.workers
            if cluster.devices[worker.device].completion_latency
        }
        for device, issuing in self._issuing.items():
            self._projections[device] = issuing.window.project

    # -- the main thread ------------------------------------------------------------------------

    def execute(self, limit: float) -> Execution:
        """Run to the end; see :meth:`calibration.runner.Machine.run`."""
        self.scheduler.begin(self)
        self._admit_due()
        if self.arrived:
            self._decide()
        planning = self.deciding_seconds
        workers = self._machine.workers
        try:
            for issuing in self._issuing.values():
                issuing.start()
            for worker in workers:
                worker.join(self)
            for _ in workers:
                while not self._entered.acquire(timeout=LOOK_SECONDS):
                    self._check_workers()
            with self._lock:
                self.touched.update(range(len(self.slots)))
                self._origin = time.perf_counter()
                for copier, values, arrived in self._early:
                    copier.copy(values, arrived)
                self._early.clear()
                self._proceed(None)
            self._watch(limit)
        except BaseException as error:  # Ctrl-C above all: the workers must not outlive it
            with self._lock:
                self._stop(error)
                self._error = self._error or error  # the run may just have come to its end
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
                self.now = self.clock()
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
            self._attention.wait(max(0.0, moment - self.clock()))

    def _check_workers(self) -> None:
        """Refuse to wait for a worker that is gone, or that an operator does not give back."""
        for worker in self._machine.workers:
            if not worker.is_alive():
                raise ExecutionError(f"Worker '{worker.name}' died; make a new machine")
        for device in range(len(self.running)):
            for task, began in self._executing(device):
                spent, believed = self.now - began, self.seconds(task)[device]
                if spent > self._patience + PATIENCE_FACTOR * believed:
                    name = self.cluster.devices[device].name
                    raise ExecutionError(
                        f"Worker '{name}' hangs: operator '{self.label(task)}' has run for "
                        f"{spent:.3g} s and is believed to take {believed:.3g} s; if it may take so "
                        "long, run with more patience"
                    )

    def _executing(self, device: int) -> list[tuple[int, float]]:
        """What a device executes as far as is known, and since when at the earliest."""
        issuing = self._issuing.get(device)
        if issuing is None:
            return [(task, self.start_time[task]) for task in self.running[device]]
        task, began = issuing.window.oldest()
        return [(task, began)] if task >= 0 else []

    def _too_long(self, limit: float) -> str:
        running = [
            f"'{self.label(task)}' on '{self.cluster.devices[device].name}'"
            for device, tasks in enumerate(self.running)
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
            self._machine.mark_stuck(sorted(self.serving))
            if self.serving and self._error is None:
                self._error = ExecutionError(f"Worker {', '.join(self.serving)} did not stop")

    # -- a worker's thread ----------------------------------------------------------------------

    def serve(self, worker: Worker) -> None:
        """See :class:`calibration.workers.Session`."""
        worker.task = -1
        worker.bell = self._machine.new_bell()
        with self._lock:
            self.serving.add(worker.name)
            if worker.device in self._issuing:
                pass  # its worker finds out itself whether there is anything to do
            elif self._over:
                worker.bell.ring()
            else:
                self._parked[worker.device].append(worker)
        self._entered.release()
        try:
            if worker.device in self._issuing:
                self._issuing[worker.device].work()
            else:
                self._work(worker)
        except Exception as error:
            with self._lock:
                self._stop(error)
        except BaseException as error:  # such as SystemExit, which must not end this process
            with self._lock:
                self._stop(ExecutionError(f"Worker '{worker.name}' died of {reason_of(error)}"))
        with self._lock:
            self.serving.discard(worker.name)
        self._gone.release()

    def _work(self, worker: Worker) -> None:
        call, lock = self._caller(worker, awaits=True), self._lock
        parked = True
        while True:
            if parked:
                worker.bell.wait()
            task = worker.task
            if task < 0:
                return
            start, finish, written = call(task)
            with lock:
                if self._over:
                    return
                self._keep(task, worker.device, written)
                self._finish(worker, task, start - self._origin, finish - self._origin, written)
                # Asked under the lock: once it is released, another thread may hand over a task, and
                # rings for it.
                parked = worker.task < 0
            # Dropped before the next kernel is timed: freeing is no part of it.
            del written

    def _caller(self, worker: Worker, awaits: bool) -> Call:
        """What calls a task's kernel on a worker's thread; ``awaits`` lets it wait until the kernel has ended."""
        kernels = self._kernels[worker.spec.kind]
        space = self.space_of[worker.device]
        values = self._values[space]
        arguments, joining = self._arguments, self._joining
        synchronise = worker.stream.synchronize if worker.stream is not None and awaits else None
        clock = time.perf_counter

        def call(task: int) -> tuple[float, float, tuple[torch.Tensor, ...]]:
            try:
                kernel = kernels[task]
                if task in joining:
                    joining[task].gather(values, space)
                tensors = [values[tensor] for tensor in arguments[task]]
                start = clock()
                written = kernel(*tensors)  # type: ignore[arg-type]
                if synchronise is not None:
                    synchronise()
                return start, clock(), written
            except HetsimError:
                raise
            except Exception as error:
                raise self._failure(task, worker, error) from error

        return call

    def _failure(self, task: int, worker: Worker, error: Exception) -> ExecutionError:
        device = self.cluster.devices[worker.device].name
        operator = self.job_index[self.task_job[task]].graph.operators[self.operator_of(task)]
        what = f"Operator '{self.label(task)}' (kind {operator.kind})"
        if is_out_of_memory(error):
            return ExecutionError(
                f"{what} ran out of memory on device '{device}' ({worker.spec.device}): "
                f"{reason_of(error)}; run fewer jobs at once, or smaller batches"
            )
        return ExecutionError(f"{what} failed on device '{device}': {reason_of(error)}")

    # -- events ---------------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._origin

    def _keep(self, task: int, device: int, written: tuple[torch.Tensor, ...]) -> None:
        """Put what a task wrote where its readers find it."""
        readers, values = self._readers, self._values[self.space_of[device]]
        for tensor, value in zip(self._results[task], written, strict=True):
            if readers[tensor]:
                values[tensor] = value

    def _finish(
        self,
        worker: Worker,
        task: int,
        start: float,
        finish: float,
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """A worker has finished with a task: apply that, decide, and hand out what can start."""
        self._apply(worker, task, start, finish, written)
        worker.task = -1
        self._parked[worker.device].append(worker)
        self._decide()
        self._proceed(worker)

    def _learnt(
        self,
        worker: Worker,
        task: int,
        start: float,
        finish: float,
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """The host knows that a task has ended which was submitted ahead: apply that, decide, and hand out."""
        self._apply(worker, task, start, finish, written)
        self._decide()
        self._proceed(None)

    def _apply(
        self,
        worker: Worker,
        task: int,
        start: float,
        finish: float,
        written: tuple[torch.Tensor, ...],
    ) -> None:
        """Apply a task's end."""
        self.now = self.clock()
        device = worker.device
        job = self.task_job[task]
        readers = self._readers
        if job in self._cuts:
            self._divide(job, task, self._values[self.space_of[device]], written)
        for tensor in self._consumed[task]:
            readers[tensor] -= 1
            if not readers[tensor]:
                for held in self._values:
                    held[tensor] = None
        touched = self.touched
        for successor in self._complete(task, device):
            place = self.task_device[successor]
            if place >= 0:
                touched.add(place)
                if not self.pushes and self._moves:
                    self._request_inputs(successor, place)
        if self._issuing:
            # The others that a successor waits for may all be submitted to its own device.
            places = (self.task_device[successor] for successor in self.successors_of(task))
            touched.update(place for place in places if place in self._issuing)
        if self._moves:
            self._request_outputs(task, device)
        self.finished.append(task)
        done = self.now if device in self._issuing else finish  # a job is done when that is known
        self.done_at[job] = max(self.done_at[job], done)
        if not self.tasks_left[job]:
            for member in self.members.get(job, ())[1:]:
                self.done_at[member] = self.done_at[job]
        self._unfinished -= 1
        self._busy -= 1
        self._recorder.execution(
            task,
            job,
            task - self.first_task[job],
            device,
            worker.slot,
            min(self.ready_at[task], start),  # it may have begun before the host knew that it could
            self.placed_at[task],
            start,
            finish,
        )
        touched.add(device)

    def _decide(self) -> None:
        self.ready.sort()
        began = time.perf_counter()
        self.scheduler.decide(self)
        self.deciding_seconds += time.perf_counter() - began
        self.decisions += 1
        self._clear_instant()
        if self.requested:
            self._send()

    def _proceed(self, current: Worker | None) -> None:
        """Give startable heads of queues to parked workers, and see whether the run is over."""
        for device in self.touched:
            if device in self._issuing:
                self._issuing[device].feed()
            workers = self._parked[device]
            while workers:
                task = self.head(device)
                if task < 0 or self.pending[task] or not self._has_inputs(task, device):
                    break
                self._take(device)
                # The thread that is awake goes on itself; another would have to be woken.
                worker = current if current in workers else workers[-1]
                assert worker is not None
                workers.remove(worker)
                worker.task = task
                if worker is not current:
                    worker.bell.ring()
        self.touched.clear()
        if not self._busy and not self._copying and self._next_job == len(self._workload):
            if not self._unfinished:
                self._stop(None)
            elif not self._wakes:
                self._check_finished(self.scheduler)

    def _has_inputs(self, task: int, device: int) -> bool:
        """Whether what a task reads and is known to be written is in its device's memory."""
        return not self._moves or self._data_is_here(task, device)

    def _take(self, device: int) -> None:
        """Take the head of a device's queue out of it: it can no longer be withdrawn."""
        task = self._start(device)
        self.started[task] = True
        self.start_time[task] = self.now
        self._busy += 1

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
        for issuing in self._issuing.values():
            issuing.wake()
        self._attention.set()

    def _admit_due(self) -> bool:
        """Admit the jobs whose time has come; returns whether there were any."""
        jobs = self._workload.jobs
        before = self._next_job
        while self._next_job < len(jobs) and jobs[self._next_job].arrival <= self.now:
            self._arrive(jobs[self._next_job])
            self._next_job += 1
        return self._next_job > before

    # -- placement ------------------------------------------------------------------------------

    def accept(self, task: int, device: int, rank: float) -> None:
        """See :class:`SchedulingContext`."""
        self.touched.add(device)
        if self._moves and (self.pushes or not self.pending[task]):
            self._request_inputs(task, device)

    def _release(self, task: int, device: int) -> None:
        self.touched.add(device)

    def _began(self, task: int) -> float:
        return self.start_time[task]

    def _wake(self, time: float) -> None:
        heappush(self._wakes, time)
        self._attention.set()

    # -- the end --------------------------------------------------------------------------------

    def _trace(self, planning: float) -> Trace:
        count = len(self.jobs)
        statuses, reasons = ["finished"] * count, [""] * count
        for job, (_, reason) in self.rejected.items():
            statuses[job], reasons[job] = "rejected", reason
        settings: dict[str, Any] = {
            "world": self.world,
            "scheduler": self.scheduler.name,
            "movement": self.movement,
            "contention": self.contention,
            "workers": [_described(spec) for spec in self._machine.specs],
            "spinning": self._machine.spinning,
        }
        launched = [
            [device, issuing.launched, issuing.launching_seconds]
            for device, issuing in self._issuing.items()
            if issuing.launched
        ]
        if launched:
            settings["launched"] = launched
        figures = {"planning_seconds": planning}
        if self._joints:
            settings["splitting_s"] = self._splitting_seconds
            settings["joins"] = [[job, j.jobs, j.seconds] for job, j in self._joints.items()]
            figures["joining_seconds"] = sum(joint.seconds for joint in self._joints.values())
            figures["splitting_seconds"] = self._splitting_seconds
        trace = self._recorder.trace(
            cluster=self.cluster,
            jobs=self._workload.jobs,
            first_tensor=self.first_tensor,
            finishes=self.done_at,
            settings=settings,
            decisions=self.decisions,
            deciding_seconds=self.deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=self.members,
            served_by=self.served_by,
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


def _described(spec: WorkerSpec) -> dict[str, Any]:
    return {
        "device": spec.device,
        "cores": list(spec.cores),
        "repeat_kernel": spec.repeat_kernel,
        "threads": spec.threads,
    }
