"""What each ingredient changes: differences of runs that agree in everything else.

For a factor of the schedulers (``pricing``) pairs are schedulers with the same other options on the
same instance; for any other (``contention``) they are the same scheduler and seeds with everything
else the same. The model itself is left out: makespans of different models are of different work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.factors import ERROR, OMITTED, SCHEDULER, Factor, value_text
from experiments.comparison.paired_tests import paired_tests, rank_biserial

if TYPE_CHECKING:
    import pandas as pd

    from experiments.comparison.contests import Standings

_WORK = ("model", "model of", "batch")
_USUAL = (OMITTED, "none", "unlimited", "push")
RULES = ("movement", "contention", "noise", "memory", "decision_cost", ERROR)


@dataclass(frozen=True)
class Effect:
    """Paired differences of one value of a factor against another.

    Attributes:
        logs: float[pairs]: logarithm of makespan with ``value`` over makespan with ``against``.
    """

    factor: Factor
    value: Any
    against: Any
    logs: np.ndarray

    @property
    def ingredient(self) -> bool:
        """Whether it is part of the scheduler or a rule of the simulation, not of the problem."""
        column = self.factor.column
        return self.factor.of_scheduler or column in RULES or column.startswith("simulation.")


@dataclass(frozen=True)
class Effects:
    """All effects, and their table.

    Attributes:
        frame: one row an effect: ``factor``, ``value``, ``against``, ``n``, ``ratio`` with
            ``ratio_low`` and ``ratio_high``, ``rank_biserial``, ``p``, ``verdict``; interval and p are corrected.
    """

    effects: tuple[Effect, ...]
    frame: pd.DataFrame


def effects(standings: Standings) -> Effects:
    """Every factor's effects: each value against the usual one, or the first.

    Whole schedulers are left to the pairs of schedulers.
    """
    import pandas as pd

    found: list[Effect] = []
    for factor in standings.factors:
        if factor.column in (*_WORK, SCHEDULER):
            continue
        logs = np.log(_paired(standings, factor))
        usual = next((i for i, value in enumerate(factor.values) if value in _USUAL), 0)
        for column, value in enumerate(factor.values):
            difference = logs[:, column] - logs[:, usual]
            difference = difference[np.isfinite(difference)]
            if column != usual and len(difference):
                found.append(Effect(factor, value, factor.values[usual], difference))
    tests = paired_tests([effect.logs for effect in found])
    words = {None: "too few", -1: "shorter", 0: "not separable", 1: "longer"}
    rows = [
        {
            "factor": effect.factor.name,
            "value": value_text(effect.value),
            "against": value_text(effect.against),
            "n": len(effect.logs),
            "ratio": float(np.exp(effect.logs.mean())),
            "ratio_low": float(np.exp(test.low)),
            "ratio_high": float(np.exp(test.high)),
            "rank_biserial": rank_biserial(effect.logs),
            "p": test.p,
            "verdict": words[test.verdict],
        }
        for effect, test in zip(found, tests, strict=True)
    ]
    return Effects(tuple(found), pd.DataFrame(rows))


def _paired(standings: Standings, factor: Factor) -> np.ndarray:
    """float[pairs, values of the factor]: makespans that agree in everything else."""
    import pandas as pd

    instances = standings.instances
    codes = {value: i for i, value in enumerate(factor.values)}
    if factor.of_scheduler:
        # Rows are instances with each combination of the schedulers' other options.
        groups: dict[tuple[str, ...], dict[int, int]] = {}
        for column, name in enumerate(instances.schedulers):
            options = dict(standings.scheduler_factors.get(name, {}))
            value = codes.get(options.pop(factor.column, None))
            if value is not None:
                key = tuple(f"{k}={v}" for k, v in sorted(options.items()))
                groups.setdefault(key, {})[value] = column
        parts = []
        for columns in groups.values():
            part = np.full((len(instances), len(codes)), np.nan)
            for value, column in columns.items():
                part[:, value] = instances.makespans[:, column]
            parts.append(part)
        return np.concatenate(parts) if parts else np.zeros((0, len(codes)))
    others = instances.facts.drop(columns=factor.column).astype(str)
    same = pd.DataFrame({**others, "seed": instances.seed})
    row = same.groupby([*same.columns], sort=False).ngroup().to_numpy()
    given = instances.facts[factor.column].map(codes)
    known = given.notna().to_numpy()
    place = given[known].to_numpy(dtype=np.int64)
    count = len(instances.schedulers)
    table = np.full((int(row.max(initial=-1)) + 1, len(codes), count), np.nan)
    table[row[known], place] = instances.makespans[known]
    return table.transpose(0, 2, 1).reshape(-1, len(codes))
