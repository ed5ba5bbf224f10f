"""Traces for ui.perfetto.dev and chrome://tracing, in Chrome's JSON form.

A process for each device with a track for each slot, one process for the links with a track for each
channel (one direction of a link), and one for the jobs where there are several. Slices of one track
never overlap, which these viewers require: what does overlap (transfers without contention, the tensors
of a packed message) is spread over several tracks of the same name. Arrows lead from the execution that
wrote a tensor to its transfer and from there to the executions that read it. Above the operators of a training step over
micro-batches a track shows its passes: ``forward 3``, ``backward 3``. Counters show each device's
queue (tasks placed and not started) and the bytes in each memory space.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs.atomic import replacing
from simulator.analysis.dependencies import Dependencies
from simulator.analysis.passes import passes
from simulator.analysis.residency import occupancy
from simulator.model.graph_record import arrays_of
from simulator.model.pass_tags import PHASES
from simulator.model.trace import Trace

# Viewers multiply microseconds by 1000 in floating point and cut off the rest. Times that are whole
# multiples of 2^-8 us survive that without neighbouring slices coming to overlap by a nanosecond.
_PER_MICROSECOND = 256.0


def write_perfetto(trace: Trace, path: str | Path) -> Path:
    """Write the trace as Chrome trace JSON, whole or not at all; returns the path.

    Timestamps and durations are microseconds, rounded to 1/256 us; the exact seconds of a slice are
    among its arguments. The same trace gives the same bytes.
    """
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            key: trace.meta[key]
            for key in ("cluster", "scheduler", "world", "movement", "contention")
            if key in trace.meta
        },
        "traceEvents": perfetto_events(trace),
    }
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        # In one piece: the encoder that writes piece by piece is a slow one.
        file.write(json.dumps(document, separators=(",", ":"), check_circular=False))
    return Path(path)


def perfetto_events(trace: Trace) -> list[dict[str, Any]]:
    """The trace's events: names of processes and tracks, then slices, arrows and counters.

    Each kind is in order of time.
    """
    writer = _Tracks()
    known = Dependencies.of(trace)
    devices, spaces = trace.devices, trace.meta["spaces"]
    labels = trace.meta.get("labels", {})
    for number, (device, slots) in enumerate(zip(devices, trace.meta["slots"], strict=True)):
        profile = trace.meta["profiles"][number]
        label = f" ({labels[profile]})" if profile in labels else ""
        writer.process(number, f"{device}: {profile}{label}" if profile else device)
        for slot in range(slots):
            writer.track(number, slot, device if slots == 1 else f"{device} slot {slot}")
    links, jobs, memory = len(devices), len(devices) + 1, len(devices) + 2
    channels = trace.meta["channels"]
    if len(trace.transfers["link"]):
        writer.process(links, "links")
        for channel, name in enumerate(channels):
            writer.track(links, channel, name)
    if len(trace.jobs["job"]) > 1:
        writer.process(jobs, "jobs")
        writer.track(jobs, 0, "jobs")

    writer.process(memory, "memory")
    names = _tensor_names(trace)
    members: dict[int, list[int]] = {}
    for execution, job in _rows(trace.members, "execution", "job"):
        members.setdefault(execution, []).append(job)
    for (
        execution,
        task,
        job,
        operator,
        device,
        slot,
        attempt,
        status,
        ready,
        placed,
        start,
        end,
    ) in _rows(
        trace.executions,
        *("execution", "task", "job", "operator", "device", "slot", "attempt", "status"),
        *("ready", "placed", "start", "finish"),
    ):
        name, kind = trace.operator(job, operator)
        arguments = {
            "task": task,
            "job": job,
            "attempt": attempt,
            "status": status,
            "ready_s": _finite(ready),
            "placed_s": _finite(placed),
            "start_s": start,
            "finish_s": end,
        }
        if len(members.get(execution, ())) > 1:
            arguments["jobs"] = members[execution]
        writer.slice(device, slot, name, kind, start, end, arguments)
    graph_of = trace.jobs["graph"].tolist()
    for tensor, job, source, destination, link, requested, start, end, size in _rows(
        trace.transfers,
        *(
            "tensor",
            "job",
            "source",
            "destination",
            "link",
            "requested",
            "start",
            "finish",
            "bytes",
        ),
    ):
        arguments = {
            "tensor": tensor,
            "job": job,
            "source": spaces[source],
            "destination": spaces[destination],
            "bytes": size,
            "requested_s": requested,
            "start_s": start,
            "finish_s": end,
        }
        name = names[graph_of[job]][tensor]
        writer.slice(links, link, name, "transfer", start, end, arguments)
    if len(trace.jobs["job"]) > 1:
        for job, model, batch, arrival, deadline, end, status in _rows(
            trace.jobs, "job", "model", "batch", "arrival", "deadline", "finish", "status"
        ):
            if math.isfinite(end):
                arguments = {"batch": batch, "deadline_s": _finite(deadline), "status": status}
                writer.slice(jobs, 0, f"{model} #{job}", "job", arrival, end, arguments)
    _draw_passes(writer, trace)
    _draw_arrows(writer, known)
    for number in range(len(devices)):
        times, lengths = _queue(trace, number)
        writer.counter(number, "queue length", "tasks", times, lengths)
    for name, used in zip(spaces, occupancy(trace, known), strict=True):
        writer.counter(memory, name, "bytes", used.time, used.bytes)
    return writer.events()


def _draw_passes(writer: _Tracks, trace: Trace) -> None:
    """A track for each slot, before all of operators; passes without duration are left out."""
    found = passes(trace)
    if found is None:
        return
    slots, names = trace.meta["slots"], list(PHASES.values())
    for device, slot, job, phase, number, lost, start, end in zip(
        *(column.tolist() for column in (found.device, found.slot, found.job, found.phase)),
        *(column.tolist() for column in (found.micro_batch, found.lost, found.start, found.finish)),
        strict=True,
    ):
        if end > start:
            what = "passes" if slots[device] == 1 else f"passes of slot {slot}"
            writer.track(device, slot - slots[device], what)
            arguments = {"job": job, "start_s": start, "finish_s": end}
            if number >= 0:
                arguments["micro_batch"] = number
            if lost:
                arguments["status"] = "lost"
            name = names[phase] if number < 0 else f"{names[phase]} {number}"
            writer.slice(device, slot - slots[device], name, names[phase], start, end, arguments)


def _draw_arrows(writer: _Tracks, known: Dependencies) -> None:
    """From producers to transfers to consumers. Slices: the executions, then the transfers."""
    first = len(known.trace.executions["start"])
    slices = (first + known.crossings["row"]).tolist()
    for crossing, producer in enumerate(known.crossing_producer.tolist()):
        if producer >= 0:
            writer.arrow(producer, slices[crossing])
    reads = zip(
        known.read_crossing.tolist(),
        known.reads["execution"].tolist(),
        known.trace.executions["start"][known.reads["execution"]].tolist(),
        strict=True,
    )
    arrived = known.crossings["finish"].tolist()
    for crossing, execution, start in reads:
        if crossing >= 0 and arrived[crossing] <= start:
            writer.arrow(slices[crossing], execution)


def _queue(trace: Trace, device: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and, from each on, how many tasks were placed on a device and had not started."""
    runs = trace.executions
    here = (runs["device"] == device) & np.isfinite(runs["placed"])
    placed, start = runs["placed"][here], runs["start"][here]
    times = np.concatenate([placed, start])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(placed)), -np.ones(len(start))])
    return times[order], np.cumsum(change[order])


def _tensor_names(trace: Trace) -> list[list[str]]:
    """For each graph what its tensors are called: by the operators that write them."""
    found = []
    for record in trace.meta["graphs"]:
        producers = arrays_of(record).producer.tolist()
        what = {"i": "input", "w": "weight", "a": "tensor"}
        found.append(
            [
                f"{what[role]} {tensor}" if producer < 0 else record["operators"][producer]
                for tensor, (role, producer) in enumerate(
                    zip(record["roles"], producers, strict=True)
                )
            ]
        )
    return found


class _Tracks:
    """Collects slices by track and spreads those of one track that overlap over several."""

    def __init__(self) -> None:
        self._processes: dict[int, str] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._slices: dict[tuple[int, int], list[tuple[int, int, int, dict[str, Any]]]] = {}
        self._count = 0
        self._arrows: list[tuple[int, int]] = []
        self._counters: list[dict[str, Any]] = []

    def process(self, process: int, name: str) -> None:
        self._processes[process] = name

    def track(self, process: int, track: int, name: str) -> None:
        self._names[process, track] = name

    def slice(
        self,
        process: int,
        track: int,
        name: str,
        category: str,
        start: float,
        finish: float,
        arguments: dict[str, Any],
    ) -> None:
        begin, end = _ticks(start), _ticks(finish)
        event = {"name": name, "cat": category, "args": arguments}
        self._slices.setdefault((process, track), []).append((begin, end, self._count, event))
        self._count += 1

    def arrow(self, source: int, target: int) -> None:
        """From the end of one slice to the start of another; slices count in order of making."""
        self._arrows.append((source, target))

    def counter(
        self, process: int, name: str, unit: str, times: np.ndarray, values: np.ndarray
    ) -> None:
        """A step function; of several values at one instant the last counts."""
        ticks = np.rint(times * (1e6 * _PER_MICROSECOND))
        last = np.append(ticks[1:] != ticks[:-1], True)[: len(ticks)]
        for tick, value in zip(ticks[last].tolist(), values[last].tolist(), strict=True):
            self._counters.append(
                {
                    "name": name,
                    "ph": "C",
                    "pid": process,
                    "ts": tick / _PER_MICROSECOND,
                    "args": {unit: value},
                }
            )

    def events(self) -> list[dict[str, Any]]:
        metadata: list[dict[str, Any]] = []
        slices: list[tuple[int, int, int, dict[str, Any]]] = []
        for process, name in sorted(self._processes.items()):
            metadata.append(_metadata(process, 0, "process_name", name=name))
            metadata.append(_metadata(process, 0, "process_sort_index", sort_index=process))
        thread = 0
        for key, name in sorted(self._names.items()):
            entries = sorted(self._slices.get(key, []), key=lambda entry: entry[:3])
            lanes = assign_lanes([(begin, end) for begin, end, _, _ in entries])
            for lane in range(max(lanes, default=0) + 1):
                suffix = f" ({lane + 1})" if lane else ""
                metadata.append(_metadata(key[0], thread + lane, "thread_name", name=name + suffix))
                metadata.append(
                    _metadata(key[0], thread + lane, "thread_sort_index", sort_index=thread + lane)
                )
            for (begin, end, order, event), lane in zip(entries, lanes, strict=True):
                placed = {
                    **event,
                    "ph": "X",
                    "pid": key[0],
                    "tid": thread + lane,
                    "ts": begin / _PER_MICROSECOND,
                    "dur": (end - begin) / _PER_MICROSECOND,
                }
                slices.append((begin, end, order, placed))
            thread += max(lanes, default=0) + 1
        slices.sort(key=lambda entry: entry[:3])
        placed_slices = [event for *_, event in slices]
        return metadata + placed_slices + self._arrow_events(slices) + self._counter_events()

    def _arrow_events(
        self, slices: list[tuple[int, int, int, dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """Two events for each arrow, which viewers bind to the slices around their times."""
        placed = {order: (begin, end, event) for begin, end, order, event in slices}
        found: list[tuple[int, dict[str, Any]]] = []
        for number, (source, target) in enumerate(self._arrows):
            begin, end, event = placed[source]
            leaves = max(begin, end - 1)  # at its end a slice is over
            arrives, _, other = placed[target]
            common = {"name": "data", "cat": "data", "id": number}
            for ph, tick, at in (("s", leaves, event), ("f", max(leaves, arrives), other)):
                ends = {"pid": at["pid"], "tid": at["tid"], "ts": tick / _PER_MICROSECOND}
                found.append((tick, {**common, "ph": ph, **ends}))
                if ph == "f":
                    found[-1][1]["bp"] = "e"
        return [event for _, event in sorted(found, key=lambda entry: entry[0])]

    def _counter_events(self) -> list[dict[str, Any]]:
        return sorted(self._counters, key=lambda event: event["ts"])


def assign_lanes(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """The first lane that is free for each interval; touching intervals may share a lane.

    Args:
        intervals: (start, finish), sorted by start and then finish.

    Returns:
        A lane for each; as many lanes as intervals overlap at once.
    """
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    lanes, used = [], 0
    for start, finish in intervals:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, used = used, used + 1
        heapq.heappush(busy, (finish, lane))
        lanes.append(lane)
    return lanes


def _metadata(process: int, thread: int, kind: str, **arguments: Hashable) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": arguments}


def _ticks(seconds: float) -> int:
    return round(seconds * 1e6 * _PER_MICROSECOND)


def _finite(seconds: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return seconds if math.isfinite(seconds) else None


def _rows(table: dict[str, np.ndarray], *columns: str) -> zip[tuple[Any, ...]]:
    return zip(*(table[column].tolist() for column in columns), strict=True)
