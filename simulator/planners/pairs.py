"""Ready tasks on devices: which pair is next, where a scheduler chooses task and device together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from simulator.model.graph import DataflowGraph

_UNKNOWN = np.finfo(np.float64).max
"""Of a pair whose start nobody knows: behind all others, before those that cannot be."""


class PairRule(ABC):
    """Which of all pairs of a ready task and a device goes first."""

    @abstractmethod
    def levels(self, graph: DataflowGraph, seconds: np.ndarray) -> np.ndarray:
        """float64[operators, devices]: what is known of every pair beforehand, rounded; made once a
        graph. Larger first among what is equally urgent.

        Args:
            graph: the graph.
            seconds: believed, float64[operators, devices], ``inf`` where a device cannot run it.
        """

    @abstractmethod
    def urgency(self, start: np.ndarray, level: np.ndarray) -> np.ndarray:
        """What the smallest of goes first, from earliest starts and levels."""

    @abstractmethod
    def compared(self, device: int, urgency: Sequence[float]) -> str:
        """What decided, in words: the chosen device's urgency beside those of the others."""


class Pairs:
    """Rows of tasks, columns of devices. Only what a placement changes is worked out again.

    Among equally urgent pairs the one of larger level goes first, then the smaller task, then the
    earlier finish, then the smaller device.

    Args:
        devices: how many.
        rule: makes the urgency of pairs.
    """

    def __init__(self, devices: int, rule: PairRule) -> None:
        self._rule = rule
        self.count = 0
        self.task = np.empty(16, dtype=np.int64)
        """int64[rows]: of which the first ``count`` are in use, here and below."""
        self.seconds = np.empty((16, devices))
        """float64[rows, devices]: ``inf`` where the task cannot be."""
        self.level = np.empty((16, devices))
        self.data = np.empty((16, devices))
        """When the data is there."""
        self.start = np.empty((16, devices))
        self._urgency = np.empty((16, devices))

    def add(self, task: int, seconds: np.ndarray, level: np.ndarray, data: np.ndarray) -> int:
        """A task that is ready, whose starts are not known yet; returns its row.

        Args:
            task: its number.
            seconds: float64[devices], ``inf`` where it cannot be.
            level: float64[devices].
            data: float64[devices], when its data could be there.
        """
        row = self.count
        if row == len(self.task):
            for name in ("task", "seconds", "level", "data", "start", "_urgency"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.empty_like(old)]))
        self.task[row], self.seconds[row], self.level[row] = task, seconds, level
        self.data[row] = data
        self.count += 1
        return row

    def remove(self, row: int) -> None:
        """A task that is placed; the last row takes its place."""
        self.count = last = self.count - 1
        for table in (
            self.task,
            self.seconds,
            self.level,
            self.data,
            self.start,
            self._urgency,
        ):
            table[row] = table[last]

    def set_starts(self, rows: slice | int, columns: slice | int, starts: np.ndarray) -> None:
        """Earliest starts of some pairs."""
        self.start[rows, columns] = starts
        urgency = self._rule.urgency(starts, self.level[rows, columns])
        urgency = np.minimum(urgency, _UNKNOWN)
        able = self.seconds[rows, columns] < np.inf
        self._urgency[rows, columns] = np.where(able, urgency, np.inf)

    def next(self) -> tuple[int, int]:
        """Row and device of the pair that goes first."""
        devices = self.start.shape[1]
        urgency = self._urgency[: self.count].reshape(-1)
        first = int(urgency.argmin())
        pairs = np.flatnonzero(urgency == urgency[first])
        if len(pairs) > 1:
            level = self.level.reshape(-1)[pairs]
            pairs = pairs[level == level.max()]
        if len(pairs) > 1:
            task = self.task[pairs // devices]
            pairs = pairs[task == task.min()]
        if len(pairs) > 1:
            end = self.start.reshape(-1)[pairs] + self.seconds.reshape(-1)[pairs]
            pairs = pairs[end == end.min()]
        row, device = divmod(int(pairs[0]), devices)
        return row, device

    def urgency(self, row: int) -> list[float]:
        """Of a task on every device."""
        return self._urgency[row].tolist()
