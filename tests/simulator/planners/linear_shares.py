"""The closed form of shares for devices whose time is an overhead and a rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def linear_shares(speed: ArrayLike, overhead: ArrayLike) -> tuple[float, np.ndarray]:
    """The earliest end of a unit of work, and the share of every device.

    A device takes ``overhead + share / speed`` where its share is not nothing. All that take part end at
    ``T = (1 + sum overhead * speed) / sum speed``; a device whose overhead alone is that long takes none.

    Args:
        speed: float64[devices], units of work a second, above 0.
        overhead: float64[devices], seconds.

    Returns:
        T in seconds, and float64[devices] with sum 1.
    """
    speeds, overheads = np.asarray(speed, dtype=np.float64), np.asarray(overhead, dtype=np.float64)
    # By overhead: each device that comes earlier than T makes T smaller, and so never one of these useless.
    work, rate, end = 1.0, 0.0, np.inf
    for device in np.argsort(overheads, kind="stable"):
        if overheads[device] >= end:
            break
        work += overheads[device] * speeds[device]
        rate += speeds[device]
        end = work / rate
    return float(end), np.maximum(0.0, speeds * (end - overheads))
