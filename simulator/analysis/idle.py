"""Why slots were idle, worked out from a trace.

While a slot of a device is idle, look at the execution that starts next on that device: it is the one
that the slot waits for, since a device runs its queue in order (of several that start together, the one that
was held up longest: the others stood behind it). The idle time until it starts falls
into parts, in this order, each ending where the next begins:

``down``
    the device was down (``meta["outages"]``), whatever else; taken out of the parts below.
``no_work``
    until it was ready: its predecessors ran elsewhere, its job had not arrived, or nothing came after.
``decision``
    until it was placed on the device: it was ready, a slot was idle, and it was not given to it.
``link``
    until the transfer of the input that arrived last had its links to itself: until the transfer
    before it on any of its channels had ended, or, where nothing has to wait for memory, until it
    started.
``memory``
    until that transfer started, its links being free; and see below.
``data``
    until that transfer ended.
``overhead``
    until it started, with all its inputs there: the device was slow to begin (submission and
    completion latency; in measured runs the runner's own time). In a run with ``memory`` limited, on
    a device whose space has a capacity, this part is ``memory`` instead: it waited for room.

The parts of all slots of a device, seconds times slots, add up to its idle time from 0 to the end of
the run.
"""

from __future__ import annotations

import numpy as np

from simulator.analysis.dependencies import Dependencies
from simulator.model.trace import Trace

CAUSES = ("no_work", "decision", "link", "memory", "data", "overhead", "down")


def idle_seconds(trace: Trace, dependencies: Dependencies | None = None) -> np.ndarray:
    """Idle seconds by cause.

    Args:
        trace: of a simulated or a measured run.
        dependencies: of this trace, where somebody has them already.

    Returns:
        float64[devices, causes], the causes in the order of :data:`CAUSES`; slots times seconds.
    """
    known = dependencies or Dependencies.of(trace)
    runs, meta, end = trace.executions, trace.meta, trace.end
    counted = meta.get("memory") == "limited"
    limited = np.array([counted and c is not None for c in meta["capacities_bytes"]], dtype=bool)
    last = _last_input(known)
    free = _links_free(known)
    moves = known.crossings
    moved = last >= 0
    # By execution: until when it waited for what; -inf where it did not.
    points = np.full((5, len(runs["start"])), -np.inf)
    points[0], points[1] = runs["ready"], runs["placed"]
    room = limited[known.space[moved]]
    points[2, moved] = np.where(room, free[last[moved]], moves["start"][last[moved]])
    points[3, moved] = moves["start"][last[moved]]
    points[4, moved] = moves["finish"][last[moved]]
    held = np.fmin(np.fmax.reduce(points), runs["start"])
    outages = np.array(meta.get("outages", ()), dtype=np.float64).reshape(-1, 3)
    result = np.zeros((len(meta["devices"]), len(CAUSES)))
    for device, slots in enumerate(meta["slots"]):
        rows = np.flatnonzero(runs["device"] == device)
        # Of those that start together the one that was held up longest stood in front.
        rows = rows[np.lexsort((-held[rows], runs["start"][rows]))]
        start, finish = (np.clip(runs[name][rows], 0.0, end) for name in ("start", "finish"))
        down = np.clip(outages[outages[:, 0] == device, 1:], 0.0, end)
        times, idle, lost = _idle_until(start, finish, down, slots, end)
        # The parts of the wait for each execution, from the start of the one before it.
        edges = np.empty((7, len(rows)))
        edges[0] = np.concatenate([np.zeros(1), start])[: len(rows)]
        for number in range(5):
            edges[number + 1] = np.fmax(edges[number], np.fmin(points[number, rows], start))
        edges[6] = start
        parts = np.diff(np.interp(edges, times, idle), axis=0).sum(axis=1)
        slack = "memory" if limited[meta["space_of"][device]] else "overhead"
        for cause, seconds in zip(
            ("no_work", "decision", "link", "memory", "data", slack), parts.tolist(), strict=True
        ):
            result[device, CAUSES.index(cause)] += seconds
        after = start[-1] if len(rows) else 0.0
        result[device, 0] += idle[-1] - np.interp(after, times, idle)
        result[device, -1] = lost
    return result


def _idle_until(
    start: np.ndarray, finish: np.ndarray, down: np.ndarray, slots: int, end: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Idle seconds of a device's slots up to each of some times, and those while it was down.

    Between the times they grow linearly.
    """
    times = np.concatenate([[0.0, end], start, finish, *down.T])
    count = len(start)
    change = np.zeros((2, len(times)), dtype=np.int64)
    change[0, 2 : 2 + count], change[0, 2 + count : 2 + 2 * count] = 1, -1
    change[1, 2 + 2 * count : 2 + 2 * count + len(down)] = 1
    change[1, 2 + 2 * count + len(down) :] = -1
    order = np.argsort(times, kind="stable")
    times = times[order]
    busy, stopped = np.cumsum(change[:, order], axis=1)[:, :-1]
    idle = np.diff(times) * np.maximum(slots - busy, 0)
    lost = float(idle[stopped > 0].sum())
    idle[stopped > 0] = 0.0
    return times, np.concatenate([[0.0], np.cumsum(idle)]), lost


def _last_input(known: Dependencies) -> np.ndarray:
    """int64[executions]: the crossing that brought an execution's last input, -1 if none did."""
    brought = known.read_crossing >= 0
    row, crossing = known.reads["execution"][brought], known.read_crossing[brought]
    order = np.lexsort((crossing, known.crossings["finish"][crossing], row))
    result = np.full(len(known.trace.executions["start"]), -1, dtype=np.int64)
    # Of several values for one execution the last one stays.
    result[row[order]] = crossing[order]
    return result


def _links_free(known: Dependencies) -> np.ndarray:
    """float64[crossings]: when the transfer before it had ended on every channel of its route.

    No later than its own start; ``-inf`` if there was none before it.
    """
    moves = known.trace.transfers
    rows = len(moves["start"])
    before = np.full(rows, -np.inf)
    order = np.lexsort((moves["finish"], moves["start"], moves["link"]))
    if rows:
        link, start, finish = (moves[name][order] for name in ("link", "start", "finish"))
        # What was packed into one message has one start and finish, and the same before it.
        first = np.ones(rows, dtype=bool)
        first[1:] = (np.diff(link) != 0) | (np.diff(start) != 0) | (np.diff(finish) != 0)
        own = np.flatnonzero(first)
        ends = np.full(len(own), -np.inf)
        ends[1:] = np.where(link[own[1:]] == link[own[1:] - 1], finish[own[1:] - 1], -np.inf)
        before[order] = ends[np.cumsum(first) - 1]
    result = np.full(len(known.crossings["row"]), -np.inf)
    np.maximum.at(result, known.crossing_of_row, before)
    return np.minimum(result, known.crossings["start"])
