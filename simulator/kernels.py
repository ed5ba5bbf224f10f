"""What happens to every task in the compiled way of simulating, compiled by numba.

Importing this module imports numba and compiles, or reads what an earlier process compiled. Calls from
Python must be few and have few arguments, so all that the functions share stands in two arrays: ``whole``
(int64) and ``real`` (float64). ``whole`` begins with a header that says where everything else begins;
:class:`simulator.compiled.CompiledSimulation` lays them out. Functions that are called for every task take
the address of ``whole`` in place of the arrays: unpacking these would take longer than the rest of the
call. Additions and divisions are done in the order of :mod:`simulator.direct`, so that results are equal
to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from simulator.compiling import as_integers, as_reals, compiled

(
    JOB,  # whole, by task
    GRAPH,  # whole, by job: where its graph's header is
    FIRST_TASK,  # whole, by job
    FIRST_TENSOR,  # whole, by job
    ACTUAL,  # whole, by job: where its actual seconds are in real, by operator and device
    HOME,  # whole, by tensor: the space where it was written, -1 for everywhere
    PENDING,  # whole, by task: predecessors that have not finished
    CHANNEL,  # whole, by source and destination: the route's channel, -1 where none is known yet
    SPACE_OF,  # whole, by device
    RELEASED,  # whole: the tasks that the last finish released
    COPY,  # whole, by move: tensor times the number of spaces, plus the space
    ROUND,  # whole, by move: the round of an instant in which it was asked for
    DEVICE,  # whole, by task: -1 until it is placed
    SEQUENCE,  # whole, by task: number of its placement
    SLOT,  # whole, by task: -1 until it is known
    STARTED,  # whole, by task: whether it has started for certain
    CHILD,  # whole, by task in a queue: the first of those below it in the heap; -1 for none
    NEXT,  # whole, by task in a queue: the next below the same one; -1 for none
    BEFORE,  # whole, by task in a queue, not the first of it: whose CHILD or NEXT it is
    HEAD,  # whole, by device: the first of its queue, -1 for none
    LOAD,  # whole, by device: tasks that are placed and have not finished
    SLOTS,  # whole, by device
    TAKEN,  # whole, by device and place: a task that was taken, -1 for none; who has a slot is in its place
    STALE,  # whole, by device: whether AVAILABLE must be worked out again
    TOUCHED,  # whole: devices whose queue or slots changed at this instant
    IS_TOUCHED,  # whole, by device
    CALLED,  # whole, by device: whether data was asked for now for a task that is placed there
    BEGUN,  # whole: tasks that were taken at this instant
    ENDED,  # whole: tasks in the order in which they ended
    ARRIVAL,  # real, by copy: when it is there, AT_ZERO for time 0; 0 if nobody asked for it
    WRITTEN,  # real, by tensor
    FREE,  # real, by channel
    LATENCY,  # real, by source and destination
    BANDWIDTH,  # real, by source and destination
    AVAILABLE,  # real, by device: when it could begin what is placed next; in the past for now
    REQUESTED,  # real, by move
    START,  # real, by move
    SIZE,  # real, by move: bytes
    RANK,  # real, by task
    READY_AT,  # real, by task
    PLACED_AT,  # real, by task
    BEGINS,  # real, by task: inf until it is taken
    ENDS,  # real, by task: inf until it is taken
    EXPECTED,  # real, by task: believed end, while it is placed
    TAIL_RANK,  # real, by device: the largest rank in its queue, where there is one
    SETTLED,  # real: the instant whose starts have happened
    REALISED,  # real, by task and device: actual seconds, where every job has its own
    PARCELS,  # real: bytes by source, while a device is priced
    REAL,  # the address of the other array
    TASKS,  # how many have arrived
    SPACES,
    DEVICES,
    MOST_SLOTS,  # of one device
    ROOM,  # for how many moves there is room
    MOVES,  # how many there are
    FINAL,  # how many of them are final
    DISORDER,  # whether those that are not final stand in another order than that of their copies
    ROUNDS,  # rounds so far
    QUEUED,  # whether moves wait for their channel
    PUSH,  # whether data goes to a task before all of it is written
    EXACT,  # whether what happens is what is believed
    TRACKING,  # whether somebody asks when devices are available
    PLACEMENTS,  # how many there were
    EARLY,  # tasks that are placed and not ready
    TOUCHES,  # how many devices are touched
    FINISHED,  # how many tasks have ended
    HEADER,
) = range(67)
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
    SECONDS,  # real, by operator and device: believed, launch overhead included
    HAPPENS,  # the same: actual, where all jobs of the graph have it in common and it is not SECONDS
    GRAPH_HEADER,
) = range(10)
"""Positions in the header of a graph."""

PER_EDGE, PER_LINK, AWARE, PER_EDGE_AWARE = 0, 1, 2, 3
"""How a device is priced; see :mod:`simulator.pricing`."""
UNKNOWN_ROUTE = -2
FULL = -3
OUT_OF_DATE = -4
"""It must be worked out anew when a device is available."""
REFUSED = -5
FREED, EARLIER, RELEASES = 1, 2, 4
"""What :func:`finish` returns: its device has a slot to spare again; tasks were placed early; a released
task each."""

AT_ZERO = -1.0
"""Stands for an arrival at time 0: memory that was never written costs nothing, and it reads 0."""


@compiled("Tuple((i8[::1], f8[::1]))(i8)")
def arrays(at):  # type: ignore[no-untyped-def]
    """``whole``, which begins at this address, and ``real``; as long as anything may be."""
    whole = carray(as_integers(at), (1 << 60,))
    return whole, carray(as_reals(whole[REAL]), (1 << 60,))


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


@compiled("b1(i8[::1], f8[::1], i8, f8)")
def has_started(whole, real, task, now):  # type: ignore[no-untyped-def]
    """Whether a task that was taken has started; at the instant of a start, decisions precede it."""
    begins = real[whole[BEGINS] + task]
    if begins < now or whole[whole[STARTED] + task]:
        return True
    return begins == now and real[whole[SETTLED]] == begins


@compiled("b1(i8[::1], f8[::1], i8, i8)")
def precedes(whole, real, task, other):  # type: ignore[no-untyped-def]
    """Whether a task comes before another one in a queue: by rank, then by placement."""
    a = real[whole[RANK] + task]
    b = real[whole[RANK] + other]
    return a < b or (a == b and whole[whole[SEQUENCE] + task] < whole[whole[SEQUENCE] + other])


@compiled("i8(i8[::1], f8[::1], i8, i8)")
def meld(whole, real, first, second):  # type: ignore[no-untyped-def]
    """Make one heap of two; returns its first task. Queues are pairing heaps (Fredman et al.,
    Algorithmica 1, 1986, doi:10.1007/BF01840439).
    """
    if precedes(whole, real, second, first):
        first, second = second, first
    child = whole[whole[CHILD] + first]
    whole[whole[NEXT] + second] = child
    if child >= 0:
        whole[whole[BEFORE] + child] = second
    whole[whole[BEFORE] + second] = first
    whole[whole[CHILD] + first] = second
    return first


@compiled("i8(i8[::1], f8[::1], i8)")
def meld_below(whole, real, task):  # type: ignore[no-untyped-def]
    """Make one heap of those right below a task; returns its first task, -1 for none."""
    after = whole[NEXT]
    child = whole[whole[CHILD] + task]
    pairs = -1  # melded by twos, the last pair first
    while child >= 0:
        second = whole[after + child]
        following = -1
        if second >= 0:
            following = whole[after + second]
            child = meld(whole, real, child, second)
        whole[after + child] = pairs
        pairs = child
        child = following
    if pairs < 0:
        return -1
    root = pairs
    child = whole[after + root]
    while child >= 0:
        following = whole[after + child]
        root = meld(whole, real, root, child)
        child = following
    whole[after + root] = -1
    return root


@compiled("void(i8[::1], f8[::1], i8, i8)")
def enqueue(whole, real, task, device):  # type: ignore[no-untyped-def]
    """Put a task into a device's queue."""
    whole[whole[CHILD] + task] = -1
    whole[whole[NEXT] + task] = -1
    head = whole[HEAD] + device
    first = whole[head]
    whole[head] = task if first < 0 else meld(whole, real, first, task)


@compiled("void(i8[::1], f8[::1], i8, i8)")
def unqueue(whole, real, task, device):  # type: ignore[no-untyped-def]
    """Take a task out of a device's queue."""
    head = whole[HEAD] + device
    rest = meld_below(whole, real, task)
    if whole[head] == task:
        whole[head] = rest
        return
    before = whole[whole[BEFORE] + task]
    following = whole[whole[NEXT] + task]
    if whole[whole[CHILD] + before] == task:
        whole[whole[CHILD] + before] = following
    else:
        whole[whole[NEXT] + before] = following
    if following >= 0:
        whole[whole[BEFORE] + following] = before
    if rest >= 0:
        whole[head] = meld(whole, real, whole[head], rest)


@compiled("void(i8[::1], i8)")
def touch(whole, device):  # type: ignore[no-untyped-def]
    """A device is to be looked at when the decision is made."""
    if not whole[whole[IS_TOUCHED] + device]:
        whole[whole[IS_TOUCHED] + device] = 1
        whole[whole[TOUCHED] + whole[TOUCHES]] = device
        whole[TOUCHES] += 1


@compiled("void(i8[::1], f8[::1], i8, f8)")
def return_waiting(whole, real, device, now):  # type: ignore[no-untyped-def]
    """Put tasks that wait for their data back into the queue, whose order is about to change."""
    taken = whole[TAKEN] + device * whole[MOST_SLOTS]
    for place in range(taken, taken + whole[whole[SLOTS] + device]):
        task = whole[place]
        if task >= 0 and not has_started(whole, real, task, now):
            whole[place] = -1
            real[whole[BEGINS] + task] = np.inf
            real[whole[ENDS] + task] = np.inf
            enqueue(whole, real, task, device)


@compiled("void(i8[::1], f8[::1], i8, f8)")
def number_slots(whole, real, device, now):  # type: ignore[no-untyped-def]
    """Give tasks that have started the lowest slots that were free then: before another one is."""
    taken = whole[TAKEN] + device * whole[MOST_SLOTS]
    slots = whole[whole[SLOTS] + device]
    while True:
        first = (
            -1
        )  # of those that have started and have none yet: they started in the queue's order
        free = -1
        for place in range(slots):
            task = whole[taken + place]
            numbered = task >= 0 and whole[whole[SLOT] + task] >= 0
            if free < 0 and not numbered:
                free = place
            if task < 0 or numbered or not has_started(whole, real, task, now):
                continue
            if first < 0 or precedes(whole, real, task, whole[taken + first]):
                first = place
        if first < 0:
            return
        task = whole[taken + first]
        whole[taken + first] = whole[taken + free]
        whole[taken + free] = task
        whole[whole[SLOT] + task] = free


@compiled("i8(i8, i8, i8, f8, f8)")
def place(at, task, device, rank, now):  # type: ignore[no-untyped-def]
    """Put a task into a device's queue and ask for its data; returns whether that occupies the last of
    the device's slots. ``UNKNOWN_ROUTE``, ``FULL``, ``OUT_OF_DATE`` or ``REFUSED``, and nothing is done,
    if something lacks.
    """
    whole, real = arrays(at)
    if not (0 <= task < whole[TASKS] and 0 <= device < whole[DEVICES] and rank == rank):
        return REFUSED
    if whole[whole[DEVICE] + task] >= 0:
        return REFUSED
    job = whole[whole[JOB] + task]
    graph = whole[whole[GRAPH] + job]
    operator = task - whole[whole[FIRST_TASK] + job]
    seconds = real[whole[graph + SECONDS] + operator * whole[DEVICES] + device]
    if seconds == np.inf:
        return REFUSED
    waits = whole[whole[PENDING] + task] > 0
    load = whole[whole[LOAD] + device]
    slots = whole[whole[SLOTS] + device]
    # Tasks that wait for their data, to be overtaken; whether one runs longer than believed.
    overtakes = False
    overdue = False
    if load:
        taken = whole[TAKEN] + device * whole[MOST_SLOTS]
        for slot in range(taken, taken + slots):
            other = whole[slot]
            if other >= 0:
                if rank < real[whole[RANK] + other] and not has_started(whole, real, other, now):
                    overtakes = True
                if real[whole[EXPECTED] + other] < now:
                    overdue = True
    stale = whole[whole[STALE] + device]
    empty = whole[whole[HEAD] + device] < 0 and not overtakes
    tail = empty or rank >= real[whole[TAIL_RANK] + device]
    known = whole[TRACKING] and slots == 1 and (load == 0 or (tail and not stale))
    if known and load and overdue and not whole[EXACT]:
        return OUT_OF_DATE
    data = now
    if whole[PUSH] or not waits:
        data = fetch(whole, real, task, whole[whole[SPACE_OF] + device], now)
        if data < 0.0:
            return int(data)
    whole[PLACEMENTS] += 1
    whole[whole[DEVICE] + task] = device
    whole[whole[SEQUENCE] + task] = whole[PLACEMENTS]
    real[whole[RANK] + task] = rank
    real[whole[PLACED_AT] + task] = now
    touch(whole, device)
    if overtakes:
        return_waiting(whole, real, device, now)
    if waits:
        whole[EARLY] += 1
        # Some producer has not finished: the planned start is the best that is known.
        data = rank if rank > now else now
    else:
        whole[whole[CALLED] + device] = 1
    if known:
        begin = now
        if load and real[whole[AVAILABLE] + device] > now:
            begin = real[whole[AVAILABLE] + device]
        end = (data if data > begin else begin) + seconds
        real[whole[AVAILABLE] + device] = end
        real[whole[EXPECTED] + task] = end
        whole[whole[STALE] + device] = 0
    else:
        whole[whole[STALE] + device] = 1
    if tail:
        real[whole[TAIL_RANK] + device] = rank
    enqueue(whole, real, task, device)
    whole[whole[LOAD] + device] = load + 1
    return load + 1 == slots


@compiled("i8(i8, i8, f8)")
def finish(at, task, now):  # type: ignore[no-untyped-def]
    """A task has ended; returns a sum of ``FREED``, ``EARLIER`` and ``RELEASES``."""
    whole, real = arrays(at)
    device = whole[whole[DEVICE] + task]
    early = whole[EARLY] > 0
    number_slots(whole, real, device, now)
    slot = whole[whole[SLOT] + task]
    whole[whole[TAKEN] + device * whole[MOST_SLOTS] + slot] = -1
    touch(whole, device)
    load = whole[whole[LOAD] + device]
    whole[whole[LOAD] + device] = load - 1
    if real[whole[EXPECTED] + task] != now:
        whole[whole[STALE] + device] = 1
    count = complete(whole, real, task, whole[whole[SPACE_OF] + device], now)
    released = whole[RELEASED]
    for entry in range(released, released + count):
        successor = whole[entry]
        real[whole[READY_AT] + successor] = now
        place = whole[whole[DEVICE] + successor]
        if place >= 0:  # when its data arrives is known from now on
            whole[EARLY] -= 1
            whole[whole[STALE] + place] = 1
            whole[whole[CALLED] + place] = 1
            touch(whole, place)
    whole[whole[ENDED] + whole[FINISHED]] = task
    whole[FINISHED] += 1
    return count * RELEASES + early * EARLIER + (load == whole[whole[SLOTS] + device]) * FREED


@compiled("i8(i8[::1], f8[::1], i8, i8, f8)")
def begin(whole, real, device, begun, now):  # type: ignore[no-untyped-def]
    """Take ready heads of a device's queue into free slots; returns how many tasks were taken at this
    instant, ``begun`` of them before.

    A head whose data is on its way is taken, too, and starts when it is there; those behind it start no
    earlier. Nothing can go in front of it but by :func:`return_waiting`.
    """
    head = whole[HEAD] + device
    taken = whole[TAKEN] + device * whole[MOST_SLOTS]
    slots = whole[whole[SLOTS] + device]
    if slots > 1:  # those that have started did so in front of those that are taken now
        number_slots(whole, real, device, now)
    while whole[head] >= 0 and whole[whole[PENDING] + whole[head]] == 0:
        free = -1
        start = now
        for slot in range(slots - 1, -1, -1):
            other = whole[taken + slot]
            if other < 0:
                free = slot
            elif real[whole[BEGINS] + other] > start:
                start = real[whole[BEGINS] + other]
        if free < 0:
            break
        task = whole[head]
        whole[head] = meld_below(whole, real, task)
        whole[taken + free] = task
        there = arrived(whole, real, task, whole[whole[SPACE_OF] + device], now)
        if there > start:
            start = there
        job = whole[whole[JOB] + task]
        operator = task - whole[whole[FIRST_TASK] + job]
        actual = whole[whole[ACTUAL] + job] + operator * whole[DEVICES]
        whole[whole[SLOT] + task] = -1
        real[whole[BEGINS] + task] = start
        real[whole[ENDS] + task] = start + real[actual + device]
        whole[whole[BEGUN] + begun] = task
        begun += 1
    return begun


@compiled("i8(i8, f8)")
def settle(at, now):  # type: ignore[no-untyped-def]
    """Make the requests of this instant final, in the order of their copies, and let devices take tasks;
    returns how many (``BEGUN``).
    """
    whole, real = arrays(at)
    if whole[MOVES] != whole[FINAL]:
        if whole[DISORDER]:
            if whole[QUEUED] and put_in_order(whole, real, now):
                for device in range(whole[DEVICES]):
                    if whole[whole[CALLED] + device]:
                        whole[whole[STALE] + device] = 1
            whole[DISORDER] = 0
        whole[FINAL] = whole[MOVES]
        whole[ROUNDS] += 1
    begun = 0
    touched = whole[TOUCHED]
    for entry in range(touched, touched + whole[TOUCHES]):
        device = whole[entry]
        whole[whole[IS_TOUCHED] + device] = 0
        whole[whole[CALLED] + device] = 0
        begun = begin(whole, real, device, begun, now)
    whole[TOUCHES] = 0
    real[whole[SETTLED]] = now
    return begun


@compiled("b1(i8[::1], f8[::1], i8, f8)")
def is_known(whole, real, device, now):  # type: ignore[no-untyped-def]
    """Whether it is known when a device is available."""
    if whole[whole[LOAD] + device] == 0:
        return True
    if whole[whole[STALE] + device] or not whole[TRACKING]:
        return False
    if not whole[EXACT]:
        taken = whole[TAKEN] + device * whole[MOST_SLOTS]
        for slot in range(taken, taken + whole[whole[SLOTS] + device]):
            if whole[slot] >= 0 and real[whole[EXPECTED] + whole[slot]] < now:
                return False
    return True


@compiled("i8(i8, i8, f8, i8)")
def best_device(at, task, now, pricing):  # type: ignore[no-untyped-def]
    """The device on which a ready task is estimated to finish first, the smaller one of equal
    ones; see :func:`simulator.pricing.best_device`. ``UNKNOWN_ROUTE`` if a route lacks, ``OUT_OF_DATE``
    if it is not known when each device is available.
    """
    whole, real = arrays(at)
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
    for device in range(devices):
        if not is_known(whole, real, device, now):
            return OUT_OF_DATE
    together = pricing in (PER_LINK, AWARE)
    aware = pricing in (AWARE, PER_EDGE_AWARE)
    best = np.inf
    chosen = -1
    for device in range(devices):
        free = now
        if whole[whole[LOAD] + device] and real[whole[AVAILABLE] + device] > now:
            free = real[whole[AVAILABLE] + device]
        least = real[seconds + device]
        if free + least >= best:
            continue
        space = whole[whole[SPACE_OF] + device]
        ready = now
        if together:  # what a call that ended early added up counts for nothing
            for entry in range(begin, end):
                source = whole[home + whole[entry]]
                if source >= 0:
                    real[parcels + source] = 0.0
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
        finish = (ready if ready > free else free) + least
        if finish < best:
            best = finish
            chosen = device
    return chosen
