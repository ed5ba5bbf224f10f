"""Minimum completion time whose tasks wait until a device is idle, those first whose weights are cached.

An unrolled recurrent layer reads the same weights at every step, several jobs of a model read them in turn. Who
executes what reads the same weights one behind the other finds them cached; who takes tasks in the order in which they
became ready goes through all weights between two uses of any, and finds none.

Sources: Squillante, Lazowska, "Using Processor-Cache Affinity Information in Shared-Memory Multiprocessor
Scheduling", IEEE TPDS 4(2):131-143, 1993 (an idle processor looks for a task that finds its data cached); the devices are
those of MCT (:mod:`simulator.schedulers.mct`). That both are combined, and that a reuse distance says what is cached
(:mod:`simulator.weight_cache`), is this project's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simulator.arrival_order import that_work
from simulator.context import SchedulingContext
from simulator.explanation import compared
from simulator.pricing import check_pricing, data_ready
from simulator.scheduler import Scheduler
from simulator.weight_cache import WeightCaches, caches_weights


class CacheAffinity(Scheduler):
    """Ready tasks in the order of the seconds that cached weights save them (ties: the one that became ready
    first), each to the device on which it is estimated to finish first behind those before it; it is placed there once
    the device is idle and nobody comes before it, and looked at anew until then.

    What caches keep is believed to be what the clusters' reuse curves say of the tasks that were placed. Where
    none are known it is MCT whose tasks may still change their device while they wait.

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.pricing`.
    """

    name: ClassVar[str] = "cache_affinity"

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._waiting: list[int] = []  # in the order in which they became ready
        self._caches: WeightCaches | None = None

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
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
        lasting = {task: self._lasting(context, task) for task in self._waiting}
        order = sorted(self._waiting, key=lambda task: -lasting[task][1])
        for task in order:
            devices = that_work(context, context.able(task))
            arrivals = data_ready(context, task, devices, self.pricing)
            finishes = [
                (max(free[device], arrival) + lasting[task][0][device], device)
                for device, arrival in zip(devices, arrivals, strict=True)
            ]
            finish, device = min(finishes)
            if device in idle:
                self._place(context, task, device, lasting[task][1], finishes)
                if context.is_idle(device):  # another slot of it
                    continue
                idle.remove(device)
                if not idle:
                    return
            free[device] = finish

    def _lasting(self, context: SchedulingContext, task: int) -> tuple[Sequence[float], float]:
        """Seconds of a task on each device if it began now, and the most that caches save of them."""
        seconds = context.seconds(task)
        job = context.job_of(task)
        if self._caches is None or (parts := context.cached_parts(job)) is None:
            return seconds, 0.0
        graph, operator = context.jobs[job].graph, context.operator_of(task)
        saved = {
            device: seconds[device]
            * self._caches.kept(graph, operator, device)
            * (1.0 - float(parts[operator, device]))
            for device in context.able(task)
        }
        lasting = [second - saved.get(device, 0.0) for device, second in enumerate(seconds)]
        return lasting, max(saved.values())

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
