"""Contiguous partition: consecutive units, one part after the other, each for a device of its own.

With several tasks on their way through the parts, the slowest part or crossing decides how fast they follow each
other and the sum how long one takes: ``jobs`` tasks take ``sum + (jobs - 1) * slowest``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InvalidInput


class Parts(NamedTuple):
    """A contiguous partition.

    Attributes:
        starts: the first unit of each part, ascending from 0.
        seconds: of all parts and of what crosses between them.
        slowest: seconds of the slowest part or crossing.
    """

    starts: tuple[int, ...]
    seconds: float
    slowest: float

    def pipelined(self, jobs: int) -> float:
        """Seconds of so many tasks that follow each other through the parts."""
        return self.seconds + (jobs - 1) * self.slowest


def front(times: ArrayLike, crossing: ArrayLike | None = None) -> list[Parts]:
    """The partitions that are best for some number of tasks: from the least sum to the least slowest part.

    Args:
        times: float[units, parts], seconds of every unit on the device of every part.
        crossing: float[parts - 1, units], seconds that it takes to go on behind a part with each unit, as its
            first; nothing unless given.

    Returns:
        Partitions into exactly so many parts, none empty; of equal sums that of the fastest slowest part.

    Raises:
        InvalidInput: fewer units than parts.
    """
    table = np.asarray(times, dtype=np.float64)
    units, parts = table.shape
    if units < parts:
        raise InvalidInput(f"{units} units cannot be {parts} parts, none of them empty")
    moved = np.zeros((parts - 1, units)) if crossing is None else np.asarray(crossing, np.float64)
    ends = np.vstack([np.zeros(parts), np.cumsum(table, axis=0)])
    # stage[part][first, end]: seconds of a part of these units.
    stage = ends.T[:, None, :] - ends.T[:, :, None]
    stage[:, np.tri(units + 1, dtype=bool)] = np.inf
    found: list[Parts] = []
    bound = np.inf
    while (best := _least_sum(stage, moved, bound)) is not None:
        if found and best.seconds <= found[-1].seconds:
            found.pop()
        found.append(best)
        bound = best.slowest
    return found


def _least_sum(stage: np.ndarray, moved: np.ndarray, bound: float) -> Parts | None:
    """The partition of least sum whose parts and crossings are all faster than a bound."""
    parts, units = len(stage), stage.shape[1] - 1
    allowed = np.where(stage < bound, stage, np.inf)
    least, behind = allowed[0, 0], []
    for part in range(1, parts):
        cost = np.append(moved[part - 1], np.inf)
        entered = least + np.where(cost < bound, cost, np.inf)
        total = entered[:, None] + allowed[part]
        behind.append(total.argmin(axis=0))
        least = total.min(axis=0)
    if not np.isfinite(least[units]):
        return None
    starts = [units]
    for choice in reversed(behind):
        starts.insert(0, int(choice[starts[0]]))
    starts = [0, *starts]
    stages = [float(stage[p, starts[p], starts[p + 1]]) for p in range(parts)]
    stages += [float(moved[p - 1, starts[p]]) for p in range(1, parts)]
    return Parts(tuple(starts[:-1]), float(least[units]), max(stages))


__all__ = ["Parts", "front"]
