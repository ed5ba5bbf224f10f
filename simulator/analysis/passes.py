"""Passes of a training step, read off a trace: runs of operators of one phase and micro-batch on a device.

They are the boxes of which papers draw pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.model.pass_tags import tags_of
from simulator.model.trace import Trace


@dataclass(frozen=True, eq=False)
class Passes:
    """Columns with an entry for each pass, in order of device, slot and time.

    Attributes:
        device, slot, job: where it ran, and of which job.
        phase: in the order of :data:`simulator.model.pass_tags.PHASES`.
        micro_batch: -1 for what serves all of them.
        start, finish: of its first and of its last operator, seconds; it may have waited in between.
        lost: whether its operators were lost to a fault or cut off.
        of: int64[executions], the pass of each one.
    """

    device: np.ndarray
    slot: np.ndarray
    job: np.ndarray
    phase: np.ndarray
    micro_batch: np.ndarray
    start: np.ndarray
    finish: np.ndarray
    lost: np.ndarray
    of: np.ndarray


def tags(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Phase and micro-batch of every execution, as of :func:`simulator.model.pass_tags.tags_of`."""
    runs = trace.executions
    graph = trace.jobs["graph"][runs["job"]]
    phase, micro_batch = np.full((2, len(graph)), -1, dtype=np.int64)
    for number, record in enumerate(trace.meta["graphs"]):
        mine = graph == number
        if mine.any():
            of_operators = tags_of(record["operators"])
            for column, known in zip((phase, micro_batch), of_operators, strict=True):
                column[mine] = known[runs["operator"][mine]]
    return phase, micro_batch


def passes(trace: Trace) -> Passes | None:
    """The passes of a trace; None unless every operator that ran is tagged."""
    runs = trace.executions
    phase, micro_batch = tags(trace)
    if not len(phase) or phase.min() < 0:
        return None
    lost = runs["status"] != "finished"
    order = np.lexsort((runs["finish"], runs["start"], runs["slot"], runs["device"]))
    columns = [runs["device"], runs["slot"], runs["job"], phase, micro_batch, lost]
    columns = [column[order] for column in columns]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = np.any([np.diff(column) != 0 for column in columns], axis=0)
    first = np.flatnonzero(begins)
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(begins) - 1
    device, slot, job, phase, micro_batch, lost = (column[first] for column in columns)
    finish = np.maximum.reduceat(runs["finish"][order], first)
    start = runs["start"][order[first]]
    return Passes(device, slot, job, phase, micro_batch, start, finish, lost, of)


__all__ = ["Passes", "passes", "tags"]
