"""What on-line list schedulers share: ready tasks by priority, each at once to a device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler, compared
from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.priorities import rounded_all
from simulator.planners.ranking import Ranking
from simulator.schedulers._equal_devices import EqualDevices
from simulator.schedulers._pricing import best_device, check_pricing, estimated_finishes


class ReadyList(Scheduler):
    """Ready tasks by decreasing priority, each at once to the device of least estimated finish (ties:
    the task that became ready first, then the smaller id; the device of smaller id).

    Args:
        pricing: how the way of the data is priced, see :mod:`simulator.schedulers._pricing`.
    """

    def __init__(self, pricing: str = "per_link") -> None:
        self.pricing = check_pricing(pricing)
        self._equal: EqualDevices | None = None
        self._ready: list[tuple[float, float, int]] = []
        self._priorities: dict[DataflowGraph, list[float]] = {}

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        self._equal = EqualDevices.of(context, self.pricing)

    @abstractmethod
    def priorities(self, context: SchedulingContext, job: int) -> Sequence[float]:
        """Priority of every operator of a job, larger first; asked for once a graph."""

    def choose(self, context: SchedulingContext, task: int, devices: Sequence[int]) -> int:
        """The device for a task."""
        if self._equal:
            return self._equal.best(task)
        return best_device(context, task, devices, self.pricing)

    def scores(
        self, context: SchedulingContext, task: int, devices: Sequence[int]
    ) -> list[tuple[float, int]]:
        """What :meth:`choose` goes by: (seconds, device); only for those who listen."""
        return estimated_finishes(context, task, devices, self.pricing)

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        if self._equal:
            self._equal.look()
        self._take_in(context)
        self._place_all(context)

    def _take_in(self, context: SchedulingContext) -> None:
        """Put what became ready into the list."""
        now = context.now
        for task in context.placeable:
            job = context.job_of(task)
            graph = context.jobs[job].graph
            if graph not in self._priorities:
                self._priorities[graph] = rounded_all(np.array(self.priorities(context, job)))
            priority = self._priorities[graph][context.operator_of(task)]
            heappush(self._ready, (-priority, now, task))

    def _place_all(self, context: SchedulingContext) -> None:
        equal = self._equal
        while self._ready:
            negative, _, task = heappop(self._ready)
            able = context.able(task)
            device = self.choose(context, task, able)
            if context.explain:
                name = context.cluster.devices[device].name
                text = compared(device, self.scores(context, task, able))
                why = self.why(context, task, -negative)
                context.explain(f"{context.label(task)} ({why}) -> {name}: {text}")
            context.place(task, device)
            if equal:
                equal.placed(device)

    def why(self, context: SchedulingContext, task: int, priority: float) -> str:
        """The numbers behind a task's place in the queue."""
        return f"priority {priority:.6g}"


R = TypeVar("R", bound=Ranking)


class RankedReadyList(ReadyList, Generic[R]):
    """The on-line form of a planned list scheduler: its priorities and its choice of devices, with
    the prices of the moment at which a task is ready.
    """

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        super().begin(context)
        self._communication = Communication(context.cluster)
        self._rankings: dict[DataflowGraph, R] = {}

    @abstractmethod
    def rank(self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication) -> R:
        """See :class:`simulator.planners.list_planner.ListPlanner`."""

    def ranking(self, context: SchedulingContext, job: int) -> R:
        """The ranking of a job's graph, made once a graph."""
        graph = context.jobs[job].graph
        if graph not in self._rankings:
            seconds = context.cost_matrix(job)
            self._rankings[graph] = self.rank(graph, seconds, self._communication)
        return self._rankings[graph]

    def priorities(self, context: SchedulingContext, job: int) -> Sequence[float]:
        """See :class:`ReadyList`."""
        return self.ranking(context, job).priorities

    def why(self, context: SchedulingContext, task: int, priority: float) -> str:
        """See :class:`ReadyList`."""
        return self.ranking(context, context.job_of(task)).why(context.operator_of(task))
