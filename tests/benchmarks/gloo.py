"""Two processes that communicate by gloo over the loopback interface, each with a core and a torch thread of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from calibration import environment
from calibration.transfers import SIZES, fit_line
from simulator.support.exit_with_parent import end_with

TIMEOUT_S = 120
BUCKETS, MESSAGES = (1 << 20, 1 << 28), (1 << 14, 1 << 24)
"""Bytes between which lines are fitted: what steps sum and send. Below, a wake-up that waits for another thread's time
slice decides."""


def in_two_processes(task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``task(rank, *arguments)`` returns in each of two processes that can communicate."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        spawn = get_context("spawn")
        theirs, _ours = spawn.Pipe(duplex=False)
        with ProcessPoolExecutor(2, spawn, initializer=end_with, initargs=(theirs,)) as pool:
            running = [pool.submit(_joined, r, meeting, task, arguments) for r in (0, 1)]
            return [future.result() for future in running]


def _joined(rank: int, meeting: str, task: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    cores = sorted(os.sched_getaffinity(0))
    environment.pin(cores[rank % len(cores)])
    torch.set_num_threads(1)
    settle()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo",
        f"file://{meeting}",
        timedelta(seconds=TIMEOUT_S),
        rank=rank,
        world_size=2,
    )
    try:
        return task(rank, *arguments)
    finally:
        distributed.destroy_process_group()


def settle() -> None:
    """Memory that is kept and no denormal numbers, as operators are timed."""
    environment.steady_allocator()
    environment.flush_denormals()


@dataclass(frozen=True)
class Communication:
    """Median seconds by bytes, and the share of an all-reduce in which a process's own core computes."""

    all_reduce: Mapping[int, float]
    message: Mapping[int, float]
    computing: float

    @property
    def all_reduce_line(self) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s)."""
        return _line(self.all_reduce, BUCKETS)

    @property
    def message_line(self) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s)."""
        return _line(self.message, MESSAGES)


def _line(seconds: Mapping[int, float], between: tuple[int, int]) -> tuple[float, float]:
    found = {size: s for size, s in seconds.items() if between[0] <= size <= between[1]}
    return fit_line(list(found), list(found.values()))


def communication(rank: int, sizes: Sequence[int] = SIZES, repeats: int = 25) -> Communication:
    """Measure what gloo takes between two processes that do nothing else."""
    all_reduce, message, busy = {}, {}, 0.0
    for size in sizes:
        buffer = torch.zeros(size // 4)

        def reduce(buffer: torch.Tensor = buffer) -> None:
            distributed.all_reduce(buffer)

        def there_and_back(buffer: torch.Tensor = buffer) -> None:
            back = torch.empty_like(buffer)
            receiving = distributed.irecv(back, 1 - rank)
            if rank == 1:
                receiving.wait()
            distributed.isend(buffer, 1 - rank).wait()
            if rank == 0:  # a message can be waited for once
                receiving.wait()

        seconds, share = _seconds(reduce, repeats)
        all_reduce[size], busy = seconds, share
        message[size] = _seconds(there_and_back, repeats)[0] / 2
    return Communication(all_reduce, message, busy)


def _seconds(call: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median seconds, and the share in which this process computed."""
    found, computed = [], 0.0
    for repeat in range(repeats + 1):
        distributed.barrier()
        began, used = time.perf_counter(), time.process_time()
        call()
        if repeat:
            found.append(time.perf_counter() - began)
            computed += time.process_time() - used
    return float(np.median(found)), computed / sum(found)
