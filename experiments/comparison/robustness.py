"""How robust: regret as what schedulers believe becomes wrong, and where the winner changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.bootstrap import FEWEST, bootstrap_means
from experiments.comparison.factors import ERROR, Factor, find_factor
from experiments.comparison.instances import Instances

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Robustness:
    """Regret by error of the estimates.

    Attributes:
        frame: one row a scheduler and level: ``error``, ``scheduler``, ``n``, ``regret`` (mean of the
            makespan over the best of the instance, minus 1) with ``regret_low``, ``regret_high``.
        order: schedulers, the smallest regret at the smallest error first.
        flip: the smallest error at which another scheduler's mean regret falls below that of the
            first, interpolated linearly between levels, and that scheduler; None if there is none.
    """

    factor: Factor
    frame: pd.DataFrame
    order: tuple[str, ...]
    flip: tuple[float, str] | None


def error_factor(factors: tuple[Factor, ...], name: str | None = None) -> Factor | None:
    """The factor that is the error of the estimates; None where it does not vary.

    Raises:
        InvalidInput: the named one does not vary.
    """
    if name is not None:
        return find_factor(factors, name)
    return next((factor for factor in factors if factor.column == ERROR), None)


def robustness(instances: Instances, factor: Factor) -> Robustness:
    """Mean regret of every scheduler that finished everything, at each level of the error."""
    import pandas as pd

    complete = np.isfinite(instances.makespans).all(axis=0)
    instances = instances.of([n for n, c in zip(instances.schedulers, complete, strict=True) if c])
    regret = instances.ratios - 1.0
    column = instances.facts[factor.column].to_numpy()
    levels = [value for value in factor.values if (column == value).any()]
    means = np.array([regret[column == level].mean(axis=0) for level in levels])
    order = np.lexsort((np.array(instances.schedulers), means[0])).tolist()
    rows = []
    for number, level in enumerate(levels):
        here = regret[column == level]
        low, high = (
            bootstrap_means(here)
            if len(here) >= FEWEST
            else (np.full(here.shape[1], np.nan), np.full(here.shape[1], np.nan))
        )
        rows += [
            {
                "error": level,
                "scheduler": instances.schedulers[i],
                "n": len(here),
                "regret": float(means[number, i]),
                "regret_low": float(low[i]),
                "regret_high": float(high[i]),
            }
            for i in order
        ]
    names = tuple(instances.schedulers[i] for i in order)
    flip = flip_point([float(level) for level in levels], means[:, order])
    named = None if flip is None else (flip[0], names[flip[1]])
    return Robustness(factor, pd.DataFrame(rows), names, named)


def flip_point(levels: list[float], regret: np.ndarray) -> tuple[float, int] | None:
    """Where another column first falls below the first one, between levels by a straight line.

    Args:
        levels: ascending.
        regret: float[levels, schedulers]; the first column is the smallest at the first level.

    Returns:
        The level and the column; None if the first stays the smallest.
    """
    lead = regret - regret[:, [0]]
    for number in range(1, len(levels)):
        below = np.flatnonzero(lead[number] < -1e-12)
        if not len(below):
            continue
        before, after = lead[number - 1, below], lead[number, below]
        shares = before / (before - after)
        first = int(np.argmin(shares))
        step = levels[number] - levels[number - 1]
        return levels[number - 1] + float(shares[first]) * step, int(below[first])
    return None
