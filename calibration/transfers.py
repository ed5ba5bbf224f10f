"""Measured transfers: how long bytes take between memories, and what a kernel launch costs.

On a CPU there is one memory: a copy inside it. On a GPU: host to device and back, from pageable and
from pinned host memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SIZES = tuple(4**i * 1024 for i in range(10))
"""Bytes: 1 KiB to 256 MiB."""


def fit_line(size: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Latency (s) and bandwidth (bytes/s) of ``seconds = latency + size / bandwidth``.

    Relative least squares, so that small transfers decide the latency and large ones the bandwidth.
    """
    x, y = np.asarray(size, dtype=float), np.asarray(seconds, dtype=float)
    design = np.stack([1 / y, x / y], axis=1)
    (latency, slope), *_ = np.linalg.lstsq(design, np.ones_like(y), rcond=None)
    if latency < 0:  # a latency cannot be negative: the line through the origin
        latency, slope = 0.0, float((x / y).sum() / ((x / y) ** 2).sum())
    return float(latency), 1.0 / float(slope)


def _seconds(call: Callable[[], Any], wait: Callable[[], Any], repeats: int) -> float:
    call()
    wait()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def measure(device: str, sizes: Sequence[int] = SIZES, repeats: int = 5) -> list[dict[str, Any]]:
    """The fastest of ``repeats`` transfers of each size and way.

    Returns:
        Rows ``{"way", "bytes", "seconds"}``; the ways are ``copy`` on a CPU, and
        ``host_to_device``, ``device_to_host``, each ``_pinned`` or ``_pageable``, on a GPU, where the
        row ``launch`` gives the seconds of an empty kernel, launched and awaited.
    """
    import torch

    rows: list[dict[str, Any]] = []
    if device == "cpu":
        for size in sizes:
            source = torch.ones(size, dtype=torch.uint8)
            target = torch.zeros(size, dtype=torch.uint8)
            call = lambda s=source, t=target: t.copy_(s)  # noqa: E731
            seconds = _seconds(call, lambda: None, repeats)
            rows.append({"way": "copy", "bytes": size, "seconds": seconds})
        return rows
    wait = lambda: torch.cuda.synchronize(device)  # noqa: E731
    for size in sizes:
        there = torch.ones(size, dtype=torch.uint8, device=device)
        for memory in ("pinned", "pageable"):
            here = torch.ones(size, dtype=torch.uint8, pin_memory=memory == "pinned")
            for way, source, target in (
                ("host_to_device", here, there),
                ("device_to_host", there, here),
            ):
                call = lambda s=source, t=target: t.copy_(s, non_blocking=True)  # noqa: E731
                seconds = _seconds(call, wait, repeats)
                rows.append({"way": f"{way}_{memory}", "bytes": size, "seconds": seconds})
    small = torch.ones(1, device=device)
    rows.append({"way": "launch", "bytes": 0, "seconds": _seconds(small.zero_, wait, 50)})
    return rows
