"""How much of each memory space is in use, and what lies there unwanted until its room is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


class Room:
    """Whole bytes of every memory space.

    Args:
        capacities: bytes of each space; ``inf`` for no limit.
        inputs: bytes that jobs' inputs may take in each space; ``inf`` for no limit of their own.
        drop: called with a tensor and a space where it makes way; takes it off with :meth:`pick_up`.
        freed: called with a space in which room was given back.
    """

    def __init__(
        self,
        capacities: Sequence[float],
        inputs: Sequence[float],
        drop: Callable[[int, int], None],
        freed: Callable[[int], None],
    ) -> None:
        spaces = range(len(capacities))
        self.capacity = [c if c == math.inf else math.floor(c) for c in capacities]
        self.used = [0 for _ in spaces]
        self.peak = [0 for _ in spaces]
        """Most bytes that each space has held."""
        self.idle: list[dict[int, int]] = [{} for _ in spaces]
        """What nobody wants any more: tensor -> bytes, oldest first. They do not count as used."""
        self.idle_bytes = [0 for _ in spaces]
        self.most_inputs = list(inputs)
        self.inputs = [0 for _ in spaces]
        """Of the used bytes those of inputs."""
        self._drop = drop
        self._freed = freed

    def free(self, space: int) -> float:
        """Bytes that nothing occupies."""
        return self.capacity[space] - self.used[space]

    def fits(self, space: int, size: int) -> bool:
        """Whether there is room for so many bytes more."""
        return self.used[space] + size <= self.capacity[space]

    def take(self, space: int, size: int) -> None:
        """Occupy room that is there; data that nobody wants makes way."""
        used = self.used[space] = self.used[space] + size
        if used > self.peak[space]:
            self.peak[space] = used
        while used + self.idle_bytes[space] > self.capacity[space]:
            self._drop(next(iter(self.idle[space])), space)

    def give_back(self, space: int, size: int) -> None:
        """Occupy so much less."""
        self.used[space] -= size
        self._freed(space)

    def lay_down(self, tensor: int, space: int, size: int) -> None:
        """Nobody wants a tensor here any more; its room is yet to be given back."""
        self.idle[space][tensor] = size
        self.idle_bytes[space] += size

    def pick_up(self, tensor: int, space: int) -> None:
        """What was unwanted here is wanted again, or gone."""
        self.idle_bytes[space] -= self.idle[space].pop(tensor)
