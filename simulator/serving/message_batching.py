"""Packing of transmissions: what goes the same way waits a little and goes as one message.

One message of n inputs costs the latency once instead of n times, ``L + sum(bytes) / B`` rather than
``n L + sum(bytes) / B``; who waits for the others arrives later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.context.serving import BatchingContext
from simulator.model.units import parse_bytes, parse_seconds


@dataclass
class _Parcel:
    jobs: list[int] = field(default_factory=list)
    since: float = 0.0
    bytes: float = 0.0


class Outbox:
    """What waits to be sent, by source and destination; the answers of a batch go together, too.

    A parcel goes when it has ``size`` bytes, when its first input has waited for ``age``, or when nothing
    else is on the way (unless ``eager`` is off).

    Args:
        size: like ``256kB``; None: any.
        age: like ``5ms``.
        eager: whether a parcel goes as soon as its way is idle.

    Raises:
        InvalidInput: a quantity cannot be read.
    """

    def __init__(self, size: str | None = None, age: str = "5ms", eager: bool = True) -> None:
        self.size = math.inf if size is None else parse_bytes(size, "size of a packed message")
        self.age = parse_seconds(age, "age of a packed message")
        self.eager = eager
        self._parcels: dict[tuple[int, int], _Parcel] = {}

    def add(self, context: BatchingContext, job: int, source: int, destination: int) -> None:
        """Let a job's inputs, which lie in ``source``, go with the next parcel to ``destination``."""
        parcel = self._parcels.setdefault((source, destination), _Parcel())
        if not parcel.jobs:
            parcel.since = context.now
        parcel.jobs.append(job)
        graph = context.jobs[job].graph
        parcel.bytes += float(sum(graph.tensor_bytes[t] for t in graph.inputs))

    def forget(self, job: int) -> None:
        """A job's inputs need not go."""
        for parcel in self._parcels.values():
            if job in parcel.jobs:
                parcel.jobs.remove(job)

    def flush(self, context: BatchingContext) -> None:
        """Send what is due, and ask to be woken for what will be."""
        for (source, destination), parcel in self._parcels.items():
            if not parcel.jobs:
                continue
            due = parcel.since + self.age
            if self.eager:
                due = min(due, context.link_free(source, destination))
            if context.now >= due or parcel.bytes >= self.size:
                for job in parcel.jobs:
                    context.send(job, destination)
                if len(parcel.jobs) > 1:
                    context.pack(
                        (tensor, destination)
                        for job in parcel.jobs
                        for tensor in context.inputs_under_way(job)
                    )
                self._parcels[source, destination] = _Parcel()
            else:
                context.wake_at(due)
        self._pack_answers(context)

    def arrival(
        self, context: BatchingContext, source: int, destination: int, size: float
    ) -> float:
        """When ``size`` more bytes are believed to be there, with what waits to go the same way."""
        parcel = self._parcels.get((source, destination))
        waiting = parcel.bytes if parcel is not None else 0.0
        return context.transfer_end(size + waiting, source, destination)

    def _pack_answers(self, context: BatchingContext) -> None:
        """What was asked for at this instant, the answers of a batch above all, goes together."""
        together: dict[tuple[int, int], list[int]] = {}
        for wanted in context.requests():
            together.setdefault((wanted.source, wanted.destination), []).append(wanted.tensor)
        for (_, destination), tensors in together.items():
            if len(tensors) > 1:
                context.pack((tensor, destination) for tensor in tensors)
