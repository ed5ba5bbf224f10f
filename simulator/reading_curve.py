"""What reading an input takes longer that is not at hand, by how far it is."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ReadingCurve:
    """What reading takes longer, by the distance of what is read.

    Linear in the logarithm of the distance between the points, constant beyond them.

    Attributes:
        distances: bytes, above 0, ascending.
        costs: seconds for each byte, at least 0, not descending.
        elsewhere: seconds for each byte more where another device wrote it and this one has not read it yet.

    Raises:
        InvalidInput: no points, or others than these.
    """

    distances: tuple[float, ...]
    costs: tuple[float, ...]
    elsewhere: float = 0.0

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.distances, self.distances[1:], strict=False))
        rising = all(a <= b for a, b in zip(self.costs, self.costs[1:], strict=False))
        if (
            not self.distances
            or len(self.distances) != len(self.costs)
            or not (ascending and rising)
            or not all(0 < distance < math.inf for distance in self.distances)
            or not all(0 <= cost < math.inf for cost in (*self.costs, self.elsewhere))
        ):
            raise InvalidInput(
                "A curve of far inputs has distances in bytes that ascend and seconds for each byte that do not "
                f"descend, one for each; got {list(self.distances)}, {list(self.costs)} and {self.elsewhere} elsewhere"
            )

    def cost(self, distance: float) -> float:
        """Seconds for each byte at so many bytes."""
        right = bisect_right(self.distances, distance)
        if right == 0:
            return self.costs[0]
        if right == len(self.distances):
            return self.costs[-1]
        low, high = self.distances[right - 1], self.distances[right]
        part = math.log(distance / low) / math.log(high / low)
        return self.costs[right - 1] + part * (self.costs[right] - self.costs[right - 1])

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "distances": list(self.distances),
            "costs": list(self.costs),
            "elsewhere": self.elsewhere,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ReadingCurve:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: what is no curve.
        """
        return cls(
            tuple(document["distances"]), tuple(document["costs"]), document.get("elsewhere", 0.0)
        )
