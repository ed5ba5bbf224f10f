"""What an operator's output costs before it is written: allocating and freeing its memory.

``reused`` memory comes from the allocator, as in a process that has run the operator before;
``fresh`` memory comes from the system, page by page, as in one that has not.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Sequence
from typing import Any

from calibration.transfers import SIZES

FRESH_AT_MOST = 64 << 20
"""Bytes; a page costs the same in larger allocations."""


def _fastest(call: Callable[[], Any], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _first_touch(size: int) -> float:
    """Seconds by which writing new memory takes longer than writing it again, mapping included."""
    start = time.perf_counter()
    with mmap.mmap(-1, size) as memory:
        place = (ctypes.c_char * size).from_buffer(memory)
        ctypes.memset(place, 1, size)
        first = time.perf_counter()
        ctypes.memset(place, 2, size)
        again = time.perf_counter()
        del place
    return max(0.0, (first - start) - (again - first))


def measure(device: str, sizes: Sequence[int] = SIZES, repeats: int = 5) -> list[dict[str, Any]]:
    """The fastest of ``repeats`` allocations of each size, freeing included.

    Returns:
        Rows ``{"state", "bytes", "seconds"}``; the states are ``reused`` and ``fresh``. Fresh memory
        is every page touched first on a CPU (up to 64 MiB), and the driver's allocation on a GPU.
    """
    import torch

    def allocate(size: int) -> Callable[[], Any]:
        return lambda: torch.empty(size, dtype=torch.uint8, device=device)

    rows = []
    for size in sizes:
        call = allocate(size)
        call()
        rows.append({"state": "reused", "bytes": size, "seconds": _fastest(call, 4 * repeats)})
    for size in sizes:
        if device == "cpu":
            if size > FRESH_AT_MOST:
                continue
            seconds = min(_first_touch(size) for _ in range(repeats))
        else:
            torch.cuda.empty_cache()
            seconds = float("inf")
            for _ in range(repeats):
                start = time.perf_counter()
                memory = allocate(size)()
                del memory
                torch.cuda.empty_cache()
                seconds = min(seconds, time.perf_counter() - start)
        rows.append({"state": "fresh", "bytes": size, "seconds": seconds})
    return rows
