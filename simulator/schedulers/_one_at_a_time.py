"""What schedulers of staged jobs share: stages as chains of phases, and one task at a time on each device.

A phase is a task, on the device that takes least time for it (ties: the smaller number), usually the only one that
can run it. The phases of a stage follow one another on devices of ascending numbers (network, processor, disk),
with nothing else between them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.model.graph import DataflowGraph
from simulator.planners.priorities import rounded_all
from simulator.planners.ranks import longest_ways


class Stages:
    """The stages of one graph, believed seconds.

    Attributes:
        device: of each operator.
        phases: of each operator its seconds and those of the later phases of its stage.
        rank: of each operator the longest path to the end, its own seconds included; rounded.
        tail: the part of it that lies behind the operator's stage; rounded.
        is_first: of each operator whether its stage begins with it.
        children: of each operator those that follow its stage.
        total: seconds of all operators.
        after: of each operator the device of its stage's next phase, or the first device of a child's.
        most: phases of the stage that has most.
    """

    def __init__(self, graph: DataflowGraph, seconds: np.ndarray) -> None:
        self.device: list[int] = seconds.argmin(axis=1).tolist()
        own: list[float] = seconds.min(axis=1).tolist()
        successors, parents = graph.successors, graph.in_degree.tolist()
        rank = longest_ways(graph, own)
        self.phases: list[tuple[float, ...]] = [()] * len(own)
        self.children: list[Sequence[int]] = [()] * len(own)
        self.is_first = [True] * len(own)
        tail = [0.0] * len(own)
        self.after = [self.device[after[0]] if after else 0 for after in successors]
        for i in range(len(own) - 1, -1, -1):
            after = successors[i]
            if (
                len(after) == 1
                and parents[after[0]] == 1
                and self.device[after[0]] > self.device[i]
            ):
                (j,) = after
                self.is_first[j] = False
                self.phases[i] = (own[i], *self.phases[j])
                self.children[i], tail[i] = self.children[j], tail[j]
            else:
                self.phases[i] = (own[i],)
                self.children[i] = after
                tail[i] = max((rank[j] for j in after), default=0.0)
        self.rank, self.tail = rounded_all(np.array(rank)), rounded_all(np.array(tail))
        self.total = sum(own)
        self.most = max(map(len, self.phases))


class OneAtATime(Scheduler):
    """A device gets its next task when it has none, so that no two share its rate; :meth:`choose` says which.

    Attributes:
        waiting: by device the ready tasks that are not placed, the oldest first.
        free_at: by device when its task is believed to end.
        left: by job the seconds that are not placed.
        of_graph: the stages of the graphs of all jobs so far.
    """

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        self.waiting: list[list[int]] = [[] for _ in context.cluster.devices]
        self.free_at = [0.0] * len(context.cluster.devices)
        self.left: dict[int, float] = {}
        self.of_graph: dict[DataflowGraph, Stages] = {}
        self._of_job: dict[int, tuple[Stages, int]] = {}

    @abstractmethod
    def choose(self, context: SchedulingContext, waiting: Sequence[int]) -> int:
        """The task that a device runs next, of two or more that wait for it, the oldest first."""

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if context.lost or context.failed:
            self.waiting = [[t for t in tasks if context.is_ready(t)] for tasks in self.waiting]
        for job in context.arrived:
            self.admit(context, job)
        for task in context.placeable:
            stages, operator = self.stages(context, task)
            self.waiting[stages.device[operator]].append(task)
        for device, waiting in enumerate(self.waiting):
            if not waiting or context.slots_in_use(device) or not context.is_up(device):
                continue
            task = waiting[0] if len(waiting) == 1 else self.choose(context, waiting)
            waiting.remove(task)
            self.start(context, task, device)
            if context.explain:
                stages, operator = self.stages(context, task)
                name = context.cluster.devices[device].name
                phases = " + ".join(f"{seconds:.6g}" for seconds in stages.phases[operator])
                context.explain(
                    f"{context.label(task)} -> {name}: phases {phases} s, rank {stages.rank[operator]:.6g}, "
                    f"chosen of {len(waiting) + 1} that wait"
                )

    def admit(self, context: SchedulingContext, job: int) -> None:
        """Look at the stages of a job that arrived."""
        graph = context.jobs[job].graph
        if graph not in self.of_graph:
            self.of_graph[graph] = Stages(graph, context.cost_matrix(job))
        self._of_job[job] = (self.of_graph[graph], context.tasks_of(job)[0])
        self.left[job] = self.of_graph[graph].total

    def start(self, context: SchedulingContext, task: int, device: int) -> None:
        """Place a task on its device, which has none."""
        stages, operator = self.stages(context, task)
        self.free_at[device] = context.now + stages.phases[operator][0]
        self.left[context.job_of(task)] -= stages.phases[operator][0]
        context.place(task, device)

    def stages(self, context: SchedulingContext, task: int) -> tuple[Stages, int]:
        """The stages of a task's job, and its operator."""
        stages, first = self._of_job[context.job_of(task)]
        return stages, task - first
