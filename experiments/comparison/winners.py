"""Who wins where: the best scheduler at every combination of two factors, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.factors import Factor, find_factor
from experiments.comparison.instances import Instances
from experiments.comparison.paired_tests import fewest_pairs, paired_tests
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

_USUAL = ("ccr", "heterogeneity")


@dataclass(frozen=True)
class WinnerMap:
    """The best scheduler of every cell of the map.

    Attributes:
        frame: one row a cell: both factors' columns, ``n`` (instances), ``winner``, ``second``,
            ``lead`` (by how much the second's mean ratio to the best exceeds the winner's),
            ``p`` (corrected), ``separable``.
        order: schedulers, the best overall first.
        needed: instances below which nothing can be significant.
    """

    across: Factor
    up: Factor
    frame: pd.DataFrame
    order: tuple[str, ...]
    needed: int

    @property
    def warning(self) -> str:
        """A sentence where cells have too few instances for the test, whoever leads in them; else empty."""
        few = int((self.frame["n"] < self.needed).sum())
        if not few:
            return ""
        most = int(self.frame["n"].max())
        which = "no cell" if few == len(self.frame) else f"{few} of {len(self.frame)} cells"
        verb = "has" if few == len(self.frame) else "have fewer than"
        return (
            f"Too few seeds for the map of winners: {which} {verb} the {self.needed} instances that its test needs "
            f"(at most {most} a cell); give seed.workload more values."
        )


def choose_map(
    factors: tuple[Factor, ...], names: tuple[str, str] | None = None
) -> tuple[Factor, Factor] | None:
    """The two factors of the map: those named, else CCR and heterogeneity, else the first two numeric
    ones of the instances; None where there are no two.

    Raises:
        InvalidInput: a named one does not vary, belongs to the scheduler, or both are the same.
    """
    if names is not None:
        across, up = (find_factor(factors, name) for name in names)
        for factor in (across, up):
            if factor.of_scheduler:
                raise InvalidInput(
                    f"map={','.join(names)}: {factor.name} is part of the schedulers that win or lose"
                )
        if across == up:
            raise InvalidInput(f"map={','.join(names)} needs two different factors")
        return across, up
    numeric = [factor for factor in factors if factor.numeric and not factor.of_scheduler]
    usual = [f for name in _USUAL for f in numeric if f.name.lower() == name]
    chosen = list(dict.fromkeys([*usual, *numeric]))
    return (chosen[0], chosen[1]) if len(chosen) > 1 else None


def winner_map(instances: Instances, across: Factor, up: Factor) -> WinnerMap:
    """Find the winner of every cell. Schedulers without a result on some instance are left out there."""
    import pandas as pd

    order = [instances.schedulers[i] for i in instances.by_mean_ratio()]
    instances = instances.of(order)
    logs = np.log(instances.ratios)
    facts = instances.facts
    rows = []
    differences = []
    for value_up in up.values:
        for value_across in across.values:
            here = (facts[across.column] == value_across) & (facts[up.column] == value_up)
            cell = logs[here.to_numpy()]
            complete = np.isfinite(cell).all(axis=0)
            if not len(cell) or complete.sum() < 2:
                continue
            means = np.where(complete, cell.mean(axis=0), np.inf)
            first, second = np.argsort(means, kind="stable")[:2].tolist()
            differences.append(cell[:, first] - cell[:, second])
            rows.append(
                {
                    across.column: value_across,
                    up.column: value_up,
                    "n": len(cell),
                    "winner": order[first],
                    "second": order[second],
                    "lead": float(np.exp(means[second] - means[first]) - 1.0),
                }
            )
    needed = fewest_pairs(max(1, len(rows)))
    frame = pd.DataFrame(rows)
    if len(frame):
        tests = paired_tests(differences)
        frame["p"] = [test.p for test in tests]
        frame["separable"] = [test.verdict == -1 for test in tests]
    return WinnerMap(across, up, frame, tuple(order), needed)
