"""How much of an operator's weights is still cached when it runs again.

State ``graph`` of a table has weights in memory, state ``warm`` has them in the cache. Which of the two an
execution meets depends on what ran since the last use of the same weights: an unrolled recurrent layer reads
them at every step, several jobs of one model read them in turn.

Operators that each read weights of ``w`` bytes for a vector, so that their way from memory is most of the time,
run one after the other, ``n`` of them, round and round: every one finds its weights at a distance of ``n w``
bytes. Of what it saves when it runs alone and again at once, it still saves a share ``kept``. Shares over all
pairs, made monotone by least squares (pool adjacent violators: R. E. Barlow et al., *Statistical inference under
order restrictions*, 1972), are the curve that :class:`simulator.model.weight_hit_curve.ReuseCurve` holds.

Reading other memory once between two uses would not do: caches protect what is used again and again from what
is read once, and kept twice as much at three quarters of their size.

For the same reason weights that were driven out are not back after one use. How fast they come back is probed,
too: all operators run in turn, which drives all out; then some whose weights fill half the cache, until they are
settled there; then others of a quarter, again and again. Of what each of these uses does not find it leaves a share
``taken``: the first uses each their own, since caches keep little of what is read for the first time, the later ones one,
by least squares.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from calibration import environment
from calibration.timing import timer
from simulator.model.operator import TensorSpec

WEIGHTS = (1 / 16, 1 / 8, 1 / 4)
"""Of the last cache: weights of an operator."""
DISTANCES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1, 5 / 4, 3 / 2, 2)
"""Of the last cache: all weights that run in turn; of the largest nothing is kept."""
ROUNDS = 12
SETTLED_TURNS, SETTLED_CACHES = 3, 4
"""Turns before one is timed, and times the cache that they read at least."""
RETURNING = 1 / 8
"""Of the last cache: weights of the operators that come back."""
USES = 8
"""One after the other, of operators that come back."""
TOLD_APART = 2
"""Uses in a row of which each has a share of its own; later ones have one."""
NEARLY_ALL_BACK = 0.1
"""Of the saving; where less is missing, noise is as large as what later uses add, and these leave what the last one did."""
STATISTIC = 0.25
"""Quantile over the calls. A tenth percentile would be of those whose weights happened to survive."""
GRAIN = 64 << 10
"""Bytes; nearer distances are one."""
MOST_CACHE = 256 << 20
"""Bytes; of larger caches no more is probed."""

Seconds = Mapping[tuple[float, int], Sequence[float]]
"""By bytes of weights and number of operators, a time a call."""


@dataclass(frozen=True)
class Round:
    """What operators took once: mean seconds of a call.

    Attributes:
        seconds: of each pair of :class:`Probe`.
        uses: of operators that come back, one use after the other, and once they are settled.
    """

    seconds: list[float]
    uses: list[float]


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
    seconds = zip(*(one.seconds for one in found), strict=True)
    return summary(dict(zip(probe.pairs, seconds, strict=True)), [one.uses for one in found])


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
                if share == min(weights, key=lambda s: abs(s - RETURNING)):
                    self._returning = call, sets, round(0.5 / share), round(0.25 / share)

    def round(self, order: random.Random) -> Round:
        """Every pair timed once, in an order that is drawn, then operators that come back."""
        import torch

        seconds = [math.nan] * len(self.pairs)
        with torch.inference_mode():
            for pair in order.sample(range(len(self.pairs)), len(self.pairs)):
                (weights, _), (call, sets) = self.pairs[pair], self._works[pair]
                self._settle(call, sets, weights)
                seconds[pair] = self._timed(call, sets)
            call, sets, beside, back = self._returning
            weights = float(sets[0][1].nbytes)
            self._settle(call, sets, weights)
            self._settle(call, sets[:beside], weights)
            returning = sets[beside : beside + back]
            uses = [self._timed(call, returning) for _ in range(USES)]
            self._settle(call, returning, weights)
            uses.append(self._timed(call, returning))
        return Round(seconds, uses)

    def _settle(self, call: Callable[..., Any], sets: list[Any], weights: float) -> None:
        """Run operators in turn until the cache has what it keeps of them."""
        # Caches keep what is used again and again only once it was, for a while.
        settled = math.ceil(SETTLED_CACHES * self._cache / (weights * len(sets)))
        for reads in sets * max(SETTLED_TURNS, settled):
            call(reads)

    def _timed(self, call: Callable[..., Any], sets: list[Any]) -> float:
        """Mean seconds of a call in one turn."""
        return float(np.mean([self._clock.once(call, reads, "graph").seconds for reads in sets]))


def _run(kernel: Callable[..., Any], reads: Sequence[Any]) -> Any:
    return kernel(*reads)


def summary(found: Seconds, uses: Sequence[Sequence[float]] | np.ndarray = ()) -> dict[str, Any]:
    """What a profile keeps.

    Args:
        found: of operators in turn.
        uses: of operators that come back, a row a round; none: what a use reads is there for the next.

    Returns:
        ``curve``: pairs of distance in bytes and share kept, distances ascending, shares not, the last 0;
        ``taken``: of what a use does not find the share that it leaves, by its number in a row; ``uses``: seconds of these, one after the
        other, the last settled; and ``rows`` of ``weights`` (bytes), ``operators`` (in turn) and ``seconds``. Empty where
        weights in the cache save nothing.
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
    back = np.quantile(np.asarray(uses), STATISTIC, axis=0) if np.size(uses) else np.array([])
    return {
        "curve": _curve(points),
        "taken": taken(back),
        "uses": [float(f"{seconds:.4g}") for seconds in back],
        "rows": rows,
    }


def taken(uses: np.ndarray) -> list[float]:
    """Of what a use does not find the share that it leaves in the cache, by how many uses in a row there were: .01 to 1.

    Args:
        uses: seconds of one use after the other, of which the first finds nothing and the last everything; none: all
            is left.
    """
    if not len(uses) or uses[0] <= uses[-1]:
        return [1.0]
    found = np.clip((uses[0] - uses[1:-1]) / (uses[0] - uses[-1]), 0.0, 1.0)
    shares: list[float] = []
    missing = 1.0
    for share in found[:TOLD_APART]:
        shares.append(round(float(np.clip((share - 1.0 + missing) / missing, 0.01, 1.0)), 2))
        missing *= 1.0 - shares[-1]
        if missing < NEARLY_ALL_BACK:
            return shares
    later = np.arange(1, 101) / 100
    rest = found[TOLD_APART:]
    expected = 1.0 - missing * (1.0 - later[:, None]) ** np.arange(1, len(rest) + 1)
    return [*shares, float(later[((expected - rest) ** 2).sum(1).argmin()])]


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
