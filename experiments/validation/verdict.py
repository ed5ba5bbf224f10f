"""What a validation says of the simulator, each figure beside what it is to reach, and beside what the machine
reaches against itself: with its own even repeats for a prediction of the odd ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.runs.validity import FEWEST_MODELS, LEAST_COVERED, MEAN_ERROR
from experiments.validation.cases import Case
from experiments.validation.pairs import SEPARATE, Pair, by_draws, pairs, regret

WORST_ERROR = 0.15
AGREEMENT, REGRET = 0.92, 0.02
COVERED = (LEAST_COVERED, 0.95)
SEPARATE_PAIRS, SEPARATE_MODELS = 40, FEWEST_MODELS
"""Pairs of schedulers, and models that they are of, which must differ on hardware for a count of right
winners to say anything: with fewer the cases are too tame."""


@dataclass(frozen=True)
class Line:
    """One figure of the verdict.

    Attributes:
        what: the figure's name.
        reached: its value as text.
        target: what it is to reach, as text.
        holds: whether it does; None where there is nothing to count.
        itself: what the machine reaches against itself; empty where that says nothing.
    """

    what: str
    reached: str
    target: str
    holds: bool | None
    itself: str = ""

    @property
    def word(self) -> str:
        """``yes``, ``no`` or ``-``."""
        return "-" if self.holds is None else "yes" if self.holds else "no"


def verdict(cases: Sequence[Case], itself: Sequence[Case] = ()) -> list[Line]:
    """The figures of a validation, each beside its target.

    Args:
        cases: at least one.
        itself: :func:`experiments.validation.cases.against_itself`.
    """
    found = pairs(cases)
    lines = _lines(cases, found)
    if itself:
        others = _lines(itself, pairs(itself))
        lines = [replace(a, itself=b.reached) for a, b in zip(lines, others, strict=True)]
    # Repeats predict no interval and have no draws.
    return [*lines, _interval_line(cases), *_draws_lines(cases, found)]


def _lines(cases: Sequence[Case], found: Sequence[Pair]) -> list[Line]:
    errors = np.abs([case.error for case in cases])
    mean, worst = float(errors.mean()), float(errors.max())
    separate = [pair for pair in found if pair.separate]
    model_of = {case.setting: case.model for case in cases}
    models = {model_of[pair.model] for pair in separate}
    enough = len(separate) >= SEPARATE_PAIRS and len(models) >= SEPARATE_MODELS
    return [
        Line("mean error", f"{mean:.1%}", f"at most {MEAN_ERROR:.0%}", mean <= MEAN_ERROR),
        Line("worst error", f"{worst:.1%}", f"at most {WORST_ERROR:.0%}", worst <= WORST_ERROR),
        Line(
            f"pairs that differ by more than {SEPARATE - 1:.0%}",
            f"{len(separate)} of {len(models)} models",
            f"at least {SEPARATE_PAIRS} of {SEPARATE_MODELS}",
            enough,
        ),
        _winner_line("right winner among them", [pair.agrees for pair in separate]),
        _regret_line("mean regret", list(regret(_several(cases)).values())),
    ]


def _several(cases: Sequence[Case]) -> list[Case]:
    """A setting with one scheduler leaves nothing to choose."""
    return [case for case in cases if sum(other.setting == case.setting for other in cases) > 1]


def _winner_line(what: str, agree: Sequence[bool]) -> Line:
    share = sum(agree) / len(agree) if agree else float("nan")
    return Line(
        what,
        f"{sum(agree)} of {len(agree)}" + (f", {share:.1%}" if agree else ""),
        f"at least {AGREEMENT:.0%}",
        share >= AGREEMENT if agree else None,
    )


def _regret_line(what: str, losses: Sequence[float]) -> Line:
    loss = float(np.mean(losses)) if losses else float("nan")
    return Line(
        what,
        f"{loss:.1%}" if losses else "nothing to choose",
        f"at most {REGRET:.0%}",
        loss <= REGRET if losses else None,
    )


def _interval_line(cases: Sequence[Case]) -> Line:
    intervals = [case for case in cases if np.isfinite(case.low_s)]
    covered = sum(case.covered for case in intervals)
    coverage = covered / len(intervals) if intervals else float("nan")
    return Line(
        "measured in the 90% interval",
        f"{covered} of {len(intervals)}" + (f", {coverage:.1%}" if intervals else ""),
        f"{COVERED[0]:.0%} to {COVERED[1]:.0%}",
        COVERED[0] <= coverage <= COVERED[1] if intervals else None,
    )


def _draws_lines(cases: Sequence[Case], found: Sequence[Pair]) -> list[Line]:
    """Winner and regret once more, by the draws' means; nothing where draws were not kept of all cases."""
    if not all(len(case.draws_s) for case in cases):
        return []
    agree = [pair.draws_agree for pair in found if pair.separate]
    losses = regret(_several(cases), by_draws)
    return [
        _winner_line("right winner by the draws' mean", agree),
        _regret_line("mean regret by the draws' mean", list(losses.values())),
    ]
