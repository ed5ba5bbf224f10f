"""Loops over fixed plans, compiled by numba. Use :class:`simulator.engine.evaluator.Evaluator`.

Importing this module imports numba; the first call of a function compiles it, or reads what an earlier
process compiled. :mod:`simulator.engine.evaluator_arrays` says what the arrays are. Nothing here allocates: a
planner calls these in its innermost loop. What calls each other stands in one file, by whose age numba tells
whether what it compiled is still true.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NO_DEVICE = 1
UNABLE = 2
NO_TASK = 3
REPEATED = 4
"""What is wrong with a plan; 0 if nothing is."""


@njit(cache=True, error_model="numpy")
def enqueue(device, order, static, queues):  # type: ignore[no-untyped-def]
    """Check a plan, and put each job's tasks into its order; returns (error, task or entry)."""
    tasks, devices = static.seconds.shape
    position, room = queues.position, queues.offsets
    room[:] = 0
    for task in range(tasks):
        place = device[task]
        if place < 0 or place >= devices:
            return NO_DEVICE, task
        if static.seconds[task, place] == np.inf:
            return UNABLE, task
        room[place + 1] += 1
        position[task] = -1
    for place in range(devices):
        room[place + 1] += room[place]
        queues.head[place] = queues.tail[place] = room[place]
    jobs = len(static.arrivals)
    queues.job_tail[:] = static.task_offsets[:jobs]
    for entry in range(tasks):
        task = order[entry]
        if task < 0 or task >= tasks:
            return NO_TASK, entry
        if position[task] >= 0:
            return REPEATED, task
        position[task] = entry
        if jobs == 1:
            queues.by_job[entry] = task
        else:
            job = static.job[task]
            queues.by_job[queues.job_tail[job]] = task
            queues.job_tail[job] += 1
    return 0, 0


@njit(cache=True, error_model="numpy")
def admit(job, device, static, queues):  # type: ignore[no-untyped-def]
    """Merge a job's tasks into its devices' queues, each where it stands in the plan."""
    queue, by_job, position = queues.queue, queues.by_job, queues.position
    head, write, old = queues.head, queues.write, queues.old
    first, last = static.task_offsets[job], static.task_offsets[job + 1]
    write[:] = 0
    for k in range(first, last):
        write[device[by_job[k]]] += 1
    for place in range(len(head)):
        old[place] = queues.tail[place] - 1
        queues.tail[place] += write[place]
        write[place] = queues.tail[place] - 1
    for k in range(last - 1, first - 1, -1):
        task = by_job[k]
        place = device[task]
        while old[place] >= head[place] and position[queue[old[place]]] > position[task]:
            queue[write[place]] = queue[old[place]]
            write[place] -= 1
            old[place] -= 1
        queue[write[place]] = task
        write[place] -= 1


@njit(cache=True, error_model="numpy")
def run_uncontended(device, static, queues, room):  # type: ignore[no-untyped-def]
    """One job, push, no contention: no event is needed, each task follows from those before it.

    Returns (makespan, tasks done); ``start`` and ``finish`` are filled.
    """
    tasks, devices = static.seconds.shape
    begin = end_of_all = static.arrivals[0]
    space_of, slot_offsets, size = static.space_of, static.slot_offsets, static.size
    latency, bandwidth, goal = static.latency, static.bandwidth, static.goal
    consumer_offsets, consumers = static.consumer_offsets, static.consumers
    write_offsets, writes = static.write_offsets, static.writes
    queue, head, tail, stack = queues.queue, queues.head, queues.tail, room.stack
    pending, data, last_start, slot_free = room.pending, room.data, room.last_start, room.slot_free
    admit(0, device, static, queues)
    for task in range(tasks):
        pending[task] = static.in_degree[task]
        data[task] = begin
    slot_free[:] = static.available
    for tensor in static.inputs:
        home = static.origin[tensor]
        if home >= 0:
            for k in range(consumer_offsets[tensor], consumer_offsets[tensor + 1]):
                reader = consumers[k]
                space = space_of[device[reader]]
                if space != home:
                    took = latency[home, space] + size[tensor] / bandwidth[home, space]
                    data[reader] = max(data[reader], begin + took)
    for place in range(devices):
        last_start[place] = begin
        stack[place] = place
    depth = devices
    done = 0
    while depth:
        depth -= 1
        place = stack[depth]
        home = space_of[place]
        while head[place] < tail[place]:
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
            end = moment + static.seconds[task, place]
            room.start[task] = last_start[place] = moment
            room.finish[task] = slot_free[slot] = end
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
                space = goal[tensor]
                if space >= 0 and space != home:
                    took = latency[home, space] + size[tensor] / bandwidth[home, space]
                    end_of_all = max(end_of_all, end + took)
                for k in range(static.state_offsets[tensor], static.state_offsets[tensor + 1]):
                    space = space_of[device[static.state_readers[k]]]
                    if space != home:
                        took = latency[home, space] + size[tensor] / bandwidth[home, space]
                        end_of_all = max(end_of_all, end + took)
    return end_of_all, done


@njit(cache=True, error_model="numpy")
def find_crossings(device, static, crossings):  # type: ignore[no-untyped-def]
    """Which tensors cross to which spaces under a placement; returns how many crossings there are."""
    space_of, consumers, read_of = static.space_of, static.consumers, static.read_of
    at, of_read, crossing_space = crossings.at, crossings.of_read, crossings.space
    count = 0
    at[:] = -1
    for tensor in range(len(static.producer)):
        crossings.offsets[tensor] = count
        writer, goal = static.producer[tensor], static.goal[tensor]
        home = space_of[device[writer]] if writer >= 0 else static.origin[tensor]
        crossings.home[tensor] = home
        first, last = static.consumer_offsets[tensor], static.consumer_offsets[tensor + 1]
        if home < 0:
            for k in range(first, last):
                of_read[read_of[k]] = -1
            continue
        begin = count
        for k in range(first, last):
            space = space_of[device[consumers[k]]]
            if space != home and at[space] < begin:
                at[space] = count
                crossing_space[count] = space
                count += 1
        wanted = goal >= 0 and goal != home
        if wanted and at[goal] < begin:
            at[goal] = count
            crossing_space[count] = goal
            count += 1
        state, state_end = static.state_offsets[tensor], static.state_offsets[tensor + 1]
        for k in range(state, state_end):
            space = space_of[device[static.state_readers[k]]]
            if space != home and at[space] < begin:
                at[space] = count
                crossing_space[count] = space
                count += 1
        if count > begin + 1:
            crossing_space[begin:count].sort()
            for crossing in range(begin, count):
                at[crossing_space[crossing]] = crossing
        for crossing in range(begin, count):
            crossings.tensor[crossing] = tensor
            crossings.delivers[crossing] = False
        for k in range(first, last):
            space = space_of[device[consumers[k]]]
            of_read[read_of[k]] = -1 if space == home else at[space]
        if wanted:
            crossings.delivers[at[goal]] = True
        for k in range(state, state_end):
            space = space_of[device[static.state_readers[k]]]
            if space != home:
                crossings.delivers[at[space]] = True
    crossings.offsets[len(static.producer)] = count
    return count


@njit(inline="always", error_model="numpy")
def push_event(heap_time, heap_task, waiting, time, task):  # type: ignore[no-untyped-def]
    """Put an event into a heap of ``waiting`` others."""
    n = waiting
    while n and heap_time[(n - 1) >> 1] > time:
        heap_time[n] = heap_time[(n - 1) >> 1]
        heap_task[n] = heap_task[(n - 1) >> 1]
        n = (n - 1) >> 1
    heap_time[n] = time
    heap_task[n] = task


@njit(inline="always", error_model="numpy")
def pop_event(heap_time, heap_task, waiting):  # type: ignore[no-untyped-def]
    """Take the first event out of a heap, which has ``waiting`` left."""
    time, task = heap_time[waiting], heap_task[waiting]
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
    heap_task[n] = task


@njit(cache=True, error_model="numpy")
def sort_few(values, count):  # type: ignore[no-untyped-def]
    """Sort the first entries of an array, mostly a handful."""
    if count > 16:
        values[:count].sort()
        return
    for n in range(1, count):
        value = values[n]
        m = n
        while m and values[m - 1] > value:
            values[m] = values[m - 1]
            m -= 1
        values[m] = value


@njit(inline="always", error_model="numpy")
def ask_for_reads(first, last, of_read, end_of, requests, asked):  # type: ignore[no-untyped-def]
    """Ask for what these reads need, unless that was done; returns how much this instant has asked for."""
    for r in range(first, last):
        crossing = of_read[r]
        if crossing >= 0 and end_of[crossing] < 0.0:
            end_of[crossing] = 0.0
            requests[asked] = crossing
            asked += 1
    return asked


@njit(cache=True, error_model="numpy")
def run_events(device, push, fifo, static, queues, crossings, room):  # type: ignore[no-untyped-def]
    """The engine's rounds: apply finishes, admit jobs, book transfers in order of tensor, begin tasks.

    A start that is known ahead, while data is on its way, needs no event of its own where no job may overtake
    and no slot of several must be told apart.

    Returns (makespan, tasks done); ``start`` and ``finish`` are filled.
    """
    # Names of their own: an array that is looked up in its tuple costs a count of references each time.
    arrivals, seconds, slot_offsets = static.arrivals, static.seconds, static.slot_offsets
    write_offsets, writes, read_offsets = static.write_offsets, static.writes, static.read_offsets
    consumer_offsets, consumers = static.consumer_offsets, static.consumers
    latency, bandwidth, size = static.latency, static.bandwidth, static.size
    route_offsets, routes = static.route_offsets, static.routes
    queue, head, tail, pending = queues.queue, queues.head, queues.tail, room.pending
    crossing_offsets, of_read, delivers = crossings.offsets, crossings.of_read, crossings.delivers
    crossing_tensor, crossing_space = crossings.tensor, crossings.space
    home_of, end_of, requests = crossings.home, crossings.end, crossings.requests
    start, finish, last_start, touched = room.start, room.finish, room.last_start, room.touched
    free_slots, channel_free, busy = room.free_slots, room.channel_free, room.busy
    heap_time, heap_task, due, later = room.heap_time, room.heap_task, room.due, room.later
    devices, jobs, spaces = seconds.shape[1], len(arrivals), len(latency)
    tracing = len(room.ended) > 0
    now = end_of_all = arrivals[0]
    pending[:] = static.in_degree
    end_of[: crossing_offsets[-1]] = -1.0
    channel_free[:] = 0.0
    busy[:] = False
    room.alarm[:] = np.inf
    soonest = np.inf  # no device looks again before
    waiting = 0
    for place in range(devices):
        last_start[place] = now
        free_slots[place] = slot_offsets[place + 1] - slot_offsets[place]
        touched[place] = False
    # What an earlier plan occupies ends like a task, of number -1 - slot.
    for slot in range(slot_offsets[devices]):
        if static.available[slot] > now:
            busy[slot] = True
            free_slots[static.device_of[slot]] -= 1
            push_event(heap_time, heap_task, waiting, static.available[slot], -1 - slot)
            waiting += 1
    admitted = asked = sent = begun = done = dues = laters = 0
    while True:
        # Finishes of this round.
        if tracing and dues > 1:
            sort_few(due, dues)
        for n in range(dues):
            task = due[n]
            if task < 0:
                place = static.device_of[-1 - task]
                busy[-1 - task] = False
                free_slots[place] += 1
                touched[place] = True
                continue
            place = device[task]
            if tracing:
                busy[slot_offsets[place] + room.slot[task]] = False
                room.ended[done] = task
            done += 1
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
                        asked = ask_for_reads(
                            read_offsets[reader],
                            read_offsets[reader + 1],
                            of_read,
                            end_of,
                            requests,
                            asked,
                        )
                first, last = crossing_offsets[tensor], crossing_offsets[tensor + 1]
                for crossing in range(first, last):
                    if end_of[crossing] < 0.0 and (push or delivers[crossing]):
                        end_of[crossing] = 0.0
                        requests[asked] = crossing
                        asked += 1
        # Jobs that arrive.
        while admitted < jobs and arrivals[admitted] == now:
            job = admitted
            admitted += 1
            admit(job, device, static, queues)
            touched[:] = True
            if push:
                for n in range(static.input_offsets[job], static.input_offsets[job + 1]):
                    tensor = static.inputs[n]
                    for crossing in range(crossing_offsets[tensor], crossing_offsets[tensor + 1]):
                        end_of[crossing] = 0.0
                        requests[asked] = crossing
                        asked += 1
            else:
                for task in range(static.task_offsets[job], static.task_offsets[job + 1]):
                    if not pending[task]:
                        asked = ask_for_reads(
                            read_offsets[task],
                            read_offsets[task + 1],
                            of_read,
                            end_of,
                            requests,
                            asked,
                        )
        # Transfers that this round asked for.
        if asked > 1 and (fifo or tracing):
            sort_few(requests, asked)
        for n in range(asked):
            crossing = requests[n]
            tensor, space = crossing_tensor[crossing], crossing_space[crossing]
            home = home_of[tensor]
            took = latency[home, space] + size[tensor] / bandwidth[home, space]
            moment = now
            if fifo:
                route = home * spaces + space
                for k in range(route_offsets[route], route_offsets[route + 1]):
                    moment = max(moment, channel_free[routes[k]])
                for k in range(route_offsets[route], route_offsets[route + 1]):
                    channel_free[routes[k]] = moment + took
            end_of[crossing] = moment + took
            if delivers[crossing]:
                end_of_all = max(end_of_all, moment + took)
            if tracing:
                crossings.requested[crossing] = now
                crossings.start[crossing] = moment
                crossings.order[sent] = crossing
                sent += 1
        asked = 0
        # Starts.
        for place in range(devices):
            if not touched[place]:
                continue
            touched[place] = False
            slots = slot_offsets[place + 1] - slot_offsets[place]
            foresees = jobs == 1 and (slots == 1 or not tracing)
            while free_slots[place] and head[place] < tail[place]:
                task = queue[head[place]]
                if pending[task]:
                    break
                moment = max(now, last_start[place])
                for r in range(read_offsets[task], read_offsets[task + 1]):
                    crossing = of_read[r]
                    if crossing >= 0:
                        moment = max(moment, end_of[crossing])
                if moment > now and not foresees:
                    room.alarm[place] = moment
                    soonest = min(soonest, moment)
                    break
                end = moment + seconds[task, place]
                start[task] = last_start[place] = moment
                finish[task] = end
                head[place] += 1
                free_slots[place] -= 1
                begun += 1
                if tracing:
                    slot = slot_offsets[place]
                    while busy[slot]:
                        slot += 1
                    busy[slot] = True
                    room.slot[task] = slot - slot_offsets[place]
                if end == now:
                    later[laters] = task
                    laters += 1
                else:
                    push_event(heap_time, heap_task, waiting, end, task)
                    waiting += 1
        # The next round of this instant, or the next instant.
        dues = 0
        if laters:
            due[:laters] = later[:laters]
            dues, laters = laters, 0
            continue
        now = soonest
        if waiting:
            now = min(now, heap_time[0])
        if admitted < jobs:
            now = min(now, arrivals[admitted])
        if now == np.inf:
            return end_of_all, begun
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
            pop_event(heap_time, heap_task, waiting)
        if soonest <= now:
            soonest = np.inf
            for place in range(devices):
                if room.alarm[place] <= now:
                    room.alarm[place] = np.inf
                    touched[place] = True
                soonest = min(soonest, room.alarm[place])
