"""The hardware runner: the scheduling context on real devices.

The same scheduler object that :mod:`simulator.engine.run` simulates runs here on worker threads
(:mod:`calibration.hardware_run`).

Clock: wall-clock seconds since the start of the run. What is decided for jobs that arrive at time 0 is
decided before the clock starts: the makespan of a static plan does not contain its planning, here as in
the simulation (``wallclock["planning_seconds"]`` has it).

In the trace, ``start`` and ``finish`` of an execution enclose its kernel alone. What the runner itself
needs for an operator (completion, decision, hand-over, and concatenating a batch's inputs) is the gap
between executions; see :mod:`experiments.probes.runner_overhead` for measuring it.

Imports neither simpy nor hydra nor xgboost.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import torch

from calibration.copies import Copier
from calibration.environment import check_device, matrix_precision, steady_allocator
from calibration.hardware_run import Execution, HardwareRun
from calibration.program import PlacedWeights, Program, Tensors
from calibration.serving_run import Inputs
from calibration.workers import Bell, SleepingBell, SpinningBell, Worker, WorkerSpec, may_spin
from simulator.context.scheduler import Scheduler
from simulator.errors import ExecutionError, InvalidInput
from simulator.model.cluster import Cluster, Device
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.segments import Segments
from simulator.model.workload import Job, Workload

__all__ = ["Execution", "Machine"]

SWITCH_SECONDS = 2e-5
"""Until a thread that asks for the interpreter takes it from another that keeps it. Python's own 5 ms are many
light operators: a worker that has a kernel to begin waited for them, while its core was idle."""


CLOSING_S = 2.0
"""What closing a machine may take at most."""


class Machine:
    """The devices of a cluster as worker threads of this process.

    Use it as a context manager; several runs may follow each other. Creating one makes glibc keep
    freed memory, as measuring does (:func:`calibration.environment.steady_allocator`). Its workers take
    denormal numbers for zero, as measuring does, too.

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
        self.kinds = [spec.kind for spec in self.specs]
        self.memories = self._memories()
        # Threads that learn of ends have no core of their own, and would wait for who spins.
        issued = any(device.completion_latency for device in cluster.devices)
        self.spinning = may_spin(self.specs) and not issued if spin is None else spin
        self.workers: list[Worker] = []
        self.copiers: dict[tuple[int, int], Copier] = {}
        self._programs: dict[DataflowGraph, Program] = {}
        self._placed = PlacedWeights()
        self._stuck: list[str] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def spare_cores(self) -> int:
        """Cores that this process may use, beyond one for each worker: where there are none, whoever copies waits for a
        core.
        """
        return len(os.sched_getaffinity(0)) - len(self.workers)

    @property
    def flushes_denormals(self) -> bool:
        """Whether kernels on processors take denormal numbers for zero, as in measuring."""
        return all(worker.flushes_denormals for worker in self.workers)

    def _spec(self, name: str, workers: Mapping[str, WorkerSpec]) -> WorkerSpec:
        spec = workers.get(name)
        if spec is None:
            raise InvalidInput(
                f"Device '{name}' of cluster '{self.cluster.name}' has no worker here; given: "
                f"{', '.join(workers) or 'none'}"
            )
        device = self.cluster.devices[self.cluster.device_index[name]]
        slots = device.slots
        if slots > 1 and device.completion_latency:
            raise InvalidInput(
                f"Device '{name}' has {slots} slots and a completion latency: operators are submitted ahead to one "
                "stream at a time; give it one slot, or no completion_latency"
            )
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
        for place in {spec.device for spec in self.specs if spec.device != "cpu"}:
            # Here and not on a worker's thread: threads that the driver starts are bound to what starts them.
            check_device(place)
            torch.zeros(1, device=place)
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
        """Let all threads end, and wait for those that are not stuck in a kernel: one that still executes torch's code
        when the interpreter ends can abort the process.
        """
        threads: list[Worker | Copier] = [*self.workers, *self.copiers.values()]
        for thread in threads:
            thread.close()
        until = time.monotonic() + CLOSING_S
        for thread in threads:
            if thread.name not in self._stuck:
                thread.await_end(max(0.0, until - time.monotonic()))

    def load(
        self, graph: DataflowGraph, weights: Tensors, segments: Segments | None = None
    ) -> None:
        """Prepare a graph: its kernels and, in every memory space, its weights. What may serve several
        jobs together is loaded, too: each graph of ``Workload.batches``.

        Args:
            graph: of operators, or of segments.
            weights: by name; graphs of one module share them.
            segments: what a graph of segments is made of; each is executed as one operator.

        Raises:
            InvalidInput: a weight is missing, or an operator cannot be made runnable.
            ExecutionError: a device has no memory for the weights.
        """
        kinds, memories = self.kinds, self.memories
        self._programs[graph] = Program(graph, weights, kinds, memories, segments, self._placed)

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
        inputs: Inputs,
        *,
        believed: Cluster | None = None,
        movement: str = "push",
        contention: str = "none",
        limit: float = 600.0,
        patience: float = 10.0,
    ) -> Execution:
        """Execute a workload under a scheduler, in real time: jobs arrive by the wall clock.

        Schedulers may serve jobs together (``batch``): their inputs are concatenated, the batch's graph
        is executed once, and each job gets its share of the results. They may pack transfers
        (``pack``): what goes the same way is copied as one request and is all there at its end.

        Args:
            workload: jobs, or a graph for one job of it at time 0.
            costs: seconds as the scheduler believes them.
            scheduler: a fresh scheduler.
            inputs: for each graph of a job its input tensors by name, for all its jobs; or several such
                sets, which its jobs take in turn.
            believed: the cluster as the scheduler is to see it: the machine's own unless given, with
                other launch overheads or links.
            movement: ``push`` or ``pull``.
            contention: what schedulers are told about links, ``none`` or ``fifo``.
            limit: seconds after which a run that has not ended is given up.
            patience: seconds that an operator may take beyond ten times what is believed, before its
                worker counts as hanging.

        Raises:
            ExecutionError: an operator failed (it is named), a device ran out of memory, a worker died
                or hangs, or the limit was reached.
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
        run = HardwareRun(
            self, cluster, workload, costs, scheduler, inputs, movement, contention, patience
        )
        gpu = next((spec.device for spec in self.specs if spec.device != "cpu"), "cpu")
        with _steady_interpreter(), matrix_precision(gpu, tf32=False):
            return run.execute(limit)

    def _believed(self, cluster: Cluster | None) -> Cluster:
        if cluster is None:
            return self.cluster
        for mine, its in zip(self.cluster.devices, cluster.devices, strict=False):
            if _worked(mine) != _worked(its):
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


def _worked(device: Device) -> tuple[object, ...]:
    """What a device's workers are made for."""
    return device.name, device.space, device.slots, bool(device.completion_latency)


@contextlib.contextmanager
def _steady_interpreter() -> Iterator[None]:
    """Without garbage collection, whose pauses would fall on whichever operator comes next, and shared
    by the threads at once.
    """
    enabled, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if enabled:
            gc.enable()
