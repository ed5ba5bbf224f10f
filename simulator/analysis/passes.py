"""Passes of a training step, read off a trace: consecutive operators of one phase and micro-batch on a device.

They are the boxes of which papers draw pipelines. A pass goes on while its device waits for data in between; only
sums of gradients, which mostly wait, are apart then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.model.pass_tags import PHASES, tags_of
from simulator.model.trace import Trace

_SUMS = list(PHASES).index("C")


@dataclass(frozen=True, eq=False)
class Passes:
    """Columns with an entry for each pass, in order of device, slot and time; last those that take no time, one for each operator.

    Attributes:
        device, slot, job: where it ran, and of which job.
        phase: in the order of :data:`simulator.model.pass_tags.PHASES`.
        micro_batch: -1 for what serves all of them.
        start, finish: of its first and of its last operator, seconds.
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
    start, finish = runs["start"][order], runs["finish"][order]
    columns = (runs["device"], runs["slot"], runs["job"], phase, micro_batch, lost)
    key = np.stack([column[order].astype(np.int64) for column in columns], axis=1)
    # What takes no time interrupts nobody: it stands by itself.
    lasting, instant = np.flatnonzero(finish > start), np.flatnonzero(finish <= start)
    idle = np.append(True, start[lasting[1:]] > finish[lasting[:-1]])[: len(lasting)]
    differs = np.append(True, np.any(np.diff(key[lasting], axis=0) != 0, axis=1))[: len(lasting)]
    begins = differs | (idle & (key[lasting, 3] == _SUMS))
    opens = np.concatenate([lasting[begins], instant])
    of = np.empty(len(order), dtype=np.int64)
    of[order[lasting]] = np.cumsum(begins) - 1
    of[order[instant]] = np.arange(len(opens) - len(instant), len(opens))
    ends = np.full(len(opens), -np.inf)
    np.maximum.at(ends, of[order], finish)
    device, slot, job, number, piece, gone = key[opens].T
    return Passes(device, slot, job, number, piece, start[opens], ends, gone > 0, of)


__all__ = ["Passes", "passes", "tags"]
