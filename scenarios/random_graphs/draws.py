"""Random numbers that are the same with every version of Python and NumPy.

NumPy keeps the raw output of a bit generator for good, but may change what ``Generator`` makes of it.
So everything here is made of raw 64-bit words of PCG64 by exact operations alone.
"""

from __future__ import annotations

import numpy as np

from simulator.errors import InvalidInput

SHAPE, WORK, DATA, DEVICES = 10, 11, 12, 13
"""Streams of a seed. Arrivals and priorities have 0 and 1: the same seed draws those as well."""
_BLOCK = 4096


class Draws:
    """A stream of draws: word ``i`` of ``PCG64([seed, stream])`` gives draw ``i``.

    Args:
        seed: at least 0.
        stream: streams of one seed are independent of each other.

    Raises:
        InvalidInput: the seed is negative.
    """

    def __init__(self, seed: int, stream: int = SHAPE) -> None:
        if seed < 0:
            raise InvalidInput(f"seed.workload={seed} draws the graph; it must be at least 0")
        self._bits = np.random.PCG64([seed, stream])
        self._block = np.zeros(0)
        self._used = 0

    def uniform(self, count: int) -> np.ndarray:
        """float64[count] in [0, 1): the upper 53 bits of each word, times 2^-53."""
        left = len(self._block) - self._used
        if count > left:
            words = self._bits.random_raw(max(_BLOCK, count - left))
            fresh = (words >> np.uint64(11)) * 2.0**-53
            self._block = np.concatenate([self._block[self._used :], fresh])
            self._used = 0
        drawn = self._block[self._used : self._used + count]
        self._used += count
        return drawn

    def between(self, low: float, high: float, count: int) -> np.ndarray:
        """float64[count] in [low, high)."""
        return low + (high - low) * self.uniform(count)

    def below(self, bound: int) -> int:
        """An integer from 0 to ``bound`` - 1: a uniform draw times ``bound``, rounded down."""
        return int(self.uniform(1)[0] * bound)

    def integers(self, low: int, high: int, count: int) -> np.ndarray:
        """int64[count] from ``low`` to ``high``, both included."""
        return low + (self.uniform(count) * (high - low + 1)).astype(np.int64)

    def distinct(self, count: int, bound: int) -> list[int]:
        """``count`` different integers from 0 to ``bound`` - 1, every choice equally likely.

        The first ``count`` steps of Fisher and Yates' shuffle.
        """
        moved: dict[int, int] = {}
        chosen = []
        for position, share in enumerate(self.uniform(count).tolist()):
            other = position + int(share * (bound - position))
            chosen.append(moved.get(other, other))
            moved[other] = moved.get(position, position)
        return chosen
