"""What happens to every task in the direct way of simulating, compiled by numba.

Importing this module imports numba and compiles, or reads what an earlier process compiled. Calls from Python must be few and have few arguments, so all that the functions share
stands in two arrays: ``whole`` (int64) and ``real`` (float64). ``whole`` begins with a header that says
where everything else begins; :class:`simulator.compiled.CompiledSimulation` lays them out. Additions and
divisions are done in the order of :mod:`simulator.direct`, so that results are equal to the last bit.
"""

from __future__ import annotations

import numpy as np

from simulator.compiling import compiled

(
    JOB,  # whole, by task
    GRAPH,  # whole, by job: where its graph's header is
    FIRST_TASK,  # whole, by job
    FIRST_TENSOR,  # whole, by job
    HOME,  # whole, by tensor: the space where it was written, -1 for everywhere
    PENDING,  # whole, by task: predecessors that have not finished
    CHANNEL,  # whole, by source and destination: the route's channel, -1 where none is known yet
    SPACE_OF,  # whole, by device
    RELEASED,  # whole: the tasks that the last finish released
    COPY,  # whole, by move: tensor times the number of spaces, plus the space
    ROUND,  # whole, by move: the round of an instant in which it was asked for
    ARRIVAL,  # real, by copy: when it is there, AT_ZERO for time 0; 0 if nobody asked for it
    WRITTEN,  # real, by tensor
    FREE,  # real, by channel
    LATENCY,  # real, by source and destination
    BANDWIDTH,  # real, by source and destination
    AVAILABLE,  # real, by device: when it could begin what is placed next; in the past for now
    REQUESTED,  # real, by move
    START,  # real, by move
    SIZE,  # real, by move: bytes
    PARCELS,  # real: bytes by source, while a device is priced
    SPACES,
    DEVICES,
    ROOM,  # for how many moves there is room
    MOVES,  # how many there are
    FINAL,  # how many of them are final
    DISORDER,  # whether those that are not final stand in another order than that of their copies
    ROUNDS,  # rounds so far
    QUEUED,  # whether moves wait for their channel
    HEADER,
) = range(30)
"""Positions in the header: where something begins, or a number itself."""

REALS = frozenset(range(ARRIVAL, PARCELS + 1))
"""Positions of what lies in ``real``."""

(
    READS,
    READS_AT,
    WRITES,
    WRITES_AT,
    SUCCESSORS,
    SUCCESSORS_AT,
    BYTES,  # real, by tensor
    SECONDS,  # real, by operator and device: believed
    GRAPH_HEADER,
) = range(9)
"""Positions in the header of a graph."""

PER_EDGE, PER_LINK, AWARE, PER_EDGE_AWARE = 0, 1, 2, 3
"""How a device is priced; see :mod:`simulator.pricing`."""
UNKNOWN_ROUTE = -2
FULL = -3

AT_ZERO = -1.0
"""Stands for an arrival at time 0: memory that was never written costs nothing, and it reads 0."""


@compiled("i8(i8[::1], f8[::1], i8, i8, f8)")
def complete(whole, real, task, space, now):  # type: ignore[no-untyped-def]
    """A task has written what it writes; returns how many tasks that releases (``RELEASED``)."""
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_task = whole[whole[FIRST_TASK] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - first_task
    home = whole[HOME] + first_tensor
    written = whole[WRITTEN] + first_tensor
    at = whole[graph + WRITES_AT] + operator
    values = whole[graph + WRITES]
    for entry in range(values + whole[at], values + whole[at + 1]):
        tensor = whole[entry]
        whole[home + tensor] = space
        real[written + tensor] = now
    count = 0
    pending = whole[PENDING] + first_task
    released = whole[RELEASED]
    at = whole[graph + SUCCESSORS_AT] + operator
    values = whole[graph + SUCCESSORS]
    for entry in range(values + whole[at], values + whole[at + 1]):
        successor = whole[entry]
        left = whole[pending + successor] - 1
        whole[pending + successor] = left
        if left == 0:
            whole[released + count] = first_task + successor
            count += 1
    return count


@compiled("f8(i8[::1], f8[::1], i8, i8, i8, f8, f8)")
def book(whole, real, copy, home, space, size, now):  # type: ignore[no-untyped-def]
    """Ask for one transfer now; returns its end. Its route must be known, its copy not asked for."""
    wire = home * whole[SPACES] + space
    start = now
    seconds = real[whole[LATENCY] + wire] + size / real[whole[BANDWIDTH] + wire]
    if whole[QUEUED]:
        channel = whole[FREE] + whole[whole[CHANNEL] + wire]
        if real[channel] > now:
            start = real[channel]
        real[channel] = start + seconds
    end = start + seconds
    move = whole[MOVES]
    if move > whole[FINAL] and copy < whole[whole[COPY] + move - 1]:
        whole[DISORDER] = 1
    whole[whole[COPY] + move] = copy
    whole[whole[ROUND] + move] = whole[ROUNDS]
    real[whole[REQUESTED] + move] = now
    real[whole[START] + move] = start
    real[whole[SIZE] + move] = size
    real[whole[ARRIVAL] + copy] = end if end > 0.0 else AT_ZERO
    whole[MOVES] = move + 1
    return end


@compiled("f8(i8[::1], f8[::1], i8, i8, f8)")
def fetch(whole, real, task, space, now):  # type: ignore[no-untyped-def]
    """Bring the inputs of a task that exist to a space; returns when they will all be there, at least
    now. ``UNKNOWN_ROUTE`` or ``FULL``, and nothing is done, if a route or room lacks.
    """
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    spaces = whole[SPACES]
    home = whole[HOME] + first_tensor
    arrival = whole[ARRIVAL]
    channel = whole[CHANNEL]
    sizes = whole[graph + BYTES]
    at = whole[graph + READS_AT] + operator
    values = whole[graph + READS]
    begin = values + whole[at]
    end = values + whole[at + 1]
    if whole[MOVES] + end - begin > whole[ROOM]:
        return FULL
    for entry in range(begin, end):
        source = whole[home + whole[entry]]
        if source >= 0 and source != space and whole[channel + source * spaces + space] < 0:
            return UNKNOWN_ROUTE
    latest = now
    for entry in range(begin, end):
        tensor = whole[entry]
        source = whole[home + tensor]
        if source < 0 or source == space:
            continue
        copy = (first_tensor + tensor) * spaces + space
        there = real[arrival + copy]
        if there == 0.0:
            there = book(whole, real, copy, source, space, real[sizes + tensor], now)
        if there > latest:
            latest = there
    return latest


@compiled("f8(i8[::1], f8[::1], i8, i8, f8)")
def arrived(whole, real, task, space, now):  # type: ignore[no-untyped-def]
    """When all inputs of a task, each asked for, are in a space; at least now."""
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    latest = now
    home = whole[HOME] + first_tensor
    at = whole[graph + READS_AT] + operator
    values = whole[graph + READS]
    for entry in range(values + whole[at], values + whole[at + 1]):
        tensor = whole[entry]
        source = whole[home + tensor]
        if source >= 0 and source != space:
            copy = (first_tensor + tensor) * whole[SPACES] + space
            if real[whole[ARRIVAL] + copy] > latest:
                latest = real[whole[ARRIVAL] + copy]
    return latest


@compiled("void(i8[::1], f8[::1])")
def take_back(whole, real):  # type: ignore[no-untyped-def]
    """Unmake all requests that are not final."""
    spaces = whole[SPACES]
    move = whole[MOVES]
    while move > whole[FINAL]:
        move -= 1
        copy = whole[whole[COPY] + move]
        wire = whole[whole[HOME] + copy // spaces] * spaces + copy % spaces
        # A channel that was free before now is as good as one that is free from now on.
        real[whole[FREE] + whole[whole[CHANNEL] + wire]] = real[whole[START] + move]
        real[whole[ARRIVAL] + copy] = 0.0
    whole[MOVES] = move
    whole[DISORDER] = 0


@compiled("b1(i8[::1], f8[::1], f8)")
def put_in_order(whole, real, now):  # type: ignore[no-untyped-def]
    """Ask anew for what is not final, in the order of the copies. Returns whether one of them arrives
    at another time than was said.
    """
    first = whole[FINAL]
    last = whole[MOVES]
    asked = whole[whole[COPY] + first : whole[COPY] + last].copy()
    said = real[whole[ARRIVAL] + asked]
    sizes = real[whole[SIZE] + first : whole[SIZE] + last].copy()
    order = np.argsort(asked)
    take_back(whole, real)
    spaces = whole[SPACES]
    changed = False
    for entry in order:
        copy = asked[entry]
        home = whole[whole[HOME] + copy // spaces]
        book(whole, real, copy, home, copy % spaces, sizes[entry], now)
        if real[whole[ARRIVAL] + copy] != said[entry]:
            changed = True
    return changed


@compiled("i8(i8[::1], f8[::1], i8, f8, i8)")
def best_device(whole, real, task, now, pricing):  # type: ignore[no-untyped-def]
    """The device on which a ready task is estimated to finish first, the smaller one of equal
    ones; see :func:`simulator.pricing.best_device`. ``UNKNOWN_ROUTE`` if a route lacks.
    """
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    spaces = whole[SPACES]
    devices = whole[DEVICES]
    home = whole[HOME] + first_tensor
    sizes = whole[graph + BYTES]
    parcels = whole[PARCELS]
    seconds = whole[graph + SECONDS] + operator * devices
    at = whole[graph + READS_AT] + operator
    values = whole[graph + READS]
    begin = values + whole[at]
    end = values + whole[at + 1]
    together = pricing in (PER_LINK, AWARE)
    aware = pricing in (AWARE, PER_EDGE_AWARE)
    best = np.inf
    chosen = -1
    for device in range(devices):
        free = real[whole[AVAILABLE] + device]
        if free < now:
            free = now
        least = real[seconds + device]
        if free + least >= best:
            continue
        space = whole[whole[SPACE_OF] + device]
        ready = now
        for entry in range(begin, end):
            tensor = whole[entry]
            source = whole[home + tensor]
            if source < 0 or source == space:
                continue
            there = real[whole[ARRIVAL] + (first_tensor + tensor) * spaces + space]
            if there != 0.0:
                if there > ready:
                    ready = there
                continue
            size = real[sizes + tensor]
            wire = source * spaces + space
            channel = whole[whole[CHANNEL] + wire]
            if channel < 0:
                return UNKNOWN_ROUTE
            if together:
                # Sent together with those before it from the same space; the last one counts.
                size += real[parcels + source]
                real[parcels + source] = size
            start = now
            if aware and real[whole[FREE] + channel] > now:
                start = real[whole[FREE] + channel]
            there = start + (real[whole[LATENCY] + wire] + size / real[whole[BANDWIDTH] + wire])
            if there > ready:
                ready = there
        if together:
            for entry in range(begin, end):
                source = whole[home + whole[entry]]
                if source >= 0:
                    real[parcels + source] = 0.0
        finish = (ready if ready > free else free) + least
        if finish < best:
            best = finish
            chosen = device
    return chosen
