"""Bare heap loops over a fixed plan, in Python and compiled: an event for every task and transfer.

They show what the bookkeeping of a simulator costs beyond the events themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np


def run_heap(
    seconds: list[float], after: list[list[tuple[int, float]]], needs: list[int]
) -> tuple[float, int]:
    """Execute a plan with ``heapq``; arguments and result as :func:`run_callbacks`."""
    push, pop = heapq.heappush, heapq.heappop
    # (time, number of the event, task, whether it finishes)
    heap: list[tuple[float, int, int, bool]] = []
    number = events = 0
    now = 0.0
    for task, count in enumerate(needs):
        if not count:
            push(heap, (seconds[task], number, task, True))
            number += 1
    while heap:
        now, _, task, finishes = pop(heap)
        events += 1
        arrived = after[task] if finishes else ((task, 0.0),)
        for follower, delay in arrived:
            if delay:
                push(heap, (now + delay, number, follower, False))
                number += 1
                continue
            needs[follower] -= 1
            if not needs[follower]:
                push(heap, (now + seconds[follower], number, follower, True))
                number += 1
    return now, events


def compile_heap() -> Callable[..., Any]:
    """The same loop compiled by numba: ``run(seconds, offsets, to, delay, needs)``."""
    from numba import njit

    @njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]
    def run(seconds, offsets, to, delay, needs):  # type: ignore[no-untyped-def]
        heap = [(0.0, 0, np.int32(0), True)]
        heap.clear()
        number = events = 0
        now = 0.0
        for task in range(len(needs)):
            if needs[task] == 0:
                heapq.heappush(heap, (seconds[task], number, np.int32(task), True))
                number += 1
        while len(heap):
            now, _, task, finishes = heapq.heappop(heap)
            events += 1
            if finishes:
                for k in range(offsets[task], offsets[task + 1]):
                    follower = to[k]
                    if delay[k] > 0.0:
                        heapq.heappush(heap, (now + delay[k], number, follower, False))
                        number += 1
                        continue
                    needs[follower] -= 1
                    if needs[follower] == 0:
                        heapq.heappush(heap, (now + seconds[follower], number, follower, True))
                        number += 1
            else:
                needs[task] -= 1
                if needs[task] == 0:
                    heapq.heappush(heap, (now + seconds[task], number, task, True))
                    number += 1
        return now, events

    return run
