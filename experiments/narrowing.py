"""What to measure so that a difference becomes certain: variances, greedily reduced for their seconds.

A difference D of two makespans changes with the log of an operator's time by as many seconds as that
operator takes of the one critical path more than of the other: its sensitivity. With what the cost
model may be wrong by (:mod:`cost_models.uncertainty`: a part that the operators of a (profile, kind)
share, and one of each its own) that makes the variance of D. Measuring an operator leaves the error of
a measurement in place of both parts, and tells something of the shared part of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cost_models.uncertainty import narrowing

ENOUGH = 0.9
"""Of what measuring everything would take off the variance; what comes after is little for its time."""
_NODES = np.polynomial.legendre.leggauss(80)
_FAR = 9.0


@dataclass(frozen=True)
class Unknowns:
    """Distinct operators on their profiles, as far as a difference depends on them.

    Attributes:
        group: int64[operators], equal for operators that share a part of their error.
        sensitivity: float64[operators] seconds of the difference for each unit of log time.
        shared: float64[operators] variance of the part that the group shares.
        own: float64[operators] variance of the operator's own part.
        repeat: float64[operators] variance of a measurement's error; inf where it cannot be measured.
        seconds: float64[operators] that measuring it takes.
        measured: bool[operators], those whose time is a measured one already.
    """

    group: np.ndarray
    sensitivity: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    repeat: np.ndarray
    seconds: np.ndarray
    measured: np.ndarray

    def variance(self, measured: np.ndarray | None = None) -> float:
        """Of the difference, seconds squared, once these are measured (bool[operators])."""
        chosen = self.measured if measured is None else measured | self.measured
        return sum(self._of_group(rows, chosen) for rows in self._groups())

    def _groups(self) -> list[np.ndarray]:
        order = np.argsort(self.group, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.group[order])) + 1) if len(order) else []

    def _of_group(self, rows: np.ndarray, measured: np.ndarray) -> float:
        known, unknown = rows[measured[rows]], rows[~measured[rows]]
        own = float(self.sensitivity[unknown] ** 2 @ self.own[unknown])
        total = own + float(self.sensitivity[known] ** 2 @ self.repeat[known])
        if len(unknown):
            together = float(self.sensitivity[unknown].sum()) ** 2
            first = unknown[0]
            left = 1.0
            if len(known):
                observation = float((self.own[known] + self.repeat[known]).mean())
                left = narrowing(float(self.shared[first]), observation, len(known))
            total += together * float(self.shared[first]) * left
        return total


@dataclass(frozen=True)
class Choice:
    """An operator to measure.

    Attributes:
        operator: position among the unknowns.
        variance: of the difference once it and all chosen before it are measured, seconds squared.
    """

    operator: int
    variance: float


def choose(unknowns: Unknowns, budget: float = math.inf, enough: float = ENOUGH) -> list[Choice]:
    """Operators in the order in which each takes most off the variance for its seconds.

    Args:
        unknowns: what there is to measure.
        budget: seconds.
        enough: stops where this share of what measuring everything measurable would take off is off.

    Returns:
        As many as are worth it; the variance falls from each to the next.
    """
    measured = unknowns.measured.copy()
    groups = unknowns._groups()
    parts = [unknowns._of_group(rows, measured) for rows in groups]
    group_of = np.empty(len(measured), dtype=np.int64)
    for number, rows in enumerate(groups):
        group_of[rows] = number
    open_ = ~measured & np.isfinite(unknowns.repeat) & np.isfinite(unknowns.seconds)
    start = total = sum(parts)
    target = start - enough * max(start - unknowns.variance(measured | open_), 0.0)
    gains = np.full(len(measured), -math.inf)

    def renew(number: int) -> None:
        for position in groups[number][open_[groups[number]]].tolist():
            measured[position] = True
            gains[position] = parts[number] - unknowns._of_group(groups[number], measured)
            measured[position] = False

    for number in range(len(groups)):
        renew(number)
    found: list[Choice] = []
    # What is left of cancelled sums is no gain.
    least = 1e-9 * start
    while total > target + least:
        affordable = open_ & (unknowns.seconds <= budget) & (gains > least)
        if not affordable.any():
            break
        worth = np.full(len(gains), -math.inf)
        worth[affordable] = gains[affordable] / np.maximum(unknowns.seconds[affordable], 1e-9)
        best = int(worth.argmax())
        number = int(group_of[best])
        measured[best], open_[best], gains[best] = True, False, -math.inf
        budget -= float(unknowns.seconds[best])
        total -= parts[number]
        parts[number] = unknowns._of_group(groups[number], measured)
        total += parts[number]
        renew(number)
        found.append(Choice(best, total))
    return found


def normal_probability(x: float | np.ndarray) -> np.ndarray:
    """float64: that a standard normal is below x."""
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in np.atleast_1d(x)])


def probability_above_zero(mean: float, variance: float) -> float:
    """That a normal difference is above 0; a certain one is 0, a half or 1."""
    if variance <= 0:
        return 0.5 if mean == 0 else float(mean > 0)
    return float(normal_probability(mean / math.sqrt(variance))[0])


def expected_probability(mean: float, variance: float, after: float) -> float:
    """P(win) of whoever is ahead once the variance is ``after``, as expected before it is.

    What is learnt moves the mean: it becomes m ~ N(mean, variance - after), and whoever it favours wins
    with probability Phi(abs(m) / sqrt(after)).

    Args:
        mean: of the difference now.
        variance: of it now.
        after: what is left of the variance, no more than now.
    """
    learnt = max(variance - after, 0.0)
    if learnt <= 1e-12 * variance:
        return max(probability_above_zero(mean, variance), probability_above_zero(-mean, variance))
    if after <= 0:
        return 1.0
    width = math.sqrt(learnt)
    # The integrand has a kink where m is 0; on either side of it it is smooth.
    kink = min(max(-mean / width, -_FAR), _FAR)
    total = 0.0
    for low, high in ((-_FAR, kink), (kink, _FAR)):
        z = (high - low) / 2 * _NODES[0] + (high + low) / 2
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        wins = normal_probability(np.abs(mean + width * z) / math.sqrt(after))
        total += (high - low) / 2 * float(_NODES[1] @ (density * wins))
    return min(total, 1.0)
