"""Loops over fixed plans, compiled by numba. Use :class:`simulator.planners.evaluator.Evaluator`.

Importing this module imports numba; the first call of a function compiles it, or reads what an earlier
process compiled. All indices are positions in the arrays that the evaluator prepares; rows are in CSR
form (``offsets`` then ``values``). Nothing here allocates: a planner calls these in its innermost loop.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NO_DEVICE = 1
UNABLE = 2
NO_TASK = 3
REPEATED = 4
STUCK = 5
"""What is wrong with a plan; 0 if nothing is."""


@njit(cache=True, error_model="numpy")
def enqueue(device, order, seconds, queue_offsets, queue, seen):  # type: ignore[no-untyped-def]
    """Fill each device's queue in the order of the plan; returns (error, task or entry)."""
    tasks, devices = seconds.shape
    queue_offsets[:] = 0
    for task in range(tasks):
        place = device[task]
        if place < 0 or place >= devices:
            return NO_DEVICE, task
        if seconds[task, place] == np.inf:
            return UNABLE, task
        queue_offsets[place + 1] += 1
        seen[task] = 0
    for place in range(devices):
        queue_offsets[place + 1] += queue_offsets[place]
    # Every offset serves as its device's tail while the queues fill; then they are moved back.
    for entry in range(tasks):
        task = order[entry]
        if task < 0 or task >= tasks:
            return NO_TASK, entry
        if seen[task]:
            return REPEATED, task
        seen[task] = 1
        place = device[task]
        queue[queue_offsets[place]] = task
        queue_offsets[place] += 1
    for place in range(devices, 0, -1):
        queue_offsets[place] = queue_offsets[place - 1]
    queue_offsets[0] = 0
    return 0, 0


@njit(cache=True, error_model="numpy")
def run_uncontended(  # type: ignore[no-untyped-def]
    device,
    begin,
    seconds,
    space_of,
    slot_offsets,
    write_offsets,
    writes,
    consumer_offsets,
    consumers,
    in_degree,
    inputs,
    origin,
    destination,
    delivered,
    size,
    latency,
    bandwidth,
    queue_offsets,
    queue,
    head,
    last_start,
    slot_free,
    available,
    pending,
    data,
    stack,
    start,
    finish,
):
    """Push without contention: no event is needed, each task follows from those before it.

    Returns (makespan, tasks done); ``start`` and ``finish`` are filled.
    """
    tasks, devices = seconds.shape
    end_of_all = begin
    for task in range(tasks):
        pending[task] = in_degree[task]
        data[task] = begin
    slot_free[:] = available
    if origin >= 0:
        for tensor in inputs:
            for k in range(consumer_offsets[tensor], consumer_offsets[tensor + 1]):
                reader = consumers[k]
                space = space_of[device[reader]]
                if space != origin:
                    took = latency[origin, space] + size[tensor] / bandwidth[origin, space]
                    data[reader] = max(data[reader], begin + took)
    for place in range(devices):
        head[place] = queue_offsets[place]
        last_start[place] = begin
        stack[place] = place
    depth = devices
    done = 0
    while depth:
        depth -= 1
        place = stack[depth]
        home = space_of[place]
        while head[place] < queue_offsets[place + 1]:
            task = queue[head[place]]
            if pending[task]:
                break
            head[place] += 1
            done += 1
            slot = slot_offsets[place]
            for other in range(slot + 1, slot_offsets[place + 1]):
                if slot_free[other] < slot_free[slot]:
                    slot = other
            moment = max(data[task], slot_free[slot], last_start[place])
            end = moment + seconds[task, place]
            start[task] = last_start[place] = moment
            finish[task] = slot_free[slot] = end
            end_of_all = max(end_of_all, end)
            for w in range(write_offsets[task], write_offsets[task + 1]):
                tensor = writes[w]
                for k in range(consumer_offsets[tensor], consumer_offsets[tensor + 1]):
                    reader = consumers[k]
                    where = device[reader]
                    space = space_of[where]
                    arrival = end
                    if space != home:
                        arrival = end + (
                            latency[home, space] + size[tensor] / bandwidth[home, space]
                        )
                    if arrival > data[reader]:
                        data[reader] = arrival
                    pending[reader] -= 1
                    if not pending[reader] and where != place and queue[head[where]] == reader:
                        stack[depth] = where
                        depth += 1
                if destination >= 0 and destination != home and delivered[tensor]:
                    took = latency[home, destination] + size[tensor] / bandwidth[home, destination]
                    end_of_all = max(end_of_all, end + took)
    return end_of_all, done


@njit(cache=True, error_model="numpy")
def find_crossings(  # type: ignore[no-untyped-def]
    device,
    space_of,
    producer,
    origin,
    destination,
    delivered,
    consumer_offsets,
    consumers,
    read_of,
    crossing_offsets,
    crossing_space,
    crossing_tensor,
    crossing_of_read,
    delivery,
    crossing_at,
):
    """Which tensors cross to which spaces under a placement, in the order of (tensor, space).

    Returns the number of crossings. ``crossing_of_read`` is -1 where a read needs none.
    """
    tensors = len(producer)
    count = 0
    crossing_at[:] = -1
    for tensor in range(tensors):
        crossing_offsets[tensor] = count
        delivery[tensor] = -1
        writer = producer[tensor]
        home = space_of[device[writer]] if writer >= 0 else origin
        first, last = consumer_offsets[tensor], consumer_offsets[tensor + 1]
        if home < 0:
            for k in range(first, last):
                crossing_of_read[read_of[k]] = -1
            continue
        begin = count
        for k in range(first, last):
            space = space_of[device[consumers[k]]]
            if space != home and crossing_at[space] < begin:
                crossing_at[space] = count
                crossing_space[count] = space
                count += 1
        wanted = destination >= 0 and destination != home and writer >= 0 and delivered[tensor]
        if wanted and crossing_at[destination] < begin:
            crossing_at[destination] = count
            crossing_space[count] = destination
            count += 1
        if count > begin + 1:
            crossing_space[begin:count].sort()
            for crossing in range(begin, count):
                crossing_at[crossing_space[crossing]] = crossing
        for crossing in range(begin, count):
            crossing_tensor[crossing] = tensor
        for k in range(first, last):
            space = space_of[device[consumers[k]]]
            crossing_of_read[read_of[k]] = -1 if space == home else crossing_at[space]
        if wanted:
            delivery[tensor] = crossing_at[destination]
    crossing_offsets[tensors] = count
    return count


@njit(cache=True, error_model="numpy")
def run_events(  # type: ignore[no-untyped-def]
    device,
    begin,
    push,
    fifo,
    seconds,
    space_of,
    slot_offsets,
    write_offsets,
    writes,
    read_offsets,
    consumer_offsets,
    consumers,
    producer,
    in_degree,
    inputs,
    origin,
    size,
    latency,
    bandwidth,
    route_offsets,
    routes,
    channel_free,
    queue_offsets,
    queue,
    crossing_offsets,
    crossing_space,
    crossing_tensor,
    crossing_of_read,
    delivery,
    arrival,
    requests,
    head,
    last_start,
    free_slots,
    available,
    touched,
    pending,
    heap_time,
    heap_task,
    due,
    later,
    start,
    finish,
):
    """The engine's rounds: apply finishes, book transfers in order of tensor, begin tasks.

    Returns (makespan, tasks done); ``start`` and ``finish`` are filled.
    """
    tasks, devices = seconds.shape
    spaces = len(latency)
    now = end_of_all = begin
    for task in range(tasks):
        pending[task] = in_degree[task]
    arrival[: crossing_offsets[-1]] = -1.0
    channel_free[:] = 0.0
    for place in range(devices):
        head[place] = queue_offsets[place]
        last_start[place] = begin
        free_slots[place] = slot_offsets[place + 1] - slot_offsets[place]
        touched[place] = True
    # What an earlier plan occupies ends like a task, of number -1 - place.
    waiting = 0
    for place in range(devices):
        for slot in range(slot_offsets[place], slot_offsets[place + 1]):
            if available[slot] > begin:
                free_slots[place] -= 1
                n = waiting
                waiting += 1
                while n and heap_time[(n - 1) >> 1] > available[slot]:
                    heap_time[n] = heap_time[(n - 1) >> 1]
                    heap_task[n] = heap_task[(n - 1) >> 1]
                    n = (n - 1) >> 1
                heap_time[n] = available[slot]
                heap_task[n] = -1 - place
    asked = 0
    if push:
        for tensor in inputs:
            for crossing in range(crossing_offsets[tensor], crossing_offsets[tensor + 1]):
                arrival[crossing] = 0.0
                requests[asked] = crossing
                asked += 1
    else:
        for task in range(tasks):
            if not pending[task]:
                for r in range(read_offsets[task], read_offsets[task + 1]):
                    crossing = crossing_of_read[r]
                    if crossing >= 0 and arrival[crossing] < 0.0:
                        arrival[crossing] = 0.0
                        requests[asked] = crossing
                        asked += 1
    done = dues = laters = 0
    while True:
        # Finishes of this round.
        for n in range(dues):
            task = due[n]
            if task < 0:
                free_slots[-1 - task] += 1
                touched[-1 - task] = True
                continue
            place = device[task]
            free_slots[place] += 1
            touched[place] = True
            end_of_all = max(end_of_all, now)
            for w in range(write_offsets[task], write_offsets[task + 1]):
                tensor = writes[w]
                for k in range(consumer_offsets[tensor], consumer_offsets[tensor + 1]):
                    reader = consumers[k]
                    pending[reader] -= 1
                    if pending[reader]:
                        continue
                    touched[device[reader]] = True
                    if not push:
                        for r in range(read_offsets[reader], read_offsets[reader + 1]):
                            crossing = crossing_of_read[r]
                            if crossing >= 0 and arrival[crossing] < 0.0:
                                arrival[crossing] = 0.0
                                requests[asked] = crossing
                                asked += 1
                first, last = crossing_offsets[tensor], crossing_offsets[tensor + 1]
                if not push:
                    first = max(first, delivery[tensor])
                    last = delivery[tensor] + 1
                for crossing in range(first, last):
                    if arrival[crossing] < 0.0:
                        arrival[crossing] = 0.0
                        requests[asked] = crossing
                        asked += 1
        # Transfers that this round asked for.
        if asked > 1 and fifo:
            if asked > 16:
                requests[:asked].sort()
            else:
                for n in range(1, asked):
                    crossing = requests[n]
                    m = n
                    while m and requests[m - 1] > crossing:
                        requests[m] = requests[m - 1]
                        m -= 1
                    requests[m] = crossing
        for n in range(asked):
            crossing = requests[n]
            tensor = crossing_tensor[crossing]
            space = crossing_space[crossing]
            home = space_of[device[producer[tensor]]] if producer[tensor] >= 0 else origin
            took = latency[home, space] + size[tensor] / bandwidth[home, space]
            end = now + took
            if fifo:
                route = home * spaces + space
                moment = now
                for k in range(route_offsets[route], route_offsets[route + 1]):
                    moment = max(moment, channel_free[routes[k]])
                end = moment + took
                for k in range(route_offsets[route], route_offsets[route + 1]):
                    channel_free[routes[k]] = end
            arrival[crossing] = end
            if crossing == delivery[tensor]:
                end_of_all = max(end_of_all, end)
        asked = 0
        # Starts.
        for place in range(devices):
            if not touched[place]:
                continue
            touched[place] = False
            while free_slots[place] and head[place] < queue_offsets[place + 1]:
                task = queue[head[place]]
                if pending[task]:
                    break
                moment = max(now, last_start[place])
                for r in range(read_offsets[task], read_offsets[task + 1]):
                    crossing = crossing_of_read[r]
                    if crossing >= 0:
                        moment = max(moment, arrival[crossing])
                end = moment + seconds[task, place]
                start[task] = last_start[place] = moment
                finish[task] = end
                head[place] += 1
                free_slots[place] -= 1
                done += 1
                if end == now:
                    later[laters] = task
                    laters += 1
                else:  # into the heap
                    n = waiting
                    waiting += 1
                    while n and heap_time[(n - 1) >> 1] > end:
                        heap_time[n] = heap_time[(n - 1) >> 1]
                        heap_task[n] = heap_task[(n - 1) >> 1]
                        n = (n - 1) >> 1
                    heap_time[n] = end
                    heap_task[n] = task
        # The next round of this instant, or the next instant.
        dues = 0
        while not dues:
            if laters:
                for n in range(laters):
                    due[n] = later[n]
                dues, laters = laters, 0
                break
            if not waiting:
                return end_of_all, done
            now = heap_time[0]
            while waiting and heap_time[0] == now:
                task = heap_task[0]
                # What starts and finishes at an instant finishes in its second round.
                if task >= 0 and start[task] == now:
                    later[laters] = task
                    laters += 1
                else:
                    due[dues] = task
                    dues += 1
                waiting -= 1
                time, last_task = heap_time[waiting], heap_task[waiting]
                n = 0
                child = 1
                while child < waiting:
                    if child + 1 < waiting and heap_time[child + 1] < heap_time[child]:
                        child += 1
                    if heap_time[child] >= time:
                        break
                    heap_time[n] = heap_time[child]
                    heap_task[n] = heap_task[child]
                    n = child
                    child = 2 * n + 1
                heap_time[n] = time
                heap_task[n] = last_task
