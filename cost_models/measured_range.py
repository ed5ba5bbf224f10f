"""Where a cost model interpolates: the range of every feature that was measured, kind by kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class MeasuredRange:
    """The smallest and the largest measured value of every feature of every kind.

    Attributes:
        kinds: the measured ones.
        lower: float64[kinds, features]; NaN where a kind never had the feature.
        upper: the same.
    """

    kinds: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, kinds: Sequence[str] | np.ndarray, data: np.ndarray) -> MeasuredRange:
        """Of measured rows.

        Args:
            kinds: of each row.
            data: float[rows, features]; NaN where a row has no such feature.
        """
        labels = np.asarray(kinds, dtype=object)
        members = tuple(sorted({str(kind) for kind in labels}))
        lower, upper = (np.full((len(members), data.shape[1]), np.nan) for _ in range(2))
        for position, member in enumerate(members):
            part = data[labels == member]
            there = ~np.isnan(part).all(axis=0)
            lower[position, there] = np.nanmin(part[:, there], axis=0)
            upper[position, there] = np.nanmax(part[:, there], axis=0)
        return cls(members, lower, upper)

    def contains(self, kinds: Sequence[str] | np.ndarray, data: np.ndarray) -> np.ndarray:
        """bool[rows]: the kind was measured and every feature lies in its range.

        A feature that a row lacks does not matter; one that it has and its kind never had does.
        """
        where = {kind: position for position, kind in enumerate(self.kinds)}
        position = np.array([where.get(str(kind), -1) for kind in kinds], dtype=np.int64)
        low, high = self.lower[position], self.upper[position]
        # Half a per cent of slack for float32.
        slack = 0.005 * np.maximum(1.0, np.abs(data))
        absent = np.isnan(data)
        fits = absent | ((data >= low - slack) & (data <= high + slack))
        return (position >= 0) & fits.all(axis=1)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "kinds": list(self.kinds),
            "lower": _rounded(self.lower),
            "upper": _rounded(self.upper),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MeasuredRange:
        """Read :meth:`to_json`'s form; raises KeyError, TypeError or ValueError on damage."""
        lower, upper = (
            np.array(document[side], dtype=np.float64).reshape(len(document["kinds"]), -1)
            for side in ("lower", "upper")
        )
        if lower.shape != upper.shape:
            raise ValueError("a range has as many lower as upper ends")
        return cls(tuple(document["kinds"]), lower, upper)


def _rounded(bounds: np.ndarray) -> list[list[float | None]]:
    return [[None if math.isnan(v) else round(float(v), 4) for v in row] for row in bounds]
