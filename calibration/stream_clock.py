"""When a GPU's stream has come to a point, by the host's clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

KEPT_SECONDS = 0.5
"""After which the two clocks are compared anew; they drift by some microseconds a second."""


@dataclass(frozen=True)
class _Reference:
    """A point of a stream, and when the host knew that it had been reached."""

    event: torch.cuda.Event
    seconds: float


@dataclass(frozen=True)
class Mark:
    """A point of a stream. Use :meth:`StreamClock.mark`."""

    event: torch.cuda.Event
    reference: _Reference

    def wait(self) -> float:
        """Wait until the stream has come here, without the interpreter; returns when that was
        (``time.perf_counter``).

        Raises:
            RuntimeError: a kernel before it has failed.
        """
        self.event.synchronize()
        # The host knew of the reference some microseconds late; nothing has ended before it is known.
        since = 1e-3 * self.reference.event.elapsed_time(self.event)
        return min(time.perf_counter(), self.reference.seconds + since)


class StreamClock:
    """Marks points of a stream, which must be idle when this is made.

    Args:
        stream: of the calling thread.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._reference = self._compare()

    def mark(self) -> Mark:
        """The point behind everything that was launched so far."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return Mark(event, self._reference)

    def rests(self) -> None:
        """Nothing is to be launched at the moment: compare the clocks again if that was long ago."""
        if time.perf_counter() - self._reference.seconds > KEPT_SECONDS:
            self._reference = self._compare()

    def _compare(self) -> _Reference:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        event.synchronize()
        return _Reference(event, time.perf_counter())
