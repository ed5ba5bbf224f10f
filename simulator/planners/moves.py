"""Changes of plans that searches make, compiled by numba. Use :mod:`simulator.schedulers._search`.

A plan is a device for every task and an order of all tasks in which none stands before a predecessor.
Every function here keeps that. ``draw`` are uniform random numbers in [0, 1); rows are in CSR form.
"""

from __future__ import annotations

from numba import njit

DRAWS = 6
"""Random numbers that one change takes."""
MOST_MOVED = 32
"""Most tasks that one change puts on another device."""
ROOM = 2 * MOST_MOVED + 3
"""Length of the record by which a change is taken back."""


@njit(cache=True, error_model="numpy")
def put(order, position, task, place):  # type: ignore[no-untyped-def]
    """Move a task to a place in the order; those between close up."""
    old = position[task]
    step = 1 if place > old else -1
    for k in range(old, place, step):
        other = order[k + step]
        order[k] = other
        position[other] = k
    order[place] = task
    position[task] = place


@njit(cache=True, error_model="numpy")
def change(  # type: ignore[no-untyped-def]
    draw,
    device,
    order,
    position,
    able_offsets,
    able,
    before_offsets,
    before,
    after_offsets,
    after,
    undo,
):
    """Change a plan in place: a task, or a run of tasks each of which follows the one before it, to
    another device; or a task to another place in the order, between its last predecessor and its
    first successor; or both for one task. ``undo`` is filled for :func:`take_back`.
    """
    tasks = len(device)
    task = int(draw[1] * tasks)
    moved = 0
    undo[1] = -1
    kind = draw[0]
    if kind < 0.6:  # to another device
        count = able_offsets[task + 1] - able_offsets[task]
        if count > 1:
            pick = int(draw[2] * (count - 1))
            place = able[able_offsets[task] + pick]
            if place == device[task]:
                place = able[able_offsets[task] + count - 1]
            length = 1
            if kind < 0.35:
                length = 1 + int(draw[3] * draw[3] * MOST_MOVED)
            current, way = task, draw[4]
            while moved < length:
                if device[current] != place:
                    for k in range(able_offsets[current], able_offsets[current + 1]):
                        if able[k] == place:
                            undo[3 + 2 * moved] = current
                            undo[4 + 2 * moved] = device[current]
                            device[current] = place
                            break
                    else:
                        break
                else:
                    undo[3 + 2 * moved] = current
                    undo[4 + 2 * moved] = place
                moved += 1
                following = after_offsets[current + 1] - after_offsets[current]
                if not following:
                    break
                way = (way * 1.6180339887498949 + 0.2360679774997897) % 1.0
                current = after[after_offsets[current] + int(way * following)]
    undo[0] = moved
    if kind >= 0.5:
        low, high = 0, tasks - 1
        for k in range(before_offsets[task], before_offsets[task + 1]):
            low = max(low, position[before[k]] + 1)
        for k in range(after_offsets[task], after_offsets[task + 1]):
            high = min(high, position[after[k]] - 1)
        undo[1], undo[2] = task, position[task]
        put(order, position, task, low + int(draw[5] * (high - low + 1)))


@njit(cache=True, error_model="numpy")
def take_back(device, order, position, undo):  # type: ignore[no-untyped-def]
    """Undo the last :func:`change`."""
    if undo[1] >= 0:
        put(order, position, undo[1], undo[2])
    for k in range(undo[0] - 1, -1, -1):
        device[undo[3 + 2 * k]] = undo[4 + 2 * k]


@njit(cache=True, error_model="numpy")
def cross(  # type: ignore[no-untyped-def]
    draw, first_device, first_order, second_device, second_order, device, order, position, seen
):
    """A child of two plans: its order begins as the first one's and goes on in the second one's
    order; its devices are the first one's for tasks up to a random one, the second one's behind.
    """
    tasks = len(device)
    cut = int(draw[0] * (tasks + 1))
    seen[:] = False
    for k in range(cut):
        task = first_order[k]
        order[k] = task
        seen[task] = True
    fill = cut
    for k in range(tasks):
        task = second_order[k]
        if not seen[task]:
            order[fill] = task
            fill += 1
    for k in range(tasks):
        position[order[k]] = k
    cut = int(draw[1] * (tasks + 1))
    device[:cut] = first_device[:cut]
    device[cut:] = second_device[cut:]
