"""The replay of a traced iteration: what ran, where it ran, as long as it took.

Devices are the CPU threads and the streams of GPUs. On a thread an operator is a task, and the time between two
operators, which the host spends on its own, is a task ``host``: the tasks of the range's thread fill its time without
gaps. Where a call of the CUDA runtime launches a kernel or waits for one, the operator around it is cut in two. A
kernel follows its launch and the kernel before it on its stream; what then is left until it began is a task
``latency`` on the stream.

Edges, none of which moves anything: the order on each thread and stream; from launch to kernel; from the kernel
waited for to the call that waits (``...Synchronize``), and to the kernel that waits for another stream where the trace
has Kineto's ``cuda_sync`` records; and from the last operator of another thread that ended between two operators to
what comes then, so that the wait for it is no time of the host's own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from scenarios.graph_files.kineto import Event, Iteration
from scenarios.random_graphs.shape import check_size
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, Device, MemorySpace
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph, from_edges

HOST, LATENCY = "host", "latency"
_MOST_LANES = 4096
_SKEW = 1e-6
"""Seconds by which clocks of GPU and CPU may differ."""
_BLOCKING = ("cudaMemcpy", "hipMemcpy")


def replay(iteration: Iteration, name: str) -> tuple[DataflowGraph, Cluster, CostTable]:
    """Graph, lanes and times of an iteration; each task can run on its own lane alone.

    Raises:
        InvalidInput: it has too many tasks or lanes.
    """
    made = _Replay(iteration)
    made.threads()
    made.streams()
    made.syncs()
    lanes = list(dict.fromkeys(made.lane))
    check_size(len(made.name), len(made.edges))
    if len(lanes) > _MOST_LANES or len(made.name) * len(lanes) > 2**28:
        raise InvalidInput(
            f"{len(made.name):,} tasks on {len(lanes):,} threads and streams are too many; name a shorter range"
        )
    seen: Counter[str] = Counter()
    names = []
    for label in made.name:
        seen[label] += 1
        names.append(f"{label}#{seen[label]}")
    graph = from_edges(name, len(names), [(a, b, 0.0) for a, b in sorted(made.edges)], names)
    row_of = {label: row for row, label in enumerate(names)}
    order = [row_of[label] for label in graph.operator_names]
    column = {lane: number for number, lane in enumerate(lanes)}
    seconds = np.full((len(names), len(lanes)), math.inf)
    seconds[range(len(names)), [column[lane] for lane in made.lane]] = made.seconds
    cluster = Cluster(name, [MemorySpace("memory")], [Device(lane, "memory") for lane in lanes])
    return graph, cluster, CostTable.of(graph, seconds[order])


class _Replay:
    """Tasks and edges of an iteration, as they are found."""

    def __init__(self, iteration: Iteration) -> None:
        self.iteration = iteration
        self.name: list[str] = []
        self.lane: list[str] = []
        self.begin: list[float] = []
        self.end: list[float] = []
        self.seconds: list[float] = []
        self.edges: set[tuple[int, int]] = set()
        self._kernels: list[tuple[Event, int]] = []
        """With their tasks."""
        self._launched_after: dict[object, int] = {}
        """By correlation the task after which a kernel is launched."""
        self._waiting: list[tuple[int, Event]] = []
        """Tasks that wait, with their calls."""
        launched = {kernel.correlation for kernel in iteration.kernels}
        self._launches = [call for call in iteration.calls if call.correlation in launched]
        self._called_at = {call.correlation: call.begin for call in reversed(iteration.calls)}

    def _task(self, name: str, lane: str, begin: float, end: float) -> int:
        self.name.append(name)
        self.lane.append(lane)
        self.begin.append(begin)
        self.end.append(end)
        self.seconds.append(end - begin)
        return len(self.name) - 1

    # -- threads --------------------------------------------------------------------------------

    def threads(self) -> None:
        """Tasks of the CPU threads, and the order within and between them."""
        own = self.iteration.thread
        operators = _by_lane(self.iteration.operators)
        launches = _by_lane(self._launches)
        waits = _by_lane(call for call in self.iteration.calls if self._launches and _waits(call))
        lanes = dict.fromkeys([own, *operators, *launches, *waits])
        chains = {
            lane: self._thread(lane, operators[lane], launches[lane], waits[lane]) for lane in lanes
        }
        for lane, chain in chains.items():
            self.edges.update(pairwise(chain))
            if len(chains) > 1:
                others = [t for other, tasks in chains.items() if other != lane for t in tasks]
                self._wait_for_threads(chain, others)

    def _thread(
        self, lane: str, operators: list[Event], launches: list[Event], waits: list[Event]
    ) -> list[int]:
        """The tasks of one thread, which fill its time from the iteration's begin."""
        last = max(event.end for event in (*operators, *waits, *launches, _NOTHING))
        if lane == self.iteration.thread:
            last = max(last, self.iteration.range_s)
        cuts = {0.0, last, *(event.begin for event in launches)}
        cuts.update(time for event in (*operators, *waits) for time in (event.begin, event.end))
        times = [time for time in sorted(cuts) if 0.0 <= time <= last]
        chain, operator, wait = [], 0, 0
        for begin, end in pairwise(times):
            while operator < len(operators) and operators[operator].end <= begin:
                operator += 1
            inside = operator < len(operators) and operators[operator].begin <= begin
            task = self._task(operators[operator].name if inside else HOST, lane, begin, end)
            chain.append(task)
            while wait < len(waits) and waits[wait].end <= begin:
                wait += 1
            if wait < len(waits) and waits[wait].end == end:
                self._waiting.append((task, waits[wait]))
        ends = [self.end[task] for task in chain]
        for event in launches:
            before = bisect_right(ends, event.begin) - 1
            if before >= 0:
                self._launched_after.setdefault(event.correlation, chain[before])
        return chain

    def _wait_for_threads(self, chain: list[int], others: list[int]) -> None:
        """Take the wait for another thread's operator out of the host's own time."""
        ended = sorted((self.end[task], task) for task in others if self.name[task] != HOST)
        ends = [end for end, _ in ended]
        for task in chain:
            at = bisect_right(ends, self.end[task]) - 1
            if self.name[task] == HOST and at >= 0 and ends[at] > self.begin[task]:
                self.edges.add((ended[at][1], task))
                self.seconds[task] = self.end[task] - ends[at]

    # -- streams --------------------------------------------------------------------------------

    def streams(self) -> None:
        """Tasks of the streams: each kernel after its launch, the one before it and what its stream waits for."""
        awaited = self._awaited()
        task_of: dict[int, int] = {}
        last: dict[str, int] = {}
        for number, kernel in enumerate(self.iteration.kernels):
            before = {self._launched_after.get(kernel.correlation), last.get(kernel.lane)}
            before.update(task_of.get(other) for other in awaited.get(number, ()))
            known = [task for task in before if task is not None]
            ready = max((self.end[task] for task in known), default=0.0)
            if kernel.begin > ready:
                late = self._task(LATENCY, kernel.lane, ready, kernel.begin)
                self.edges.update((task, late) for task in known)
                known = [late]
            begin = kernel.begin
            if (at := last.get(kernel.lane)) is not None:
                begin = min(max(begin, self.end[at]), kernel.end)
            task = self._task(kernel.name, kernel.lane, begin, kernel.end)
            self.edges.update((other, task) for other in known)
            last[kernel.lane] = task_of[number] = task
            self._kernels.append((kernel, task))

    def _awaited(self) -> dict[int, list[int]]:
        """For kernels by position those of other streams that Kineto says their streams wait for."""
        kernels = self.iteration.kernels
        launched = [self._called_at.get(kernel.correlation, kernel.begin) for kernel in kernels]
        found: defaultdict[int, list[int]] = defaultdict(list)
        for record in self.iteration.waits:
            asked = record.arguments
            noted = self._called_at.get(_key(asked.get("wait_on_cuda_event_record_corr_id")))
            begun = self._called_at.get(record.correlation)
            if noted is None or begun is None:
                continue
            stream = f"{record.lane.rpartition(' ')[0]} {asked.get('wait_on_stream')}"
            sources = [
                i for i, k in enumerate(kernels) if k.lane == stream and launched[i] <= noted
            ]
            targets = [
                i for i, k in enumerate(kernels) if k.lane == record.lane and launched[i] >= begun
            ]
            if (
                sources
                and targets
                and kernels[sources[-1]].end <= kernels[targets[0]].begin + _SKEW
            ):
                found[targets[0]].append(sources[-1])
        return found

    def syncs(self) -> None:
        """Calls that wait end after the last kernel that they waited for, and take what is left."""
        ended = sorted(self._kernels, key=lambda pair: pair[0].end)
        ends = [kernel.end for kernel, _ in ended]
        streams = {
            record.correlation: record.lane
            for record in self.iteration.waits
            if record.name == "Stream Sync"
        }
        for task, call in self._waiting:
            stream = streams.get(call.correlation)
            for kernel, other in reversed(ended[: bisect_right(ends, call.end + _SKEW)]):
                if kernel.end <= self.begin[task]:
                    break
                launched = self._called_at.get(kernel.correlation, kernel.begin) <= call.begin
                if launched and stream in (None, kernel.lane):
                    self.edges.add((other, task))
                    self.seconds[task] = max(self.end[task] - kernel.end, 0.0)
                    break


_NOTHING = Event("", "", "", 0.0, 0.0, {})


def _by_lane(events: Iterable[Event]) -> defaultdict[str, list[Event]]:
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.lane].append(event)
    return found


def _waits(call: Event) -> bool:
    """Whether a call of the CUDA runtime or driver returns when kernels have ended."""
    return call.name.endswith("Synchronize") or call.name in _BLOCKING


def _key(value: object) -> object:
    return value if isinstance(value, int | float | str) else None
