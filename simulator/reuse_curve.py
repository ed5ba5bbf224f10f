"""What a cache keeps of weights between two uses of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from simulator.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """The share of an operator's weights that is still cached, by their reuse distance.

    Linear between the points; all is kept nearer than the first, nothing farther than the last.

    Attributes:
        distances: bytes, ascending.
        kept: 0 to 1, not ascending.

    Raises:
        InvalidInput: no points, or others than these.
    """

    distances: tuple[float, ...]
    kept: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.distances, self.distances[1:], strict=False))
        falling = all(a >= b for a, b in zip(self.kept, self.kept[1:], strict=False))
        if (
            not self.distances
            or len(self.distances) != len(self.kept)
            or not (ascending and falling)
            or not all(0 <= d < math.inf for d in self.distances)
            or not all(0 <= k <= 1 for k in self.kept)
        ):
            raise InvalidInput(
                f"A reuse curve has distances in bytes that ascend and shares from 1 down to 0, one for "
                f"each; got {list(self.distances)} and {list(self.kept)}"
            )

    def share(self, distance: float) -> float:
        """What is kept at a distance."""
        after = bisect_right(self.distances, distance)
        if after == 0:
            return 1.0
        if after == len(self.distances):
            return self.kept[-1] if distance == self.distances[-1] else 0.0
        left, right = self.distances[after - 1], self.distances[after]
        part = (distance - left) / (right - left)
        return self.kept[after - 1] + part * (self.kept[after] - self.kept[after - 1])

    def distance(self, share: float) -> float:
        """Up to which distance, bytes, at least this share is kept.

        Args:
            share: more than 0, at most 1.
        """
        if self.kept[0] < share:
            return self.distances[0]
        after = sum(kept >= share for kept in self.kept)
        if after == len(self.kept):
            return self.distances[-1]
        left, right = self.distances[after - 1], self.distances[after]
        kept, less = self.kept[after - 1], self.kept[after]
        return left + (kept - share) / (kept - less) * (right - left)
