"""How much longer operators take in a network than one by one, as a profile keeps it.

The times of a measurement table are of operators that calibration visits one by one. In a network an operator takes a
constant longer, since other operators have displaced its code from the caches, and a factor longer. The factor differs
between convolutions, other products and kernels that stream through memory. Constant and factors are fitted to generated
networks (:mod:`calibration.networks`) and are part of every price. The spread of the networks around them widens
intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.features import known_work

GROUPS = ("convolutions", "products", "moving")
FEWEST = 10
"""Operators of a group that say something of it."""
NARROWEST, WIDEST, MOST_S = 0.7, 1.6, 5e-6
"""Factors and a constant, in seconds, that are believed; beyond them something else was measured."""

Key = tuple[Any, ...]


def group_of(key: Key) -> str:
    """The group of an operator, given by its row (:func:`cost_models.profile.row_keys`)."""
    if "conv" in key[0]:
        return "convolutions"
    return "products" if known_work(*key)[0] > 0 else "moving"


@dataclass(frozen=True)
class Context:
    """What becomes of one-by-one times in a network: ``factor * seconds + constant``.

    Attributes:
        factors: by group.
        constant: seconds of every operator.
        spread: standard deviation over networks of the log of a network's time over what is made of it so.
        networks: how many said so.
    """

    factors: Mapping[str, float]
    constant: float
    spread: float
    networks: int

    def of(self, keys: Sequence[Key], seconds: np.ndarray) -> np.ndarray:
        """float64[rows]: seconds in a network of operators that take ``seconds`` one by one."""
        factors = np.array([self.factors.get(group_of(key), 1.0) for key in keys])
        found: np.ndarray = factors * seconds + self.constant
        return found

    @classmethod
    def fitted(
        cls,
        keys: Sequence[Sequence[Key]],
        placed: Sequence[np.ndarray],
        visited: Sequence[np.ndarray],
        quantile: float,
    ) -> Context:
        """From networks in which operators were timed in place and one by one.

        Args:
            keys: of each network's operators.
            placed: for each network float64[executions, operators] seconds.
            visited: for each network float64[operators] seconds, a statistic.
            quantile: that statistic.
        """
        from scipy.optimize import nnls

        single = [np.quantile(rows, quantile, axis=0) for rows in placed]
        # The statistic of an execution's sum is not the sum of its operators'.
        whole = np.array([np.quantile(rows.sum(axis=1), quantile) for rows in placed])
        together = float(np.mean(whole / [times.sum() for times in single]))
        groups = np.array([group_of(key) for row in keys for key in row])
        here, there = np.concatenate(single), np.concatenate(visited)
        known = [group for group in GROUPS if (groups == group).sum() >= FEWEST]
        columns = [(groups == group) * there / here for group in known]
        (*_, constant), _ = nnls(np.column_stack([*columns, 1 / here]), np.ones(len(here)))
        constant = min(float(constant), MOST_S)
        # Every network counts the same, however long it takes.
        weight = np.concatenate(
            [np.full(len(t), 1 / w) for t, w in zip(single, whole, strict=True)]
        )
        factors = {}
        for group in known:
            mine = groups == group
            factor = float(((here - constant) * weight)[mine].sum() / (there * weight)[mine].sum())
            factors[group] = float(np.clip(factor * together, NARROWEST, WIDEST))
        made = cls(factors, float(constant * together), 0.0, len(placed))
        said = [made.of(row, times).sum() for row, times in zip(keys, visited, strict=True)]
        spread = float(np.std(np.log(whole / said), ddof=1)) if len(placed) > 1 else 0.0
        return cls(factors, made.constant, spread, len(placed))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "factors": {group: round(factor, 5) for group, factor in self.factors.items()},
            "constant_s": round(self.constant, 10),
            "spread": round(self.spread, 5),
            "networks": self.networks,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Context:
        """Read :meth:`to_json`'s form; raises KeyError, TypeError or ValueError on damage."""
        factors = {str(group): float(factor) for group, factor in document["factors"].items()}
        numbers = [*factors.values(), float(document["constant_s"]), float(document["spread"])]
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("what context costs is finite and not negative")
        return cls(factors, numbers[-2], numbers[-1], int(document["networks"]))
