"""What a cache keeps of weights between two uses of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """The share of an operator's weights that is still cached, by their reuse distance.

    Linear between the points; all is kept nearer than the first, nothing farther than the last. These are shares
    of what is used again and again at that distance. Caches that keep data only once they came back
    (A. Jaleel et al., *High performance cache replacement using re-reference interval prediction*, ISCA 2010,
    doi:10.1145/1815961.1815971) have less of it after a single use: of what a use does not find, it leaves
    the share ``taken`` there for the next.

    Attributes:
        distances: bytes, ascending.
        kept: 0 to 1, not ascending.
        taken: above 0, at most 1.

    Raises:
        InvalidInput: no points, or others than these.
    """

    distances: tuple[float, ...]
    kept: tuple[float, ...]
    taken: float = 1.0

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
        if not 0 < self.taken <= 1:
            raise InvalidInput(
                f"What a use leaves in the cache of what it did not find is a share above 0 and at most 1; got "
                f"taken={self.taken}"
            )

    def to_json(self) -> list[Any]:
        """Distances, shares, and ``taken`` where it is not 1."""
        taken = [] if self.taken == 1 else [self.taken]
        return [list(self.distances), list(self.kept), *taken]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> ReuseCurve:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: what is no curve.
        """
        distances, kept, *taken = document
        return cls(tuple(distances), tuple(kept), *taken)

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

    def survival(self, distance: float) -> float:
        """Of what a use left in the cache the share that is still there at the next one.

        Used again and again at a distance of which it survives ``v``, of an operator's weights ``f`` are found and
        ``f + (1 - f) taken`` left there, so ``f = v taken / (1 - v (1 - taken))``, which is ``share(distance)``.
        """
        share = self.share(distance)
        return share / (self.taken + share * (1.0 - self.taken))

    def left(self, found: float, uses: int = 1) -> float:
        """The share that is in the cache after so many uses at once, the first of which found so much."""
        return 1.0 - (1.0 - found) * (1.0 - self.taken) ** uses

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
