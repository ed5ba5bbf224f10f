"""Operators whose code has left a core's caches since it ran last.

An operator of some microseconds behind a convolution of milliseconds finds neither the interpreter's and the
dispatcher's code nor its own kernel's in the core's own caches; a profile's times are of code that was just
used. On a third-generation EPYC with busy neighbours a batch normalisation of 100 KiB took 40 to 46 us behind
operators of .4 ms and 77 to 97 us behind operators of 2 to 5 ms, and a rectifier right behind it still 20 us more
than in a profile if none had run in that time.
"""

from __future__ import annotations

import numpy as np

from simulator.model.graph import DataflowGraph

FORGETTING_S = 3e-3
"""After so many seconds of other operators all but 1 / e of an operator's code is gone. The operators of the
panel of blocks that was there before :mod:`scenarios.models.panel` were fitted best by 2 to 4 ms."""


def coldness(graph: DataflowGraph, seconds: np.ndarray) -> np.ndarray:
    """float64[operators, 2]: which part of what any operator needs, and of what its kind needs, is gone when
    each operator of a graph starts, by what ran on a core since: its predecessor, and what came between it and
    the one of its kind before. The graph is executed in its own order; nothing ran before it.

    Args:
        graph: any.
        seconds: float64[operators] on the core.
    """
    began = np.concatenate([[0.0], np.cumsum(seconds)])
    ended: dict[str, float] = {}
    since = np.full((len(graph), 2), np.inf)
    since[1:, 0] = seconds[:-1]
    for position, operator in enumerate(graph.operators):
        since[position, 1] = began[position] - ended.get(operator.kind, -np.inf)
        ended[operator.kind] = began[position + 1]
    return 1.0 - np.exp(-since / FORGETTING_S)
