"""Seconds of one kernel call, in a known state of the caches.

States (column ``cache`` of the measurement table):

``graph``
    as inside a model that is executed operator by operator: activations, output memory and code were
    used a moment ago and lie in the caches, the weights were not and lie in memory. Made by
    emptying all caches, running the operator once with other copies of its weights, then reading
    as much memory as the operator reads and writes activations, as its neighbours would that are of its
    size, then writing the first activation, which the operator before would just have made. The first
    timing after the caches were emptied is not kept where others follow: it finds even the interpreter's
    code in memory. ``python -m tests.benchmarks.in_place`` holds the sum of these times against models
    whose operators are timed in place; ``warm`` was 14-24% short where operators are small.
``warm``
    called again and again: everything that fits in a cache is there. The second call of an operator that reads
    more than the private cache does not find that yet: a last-level cache that takes what the private one drops
    keeps data only once they came back a few times. Such an operator is called until it has read
    :data:`SETTLED` times the last-level cache.
``cold``
    nothing was used recently, not even the code.
``awaited`` (GPUs only)
    as ``graph``, but by the host's clock, from an idle stream until the host knows that the operator has ended:
    dispatch, kernels and the wait for them. So long takes an operator that is launched and awaited, as
    :class:`calibration.runner.Machine` executes it; the other states hold its kernels alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from calibration.environment import last_level_cache, private_cache

AWAITED = "awaited"
KERNEL_STATES = ("graph", "warm", "cold")
CACHE_STATES = (*KERNEL_STATES, AWAITED)
PROTOCOL = 4
"""Samples of different protocols are not comparable. 1: without the write of the activation that was made last.
2, until 2026-11-23: reading several times the private cache in between whatever the operator's size, and keeping
the first timing of all but short operators. 3, until 2026-11-25: ``warm`` timed at once, whatever was in the
last-level cache by then."""
BETWEEN, BETWEEN_OLDER = 8, 12
"""Times the private cache: what is read from memory at most between two uses of an operator in state ``graph``;
more where it reads several activations, of which only one was made just before."""
TIMINGS, TIMINGS_LONGER = 4, 2
"""Of a short operator in a visit, and of one that is not :data:`LONG`, the first not being kept; each finds weights
that nobody has read."""
SETTLED, SETTLING = 4, 8e-3
"""Times the last-level cache that an operator reads before it is timed ``warm``, and seconds that this takes at
most."""
COPIED = 1 << 26
"""Bytes of weights at most that are copied for these; an operator of larger ones has fewer timings."""
CAPTURED = 20
SHORT_KERNEL = 2e-5
"""Kernels in a CUDA graph, and seconds below which a kernel is timed in one."""
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

    def once(self, call: Call, reads: Sequence[Any], cache: str) -> Timing:
        """Time one call, whatever the caches hold; ``cache`` is what that is called."""
        ...

    def visit(self, call: Call, reads: Sequence[Any], weights: Sequence[int] = ()) -> list[Timing]:
        """Time ``call(reads)``; ``weights`` are those of the reads that lie in memory in ``graph``."""
        ...


def _other_weights(reads: Sequence[Any], weights: Sequence[int]) -> Sequence[Any]:
    """The same activations with copies of the weights."""
    if not weights:
        return reads
    return [tensor.clone() if i in weights else tensor for i, tensor in enumerate(reads)]


class CpuTimer:
    """Times calls on the current core.

    Args:
        states: which of :data:`KERNEL_STATES`.
        repeats: warm calls in a visit; short calls get three times as many, long ones one.
    """

    def __init__(self, states: Sequence[str] = KERNEL_STATES, repeats: int = 2) -> None:
        import torch

        self.states = tuple(states)
        self.repeats = repeats
        self._buffer = torch.ones(2 * last_level_cache() // 4)
        self._next = 0

    def evict(self) -> None:
        """Read a buffer of twice the last-level cache; its first half is in no cache afterwards."""
        self._buffer.sum()
        self._next = 0

    def read_others(self, size: int) -> None:
        """Read ``size`` bytes that were not read lately, as other operators would."""
        length = min(size // 4, len(self._buffer) // 4)
        if self._next + length > len(self._buffer):
            self._next = 0
        self._buffer[self._next : self._next + length].sum()
        self._next += length

    @staticmethod
    def produce(tensor: Any) -> None:
        """Write every byte of a tensor's memory as it is: it was made a moment ago."""
        import torch

        torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).bitwise_or_(0)

    @staticmethod
    def first(call: Call, reads: Sequence[Any]) -> tuple[float, int]:
        """Seconds of a call, after one that compiles what its kernel compiles, and bytes of its results."""
        call(reads)
        start = time.perf_counter()
        result = call(reads)
        seconds = time.perf_counter() - start
        tensors = result if isinstance(result, tuple | list) else (result,)
        return seconds, sum(getattr(tensor, "nbytes", 0) for tensor in tensors)

    @staticmethod
    def once(call: Call, reads: Sequence[Any], cache: str) -> Timing:
        """See :class:`Timer`."""
        start = time.perf_counter_ns()
        result = call(reads)
        seconds = (time.perf_counter_ns() - start) * 1e-9
        del result  # not before the clock was read: a consumer would still hold it
        return Timing(cache, seconds, seconds)

    def visit(self, call: Call, reads: Sequence[Any], weights: Sequence[int] = ()) -> list[Timing]:
        """See :class:`Timer`."""
        found: list[Timing] = []
        length, written = self.first(call, reads)
        if "graph" in self.states:
            self._graph(call, reads, weights, found, length, written)
        if "warm" in self.states:
            for _ in range(self._settling_calls(reads, length)):
                call(reads)
            repeats = 1 if length > LONG else self.repeats * (1 if length > SHORT else 3)
            found += [self.once(call, reads, "warm") for _ in range(repeats)]
        if "cold" in self.states:
            self.evict()
            found.append(self.once(call, reads, "cold"))
        return found

    @staticmethod
    def _settling_calls(reads: Sequence[Any], length: float) -> int:
        """Calls of so many seconds until the last-level cache has what it will keep of what they read."""
        size = sum(tensor.nbytes for tensor in reads)
        if size <= private_cache():
            return 0
        return min(math.ceil(SETTLED * last_level_cache() / size), int(SETTLING / length))

    def _graph(
        self,
        call: Call,
        reads: Sequence[Any],
        weights: Sequence[int],
        found: list[Timing],
        length: float,
        written: int,
    ) -> None:
        """Timings in state ``graph`` of a call of about so many seconds that writes so many bytes."""
        spare = _other_weights(reads, weights)
        activations = [tensor for i, tensor in enumerate(reads) if i not in weights]
        most = (BETWEEN_OLDER if len(activations) > 1 else BETWEEN) * private_cache()
        between = min(most, written + sum(tensor.nbytes for tensor in activations))
        timings = TIMINGS if length < SHORT else TIMINGS_LONGER if length < LONG else 1
        size = sum(reads[i].nbytes for i in weights)
        timings = min(timings, 1 + COPIED // size) if size else timings
        # Weights that nothing has read since the caches were emptied, a set for each timing.
        unread = [reads, *(_other_weights(reads, weights) for _ in range(timings - 1))]
        self.evict()
        for number, given in enumerate(unread):
            call(spare)
            self.read_others(between)
            if activations:
                self.produce(activations[0])
            timing = self.once(call, given, "graph")
            if number or timings == 1:
                found.append(timing)


class CudaTimer:
    """Times kernels with CUDA events; the L2 cache is flushed by writing twice its size.

    The stream is kept busy while the host enqueues, so that the events enclose the kernel and not the
    host's delay; ``host_seconds`` is the host's own time for the call.

    A kernel that is shorter than a launch is lost in the events' own resolution. It is captured
    :data:`CAPTURED` times in a CUDA graph and its time is the graph's, less that of a graph of all that
    comes before it, over their number. What cannot be captured keeps the time by events. In state ``awaited``
    the host's clock is what counts, and nothing is captured.
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
        # Graphs of one pool use each other's memory once they are gone.
        self._side = torch.cuda.Stream(self.device)
        self._pool = torch.cuda.graph_pool_handle()

    def evict(self) -> None:
        """Write a buffer of twice the L2 cache."""
        self._buffer.zero_()

    def once(self, call: Call, reads: Sequence[Any], cache: str) -> Timing:
        """See :class:`Timer`."""
        if cache == AWAITED:
            return self._awaited(call, reads)
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

    def _awaited(self, call: Call, reads: Sequence[Any]) -> Timing:
        """A call on an idle stream, until its end is known."""
        stream = self._torch.cuda.current_stream(self.device)
        stream.synchronize()
        start = time.perf_counter_ns()
        result = call(reads)
        returned = time.perf_counter_ns()
        stream.synchronize()
        end = time.perf_counter_ns()
        del result
        return Timing(AWAITED, (end - start) * 1e-9, (returned - start) * 1e-9)

    def _graph_of(self, body: Callable[[], Any]) -> Any:
        """A CUDA graph of :data:`CAPTURED` times the body.

        Not by ``torch.cuda.graph``, which gives all cached memory back to the driver first: thousands of graphs
        would then allocate anew what the one before had.
        """
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        cuda.synchronize(self.device)
        try:
            with cuda.stream(self._side):
                graph.capture_begin(pool=self._pool)
                try:
                    for _ in range(CAPTURED):
                        body()
                except BaseException:
                    with contextlib.suppress(RuntimeError):
                        graph.capture_end()
                    raise
                graph.capture_end()
        except BaseException:
            self._forget_capture()
            raise
        return graph

    def _forget_capture(self) -> None:
        """A broken capture leaves memory of who knows what, and a generator that believes itself captured: torch
        up to 2.11 refuses random numbers from then on.
        """
        cuda = self._torch.cuda
        self._pool = cuda.graph_pool_handle()
        generator = cuda.default_generators[self._torch.device(self.device).index or 0]
        # The same seed and offset, not captured.
        generator.graphsafe_set_state(generator.clone_state())

    def _replays(self, body: Callable[[], Any]) -> list[float]:
        """Seconds of each of ``repeats`` replays of a graph of :data:`CAPTURED` times the body."""
        cuda = self._torch.cuda
        graph = self._graph_of(body)
        graph.replay()  # the first one uploads it
        found = []
        for _ in range(self.repeats):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) * 1e-3)
        graph.reset()
        return found

    def _before(
        self, cache: str, call: Call, reads: Sequence[Any], spare: Sequence[Any]
    ) -> Callable[[], Any]:
        """What brings about a state, just before the call."""
        if cache == "warm":
            return lambda: call(reads)

        def before() -> None:
            self.evict()
            if cache in ("graph", AWAITED):
                call(spare)

        return before

    def visit(self, call: Call, reads: Sequence[Any], weights: Sequence[int] = ()) -> list[Timing]:
        """See :class:`Timer`."""
        spare = _other_weights(reads, weights)
        for _ in range(2):
            call(reads)
        self._torch.cuda.synchronize(self.device)
        found = []
        for cache in self.states:
            before = self._before(cache, call, reads, spare)
            for _ in range(self.repeats):
                before()
                found.append(self.once(call, reads, cache))
        kernels = [timing for timing in found if timing.cache != AWAITED]
        if not kernels or min(timing.seconds for timing in kernels) >= SHORT_KERNEL:
            return found
        awaited = [timing for timing in found if timing.cache == AWAITED]
        return [*self._captured(call, reads, spare, kernels), *awaited]

    def _captured(
        self, call: Call, reads: Sequence[Any], spare: Sequence[Any], timed: list[Timing]
    ) -> list[Timing]:
        """The same timings, those of short kernels from graphs."""
        found = []
        for cache in dict.fromkeys(timing.cache for timing in timed):
            mine = [timing for timing in timed if timing.cache == cache]
            before = self._before(cache, call, reads, spare)
            try:
                alone = [0.0] if cache == "warm" else self._replays(before)
                # In state warm every call is preceded by one of its own kind.
                both = self._replays(
                    (lambda: call(reads)) if cache == "warm" else lambda: (before(), call(reads))  # noqa: B023
                )
            except RuntimeError as error:
                if "CUDA error" in str(error) and "captur" not in str(error):
                    raise
                found += mine
                continue
            floor = min(alone)
            seconds = [(whole - floor) / CAPTURED for whole in both]
            found += [
                Timing(cache, exact, timing.host_seconds) if exact > 0 else timing
                for exact, timing in zip(seconds, mine, strict=True)
            ]
        return found


def default_states(device: str) -> tuple[str, ...]:
    """The states measured unless others are asked for."""
    return ("graph", "warm") if device == "cpu" else ("graph", "warm", AWAITED)


def timer(device: str, states: Sequence[str] = KERNEL_STATES) -> Timer:
    """The timer of a device, ``cpu`` or ``cuda:<index>``."""
    return CpuTimer(states) if device == "cpu" else CudaTimer(device, states)
