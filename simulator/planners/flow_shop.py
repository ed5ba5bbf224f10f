"""Permutation flow shops: every job passes the same machines in the same order, and none overtakes.

Times are float[jobs, stages]; an order lists the jobs. S. M. Johnson, *Optimal two- and three-stage production
schedules with setup times included*, 1954; M. Nawaz, E. E. Enscore and I. Ham, *A heuristic algorithm for the
m-machine, n-job flow-shop sequencing problem*, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InvalidInput


def makespan(times: ArrayLike, order: Iterable[int] | None = None) -> float:
    """When the last stage of the last job ends; jobs as they stand unless an order is given."""
    rows = np.asarray(times, dtype=np.float64).tolist()
    return _makespan(rows, range(len(rows)) if order is None else order)


def _makespan(rows: Sequence[Sequence[float]], order: Iterable[int]) -> float:
    free = [0.0] * len(rows[0])
    for job in order:
        ready = 0.0
        for stage, seconds in enumerate(rows[job]):
            ready = max(ready, free[stage]) + seconds
            free[stage] = ready
    return free[-1]


def johnson(times: ArrayLike) -> list[int]:
    """Johnson's order of jobs of two stages, which is optimal, or of three.

    Those that are shorter in the first stage come first, by ascending first stage; the others follow by descending
    second one; equal ones by number. Three stages ``f, g, h`` are ordered as two of ``f + g, g + h``:
    optimal where the first or the third never falls below the second, a heuristic elsewhere.

    Raises:
        InvalidInput: neither two stages nor three.
    """
    table = np.asarray(times, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] not in (2, 3):
        raise InvalidInput(
            f"Johnson's rule orders jobs of two stages or three, got times of shape {table.shape}"
        )
    first, last = table[:, :-1].sum(1).tolist(), table[:, 1:].sum(1).tolist()
    jobs = range(len(first))
    early = sorted((j for j in jobs if first[j] < last[j]), key=lambda j: first[j])
    return early + sorted((j for j in jobs if first[j] >= last[j]), key=lambda j: -last[j])


def neh(times: ArrayLike) -> list[int]:
    """The order of Nawaz, Enscore and Ham: the longest jobs first, each inserted where the makespan is least."""
    rows = np.asarray(times, dtype=np.float64).tolist()
    order: list[int] = []
    for job in sorted(range(len(rows)), key=lambda j: -math.fsum(rows[j])):
        places = ([*order[:at], job, *order[at:]] for at in range(len(order) + 1))
        order = min(places, key=lambda tried: _makespan(rows, tried))
    return order


__all__ = ["johnson", "makespan", "neh"]
