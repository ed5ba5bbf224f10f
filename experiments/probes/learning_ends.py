"""What submitting ahead leaves of the runner's overhead, and how late the host learns of ends.

A device that operators are submitted to ahead (``completion_latency`` in its cluster) goes from one to the next by
itself where the next one is there; where it is not, since it was placed only when the host knew of the end before it,
learning of that end, deciding and handing over lie between. Both are gaps of the same runs, told apart by when the
later operator was placed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.model.cluster import Cluster
from simulator.model.trace import Trace


def submitted_ahead(cluster: Cluster) -> list[int]:
    """The devices that are."""
    return [d for d, device in enumerate(cluster.devices) if device.completion_latency > 0]


def learnt_gaps(
    trace: Trace, before: np.ndarray, after: np.ndarray, cluster: Cluster
) -> np.ndarray:
    """Seconds from the end of an execution on such a device to the start of the next that was placed behind that end.

    Args:
        trace: measured.
        before: int[gaps] executions.
        after: int[gaps] the next of each on its slot, which waits for no other.
        cluster: that they ran on.
    """
    rows = trace.executions
    here = np.isin(rows["device"][before], submitted_ahead(cluster))
    here &= rows["placed"][after] >= rows["finish"][before]
    found: np.ndarray = (rows["start"][after] - rows["finish"][before])[here]
    return found


def ahead_gaps(trace: Trace, cluster: Cluster, learning: float) -> np.ndarray:
    """Seconds between executions of which the later was surely there: placed before the run, and submitted before the
    earlier one's end, since the host had learnt of the one that left the window for it ``learning`` seconds behind
    its end.

    Args:
        trace: of jobs that a plan places ahead, on one such device.
        cluster: that they ran on.
        learning: seconds.
    """
    return np.array(list(_ahead(trace, cluster, learning)))


def _ahead(trace: Trace, cluster: Cluster, learning: float) -> Iterator[float]:
    rows = trace.executions
    for device in submitted_ahead(cluster):
        depth = cluster.devices[device].issue_depth
        mine = np.flatnonzero(rows["device"] == device)
        mine = mine[np.argsort(rows["start"][mine])]
        starts, ends = rows["start"][mine].tolist(), rows["finish"][mine].tolist()
        for i in range(1, len(mine)):
            if i < depth or (depth > 1 and ends[i - depth] + learning <= ends[i - 1]):
                yield starts[i] - ends[i - 1]
