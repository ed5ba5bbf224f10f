/* A fixed plan on a binary heap: one event for every task and every transfer, in order of time and then
 * of scheduling. The floor of the comparison: nothing is recorded, nobody decides. */
#include <stdint.h>
#include <stdlib.h>

struct event {
    double time;
    int64_t number;
    int32_t task;
    int32_t finishes; /* or else one of the task's inputs arrives */
};

struct heap {
    struct event *events;
    int64_t length, capacity, pushed;
};

static int precedes(struct event a, struct event b) {
    return a.time < b.time || (a.time == b.time && a.number < b.number);
}

/* Returns 0 if there is no memory. */
static int push(struct heap *heap, double time, int32_t task, int32_t finishes) {
    if (heap->length == heap->capacity) {
        int64_t capacity = heap->capacity ? 2 * heap->capacity : 4096;
        struct event *events = realloc(heap->events, capacity * sizeof *events);
        if (!events) return 0;
        heap->events = events;
        heap->capacity = capacity;
    }
    struct event added = {time, heap->pushed++, task, finishes};
    int64_t hole = heap->length++;
    while (hole && precedes(added, heap->events[(hole - 1) / 2])) {
        heap->events[hole] = heap->events[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    heap->events[hole] = added;
    return 1;
}

static struct event pop(struct heap *heap) {
    struct event first = heap->events[0], moved = heap->events[--heap->length];
    int64_t hole = 0;
    for (;;) {
        int64_t child = 2 * hole + 1;
        if (child >= heap->length) break;
        if (child + 1 < heap->length && precedes(heap->events[child + 1], heap->events[child])) child++;
        if (!precedes(heap->events[child], moved)) break;
        heap->events[hole] = heap->events[child];
        hole = child;
    }
    heap->events[hole] = moved;
    return first;
}

/* offsets[tasks + 1], to[] and delay[]: what follows each task; needs[] is used up. Returns the makespan,
 * or -1 if there is no memory. */
double run_plan(int64_t tasks, const double *seconds, const int64_t *offsets, const int32_t *to,
                const double *delay, int32_t *needs, int64_t *events) {
    struct heap heap = {0};
    double now = 0;
    int enough = 1;
    *events = 0;
    for (int64_t task = 0; task < tasks; task++)
        if (!needs[task]) enough &= push(&heap, seconds[task], (int32_t)task, 1);
    while (heap.length && enough) {
        struct event event = pop(&heap);
        now = event.time;
        ++*events;
        if (!event.finishes) {
            if (!--needs[event.task]) enough &= push(&heap, now + seconds[event.task], event.task, 1);
            continue;
        }
        for (int64_t k = offsets[event.task]; k < offsets[event.task + 1]; k++) {
            if (delay[k] > 0)
                enough &= push(&heap, now + delay[k], to[k], 0);
            else if (!--needs[to[k]])
                enough &= push(&heap, now + seconds[to[k]], to[k], 1);
        }
    }
    free(heap.events);
    return enough ? now : -1;
}
