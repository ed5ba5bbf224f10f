"""What a fixed plan comes to, fast: the engine's semantics without a scheduler, compiled.

Search planners ask for the makespan of thousands of plans of one graph. An :class:`Evaluator` is
prepared once for jobs on a cluster and then takes one plan after another: a device for every task,
and an order in which devices take up their tasks. It gives the times, and the trace, that
:func:`simulator.engine.simulate` gives when a scheduler places all of a job at its arrival, ranked
by that order; property tests hold the two equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

import simulator.engine.evaluator_arrays as arrays
from simulator.context.scheduling import MOVEMENTS
from simulator.devices.shared_rate import shares_rates
from simulator.devices.weight_cache import caches_weights
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device, Link
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.model.trace import Trace, assemble, executed, transferred
from simulator.model.workload import Job, Workload

CONTENTIONS = ("none", "fifo")
MODELLED = frozenset({"name", "space", "profile", "slots", "launch_overhead"}) | frozenset(
    {"power_idle", "power_busy", "price", "issue_depth", "issue_overhead", "wake_after", "speed"}
)
"""Properties of devices that are taken into account, or that no time depends on where the others are left at their
defaults, as they must be."""


class Schedule(NamedTuple):
    """Times of a plan, seconds.

    ``start`` and ``finish`` are float64[tasks]; ``makespan`` is the last finish or delivery.
    """

    makespan: float
    start: np.ndarray
    finish: np.ndarray


def order_of(rank: ArrayLike) -> np.ndarray:
    """The order of tasks with these ranks: ascending, equal ones by task; int64[tasks]."""
    return np.argsort(np.asarray(rank), kind="stable")


class Evaluator:
    """Evaluates plans for jobs on one cluster.

    Memory is taken to be plentiful, weights to be resident, links to be steady and devices to run at constant rates. A device
    runs the tasks of jobs that have arrived strictly in the order of the plan. The first evaluation in a process
    compiles (seconds), or loads what was compiled before (below a second). Its working arrays are its own: one
    evaluator for each thread.

    Args:
        jobs: a workload whose jobs are all known, or one job; a graph means one job of it at time 0, from and to
            the cluster's host memory. Tasks count through all jobs, job by job.
        cluster: devices, memory spaces and links.
        costs: seconds of every task on every device.
        movement: ``push`` or ``pull``.
        contention: ``none`` or ``fifo``.
        available: float64[slots], device by device: when each slot is free of what was planned before
            and runs first, seconds; None: all are idle. Links are taken to be idle at the first arrival.
        actual: for each job float64[operators, devices], the seconds that happen; None: those of ``costs``.

    Raises:
        InvalidInput: the parts do not fit together, or ask for what is not evaluated here.
    """

    def __init__(
        self,
        jobs: Workload | Job | DataflowGraph,
        cluster: Cluster,
        costs: CostTable,
        *,
        movement: str = "push",
        contention: str = "none",
        available: ArrayLike | None = None,
        actual: Sequence[np.ndarray] | None = None,
    ) -> None:
        if isinstance(jobs, DataflowGraph):
            jobs = Job(jobs, origin=cluster.host, destination=cluster.host)
        if isinstance(jobs, Workload) and (jobs.reacts or not jobs.known):
            raise InvalidInput(
                "Fixed plans are evaluated for jobs that are all known before; simulate the workload instead"
            )
        self.jobs = tuple(jobs) if isinstance(jobs, Workload) else (jobs,)
        self.cluster = cluster
        self.movement, self.contention = movement, contention
        check_settings(cluster, movement, contention)
        costs.check_covers(cluster)
        cluster.check_connected()
        for job in self.jobs:
            _check_spaces(cluster, job)
        seconds = [costs[job.graph].seconds for job in self.jobs] if actual is None else actual
        slots = sum(device.slots for device in cluster.devices)
        free = np.zeros(slots) if available is None else np.asarray(available, dtype=np.float64)
        if free.shape != (slots,) or not np.isfinite(free).all():
            raise InvalidInput(
                f"Cluster '{cluster.name}' has {slots} slots; when each is free takes that many finite "
                f"seconds, got an array of shape {free.shape}"
            )
        self._static = arrays.static_of(self.jobs, cluster, seconds, free)
        self._queues = arrays.queues_for(self._static)
        direct = movement == "push" and contention == "none" and len(self.jobs) == 1
        self._crossings = None if direct else arrays.crossings_for(self._static, tracing=False)
        channels = len(cluster.channels)
        self._room = arrays.room_for(self._static, channels, events=not direct, tracing=False)
        # Imported here, so that nobody loads numba who does not evaluate.
        import simulator.engine.evaluator_loops as compiled

        self._compiled: Any = compiled

    # -- evaluation -----------------------------------------------------------------------------

    def evaluate(self, device: ArrayLike, order: ArrayLike) -> float:
        """The makespan of a plan: seconds from time 0 to the last finish or delivery.

        Args:
            device: int[tasks], the device of every task.
            order: int[tasks], every task once; each device runs its tasks in the order in which they
                stand here. :func:`order_of` makes it from ranks.

        Raises:
            SchedulingError: a task on no device or on one that cannot run it, a task missing, or
                an order that contradicts the graph.
        """
        return self._run(device, order, self._crossings, self._room)

    def schedule(self, device: ArrayLike, order: ArrayLike) -> Schedule:
        """As :meth:`evaluate`, with every task's start and finish."""
        makespan = self.evaluate(device, order)
        return Schedule(makespan, self._room.start.copy(), self._room.finish.copy())

    def plan(
        self, origin: str, device: ArrayLike, order: ArrayLike, makespan: float | None = None
    ) -> Plan:
        """A plan with its makespan, evaluated unless given."""
        makespan = self.evaluate(device, order) if makespan is None else makespan
        graphs = tuple(job.graph for job in self.jobs)
        names = tuple(d.name for d in self.cluster.devices)
        return Plan(origin, graphs, names, np.asarray(device), np.asarray(order), makespan)

    def trace(
        self,
        device: ArrayLike,
        order: ArrayLike,
        *,
        scheduler: str = "fixed_plan",
        deciding_seconds: float = 0.0,
    ) -> Trace:
        """As :meth:`evaluate`, with the trace that the engine would write.

        Args:
            device: see :meth:`evaluate`.
            order: see :meth:`evaluate`.
            scheduler: what the trace calls the plan's maker.
            deciding_seconds: wall-clock seconds that making the plan took.
        """
        static, cluster = self._static, self.cluster
        crossings = arrays.crossings_for(static, tracing=True)
        room = arrays.room_for(static, len(cluster.channels), events=True, tracing=True)
        place = self._column("devices", device)
        self._run(place, order, crossings, room)
        first_task = static.task_offsets[:-1]
        tensors = arrays.offsets([len(job.graph.tensors) for job in self.jobs])
        done = np.maximum.reduceat(room.finish, first_task)
        delivered = np.flatnonzero(crossings.delivers[: crossings.offsets[-1]])
        owner = np.searchsorted(tensors, crossings.tensor[delivered], side="right") - 1
        np.maximum.at(done, owner, crossings.end[delivered])
        settings = {
            "world": "simulated",
            "engine": "evaluator",
            "scheduler": scheduler,
            "movement": self.movement,
            "contention": self.contention,
            "memory": "unlimited",
            "weights": "resident",
        }
        executions = self._executions(place, room)
        return assemble(
            executions,
            self._transfers(crossings, tensors[:-1]),
            cluster,
            self.jobs,
            tensors[:-1].tolist(),
            done.tolist(),
            settings,
            len(np.unique(static.arrivals)),
            deciding_seconds,
        )

    def _executions(self, device: np.ndarray, room: arrays.Room) -> Any:
        static, task = self._static, room.ended
        placed = static.arrivals[static.job]
        ready = placed.copy()
        written = static.producer[static.reads]
        reader = np.repeat(np.arange(len(ready)), np.diff(static.read_offsets))
        by_task = written >= 0
        np.maximum.at(ready, reader[by_task], room.finish[written[by_task]])
        columns = (device, room.slot, ready, placed, room.start, room.finish)
        known = [task, *(column[task] for column in columns)]
        return executed(static.task_offsets[:-1], known)

    def _transfers(self, crossings: arrays.Crossings, first_tensor: np.ndarray) -> Any:
        order = crossings.order[: crossings.offsets[-1]]
        tensor = crossings.tensor[order]
        times = [column[order] for column in (crossings.requested, crossings.start, crossings.end)]
        return transferred(
            self.cluster,
            first_tensor,
            tensor,
            crossings.home[tensor],
            crossings.space[order],
            [*times, self._static.size[tensor]],
        )

    def _column(self, what: str, values: ArrayLike) -> np.ndarray:
        column = np.asarray(values)
        tasks = len(self._static.job)
        if column.shape != (tasks,) or column.dtype.kind not in "iu":
            raise SchedulingError(
                f"A plan for {self._name} needs the {what} of {tasks} tasks as integers, got "
                f"{column.dtype} of shape {column.shape}"
            )
        return arrays.fixed(column)

    @property
    def _name(self) -> str:
        graph = self.jobs[0].graph.name
        return f"'{graph}'" if len(self.jobs) == 1 else f"{len(self.jobs)} jobs"

    def _run(
        self,
        devices: ArrayLike,
        entries: ArrayLike,
        crossings: arrays.Crossings | None,
        room: arrays.Room,
    ) -> float:
        device, order = self._column("devices", devices), self._column("order", entries)
        compiled, static, queues = self._compiled, self._static, self._queues
        error, where = compiled.enqueue(device, order, static, queues)
        if error:
            self._refuse(error, where, device, order)
        if crossings is None:
            makespan, begun = compiled.run_uncontended(device, static, queues, room)
        else:
            compiled.find_crossings(device, static, crossings)
            push, fifo = self.movement == "push", self.contention == "fifo"
            makespan, begun = compiled.run_events(
                device, push, fifo, static, queues, crossings, room
            )
        if begun < len(device):
            self._refuse_stuck()
        return float(makespan)

    # -- refusals -------------------------------------------------------------------------------

    def _label(self, task: int) -> str:
        """A task's name for people: the operator, and the job where there are several."""
        job = int(self._static.job[task])
        name = self.jobs[job].graph.operators[task - int(self._static.task_offsets[job])].name
        return name if len(self.jobs) == 1 else f"{name}#{job}"

    def _refuse(self, error: int, where: int, device: np.ndarray, order: np.ndarray) -> None:
        compiled, devices = self._compiled, self.cluster.devices
        if error == compiled.NO_DEVICE:
            raise SchedulingError(
                f"There is no device {device[where]} for task '{self._label(where)}'; the cluster "
                f"has {len(devices)}"
            )
        if error == compiled.UNABLE:
            name = devices[device[where]].name
            raise SchedulingError(f"Device '{name}' cannot run task '{self._label(where)}'")
        if error == compiled.NO_TASK:
            raise SchedulingError(
                f"There is no task {order[where]} to place; the plan's order has tasks "
                f"0 to {len(order) - 1}"
            )
        raise SchedulingError(f"Task '{self._label(where)}' stands twice in the plan's order")

    def _refuse_stuck(self) -> None:
        head, tail = self._queues.head, self._queues.tail
        place = int(np.argmax(head < tail))
        task = int(self._queues.queue[head[place]])
        raise SchedulingError(
            f"The plan leaves {int((tail - head).sum())} tasks not run: device "
            f"'{self.cluster.devices[place].name}' must run '{self._label(task)}' next, "
            "whose predecessors wait behind other tasks; the plan's order contradicts the graph"
        )


def evaluable(cluster: Cluster) -> Cluster:
    """The cluster as the evaluator can take it: its devices have slots and nothing that changes rates, whose memories cache nothing and whose
    links wait for no launcher; launch overheads are left to the times, those of links to latencies.
    """
    kept = MODELLED - {"launch_overhead"}
    devices = [
        Device(**{field: getattr(device, field) for field in kept}) for device in cluster.devices
    ]
    spaces = [
        dataclasses.replace(space, bandwidth=None, corun_slowdown=0.0, cache=None)
        for space in cluster.spaces
    ]
    links = [
        Link(k.name, k.ends, k.bandwidth, k.latency + 2 * k.launch_overhead, k.half_duplex)
        for k in cluster.links
    ]
    return dataclasses.replace(cluster, spaces=spaces, devices=devices, links=links)


def check_settings(cluster: Cluster, movement: str, contention: str) -> None:
    """Refuse what plans are not evaluated under.

    Raises:
        InvalidInput: says what it is.
    """
    for what, value, known in (
        ("movement", movement, MOVEMENTS),
        ("contention", contention, CONTENTIONS),
    ):
        if value not in known:
            raise InvalidInput(
                f"Fixed plans are evaluated under {what} {' or '.join(known)}, not '{value}'; "
                "simulate it instead"
            )
    for device in cluster.devices:
        _check_modelled(device)
    for is_so, what in (
        (
            shares_rates(cluster),
            "Tasks of cluster '{}' slow each other (processor sharing, a memory's bandwidth or co-run slowdown)",
        ),
        (caches_weights(cluster), "Memory spaces of cluster '{}' cache weights"),
        (
            any(link.launcher is not None for link in cluster.links),
            "Links of cluster '{}' have launchers",
        ),
    ):
        if is_so:
            raise InvalidInput(
                what.format(cluster.name)
                + ", which the evaluator of fixed plans does not know; simulate it instead"
            )


def _check_spaces(cluster: Cluster, job: Job) -> None:
    for what, name in (("origin", job.origin), ("destination", job.destination)):
        if name is not None and name not in cluster.space_index:
            raise InvalidInput(
                f"A job of '{job.graph.name}' has {what} '{name}', which is no memory space of cluster "
                f"'{cluster.name}'; it has {', '.join(cluster.space_index)}"
            )


def _check_modelled(device: Device) -> None:
    for field in dataclasses.fields(device):
        if field.name in MODELLED or field.default is dataclasses.MISSING:
            continue
        if getattr(device, field.name) != field.default:
            raise InvalidInput(
                f"Device '{device.name}' has {field.name} {getattr(device, field.name)}, which the "
                "evaluator of fixed plans does not know; simulate it instead"
            )
