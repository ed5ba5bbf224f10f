"""Operators whose code has left a core's caches since it ran last.

An operator of some microseconds behind a convolution of milliseconds finds neither the interpreter's and the
dispatcher's code nor its own kernel's in the core's own caches; a profile's times are of code that was just
used. On a third-generation EPYC with busy neighbours a batch normalisation of 100 KiB took 40 to 46 us behind
operators of .4 ms and 77 to 97 us behind operators of 2 to 5 ms, and a rectifier right behind it still 20 us more
than in a profile if none had run in that time.
"""

from __future__ import annotations

import numpy as np

from simulator.graph import DataflowGraph

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


def fitted(
    said: np.ndarray, took: np.ndarray, cold: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many times as long operators take, and how many seconds more where their code is gone.

    Nonnegative least squares; an operator's error weighs as if its variance were in proportion to its seconds,
    so that few long ones do not outvote many short ones.

    Args:
        said: float64[operators] seconds.
        took: float64[operators] seconds.
        cold: float64[operators, 2] of :func:`coldness`.
        groups: int[operators]; the factors of these differ.

    Returns:
        float64[groups], the largest number among them and one, and float64[2] seconds.
    """
    from scipy.optimize import nnls

    count = int(groups.max()) + 1
    columns = np.where(groups[:, np.newaxis] == np.arange(count), said[:, np.newaxis], 0.0)
    weights = 1.0 / np.sqrt(said)
    # In microseconds: all columns are of one size.
    design = np.concatenate([columns * 1e6, cold], axis=1) * weights[:, np.newaxis]
    solution, _ = nnls(design, took * 1e6 * weights)
    return solution[:count], solution[count:] * 1e-6
