"""How many samples leave at which exit, and how many of them are answered correctly.

A table counts the held-out samples of a trained multi-exit network for every pair of exits and every
confidence threshold: a sample leaves at the first exit whose largest softmax probability is at least the
threshold, otherwise at the final exit. It is a CSV, its first lines the command that made it::

    way,seed,threshold,first,second,samples,left_first,right_first,left_second,right_second,right_last

``first`` is 0 where there is one exit, ``second``, before the final one, and both are where there is none.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import InvalidInput

COLUMNS = (
    "way", "seed", "threshold", "first", "second", "samples", "left_first", "right_first",
    "left_second", "right_second", "right_last",
)  # fmt: skip
DIGITS = Path(__file__).parent / "exit_tables" / "digits.csv"
"""The shipped table: an 8-block network on scikit-learn's digits."""
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True)
class Shares:
    """What happens to samples at a set of exits.

    Attributes:
        leave: for each exit the share of the samples that arrive there which leave.
        accuracy: for each exit the share of those that leave which are answered correctly; 1 where none do.
        last: the same at the final exit.
    """

    leave: tuple[float, ...]
    accuracy: tuple[float, ...]
    last: float


@dataclass(frozen=True)
class Counts:
    """Of one pair of exits: samples that leave at each and at the end, and how many rightly."""

    samples: int
    left: tuple[int, int]
    right: tuple[int, int]
    right_last: int

    def __add__(self, other: Counts) -> Counts:
        left = (self.left[0] + other.left[0], self.left[1] + other.left[1])
        right = (self.right[0] + other.right[0], self.right[1] + other.right[1])
        return Counts(self.samples + other.samples, left, right, self.right_last + other.right_last)


def count_exits(
    confidence: np.ndarray, correct: np.ndarray, thresholds: Sequence[float]
) -> dict[tuple[float, int, int], Counts]:
    """Counts for every threshold and pair of exits.

    Args:
        confidence: float64[samples, exits], the last exit the final one.
        correct: bool[samples, exits].
        thresholds: of confidence.
    """
    samples, exits = confidence.shape
    found = {}
    for threshold in thresholds:
        sure = confidence >= threshold
        for first, second in itertools.combinations(range(exits), 2):
            found[threshold, first, second] = _count(sure, correct, first, second, samples)
        found[threshold, 0, 0] = _count(sure, correct, 0, 0, samples)
    return found


def _count(sure: np.ndarray, correct: np.ndarray, first: int, second: int, samples: int) -> Counts:
    arrive = np.ones(samples, dtype=bool)
    left, right = [], []
    for number in (first, second):
        leave = arrive & sure[:, number - 1] if number else np.zeros(samples, dtype=bool)
        left.append(int(leave.sum()))
        right.append(int((leave & correct[:, number - 1]).sum()))
        arrive = arrive & ~leave
    return Counts(
        samples, (left[0], left[1]), (right[0], right[1]), int((arrive & correct[:, -1]).sum())
    )


class ExitTable:
    """See the module docstring.

    Args:
        counts: by (way, seed, threshold, first, second).

    Raises:
        InvalidInput: it is empty, or some combination is missing.
    """

    def __init__(self, counts: Mapping[tuple[str, int, float, int, int], Counts]) -> None:
        if not counts:
            raise InvalidInput("A table of exits has no rows")
        self._counts = dict(counts)
        self.ways = tuple(dict.fromkeys(key[0] for key in counts))
        self.seeds = tuple(sorted({key[1] for key in counts}))
        self.thresholds = tuple(sorted({key[2] for key in counts}))
        self.layers = max(key[4] for key in counts) + 1
        pairs = [(0, 0), *itertools.combinations(range(self.layers), 2)]
        for key in itertools.product(self.ways, self.seeds, self.thresholds):
            for pair in pairs:
                if (*key, *pair) not in counts:
                    way, seed, threshold = key
                    raise InvalidInput(
                        f"A table of exits lacks the exits {pair} of way '{way}', seed {seed}, "
                        f"threshold {threshold}"
                    )

    def counts(
        self, way: str, threshold: float, exits: Sequence[int], seed: int | None = None
    ) -> Counts:
        """Counts of at most two exits, of one seed or summed over all.

        Raises:
            InvalidInput: the table has no such way, threshold, seed or exits.
        """
        exits = sorted(exits)
        first, second = [*[0] * (2 - len(exits)), *exits]
        seeds = self.seeds if seed is None else (seed,)
        try:
            rows = [self._counts[way, s, threshold, first, second] for s in seeds]
        except (KeyError, ValueError):
            raise InvalidInput(
                f"The table of exits has none for exits {tuple(exits)} at threshold {threshold} of way "
                f"'{way}'; it has ways {', '.join(self.ways)}, thresholds "
                f"{', '.join(map(str, self.thresholds))}, exits 1 to {self.layers - 1}"
            ) from None
        total = rows[0]
        for row in rows[1:]:
            total = total + row
        return total

    def shares(
        self, way: str, threshold: float, exits: Sequence[int], seed: int | None = None
    ) -> Shares:
        """What happens at these exits; see :meth:`counts`."""
        found = self.counts(way, threshold, exits, seed)
        skipped = 2 - len(exits)
        leave, accuracy = [], []
        arrive = found.samples
        for left, right in list(zip(found.left, found.right, strict=True))[skipped:]:
            leave.append(left / arrive if arrive else 0.0)
            accuracy.append(right / left if left else 1.0)
            arrive -= left
        last = found.right_last / arrive if arrive else 1.0
        return Shares(tuple(leave), tuple(accuracy), last)

    def text(self, comment: str = "") -> str:
        """The CSV."""
        lines = [f"# {line}" for line in comment.splitlines()]
        lines.append(",".join(COLUMNS))
        for (way, seed, threshold, first, second), c in self._counts.items():
            row = (way, seed, threshold, first, second, c.samples)
            numbers = (c.left[0], c.right[0], c.left[1], c.right[1], c.right_last)
            lines.append(",".join(map(str, (*row, *numbers))))
        return "\n".join(lines) + "\n"

    @classmethod
    def load(cls, path: Path) -> ExitTable:
        """Read :meth:`text`'s form.

        Raises:
            InvalidInput: there is no such file, or a row of it cannot be; the line is named.
        """
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise InvalidInput(
                f"There is no table of exits {path} ({error.strerror}); make one: "
                "python -m experiments.train_exits"
            ) from None
        comments = sum(line.startswith("#") for line in lines)
        rows = csv.reader(lines[comments:])
        if tuple(next(rows, ())) != COLUMNS:
            raise InvalidInput(f"{path} is no table of exits: its columns are {','.join(COLUMNS)}")
        found = {}
        for number, row in enumerate(rows, comments + 2):
            try:
                way, seed, threshold, *rest = row
                first, second, samples, *counts = map(int, rest)
                left = (counts[0], counts[2])
                right = (counts[1], counts[3])
                (last,) = counts[4:]
                if not 0 <= sum(right) + last <= samples or sum(left) > samples:
                    raise ValueError
                key = (way, int(seed), float(threshold), first, second)
            except (ValueError, IndexError):
                raise InvalidInput(f"{path}, line {number}: {','.join(row)} cannot be") from None
            found[key] = Counts(samples, left, right, last)
        return cls(found)
