"""What reading an input takes longer that is not at hand, by how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.errors import InvalidInput
from simulator.model.log_curve import is_curve, value_at


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
        costs = (*self.costs, self.elsewhere)
        if not is_curve(self.distances, self.costs) or not all(0 <= c < math.inf for c in costs):
            raise InvalidInput(
                "A curve of far inputs has distances in bytes that ascend and seconds for each byte that do not "
                f"descend, one for each; got {list(self.distances)}, {list(self.costs)} and {self.elsewhere} elsewhere"
            )

    def cost(self, distance: float) -> float:
        """Seconds for each byte at so many bytes."""
        return value_at(self.distances, self.costs, distance)

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
