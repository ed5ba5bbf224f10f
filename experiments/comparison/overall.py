"""Schedulers over all instances of a sweep, and at each value of each factor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.bootstrap import intervals_of_means
from experiments.comparison.factors import Factor, value_text
from experiments.comparison.instances import Instances
from experiments.comparison.pairs import Unit, choose_unit, unit_makespans
from experiments.comparison.statistics import SAME

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Overall:
    """Every scheduler, by geometric mean of its ratio to the best.

    Attributes:
        frame: ``scheduler``, ``n`` (instances that it finished), ``ratio_to_best`` with the interval
            ``ratio_low``, ``ratio_high``, ``share_best`` (within 1%), ``worst_ratio``,
            ``ratio_to_bound``, ``decision_s`` (the median over these instances).
        unit: what the interval is over, see :mod:`experiments.comparison.pairs`.
    """

    frame: pd.DataFrame
    instances: int
    contests: int
    unit: Unit
    units: int
    drawn: bool = False

    @property
    def unit_text(self) -> str:
        """What the interval is over, in words."""
        if self.unit == "contest":
            return "models and settings"
        return "drawn graphs" if self.drawn else "instances"


def overall(instances: Instances, unit: Unit | None = None) -> Overall:
    """Rank the schedulers over all instances."""
    import pandas as pd

    instances = instances.of([instances.schedulers[i] for i in instances.by_mean_ratio()])
    ratios = instances.ratios
    unit = unit or choose_unit(instances, 1)
    means = np.log(unit_makespans(replace(instances, makespans=ratios), unit))
    bound = np.log(instances.makespans / instances.bound_s[:, None])
    rows = []
    ends = intervals_of_means([column[np.isfinite(column)] for column in means.T])
    for column, (name, (low, high)) in enumerate(zip(instances.schedulers, ends, strict=True)):
        own = ratios[np.isfinite(ratios[:, column]), column]
        rows.append(
            {
                "scheduler": name,
                "n": len(own),
                "ratio_to_best": float(np.exp(np.log(own).mean())),
                "ratio_low": float(np.exp(low)),
                "ratio_high": float(np.exp(high)),
                "share_best": float((own <= 1 + SAME).sum() / len(ratios)),
                "worst_ratio": float(own.max()),
                "ratio_to_bound": float(np.exp(_mean(bound[:, column]))),
                "decision_s": _median(instances.planning[:, column]),
            }
        )
    contests = len(np.unique(instances.contest))
    return Overall(pd.DataFrame(rows), len(instances), contests, unit, len(means), instances.drawn)


def by_factor(instances: Instances, factors: tuple[Factor, ...]) -> pd.DataFrame:
    """Mean ratio to the best of every scheduler at each value of each factor of the instances.

    Returns:
        ``factor``, ``value``, ``n``, ``best``, then a column for each scheduler, best overall first.
    """
    import pandas as pd

    instances = instances.of([instances.schedulers[i] for i in instances.by_mean_ratio()])
    logs = np.log(instances.ratios)
    rows = []
    for factor in factors:
        if factor.of_scheduler:
            continue
        column = instances.facts[factor.column].to_numpy()
        for value in factor.values:
            here = logs[column == value]
            if not len(here):
                continue
            means = np.array([np.exp(_mean(values)) for values in here.T])
            rows.append(
                {
                    "factor": factor.name,
                    "value": value_text(value),
                    "n": len(here),
                    "best": instances.schedulers[int(np.nanargmin(means))],
                    **dict(zip(instances.schedulers, means.tolist(), strict=True)),
                }
            )
    return pd.DataFrame(rows)


def _mean(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")


def _median(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else float("nan")
