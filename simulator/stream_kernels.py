"""What happens to requests that run whole, compiled by numba: arrivals, transfers, batches and figures.

Importing this module imports numba and compiles, or reads what an earlier process compiled. One call of
:func:`advance` takes a block of requests through the run. Events, rounds of an instant, ties and the order
of sums are those of :mod:`simulator.streaming`, :mod:`simulator.dispatching` and
:mod:`simulator.streamed_figures`, so that results are equal to the last bit.

All functions take the header ``a``, int64: numbers, then the addresses of tables;
:class:`simulator.compiled_stream.CompiledStream` makes them and reads the figures. Requests in the system have a *place* in the tables, which the next one takes when they leave. Nodes are
memory spaces with devices, ascending. A model that is *asked* for is the graph of its requests.
"""

from __future__ import annotations

from math import ceil, log
from typing import Any

import numpy as np
from numba import carray

from simulator.compiling import as_integers, as_reals, compiled

(
    ARRIVED,  # requests so far
    USED,  # places that were ever taken
    FREE,  # places that were taken and are free
    EVENTS,  # in the heap
    ENTERED,  # events so far
    GATHERING,  # whether the events of an instant are being collected
    WOKEN,  # whether the scheduler is to be asked
    NEW,  # how many are in NEW_ONES
    DELIVERED,  # how many are in DELIVERED_ONES
    DUE,  # how many devices end now
    LANDED,  # how many transfers end now
    WANTED,  # how many transfers were asked for now
    LEAVING,  # how many requests may be done
    TOUCHED,  # nodes at which something may be served
    DECISIONS,
    TURN,  # of the selection
    WORD,  # the next random number
    ODD,  # whether something happened that these functions do not know
    RULE,  # of the scheduler
    SELECTION,
    MOVE,  # whether requests that arise at a node may leave it
    QUEUED,  # whether transfers wait for their channels
    # Figures, as StreamedFigures has them.
    INSIDE,
    INSIDE_ON_TIME,
    AFTER,
    AFTER_ON_TIME,
    FINISHED,
    LATE,
    LEFT_INSIDE,
    FINISHED_INSIDE,
    GOOD_INSIDE,
    STAYED,
    LEADERS,
    SERVED_TOGETHER,
    TRANSFERS,
    FIRSTS,  # entries of tables so far, to keep them in the order in which they were made
    # How wide tables are.
    SPACES,
    NODES,
    DEVICES,
    MODELS,
    MODELS_ASKED,
    WIDTH,  # the largest batch, and 1
    MOST_TENSORS,  # that a request sends
    WORDS,
    WHOLE,
) = range(45)
"""Positions of numbers in the header."""

(
    NOW,
    HORIZON,
    WARM_UP,
    SCALE,  # of the bins, see simulator.quantiles
    THETA,
    STARVE_AFTER,
    TAU,
    DELAY,
    LAST_ARRIVAL,
    LAST_EXECUTION,
    LAST_FINISH,
    STAY,
    TIME_IN_SYSTEM,
    BUSY_INSIDE,
    BYTES,
    REAL,
) = range(16)
"""Positions in the table ``real``."""

ASKED, ITEMS, ORIGIN, DESTINATION, MODEL, KIND = range(6)
"""Of a kind of requests; spaces are -1 for everywhere."""
OWN, SMALLEST, INPUTS, SENT, CANDIDATES, ASK = range(6)
"""Of a model that is asked for: its graph, smallest batch, how many inputs, inputs and outputs, nodes."""
HEAD, TAIL, WAITING, QUEUED_ITEMS, EACH, MADE, GROUP = range(7)
"""Of a model's queue at a node."""
NUMBER, OF_KIND, NEXT, CROSSING, COMING, LEFT, NODE, SERVED, JOB = range(9)
"""Of a request: its number (-1: the place is free), kind, the next one in its queue or batch, transfers
under way, inputs that are not there, whether it is not executed, its node, and the graph that served it."""
ARRIVAL, DEADLINE, WORK, MOMENTS = range(4)
"""Of a request, seconds; the last: believed, while it is on its way."""
LEADER, COUNT, GRAPH, RUNNING = range(4)
"""Of what a device runs; it runs nothing where the second is 0."""
TALLIED, ZEROS, ON_TIME, FIRST, TALLY = range(5)
TOTAL, LEAST, GREATEST, EXTENT = range(4)
"""Of the delays of a model's requests."""
SUCCESSES, FIRST_SUCCESS, SUCCESS = range(3)
LOWEST, BINS = -7500, 11000
"""The first bin that is counted, and how many are."""

TASK_GROUPS, FCFS_BATCHING, DYNAMIC_BATCHING = range(3)
HOME, RANDOM, ROUND_ROBIN, LEAST_LOADED = range(4)
MORE, OVER, LEFT_ALONE = range(3)
"""Why a call ends: requests lack, nothing is left to happen before the horizon, or something happened
that only the other way knows."""
WAKES = -1
"""An event that lets the scheduler be asked; below are ends of devices, the others are transfers."""


TABLES = (
    "real",
    # The fleet.
    "node_of",  # by space: its node, -1 without devices
    "space_of",  # by node
    "device_at",  # by node: where its devices begin in the next one
    "devices",
    "stands_at",  # by device: its node
    "latency",  # by source and destination
    "bandwidth",
    "way_at",  # by source and destination: where the channels of the route begin in the next one
    "way",  # how many channels, and these
    "channel_free",  # by channel: when, seconds
    "believed",  # seconds by graph and device
    "happens",
    "name_of",  # by graph: the number of its name
    # What is asked for.
    "kind",
    "ask",
    "prepared",  # by model and items: the graph, -1 for none
    "largest_on",  # by model and device: items that are served at most
    "largest_at",  # the same by node
    "size",  # bytes, by model and tensor: inputs, then outputs
    "candidates",  # by model: nodes that a selection chooses among
    # What waits and runs.
    "group",  # by model and node
    "order",  # by node: its groups in the order in which they were made
    "groups",  # by node: how many
    "waiting",  # by node: requests
    "coming",  # by node: believed seconds of what is on its way
    "is_touched",  # by node
    "touched",
    "wakes_at",  # by node: when it asked to be woken last
    "running",  # by device
    "began",
    "until",  # believed
    "job",
    "moment",
    "free",
    # Lists of one instant.
    "new",
    "delivered",
    "due",
    "landed",
    "wanted",
    "leaving",
    # Events, a heap by moment and number.
    "when",
    "entered",
    "what",
    "words",  # random, of 32 bits
    # Figures.
    "busy",
    "tasks",
    "seconds",  # by graph and device
    "first",
    "tally",  # of those before the window and in it, by model
    "extent",
    "bins",
    "success",  # by name
)
"""Tables of int64 and float64; after the numbers of the header come their addresses in this order."""
HEADER = WHOLE + len(TABLES)


def _integers(name: str) -> Any:
    """What gives a column of int64 by the header."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def column(a):  # type: ignore[no-untyped-def]
        return carray(as_integers(a[at]), (1 << 40,))

    return column


def _reals(name: str) -> Any:
    """The same of float64."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def column(a):  # type: ignore[no-untyped-def]
        return carray(as_reals(a[at]), (1 << 40,))

    return column


def _integer_rows(name: str, width: int) -> Any:
    """What gives a table of int64 by the header, in rows of so many."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def rows(a):  # type: ignore[no-untyped-def]
        return carray(as_integers(a[at]), (1 << 30, width))

    return rows


def _real_rows(name: str, width: int) -> Any:
    """The same of float64."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def rows(a):  # type: ignore[no-untyped-def]
        return carray(as_reals(a[at]), (1 << 30, width))

    return rows


def _integers_by(name: str, width: int) -> Any:
    """What gives a table of int64 by the header, whose width the header says at a position."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def rows(a):  # type: ignore[no-untyped-def]
        return carray(as_integers(a[at]), (1 << 30, a[width]))

    return rows


def _reals_by(name: str, width: int) -> Any:
    """The same of float64."""
    at = WHOLE + TABLES.index(name)

    @compiled()
    def rows(a):  # type: ignore[no-untyped-def]
        return carray(as_reals(a[at]), (1 << 30, a[width]))

    return rows


_real = _reals("real")
_node_of, _space_of = _integers("node_of"), _integers("space_of")
_device_at, _devices = _integers("device_at"), _integers("devices")
_stands_at, _name_of = _integers("stands_at"), _integers("name_of")
_latency, _bandwidth = _reals_by("latency", SPACES), _reals_by("bandwidth", SPACES)
_way_at, _way, _channel_free = (
    _integers_by("way_at", SPACES),
    _integers("way"),
    _reals("channel_free"),
)
_believed, _happens = _reals_by("believed", DEVICES), _reals_by("happens", DEVICES)
_kind, _ask = _integer_rows("kind", KIND), _integer_rows("ask", ASK)
_prepared, _size = _integers_by("prepared", WIDTH), _reals_by("size", MOST_TENSORS)
_largest_on, _largest_at = _integers_by("largest_on", DEVICES), _integers_by("largest_at", NODES)
_candidates, _group = _integers_by("candidates", NODES), _integer_rows("group", GROUP)
_order, _groups = _integers_by("order", MODELS_ASKED), _integers("groups")
_waiting, _coming = _integers("waiting"), _reals("coming")
_is_touched, _touched = _integers("is_touched"), _integers("touched")
_wakes_at = _reals("wakes_at")
_running = _integer_rows("running", RUNNING)
_began, _until = _reals("began"), _reals("until")
_job, _moment = _integer_rows("job", JOB), _real_rows("moment", MOMENTS)
_free, _new, _delivered = _integers("free"), _integers("new"), _integers("delivered")
_due, _landed = _integers("due"), _integers("landed")
_wanted, _leaving = _integers("wanted"), _integers("leaving")
_when, _entered, _what = _reals("when"), _integers("entered"), _integers("what")
_words = _integers("words")
_busy, _tasks = _reals("busy"), _integers("tasks")
_seconds, _first = _reals_by("seconds", DEVICES), _integers_by("first", DEVICES)
_tally, _extent = _integer_rows("tally", TALLY), _real_rows("extent", EXTENT)
_bins, _success = _integer_rows("bins", BINS), _integer_rows("success", SUCCESS)


# -- events ---------------------------------------------------------------------------------------


@compiled()
def push(a, moment, what):  # type: ignore[no-untyped-def]
    """Let something happen; of one moment it is the last."""
    place = a[EVENTS]
    a[EVENTS] = place + 1
    while place:
        above = (place - 1) >> 1
        if _when(a)[above] <= moment:
            break
        _when(a)[place] = _when(a)[above]
        _entered(a)[place] = _entered(a)[above]
        _what(a)[place] = _what(a)[above]
        place = above
    _when(a)[place] = moment
    _entered(a)[place] = a[ENTERED]
    _what(a)[place] = what
    a[ENTERED] += 1


@compiled()
def pop(a):  # type: ignore[no-untyped-def]
    """Take the first event out."""
    found = _what(a)[0]
    count = a[EVENTS] - 1
    a[EVENTS] = count
    moment, number, what = _when(a)[count], _entered(a)[count], _what(a)[count]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            _when(a)[other] < _when(a)[below]
            or (_when(a)[other] == _when(a)[below] and _entered(a)[other] < _entered(a)[below])
        ):
            below = other
        if moment < _when(a)[below] or (moment == _when(a)[below] and number < _entered(a)[below]):
            break
        _when(a)[place] = _when(a)[below]
        _entered(a)[place] = _entered(a)[below]
        _what(a)[place] = _what(a)[below]
        place = below
    _when(a)[place] = moment
    _entered(a)[place] = number
    _what(a)[place] = what
    return found


@compiled()
def sort_by(keys, values, count):  # type: ignore[no-untyped-def]
    """Sort the first values by keys, all of which differ (Shell's method, Communications of the ACM 2(7),
    1959).
    """
    gap = 1
    while 3 * gap < count:
        gap = 3 * gap + 1
    while gap:
        for at in range(gap, count):
            key, value = keys[at], values[at]
            place = at
            while place >= gap and keys[place - gap] > key:
                keys[place] = keys[place - gap]
                values[place] = values[place - gap]
                place -= gap
            keys[place] = key
            values[place] = value
        gap //= 3


# -- figures --------------------------------------------------------------------------------------


@compiled()
def count_execution(a, device, finish):  # type: ignore[no-untyped-def]
    """What a device ran has ended; see :meth:`StreamedFigures.execute`."""
    real = _real(a)
    start = _began(a)[device]
    seconds = finish - start
    _busy(a)[device] += seconds
    if start >= real[WARM_UP]:
        real[BUSY_INSIDE] += seconds
    elif finish > real[WARM_UP]:
        real[BUSY_INSIDE] += finish - real[WARM_UP]
    _tasks(a)[device] += 1
    a[LEADERS] += 1
    a[SERVED_TOGETHER] += _running(a)[device, COUNT]
    graph = _running(a)[device, GRAPH]
    if not _first(a)[graph, device]:
        a[FIRSTS] += 1
        _first(a)[graph, device] = a[FIRSTS]
    _seconds(a)[graph, device] += seconds
    if finish > real[LAST_EXECUTION]:
        real[LAST_EXECUTION] = finish


@compiled()
def count_request(a, place):  # type: ignore[no-untyped-def]
    """A request is done now; see :meth:`StreamedFigures.finish`."""
    real = _real(a)
    now, start = real[NOW], real[WARM_UP]
    arrival = _moment(a)[place, ARRIVAL]
    on_time = now <= _moment(a)[place, DEADLINE]
    here = arrival >= start
    window = 1 if here else 0
    model = _kind(a)[_job(a)[place, OF_KIND], MODEL]
    tally, extent = _tally(a)[window * a[MODELS] + model], _extent(a)[window * a[MODELS] + model]
    if not tally[FIRST]:
        a[FIRSTS] += 1
        tally[FIRST] = a[FIRSTS]
    delay = now - arrival
    tally[TALLIED] += 1
    extent[TOTAL] += delay
    if delay < extent[LEAST]:
        extent[LEAST] = delay
    if delay > extent[GREATEST]:
        extent[GREATEST] = delay
    if delay > 0:
        bin = ceil(log(delay) * real[SCALE]) - LOWEST
        if 0 <= bin < BINS:
            _bins(a)[window * a[MODELS] + model, bin] += 1
        else:
            a[ODD] = 1
    else:
        tally[ZEROS] += 1
    a[FINISHED] += 1
    if now > real[LAST_FINISH]:
        real[LAST_FINISH] = now
    if on_time:
        tally[ON_TIME] += 1
        if here:
            success = _success(a)[_name_of(a)[_job(a)[place, SERVED]]]
            if not success[FIRST_SUCCESS]:
                a[FIRSTS] += 1
                success[FIRST_SUCCESS] = a[FIRSTS]
            success[SUCCESSES] += 1
    else:
        a[LATE] += 1
    if here:
        real[STAY] += delay
        a[STAYED] += 1
        real[TIME_IN_SYSTEM] += delay
    elif now > start:
        real[TIME_IN_SYSTEM] += now - start
    if now >= start:
        a[LEFT_INSIDE] += 1
        a[FINISHED_INSIDE] += 1
        a[GOOD_INSIDE] += on_time
        if now <= real[LAST_ARRIVAL]:
            a[INSIDE] += 1
            a[INSIDE_ON_TIME] += on_time
        else:
            a[AFTER] += 1
            a[AFTER_ON_TIME] += on_time


# -- queues ---------------------------------------------------------------------------------------


@compiled()
def touch(a, node):  # type: ignore[no-untyped-def]
    """Something may be served at a node."""
    if not _is_touched(a)[node]:
        _is_touched(a)[node] = 1
        _touched(a)[a[TOUCHED]] = node
        a[TOUCHED] += 1


@compiled()
def is_prepared(a, asked, items):  # type: ignore[no-untyped-def]
    """Whether a model has a graph for so many items."""
    return items < a[WIDTH] and _prepared(a)[asked, items] >= 0


@compiled()
def make_group(a, asked, node, items):  # type: ignore[no-untyped-def]
    """See :meth:`Dispatcher.group_at`."""
    group = _group(a)[asked * a[NODES] + node]
    if not group[MADE]:
        group[MADE] = 1
        group[HEAD] = -1
        group[EACH] = items
        _order(a)[node, _groups(a)[node]] = asked
        _groups(a)[node] += 1


@compiled()
def enqueue(a, place, node):  # type: ignore[no-untyped-def]
    """Let a request wait at a node."""
    kind = _kind(a)[_job(a)[place, OF_KIND]]
    asked, items = kind[ASKED], kind[ITEMS]
    touch(a, node)
    make_group(a, asked, node, items)
    group = _group(a)[asked * a[NODES] + node]
    if group[EACH] and group[EACH] != items:
        group[EACH] = 0
    _job(a)[place, NEXT] = -1
    if group[HEAD] < 0:
        group[HEAD] = place
    else:
        _job(a)[group[TAIL], NEXT] = place
    group[TAIL] = place
    group[WAITING] += 1
    group[QUEUED_ITEMS] += items
    _waiting(a)[node] += 1


@compiled()
def items_of(a, asked, node, count):  # type: ignore[no-untyped-def]
    """See :meth:`Group.items`."""
    group = _group(a)[asked * a[NODES] + node]
    if group[EACH]:
        return group[EACH] * count
    total = 0
    place = group[HEAD]
    for _ in range(count):
        total += _kind(a)[_job(a)[place, OF_KIND], ITEMS]
        place = _job(a)[place, NEXT]
    return total


@compiled()
def fitting(a, asked, node, device):  # type: ignore[no-untyped-def]
    """See :meth:`Dispatcher.fitting`; 0 where that refuses."""
    group = _group(a)[asked * a[NODES] + node]
    most, each = _largest_on(a)[asked, device], group[EACH]
    if each:
        count = max(1, most // each)
        if group[WAITING] < count:
            count = group[WAITING]
        while count and not is_prepared(a, asked, count * each):
            count -= 1
        return count
    total = best = count = 0
    place = group[HEAD]
    while place >= 0:
        count += 1
        total += _kind(a)[_job(a)[place, OF_KIND], ITEMS]
        if total > most and count > 1:
            break
        if is_prepared(a, asked, total):
            best = count
        if total >= most:
            break
        place = _job(a)[place, NEXT]
    return best


@compiled()
def backlog(a, node):  # type: ignore[no-untyped-def]
    """See :meth:`Dispatcher.backlog_seconds`."""
    now = _real(a)[NOW]
    begin, end = _device_at(a)[node], _device_at(a)[node + 1]
    work = 0.0
    for at in range(begin, end):
        left = _until(a)[_devices(a)[at]] - now
        if left > 0.0:
            work += left
    for at in range(_groups(a)[node]):
        asked = _order(a)[node, at]
        group = _group(a)[asked * a[NODES] + node]
        if group[WAITING]:
            largest = _largest_at(a)[asked, node]
            graph = _prepared(a)[asked, largest]
            seconds = np.inf
            for entry in range(begin, end):
                seconds = min(seconds, _believed(a)[graph, _devices(a)[entry]])
            work += ceil(group[QUEUED_ITEMS] / largest) * seconds
    return work / (end - begin)


# -- which node -----------------------------------------------------------------------------------


@compiled()
def draw(a, below):  # type: ignore[no-untyped-def]
    """What ``Generator.integers(below)`` draws of these bits (D. Lemire, *Fast random integer generation
    in an interval*, ACM TOMACS 29(1), 2019).
    """
    if below == 1:
        return 0
    while a[WORD] < a[WORDS]:
        product = _words(a)[a[WORD]] * below
        a[WORD] += 1
        if (product & 0xFFFFFFFF) >= (0x100000000 - below) % below:
            return product >> 32
    a[ODD] = 1
    return 0


@compiled()
def is_able(a, asked, node):  # type: ignore[no-untyped-def]
    """Whether a device of a node can run a model's own graph."""
    graph = _ask(a)[asked, OWN]
    for at in range(_device_at(a)[node], _device_at(a)[node + 1]):
        if _believed(a)[graph, _devices(a)[at]] < np.inf:
            return True
    return False


@compiled()
def select(a, asked, origin):  # type: ignore[no-untyped-def]
    """The node for a request; see :mod:`simulator.selection`."""
    if origin >= 0 and not a[MOVE]:
        node = _node_of(a)[origin]
        if node >= 0 and is_able(a, asked, node):
            return node
    count = _ask(a)[asked, CANDIDATES]
    candidates = _candidates(a)[asked]
    if count == 0:
        a[ODD] = 1
        return 0
    selection = a[SELECTION]
    if selection == RANDOM:
        return candidates[draw(a, count)]
    if selection == ROUND_ROBIN:
        chosen = candidates[a[TURN] % count]
        a[TURN] += 1
        return chosen
    if selection == LEAST_LOADED:
        least = np.inf
        ties = 0
        loads = np.empty(count)
        for at in range(count):
            node = candidates[at]
            slots = _device_at(a)[node + 1] - _device_at(a)[node]
            loads[at] = backlog(a, node) + _coming(a)[node] / slots
            if loads[at] < least:
                least = loads[at]
                ties = 0
            ties += loads[at] == least
        drawn = draw(a, ties) if ties > 1 else 0
        for at in range(count):
            if loads[at] == least:
                if drawn == 0:
                    return candidates[at]
                drawn -= 1
    return candidates[0]


@compiled()
def receive(a, place):  # type: ignore[no-untyped-def]
    """A request has arrived: let it wait at its node, or send it there."""
    kind = _kind(a)[_job(a)[place, OF_KIND]]
    asked, items, origin = kind[ASKED], kind[ITEMS], kind[ORIGIN]
    node = select(a, asked, origin)
    _job(a)[place, NODE] = node
    inputs = _ask(a)[asked, INPUTS]
    if origin < 0 or inputs == 0 or origin == _space_of(a)[node]:
        enqueue(a, place, node)
        return
    if not is_prepared(a, asked, items):
        a[ODD] = 1
        return
    make_group(a, asked, node, items)
    graph = _prepared(a)[asked, items]
    work = np.inf
    for at in range(_device_at(a)[node], _device_at(a)[node + 1]):
        work = min(work, _believed(a)[graph, _devices(a)[at]])
    _moment(a)[place, WORK] = work
    _coming(a)[node] += work
    _job(a)[place, COMING] = inputs
    for tensor in range(inputs):
        _wanted(a)[a[WANTED]] = place * a[MOST_TENSORS] + tensor
        a[WANTED] += 1


# -- what runs next -------------------------------------------------------------------------------


@compiled()
def priority(a, items, seconds, age):  # type: ignore[no-untyped-def]
    """See :meth:`TaskGroups._priority`."""
    rate = items / seconds if seconds > 0 else np.inf
    theta, tau = _real(a)[THETA], _real(a)[TAU]
    if theta == 0.0 or tau == 0.0:
        return rate
    return rate * (1 + theta * age / tau)


@compiled()
def runs_on(a, asked, node, device):  # type: ignore[no-untyped-def]
    """See :meth:`Group.runs_on`."""
    group = _group(a)[asked * a[NODES] + node]
    items = group[EACH]
    if not items:
        items = _kind(a)[_job(a)[group[HEAD], OF_KIND], ITEMS]
    if not is_prepared(a, asked, items):
        items = _ask(a)[asked, SMALLEST]
    return _believed(a)[_prepared(a)[asked, items], device] < np.inf


@compiled()
def starving(a, node, device):  # type: ignore[no-untyped-def]
    """The model whose oldest request has waited for too long, -1 for none."""
    found = -1
    if _real(a)[STARVE_AFTER] == np.inf:
        return found
    oldest = _real(a)[NOW] - _real(a)[STARVE_AFTER]
    for at in range(_groups(a)[node]):
        asked = _order(a)[node, at]
        group = _group(a)[asked * a[NODES] + node]
        if group[WAITING] and runs_on(a, asked, node, device):
            arrival = _moment(a)[group[HEAD], ARRIVAL]
            if arrival < oldest:
                found, oldest = asked, arrival
    return found


@compiled()
def by_priority(a, node, device):  # type: ignore[no-untyped-def]
    """See :meth:`TaskGroups.choose`: the model and how many of its requests."""
    chosen = starving(a, node, device)
    if chosen >= 0:
        return chosen, fitting(a, chosen, node, device)
    number, best, oldest = 0, -np.inf, np.inf
    for at in range(_groups(a)[node]):
        asked = _order(a)[node, at]
        group = _group(a)[asked * a[NODES] + node]
        if not group[WAITING]:
            continue
        count = fitting(a, asked, node, device)
        if not count:
            return asked, 0
        items = items_of(a, asked, node, count)
        seconds = _believed(a)[_prepared(a)[asked, items], device]
        if seconds == np.inf:
            continue
        arrival = _moment(a)[group[HEAD], ARRIVAL]
        value = priority(a, items, seconds, _real(a)[NOW] - arrival)
        if chosen < 0 or value > best or (value == best and arrival < oldest):
            chosen, number, best, oldest = asked, count, value, arrival
    return chosen, number


@compiled()
def by_age(a, node, device, delayed):  # type: ignore[no-untyped-def]
    """The model of the oldest request and how many of its requests; where they are ``delayed``, of those
    models that are due. See :meth:`Dispatcher.oldest`.
    """
    now, delay = _real(a)[NOW], _real(a)[DELAY]
    chosen, oldest, number, earliest = -1, np.inf, 0, np.inf
    for at in range(_groups(a)[node]):
        asked = _order(a)[node, at]
        group = _group(a)[asked * a[NODES] + node]
        if not group[WAITING]:
            continue
        head = group[HEAD]
        arrival = _moment(a)[head, ARRIVAL]
        earliest = min(earliest, arrival)
        if not runs_on(a, asked, node, device):
            continue
        if chosen >= 0 and (
            oldest < arrival or (oldest == arrival and number <= _job(a)[head, NUMBER])
        ):
            continue
        full = group[QUEUED_ITEMS] >= _largest_on(a)[asked, device]
        if delayed and not (full or arrival + delay <= now):
            continue
        chosen, oldest, number = asked, arrival, _job(a)[head, NUMBER]
    if chosen >= 0:
        return chosen, fitting(a, chosen, node, device)
    if delayed and earliest < np.inf:
        moment = max(now, earliest + delay)
        # One event is enough for all that ask for the same moment.
        if _wakes_at(a)[node] != moment or moment == now:
            _wakes_at(a)[node] = moment
            push(a, moment, WAKES)
    return -1, 0


@compiled()
def serve(a, node, device, asked, count):  # type: ignore[no-untyped-def]
    """Let a device execute the first requests of a model's queue from now on."""
    real = _real(a)
    group = _group(a)[asked * a[NODES] + node]
    items = items_of(a, asked, node, count)
    batch = _prepared(a)[asked, items]
    seconds = _believed(a)[batch, device]
    leader = last = group[HEAD]
    for _ in range(count - 1):
        last = _job(a)[last, NEXT]
    group[HEAD] = _job(a)[last, NEXT]
    _job(a)[last, NEXT] = -1
    group[WAITING] -= count
    group[QUEUED_ITEMS] -= items
    _waiting(a)[node] -= count
    graph = batch if count > 1 else _ask(a)[asked, OWN]
    if _believed(a)[graph, device] == np.inf:
        a[ODD] = 1
        return
    now = real[NOW]
    _until(a)[device] = now + seconds
    _began(a)[device] = now
    _running(a)[device, LEADER] = leader
    _running(a)[device, COUNT] = count
    _running(a)[device, GRAPH] = graph
    push(a, now + _happens(a)[graph, device], WAKES - 1 - device)
    if real[TAU] == 0.0:
        real[TAU] = seconds
    else:
        real[TAU] += 0.1 * (seconds - real[TAU])


@compiled()
def dispatch(a, node):  # type: ignore[no-untyped-def]
    """See :meth:`Dispatcher._dispatch`."""
    rule = a[RULE]
    begin, end = _device_at(a)[node], _device_at(a)[node + 1]
    while True:
        idle = False
        served = False
        for at in range(begin, end):
            device = _devices(a)[at]
            if _running(a)[device, COUNT]:
                continue
            idle = True
            if not _waiting(a)[node]:
                return True
            if rule == TASK_GROUPS:
                asked, count = by_priority(a, node, device)
            else:
                asked, count = by_age(a, node, device, rule == DYNAMIC_BATCHING)
            if asked >= 0:
                if not count:
                    a[ODD] = 1
                    return True
                serve(a, node, device, asked, count)
                served = True
                break
        if not idle:
            return True
        if not served:
            return False


# -- an instant -----------------------------------------------------------------------------------


@compiled()
def admit(a, kind, now, deadline):  # type: ignore[no-untyped-def]
    """A request arrives."""
    if a[FREE]:
        a[FREE] -= 1
        place = _free(a)[a[FREE]]
    else:
        place = a[USED]
        a[USED] += 1
    job = _job(a)[place]
    job[NUMBER] = a[ARRIVED]
    job[OF_KIND] = kind
    job[CROSSING] = 0
    job[COMING] = 0
    job[LEFT] = 1
    _moment(a)[place, ARRIVAL] = now
    _moment(a)[place, DEADLINE] = deadline
    _new(a)[a[NEW]] = place
    a[NEW] += 1
    a[ARRIVED] += 1
    _real(a)[LAST_ARRIVAL] = now
    if a[AFTER]:
        a[INSIDE] += a[AFTER]
        a[INSIDE_ON_TIME] += a[AFTER_ON_TIME]
        a[AFTER] = 0
        a[AFTER_ON_TIME] = 0


@compiled()
def finish(a, device):  # type: ignore[no-untyped-def]
    """A device has ended what it ran: ask for the answers to go where they are wanted."""
    node = _stands_at(a)[device]
    space = _space_of(a)[node]
    count_execution(a, device, _real(a)[NOW])
    place = _running(a)[device, LEADER]
    while place >= 0:
        job = _job(a)[place]
        kind = _kind(a)[job[OF_KIND]]
        job[LEFT] = 0
        job[SERVED] = _running(a)[device, GRAPH]
        ask = _ask(a)[kind[ASKED]]
        if kind[DESTINATION] >= 0 and kind[DESTINATION] != space:
            for tensor in range(ask[INPUTS], ask[SENT]):
                _wanted(a)[a[WANTED]] = place * a[MOST_TENSORS] + tensor
                a[WANTED] += 1
        _leaving(a)[a[LEAVING]] = place
        a[LEAVING] += 1
        place = job[NEXT]
    _running(a)[device, COUNT] = 0
    touch(a, node)


@compiled()
def deliver(a):  # type: ignore[no-untyped-def]
    """Apply the transfers that have ended."""
    real = _real(a)
    tensors = a[MOST_TENSORS]
    for entry in range(a[LANDED]):
        place, tensor = _landed(a)[entry] // tensors, _landed(a)[entry] % tensors
        job = _job(a)[place]
        asked = _kind(a)[job[OF_KIND], ASKED]
        if tensor < _ask(a)[asked, INPUTS]:
            job[COMING] -= 1
            if not job[COMING]:
                _delivered(a)[a[DELIVERED]] = place
                a[DELIVERED] += 1
        job[CROSSING] -= 1
        if not job[LEFT]:
            _leaving(a)[a[LEAVING]] = place
            a[LEAVING] += 1
        a[TRANSFERS] += 1
        real[BYTES] += _size(a)[asked, tensor]
    a[LANDED] = 0


@compiled()
def decide(a):  # type: ignore[no-untyped-def]
    """See :meth:`Dispatcher.decide`."""
    a[DECISIONS] += 1
    for entry in range(a[NEW]):
        receive(a, _new(a)[entry])
    a[NEW] = 0
    for entry in range(a[DELIVERED]):
        place = _delivered(a)[entry]
        node = _job(a)[place, NODE]
        _coming(a)[node] -= _moment(a)[place, WORK]
        enqueue(a, place, node)
    a[DELIVERED] = 0
    if a[ODD]:
        return
    touched, kept = _touched(a), 0
    sort_by(touched, touched, a[TOUCHED])
    for entry in range(a[TOUCHED]):
        node = touched[entry]
        if dispatch(a, node):
            _is_touched(a)[node] = 0
        else:
            touched[kept] = node
            kept += 1
    a[TOUCHED] = kept


@compiled()
def send(a):  # type: ignore[no-untyped-def]
    """Send what was asked for at this instant, by request and tensor."""
    now = _real(a)[NOW]
    count, tensors = a[WANTED], a[MOST_TENSORS]
    if count > 1:
        keys = np.empty(count, np.int64)
        for entry in range(count):
            wanted = _wanted(a)[entry]
            keys[entry] = _job(a)[wanted // tensors, NUMBER] * tensors + wanted % tensors
        sort_by(keys, _wanted(a), count)
    for entry in range(count):
        wanted = _wanted(a)[entry]
        place, tensor = wanted // tensors, wanted % tensors
        job = _job(a)[place]
        kind = _kind(a)[job[OF_KIND]]
        job[CROSSING] += 1
        source, destination = kind[ORIGIN], _space_of(a)[job[NODE]]
        if tensor >= _ask(a)[kind[ASKED], INPUTS]:
            source, destination = destination, kind[DESTINATION]
        size = _size(a)[kind[ASKED], tensor]
        seconds = _latency(a)[source, destination] + size / _bandwidth(a)[source, destination]
        begin, channels, start = _way_at(a)[source, destination], 0, now
        if a[QUEUED]:
            channels = _way(a)[begin]
        for channel in _way(a)[begin + 1 : begin + 1 + channels]:
            start = max(start, _channel_free(a)[channel])
        end = start + seconds
        for channel in _way(a)[begin + 1 : begin + 1 + channels]:
            _channel_free(a)[channel] = end
        if end == now:
            _landed(a)[a[LANDED]] = wanted
            a[LANDED] += 1
        else:
            push(a, end, wanted)
    a[WANTED] = 0
    if a[LANDED]:  # what takes no time
        deliver(a)
    if a[DELIVERED]:  # the scheduler is asked in another round of this instant
        push(a, now, WAKES)


@compiled()
def let_go(a):  # type: ignore[no-untyped-def]
    """Count and forget the requests that are done."""
    for entry in range(a[LEAVING]):
        place = _leaving(a)[entry]
        job = _job(a)[place]
        if job[NUMBER] < 0 or job[CROSSING]:
            continue
        count_request(a, place)
        job[NUMBER] = -1
        _free(a)[a[FREE]] = place
        a[FREE] += 1
    a[LEAVING] = 0


@compiled()
def settle(a):  # type: ignore[no-untyped-def]
    """One round of an instant; see :meth:`StreamedSimulation._settle`."""
    news = a[WOKEN] + a[NEW] + a[DUE]
    a[WOKEN] = 0
    count = a[DUE]
    if count:
        if count > 1:
            keys = np.empty(count, np.int64)
            for entry in range(count):
                keys[entry] = _job(a)[_running(a)[_due(a)[entry], LEADER], NUMBER]
            sort_by(keys, _due(a), count)
        for entry in range(count):
            finish(a, _due(a)[entry])
        a[DUE] = 0
    if a[LANDED]:
        deliver(a)
    if news or a[DELIVERED]:
        decide(a)
    if a[WANTED] and not a[ODD]:
        send(a)
    if a[LEAVING]:
        let_go(a)


@compiled("i8(i8[::1], i8[::1], f8[::1], f8[::1], b1)")
def advance(a, kind, arrival, deadline, more):  # type: ignore[no-untyped-def]
    """Take requests through the run until others must be known, or nothing is left to happen.

    Args:
        a: the header of tables that have room for all of them.
        kind: of each request, in order of arrival.
        arrival: seconds.
        deadline: seconds; inf for none.
        more: whether others come after these.

    Returns:
        ``MORE``, ``OVER`` or ``LEFT_ALONE``.
    """
    real = _real(a)
    at, count = 0, len(arrival)
    while True:
        if not a[GATHERING]:
            if at == count and more:
                return MORE
            now = np.inf
            if at < count:
                now = arrival[at]
            if a[EVENTS] and _when(a)[0] < now:
                now = _when(a)[0]
            if now == np.inf or now > real[HORIZON]:
                return OVER
            real[NOW] = now
            a[GATHERING] = 1
        now = real[NOW]
        while at < count and arrival[at] == now:
            admit(a, kind[at], now, deadline[at])
            at += 1
        if at == count and more:
            return MORE
        while a[EVENTS] and _when(a)[0] == now:
            what = pop(a)
            if what >= 0:
                _landed(a)[a[LANDED]] = what
                a[LANDED] += 1
            elif what == WAKES:
                a[WOKEN] = 1
            else:
                _due(a)[a[DUE]] = WAKES - 1 - what
                a[DUE] += 1
        a[GATHERING] = 0
        settle(a)
        if a[ODD]:
            return LEFT_ALONE
