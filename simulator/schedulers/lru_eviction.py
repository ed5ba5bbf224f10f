"""Weights that have not been used for longest make room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.model.graph import DataflowGraph


class LruEviction(Scheduler):
    """Another scheduler places tasks; wherever something waits for room in a memory space, the weights
    of the models that were used there longest ago are evicted until there is enough.

    Weights that a placed task needs stay. A model was used in a space when one of its tasks finished
    there last; ties: the model whose job came first.

    Args:
        scheduler: name or class path of the scheduler that places.
        options: arguments of its constructor.
    """

    name: ClassVar[str] = "lru_eviction"
    needs: ClassVar[frozenset[str]] = frozenset({"evict"})

    def __init__(self, scheduler: str = "fcfs", options: Mapping[str, Any] | None = None) -> None:
        from simulator.schedulers import create

        self.inner = create(scheduler, **(options or {}))
        self.needs = self.needs | self.inner.needs  # type: ignore[misc]
        self._used: dict[DataflowGraph, list[float]] = {}  # per space when last, seconds

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self.inner.begin(context)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        spaces = context.cluster.spaces
        for job in context.arrived:
            self._used.setdefault(context.jobs[job].graph, [-1.0] * len(spaces))
        for task in context.finished:
            graph = context.jobs[context.job_of(task)].graph
            self._used[graph][context.cluster.space_of[context.device_of(task)]] = context.now
        self.inner.decide(context)
        for space in range(len(spaces)):
            if context.waiting_bytes(space) > context.free_bytes(space):
                self._make_room(context, space)

    def _make_room(self, context: SchedulingContext, space: int) -> None:
        for graph in sorted(self._used, key=lambda graph: self._used[graph][space]):
            freed = context.evict(graph, space)
            if freed and context.explain:
                context.explain(
                    f"weights of '{graph.name}' leave {context.cluster.spaces[space].name}: "
                    f"{freed:.0f} bytes"
                )
            if context.waiting_bytes(space) <= context.free_bytes(space):
                return
