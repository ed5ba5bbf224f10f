"""What happens at every finish in a run of fixed plans, compiled by numba.

Importing this module imports numba and compiles, or reads what an earlier process compiled. The one
argument that says where everything is, is the address of a header of addresses, which
:class:`simulator.compiled_plan.CompiledPlan` fills in. Additions are done in the order of
:mod:`simulator.planned`, so that results are equal to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from simulator.compiling import as_integers, as_reals, compiled

(
    DEVICE,  # int64, by task
    OFFSET,  # int64, by task, and one more: where its edges begin
    SOURCE,  # int64, by edge: the task from which it comes
    DELAY,  # float64, by edge: seconds from that one's finish to the data's arrival
    SINCE,  # float64, by task: when what its job brings with it is there
    DURATION,  # float64, by task
    START,  # float64, by task: inf until it is taken
    FINISH,  # float64, by task: inf until it is taken
    WATCHER,  # int64, by task: a device whose head waits for it to be taken, -1 for none
    ORDER,  # int64, by device: the address of its tasks, int64, in their order
    LENGTH,  # int64, by device: how many they are
    NEXT,  # int64, by device: how many of them it has taken
    FREE,  # int64, by device: slots
    LAST_START,  # float64, by device: of what it took
    WATCHED,  # int64, by device: the task for which its head waits, -1 for none
    BESIDE,  # int64, by device: the next one whose head waits for the same task, -1 for none
    LOOK,  # int64: devices that are still to be looked at
    BEGUN,  # int64: the tasks that were taken
    DEVICES,  # how many there are
    HEADER,
) = range(20)
"""Positions in the header, and what lies at the address that is there, or a number itself."""

NOBODY = -1


@compiled("i8(i8, i8, f8)")
def advance(at, ended, now):  # type: ignore[no-untyped-def]
    """A task has ended, or devices may take more (``NOBODY``): let them take what they can, and those
    whose heads waited for that. Returns how many tasks were taken.
    """
    header = carray(as_integers(at), (HEADER,))
    many = (1 << 60,)
    offset = carray(as_integers(header[OFFSET]), many)
    source = carray(as_integers(header[SOURCE]), many)
    delay = carray(as_reals(header[DELAY]), many)
    since = carray(as_reals(header[SINCE]), many)
    duration = carray(as_reals(header[DURATION]), many)
    start_of = carray(as_reals(header[START]), many)
    finish_of = carray(as_reals(header[FINISH]), many)
    watcher = carray(as_integers(header[WATCHER]), many)
    order_at = carray(as_integers(header[ORDER]), many)
    length = carray(as_integers(header[LENGTH]), many)
    next_of = carray(as_integers(header[NEXT]), many)
    free = carray(as_integers(header[FREE]), many)
    last_start = carray(as_reals(header[LAST_START]), many)
    watched = carray(as_integers(header[WATCHED]), many)
    beside = carray(as_integers(header[BESIDE]), many)
    look = carray(as_integers(header[LOOK]), many)
    begun = carray(as_integers(header[BEGUN]), many)
    left = 1
    if ended == NOBODY:
        left = header[DEVICES]
        for device in range(left):
            look[device] = device
    else:
        look[0] = carray(as_integers(header[DEVICE]), many)[ended]
        free[look[0]] += 1
    count = 0
    while left:
        left -= 1
        device = look[left]
        order = carray(as_integers(order_at[device]), many)
        while free[device] and next_of[device] < length[device]:
            task = order[next_of[device]]
            start = since[task]
            for edge in range(offset[task], offset[task + 1]):
                moment = finish_of[source[edge]] + delay[edge]
                if moment > start:
                    start = moment
            if start == np.inf:
                if watched[device] < 0:
                    for edge in range(offset[task], offset[task + 1]):
                        if finish_of[source[edge]] == np.inf:
                            watched[device] = source[edge]
                            beside[device] = watcher[source[edge]]
                            watcher[source[edge]] = device
                            break
                break
            if start < now:
                start = now
            if start < last_start[device]:
                start = last_start[device]
            last_start[device] = start
            start_of[task] = start
            finish_of[task] = start + duration[task]
            begun[count] = task
            count += 1
            next_of[device] += 1
            free[device] -= 1
            waiting = watcher[task]
            watcher[task] = -1
            while waiting >= 0:
                watched[waiting] = -1
                look[left] = waiting
                left += 1
                waiting = beside[waiting]
    return count
