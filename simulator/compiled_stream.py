"""Streams of requests that run whole, with their state in arrays and everything that happens compiled.

One call takes a block of requests through the run. Where something happens that the compiled functions
do not know, such as an error, the run begins anew in the other way, :mod:`simulator.streaming`, which
gives the same figures.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from simulator import stream_kernels as kernels
from simulator.costs import CostTable
from simulator.dispatching import Dispatcher
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph
from simulator.quantiles import SCALE, Spread
from simulator.schedulers.dynamic_batching import DynamicBatching
from simulator.schedulers.fcfs_batching import FCFSBatching
from simulator.schedulers.task_groups import TaskGroups
from simulator.selection import Home, LeastLoaded, RandomNode, RoundRobinNode
from simulator.stream import RequestBlock, Stream
from simulator.streamed_figures import ModelTally, StreamedFigures
from simulator.streaming import StreamedSimulation
from simulator.workload import Job, Workload

BLOCK = 4096
"""Requests that are made columns of at a time where they come one by one."""
_RULES = {
    TaskGroups: kernels.TASK_GROUPS,
    FCFSBatching: kernels.FCFS_BATCHING,
    DynamicBatching: kernels.DYNAMIC_BATCHING,
}
_SELECTIONS = {
    Home: kernels.HOME,
    RandomNode: kernels.RANDOM,
    RoundRobinNode: kernels.ROUND_ROBIN,
    LeastLoaded: kernels.LEAST_LOADED,
}


_BY_NODE = ("groups", "waiting", "is_touched", "touched")
_LISTS = (
    "way",
    "free",
    "new",
    "delivered",
    "landed",
    "wanted",
    "leaving",
    "entered",
    "what",
    "words",
)


class _LeftAloneError(Exception):
    """The compiled functions do not know what comes next."""


class CompiledStream(StreamedSimulation):
    """See the module docstring. For what :func:`simulator.whole_requests.covers`."""

    def run(self) -> StreamedFigures:  # type: ignore[override]
        """See :class:`StreamedSimulation`."""
        try:
            self._run_compiled()
        except (_LeftAloneError, InvalidInput):
            self.figures = StreamedFigures(self.cluster, self._warm_up)
            return super().run()
        return self.figures

    def _run_compiled(self) -> None:
        self._lay_out()
        began = time.perf_counter()
        requests = _Requests(self._workload)
        last, left = 0.0, False
        for block in requests.blocks():
            _check(block, last, len(requests.kinds))
            last = float(block.arrival[-1])
            self._learn(requests.kinds)
            if self._advance(block, True) == kernels.OVER:
                break
        else:
            nothing = np.zeros(0)
            self._advance(RequestBlock(nothing, nothing, nothing), False)
            left = self._whole[kernels.USED] > self._whole[kernels.FREE]
        if left and not self._whole[kernels.EVENTS]:
            raise _LeftAloneError  # work that can never run
        self._write_figures(requests.kinds, time.perf_counter() - began)

    # -- what is known beforehand ---------------------------------------------------------------

    def _lay_out(self) -> None:
        """Make the arrays."""
        cluster, scheduler = self.cluster, self._scheduler
        assert isinstance(scheduler, Dispatcher)
        spaces, devices = len(cluster.spaces), len(cluster.devices)
        self._nodes = sorted({*cluster.space_of})
        nodes = len(self._nodes)
        node_of = np.full(spaces, -1)
        node_of[self._nodes] = np.arange(nodes)
        stands_at = node_of[list(cluster.space_of)]
        self._graph_numbers: dict[DataflowGraph, int] = {}
        for graph in self._workload.graphs:
            self._graph_numbers[graph] = len(self._graph_numbers)
        graphs = list(self._graph_numbers)
        self._name_numbers: dict[str, int] = {}
        for graph in graphs:
            self._name_numbers.setdefault(graph.name, len(self._name_numbers))
        tensors = max([1, *(len(g.inputs) + len(g.outputs) for g in graphs)])
        believed = _seconds(self._believed, graphs) + self._overhead
        source = self._actual_source
        actual = source if isinstance(source, CostTable) else self._believed
        prepared = self._workload.batches.values()
        widest = max([1, *(g.batch or 1 for g in graphs), *(max(b) for b in prepared if b)])
        self._asked: dict[DataflowGraph, int] = {}
        self._model_numbers: dict[str, int] = {}
        self._known_kinds = 0
        self._arrays = {
            "real": np.zeros(kernels.REAL),
            "node_of": node_of,
            "space_of": np.array(self._nodes),
            "device_at": np.cumsum([0, *np.bincount(stands_at, minlength=nodes)]),
            "devices": np.argsort(stands_at, kind="stable"),
            "stands_at": stands_at,
            "latency": np.zeros((spaces, spaces)),
            "bandwidth": np.ones((spaces, spaces)),
            "way_at": np.full((spaces, spaces), -1),
            "channel_free": np.zeros(len(cluster.channels)),
            "believed": believed,
            "happens": _seconds(actual, graphs) + self._overhead,
            "name_of": np.array([self._name_numbers[graph.name] for graph in graphs]),
            "kind": np.zeros((0, kernels.KIND), dtype=np.int64),
            "ask": np.zeros((0, kernels.ASK), dtype=np.int64),
            "prepared": np.full((0, widest + 1), -1),
            "largest_on": np.zeros((0, devices), dtype=np.int64),
            "largest_at": np.zeros((0, nodes), dtype=np.int64),
            "size": np.zeros((0, tensors)),
            "candidates": np.zeros((0, nodes), dtype=np.int64),
            "group": np.zeros((0, nodes, kernels.GROUP), dtype=np.int64),
            "order": np.zeros((nodes, 0), dtype=np.int64),
            **{name: np.zeros(nodes, dtype=np.int64) for name in _BY_NODE},
            "coming": np.zeros(nodes),
            "wakes_at": np.full(nodes, -math.inf),
            "running": np.zeros((devices, kernels.RUNNING), dtype=np.int64),
            **{name: np.zeros(devices) for name in ("began", "until", "busy")},
            **{name: np.zeros(devices, dtype=np.int64) for name in ("due", "tasks")},
            "job": np.zeros((0, kernels.JOB), dtype=np.int64),
            "moment": np.zeros((0, kernels.MOMENTS)),
            "when": np.zeros(0),
            **{name: np.zeros(0, dtype=np.int64) for name in _LISTS},
            "seconds": np.zeros(believed.shape),
            "first": np.zeros(believed.shape, dtype=np.int64),
            "tally": np.zeros((2, 0, kernels.TALLY), dtype=np.int64),
            "extent": np.zeros((2, 0, kernels.EXTENT)),
            "bins": np.zeros((2, 0, kernels.BINS), dtype=np.int64),
            "success": np.zeros((len(self._name_numbers), kernels.SUCCESS), dtype=np.int64),
        }
        self._whole, self._real = np.zeros(kernels.HEADER, dtype=np.int64), self._arrays["real"]
        self._set_options(scheduler)

    def _set_options(self, scheduler: Dispatcher) -> None:
        selection = scheduler.selection
        self._bits = copy.deepcopy(selection.rng).bit_generator
        self._random = isinstance(selection, RandomNode | LeastLoaded)
        for name, whole in (
            (kernels.RULE, _RULES[type(scheduler)]),
            (kernels.SELECTION, _SELECTIONS[type(selection)]),
            (kernels.MOVE, selection.move),
            (kernels.QUEUED, self.contention == "fifo"),
        ):
            self._whole[name] = whole
        for name, real in (
            (kernels.HORIZON, self._setting.horizon),
            (kernels.WARM_UP, self._warm_up),
            (kernels.SCALE, SCALE),
            (kernels.LAST_FINISH, -math.inf),
        ):
            self._real[name] = real
        if isinstance(scheduler, TaskGroups):
            self._real[kernels.THETA] = scheduler.theta
            self._real[kernels.STARVE_AFTER] = scheduler.starve_after
        if isinstance(scheduler, DynamicBatching):
            self._real[kernels.DELAY] = scheduler.delay
        among = selection.among
        index = self.cluster.space_index
        order = self._nodes if among is None else [index[name] for name in among]
        self._among = [n for n in self._arrays["node_of"][order].tolist() if n >= 0]

    # -- what requests ask for ------------------------------------------------------------------

    def _learn(self, kinds: list[Job]) -> None:
        """Make room for kinds of requests that have not come before."""
        fresh = kinds[self._known_kinds :]
        if not fresh:
            return
        self._known_kinds = len(kinds)
        spaces = self.cluster.space_index
        rows = []
        for job in fresh:
            self._check_job(job)
            if job.graph not in self._graph_numbers or (job.batch or 1) < 1:
                raise _LeftAloneError
            origin = -1 if job.origin is None else spaces[job.origin]
            destination = -1 if job.destination is None else spaces[job.destination]
            self._lay_ways(origin, destination)
            asked = self._asked.get(job.graph)
            if asked is None:
                asked = self._ask(job.graph)
            name = job.model or job.graph.name
            model = self._model_numbers.setdefault(name, len(self._model_numbers))
            rows.append((asked, job.batch or 1, origin, destination, model))
        self._arrays["kind"] = np.append(self._arrays["kind"], np.array(rows), axis=0)
        more = len(self._model_numbers) - self._arrays["tally"].shape[1]
        for name in ("tally", "extent", "bins"):
            self._grow(name, 1, more)
        if more:
            self._arrays["extent"][:, -more:, kernels.LEAST] = math.inf
            self._arrays["extent"][:, -more:, kernels.GREATEST] = -math.inf

    def _ask(self, graph: DataflowGraph) -> int:
        """Number a model that is asked for the first time."""
        asked = self._asked[graph] = len(self._asked)
        prepared = self._workload.batches.get(graph) or {graph.batch or 1: graph}
        for name in ("ask", "prepared", "largest_on", "largest_at", "size", "candidates", "group"):
            self._grow(name, 0, 1)
        self._grow("order", 1, 1)
        row = self._arrays["prepared"][asked]
        row[:] = -1
        for items, other in prepared.items():
            row[items] = self._graph_numbers[other]
        self._note_largest(asked, prepared)
        sizes = graph.tensor_bytes[[*graph.inputs, *graph.outputs]]
        self._arrays["size"][asked, : len(sizes)] = sizes
        number = self._graph_numbers[graph]
        able = np.isfinite(self._arrays["believed"][number])
        nodes = {*self._arrays["stands_at"][able].tolist()}
        candidates = [node for node in self._among if node in nodes]
        if len(candidates) > len(self._nodes):  # some are named twice
            raise _LeftAloneError
        self._arrays["candidates"][asked, : len(candidates)] = candidates
        self._arrays["ask"][asked] = (
            number,
            min(prepared),
            len(graph.inputs),
            len(sizes),
            len(candidates),
        )
        return asked

    def _note_largest(self, asked: int, prepared: Mapping[int, DataflowGraph]) -> None:
        """How many items a device, and a node, may serve together; see :meth:`Group.largest`."""
        most = self._scheduler.max_batch  # type: ignore[attr-defined]
        here = self._arrays["stands_at"]
        for name in ("largest_on", "largest_at"):
            row = self._arrays[name][asked]
            row[:] = min(prepared)
            for items in sorted(size for size in prepared if size <= most):
                able = np.isfinite(self._arrays["believed"][self._graph_numbers[prepared[items]]])
                row[able if name == "largest_on" else here[able]] = items

    def _lay_ways(self, origin: int, destination: int) -> None:
        """Note the routes from where a request arises to every node, and from there to its answer's place."""
        for node in self._nodes:
            for source, end in ((origin, node), (node, destination)):
                if source < 0 or end < 0 or source == end:
                    continue
                if self._arrays["way_at"][source, end] < 0:
                    route = self._route(source, end)
                    self._arrays["latency"][source, end] = route.latency
                    self._arrays["bandwidth"][source, end] = route.bandwidth
                    self._arrays["way_at"][source, end] = len(self._arrays["way"])
                    way = np.array([len(route.channels), *route.channels])
                    self._arrays["way"] = np.append(self._arrays["way"], way)

    # -- the loop -------------------------------------------------------------------------------

    def _advance(self, block: RequestBlock, more: bool) -> int:
        """Take requests through the run; returns why it stopped."""
        self._make_room(len(block.arrival))
        state: int = kernels.advance(
            self._header(),
            np.array(block.kind, dtype=np.int64),
            np.array(block.arrival, dtype=np.float64),
            np.array(block.deadline, dtype=np.float64),
            more,
        )
        if state == kernels.LEFT_ALONE:
            raise _LeftAloneError
        return state

    def _header(self) -> np.ndarray:
        """The header as the tables are now."""
        header, arrays = self._whole, self._arrays
        for position, length in (
            (kernels.SPACES, len(self.cluster.spaces)),
            (kernels.NODES, len(self._nodes)),
            (kernels.DEVICES, len(self.cluster.devices)),
            (kernels.MODELS, len(self._model_numbers)),
            (kernels.MODELS_ASKED, len(self._asked)),
            (kernels.WIDTH, arrays["prepared"].shape[1]),
            (kernels.MOST_TENSORS, arrays["size"].shape[1]),
            (kernels.WORDS, len(arrays["words"])),
        ):
            header[position] = length
        for position, name in enumerate(kernels.TABLES, kernels.WHOLE):
            header[position] = arrays[name].ctypes.data
        return header

    def _make_room(self, count: int) -> None:
        """Let everything that so many requests may set off at once find room."""
        whole, arrays = self._whole, self._arrays
        held = int(whole[kernels.USED] - whole[kernels.FREE])
        jobs = held + count
        tensors = arrays["size"].shape[1]
        for names, length in (
            (("job", "moment", "free", "new", "delivered"), jobs),
            (("landed", "wanted"), jobs * tensors),
            (("leaving",), jobs * (tensors + 1)),
            # A request is waited for at most twice: when it becomes the oldest, and when it no longer is.
            (
                ("when", "entered", "what"),
                int(whole[kernels.EVENTS])
                + jobs * (tensors + 2)
                + 2 * len(self._nodes)
                + len(self.cluster.devices),
            ),
        ):
            lacking = length - len(arrays[names[0]])
            if lacking > 0:
                for name in names:
                    self._grow(name, 0, lacking + length // 2)
        if self._random:
            left = arrays["words"][whole[kernels.WORD] :]
            lacking = 2 * (int(whole[kernels.NEW]) + count) + 64 - len(left)
            if lacking > 0:
                drawn = self._bits.random_raw(lacking)
                halves = np.column_stack([drawn & 0xFFFFFFFF, drawn >> 32]).ravel()
                arrays["words"] = np.append(left, halves.astype(np.int64))
                whole[kernels.WORD] = 0

    def _grow(self, name: str, axis: int, count: int) -> None:
        """Make an array longer, by zeros."""
        if count:
            array = self._arrays[name]
            shape = list(array.shape)
            shape[axis] = count
            more = np.zeros(shape, dtype=array.dtype)
            self._arrays[name] = np.concatenate([array, more], axis=axis)

    # -- the end --------------------------------------------------------------------------------

    def _write_figures(self, kinds: list[Job], seconds: float) -> None:
        """Let the figures say what the arrays do."""
        figures, arrays, horizon = self.figures, self._arrays, self._setting.horizon
        whole, real = self._whole.tolist(), self._real.tolist()
        for name, position in _WHOLE_FIGURES.items():
            setattr(figures, name, whole[position])
        for name, position in _REAL_FIGURES.items():
            setattr(figures, name, real[position])
        figures._busy, figures._tasks = arrays["busy"].tolist(), arrays["tasks"].tolist()
        graphs, names, models = (
            list(self._graph_numbers),
            list(self._name_numbers),
            list(self._model_numbers),
        )
        for graph, device in _in_order(arrays["first"]):
            key = (graphs[graph], 0, device)
            figures.graph_seconds[key] = float(arrays["seconds"][graph, device])
        for (number,) in _in_order(arrays["success"][:, kernels.FIRST_SUCCESS]):
            count = int(arrays["success"][number, kernels.SUCCESSES])
            figures._successes[names[number]] = count
        for window, tallies in enumerate((figures._early, figures._here)):
            for (model,) in _in_order(arrays["tally"][window, :, kernels.FIRST]):
                tallies[models[model]] = self._tally(window, model)
        if horizon < math.inf:
            figures.horizon = horizon
            for device, (_, count, graph) in enumerate(arrays["running"].tolist()):
                if count:
                    began = float(arrays["began"][device])
                    figures.execute(graphs[graph], 0, device, began, horizon, count, done=False)
        jobs = arrays["job"][: whole[kernels.USED]]
        (held,) = np.nonzero(jobs[:, kernels.NUMBER] >= 0)
        for place in held[np.argsort(jobs[held, kernels.NUMBER])].tolist():
            arrival, deadline, _ = arrays["moment"][place].tolist()
            due = None if deadline == math.inf else deadline
            kind = kinds[jobs[place, kernels.OF_KIND]]
            figures.queue(replace(kind, arrival=arrival, deadline=due))
        figures.settings = self._settings()
        # Deciding is a part of these that nobody tells apart.
        figures.wallclock = {
            "decisions": float(whole[kernels.DECISIONS]),
            "deciding_seconds": seconds,
        }

    def _tally(self, window: int, model: int) -> ModelTally:
        found = ModelTally()
        row = self._arrays["tally"][window, model].tolist()
        found.on_time = row[kernels.ON_TIME]
        delays: Spread = found.delays
        delays.count, delays.zeros = row[kernels.TALLIED], row[kernels.ZEROS]
        delays.total, delays.least, delays.most = self._arrays["extent"][window, model].tolist()
        bins = self._arrays["bins"][window, model]
        (filled,) = np.nonzero(bins)
        delays.bins = dict(
            zip((filled + kernels.LOWEST).tolist(), bins[filled].tolist(), strict=True)
        )
        return found


class _Requests:
    """The requests of a workload as blocks of columns.

    Attributes:
        kinds: of those that have come so far; see :class:`RequestBlock`.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._columns = workload.columns if isinstance(workload, Stream) else None
        self.kinds: list[Job] = [] if self._columns is None else list(self._columns.kinds)
        self._known: dict[tuple[Any, ...], int] = {}

    def blocks(self) -> Iterator[RequestBlock]:
        """Blocks that are not empty."""
        if self._columns is not None:
            yield from (block for block in self._columns.draw() if len(block.arrival))
            return
        jobs = iter(self._workload)
        while block := list(islice(jobs, BLOCK)):
            yield RequestBlock(
                np.array([self._kind(job) for job in block]),
                np.array([job.arrival for job in block]),
                np.array([math.inf if job.deadline is None else job.deadline for job in block]),
            )

    def _kind(self, job: Job) -> int:
        key = (job.graph, job.model, job.batch, job.origin, job.destination)
        kind = self._known.get(key)
        if kind is None:
            kind = self._known[key] = len(self.kinds)
            self.kinds.append(job)
        return kind


def _check(block: RequestBlock, last: float, kinds: int) -> None:
    """Leave to the other way what it refuses, and columns that cannot be."""
    kind, arrival, deadline = block
    if not len(kind) == len(arrival) == len(deadline):
        raise _LeftAloneError
    ascends = arrival[0] >= last and bool((np.diff(arrival) >= 0).all())
    known = kind.min() >= 0 and kind.max() < kinds
    if not (ascends and known and arrival[-1] < math.inf and bool((deadline >= arrival).all())):
        raise _LeftAloneError


def _seconds(table: CostTable, graphs: list[DataflowGraph]) -> np.ndarray:
    """Of graphs of one operator, float64[graphs, devices]."""
    return np.array([table[graph].seconds[0] for graph in graphs], dtype=np.float64)


def _in_order(first: np.ndarray) -> list[tuple[int, ...]]:
    """Positions of the entries above 0, ascending by these."""
    found = np.argwhere(first)
    order = np.argsort(first[tuple(found.T)])
    return [tuple(row) for row in found[order].tolist()]


_WHOLE_FIGURES = {
    "arrived": kernels.ARRIVED,
    "_inside": kernels.INSIDE,
    "_inside_on_time": kernels.INSIDE_ON_TIME,
    "_after": kernels.AFTER,
    "_after_on_time": kernels.AFTER_ON_TIME,
    "_finished": kernels.FINISHED,
    "_late": kernels.LATE,
    "_left_inside": kernels.LEFT_INSIDE,
    "_finished_inside": kernels.FINISHED_INSIDE,
    "_good_inside": kernels.GOOD_INSIDE,
    "_stayed": kernels.STAYED,
    "_leaders": kernels.LEADERS,
    "_served_together": kernels.SERVED_TOGETHER,
    "_transfers": kernels.TRANSFERS,
}
_REAL_FIGURES = {
    "_last_arrival": kernels.LAST_ARRIVAL,
    "_last_execution": kernels.LAST_EXECUTION,
    "_last_finish": kernels.LAST_FINISH,
    "_stay": kernels.STAY,
    "_time_in_system": kernels.TIME_IN_SYSTEM,
    "_busy_inside": kernels.BUSY_INSIDE,
    "_bytes": kernels.BYTES,
}
