"""What a cache keeps of weights between two uses of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simulator.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ReuseCurve:
    """The share of an operator's weights that is still cached, by their reuse distance.

    Linear between the points; all is kept nearer than the first, nothing farther than the last. These are shares
    of what is used again and again at that distance. Caches that keep data only once they came back
    (A. Jaleel et al., *High performance cache replacement using re-reference interval prediction*, ISCA 2010,
    doi:10.1145/1815961.1815971) have less of it after a single use: of what a use does not find, it leaves
    the share ``taken`` there for the next, another one the first time since the weights were driven out
    than the second or third time in a row.

    Attributes:
        distances: bytes, ascending.
        kept: 0 to 1, not ascending.
        taken: by the number of uses since weights were driven out, above 0, at most 1; the last is that of all later
            uses.

    Raises:
        InvalidInput: no points, or others than these.
    """

    distances: tuple[float, ...]
    kept: tuple[float, ...]
    taken: tuple[float, ...] = (1.0,)

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
        if not self.taken or not all(0 < share <= 1 for share in self.taken):
            raise InvalidInput(
                f"What uses in a row leave in the cache of what they did not find are shares above 0 and at most 1; "
                f"got taken={list(self.taken)}"
            )

    def to_json(self) -> list[Any]:
        """Distances, shares, and ``taken`` where it is not 1."""
        taken = [] if self.taken == (1.0,) else [list(self.taken)]
        return [list(self.distances), list(self.kept), *taken]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> ReuseCurve:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: what is no curve.
        """
        distances, kept, *taken = document
        return cls(tuple(distances), tuple(kept), shares_taken(taken[0] if taken else 1.0))

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
        """The share of all that is known of weights, what was left in the cache and what was used and did not stay,
        that outlives a distance; the rest is as if it had never been used.

        It is such that weights that are used again and again at that distance are found by ``share(distance)``.
        """
        share = self.share(distance)
        return share if share in (0.0, 1.0) else _survival(share, self.taken)

    @property
    def unused(self) -> tuple[float, ...]:
        """What is missing of weights that nothing has used: everything, by no uses (:meth:`survivors`)."""
        return (1.0, *(0.0 for _ in self.taken[1:]))

    @staticmethod
    def survivors(missing: tuple[float, ...], survival: float) -> tuple[float, ...]:
        """Of weights the shares that are not in the cache, by the number of uses since these were driven out (the last:
        so many and more), after a distance of which so much survives.
        """
        if survival == 1.0:
            return missing
        first, *others = missing
        return (1.0 - survival * (1.0 - first), *[survival * share for share in others])

    def left(self, missing: tuple[float, ...], uses: int = 1) -> tuple[float, ...]:
        """The same after so many uses at once."""
        taken = self.taken
        for _ in range(uses):
            still = [m * (1.0 - taken[number]) for number, m in enumerate(missing)]
            missing = (0.0, *still[:-2], still[-2] + still[-1]) if len(still) > 1 else (still[0],)
        return missing

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


def shares_taken(given: float | Sequence[float]) -> tuple[float, ...]:
    """:attr:`ReuseCurve.taken` of one share or several."""
    return (given,) if isinstance(given, int | float) else tuple(given)


@lru_cache(1 << 14)
def _survival(share: float, taken: tuple[float, ...]) -> float:
    """The inverse of :func:`_found`, which grows with what survives."""
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (least + most)
        if _found(middle, taken) < share:
            least = middle
        else:
            most = middle
    return most


_HALVINGS = 50


def _found(survival: float, taken: tuple[float, ...]) -> float:
    """The share that is found of weights used again and again at a distance of which so much survives.

    A part of them that survives ``v`` was driven out ``n`` uses ago with probability ``(1 - v) v^(n - 1)``, and is not
    there with the product of ``1 - taken`` over these uses.
    """
    lost, missing, passed = 0.0, 1.0, 1.0
    for share in taken[:-1]:
        missing *= 1.0 - share
        lost += (1.0 - survival) * passed * missing
        passed *= survival
    missing *= 1.0 - taken[-1]
    if missing:
        lost += (1.0 - survival) * passed * missing / (1.0 - survival * (1.0 - taken[-1]))
    return survival * (1.0 - lost)
