"""What a convolution's traffic costs on a machine whose caches and memory serve others, too.

A convolution of large images computes from the core's own caches and hardly notices; one of few operations for each
byte, or one that reads its weights from memory, takes up to twice as long. On an EPYC with busy neighbours those
that moved, at the device's peak rates, for less than 3% of their time took 1.13 times what the profile said, those
that moved for 3 to 12% of it 1.18 to 1.25, those that moved for 20% and more 1.9 to 2.1; on four other hosts the
order was the same. So what the convolutions of a panel take longer is not what those of other models do, or of larger
batches, whose weights are a smaller part of what they work on.
"""

from __future__ import annotations

import numpy as np

from cost_models.features import known_work
from cost_models.profile import Profile, row_keys
from simulator.model.graph import DataflowGraph


def traffic_weight(graph: DataflowGraph, profile: Profile, seconds: np.ndarray) -> np.ndarray:
    """float64[operators] seconds: of each operator of a graph the geometric mean of its time and of what moving its
    inputs, weights and outputs once takes at the device's peak rate. In proportion to the latter alone, large
    convolutions were found too slow and depthwise ones of large images too slow as well.

    Args:
        graph: any.
        profile: of the device.
        seconds: float64[operators] that it says.
    """
    moved = np.array([known_work(*key)[1] for key in row_keys(graph.operators)])
    return np.sqrt(moved / profile.roofline.bandwidth * seconds)
