"""Shares of one piece of work among unequal devices that work at the same time.

Devices do not take time in proportion to their share (GPUs saturate): :func:`tuned_units` starts from shares as the
inverse of the times of all of it, makes them whole numbers by the largest remainder, and moves one unit at a time while
the end comes sooner, by times of whole units.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InvalidInput


def whole_units(shares: ArrayLike, units: int) -> np.ndarray:
    """Shares as whole numbers of units, by the largest remainder; ties go to the earlier device.

    Args:
        shares: float64[devices] with sum 1.
        units: how many there are to share.
    """
    exact = np.asarray(shares, dtype=np.float64) * units
    found = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(-np.round(exact - found, 9), kind="stable")
    found[order[: units - int(found.sum())]] += 1
    return found


def tuned_units(
    times: np.ndarray, after: np.ndarray | None = None, fewest: int = 1
) -> tuple[np.ndarray, float]:
    """Whole units for each device, such that the last ends early.

    The end is ``max_p times[u_p, p] + sum_p after[u_p, p]``: parts at once, then what serves each in turn, such as
    fetching its result over one link.

    Args:
        times: float64[units + 1, devices], seconds of so many units on each device, nothing for none; ``inf`` where
            it cannot do them.
        after: the same, of what follows the parts; nothing unless given.
        fewest: devices that must take part where so many are able; 1 allows all of it on one.

    Returns:
        int64[devices] units, and the end in seconds.

    Raises:
        InvalidInput: no device can do any of it.
    """
    units, devices = times.shape[0] - 1, times.shape[1]
    late = np.zeros_like(times) if after is None else after
    every = np.arange(devices)
    whole = times[units] + late[units]
    able = [int(p) for p in np.argsort(whole, kind="stable") if np.isfinite(times[1:, p]).any()]
    if not able:
        raise InvalidInput("No device can do a part of this work")

    def end(vector: np.ndarray) -> tuple[float, int]:
        mine = times[vector, every]
        last = mine.max()
        # Of several that end last each has to give something before the end comes sooner.
        return float(last + late[vector, every].sum()), int((mine == last).sum())

    best: np.ndarray | None = None
    least = np.inf, 0
    rate = 1.0 / np.maximum(np.where(np.isfinite(whole), whole, 1.0), 1e-30)
    for used in range(min(fewest, len(able), units), min(len(able), units) + 1):
        chosen = able[:used]
        shares = np.zeros(devices)
        shares[chosen] = rate[chosen] / rate[chosen].sum()
        vector, now = _climbed(
            whole_units(shares, units), end, times, after is None, used if fewest > 1 else 1
        )
        if now < least or best is None:
            best, least = vector, now
    assert best is not None
    return best, least[0]


def _climbed(
    vector: np.ndarray,
    end: Callable[[np.ndarray], tuple[float, int]],
    times: np.ndarray,
    last_alone: bool,
    fewest: int,
) -> tuple[np.ndarray, tuple[float, int]]:
    """Move one unit at a time to where the end comes soonest, while it comes sooner."""
    devices = range(len(vector))
    now = end(vector)
    while True:
        best, least = None, now
        mine = times[vector, devices]
        for source in devices:
            # Where nothing follows the parts, only who ends last has something to give.
            if not vector[source] or (last_alone and mine[source] < mine.max()):
                continue
            for target in devices:
                if source == target:
                    continue
                moved = vector.copy()
                moved[source] -= 1
                moved[target] += 1
                if (moved > 0).sum() < fewest:
                    continue
                found = end(moved)
                if found < least:
                    best, least = moved, found
        if best is None:
            return vector, now
        vector, now = best, least
