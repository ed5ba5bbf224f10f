"""The trace: what happened in a run, simulated or real, as columns.

Tables (NumPy columns; Parquet on disk):

``executions``
    execution, task, job, operator, device, slot, attempt, status, ready, placed, start, finish.
    One row per attempt to run a task, in order of finish. Seconds from 0. ``status`` is ``finished``,
    ``lost`` (to a fault at ``finish``) or ``running`` (when the run ended, at ``finish``).
``members``
    execution, job: the jobs that an execution served; several for a batch, whose ``task`` and ``job``
    in ``executions`` are those of the first.
``jobs``
    job, graph, model, batch, arrival, deadline, priority, origin, destination, finish, status,
    reason. ``graph`` is the one that served it, perhaps a batch's or a variant's. ``origin`` and
    ``destination`` are memory spaces, -1 for none. ``status`` is ``finished``, ``failed`` or
    ``rejected`` (at ``finish``, for ``reason``) or ``queued``: still in the system when the run ended,
    ``finish`` is infinite.
``transfers``
    tensor, job, source, destination, link, requested, start, finish, bytes; one row for each link of
    the route. ``tensor`` is the index in the job's graph; ``source`` and ``destination`` are memory
    spaces, ``link`` is a channel of the cluster (one direction, or a half-duplex link).

``meta`` says what the numbers mean: ``devices`` with their ``slots``, ``profiles``, ``space_of`` (index),
``power_idle_w``, ``power_busy_w`` and ``price_per_hour`` (null where unknown); ``spaces`` with their
``capacities_bytes`` (null where unlimited); ``channels``; ``graphs`` (:mod:`simulator.model.graph_record`); and
the settings of the run, among them, where there are any, ``horizon_s`` (when the run was ended) and
``outages`` (``[[device, from, to], ...]``: when devices were down, seconds); of a measured run with
batches ``joins`` (``[[leading job, jobs, seconds], ...]``: concatenating their inputs) and ``splitting_s``.
Other wall-clock figures are not part of the trace: the same seed and configuration give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.graph_record import GraphRecord, check_record
from simulator.model.trace_file import check_rows, read_description, read_table
from simulator.model.workload import Job
from simulator.support.atomic_io import replacing

FORMAT = "hetsim.trace/1"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "executions": {
        "execution": "int64",
        "task": "int64",
        "job": "int64",
        "operator": "int64",
        "device": "int32",
        "slot": "int32",
        "attempt": "int32",
        "status": "U",
        "ready": "float64",
        "placed": "float64",
        "start": "float64",
        "finish": "float64",
    },
    "members": {"execution": "int64", "job": "int64"},
    "jobs": {
        "job": "int64",
        "graph": "int32",
        "model": "U",
        "batch": "int64",
        "arrival": "float64",
        "deadline": "float64",
        "priority": "int64",
        "origin": "int32",
        "destination": "int32",
        "finish": "float64",
        "status": "U",
        "reason": "U",
    },
    "transfers": {
        "tensor": "int64",
        "job": "int64",
        "source": "int32",
        "destination": "int32",
        "link": "int32",
        "requested": "float64",
        "start": "float64",
        "finish": "float64",
        "bytes": "float64",
    },
}

Table = dict[str, np.ndarray]


FINISHED, LOST = "finished", "lost"
"""What became of an execution."""


@dataclass(frozen=True)
class Trace:
    """See the module docstring.

    Attributes:
        wallclock: figures of the machine that ran it (``decisions``, ``deciding_seconds``); kept in
            ``result.json``, never in the trace's files.
    """

    executions: Table
    members: Table
    jobs: Table
    transfers: Table
    meta: Mapping[str, Any]
    wallclock: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def makespan(self) -> float:
        """Seconds from time 0 to the last finish of a job that finished, its outputs delivered.

        Where no job has finished, to the last finish of an execution; 0 where there is none.
        """
        finished = self.jobs["finish"][self.jobs["status"] == "finished"]
        if len(finished):
            return float(finished.max())
        return float(self.executions["finish"].max(initial=0.0))

    @property
    def end(self) -> float:
        """When the run was over, seconds: its horizon if it had one, or else when the last job left,
        finished or failed, or the last execution ended (of a job that had failed by then).
        """
        horizon = self.meta.get("horizon_s")
        if horizon is not None:
            return float(horizon)
        left = self.jobs["finish"][np.isfinite(self.jobs["finish"])]
        return float(max(left.max(initial=0.0), self.executions["finish"].max(initial=0.0)))

    @property
    def tasks(self) -> Table:
        """The executions that count: the last attempt at each task, in order of task."""
        order = np.lexsort((self.executions["attempt"], self.executions["task"]))
        task = self.executions["task"][order]
        last = np.append(task[1:] != task[:-1], True) if len(task) else np.zeros(0, bool)
        return {name: column[order][last] for name, column in self.executions.items()}

    @property
    def devices(self) -> list[str]:
        """Names of the devices that the ``device`` column numbers."""
        return list(self.meta["devices"])

    def operator(self, job: int, operator: int) -> tuple[str, str]:
        """Name and kind of an operator of a job."""
        graph = self.meta["graphs"][int(self.jobs["graph"][job])]
        return graph["operators"][operator], graph["kinds"][operator]

    def save(self, folder: str | Path) -> None:
        """Write the tables as Parquet and ``trace.json`` into ``folder``, each file whole or not."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Path(folder)
        for name in COLUMNS:
            table = pa.table({key: pa.array(column) for key, column in getattr(self, name).items()})
            with replacing(folder / f"{name}.parquet") as temporary:
                pq.write_table(table, temporary)
        # Graph records are mappings, but no dictionaries.
        text = json.dumps({"format": FORMAT, **self.meta}, sort_keys=True, default=dict)
        with replacing(folder / "trace.json") as temporary:
            temporary.write_text(text)

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        """Read what :meth:`save` wrote.

        Raises:
            InvalidInput: a file is missing, truncated, has other columns, or contradicts another.
        """
        folder = Path(folder)
        meta = read_description(folder / "trace.json", FORMAT)
        tables = {
            name: read_table(folder / f"{name}.parquet", columns)
            for name, columns in COLUMNS.items()
        }
        _check(tables, meta, folder)
        check_rows(tables, folder)
        return cls(
            tables["executions"], tables["members"], tables["jobs"], tables["transfers"], meta
        )


class TraceRecorder:
    """Collects a run's rows as flat lists; :meth:`trace` makes columns of them."""

    def __init__(self) -> None:
        self._executions: list[tuple[Any, ...]] = []
        self._transfers: list[tuple[Any, ...]] = []

    def execution(
        self,
        task: int,
        job: int,
        operator: int,
        device: int,
        slot: int,
        ready: float,
        placed: float,
        start: float,
        finish: float,
    ) -> None:
        """Record a finished execution."""
        self._executions.append((task, job, operator, device, slot, ready, placed, start, finish))

    def transfer(
        self,
        tensor: int,
        job: int,
        source: int,
        destination: int,
        link: int,
        requested: float,
        start: float,
        finish: float,
        size: float,
    ) -> None:
        """Record a transfer over one link; ``tensor`` is global."""
        self._transfers.append(
            (tensor, job, source, destination, link, requested, start, finish, size)
        )

    def trace(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        first_tensor: Sequence[int],
        finishes: Sequence[float],
        settings: Mapping[str, Any],
        decisions: int,
        deciding_seconds: float,
        statuses: Sequence[str] | None = None,
        reasons: Sequence[str] | None = None,
        members: Mapping[int, Sequence[int]] | None = None,
        served_by: Mapping[int, DataflowGraph] | None = None,
    ) -> Trace:
        """The finished trace; see :func:`assemble`."""
        return assemble(
            execution_table(*_transpose(self._executions, 9)),
            transfer_table(*_transpose(self._transfers, 9)),
            cluster,
            jobs,
            first_tensor,
            finishes,
            settings,
            decisions,
            deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=members,
            served_by=served_by,
        )


def execution_table(
    task: ArrayLike,
    job: ArrayLike,
    operator: ArrayLike,
    device: ArrayLike,
    slot: ArrayLike,
    ready: ArrayLike,
    placed: ArrayLike,
    start: ArrayLike,
    finish: ArrayLike,
    *,
    attempt: ArrayLike | None = None,
    status: ArrayLike | None = None,
) -> Table:
    """The ``executions`` of a run, in order of finish.

    Without ``attempt`` (0, 1, ...) and ``status`` every task was executed once and finished.
    """
    task = np.asarray(task, dtype=np.int64)
    count = len(task)
    given = {
        "execution": np.arange(count),
        "task": task,
        "job": job,
        "operator": operator,
        "device": device,
        "slot": slot,
        "attempt": np.zeros(count, dtype=np.int32) if attempt is None else attempt,
        # 32 bytes a row, were it written out.
        "status": np.broadcast_to("finished", count) if status is None else status,
        "ready": ready,
        "placed": placed,
        "start": start,
        "finish": finish,
    }
    return {
        name: np.asarray(column, dtype=str if kind == "U" else kind)
        for (name, kind), column in zip(COLUMNS["executions"].items(), given.values(), strict=True)
    }


def transfer_table(*columns: ArrayLike) -> Table:
    """The ``transfers`` of a run: all columns in their order, ``tensor`` global."""
    return {
        name: np.asarray(column, dtype=kind)
        for (name, kind), column in zip(COLUMNS["transfers"].items(), columns, strict=True)
    }


def executed(
    first_task: Sequence[int] | np.ndarray,
    known: Sequence[np.ndarray],
    attempt: np.ndarray | None = None,
    status: np.ndarray | None = None,
) -> Table:
    """The ``executions`` of a run, from columns in the order in which ends became known.

    Args:
        first_task: for each job the number of its first task.
        known: task, device, slot, ready, placed, start and finish of every execution.
        attempt: None if every task was executed once.
        status: None if every execution finished.
    """
    task, device, slot, ready, placed, start, finish = known
    job = np.searchsorted(first_task, task, side="right") - 1
    operator = task - np.asarray(first_task, dtype=np.int64)[job]
    columns: list[np.ndarray | None] = [task, job, operator, device, slot]
    columns += [np.minimum(ready, start), placed, start, finish, attempt, status]
    # They were written when the host learnt of them; devices may differ in how late that is.
    if (finish[1:] < finish[:-1]).any():
        order = np.argsort(finish, kind="stable")
        columns = [None if column is None else column[order] for column in columns]
    *usual, attempt, status = columns
    return execution_table(*usual, attempt=attempt, status=status)  # type: ignore[arg-type]


def transferred(
    cluster: Cluster,
    first_tensor: Sequence[int] | np.ndarray,
    tensor: np.ndarray,
    source: np.ndarray,
    destination: np.ndarray,
    rest: Sequence[np.ndarray],
) -> Table:
    """The ``transfers`` of a run whose ends were known when they were booked: a row for each link of a route.

    ``first_tensor`` is for each job the number of its first tensor; the rest are columns of the transfers in their
    order, memory spaces by number. ``rest`` is when each was requested, its start and end, seconds, and its bytes.
    """
    # The channels of every pair of spaces that is used, and where those of each begin.
    spaces = len(cluster.spaces)
    pair = source * spaces + destination
    used = np.flatnonzero(np.bincount(pair, minlength=1)).tolist()
    routes = [cluster.route(*divmod(both, spaces)).channels for both in used]
    hops = np.zeros(spaces * spaces, dtype=np.int64)
    hops[used] = [len(channels) for channels in routes]
    channel = np.array([c for channels in routes for c in channels], dtype=np.int64)
    first = np.cumsum(hops) - hops
    count = hops[pair]
    row = np.repeat(np.arange(len(tensor)), count)
    hop = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    job = np.searchsorted(first_tensor, tensor, side="right") - 1
    ends = (column[row] for column in (tensor, job, source, destination))
    return transfer_table(*ends, channel[first[pair[row]] + hop], *(column[row] for column in rest))


def assemble(
    executions: Table,
    transfers: Table,
    cluster: Cluster,
    jobs: Sequence[Job],
    first_tensor: Sequence[int],
    finishes: Sequence[float],
    settings: Mapping[str, Any],
    decisions: int,
    deciding_seconds: float,
    *,
    statuses: Sequence[str] | None = None,
    reasons: Sequence[str] | None = None,
    members: Mapping[int, Sequence[int]] | None = None,
    served_by: Mapping[int, DataflowGraph] | None = None,
) -> Trace:
    """The trace of a run.

    Args:
        executions: all columns, in order of finish.
        transfers: all columns; ``tensor`` counts through all jobs.
        cluster: where it ran.
        jobs: every job of the workload.
        first_tensor: for each job the number of its first tensor.
        finishes: for each job the time at which it was done or failed, seconds; ``inf`` if it was
            still in the system when the run ended.
        settings: what ``meta`` says beside the names of things.
        decisions: how often the scheduler was asked.
        deciding_seconds: wall-clock seconds that it took.
        statuses: of each job; finished unless given.
        reasons: of each job why it failed; empty unless given.
        members: for each job that led a batch all jobs of it.
        served_by: for each job that its own graph did not serve the graph that did.
    """
    if len(first_tensor) > 1:
        transfers["tensor"] = transfers["tensor"] - np.asarray(first_tensor)[transfers["job"]]
    graphs: dict[DataflowGraph, int] = {}
    served = [entry.graph for entry in jobs]
    for job, graph in (served_by or {}).items():
        served[job] = graph
    for graph in served:
        graphs.setdefault(graph, len(graphs))
    job_table = {
        "job": np.arange(len(jobs), dtype=np.int64),
        "graph": _column([graphs[graph] for graph in served], "int32"),
        "model": _column([entry.model or entry.graph.name for entry in jobs], "U"),
        "batch": _column([entry.batch or 1 for entry in jobs], "int64"),
        "arrival": _column([entry.arrival for entry in jobs], "float64"),
        "deadline": _column(
            [np.inf if entry.deadline is None else entry.deadline for entry in jobs], "float64"
        ),
        "priority": _column([entry.priority for entry in jobs], "int64"),
        "origin": _column([cluster.space_index.get(j.origin or "", -1) for j in jobs], "int32"),
        "destination": _column(
            [cluster.space_index.get(j.destination or "", -1) for j in jobs], "int32"
        ),
        "finish": _column(list(finishes), "float64"),
        "status": np.full(len(jobs), "finished") if statuses is None else _column(statuses, "U"),
        "reason": (
            np.full(len(jobs), "", dtype="U1") if reasons is None else _column(reasons, "U")
        ),
    }
    meta = {
        **settings,
        "cluster": cluster.name,
        "devices": [entry.name for entry in cluster.devices],
        "slots": [entry.slots for entry in cluster.devices],
        "profiles": [entry.profile for entry in cluster.devices],
        "power_idle_w": [entry.power_idle for entry in cluster.devices],
        "power_busy_w": [entry.power_busy for entry in cluster.devices],
        "price_per_hour": [entry.price for entry in cluster.devices],
        "labels": dict(cluster.labels),
        "spaces": [space.name for space in cluster.spaces],
        "capacities_bytes": [
            None if space.capacity == np.inf else space.capacity for space in cluster.spaces
        ],
        "space_of": list(cluster.space_of),
        "channels": list(cluster.channels),
        "graphs": [GraphRecord(graph) for graph in graphs],
    }
    wallclock = {"decisions": float(decisions), "deciding_seconds": deciding_seconds}
    served_together = _members(executions, members or {})
    return Trace(executions, served_together, job_table, transfers, meta, wallclock)


def _members(executions: Table, batches: Mapping[int, Sequence[int]]) -> Table:
    """The ``members`` of executions."""
    execution, job = executions["execution"], executions["job"]
    if batches:
        rows = [batches.get(leader, (leader,)) for leader in job.tolist()]
        execution = np.repeat(execution, [len(row) for row in rows])
        job = np.array([member for row in rows for member in row], dtype=np.int64)
    return {"execution": execution, "job": job}


_META = (
    "devices",
    "slots",
    "profiles",
    "space_of",
    "power_idle_w",
    "power_busy_w",
    "price_per_hour",
)
"""Lists in ``meta`` with an entry for each device."""


def _check(tables: Mapping[str, Table], meta: Mapping[str, Any], folder: Path) -> None:
    """Refuse tables that point at what is not there.

    Raises:
        InvalidInput: names the file and the column.
    """
    described = folder / "trace.json"
    for key in (*_META, "spaces", "capacities_bytes", "channels", "graphs"):
        if not isinstance(meta.get(key), list):
            raise InvalidInput(f"{described} has no list '{key}'; simulate the run again")
    devices, spaces = len(meta["devices"]), len(meta["spaces"])
    for key, count in (*((key, devices) for key in _META), ("capacities_bytes", spaces)):
        if len(meta[key]) != count:
            raise InvalidInput(f"{described}: '{key}' has {len(meta[key])} entries, not {count}")
    for number, record in enumerate(meta["graphs"]):
        check_record(record, f"{described}: graph {number}")
    jobs, executions, transfers = tables["jobs"], tables["executions"], tables["transfers"]
    operators = np.array([len(record["operators"]) for record in meta["graphs"]], dtype=np.int64)
    tensors = np.array([len(record["bytes"]) for record in meta["graphs"]], dtype=np.int64)
    limits: list[tuple[str, str, int, Any]] = [
        ("jobs", "graph", 0, len(operators)),
        ("jobs", "origin", -1, spaces),
        ("jobs", "destination", -1, spaces),
        ("members", "job", 0, len(jobs["job"])),
        ("executions", "job", 0, len(jobs["job"])),
        ("executions", "device", 0, devices),
        ("transfers", "job", 0, len(jobs["job"])),
        ("transfers", "source", 0, spaces),
        ("transfers", "destination", 0, spaces),
        ("transfers", "link", 0, len(meta["channels"])),
    ]
    for name, column, least, limit in limits:
        _check_range(folder, name, column, tables[name][column], least, limit)
    graph_of = jobs["graph"]
    for name, table, column, sizes in (
        ("executions", executions, "operator", operators),
        ("transfers", transfers, "tensor", tensors),
    ):
        _check_range(folder, name, column, table[column], 0, sizes[graph_of[table["job"]]])
    slots = np.array(meta["slots"], dtype=np.int64)[executions["device"]]
    _check_range(folder, "executions", "slot", executions["slot"], 0, slots)


def _check_range(
    folder: Path, name: str, column: str, values: np.ndarray, least: int, limit: Any
) -> None:
    wrong = (values < least) | (values >= limit)
    if wrong.any():
        raise InvalidInput(
            f"{folder / name}.parquet: {column} {values[wrong][0]} in row {int(wrong.argmax())} does "
            "not exist in this trace; were its files mixed with another's?"
        )


def _transpose(rows: list[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def _column(values: Sequence[Any], kind: str) -> np.ndarray:
    if kind == "U":
        return np.array(values, dtype=str) if len(values) else np.zeros(0, dtype="U1")
    return np.array(values, dtype=kind)
