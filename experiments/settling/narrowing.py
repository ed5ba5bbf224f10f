"""What to measure so that a difference becomes certain: variances, greedily reduced for their seconds.

A difference D of two makespans changes with the log of an operator's time by as many seconds as that
operator takes of the one critical path more than of the other: its sensitivity. With what the cost
model may be wrong by (:mod:`cost_models.uncertainty`: a part that the operators of a (profile, kind)
share, and one of each its own) that makes the variance of D. Measuring an operator leaves the error of
a measurement in place of both parts, and tells something of the shared part of the others.

Where the errors of two profiles go together, an operator that is faster on one of them than believed is so
on the other, and what decides which device should run it is hardly wrong at all. Measured on one alone it is:
the variance of D grows. So the same operator on all such profiles is also chosen or left as one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

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
        operator: int64[operators], equal for the same operator on several profiles; None: all differ.
        correlation: for two groups, the lesser first, the correlations of the shared parts and of the
            operators' own; without an entry there is none.
    """

    group: np.ndarray
    sensitivity: np.ndarray
    shared: np.ndarray
    own: np.ndarray
    repeat: np.ndarray
    seconds: np.ndarray
    measured: np.ndarray
    operator: np.ndarray | None = None
    correlation: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def variance(self, measured: np.ndarray | None = None) -> float:
        """Of the difference, seconds squared, once these are measured (bool[operators])."""
        chosen = self.measured if measured is None else measured | self.measured
        return sum(self._of_block(block, chosen) for block in self._blocks)

    @cached_property
    def _groups(self) -> dict[int, np.ndarray]:
        """Rows by group."""
        order = np.argsort(self.group, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(self.group[order])) + 1)
        return {int(self.group[rows[0]]): rows for rows in parts if len(rows)}

    @cached_property
    def _blocks(self) -> list[list[int]]:
        """Groups that go together with one another and with no others."""
        block = {group: [group] for group in self._groups}
        for one, other in self.correlation:
            if block[one] is not block[other]:
                block[one] += block[other]
                block.update(dict.fromkeys(block[one], block[one]))
        return [groups for first, groups in block.items() if groups[0] == first]

    @cached_property
    def _same(self) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
        """For two groups that go together, the rows of the operators that are in both."""
        found = {}
        for one, other in self.correlation:
            rows, others = self._groups[one], self._groups[other]
            if self.operator is not None:
                _, at, there = np.intersect1d(
                    self.operator[rows], self.operator[others], return_indices=True
                )
                found[one, other] = rows[at], others[there]
        return found

    def _of_block(self, groups: list[int], measured: np.ndarray) -> float:
        total, together = 0.0, {}
        for group in groups:
            own, together[group] = self._of_group(self._groups[group], measured)
            total += own + together[group] ** 2
        for one, other in itertools.combinations(sorted(groups), 2):
            shared, own = self.correlation.get((one, other), (0.0, 0.0))
            total += 2.0 * shared * together[one] * together[other]
            if own and (one, other) in self._same:
                here, there = self._same[one, other]
                unknown = ~(measured[here] | measured[there])
                here, there = here[unknown], there[unknown]
                widths = np.sqrt(self.own[here] * self.own[there])
                total += (
                    2.0 * own * float(self.sensitivity[here] * self.sensitivity[there] @ widths)
                )
        return total

    def _of_group(self, rows: np.ndarray, measured: np.ndarray) -> tuple[float, float]:
        """The variance that operators make each alone, and the seconds that one standard deviation of what
        they share makes, with its sign.
        """
        known, unknown = rows[measured[rows]], rows[~measured[rows]]
        alone = float(self.sensitivity[unknown] ** 2 @ self.own[unknown])
        alone += float(self.sensitivity[known] ** 2 @ self.repeat[known])
        if not len(unknown):
            return alone, 0.0
        shared, left = float(self.shared[unknown[0]]), 1.0
        if len(known):
            observation = float((self.own[known] + self.repeat[known]).mean())
            left = narrowing(shared, observation, len(known))
        return alone, float(self.sensitivity[unknown].sum()) * math.sqrt(shared * left)


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

    The same operator on several profiles whose errors go together is tried alone and as one.

    Args:
        unknowns: what there is to measure.
        budget: seconds.
        enough: stops where this share of what measuring everything measurable would take off is off.

    Returns:
        As many as are worth it; the variance falls from each to the next, of those chosen as one by equal
        parts.
    """
    measured = unknowns.measured.copy()
    blocks = unknowns._blocks
    parts = [unknowns._of_block(groups, measured) for groups in blocks]
    open_ = ~measured & np.isfinite(unknowns.repeat) & np.isfinite(unknowns.seconds)
    start = total = sum(parts)
    target = start - enough * max(start - unknowns.variance(measured | open_), 0.0)
    # What is left of cancelled sums is no gain.
    least = 1e-9 * start
    bundles = [_bundles(unknowns, groups, open_) for groups in blocks]
    worth: list[list[tuple[float, list[int]]]] = [[] for _ in blocks]

    def renew(number: int) -> None:
        """What each bundle of a block takes off for its seconds."""
        worth[number] = []
        for rows in bundles[number]:
            if not open_[rows].all():
                continue
            measured[rows] = True
            gain = parts[number] - unknowns._of_block(blocks[number], measured)
            measured[rows] = False
            if gain > least:
                seconds = float(unknowns.seconds[rows].sum())
                worth[number].append((gain / max(seconds, 1e-9), rows))

    for number in range(len(blocks)):
        renew(number)
    found: list[Choice] = []
    while total > target + least:
        best = max(
            (
                (value, -number, rows)
                for number, candidates in enumerate(worth)
                for value, rows in candidates
                if unknowns.seconds[rows].sum() <= budget
            ),
            key=lambda entry: (*entry[:2], [-row for row in entry[2]]),
            default=None,
        )
        if best is None:
            break
        number, rows = -best[1], best[2]
        measured[rows], open_[rows] = True, False
        budget -= float(unknowns.seconds[rows].sum())
        before, parts[number] = parts[number], unknowns._of_block(blocks[number], measured)
        for position, row in enumerate(rows, 1):
            gained = (before - parts[number]) * position / len(rows)
            found.append(Choice(row, total - gained))
        total += parts[number] - before
        renew(number)
    return found


def _bundles(unknowns: Unknowns, groups: list[int], open_: np.ndarray) -> list[list[int]]:
    """What may be chosen as one of a block: each operator, and each on all its profiles."""
    rows = np.concatenate([unknowns._groups[group] for group in groups])
    rows = np.sort(rows[open_[rows]])
    found = [[row] for row in rows.tolist()]
    if unknowns.operator is not None and len(groups) > 1:
        same: dict[int, list[int]] = {}
        for row in rows.tolist():
            same.setdefault(int(unknowns.operator[row]), []).append(row)
        found += [several for several in same.values() if len(several) > 1]
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
