"""Pair by pair: wins, ties, losses, the worst ratio, and whether one is shorter than the other.

Effect sizes come first: the geometric mean of the ratio with its interval, and the rank-biserial
correlation; then the p-value of the same draws (:mod:`experiments.comparison.paired_tests`), both
corrected over all pairs that are compared together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from experiments.comparison.instances import Instances
from experiments.comparison.paired_tests import fewest_pairs, paired_tests, rank_biserial
from experiments.comparison.statistics import SAME

if TYPE_CHECKING:
    import pandas as pd

Unit = Literal["contest", "seed"]


@dataclass(frozen=True)
class PairCounts:
    """Over instances: how often the row beats the column, ties, loses; its worst ratio to it.

    Attributes:
        wins: int[schedulers, schedulers].
        ties: int[schedulers, schedulers].
        losses: int[schedulers, schedulers].
        worst: float[schedulers, schedulers]: the largest makespan(row) / makespan(column).
    """

    wins: np.ndarray
    ties: np.ndarray
    losses: np.ndarray
    worst: np.ndarray


def pair_counts(makespans: np.ndarray, tie: float = SAME) -> PairCounts:
    """Wins, ties and losses of every pair.

    Args:
        makespans: float[instances, schedulers] in seconds, NaN where one has no result.
        tie: relative difference below which a pair is a tie.
    """
    count = makespans.shape[1]
    wins = np.zeros((count, count), dtype=np.int64)
    ties, losses = wins.copy(), wins.copy()
    worst = np.full((count, count), np.nan)
    for i in range(count):
        ratios = makespans[:, [i]] / makespans
        known = np.isfinite(ratios)
        wins[i] = np.sum(known & (ratios < 1.0 - tie), axis=0)
        losses[i] = np.sum(known & (ratios > 1.0 / (1.0 - tie)), axis=0)
        ties[i] = known.sum(axis=0) - wins[i] - losses[i]
        some = known.any(axis=0)
        worst[i, some] = np.nanmax(ratios[:, some], axis=0)
    return PairCounts(wins, ties, losses, worst)


@dataclass(frozen=True)
class PairTests:
    """Every pair that was compared.

    Attributes:
        frame: one row a pair, the better first: ``scheduler``, ``against``, ``n`` (pairs of makespans),
            ``ratio`` (geometric mean of the first's makespan over the second's) with its corrected 95% interval
            ``ratio_low``, ``ratio_high``, ``rank_biserial``, ``wins``, ``ties``, ``losses`` (beyond 1%,
            over instances), ``worst_ratio``, ``p`` (corrected), ``verdict``: ``shorter``, ``not separable`` or
            ``too few``.
        unit: what is paired: a model in a setting, its seeds averaged, or each seed.
        units: how many there are.
        needed: pairs of makespans below which nothing can be significant.
        instances: seeds of all models and settings.
        models: how many models there are, of drawn graphs how many seeds; settings of one are alike, not independent.
        drawn: whether every seed drew a graph of its own.
    """

    frame: pd.DataFrame
    unit: Unit
    units: int
    needed: int
    instances: int
    models: int
    drawn: bool = False

    @property
    def caution(self) -> str:
        """What a reader must know of the units; empty where each is a model of its own."""
        if self.models >= self.units:
            return ""
        if self.drawn and self.unit == "seed":
            return (
                f"They are of {self.models} seed{'s' if self.models > 1 else ''}: graphs that one seed draws in several "
                "settings count as independent, which they are not wholly."
            )
        what = "settings and seeds" if self.unit == "seed" else "settings"
        return (
            f"They are of {self.models} model{'s' if self.models > 1 else ''}: {what} of one model count "
            "as independent, which they are not wholly, so p-values and intervals speak of these "
            f"{what} and of no other model."
        )

    @property
    def unit_text(self) -> str:
        """What is paired, in words."""
        if self.unit == "seed":
            return "drawn graphs" if self.drawn else "seeds of the models and settings"
        averaged = ", seeds averaged" if self.instances > self.units else ""
        return f"models and settings{averaged}"


def unit_makespans(instances: Instances, unit: Unit) -> np.ndarray:
    """float[units, schedulers]: geometric means over the seeds of each contest, or every seed.

    A scheduler that lacks a seed which another has is NaN for the whole contest.
    """
    if unit == "seed":
        return instances.makespans
    logs = np.log(instances.makespans)
    _, contest = np.unique(instances.contest, return_inverse=True)
    sums = np.zeros((int(contest.max(initial=-1)) + 1, logs.shape[1]))
    np.add.at(sums, contest, logs)
    means: np.ndarray = np.exp(sums / np.bincount(contest)[:, None])
    return means


def choose_unit(instances: Instances, tests: int) -> Unit:
    """Models and settings where there are enough of them for any difference to be significant.

    Seeds of one model are no evidence for other models, so they count singly only where nothing else
    could: the result then speaks of these models and settings alone. Where each seed draws a graph of its own, it is
    an instance like any other.
    """
    if instances.drawn:
        return "seed"
    contests = len(np.unique(instances.contest))
    enough = contests >= fewest_pairs(tests) or contests == len(instances)
    return "contest" if enough else "seed"


def compare_pairs(
    instances: Instances, baseline: str | None = None, unit: Unit | None = None
) -> PairTests:
    """Compare every two schedulers, or every one with the baseline.

    Args:
        instances: makespans; pairs are of instances that both finished.
        baseline: compared with all others, which makes fewer tests to correct for.
        unit: what is paired; :func:`choose_unit` unless given.
    """
    import pandas as pd

    names = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    instances = instances.of(names)
    if baseline is None:
        pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    else:
        base = names.index(baseline)
        pairs = [(min(i, base), max(i, base)) for i in range(len(names)) if i != base]
    needed = fewest_pairs(max(1, len(pairs)))
    unit = unit or choose_unit(instances, max(1, len(pairs)))
    makespans = unit_makespans(instances, unit)
    counts = pair_counts(instances.makespans)
    logs = np.log(makespans)
    differences = [logs[:, i] - logs[:, j] for i, j in pairs]
    differences = [values[np.isfinite(values)] for values in differences]
    tests = paired_tests(differences)
    rows = []
    for (i, j), values, test in zip(pairs, differences, tests, strict=True):
        low, high = test.low, test.high
        if len(values) and values.mean() > 0:
            i, j, values, low, high = j, i, -values, -high, -low
        rows.append(
            {
                "scheduler": names[i],
                "against": names[j],
                "n": len(values),
                "ratio": float(np.exp(values.mean())) if len(values) else np.nan,
                "ratio_low": float(np.exp(low)),
                "ratio_high": float(np.exp(high)),
                "rank_biserial": rank_biserial(values),
                "wins": counts.wins[i, j],
                "ties": counts.ties[i, j],
                "losses": counts.losses[i, j],
                "worst_ratio": counts.worst[i, j],
                "p": test.p,
                "verdict": _WORDS[None if test.verdict is None else abs(test.verdict)],
            }
        )
    independent = instances.seed if instances.drawn and unit == "seed" else instances.work
    return PairTests(
        pd.DataFrame(rows), unit, len(makespans), needed, len(instances), len(np.unique(independent)),
        instances.drawn,
    )  # fmt: skip


_WORDS = {None: "too few", 0: "not separable", 1: "shorter"}
"""The better of a pair stands first, so that nothing is longer."""
