"""What is kept of a run: the whole trace, or figures of requests as they leave (:mod:`simulator.streaming`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from simulator.trace import Table, Trace, assemble, execution_table, transfer_table

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.flows import Flow
    from simulator.simulation import Request, Simulation
    from simulator.workload import Job

FINISHED, LOST = "finished", "lost"
"""What became of an execution."""
Snapshot = tuple[int, int, int, str, float, float, float]
"""Of an execution: device, slot, attempt, status, ready, placed and start."""


class Recorder(Protocol):
    """What the engine tells while a run goes on.

    Attributes:
        forgets: whether it drops the state of jobs that have left, and wants to be told of settled instants.
    """

    forgets: bool

    def arrived(self, job: Job) -> None:
        """A job has arrived."""

    def execution(self, task: int, device: int, finish: float, status: str) -> None:
        """An execution is over, ``FINISHED`` or ``LOST`` at ``finish``, seconds."""

    def booked(self, requests: Sequence[Request]) -> None:
        """Transfers were sent at this instant whose starts and ends are final."""

    def sent(self, flow: Flow) -> None:
        """A flow was asked for."""

    def delivered(self, flow: Flow) -> None:
        """A flow has ended, or was called off after it had started."""

    def left(self, jobs: Iterable[int]) -> None:
        """All tasks of jobs are done, or they were refused."""

    def settled(self) -> None:
        """An instant is settled."""

    def result(self) -> Any:
        """The run is over: what is kept of it."""
        ...


def executed(
    first_task: Sequence[int] | np.ndarray,
    task: np.ndarray,
    device: np.ndarray,
    slot: np.ndarray,
    ready: np.ndarray,
    placed: np.ndarray,
    start: np.ndarray,
    finish: np.ndarray,
    *,
    attempt: np.ndarray | None = None,
    status: np.ndarray | None = None,
) -> Table:
    """The ``executions`` of a run, from columns in the order in which ends became known.

    ``first_task`` is for each job the number of its first task.
    """
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


class TraceRecorder:
    """Keeps everything; the result is a :class:`simulator.trace.Trace`."""

    forgets = False

    def __init__(self, run: Simulation) -> None:
        self._run = run
        # By execution: the task, and when it ended. What else is known of it stands in the run's columns,
        # unless tasks may run again: then it is kept here as well.
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._snapshots: list[Snapshot] | None = [] if run._setting.faults else None
        self._booked: list[
            float
        ] = []  # requests one after the other: plain numbers cost least to keep
        self._order: dict[Flow, int] = {}  # in order of request
        self._delivered: list[Flow] = []

    def arrived(self, job: Job) -> None:
        """See :class:`Recorder`."""

    def left(self, jobs: Iterable[int]) -> None:
        """See :class:`Recorder`."""

    def settled(self) -> None:
        """See :class:`Recorder`."""

    def execution(self, task: int, device: int, finish: float, status: str) -> None:
        """See :class:`Recorder`."""
        self._ended.append(task)
        self._ends.append(finish)
        if self._snapshots is not None:
            self._snapshots.append(self._snapshot(task, device, status))

    def _snapshot(self, task: int, device: int, status: str) -> Snapshot:
        run = self._run
        return (
            device,
            run._slot[task],
            run._attempts.get(task, 0),
            status,
            run._ready_at[task],
            run._placed_at[task],
            run._start_time[task],
        )

    def booked(self, requests: Sequence[Request]) -> None:
        """See :class:`Recorder`."""
        for request in requests:
            self._booked += request

    def sent(self, flow: Flow) -> None:
        """See :class:`Recorder`."""
        self._order[flow] = len(self._order)

    def delivered(self, flow: Flow) -> None:
        """See :class:`Recorder`."""
        self._delivered.append(flow)

    def result(self) -> Trace:
        """See :class:`Recorder`."""
        run = self._run
        settings = run.settings()
        finishes, statuses, reasons = run.fates()
        return assemble(
            self._execution_table(),
            self._booked_table() if self._booked else self._flow_table(),
            run.cluster,
            run.jobs,
            run._first_tensor,
            finishes,
            settings,
            run._decisions,
            run._deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=run._members,
            served_by=run._served_by,
        )

    def _execution_table(self) -> Table:
        run = self._run
        rows = self._snapshots
        if run._setting.horizon < math.inf:
            cut_off = run.cut_off()
            if rows is None and any(status != FINISHED for *_, status in cut_off):
                rows = [self._snapshot(task, run._device[task], FINISHED) for task in self._ended]
            for task, device, end, status in cut_off:
                self._ended.append(task)
                self._ends.append(end)
                if rows is not None:
                    rows.append(self._snapshot(task, device, status))
        tasks, finish = np.array(self._ended, dtype=np.int64), np.array(self._ends)
        if rows is None:
            columns = (run._device, run._slot, run._ready_at, run._placed_at, run._start_time)
            usual = (np.array(column)[tasks] for column in columns)
            return executed(run._first_task, tasks, *usual, finish)
        table = list(zip(*rows, strict=True)) or [()] * 7
        device, slot, attempt, status, ready, placed, start = map(np.array, table)
        usual = (device, slot, ready, placed, start, finish)
        return executed(run._first_task, tasks, *usual, attempt=attempt, status=status)

    def _booked_table(self) -> Table:
        run, horizon = self._run, self._run._setting.horizon
        table = np.array(self._booked).reshape(-1, 7)
        if horizon < math.inf:
            table = table[table[:, 5] <= horizon]
        tensor, destination, source = table[:, :3].T.astype(np.int64)
        ends = (tensor, source, destination)
        return transferred(run.cluster, run._first_tensor, *ends, [*table[:, 3:].T])

    def _flow_table(self) -> Table:
        """The same of flows."""
        run = self._run
        # Those that waited for room may have been numbered after they were requested.
        last = len(self._order)
        flows = sorted(
            self._delivered,
            key=lambda f: (f.requested, self._order.get(f, last), f.tensors, f.destination),
        )
        # By flow; then by tensor of every flow; then by channel of these.
        columns = np.array(
            [(f.source, f.destination, f.requested, f.start, f.end, f.carried) for f in flows],
            dtype=np.float64,
        ).reshape(-1, 6)
        tensor = np.array([t for f in flows for t in f.tensors], dtype=np.int64)
        job = np.searchsorted(run._first_tensor, tensor, side="right") - 1
        # What led a batch moves its own share of results, and perhaps what is in between for all.
        sizes = np.array(
            [
                f.size if len(f.tensors) == 1 else run.own_bytes(t)
                for f, t in zip((f for f in flows for _ in f.tensors), tensor.tolist(), strict=True)
            ],
            dtype=np.float64,
        )
        counts = np.array([len(f.tensors) for f in flows], dtype=np.int64)
        flow = np.repeat(np.arange(len(flows)), counts)
        hops = np.array([len(f.route.channels) for f in flows], dtype=np.int64)[flow]
        channel = [c for f in flows for _ in f.tensors for c in f.route.channels]
        row = np.repeat(np.arange(len(tensor)), hops)
        source, destination, requested, start, end, carried = columns[flow[row]].T
        ends = (source, destination, channel, requested, start, end)
        return transfer_table(tensor[row], job[row], *ends, sizes[row] * carried)
