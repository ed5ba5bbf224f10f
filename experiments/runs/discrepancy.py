"""What a simulated makespan is off by beyond its operators' times: queues, hand-overs, races, caches.

A simulator's *model discrepancy* (Kennedy and O'Hagan, "Bayesian calibration of computer models", 2001). Draws of the
predictors' errors are the same for all schedulers of a comparison, so what two schedulers differ by is nearly the same
in each, and P(win) would be 1 for a lead of half a percent. On hardware such leads are a coin's (docs/validation.md,
"What P(win) is worth"). So each schedule's draws are multiplied by factors of its own.
"""

from __future__ import annotations

import zlib
from statistics import NormalDist

import numpy as np

from simulator.analysis.streamed_figures import StreamedFigures
from simulator.model.trace import Trace


def discrepancies(sigma: float, run: Trace | StreamedFigures, draws: int, seed: int) -> np.ndarray:
    """float64[draws] factors of a schedule's makespans under draws: log-normal, their geometric mean exactly 1.

    Args:
        sigma: standard deviation of their log; 0 for none.
        run: the run itself. Two schedulers that put the same tasks on the same devices and take equally long, to
            nine digits, did the same and are off alike.
        draws: how many.
        seed: the same seed, the same factors.
    """
    if not sigma:
        return np.ones(draws)
    # Quantiles in random order instead of random numbers: no comparison is decided by what they come to.
    normal = np.array([NormalDist().inv_cdf((i + 0.5) / draws) for i in range(draws)])
    schedule = zlib.crc32(f"{run.makespan:.8e}".encode())
    if isinstance(run, Trace):
        schedule = zlib.crc32(np.ascontiguousarray(run.tasks["device"]).tobytes(), schedule)
    return np.exp(sigma * np.random.default_rng([seed, schedule]).permutation(normal))
