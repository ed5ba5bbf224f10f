"""How far predictions may be off together: draws of actual times around predicted ones.

A predictor's errors are systematic. On an architecture it has not seen, all convolutions of a device
may come out 5% slower than predicted; and an operator that occurs twelve times is wrong by the same
factor twelve times. Independent draws for every operator would average such errors out and promise an
interval that is far too narrow. So a draw takes

* one factor for each (profile, kind), from the distribution of the mean log residuals of whole
  architectures that were held out, and
* one factor for each distinct operator, from the residuals within those architectures,

and applies both wherever that operator runs on that profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cost_models.table import identities, rows_of
from simulator.costs import CostTable, GraphCosts
from simulator.errors import InvalidInput

POOLED = "*"
"""Residuals of all kinds together, for kinds with too few of their own."""
ENOUGH_GROUPS, ENOUGH_ROWS = 4, 20
# Denser at the ends: between the last two of evenly spaced quantiles, one odd kernel among a hundred
# thousand would otherwise become one draw in eighty.
_TAIL = (0.0, 0.001, 0.005, 0.01, 0.025)
_QUANTILES = np.array([*_TAIL, *np.arange(1, 20) / 20, *(1 - q for q in reversed(_TAIL))])


@dataclass(frozen=True)
class Residuals:
    """Held-out residuals of one kind, log(measured / predicted).

    Attributes:
        biases: the mean of each held-out group (an architecture).
        within: quantiles of the residuals less their group's mean, denser at both ends.
        rows: how many residuals these rest on.
    """

    biases: tuple[float, ...]
    within: tuple[float, ...]
    rows: int

    @classmethod
    def of(cls, residuals: pd.DataFrame) -> Residuals:
        """From rows with ``group`` and ``log_residual``."""
        means = residuals.groupby("group")["log_residual"].transform("mean")
        biases = residuals.groupby("group")["log_residual"].mean()
        centred = (residuals["log_residual"] - means).to_numpy()
        # A group of m rows lost 1/m of its variance to its own mean.
        sizes = residuals.groupby("group")["log_residual"].transform("size").to_numpy()
        centred = centred[sizes > 1] * np.sqrt(sizes[sizes > 1] / (sizes[sizes > 1] - 1))
        within = np.quantile(centred, _QUANTILES) if len(centred) else np.zeros(len(_QUANTILES))
        return cls(
            tuple(round(float(b), 5) for b in biases),
            tuple(round(float(w), 5) for w in within),
            len(residuals),
        )

    def draw(self, rng: np.random.Generator, operators: int) -> np.ndarray:
        """float64[operators]: log factors that share one systematic part."""
        spread = float(np.std(self.biases)) / math.sqrt(max(len(self.biases), 1))
        # One of the biases seen, smoothed: the next architecture's is none of them exactly.
        bias = rng.choice(self.biases) + spread * rng.standard_normal() if self.biases else 0.0
        return bias + np.interp(rng.random(operators), _QUANTILES, self.within)

    @property
    def systematic(self) -> float:
        """Root mean square of the groups' biases."""
        return math.sqrt(sum(b * b for b in self.biases) / len(self.biases)) if self.biases else 0.0

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"biases": list(self.biases), "within": list(self.within), "rows": self.rows}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Residuals:
        """Read :meth:`to_json`'s form."""
        within = tuple(map(float, document["within"]))
        if len(within) != len(_QUANTILES):
            raise InvalidInput(f"Residuals have {len(_QUANTILES)} quantiles, not {len(within)}")
        return cls(tuple(map(float, document["biases"])), within, int(document["rows"]))


def residuals_by_kind(errors: pd.DataFrame, fallback: pd.DataFrame) -> dict[str, Residuals]:
    """Residuals of each kind and of all together (:data:`POOLED`).

    Args:
        errors: held-out rows of whole architectures (:func:`cost_models.evaluation.relative_errors`).
        fallback: held-out rows of folds. A kind that too few architectures have takes its residuals
            within groups from here, and its systematic part from all kinds' architectures.
    """
    if not len(errors):
        errors = fallback
    if not len(errors):
        return {}
    # A (kind, architecture) is one observation of a bias, whatever the kind.
    pooled = Residuals.of(errors.assign(group=errors["kind"] + " " + errors["group"]))
    found = {POOLED: pooled}
    for kind in sorted({*errors["kind"], *fallback["kind"]}):
        own = errors[errors["kind"] == kind]
        if own["group"].nunique() >= ENOUGH_GROUPS and len(own) >= ENOUGH_ROWS:
            found[kind] = Residuals.of(own)
            continue
        rows = fallback[fallback["kind"] == kind]
        if len(rows) >= ENOUGH_ROWS:
            within = Residuals.of(rows.assign(group="all")).within
            found[kind] = Residuals(pooled.biases, within, len(rows))
    return found


def draw_factors(
    residuals: Mapping[str, Residuals],
    kinds: Sequence[str],
    identity: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """float64[operators]: factors on predicted times, for one profile.

    Args:
        residuals: by kind, with :data:`POOLED` for the others; empty means factors of 1.
        kinds: of each operator.
        identity: int64[operators], equal for operators that a model cannot tell apart.
        rng: drawn from in an order that depends on the kinds and identities alone.
    """
    factors = np.ones(len(kinds))
    if not residuals:
        return factors
    labels = np.array(kinds, dtype=object)
    for kind in sorted(set(kinds)):
        chosen = np.flatnonzero(labels == kind)
        known, position = np.unique(identity[chosen], return_inverse=True)
        source = residuals.get(kind) or residuals.get(POOLED)
        if source is not None:
            factors[chosen] = np.exp(source.draw(rng, len(known)))[position]
    return factors


def draws(
    costs: CostTable,
    residuals: Sequence[tuple[str, Mapping[str, Residuals]] | None],
    count: int,
    seed: int = 0,
) -> Iterator[CostTable]:
    """Possible actual times of every operator, ``count`` tables of them.

    Args:
        costs: predicted times.
        residuals: for each device the name of its profile and the profile's residuals; None for a
            device whose times are given, not predicted. Devices of one profile are wrong together.
        count: tables to draw.
        seed: the ``i``-th table does not depend on ``count``.

    Raises:
        InvalidInput: another number of devices than the table has.
    """
    graphs = list(costs)
    for graph in graphs:
        if costs[graph].seconds.shape[1] != len(residuals):
            raise InvalidInput(
                f"{len(residuals)} profiles for the {costs[graph].seconds.shape[1]} devices of "
                f"graph '{graph.name}'"
            )
    operators = [operator for graph in graphs for operator in graph.operators]
    kinds = [operator.kind for operator in operators]
    identity = identities(rows_of(operators))
    profiles = {entry[0]: entry[1] for entry in residuals if entry is not None}
    for number in range(count):
        factors = {
            name: draw_factors(
                profiles[name], kinds, identity, np.random.default_rng([seed, number, i])
            )
            for i, name in enumerate(sorted(profiles))
        }
        entries, start = {}, 0
        for graph in graphs:
            part = slice(start, start + len(graph))
            start += len(graph)
            seconds = costs[graph].seconds.copy()
            for device, entry in enumerate(residuals):
                if entry is not None:
                    seconds[:, device] *= factors[entry[0]][part]
            entries[graph] = GraphCosts(seconds, costs[graph].spread, costs[graph].in_range)
        yield CostTable(entries)
