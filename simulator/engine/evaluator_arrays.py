"""The arrays that compiled loops over fixed plans read and write (:mod:`simulator.engine.evaluator_loops`).

Tasks and tensors count through all jobs, job by job. Rows are in CSR form (offsets, then values). What a plan
cannot change is read-only. Integers are int64 where nothing else is said, times are float64 seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.context import EVERYWHERE
from simulator.model.cluster import Cluster
from simulator.model.workload import Job


class Static(NamedTuple):
    """Jobs on a cluster: what all plans have in common."""

    arrivals: np.ndarray  # [jobs], ascending
    task_offsets: np.ndarray  # [jobs + 1]
    job: np.ndarray  # int32[tasks]
    input_offsets: np.ndarray  # [jobs + 1]
    inputs: np.ndarray  # tensors, by job
    seconds: np.ndarray  # [tasks, devices], launch overheads included; inf: unable
    in_degree: np.ndarray  # int32[tasks]: reads of tensors that tasks write
    write_offsets: np.ndarray  # [tasks + 1]
    writes: np.ndarray  # int32, tensors
    read_offsets: np.ndarray  # [tasks + 1], of reads
    reads: np.ndarray  # int32, tensors
    consumer_offsets: np.ndarray  # [tensors + 1]
    consumers: np.ndarray  # int32, tasks
    read_of: np.ndarray  # int32, the read that each consumer is
    producer: np.ndarray  # int32[tensors], -1 for none
    origin: np.ndarray  # int32[tensors], the space of inputs; -1 for everywhere, and for all others
    goal: np.ndarray  # int32[tensors], where results must arrive; -1 for nowhere
    state_offsets: np.ndarray  # [tensors + 1], into the next one
    state_readers: (
        np.ndarray
    )  # int32, tasks that read the weight that a tensor becomes for the next step
    size: np.ndarray  # float64[tensors], bytes
    space_of: np.ndarray  # int32[devices]
    slot_offsets: np.ndarray  # [devices + 1]
    device_of: np.ndarray  # [slots]
    available: np.ndarray  # [slots], when each is free of what was planned before
    latency: np.ndarray  # [spaces, spaces]
    bandwidth: np.ndarray  # [spaces, spaces], bytes per second
    route_offsets: np.ndarray  # [spaces * spaces + 1]
    routes: np.ndarray  # channels


class Queues(NamedTuple):
    """What devices have to run: ``queue[head:tail]`` of each has arrived and not started, in plan order."""

    position: np.ndarray  # int32[tasks], where a task stands in the plan
    by_job: np.ndarray  # int32[tasks], the tasks of each job in plan order
    offsets: np.ndarray  # [devices + 1], of the queues' room
    queue: np.ndarray  # int32[tasks]
    head: np.ndarray  # [devices]
    tail: np.ndarray  # [devices]
    write: np.ndarray  # [devices], while a job's tasks are merged in
    old: np.ndarray  # [devices], the same
    job_tail: np.ndarray  # [jobs]


class Crossings(NamedTuple):
    """The copies that a plan needs, a tensor to a space each, in the order of (tensor, space)."""

    offsets: np.ndarray  # [tensors + 1]
    space: np.ndarray  # int32
    tensor: np.ndarray  # int32
    of_read: np.ndarray  # int32[reads], -1 where a read needs none
    delivers: (
        np.ndarray
    )  # bool, whether it brings a tensor to where it must arrive before its job is done
    home: np.ndarray  # int32[tensors], where each lies first; -1 for everywhere
    at: np.ndarray  # [spaces], scratch
    end: np.ndarray  # -1 until it is asked for
    requests: np.ndarray  # int32, of one instant
    requested: np.ndarray  # when; empty where no trace is wanted, as the next two
    start: np.ndarray
    order: np.ndarray  # int32, all of them as they were sent


class Room(NamedTuple):
    """What an evaluation writes anew, apart from queues and crossings."""

    pending: np.ndarray  # int32[tasks]
    start: np.ndarray  # [tasks]
    finish: np.ndarray  # [tasks]
    last_start: np.ndarray  # [devices]
    slot_free: np.ndarray  # [slots], without events
    data: np.ndarray  # [tasks], without events
    stack: np.ndarray  # int32[tasks + devices], without events
    free_slots: np.ndarray  # [devices]
    touched: np.ndarray  # bool[devices]
    alarm: np.ndarray  # [devices], when to look again at a queue
    channel_free: np.ndarray  # [channels]
    heap_time: np.ndarray  # [slots]
    heap_task: np.ndarray  # [slots]
    due: np.ndarray  # [slots]
    later: np.ndarray  # [slots]
    busy: np.ndarray  # bool[slots]
    slot: np.ndarray  # int32[tasks]; empty where no trace is wanted, as the next one
    ended: np.ndarray  # int32[tasks], in the order of the trace's rows


def fixed(array: np.ndarray, kind: type = np.int64) -> np.ndarray:
    """A contiguous, read-only array of that type: compiled loops are made for one combination."""
    view: np.ndarray = np.ascontiguousarray(array, dtype=kind).view()
    view.setflags(write=False)
    return view


def offsets(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where the rows begin that have so many entries, and the end."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def _joined(arrays: Sequence[np.ndarray], shifts: Sequence[int], kind: type) -> np.ndarray:
    """Arrays of several jobs as one, the entries of each shifted by what came before."""
    if len(arrays) == 1:
        return fixed(arrays[0], kind)
    moved = [array + shift for array, shift in zip(arrays, shifts, strict=True)]
    return fixed(np.concatenate(moved), kind)


def static_of(
    jobs: Sequence[Job], cluster: Cluster, seconds: Sequence[np.ndarray], available: np.ndarray
) -> Static:
    """Prepare jobs, in order of arrival, on a cluster.

    Args:
        jobs: their memory spaces exist.
        cluster: connected.
        seconds: for each job float64[operators, devices], launch overheads left out.
        available: float64[slots].
    """
    graphs = [job.graph for job in jobs]
    tasks, tensors = offsets([len(g) for g in graphs]), offsets([len(g.tensors) for g in graphs])
    first_tensor = tensors[:-1].tolist()
    nothing = [0] * len(graphs)
    spaces_of = cluster.space_index
    reads = _joined([g.activations_csr.values for g in graphs], first_tensor, np.int32)
    read_count = np.concatenate([g.activations_csr.lengths for g in graphs])
    # A producer of none stays none.
    producer = _joined([g.tensor_producer for g in graphs], nothing, np.int32)
    if len(graphs) > 1:
        shift = np.repeat(tasks[:-1], np.diff(tensors))
        producer = fixed(np.where(producer >= 0, producer + shift, -1), np.int32)
    by_tensor = np.argsort(reads, kind="stable").astype(np.int32)
    reader = np.repeat(np.arange(tasks[-1], dtype=np.int32), read_count)
    origin, goal = (np.full(tensors[-1], EVERYWHERE, dtype=np.int32) for _ in range(2))
    for job, first in zip(jobs, first_tensor, strict=True):
        if job.origin is not None:
            origin[np.array(job.graph.inputs, dtype=np.int64) + first] = spaces_of[job.origin]
        if job.destination is not None:
            results = np.array(job.graph.outputs, dtype=np.int64)
            written = results[job.graph.tensor_producer[results] >= 0]
            goal[written + first] = spaces_of[job.destination]
    state: list[np.ndarray] = []
    state_count = np.zeros(tensors[-1], dtype=np.int64)
    for job, first, task in zip(jobs, first_tensor, tasks, strict=False):
        for tensor, weight in sorted(job.graph.updates.items()):
            state.append(np.array(job.graph.consumers[weight], dtype=np.int64) + task)
            state_count[tensor + first] = len(state[-1])
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    rows = [overhead + s for s in seconds] if overhead.any() else seconds
    slots = [device.slots for device in cluster.devices]
    inputs = [np.array(g.inputs, dtype=np.int64) for g in graphs]
    return Static(
        fixed(np.array([job.arrival for job in jobs]), np.float64),
        fixed(tasks),
        fixed(np.repeat(np.arange(len(jobs)), np.diff(tasks)), np.int32),
        fixed(offsets([len(row) for row in inputs])),
        _joined(inputs, first_tensor, np.int64),
        _joined(rows, nothing, np.float64),
        fixed(np.bincount(reader[producer[reads] >= 0], minlength=tasks[-1]), np.int32),
        fixed(offsets(np.concatenate([g.writes_csr.lengths for g in graphs]))),
        _joined([g.writes_csr.values for g in graphs], first_tensor, np.int32),
        fixed(offsets(read_count)),
        reads,
        fixed(offsets(np.bincount(reads, minlength=tensors[-1]))),
        fixed(reader[by_tensor], np.int32),
        fixed(by_tensor, np.int32),
        producer,
        fixed(origin, np.int32),
        fixed(goal, np.int32),
        fixed(offsets(state_count)),
        fixed(np.concatenate(state) if state else np.empty(0), np.int32),
        _joined([g.tensor_bytes for g in graphs], nothing, np.float64),
        fixed(np.array(cluster.space_of), np.int32),
        fixed(offsets(slots)),
        fixed(np.repeat(np.arange(len(slots)), slots)),
        fixed(available, np.float64),
        *_routes(cluster, jobs),
    )


def _routes(cluster: Cluster, jobs: Sequence[Job]) -> tuple[np.ndarray, ...]:
    """Latency, bandwidth and channels of the routes that may be used."""
    spaces, index = len(cluster.spaces), cluster.space_index
    sources = {*cluster.space_of, *(index[j.origin] for j in jobs if j.origin is not None)}
    goals = {*cluster.space_of, *(index[j.destination] for j in jobs if j.destination is not None)}
    latency, bandwidth = np.zeros((spaces, spaces)), np.full((spaces, spaces), math.inf)
    channels: list[tuple[int, ...]] = [()] * (spaces * spaces)
    for a in sorted(sources):
        for b in sorted(goals):
            if a != b:
                route = cluster.route(a, b)
                latency[a, b], bandwidth[a, b] = route.latency, route.bandwidth
                channels[a * spaces + b] = route.channels
    return (
        fixed(latency, np.float64),
        fixed(bandwidth, np.float64),
        fixed(offsets([len(route) for route in channels])),
        fixed(np.array([c for route in channels for c in route], dtype=np.int64)),
    )


def queues_for(static: Static) -> Queues:
    """Room for the queues of plans."""
    (tasks, devices), jobs = static.seconds.shape, len(static.arrivals)
    numbers = [np.empty(tasks, dtype=np.int32) for _ in range(3)]
    bounds = [np.empty(devices, dtype=np.int64) for _ in range(4)]
    room = np.zeros(devices + 1, dtype=np.int64)
    found = (numbers[0], numbers[1], room, numbers[2], *bounds, np.empty(jobs, dtype=np.int64))
    return Queues._make(found)


def crossings_for(static: Static, tracing: bool) -> Crossings:
    """Room for the crossings of plans."""
    tensors, spaces = len(static.producer), len(static.latency)
    most = len(static.consumers) + int(np.count_nonzero(static.goal >= 0))
    most += len(static.state_readers)
    kept = most if tracing else 0
    return Crossings(
        np.empty(tensors + 1, dtype=np.int64),
        np.empty(most, dtype=np.int32),
        np.empty(most, dtype=np.int32),
        np.empty(len(static.consumers), dtype=np.int32),
        np.empty(most, dtype=np.bool_),
        np.empty(tensors, dtype=np.int32),
        np.empty(spaces, dtype=np.int64),
        np.empty(most),
        np.empty(most, dtype=np.int32),
        np.empty(kept),
        np.empty(kept),
        np.empty(kept, dtype=np.int32),
    )


def room_for(static: Static, channels: int, *, events: bool, tracing: bool) -> Room:
    """Room for evaluations with or without events."""
    tasks, devices = static.seconds.shape
    slots = len(static.device_of)
    direct, kept = 0 if events else tasks, tasks if tracing else 0
    columns = (
        np.empty(tasks, dtype=np.int32),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(devices),
        np.empty(slots),
        np.empty(direct),
        np.empty(direct + devices, dtype=np.int32),
        np.empty(devices, dtype=np.int64),
        np.empty(devices, dtype=np.bool_),
        np.empty(devices),
        np.empty(channels),
        np.empty(slots),
        *(np.empty(slots, dtype=np.int64) for _ in range(3)),
        np.empty(slots, dtype=np.bool_),
        np.empty(kept, dtype=np.int32),
        np.empty(kept, dtype=np.int32),
    )
    return Room._make(columns)
