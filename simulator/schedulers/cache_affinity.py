"""Minimum completion time whose tasks wait until a device is idle, those first whose weights are cached.

An unrolled recurrent layer reads the same weights at every step, several jobs of a model read them in turn. Who
executes what reads the same weights one behind the other finds them cached; who takes tasks in the order in which they
became ready goes through all weights between two uses of any, and finds none.

Sources: Squillante, Lazowska, "Using Processor-Cache Affinity Information in Shared-Memory Multiprocessor
Scheduling", IEEE TPDS 4(2):131-143, 1993 (an idle processor looks for a task that finds its data cached); the devices are
those of MCT (:mod:`simulator.schedulers.mct`). That both are combined, and that a reuse distance says what is cached
(:mod:`simulator.devices.weight_cache`), is this project's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler, compared
from simulator.devices.weight_cache import WeightCaches, caches_weights
from simulator.model.graph import DataflowGraph
from simulator.schedulers._arrival_order import that_work
from simulator.schedulers._pricing import check_pricing, data_ready

Gain = tuple[tuple[int, float], ...]
"""Of an operator by memory space the seconds that cached weights can save it there."""


class CacheAffinity(Scheduler):
    """Ready tasks in the order of the seconds that cached weights save them (ties: the one that became ready
    first), each to the device on which it is estimated to finish first behind those before it; it is placed there once
    the device is idle and nobody comes before it, and looked at anew until then.

    What caches keep is believed to be what the cluster's reuse curves say of the tasks that were placed. Where
    none are known it is MCT whose tasks may still change their device while they wait.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
    """

    name: ClassVar[str] = "cache_affinity"

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._waiting: list[int] = []  # in the order in which they became ready
        self._caches: WeightCaches | None = None
        self._gains: dict[DataflowGraph, list[Gain]] = {}
        self._spaces: tuple[int, ...] = ()

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self._spaces = context.cluster.space_of
        if caches_weights(context.cluster):
            self._caches = WeightCaches(context.cluster)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        if context.lost or context.failed:
            self._waiting = [task for task in self._waiting if context.is_ready(task)]
        self._waiting += context.placeable
        idle = set(context.idle)
        if not idle or not self._waiting:
            return
        free = context.availabilities(range(len(context.cluster.devices)))
        savings = [(self._most_saved(context, task), task) for task in self._waiting]
        for saved, task in sorted(savings, key=lambda pair: -pair[0]):
            devices = that_work(context, context.able(task))
            arrivals = data_ready(context, task, devices, self.pricing)
            lasting = self._lasting(context, task) if saved else context.seconds(task)
            finishes = [
                (max(free[device], arrival) + lasting[device], device)
                for device, arrival in zip(devices, arrivals, strict=True)
            ]
            finish, device = min(finishes)
            if device in idle:
                self._place(context, task, device, saved, finishes)
                if context.is_idle(device):  # another slot of it
                    continue
                idle.remove(device)
                if not idle:
                    return
            free[device] = finish

    def _most_saved(self, context: SchedulingContext, task: int) -> float:
        """Seconds that caches would save a task where they save it most, if it began now."""
        if self._caches is None:
            return 0.0
        job, most = context.job_of(task), 0.0
        graph, operator = context.jobs[job].graph, context.operator_of(task)
        gains = self._gains.get(graph)
        if gains is None:
            gains = self._gains[graph] = self._gains_of(context, job)
        for space, gain in gains[operator]:
            saved = gain * self._caches.kept(graph, operator, space)
            if saved > most:
                most = saved
        return most

    def _gains_of(self, context: SchedulingContext, job: int) -> list[Gain]:
        parts = context.cached_parts(job)
        if parts is None:
            return [()] * len(context.jobs[job].graph)
        seconds = context.cost_matrix(job)
        gains = np.where(np.isfinite(seconds), seconds, 0.0) * (1.0 - parts)
        found: list[Gain] = []
        for row in gains.tolist():
            most: dict[int, float] = {}
            for space, gain in zip(self._spaces, row, strict=True):
                most[space] = max(gain, most.get(space, 0.0))
            found.append(tuple((space, gain) for space, gain in most.items() if gain > 0.0))
        return found

    def _lasting(self, context: SchedulingContext, task: int) -> Sequence[float]:
        """Seconds of a task on each device if it began now."""
        job = context.job_of(task)
        graph, operator = context.jobs[job].graph, context.operator_of(task)
        parts = context.cached_parts(job)
        if self._caches is None or parts is None:
            return context.seconds(task)
        kept = {space: self._caches.kept(graph, operator, space) for space in set(self._spaces)}
        return [
            second * (1.0 - kept[space] * (1.0 - part)) if math.isfinite(second) else second
            for second, space, part in zip(
                context.seconds(task), self._spaces, parts[operator].tolist(), strict=True
            )
        ]

    def _place(
        self,
        context: SchedulingContext,
        task: int,
        device: int,
        saved: float,
        finishes: Sequence[tuple[float, int]],
    ) -> None:
        if context.explain:
            name = context.cluster.devices[device].name
            why = f"caches save {saved:.6g}, finish {compared(device, finishes)}"
            context.explain(f"{context.label(task)} -> {name}: {why}")
        self._waiting.remove(task)
        if self._caches is not None:
            job = context.job_of(task)
            self._caches.use(context.jobs[job].graph, context.operator_of(task), device)
        context.place(task, device)
