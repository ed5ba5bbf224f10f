"""Which of two schedulers is better: what simulation says, held against hardware.

Two answers of the simulation are judged. *The one run*, in which everything takes what is predicted. And *the draws* of
the predictor's errors, which are what intervals are made of and what ``compare`` asks for P(win): their geometric mean
knows that a scheduler may lose a race, where the one run knows how one race went.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.comparison.statistics import FEWEST_DRAWS, probability_shorter
from experiments.validation.cases import Case

SEPARATE = 1.05
"""Ratio of measured makespans from which a pair of schedulers counts as different."""
STATED = (0.5, 0.7, 0.9, 0.99, 1.0)
"""Between these values of P(win) it is counted how often it came true; the last is a group of its own: all draws."""


@dataclass(frozen=True)
class Pair:
    """Two schedulers on one setting (:attr:`Case.setting`): ratios of makespans, ``second`` over ``first``.

    Attributes:
        simulated: of the one run.
        expected: of the draws' geometric means; NaN without draws.
        probability: that the first is shorter, P(win), by the paired draws; NaN with too few.
    """

    model: str
    first: str
    second: str
    simulated: float
    measured: float
    expected: float = float("nan")
    probability: float = float("nan")

    @property
    def separate(self) -> bool:
        """Whether the measured makespans differ by more than 5%."""
        return max(self.measured, 1 / self.measured) > SEPARATE

    @property
    def told_apart(self) -> bool:
        """Whether the simulated makespans differ by more than 5%."""
        return max(self.simulated, 1 / self.simulated) > SEPARATE

    @property
    def agrees(self) -> bool:
        """Whether the one run names the same winner."""
        return (self.simulated > 1) == (self.measured > 1)

    @property
    def draws_agree(self) -> bool:
        """Whether the draws' means name the same winner."""
        return (self.expected > 1) == (self.measured > 1)

    @property
    def stated(self) -> float:
        """P(win) of the scheduler that the draws favour, at least a half; NaN with too few draws."""
        return max(self.probability, 1.0 - self.probability)

    @property
    def came_true(self) -> bool:
        """Whether the scheduler that the draws favour was the shorter one on hardware."""
        return (self.probability > 0.5) == (self.measured > 1)


def pairs(cases: Sequence[Case]) -> list[Pair]:
    """All pairs of schedulers of each setting."""
    found = []
    for setting in dict.fromkeys(case.setting for case in cases):
        group = [case for case in cases if case.setting == setting]
        for a, b in itertools.combinations(group, 2):
            found.append(
                Pair(
                    setting,
                    a.scheduler,
                    b.scheduler,
                    b.simulated_s / a.simulated_s,
                    b.measured_s / a.measured_s,
                    b.expected_s / a.expected_s,
                    _probability(a, b),
                )
            )
    return found


def _probability(a: Case, b: Case) -> float:
    if len(a.draws_s) != len(b.draws_s) or len(a.draws_s) < FEWEST_DRAWS:
        return float("nan")
    return probability_shorter(a.draws_s, b.draws_s)


def kendall_tau(pairs: Sequence[Pair]) -> float:
    """Kendall's tau-a over pairs: agreeing minus disagreeing, over all; NaN without pairs.

    A pair that simulation sees as equal neither agrees nor disagrees.
    """
    if not pairs:
        return float("nan")
    score = sum(
        float(np.sign(np.log(pair.simulated)) * np.sign(np.log(pair.measured))) for pair in pairs
    )
    return score / len(pairs)


def by_one_run(case: Case) -> float:
    """What the one run says of a case, seconds."""
    return case.simulated_s


def by_draws(case: Case) -> float:
    """What the draws say of a case on average, seconds."""
    return case.expected_s


def regret(cases: Sequence[Case], said: Callable[[Case], float] = by_one_run) -> dict[str, float]:
    """For each setting the measured makespan of the scheduler that simulation would choose, over the
    best measured one, minus one.

    Args:
        cases: of any number of settings.
        said: by what it chooses, the least.
    """
    found = {}
    for setting in dict.fromkeys(case.setting for case in cases):
        group = [case for case in cases if case.setting == setting]
        chosen = min(group, key=said)
        best = min(case.measured_s for case in group)
        found[setting] = chosen.measured_s / best - 1.0
    return found


@dataclass(frozen=True)
class Reliability:
    """Pairs to which about the same P(win) was given.

    Attributes:
        low, high: P(win) of the favoured scheduler is at least ``low`` and below ``high``; 1 and 1 where it wins in
            every draw.
        stated: its mean.
        pairs, right: how many, and in how many the favoured one was shorter.
        separate, separate_right: the same of those that differ by more than 5% on hardware.
    """

    low: float
    high: float
    stated: float
    pairs: int
    right: int
    separate: int
    separate_right: int


def reliability(pairs: Sequence[Pair]) -> list[Reliability]:
    """How often P(win) came true, by what was stated; groups without pairs are left out.

    Pairs with too few draws, and those of which the draws favour none, are in no group.
    """
    found = []
    for low, high in itertools.pairwise((*STATED, STATED[-1])):
        mine = [
            pair
            for pair in pairs
            if pair.stated > STATED[0] and (low <= pair.stated < high or low == high == pair.stated)
        ]
        if not mine:
            continue
        apart = [pair for pair in mine if pair.separate]
        found.append(
            Reliability(
                low,
                high,
                float(np.mean([pair.stated for pair in mine])),
                len(mine),
                sum(pair.came_true for pair in mine),
                len(apart),
                sum(pair.came_true for pair in apart),
            )
        )
    return found
