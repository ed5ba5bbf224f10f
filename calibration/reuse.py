"""How much of an operator's weights is still cached when it runs again.

State ``graph`` of a table has weights in memory, state ``warm`` has them in the cache. Which of the two an
execution meets depends on what ran since the last use of the same weights: an unrolled recurrent layer reads
them at every step, several jobs of one model read them in turn.

Operators that each read weights of ``w`` bytes for a vector, so that their way from memory is most of the time,
run one after the other, ``n`` of them, round and round: every one finds its weights at a distance of ``n w``
bytes. Of what it saves when it runs alone and again at once, it still saves a share ``kept``. Shares over all
pairs, made monotone by least squares (pool adjacent violators: R. E. Barlow et al., *Statistical inference under
order restrictions*, 1972), are the curve that :class:`simulator.reuse_curve.ReuseCurve` holds.

Reading other memory once between two uses would not do: caches protect what is used again and again from what
is read once, and kept twice as much at three quarters of their size.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from calibration import environment
from calibration.timing import timer
from simulator.graph import TensorSpec

WEIGHTS = (1 / 16, 1 / 8, 1 / 4)
"""Of the last cache: weights of an operator."""
DISTANCES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1, 5 / 4, 3 / 2, 2)
"""Of the last cache: all weights that run in turn; of the largest nothing is kept."""
ROUNDS = 12
SETTLED_TURNS, SETTLED_CACHES = 3, 4
"""Turns before one is timed, and times the cache that they read at least."""
STATISTIC = 0.25
"""Quantile over the calls. A tenth percentile would be of those whose weights happened to survive."""
GRAIN = 64 << 10
"""Bytes; nearer distances are one."""
MOST_CACHE = 256 << 20
"""Bytes; of larger caches no more is probed."""

Seconds = Mapping[tuple[float, int], Sequence[float]]
"""By bytes of weights and number of operators, a time a call."""


def measure(
    device: str, rounds: int = ROUNDS, seed: int = 0, core: int | None = None
) -> dict[str, Any]:
    """The shares of a device, as :func:`summary` gives them.

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        rounds: times of every pair, shuffled within a round.
        seed: of the order.
        core: where, of a CPU; None: where this thread runs.
    """
    order = random.Random(seed)
    with environment.alone_on(core):
        probe = Probe(device)
        found = [probe.round(order) for _ in range(rounds)]
    return summary(dict(zip(probe.pairs, zip(*found, strict=True), strict=True)))


class Probe:
    """Operators that read weights in turn.

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        weights: shares of the last cache that operators read.

    Attributes:
        pairs: bytes of weights, and how many operators read such in turn.
    """

    def __init__(self, device: str, weights: Sequence[float] = WEIGHTS) -> None:
        import torch

        from calibration.kernels import build, make_operator
        from calibration.random_tensors import random_reads

        self._cache = min(environment.cache(device), MOST_CACHE)
        self._clock = timer(device)
        self.pairs: list[tuple[float, int]] = []
        self._works: list[tuple[Callable[..., Any], list[Any]]] = []
        with torch.inference_mode():
            for share in weights:
                side = int((share * self._cache / 4) ** 0.5)
                operator = make_operator(
                    "aten.linear.default", TensorSpec((1, side)), TensorSpec((side, side))
                )
                call = partial(_run, build(operator, device))
                counts = sorted({1, *(round(part / share) for part in DISTANCES if part >= share)})
                x, weight = random_reads(operator, device)
                sets = [(x, weight), *((x, weight.clone()) for _ in range(counts[-1] - 1))]
                self.pairs += [(side * side * 4.0, count) for count in counts]
                self._works += [(call, sets[:count]) for count in counts]

    def round(self, order: random.Random) -> list[float]:
        """Mean seconds of a call for each pair, timed once each in an order that is drawn."""
        import torch

        seconds = [math.nan] * len(self.pairs)
        with torch.inference_mode():
            for pair in order.sample(range(len(self.pairs)), len(self.pairs)):
                (weights, count), (call, sets) = self.pairs[pair], self._works[pair]
                # Caches keep what is used again and again only once it was, for a while.
                settled = math.ceil(SETTLED_CACHES * self._cache / (weights * count))
                for reads in sets * max(SETTLED_TURNS, settled):
                    call(reads)
                timed = [self._clock.once(call, reads, "graph").seconds for reads in sets]
                seconds[pair] = float(np.mean(timed))
        return seconds


def _run(kernel: Callable[..., Any], reads: Sequence[Any]) -> Any:
    return kernel(*reads)


def summary(found: Seconds) -> dict[str, Any]:
    """What a profile keeps.

    Returns:
        ``curve``: pairs of distance in bytes and share kept, distances ascending, shares not, the last 0;
        and ``rows`` of ``weights`` (bytes), ``operators`` (in turn) and ``seconds``. Empty where weights
        in the cache save nothing.
    """
    times = {pair: float(np.quantile(values, STATISTIC)) for pair, values in found.items()}
    most = {weights: max(n for w, n in times if w == weights) for weights, _ in times}
    points = [
        (weights * count, (gone - seconds) / (gone - kept))
        for (weights, count), seconds in times.items()
        if (gone := times[weights, most[weights]]) > (kept := times[weights, 1])
    ]
    if not points:
        return {}
    rows = [
        {"weights": weights, "operators": count, "seconds": float(f"{seconds:.4g}")}
        for (weights, count), seconds in sorted(times.items())
    ]
    return {"curve": _curve(points), "rows": rows}


def _curve(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """The monotone curve through points, ends of its steps only."""
    from scipy.optimize import isotonic_regression

    # To 64 KiB: weights are squares, and their sizes not quite the same shares of the cache.
    near = np.array([round(distance / GRAIN) * GRAIN for distance, _ in points])
    distances, at = np.unique(near, return_inverse=True)
    means = np.bincount(at, [share for _, share in points]) / np.bincount(at)
    shares = isotonic_regression(means, weights=np.bincount(at), increasing=False).x
    curve: list[list[float]] = []
    for distance, share in zip(distances, np.clip(shares, 0.0, 1.0), strict=True):
        point = [float(distance), round(float(share), 4)]
        # Of a run of equal shares its first and its last.
        if len(curve) > 1 and curve[-1][1] == curve[-2][1] == point[1]:
            curve[-1] = point
        else:
            curve.append(point)
    return curve
