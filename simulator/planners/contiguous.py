"""Contiguous partition: consecutive units, one part after the other, each for a device of its own.

With several tasks on their way through the parts, the slowest part or crossing decides how fast they follow each
other and the sum how long one takes: ``jobs`` tasks take ``sum + (jobs - 1) * slowest``.

One dynamic program serves all partitions here. A *cut* says which units lie before it: of a chain the first so many,
of a graph a set that has with a unit all that it depends on (a down-set), so that a part is the difference of two cuts. A
*state* says which devices have got a part; a :class:`Step` gives one more part to one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


class Step(NamedTuple):
    """One more part.

    Attributes:
        source, target: states before and after; 0 is where no device has a part.
        seconds: float[cuts, cuts], of a part from one cut to another; ``inf`` where there can be none.
        crossing: float[cuts], seconds of what crosses to a part that begins at a cut; None: nothing.
    """

    source: int
    target: int
    seconds: np.ndarray
    crossing: np.ndarray | None = None


class Piece(NamedTuple):
    """A part that was chosen: the number of its step, and the cuts where it begins and ends."""

    step: int
    first: int
    end: int


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
    moved = np.hstack([moved, np.full((parts - 1, 1), np.inf)])
    ends = np.vstack([np.zeros(parts), np.cumsum(table, axis=0)])
    # stage[part][first, end]: seconds of a part of these units.
    stage = ends.T[:, None, :] - ends.T[:, :, None]
    stage[:, np.tri(units + 1, dtype=bool)] = np.inf
    steps = [Step(p, p + 1, stage[p], moved[p - 1] if p else None) for p in range(parts)]
    found: list[Parts] = []
    bound = np.inf
    while (best := _best(steps, [parts], bound, np.add)) is not None:
        seconds, pieces = best
        bound = slowest(steps, pieces)
        if found and seconds <= found[-1].seconds:
            found.pop()
        found.append(Parts(tuple(piece.first for piece in pieces), seconds, bound))
    return found


def least_slowest(steps: Sequence[Step], last: Collection[int]) -> list[Piece] | None:
    """The partition whose slowest part or crossing is fastest; of several that of the least sum.

    Args:
        steps: ascending by source; every source is 0 or the target of an earlier step.
        last: states with which a partition is complete.

    Returns:
        Its parts in order, from the first cut to the last; None where there is none.
    """
    best = _best(steps, last, np.inf, np.maximum)
    if best is None:
        return None
    shortest = _best(steps, last, float(np.nextafter(best[0], np.inf)), np.add)
    assert shortest is not None  # the one that was found is among them
    return shortest[1]


def slowest(steps: Sequence[Step], pieces: Sequence[Piece]) -> float:
    """Seconds of the slowest part or crossing of a partition."""
    times = [float(steps[p.step].seconds[p.first, p.end]) for p in pieces]
    entered = [(steps[p.step].crossing, p.first) for p in pieces]
    times += [float(crossing[first]) for crossing, first in entered if crossing is not None]
    return max(times)


def _best(
    steps: Sequence[Step], last: Collection[int], bound: float, combine: np.ufunc
) -> tuple[float, list[Piece]] | None:
    """The partition of least sum, or least maximum, whose parts and crossings are all faster than a bound."""
    cuts = len(steps[0].seconds)
    every = np.arange(cuts)
    begin = np.full(cuts, np.inf)
    begin[0] = 0.0
    least = {0: begin}
    # Of each state and cut the step and the cut before.
    behind: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for number, (source, target, seconds, crossing) in enumerate(steps):
        entered = least.get(source)
        if entered is None:
            continue
        if crossing is not None:
            entered = combine(entered, np.where(crossing < bound, crossing, np.inf))
        total = combine(entered[:, None], np.where(seconds < bound, seconds, np.inf))
        first = total.argmin(axis=0)
        reached = total[first, every]
        if target not in least:
            least[target] = np.full(cuts, np.inf)
            behind[target] = np.zeros(cuts, dtype=np.int64), np.zeros(cuts, dtype=np.int64)
        better = reached < least[target]
        least[target][better] = reached[better]
        behind[target][0][better] = number
        behind[target][1][better] = first[better]
    state = min(last, key=lambda state: least[state][-1] if state in least else np.inf)
    if state not in least or not np.isfinite(least[state][-1]):
        return None
    found, cut = float(least[state][-1]), cuts - 1
    pieces: list[Piece] = []
    while state:
        number, first_cut = (int(column[cut]) for column in behind[state])
        pieces.insert(0, Piece(number, first_cut, cut))
        state, cut = steps[number].source, first_cut
    return found, pieces


__all__ = ["Parts", "Piece", "Step", "front", "least_slowest", "slowest"]
