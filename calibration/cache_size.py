"""How much of a large last-level cache a program really has.

A server says the cache of a whole socket, hundreds of megabytes, and a virtual machine on it repeats that: its two
cores share it with a hundred others, or with nobody. To empty what is stated takes longer than the kernels that
are to be timed; to empty less than there is leaves weights where they should not be. So a buffer is read again and
again: where the rate falls from that of a part that surely fits to that of memory is the size.

On a ``Intel Xeon (family 6 model 167)`` that states 480 MiB, one core reads 27 GiB/s up to 64 MiB, 16 to 19 at 96 MiB
and 16 from 256 MiB on.
"""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable

BELIEVED = 64 << 20
"""Bytes; a stated size up to this is taken as it is."""
PASSES = 5
"""Over each size, of which the median counts; the first that brings it into the cache does not."""
HALF = 0.5
"""Of what reading from the cache saves: a size of which less is saved does not fit."""


def found_cache(stated: int, seconds_per_byte: Callable[[int], float]) -> int:
    """Bytes of the cache: :data:`BELIEVED`, doubled until so much does not fit any more, at most what is stated.

    Args:
        stated: bytes that the system says.
        seconds_per_byte: of reading so many bytes that were just read.
    """
    inside, outside = seconds_per_byte(BELIEVED // 2), seconds_per_byte(2 * stated)
    slowest = outside - HALF * (outside - inside)
    size = BELIEVED
    while size < stated and seconds_per_byte(size) < slowest:
        size *= 2
    return min(size, stated)


class Reading:
    """Times one thread's reading of a buffer from its start.

    Args:
        size: bytes of the buffer, which exists as long as this.
    """

    def __init__(self, size: int) -> None:
        import torch

        # Memory of its own, given back afterwards: measuring processes keep what they allocate.
        self._memory = mmap.mmap(-1, size)
        self._buffer = torch.frombuffer(self._memory, dtype=torch.float32)
        self._buffer.fill_(1.0)

    def seconds_per_byte(self, size: int) -> float:
        """Of the median pass over the first ``size`` bytes, right after another."""
        part = self._buffer[: size // 4]
        part.sum()
        found = []
        for _ in range(PASSES):
            start = time.perf_counter()
            part.sum()
            found.append(time.perf_counter() - start)
        return statistics.median(found) / size


def effective_cache(stated: int) -> int:
    """Bytes of the last-level cache that a core of this machine has, where the system says so many."""
    from calibration.environment import alone_on

    if stated <= BELIEVED:
        return stated
    with alone_on(None):
        return found_cache(stated, Reading(2 * stated).seconds_per_byte)
