"""Where identical jobs that share a device, a link and a server are cut: joint partition and scheduling.

A cut leaves a job ``times[cut]``: seconds on the device, of the upload and, with three stages, on the server. Jobs
then are a flow shop (:mod:`simulator.planners.flow_shop`), which Johnson's rule orders. Y. Duan and J. Wu, *Joint
optimization of DNN partition and scheduling for mobile cloud computing*, ICPP 2021; its ratio rule is derived
anew here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from simulator.planners.flow_shop import johnson, makespan

Cuts = tuple[int, ...]
"""The cut of each job, ascending."""


def pipelined(times: ArrayLike, cuts: Sequence[int]) -> float:
    """Makespan of jobs with these cuts in Johnson's order, seconds."""
    rows = np.asarray(times, dtype=np.float64)[list(cuts)]
    return makespan(rows, johnson(rows))


def one_cut(times: ArrayLike, jobs: int) -> Cuts:
    """The best cut that is the same for all jobs."""
    return _best(times, ((cut,) * jobs for cut in range(len(np.asarray(times)))))


def two_cuts(times: ArrayLike, jobs: int) -> Cuts:
    """The best mix of at most two cuts."""
    pairs = itertools.combinations(range(len(np.asarray(times))), 2)
    mixes = ((a,) * (jobs - y) + (b,) * y for a, b in pairs for y in range(jobs + 1))
    return _best(times, itertools.chain([one_cut(times, jobs)], mixes))


def ratio_rule(times: ArrayLike, jobs: int) -> Cuts:
    """Two adjacent cuts between which device and link balance, mixed so that both are busy equally long.

    With ``k`` the first cut whose device time ``f`` reaches its upload ``g``, jobs at ``k - 1`` and at ``k`` are as
    ``f(k) - g(k)`` to ``g(k - 1) - f(k - 1)``; both roundings are tried. Times of further stages count in the
    makespans alone.

    Args:
        times: float[cuts, stages]; device times ascend and uploads descend from cut to cut.
        jobs: how many.
    """
    rows = np.asarray(times, dtype=np.float64)
    first, last = 0, len(rows) - 1
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if rows[middle, 0] >= rows[middle, 1] else (middle + 1, last)
    over = rows[first, 0] - rows[first, 1]
    if first == 0 or over <= 0:
        return (first,) * jobs
    under = rows[first - 1, 1] - rows[first - 1, 0]
    share = jobs * over / (over + under)
    return _best(
        rows,
        (
            (first - 1,) * x + (first,) * (jobs - x)
            for x in sorted({math.floor(share), math.ceil(share)})
        ),
    )


def _best(times: ArrayLike, choices: Iterable[Cuts]) -> Cuts:
    rows = np.asarray(times, dtype=np.float64)
    return min(choices, key=lambda cuts: pipelined(rows, cuts))


__all__ = ["Cuts", "one_cut", "pipelined", "ratio_rule", "two_cuts"]
