"""First come first served, with what can join the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context.serving import BatchingContext
from simulator.serving.dispatching import Choice, Dispatcher
from simulator.serving.node import Node


class FCFSBatching(Dispatcher):
    """The model of the oldest waiting request runs next, with as many of its requests as fit.

    Args:
        max_batch: items at most in one execution; 1 is plain first come first served.
        by_priority: requests of a higher priority come first, the oldest of them before the others;
            those of lower priority fill up their batch (Cobham, Operations Research 2(1), 1954,
            doi:10.1287/opre.2.1.70).
        select, packing: see :class:`simulator.serving.dispatching.Dispatcher`.

    Source: the usual baseline of serving systems, e.g. D. Crankshaw et al., *Clipper: a low-latency online
    prediction serving system*, NSDI 2017.
    """

    name: ClassVar[str] = "fcfs_batching"

    def __init__(
        self,
        max_batch: int = 16,
        select: str | Mapping[str, Any] = "home",
        packing: Mapping[str, Any] | None = None,
        by_priority: bool = False,
    ) -> None:
        super().__init__(max_batch, select, packing)
        self.by_priority = by_priority

    def choose(self, context: BatchingContext, node: Node, device: int) -> Choice | None:
        """See :class:`Dispatcher`."""
        group = self.oldest(context, node, device)
        return None if group is None else Choice(group, self.fitting(context, group, [device]))
