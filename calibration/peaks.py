"""Measured peaks of a device: the rates that the roofline divides by.

A datasheet's peak is not reached by real kernels; the best rate that a large matrix product and a
large copy reach here is what a kernel can hope for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from calibration.environment import matrix_precision


def _fastest(call: Callable[[], Any], device: str, budget: float) -> float:
    """Seconds of the fastest of the calls that fit into ``budget`` seconds (at least three)."""
    import torch

    best, used, calls = float("inf"), 0.0, 0
    call()
    while calls < 3 or used < budget:
        if device == "cpu":
            start = time.perf_counter()
            call()
            seconds = time.perf_counter() - start
        else:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            seconds = begin.elapsed_time(end) * 1e-3
        best, used, calls = min(best, seconds), used + seconds, calls + 1
    return best


SLOW = 1.0
"""Seconds; a product that would take longer is not waited for, a smaller one tells the rate."""


def _rate(a: Any, device: str, budget: float) -> float:
    """FLOP/s of the product of a square matrix with itself.

    Of its corner where an element type has no fast kernel (bfloat16 on many CPUs) and the whole product
    would take seconds: such a kernel is fastest where all of a product lies in the caches.
    """
    if device == "cpu":
        corner = a[: len(a) // 4, : len(a) // 4].contiguous()
        if 64 * _fastest(lambda: corner @ corner, device, 0.0) > SLOW:
            a = corner
    return 2.0 * len(a) ** 3 / _fastest(lambda: a @ a, device, budget)


def measure(
    device: str, budget: float = 0.5, dtypes: Sequence[str] = ("float32",)
) -> dict[str, Any]:
    """Peak FLOP/s per element type, and bandwidth in bytes/s (a copy's reads and writes).

    Args:
        device: ``cpu`` or ``cuda:<index>``.
        budget: seconds for each figure.
        dtypes: element types, of :data:`calibration.samples.DTYPES`.

    Returns:
        ``{"flops_per_s": {dtype: float}, "bandwidth_bytes_per_s": float, "call_overhead_s": float}``;
        the overhead is the time of the smallest addition, host side.
    """
    import torch

    size, numbers = (1536, 1 << 25) if device == "cpu" else (8192, 1 << 28)
    rates = {}
    for dtype in dtypes:
        kept = "float32" if dtype == "tf32" else dtype
        a = torch.randn(size, size, device=device).to(getattr(torch, kept))
        with matrix_precision(device, dtype == "tf32"):
            rates[dtype] = _rate(a, device, budget)
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    seconds = _fastest(lambda: target.copy_(source), device, budget)
    small = torch.ones(1, device=device)
    overhead = _fastest(lambda: small + small, device, 0.02)
    return {
        "flops_per_s": rates,
        "bandwidth_bytes_per_s": 8.0 * numbers / seconds,
        "call_overhead_s": overhead,
    }
