"""Max-min fair sharing of links, and what goes over them, compiled by numba.

What :class:`simulator.contention.FairFlows` and :class:`simulator.maxmin.MaxMin` do, in the same order
of additions and divisions, so that results are equal to the last bit. All stands in two arrays, as in
:mod:`simulator.kernels`; the headers are others. A flow is the number of its request. Where it crosses
a channel is an entry: flow times ``MOST_HOPS``, plus the place of the channel in its route; the entries
of a channel are a linked list. Entries, flows and positions that may be none are stored plus 1.
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
    SPACE_OF,  # whole, by device
    RELEASED,  # whole: the tasks that the last finish released
    COPY,  # whole, by flow: tensor times the number of spaces, plus the space
    ROUND,  # whole, by flow: the round of an instant in which it was asked for
    DEVICE,  # whole, by task: where it is placed, -1 if nowhere
    DESTINATION,  # whole, by job: a space or -1
    FLOW,  # whole, by copy: its flow, plus 1
    JOB_OF,  # whole, by flow
    WIRE,  # whole, by flow: source and destination
    STATE,  # whole, by flow
    PLACE,  # whole, by flow: its place in the heap of alarms, plus 1
    FIXED,  # whole, by flow: the update that fixed its rate last
    NEXT,  # whole, by entry: the next one of its channel, plus 1
    LAST,  # whole, by entry: the one before it, plus 1
    ALARMS,  # whole: heap of flows
    ROUTE,  # whole, by source and destination: where its channels begin
    HOPS,  # whole, by source and destination: how many they are
    CHANNELS,  # whole: the channels of all routes
    FIRST,  # whole, by channel: its first entry, plus 1
    COUNT,  # whole, by channel: flows that share it
    SEEN,  # whole, by channel: the update that looked at it last
    DIRTY,  # whole: channels whose flows have changed since the last update
    IS_DIRTY,  # whole, by channel
    QUEUE,  # whole: channels of a component, then a heap of them
    OPEN,  # whole, by channel: flows whose rate is not fixed yet
    CALLED,  # whole: devices to which the last thing came that their tasks waited for
    IS_CALLED,  # whole, by device
    WRITTEN,  # real, by tensor
    LATENCY,  # real, by source and destination
    BANDWIDTH,  # real, by source and destination
    REQUESTED,  # real, by flow
    SIZE,  # real, by flow: bytes
    CAPACITY,  # real, by channel
    LEFT,  # real, by channel
    LEVEL,  # real, by channel: the rate at which it is full
    SINCE,  # real, by flow: when its rate began to hold; the end of the latency at the earliest
    REMAINING,  # real, by flow: bytes not yet sent then
    RATE,  # real, by flow
    SHARE,  # real, by flow: the rate as of the last update, -1 before the first
    END,  # real, by flow: believed, or when it was
    BELIEVED,  # real, by flow: the end that was believed when it was asked for
    ALARM,  # real, by flow: when something happens to it
    DELIVERED,  # real, by job: the last delivery of a result
    SPACES,
    MOVES,  # how many flows there are
    FINAL,  # how many of them were sent
    ROUNDS,  # rounds so far
    MOST_HOPS,
    PUSH,
    UPDATES,
    ALARMED,  # flows in the heap
    DIRTIES,
    CALLS,
    STALE,  # whether something came at another time than was believed
    HEADER,
) = range(61)
"""Positions in the header: where something begins, or a number itself."""

REALS = frozenset(range(WRITTEN, DELIVERED + 1))
"""Positions of what lies in ``real``."""

(
    READS,
    READS_AT,
    WRITES,
    WRITES_AT,
    SUCCESSORS,
    SUCCESSORS_AT,
    BYTES,  # real, by tensor
    CONSUMERS,
    CONSUMERS_AT,
    OUTPUT,  # whole, by tensor: whether it is a result
    GRAPH_HEADER,
) = range(11)
"""Positions in the header of a graph."""

ASKED, LATENT, SHARING, EMPTY, OVER = range(5)
"""States of a flow: not sent yet; in its latency; sharing; without bytes; delivered."""


@compiled("void(i8[::1], f8[::1], i8, i8, i8, i8, f8, f8)")
def request(whole, real, copy, source, space, job, size, now):  # type: ignore[no-untyped-def]
    """Ask for a transfer, unless the copy was asked for before."""
    if whole[whole[FLOW] + copy]:
        return
    flow = whole[MOVES]
    whole[MOVES] = flow + 1
    wire = source * whole[SPACES] + space
    whole[whole[FLOW] + copy] = flow + 1
    whole[whole[COPY] + flow] = copy
    whole[whole[JOB_OF] + flow] = job
    whole[whole[WIRE] + flow] = wire
    whole[whole[STATE] + flow] = ASKED
    real[whole[SIZE] + flow] = size
    real[whole[BELIEVED] + flow] = now + (
        real[whole[LATENCY] + wire] + size / real[whole[BANDWIDTH] + wire]
    )


@compiled("void(i8[::1], f8[::1], i8, i8, f8)")
def fetch(whole, real, task, space, now):  # type: ignore[no-untyped-def]
    """Ask for the inputs of a task that exist to come to a space."""
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    at = whole[graph + READS_AT] + operator
    values = whole[graph + READS]
    for entry in range(values + whole[at], values + whole[at + 1]):
        tensor = whole[entry]
        source = whole[whole[HOME] + first_tensor + tensor]
        if source >= 0 and source != space:
            copy = (first_tensor + tensor) * whole[SPACES] + space
            request(whole, real, copy, source, space, job, real[whole[graph + BYTES] + tensor], now)


@compiled("b1(i8[::1], f8[::1], i8, i8)")
def is_here(whole, real, task, space):  # type: ignore[no-untyped-def]
    """Whether all that finished predecessors wrote for a task is in a space."""
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    at = whole[graph + READS_AT] + operator
    values = whole[graph + READS]
    for entry in range(values + whole[at], values + whole[at + 1]):
        tensor = first_tensor + whole[entry]
        source = whole[whole[HOME] + tensor]
        if source >= 0 and source != space:
            flow = whole[whole[FLOW] + tensor * whole[SPACES] + space]
            if flow == 0 or whole[whole[STATE] + flow - 1] != OVER:
                return False
    return True


@compiled("i8(i8[::1], f8[::1], i8, i8, f8)")
def finish(whole, real, task, space, now):  # type: ignore[no-untyped-def]
    """A task has written what it writes, which goes where it is wanted. Returns how many tasks that
    releases (``RELEASED``).
    """
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    first_task = whole[whole[FIRST_TASK] + job]
    first_tensor = whole[whole[FIRST_TENSOR] + job]
    spaces = whole[SPACES]
    destination = whole[whole[DESTINATION] + job]
    devices = whole[DEVICE] + first_task
    readers = whole[graph + CONSUMERS]
    sizes = whole[graph + BYTES]
    at = whole[graph + WRITES_AT] + task - first_task
    values = whole[graph + WRITES]
    for entry in range(values + whole[at], values + whole[at + 1]):
        tensor = whole[entry]
        whole[whole[HOME] + first_tensor + tensor] = space
        real[whole[WRITTEN] + first_tensor + tensor] = now
        copies = (first_tensor + tensor) * spaces
        if whole[PUSH]:
            of = whole[graph + CONSUMERS_AT] + tensor
            for reader in range(readers + whole[of], readers + whole[of + 1]):
                device = whole[devices + whole[reader]]
                if device >= 0:
                    to = whole[whole[SPACE_OF] + device]
                    if to != space:
                        request(whole, real, copies + to, space, to, job, real[sizes + tensor], now)
        if destination >= 0 and destination != space and whole[whole[graph + OUTPUT] + tensor]:
            request(
                whole,
                real,
                copies + destination,
                space,
                destination,
                job,
                real[sizes + tensor],
                now,
            )
    count = 0
    at = whole[graph + SUCCESSORS_AT] + task - first_task
    values = whole[graph + SUCCESSORS]
    for entry in range(values + whole[at], values + whole[at + 1]):
        successor = first_task + whole[entry]
        left = whole[whole[PENDING] + successor] - 1
        whole[whole[PENDING] + successor] = left
        if left == 0:
            whole[whole[RELEASED] + count] = successor
            count += 1
    return count


# -- alarms: a heap of flows by when something happens to them -------------------------------------


@compiled("void(i8[::1], f8[::1], i8, i8)")
def rise(whole, real, place, flow):  # type: ignore[no-untyped-def]
    """Put a flow at a place of the heap, or nearer to its top."""
    heap = whole[ALARMS]
    places = whole[PLACE]
    alarms = whole[ALARM]
    alarm = real[alarms + flow]
    while place > 0:
        above = (place - 1) >> 1
        other = whole[heap + above]
        if real[alarms + other] <= alarm:
            break
        whole[heap + place] = other
        whole[places + other] = place + 1
        place = above
    whole[heap + place] = flow
    whole[places + flow] = place + 1


@compiled("void(i8[::1], f8[::1], i8, i8)")
def sink(whole, real, place, flow):  # type: ignore[no-untyped-def]
    """Put a flow at a place of the heap, or farther from its top."""
    heap = whole[ALARMS]
    places = whole[PLACE]
    alarms = whole[ALARM]
    count = whole[ALARMED]
    alarm = real[alarms + flow]
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        other = whole[heap + below]
        if below + 1 < count and real[alarms + whole[heap + below + 1]] < real[alarms + other]:
            below += 1
            other = whole[heap + below]
        if real[alarms + other] >= alarm:
            break
        whole[heap + place] = other
        whole[places + other] = place + 1
        place = below
    whole[heap + place] = flow
    whole[places + flow] = place + 1


@compiled("void(i8[::1], f8[::1], i8, f8)")
def set_alarm(whole, real, flow, moment):  # type: ignore[no-untyped-def]
    """Something happens to a flow then, and no longer when it was thought."""
    place = whole[whole[PLACE] + flow] - 1
    if place < 0:
        real[whole[ALARM] + flow] = moment
        place = whole[ALARMED]
        whole[ALARMED] = place + 1
        rise(whole, real, place, flow)
        return
    before = real[whole[ALARM] + flow]
    real[whole[ALARM] + flow] = moment
    if moment < before:
        rise(whole, real, place, flow)
    elif moment > before:
        sink(whole, real, place, flow)


@compiled("i8(i8[::1], f8[::1])")
def pop_alarm(whole, real):  # type: ignore[no-untyped-def]
    """Take the flow of the first alarm out of the heap."""
    heap = whole[ALARMS]
    flow = whole[heap]
    count = whole[ALARMED] - 1
    whole[ALARMED] = count
    whole[whole[PLACE] + flow] = 0
    if count:
        sink(whole, real, 0, whole[heap + count])
    return flow


# -- sharing ---------------------------------------------------------------------------------------


@compiled("void(i8[::1], i8)")
def touch(whole, channel):  # type: ignore[no-untyped-def]
    """The flows of a channel have changed."""
    if not whole[whole[IS_DIRTY] + channel]:
        whole[whole[IS_DIRTY] + channel] = 1
        whole[whole[DIRTY] + whole[DIRTIES]] = channel
        whole[DIRTIES] += 1


@compiled("void(i8[::1], f8[::1], i8)")
def join(whole, real, flow):  # type: ignore[no-untyped-def]
    """A flow begins to share its channels."""
    whole[whole[STATE] + flow] = SHARING
    whole[whole[FIXED] + flow] = 0
    real[whole[SHARE] + flow] = -1.0
    wire = whole[whole[WIRE] + flow]
    route = whole[whole[ROUTE] + wire]
    entry = flow * whole[MOST_HOPS]
    for at in range(route, route + whole[whole[HOPS] + wire]):
        channel = whole[at]
        first = whole[whole[FIRST] + channel]
        whole[whole[NEXT] + entry] = first
        whole[whole[LAST] + entry] = 0
        if first:
            whole[whole[LAST] + first - 1] = entry + 1
        whole[whole[FIRST] + channel] = entry + 1
        whole[whole[COUNT] + channel] += 1
        entry += 1
    touch(whole, whole[route])  # the others are reached from it


@compiled("void(i8[::1], f8[::1], i8)")
def leave(whole, real, flow):  # type: ignore[no-untyped-def]
    """A flow leaves its channels."""
    wire = whole[whole[WIRE] + flow]
    route = whole[whole[ROUTE] + wire]
    entry = flow * whole[MOST_HOPS]
    for at in range(route, route + whole[whole[HOPS] + wire]):
        channel = whole[at]
        after = whole[whole[NEXT] + entry]
        before = whole[whole[LAST] + entry]
        if after:
            whole[whole[LAST] + after - 1] = before
        if before:
            whole[whole[NEXT] + before - 1] = after
        else:
            whole[whole[FIRST] + channel] = after
        whole[whole[COUNT] + channel] -= 1
        if whole[whole[COUNT] + channel]:
            touch(whole, channel)
        entry += 1


@compiled("void(i8[::1], f8[::1], i8, i8, i8)")
def sink_channel(whole, real, queue, count, place):  # type: ignore[no-untyped-def]
    """Put the channel at a place of a heap where it belongs: below it the level is higher, or equal
    and the number larger.
    """
    levels = whole[LEVEL]
    channel = whole[queue + place]
    level = real[levels + channel]
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        other = whole[queue + below]
        if below + 1 < count:
            second = whole[queue + below + 1]
            if real[levels + second] < real[levels + other] or (
                real[levels + second] == real[levels + other] and second < other
            ):
                below += 1
                other = second
        if real[levels + other] > level or (real[levels + other] == level and other > channel):
            break
        whole[queue + place] = other
        place = below
    whole[queue + place] = channel


@compiled("void(i8[::1], f8[::1], i8, f8, f8)")
def pace(whole, real, flow, share, now):  # type: ignore[no-untyped-def]
    """A flow has another share from now on."""
    if real[whole[SHARE] + flow] == share:
        return
    real[whole[SHARE] + flow] = share
    if real[whole[END] + flow] == now:  # its delivery is still to come at this instant
        return
    remaining = real[whole[REMAINING] + flow]
    since = real[whole[SINCE] + flow]
    if since < now:
        sent = real[whole[RATE] + flow] * (now - since)
        remaining = remaining - sent if remaining > sent else 0.0
        real[whole[REMAINING] + flow] = remaining
        real[whole[SINCE] + flow] = now
        end = now + remaining / share if share else np.inf
    else:
        wire = whole[whole[WIRE] + flow]
        latency = real[whole[LATENCY] + wire]
        bandwidth = real[whole[BANDWIDTH] + wire]
        requested = real[whole[REQUESTED] + flow]
        if share == bandwidth and requested + latency == now:
            # Unhindered from its first byte on: to the last bit the end of a flow alone.
            end = requested + (latency + real[whole[SIZE] + flow] / bandwidth)
        else:
            end = now + remaining / share if share else np.inf
    real[whole[RATE] + flow] = share
    real[whole[END] + flow] = end
    set_alarm(whole, real, flow, end)


@compiled("void(i8[::1], f8[::1], i8, f8)")
def fill(whole, real, count, now):  # type: ignore[no-untyped-def]
    """Progressive filling of a component, whose channels are in ``QUEUE``."""
    queue = whole[QUEUE]
    levels = whole[LEVEL]
    update = whole[UPDATES]
    hops = whole[MOST_HOPS]
    for at in range(queue, queue + count):
        channel = whole[at]
        capacity = real[whole[CAPACITY] + channel]
        flows = whole[whole[COUNT] + channel]
        real[whole[LEFT] + channel] = capacity
        whole[whole[OPEN] + channel] = flows
        real[levels + channel] = capacity / flows
    for place in range(count // 2 - 1, -1, -1):
        sink_channel(whole, real, queue, count, place)
    while count:
        channel = whole[queue]
        flows = whole[whole[OPEN] + channel]
        share = real[levels + channel]
        # Shares never sink while channels fill, so a stale level is only ever too small.
        if flows and share != np.inf:
            current = real[whole[LEFT] + channel] / flows
            if current > share:
                real[levels + channel] = current
                sink_channel(whole, real, queue, count, 0)
                continue
            share = current
        count -= 1
        whole[queue] = whole[queue + count]
        if count:
            sink_channel(whole, real, queue, count, 0)
        if not flows:
            continue
        entry = whole[whole[FIRST] + channel]
        while entry:
            flow = (entry - 1) // hops
            entry = whole[whole[NEXT] + entry - 1]
            if whole[whole[FIXED] + flow] != update:
                whole[whole[FIXED] + flow] = update
                pace(whole, real, flow, share, now)
                wire = whole[whole[WIRE] + flow]
                route = whole[whole[ROUTE] + wire]
                for at in range(route, route + whole[whole[HOPS] + wire]):
                    real[whole[LEFT] + whole[at]] -= share
                    whole[whole[OPEN] + whole[at]] -= 1


@compiled("f8(i8[::1], f8[::1], f8)")
def settle(whole, real, now):  # type: ignore[no-untyped-def]
    """Work out anew the rates of all that a change reaches; returns the time of the next alarm."""
    if whole[DIRTIES]:
        update = whole[UPDATES] + 1
        whole[UPDATES] = update
        queue = whole[QUEUE]
        seen = whole[SEEN]
        hops = whole[MOST_HOPS]
        for dirty in range(whole[DIRTY], whole[DIRTY] + whole[DIRTIES]):
            channel = whole[dirty]
            whole[whole[IS_DIRTY] + channel] = 0
            if whole[seen + channel] == update or not whole[whole[COUNT] + channel]:
                continue
            whole[seen + channel] = update
            whole[queue] = channel
            count = 1
            looked = 0
            while looked < count:
                entry = whole[whole[FIRST] + whole[queue + looked]]
                looked += 1
                while entry:
                    wire = whole[whole[WIRE] + (entry - 1) // hops]
                    route = whole[whole[ROUTE] + wire]
                    for at in range(route, route + whole[whole[HOPS] + wire]):
                        other = whole[at]
                        if whole[seen + other] != update:
                            whole[seen + other] = update
                            whole[queue + count] = other
                            count += 1
                    entry = whole[whole[NEXT] + entry - 1]
            fill(whole, real, count, now)
        whole[DIRTIES] = 0
    if whole[ALARMED]:
        return real[whole[ALARM] + whole[whole[ALARMS]]]
    return np.inf


@compiled("void(i8[::1], f8[::1], i8, f8)")
def deliver(whole, real, flow, now):  # type: ignore[no-untyped-def]
    """A flow has ended now: the readers of its copy may start."""
    whole[whole[STATE] + flow] = OVER
    if real[whole[BELIEVED] + flow] != now:
        whole[STALE] = 1
    job = whole[whole[JOB_OF] + flow]
    graph = whole[whole[GRAPH] + job]
    first_task = whole[whole[FIRST_TASK] + job]
    copy = whole[whole[COPY] + flow]
    space = copy % whole[SPACES]
    tensor = copy // whole[SPACES] - whole[whole[FIRST_TENSOR] + job]
    of = whole[graph + CONSUMERS_AT] + tensor
    readers = whole[graph + CONSUMERS]
    for reader in range(readers + whole[of], readers + whole[of + 1]):
        task = first_task + whole[reader]
        device = whole[whole[DEVICE] + task]
        if (
            device >= 0
            and whole[whole[SPACE_OF] + device] == space
            and not whole[whole[PENDING] + task]
            and not whole[whole[IS_CALLED] + device]
            and is_here(whole, real, task, space)
        ):
            whole[whole[IS_CALLED] + device] = 1
            whole[whole[CALLED] + whole[CALLS]] = device
            whole[CALLS] += 1
    if whole[whole[DESTINATION] + job] == space and whole[whole[graph + OUTPUT] + tensor]:
        real[whole[DELIVERED] + job] = now


@compiled("void(i8[::1], f8[::1], f8)")
def ring(whole, real, now):  # type: ignore[no-untyped-def]
    """The latency or the transfer of some flows is over now; ``CALLED`` are the devices that may have
    something to start.
    """
    for at in range(whole[CALLED], whole[CALLED] + whole[CALLS]):
        whole[whole[IS_CALLED] + whole[at]] = 0
    whole[CALLS] = 0
    while whole[ALARMED] and real[whole[ALARM] + whole[whole[ALARMS]]] <= now:
        flow = pop_alarm(whole, real)
        state = whole[whole[STATE] + flow]
        if state == LATENT:
            join(whole, real, flow)
            continue
        if state == SHARING:
            leave(whole, real, flow)
        deliver(whole, real, flow, now)


@compiled("f8(i8[::1], f8[::1], f8, b1)")
def go_on(whole, real, now, ringing):  # type: ignore[no-untyped-def]
    """Send what was asked for at this instant, behind what ends now if there is an alarm; returns the
    time of the next alarm.
    """
    if ringing:
        ring(whole, real, now)
    final = whole[FINAL]
    if final < whole[MOVES]:
        for flow in range(final, whole[MOVES]):
            joins = now + real[whole[LATENCY] + whole[whole[WIRE] + flow]]
            size = real[whole[SIZE] + flow]
            whole[whole[ROUND] + flow] = whole[ROUNDS]
            whole[whole[PLACE] + flow] = 0
            real[whole[REQUESTED] + flow] = now
            real[whole[SINCE] + flow] = joins
            real[whole[REMAINING] + flow] = size
            real[whole[RATE] + flow] = 0.0
            real[whole[END] + flow] = np.inf
            if size == 0.0:
                whole[whole[STATE] + flow] = EMPTY
                real[whole[END] + flow] = joins
                set_alarm(whole, real, flow, joins)
            elif joins > now:
                whole[whole[STATE] + flow] = LATENT
                set_alarm(whole, real, flow, joins)
            else:
                join(whole, real, flow)
        whole[FINAL] = whole[MOVES]
        whole[ROUNDS] += 1
    return settle(whole, real, now)
