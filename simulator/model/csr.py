"""Rows of integers of different lengths in two arrays (compressed sparse rows).

A graph of a million operators has its reads, writes and neighbours in this form: 4 bytes an entry and
8 bytes a row, where a tuple of tuples takes tens. What runs in Python turns it into tuples, which are
faster to walk there; what is compiled reads the arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST = 2**31 - 1
"""The largest entry."""


@dataclass(frozen=True, eq=False, slots=True)
class CSR:
    """Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``; the arrays are read-only.

    Attributes:
        offsets: int64[rows + 1].
        values: int32[entries].
    """

    offsets: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        self.offsets.setflags(write=False)
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> CSR:
        """The same rows as arrays; an entry that is no index (below 0, above 2^31) stays none."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
        flat = itertools.chain.from_iterable(rows)
        values = np.fromiter((min(max(v, -1), MOST) for v in flat), np.int32, int(offsets[-1]))
        return cls(offsets, values)

    @classmethod
    def group(cls, row: np.ndarray, value: np.ndarray, rows: int) -> CSR:
        """Entries ``value[k]`` gathered by ``row[k]`` in 0..rows-1, in their order within a row.

        Args:
            row: int[entries].
            value: int[entries].
            rows: how many rows there are, empty ones included.
        """
        offsets = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
        if len(row) and not bool(np.all(row[1:] >= row[:-1])):
            value = value[np.argsort(row, kind="stable")]
        return cls(offsets, np.array(value, dtype=np.int32))

    @property
    def lengths(self) -> np.ndarray:
        """int64[rows]: entries of each row."""
        return np.diff(self.offsets)

    @property
    def row_of(self) -> np.ndarray:
        """int32[entries]: the row of every entry."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    def transposed(self, columns: int) -> CSR:
        """For each value in 0..columns-1 the rows that hold it, ascending."""
        return CSR.group(self.values, self.row_of, columns)

    def distinct(self) -> CSR:
        """Every row ascending and without repetition."""
        span = int(self.values.max(initial=0)) + 1
        keys = self.row_of.astype(np.int64) * span + self.values
        keys.sort()  # np.unique hashes first, which takes ten times as long
        keys = keys[np.concatenate([keys[:1] == keys[:1], keys[1:] != keys[:-1]])]
        row, value = np.divmod(keys, span)
        return CSR.group(row, value, len(self))

    def rows(self, integers: np.ndarray | None = None) -> tuple[tuple[int, ...], ...]:
        """The rows as tuples.

        Args:
            integers: object[largest value + 1], the integers from 0 as Python objects, where
                several structures are to share them; see :func:`python_integers`.
        """
        if integers is None:
            flat = tuple(self.values.tolist())
        else:
            flat = tuple(integers[self.values].tolist())
        rows = [flat[a:b] for a, b in itertools.pairwise(self.offsets.tolist())]
        return tuple(rows)

    def rows_of_few(self, integers: np.ndarray) -> tuple[tuple[int, ...], ...]:
        """:meth:`rows` where many rows are the same single value: these are one tuple.

        Args:
            integers: object[largest value + 1], as in :meth:`rows`.
        """
        single = self.lengths == 1
        if 2 * int(single.sum()) < len(self):
            return self.rows(integers)
        span = int(self.values.max(initial=0)) + 1
        ones = np.fromiter(zip(integers[:span], strict=True), dtype=object, count=span)
        table = np.empty(len(self), dtype=object)
        table[single] = ones[self.values[self.offsets[:-1][single]]]
        values = integers[self.values]
        for row in np.flatnonzero(~single).tolist():
            table[row] = tuple(values[self.offsets[row] : self.offsets[row + 1]].tolist())
        return tuple(table.tolist())


def entries_of(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64[entries]: the entries of all rows, row by row in the order ``rows``, by the position that
    they have where the rows stand in the order of their numbers.

    Args:
        rows: int[rows], a permutation.
        counts: int[rows], entries of every row.
    """
    begins = np.cumsum(counts)
    begins -= counts
    begins, counts = begins[rows], counts[rows]
    begins -= np.cumsum(counts) - counts
    found: np.ndarray = np.repeat(begins, counts)
    found += np.arange(len(found))
    return found


def python_integers(count: int, first: int = 0) -> np.ndarray:
    """object[count]: ``first``, ``first`` + 1, ... as Python objects; what is made of these shares
    them.
    """
    return np.fromiter(range(first, first + count), dtype=object, count=count)
