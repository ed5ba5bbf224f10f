"""Figures of training steps, from a trace alone.

- A job is an *iteration*. Iterations last from the first start of an execution or a transfer to the last finish.
- A device *idles* while it executes nothing; the *bubble* is the share of that time in which it does. A device on
  which nothing but communication (``#C``) runs takes no part.
- *Exposed communication* of a device is the time in which it idles and waits for communication alone: all is computed
  that the execution which starts next on it needs, and the last of it is not there yet. It is being moved, or summed
  (``#C``) with other gradients that are computed, too, or waits on its way for a link, for room, or for other sums.

Micro-batches and phases are those in the operators' names (:mod:`simulator.model.pass_tags`); of a step that was not
cut into micro-batches the other figures are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypedDict

import numpy as np

from simulator.analysis.dependencies import Dependencies
from simulator.analysis.metrics import covered
from simulator.analysis.passes import Passes, passes, tags
from simulator.analysis.residency import occupancy
from simulator.model.pass_tags import PHASES
from simulator.model.trace import Trace

_F, _B, _W, _R, _U, _C = range(len(PHASES))


class TrainingDevice(TypedDict):
    """One device that takes part.

    Attributes:
        bubble: its idle time over that of the iterations.
        exposed_communication_s: in all iterations, see the module docstring.
        stashed_micro_batches: the most micro-batches at once of which it has begun the forward pass and not ended the
            backward pass (its gradients of weights, where these are apart), counted for each chunk; None without tags.
        peak_bytes: the most that lay in its memory at once.
    """

    bubble: float
    exposed_communication_s: float
    stashed_micro_batches: int | None
    peak_bytes: float


class TrainingMetrics(TypedDict):
    """See the module docstring.

    Attributes:
        iteration_s: of all iterations, over their number.
        update_interval_s: of asynchronous micro-batches, each followed by an update, the time from update to update:
            the mean over the middle half of them, which leaves out filling and draining; None of others.
        micro_batches: of an iteration; 1 without tags.
        micro_batches_per_s: of the whole run.
        samples_per_s: by the graphs' batch; None where it is unknown.
        bubble: mean over the devices that take part.
        communication_s: time of an iteration in which a transfer or a sum of gradients was under way anywhere.
        exposed_communication_s: of an iteration; mean over the devices that take part.
        peak_memory_bytes: the largest of any device that takes part.
        training_devices: by name.
    """

    iteration_s: float
    update_interval_s: float | None
    micro_batches: float
    micro_batches_per_s: float | None
    samples_per_s: float | None
    bubble: float
    communication_s: float
    exposed_communication_s: float
    peak_memory_bytes: float
    training_devices: dict[str, TrainingDevice]


def training_metrics(
    trace: Trace, dependencies: Dependencies | None = None
) -> TrainingMetrics | None:
    """The figures of iterations.

    Args:
        trace: of a simulated or a measured run whose jobs are training steps.
        dependencies: of this trace, where somebody has them already.

    Returns:
        A JSON-ready mapping; None unless all jobs finished.
    """
    jobs, runs = trace.jobs, trace.executions
    if not len(runs["start"]) or np.any(jobs["status"] != "finished"):
        return None
    known = dependencies or Dependencies.of(trace)
    phase, micro_batch = tags(trace)
    begin = float(min(runs["start"].min(), trace.transfers["start"].min(initial=np.inf)))
    end = float(max(runs["finish"].max(), jobs["finish"].max()))
    span, iterations = end - begin, len(jobs["job"])
    sums = phase == _C
    waits = _Waits(known, sums)
    found = passes(trace)
    peaks = [used.peak for used in occupancy(trace, known)]
    devices: dict[str, TrainingDevice] = {}
    for device in np.unique(runs["device"][~sums]).tolist():
        rows = np.flatnonzero(runs["device"] == device)
        gaps = list(waits.gaps(rows, begin, end))
        idle = sum(b - a for a, b, _ in gaps)
        devices[trace.devices[device]] = {
            "bubble": idle / span if span > 0 else 0.0,
            "exposed_communication_s": float(sum(waits.seconds(*gap) for gap in gaps)),
            "stashed_micro_batches": None if found is None else _stashed(found, device),
            "peak_bytes": peaks[trace.meta["space_of"][device]],
        }
    figures = list(devices.values())
    moves = known.crossings
    communicated = covered(
        [*(moves["start"] - begin).tolist(), *(runs["start"][sums] - begin).tolist()],
        [*(moves["finish"] - begin).tolist(), *(runs["finish"][sums] - begin).tolist()],
    )
    pieces = np.unique(np.stack([runs["job"], micro_batch])[:, micro_batch >= 0], axis=1).shape[1]
    batches = [trace.meta["graphs"][graph]["batch"] for graph in jobs["graph"].tolist()]
    samples = None if None in batches else sum(batches)
    updates = (phase == _U) & (micro_batch >= 0)
    return {
        "iteration_s": span / iterations,
        "update_interval_s": _interval(
            runs["job"][updates], micro_batch[updates], runs["finish"][updates]
        ),
        "micro_batches": max(pieces / iterations, 1.0),
        "micro_batches_per_s": max(pieces, iterations) / span if span > 0 else None,
        "samples_per_s": None if samples is None or span <= 0 else samples / span,
        "bubble": sum(d["bubble"] for d in figures) / len(figures),
        "communication_s": communicated / iterations,
        "exposed_communication_s": sum(d["exposed_communication_s"] for d in figures)
        / (len(figures) * iterations),
        "peak_memory_bytes": max(d["peak_bytes"] for d in figures),
        "training_devices": devices,
    }


class _Waits:
    """When the inputs of each execution were computed and when they were there."""

    def __init__(self, known: Dependencies, sums: np.ndarray) -> None:
        runs, moves = known.trace.executions, known.crossings
        self.start, self.finish = runs["start"], runs["finish"]
        row, crossing, producer = known.reads["execution"], known.read_crossing, known.read_producer
        moved, written = crossing >= 0, producer >= 0
        came, made = np.full((2, len(row)), -np.inf)
        came[written] = made[written] = runs["finish"][producer[written]]
        came[moved] = moves["finish"][crossing[moved]]
        stored = moved & ~written  # inputs and weights are on their way from their request
        made[stored] = moves["requested"][crossing[stored]]
        summed = written & np.append(sums, False)[producer]
        made[summed] = -np.inf
        self.there, computed = np.full((2, len(sums)), -np.inf)
        np.maximum.at(self.there, row, came)
        np.maximum.at(computed, row, made)
        # Of sums what was summed; they start in the order in which they follow each other.
        reader, sum_ = row[summed], producer[summed]
        order = np.lexsort((reader, runs["start"][reader]))
        self.computed = computed.tolist()
        for after, before in zip(reader[order].tolist(), sum_[order].tolist(), strict=True):
            self.computed[after] = max(self.computed[after], self.computed[before])

    def gaps(
        self, rows: np.ndarray, begin: float, end: float
    ) -> Iterator[tuple[float, float, int]]:
        """When a device idles, from when until when, and the execution it waits for; -1 for none.

        Args:
            rows: executions of the device.
            begin: when the iterations begin.
            end: when they end.
        """
        # Of those that start together the one that was held up longest stood in front.
        rows = rows[np.lexsort((-self.there[rows], self.start[rows]))]
        times = zip(
            rows.tolist(), self.start[rows].tolist(), self.finish[rows].tolist(), strict=True
        )
        until = begin
        for row, start, finish in times:
            if start > until:
                yield until, start, row
            until = max(until, finish)
        if end > until:
            yield until, end, -1

    def seconds(self, begin: float, end: float, row: int) -> float:
        """How long of an idle time what an execution needs was computed, and not there."""
        if row < 0:
            return 0.0
        return max(min(end, self.there[row]) - max(begin, self.computed[row]), 0.0)


def _interval(job: np.ndarray, micro_batch: np.ndarray, finish: np.ndarray) -> float | None:
    """Seconds between the ends of micro-batches' updates, over the middle half of them."""
    if not len(job):
        return None
    _, number = np.unique(np.stack([job, micro_batch]), axis=1, return_inverse=True)
    ends = np.zeros(number.max() + 1)
    np.maximum.at(ends, number.reshape(-1), finish)
    ends.sort()
    first, last = len(ends) // 4, len(ends) - 1 - len(ends) // 4
    return float((ends[last] - ends[first]) / (last - first)) if last > first else None


def _stashed(found: Passes, device: int) -> int:
    """See :class:`TrainingDevice`. A device has as many passes of a micro-batch as chunks."""
    counts = ~found.lost & (found.micro_batch >= 0) & (found.finish > found.start)
    rows = np.flatnonzero((found.device == device) & counts)
    blocks: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    keys = zip(
        *(c[rows].tolist() for c in (found.job, found.micro_batch)),
        # What is computed again belongs to the backward pass that it interrupts.
        np.where(found.phase == _R, _B, found.phase)[rows].tolist(),
        strict=True,
    )
    spans = zip(found.start[rows].tolist(), found.finish[rows].tolist(), strict=True)
    for key, group in itertools.groupby(zip(keys, spans, strict=True), key=lambda pair: pair[0]):
        times = [span for _, span in group]
        blocks.setdefault(key, []).append((times[0][0], max(finish for _, finish in times)))
    events: list[tuple[float, int]] = []
    for (job, number, phase), forward in blocks.items():
        backward = blocks.get((job, number, _W)) or blocks.get((job, number, _B))
        if phase != _F or backward is None:
            continue
        starts = [start for start, _ in forward]
        ends = sorted(finish for _, finish in backward)
        if len(starts) != len(ends):  # passes that others interrupted: from the first to the last
            starts, ends = [min(starts)], ends[-1:]
        events += [(start, 1) for start in starts] + [(finish, -1) for finish in ends]
    held = itertools.accumulate(change for _, change in sorted(events))
    return max(held, default=0)


__all__ = ["TrainingDevice", "TrainingMetrics", "training_metrics"]
