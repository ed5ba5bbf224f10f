"""A plan made beforehand: every task on its device, in the plan's order."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.model.plan import Plan


class Planned(Scheduler):
    """Executes a plan: a partition's, or one that a file keeps (``plan.json`` of any run).

    Args:
        plan: what to do; the commands give that of the partition.
        file: where a plan lies, instead.

    Raises:
        InvalidInput: both are given, or the file is no plan.
    """

    name: ClassVar[str] = "planned"
    static: ClassVar[bool] = True

    def __init__(self, plan: Plan | None = None, file: str | None = None) -> None:
        if plan is not None and file is not None:
            raise InvalidInput(
                "Scheduler 'planned' has a plan of a partition and a file; leave one of them out"
            )
        self.plan = plan if file is None else Plan.load(Path(file).expanduser())
        if self.plan is not None:
            self.name = self.plan.origin  # type: ignore[misc]  # traces say what made the plan

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`.

        Raises:
            InvalidInput: there is no plan, or it is for other devices.
        """
        if self.plan is None:
            raise InvalidInput(
                "Scheduler 'planned' has no plan: name a partition (partition=cpu_gpu), or a file "
                "(scheduler.options.file=outputs/latest/plan.json)"
            )
        self.plan.check_devices(context.cluster)
        self._ranks = [
            tuple(column.tolist() for column in self.plan.of_job(job))
            for job in range(len(self.plan.graphs))
        ]

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        assert self.plan is not None  # since begin
        for job in context.arrived:
            self.plan.check_job(job, context.jobs[job])
            for task in context.tasks_of(job):
                self._place(context, task, job)
        for task in context.lost:
            self._place(context, task, context.job_of(task))

    def _place(self, context: SchedulingContext, task: int, job: int) -> None:
        device, rank = self._ranks[job]
        operator = task - context.tasks_of(job)[0]
        place, position = device[operator], rank[operator]
        context.place(task, place, rank=position)
        if context.explain:
            name = context.cluster.devices[place].name
            context.explain(f"{context.label(task)} -> {name}: place {position} of the plan")
