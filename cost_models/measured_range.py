"""Where a cost model interpolates: the range of every feature that was measured, kind by kind, and how far an
operator is from what was measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.features import known_work

DISTANCES = ("near", "apart", "beyond", "unseen")
"""How far an operator is from what was measured: near to operators of its kind; within all ranges, and in that
combination far from each; beyond a range; of a kind that was not measured."""
NEAR, APART, BEYOND, UNSEEN = range(4)
Cell = tuple[int, int, int]
_AROUND = tuple(itertools.product((-1, 0, 1), repeat=3))


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


@dataclass(frozen=True)
class Reach:
    """Where operators of each kind were measured: cells of a factor of two in work, bytes and length of a row.

    Attributes:
        cells: by kind.
    """

    cells: Mapping[str, frozenset[Cell]]

    @classmethod
    def of(cls, keys: Iterable[tuple[Any, ...]]) -> Reach:
        """Of measured rows' features (:data:`cost_models.table.FEATURES`)."""
        found: dict[str, set[Cell]] = {}
        for key in keys:
            found.setdefault(str(key[0]), set()).add(_cell(key))
        return cls({kind: frozenset(cells) for kind, cells in sorted(found.items())})

    def distances(self, keys: Sequence[tuple[Any, ...]], inside: np.ndarray) -> np.ndarray:
        """int64[rows], positions in :data:`DISTANCES`.

        Args:
            keys: rows' features.
            inside: bool[rows], whether every feature lies in its range.
        """
        found = np.where(inside, NEAR, BEYOND)
        for row, key in enumerate(keys):
            cells = self.cells.get(str(key[0]))
            if cells is None:
                found[row] = UNSEEN
            elif inside[row]:
                a, b, c = _cell(key)
                if not any((a + i, b + j, c + k) in cells for i, j, k in _AROUND):
                    found[row] = APART
        return found

    def to_json(self) -> dict[str, list[int]]:
        """By kind the numbers of its cells, three each."""
        return {
            kind: [n for cell in sorted(cells) for n in cell] for kind, cells in self.cells.items()
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Sequence[int]]) -> Reach:
        """Read :meth:`to_json`'s form; raises TypeError or ValueError on damage."""
        cells = {}
        for kind, numbers in document.items():
            if len(numbers) % 3:
                raise ValueError(f"the cells of kind '{kind}' are not three numbers each")
            triples = zip(*(map(int, numbers[i::3]) for i in range(3)), strict=True)
            cells[kind] = frozenset(triples)
        return cls(cells)


def _cell(key: tuple[Any, ...]) -> Cell:
    operations, moved = known_work(*key)
    row = key[3][0][-1] if key[3] and key[3][0] else 1
    # Of work that is unknown nothing tells one cell from another.
    sizes = (0.0 if math.isnan(size) else size for size in (operations, moved, row))
    a, b, c = (round(math.log2(1.0 + size)) for size in sizes)
    return a, b, c


def _rounded(bounds: np.ndarray) -> list[list[float | None]]:
    return [[None if math.isnan(v) else round(float(v), 4) for v in row] for row in bounds]
