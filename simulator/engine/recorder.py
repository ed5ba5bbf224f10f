"""What is kept of a run: the whole trace, or figures of requests as they leave (:mod:`simulator.engine.figures_recorder`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.setting import EngineRun
from simulator.model.trace import (
    FINISHED,
    Table,
    Trace,
    assemble,
    executed,
    transfer_table,
    transferred,
)

if TYPE_CHECKING:
    from simulator.context.simulated import Request
    from simulator.links.flows import Flow
    from simulator.model.workload import Job

Snapshot = tuple[int, int, int, str, float, float, float]
"""Of an execution: device, slot, attempt, status, ready, placed and start."""


class TraceRecorder:
    """Keeps everything; the result is a :class:`simulator.model.trace.Trace`."""

    forgets = False

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        # By execution: the task, and when it ended. What else is known of it stands in the run's columns,
        # unless tasks may run again: then it is kept here as well.
        self._ended: list[int] = []
        self._ends: list[float] = []
        self._snapshots: list[Snapshot] | None = [] if run.setting.faults else None
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
            run.task_slot[task],
            run.attempts.get(task, 0),
            status,
            run.ready_at[task],
            run.placed_at[task],
            run.start_time[task],
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
            run.first_tensor,
            finishes,
            settings,
            run.decisions,
            run.deciding_seconds,
            statuses=statuses,
            reasons=reasons,
            members=run.members,
            served_by=run.served_by,
        )

    def _execution_table(self) -> Table:
        run = self._run
        rows = self._snapshots
        if run.setting.horizon < math.inf:
            cut_off = run.cut_off()
            if rows is None and any(status != FINISHED for *_, status in cut_off):
                rows = [
                    self._snapshot(task, run.task_device[task], FINISHED) for task in self._ended
                ]
            for task, device, end, status in cut_off:
                self._ended.append(task)
                self._ends.append(end)
                if rows is not None:
                    rows.append(self._snapshot(task, device, status))
        tasks, finish = np.array(self._ended, dtype=np.int64), np.array(self._ends)
        if rows is None:
            columns = (run.task_device, run.task_slot, run.ready_at, run.placed_at, run.start_time)
            usual = [np.array(column)[tasks] for column in columns]
            return executed(run.first_task, [tasks, *usual, finish])
        table = list(zip(*rows, strict=True)) or [()] * 7
        devices, slots, attempts, outcomes, ready, placed, start = map(np.array, table)
        usual = [devices, slots, ready, placed, start]
        return executed(run.first_task, [tasks, *usual, finish], attempts, outcomes)

    def _booked_table(self) -> Table:
        run, horizon = self._run, self._run.setting.horizon
        table = np.array(self._booked).reshape(-1, 7)
        if horizon < math.inf:
            table = table[table[:, 5] <= horizon]
        tensor, destination, source = table[:, :3].T.astype(np.int64)
        ends = (tensor, source, destination)
        return transferred(run.cluster, run.first_tensor, *ends, [*table[:, 3:].T])

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
        job = np.searchsorted(run.first_tensor, tensor, side="right") - 1
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
