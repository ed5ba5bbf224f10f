"""Dynamic batching with a delay limit, as inference servers do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context.serving import BatchingContext
from simulator.model.units import parse_seconds
from simulator.serving.dispatching import Choice, Dispatcher
from simulator.serving.node import Group, Node


class DynamicBatching(Dispatcher):
    """A model runs when a full batch of its requests waits, or its oldest one has waited long enough;
    of several such models the one with the oldest request.

    Args:
        delay: longest that a request waits for others to join, like ``10ms``.
        max_batch: items at most in one execution.
        select, packing: see :class:`simulator.serving.dispatching.Dispatcher`.

    Source: NVIDIA Triton Inference Server, dynamic batcher (``max_queue_delay_microseconds``).
    """

    name: ClassVar[str] = "dynamic_batching"

    def __init__(
        self,
        delay: str = "10ms",
        max_batch: int = 16,
        select: str | Mapping[str, Any] = "home",
        packing: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(max_batch, select, packing)
        self.delay = parse_seconds(delay, "delay of dynamic batching")

    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """See :class:`Dispatcher`."""

        def due(group: Group, arrival: float, items: int) -> bool:
            full = items >= group.largest(self.max_batch, [device])
            return full or arrival + self.delay <= context.now

        jobs = context.jobs
        group = self.oldest(context, node, device, due)
        if group is not None:
            return Choice(group, self.fitting(context, group, [device]))
        # What this device cannot run, or what is due, waits for another device, not for time to pass.
        waiting = [
            jobs[group.queue[0]].arrival
            for group in node.groups.values()
            if group.queue and group.runs_on(context, device)
        ]
        if waiting:
            context.wake_at(max(context.now, min(waiting) + self.delay))
        return None
