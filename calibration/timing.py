"""Seconds of one kernel call, in a known state of the caches.

States (column ``cache`` of the measurement table):

``graph``
    as inside a model that is executed operator by operator: activations, output memory and code were
    used a moment ago and lie in the last-level cache, the weights were not and lie in memory. Made by
    emptying all caches, running the operator once with other copies of its weights, then reading a
    buffer of a few times the private (L2) cache. On chains of BERT-like layers whose operators were
    timed in place, the sum of these times came within 4% of the chain; ``warm`` was 14-24% short where
    operators are small.
``warm``
    called again at once: everything that fits in a cache is there.
``cold``
    nothing was used recently, not even the code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from calibration.environment import last_level_cache, private_cache

CACHE_STATES = ("graph", "warm", "cold")
SHORT, LONG = 2e-4, 5e-3
"""Seconds: shorter calls than SHORT are repeated more often in a visit, longer than LONG less."""

Call = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """One timed call. ``host_seconds``: until the call returned; differs from ``seconds`` on a GPU."""

    cache: str
    seconds: float
    host_seconds: float


class Timer(Protocol):
    """Times a call in every state asked for."""

    def visit(self, call: Call, reads: Sequence[Any], spare: Sequence[Any] | None) -> list[Timing]:
        """Time ``call(reads)``; ``spare`` is the same with other copies of the weights, or None."""
        ...


class CpuTimer:
    """Times calls on the current core.

    Args:
        states: which of :data:`CACHE_STATES`.
        repeats: warm calls in a visit; short calls get three times as many, long ones one.
    """

    def __init__(self, states: Sequence[str] = CACHE_STATES, repeats: int = 2) -> None:
        import torch

        self.states = tuple(states)
        self.repeats = repeats
        self._buffer = torch.ones(2 * last_level_cache() // 4)
        # Eight times the private cache: what a few other operators leave behind between two uses.
        self._between = self._buffer[: min(8 * private_cache() // 4, len(self._buffer) // 4)]

    def evict(self) -> None:
        """Read a buffer of twice the last-level cache."""
        self._buffer.sum()

    @staticmethod
    def _once(call: Call, reads: Sequence[Any], cache: str) -> Timing:
        start = time.perf_counter_ns()
        result = call(reads)
        seconds = (time.perf_counter_ns() - start) * 1e-9
        del result  # not before the clock was read: a consumer would still hold it
        return Timing(cache, seconds, seconds)

    def visit(self, call: Call, reads: Sequence[Any], spare: Sequence[Any] | None) -> list[Timing]:
        """See :class:`Timer`."""
        found: list[Timing] = []
        if "graph" in self.states:
            length = self._graph(call, reads, spare, found)
            if length < SHORT:
                self._graph(call, reads, spare, found)
        else:
            length = self._once(call, reads, "").seconds  # compiles what the kernel compiles
        if "warm" in self.states:
            repeats = 1 if length > LONG else self.repeats * (1 if length > SHORT else 3)
            found += [self._once(call, reads, "warm") for _ in range(repeats)]
        if "cold" in self.states:
            self.evict()
            found.append(self._once(call, reads, "cold"))
        return found

    def _graph(
        self, call: Call, reads: Sequence[Any], spare: Sequence[Any] | None, found: list[Timing]
    ) -> float:
        """One timing in state ``graph``; returns its seconds."""
        self.evict()
        call(spare or reads)
        self._between.sum()
        timing = self._once(call, reads, "graph")
        found.append(timing)
        return timing.seconds


class CudaTimer:
    """Times kernels with CUDA events; the L2 cache is flushed by writing twice its size.

    The stream is kept busy while the host enqueues, so that the events enclose the kernel and not the
    host's delay; ``host_seconds`` is the host's own time for the call.
    """

    def __init__(self, device: str, states: Sequence[str] = CACHE_STATES, repeats: int = 5) -> None:
        import torch

        self._torch = torch
        self.device = torch.device(device)
        self.states = tuple(states)
        self.repeats = repeats
        torch.cuda.set_device(self.device)
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size
        self._buffer = torch.empty(2 * cache, dtype=torch.uint8, device=self.device)
        # About 300 us at 1.5 GHz: longer than enqueueing one operator takes.
        self._busy_cycles = 450_000

    def evict(self) -> None:
        """Write a buffer of twice the L2 cache."""
        self._buffer.zero_()

    def _once(self, call: Call, reads: Sequence[Any], cache: str) -> Timing:
        cuda = self._torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda._sleep(self._busy_cycles)
        start.record()
        begin = time.perf_counter_ns()
        result = call(reads)
        host = (time.perf_counter_ns() - begin) * 1e-9
        end.record()
        end.synchronize()
        del result
        return Timing(cache, start.elapsed_time(end) * 1e-3, host)

    def visit(self, call: Call, reads: Sequence[Any], spare: Sequence[Any] | None) -> list[Timing]:
        """See :class:`Timer`."""
        for _ in range(2):
            call(reads)
        self._torch.cuda.synchronize(self.device)
        found = []
        for _ in range(self.repeats):
            if "cold" in self.states:
                self.evict()
                found.append(self._once(call, reads, "cold"))
            if "graph" in self.states:
                self.evict()
                call(spare or reads)
                found.append(self._once(call, reads, "graph"))
            if "warm" in self.states:
                call(reads)
                found.append(self._once(call, reads, "warm"))
        return found


def default_states(device: str) -> tuple[str, ...]:
    """The states measured unless others are asked for; emptying a CPU's caches takes long."""
    return ("graph", "warm") if device == "cpu" else CACHE_STATES


def timer(device: str, states: Sequence[str] = CACHE_STATES) -> Timer:
    """The timer of a device, ``cpu`` or ``cuda:<index>``."""
    return CpuTimer(states) if device == "cpu" else CudaTimer(device, states)
