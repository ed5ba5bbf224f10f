"""What a fixed plan comes to, fast: the engine's semantics without a scheduler, compiled.

Search planners ask for the makespan of thousands of plans of one graph. An :class:`Evaluator` is
prepared once for a graph on a cluster and then takes one plan after another: a device for every task,
and an order in which devices take up their tasks. It gives the times that
:func:`simulator.engine.run.simulate` gives when a scheduler places everything at the job's arrival, ranked
by that order; property tests hold the two equal.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.context.scheduling import EVERYWHERE, MOVEMENTS
from simulator.devices.shared_rate import shares_rates
from simulator.errors import InvalidInput, SchedulingError
from simulator.model.cluster import Cluster, Device
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job

CONTENTIONS = ("none", "fifo")
MODELLED = frozenset({"name", "space", "profile", "slots", "launch_overhead"}) | frozenset(
    {"power_idle", "power_busy", "price", "issue_depth"}
)
"""Properties of devices that are taken into account, or that no time depends on; others must be left
at their defaults."""


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
    """Evaluates plans for one job on one cluster.

    Memory is taken to be plentiful, weights to be resident, links to be steady and devices to run at constant rates. The
    first evaluation in a process compiles (seconds), or loads what was compiled before (0.1 s). Its
    working arrays are its own: one evaluator for each thread.

    Args:
        job: the job; a graph means one job of it at time 0, from and to the cluster's host memory.
        cluster: devices, memory spaces and links.
        costs: seconds of every task on every device.
        movement: ``push`` or ``pull``.
        contention: ``none`` or ``fifo``.
        available: float64[slots], device by device: when each slot is free of what was planned before
            and runs first, seconds; None: all are idle. Links are taken to be idle at the arrival.

    Raises:
        InvalidInput: the parts do not fit together, or ask for what is not evaluated here.
    """

    def __init__(
        self,
        job: Job | DataflowGraph,
        cluster: Cluster,
        costs: CostTable,
        *,
        movement: str = "push",
        contention: str = "none",
        available: ArrayLike | None = None,
    ) -> None:
        if isinstance(job, DataflowGraph):
            job = Job(job, origin=cluster.host, destination=cluster.host)
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
        if shares_rates(cluster):
            raise InvalidInput(
                f"Tasks of cluster '{cluster.name}' slow each other (processor sharing, a memory's "
                "bandwidth or co-run slowdown), which the evaluator of fixed plans does not know; "
                "simulate it instead"
            )
        costs.check_covers(cluster)
        cluster.check_connected()
        self.graph = graph = job.graph
        self.cluster = cluster
        self.movement, self.contention = movement, contention
        self.arrival = float(job.arrival)
        self._origin = _space(cluster, job, "origin", job.origin)
        self._destination = _space(cluster, job, "destination", job.destination)
        self._seconds = costs[graph].seconds + np.array(
            [device.launch_overhead for device in cluster.devices]
        )
        self._direct = movement == "push" and contention == "none"
        self._prepare_cluster()
        self._prepare_graph(graph)
        self._prepare_room()
        slots = int(self._slot_offsets[-1])
        free = np.zeros(slots) if available is None else np.asarray(available, dtype=np.float64)
        if free.shape != (slots,) or not np.isfinite(free).all():
            raise InvalidInput(
                f"Cluster '{cluster.name}' has {slots} slots; when each is free takes that many finite "
                f"seconds, got an array of shape {free.shape}"
            )
        self._available = np.maximum(free, self.arrival)
        # Imported here, so that nobody loads numba who does not evaluate.
        from simulator.planners import compiled

        self._compiled: Any = compiled

    def _prepare_cluster(self) -> None:
        cluster = self.cluster
        spaces = len(cluster.spaces)
        self._space_of = np.array(cluster.space_of, dtype=np.int32)
        slots = np.array([device.slots for device in cluster.devices], dtype=np.int64)
        self._slot_offsets = np.concatenate([[0], np.cumsum(slots)]).astype(np.int64)
        self._latency = np.zeros((spaces, spaces))
        self._bandwidth = np.full((spaces, spaces), math.inf)
        channels: list[tuple[int, ...]] = [()] * (spaces * spaces)
        for a in sorted({*cluster.space_of, self._origin} - {EVERYWHERE}):
            for b in sorted({*cluster.space_of, self._destination} - {EVERYWHERE}):
                if a != b:
                    route = cluster.route(a, b)
                    self._latency[a, b] = route.latency
                    self._bandwidth[a, b] = route.bandwidth
                    channels[a * spaces + b] = route.channels
        self._route_offsets = np.concatenate([[0], np.cumsum([len(c) for c in channels])])
        self._routes = np.array([c for route in channels for c in route], dtype=np.int64)

    def _prepare_graph(self, graph: DataflowGraph) -> None:
        reads, producer = graph.activations_csr, graph.tensor_producer
        self._reads, self._writes = reads, graph.writes_csr
        # Readers of each tensor, and for each reader which of its reads that is.
        by_tensor = np.argsort(reads.values, kind="stable").astype(np.int32)
        self._consumers = reads.row_of[by_tensor]
        self._read_of = by_tensor
        count = np.bincount(reads.values, minlength=len(graph.tensors))
        self._consumer_offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        self._producer = producer
        written = producer[reads.values] >= 0
        self._in_degree = np.bincount(reads.row_of[written], minlength=len(graph)).astype(np.int32)
        self._inputs = np.array(graph.inputs, dtype=np.int64)
        self._delivered = np.zeros(len(graph.tensors), dtype=np.bool_)
        self._delivered[list(graph.outputs)] = True
        self._size = np.array(graph.tensor_bytes)

    def _prepare_room(self) -> None:
        """Arrays that every evaluation writes anew."""
        tasks, devices = self._seconds.shape
        slots = int(self._slot_offsets[-1])
        self._queue_offsets = np.zeros(devices + 1, dtype=np.int64)
        self._queue = np.empty(tasks, dtype=np.int32)
        self._head = np.empty(devices, dtype=np.int64)
        self._last_start = np.empty(devices)
        self._pending = np.empty(tasks, dtype=np.int32)
        self._start, self._finish = np.empty(tasks), np.empty(tasks)
        if self._direct:
            self._slot_free = np.empty(slots)
            self._data = np.empty(tasks)
            self._stack = np.empty(tasks + devices, dtype=np.int32)
            return
        tensors = len(self._producer)
        most = len(self._consumers) + int(self._delivered.sum())
        self._channel_free = np.empty(len(self.cluster.channels))
        self._crossing_offsets = np.empty(tensors + 1, dtype=np.int64)
        self._crossing_space = np.empty(most, dtype=np.int32)
        self._crossing_tensor = np.empty(most, dtype=np.int32)
        self._crossing_of_read = np.empty(len(self._reads.values), dtype=np.int32)
        self._delivery = np.empty(tensors, dtype=np.int32)
        self._crossing_at = np.empty(len(self.cluster.spaces), dtype=np.int64)
        self._arrival = np.empty(most)
        self._requests = np.empty(most, dtype=np.int32)
        self._free_slots = np.empty(devices, dtype=np.int64)
        self._touched = np.empty(devices, dtype=np.bool_)
        self._heap_time = np.empty(slots)
        self._heap_task = np.empty(slots, dtype=np.int64)
        self._due = np.empty(max(slots, 1), dtype=np.int64)
        self._later = np.empty(max(slots, 1), dtype=np.int64)

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
        place = self._column("devices", device)
        makespan, done = self._run(place, self._column("order", order))
        if done < len(place):
            self._refuse_stuck()
        return float(makespan)

    def schedule(self, device: ArrayLike, order: ArrayLike) -> Schedule:
        """As :meth:`evaluate`, with every task's start and finish."""
        makespan = self.evaluate(device, order)
        return Schedule(makespan, self._start.copy(), self._finish.copy())

    def _column(self, what: str, values: ArrayLike) -> np.ndarray:
        column = np.asarray(values)
        tasks = len(self._queue)
        if column.shape != (tasks,) or column.dtype.kind not in "iu":
            raise SchedulingError(
                f"A plan for '{self.graph.name}' needs the {what} of {tasks} tasks as integers, got "
                f"{column.dtype} of shape {column.shape}"
            )
        return np.ascontiguousarray(column, dtype=np.int64)

    def _run(self, device: np.ndarray, order: np.ndarray) -> tuple[float, int]:
        # Tasks are marked as seen in an array that is filled anew afterwards.
        error, where = self._compiled.enqueue(
            device, order, self._seconds, self._queue_offsets, self._queue, self._pending
        )
        if error:
            self._refuse(error, where, device, order)
        if self._direct:
            return self._compiled.run_uncontended(
                device,
                self.arrival,
                self._seconds,
                self._space_of,
                self._slot_offsets,
                self._writes.offsets,
                self._writes.values,
                self._consumer_offsets,
                self._consumers,
                self._in_degree,
                self._inputs,
                self._origin,
                self._destination,
                self._delivered,
                self._size,
                self._latency,
                self._bandwidth,
                self._queue_offsets,
                self._queue,
                self._head,
                self._last_start,
                self._slot_free,
                self._available,
                self._pending,
                self._data,
                self._stack,
                self._start,
                self._finish,
            )
        self._compiled.find_crossings(
            device,
            self._space_of,
            self._producer,
            self._origin,
            self._destination,
            self._delivered,
            self._consumer_offsets,
            self._consumers,
            self._read_of,
            self._crossing_offsets,
            self._crossing_space,
            self._crossing_tensor,
            self._crossing_of_read,
            self._delivery,
            self._crossing_at,
        )
        return self._compiled.run_events(
            device,
            self.arrival,
            self.movement == "push",
            self.contention == "fifo",
            self._seconds,
            self._space_of,
            self._slot_offsets,
            self._writes.offsets,
            self._writes.values,
            self._reads.offsets,
            self._consumer_offsets,
            self._consumers,
            self._producer,
            self._in_degree,
            self._inputs,
            self._origin,
            self._size,
            self._latency,
            self._bandwidth,
            self._route_offsets,
            self._routes,
            self._channel_free,
            self._queue_offsets,
            self._queue,
            self._crossing_offsets,
            self._crossing_space,
            self._crossing_tensor,
            self._crossing_of_read,
            self._delivery,
            self._arrival,
            self._requests,
            self._head,
            self._last_start,
            self._free_slots,
            self._available,
            self._touched,
            self._pending,
            self._heap_time,
            self._heap_task,
            self._due,
            self._later,
            self._start,
            self._finish,
        )

    # -- refusals -------------------------------------------------------------------------------

    def _refuse(self, error: int, where: int, device: np.ndarray, order: np.ndarray) -> None:
        compiled, operators, devices = self._compiled, self.graph.operators, self.cluster.devices
        if error == compiled.NO_DEVICE:
            raise SchedulingError(
                f"There is no device {device[where]} for task '{operators[where].name}'; the cluster "
                f"has {len(devices)}"
            )
        if error == compiled.UNABLE:
            name = devices[device[where]].name
            raise SchedulingError(f"Device '{name}' cannot run task '{operators[where].name}'")
        if error == compiled.NO_TASK:
            raise SchedulingError(
                f"There is no task {order[where]} to place; the plan's order has tasks "
                f"0 to {len(order) - 1}"
            )
        raise SchedulingError(f"Task '{operators[where].name}' stands twice in the plan's order")

    def _refuse_stuck(self) -> None:
        ends = self._queue_offsets[1:]
        place = int(np.argmax(self._head < ends))
        task = int(self._queue[self._head[place]])
        raise SchedulingError(
            f"The plan leaves {int((ends - self._head).sum())} tasks not run: device "
            f"'{self.cluster.devices[place].name}' must run '{self.graph.operators[task].name}' next, "
            "whose predecessors wait behind other tasks; the plan's order contradicts the graph"
        )


def _space(cluster: Cluster, job: Job, what: str, name: str | None) -> int:
    if name is None:
        return EVERYWHERE
    if name not in cluster.space_index:
        raise InvalidInput(
            f"A job of '{job.graph.name}' has {what} '{name}', which is no memory space of cluster "
            f"'{cluster.name}'; it has {', '.join(cluster.space_index)}"
        )
    return cluster.space_index[name]


def _check_modelled(device: Device) -> None:
    for field in dataclasses.fields(device):
        if field.name in MODELLED or field.default is dataclasses.MISSING:
            continue
        if getattr(device, field.name) != field.default:
            raise InvalidInput(
                f"Device '{device.name}' has {field.name} {getattr(device, field.name)}, which the "
                "evaluator of fixed plans does not know; simulate it instead"
            )
