"""How much longer the runner's overhead for an operator is behind a long one.

What the runner does between two kernels (the interpreter, the scheduler, the dispatcher) lies in a core's caches
behind a kernel of microseconds and has left them behind one of milliseconds. On an Intel Xeon the gap grows from 10
us behind kernels of 20 us to 50 us behind those of 5 ms, on a third-generation EPYC from 9 to 60 us, by the same
curve in all models and in proportion under all schedulers. One number for all operators, measured on a model of
short ones, is too little for recurrent cells and too much for many small operators.
"""

from __future__ import annotations

import numpy as np

from simulator.model.launch_cold_start import CoolingCurve

AFTER = tuple(2e-5 * 2.0**k for k in range(10))
"""Seconds between launches, the points of the curve: 20 us to 10 ms."""
LEAST = 0.05
"""Of the mean, what a launch takes at least."""


def cooling_curve(seconds: np.ndarray, gaps: np.ndarray, usual: np.ndarray) -> CoolingCurve | None:
    """The curve through the gaps of runs: least squares with factors that do not descend.

    Of each operator the medians over the runs count: a gap in which the system did something else is no
    launch.

    Args:
        seconds: float64[runs, operators] that each operator's predecessor on its slot took.
        gaps: float64[runs, operators] seconds from that one's end to its start.
        usual: float64[any] seconds of operators whose mean launch is the one that the factors are of.

    Returns:
        None where there are no gaps.
    """
    from scipy.optimize import nnls

    if not gaps.size:
        return None
    took, gap = np.median(seconds, axis=0), np.median(gaps, axis=0)
    if not gap.max() > 0:
        return None
    # Of each point the increase over the one before it, in microseconds: no sum of them descends.
    rises = np.tril(np.ones((len(AFTER), len(AFTER))))
    solution, _ = nnls(_weights(took) @ rises, np.maximum(gap, 0.0) * 1e6)
    curve = np.cumsum(solution)  # by the product with ones rounding may let it descend
    mean = float((_weights(usual) @ curve).mean())
    if not mean > 0:
        return None
    return CoolingCurve(AFTER, tuple(np.maximum(curve / mean, LEAST).tolist()))


def _weights(seconds: np.ndarray) -> np.ndarray:
    """float64[operators, points]: of each point in the value that the curve has there."""
    at = np.log(np.clip(seconds, AFTER[0], AFTER[-1]))
    return np.stack([np.interp(at, np.log(AFTER), row) for row in np.eye(len(AFTER))], axis=1)
