"""What one decision asks for between two memory spaces goes as one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context.scheduler import Scheduler
from simulator.context.scheduling import RequestedTransfer, SchedulingContext


class Packed(Scheduler):
    """Another scheduler decides; after it, wherever two or more tensors were asked for from one memory
    space to one other, they are packed into one message.

    That takes in what its placements asked for and what finishes of the same instant sent off: outputs
    for tasks placed ahead (``push``), inputs of tasks that became ready (``pull``), results to be
    delivered. Weights on demand cross alone.

    A message spends its latency once, and all of it is there only at its end. Where transfers stand in
    line (``fifo``) ``n`` tensors are there ``n - 1`` latencies earlier than the last of them would be,
    yet the first no earlier than the last; elsewhere (``none``, ``fair``) latencies pass side by side,
    and packing only delays. The scheduler that decides knows nothing of it: while it does, its transfers
    still stand alone (``pricing=per_link`` prices a task's as packed).

    Args:
        scheduler: name or class path of the scheduler that decides.
        options: arguments of its constructor.
    """

    name: ClassVar[str] = "packed"
    needs: ClassVar[frozenset[str]] = frozenset({"pack"})

    def __init__(self, scheduler: str = "donf", options: Mapping[str, Any] | None = None) -> None:
        from simulator.schedulers import create

        self.inner = create(scheduler, **(options or {}))
        self.needs = self.needs | self.inner.needs  # type: ignore[misc]

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self.inner.begin(context)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self.inner.decide(context)
        parcels: dict[tuple[int, int], list[RequestedTransfer]] = {}
        for asked in context.requests():
            parcels.setdefault((asked.source, asked.destination), []).append(asked)
        for (source, destination), parcel in sorted(parcels.items()):
            if len(parcel) < 2:
                continue
            context.pack([(asked.tensor, destination) for asked in parcel])
            if context.explain:
                spaces = context.cluster.spaces
                size = sum(asked.bytes for asked in parcel)
                context.explain(
                    f"{len(parcel)} tensors, {size:.6g} bytes, {spaces[source].name} -> "
                    f"{spaces[destination].name} as one message"
                )
