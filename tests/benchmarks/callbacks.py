"""A bare SimPy loop: one Timeout with one callback for every task and every transfer.

The fastest plain use of SimPy that still has an event for everything; engine speeds are ratios to it.
"""

from __future__ import annotations

import simpy


def run_callbacks(
    seconds: list[float], after: list[list[tuple[int, float]]], needs: list[int]
) -> tuple[float, int]:
    """Execute a plan; returns (makespan in seconds, number of events).

    Args:
        seconds: run time of every task.
        after: for each task what follows it, as (task, transfer seconds; 0 for none).
        needs: how many things each task waits for; used up.
    """
    environment = simpy.Environment()
    timeout = environment.timeout
    events = 0

    def arrive(event: simpy.Event) -> None:
        nonlocal events
        events += 1
        task = event.value
        needs[task] -= 1
        if not needs[task]:
            timeout(seconds[task], task).callbacks.append(finish)

    def finish(event: simpy.Event) -> None:
        nonlocal events
        events += 1
        for task, delay in after[event.value]:
            if delay:
                timeout(delay, task).callbacks.append(arrive)
                continue
            needs[task] -= 1
            if not needs[task]:
                timeout(seconds[task], task).callbacks.append(finish)

    for task, count in enumerate(needs):
        if not count:
            timeout(seconds[task], task).callbacks.append(finish)
    environment.run()
    return float(environment.now), events
