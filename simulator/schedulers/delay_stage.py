"""Stages of jobs delayed before the run, so that those that run together want different devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.schedulers._one_at_a_time import Stages


class DelayStage(Scheduler):
    """All ready tasks run at once and share their devices, but a stage begins its delay after it is ready.

    When jobs arrive, their stages' delays are searched, those that arrive together jointly, as if nothing
    else ran: stage by stage, the longest path behind first, each delay is set to the one of ``steps`` + 1
    that gives the shortest makespan, from none to what would make the stage the last to end. Of equal ones the
    shortest. Nothing is planned anew when a run goes differently.

    Args:
        steps: delays that are tried of each stage, besides none.

    Raises:
        InvalidInput: there are no steps.

    Source: after Shao et al., *Stage delay scheduling for speeding up DAG-style data analytics jobs with resource
    interleaving*, ICPP 2019 (of its abstract and github.com/icloud-ecnu/delaystage: a delay for each stage that
    minimises the makespan); the search is a reconstruction.
    """

    name: ClassVar[str] = "delay_stage"

    def __init__(self, steps: int = 8) -> None:
        if steps < 1:
            raise InvalidInput(f"Scheduler 'delay_stage' has steps {steps}; give at least 1")
        self.steps = steps
        self._device: dict[int, int] = {}
        self._delays: dict[int, float] = {}
        self._held: list[tuple[float, int]] = []

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if context.arrived:
            self._plan(context)
        if context.lost or context.failed:
            self._held = sorted((due, t) for due, t in self._held if context.is_ready(t))
        for task in context.placeable:
            delay = self._delays.pop(task, 0.0)
            heappush(self._held, (context.now + delay, task))
            if delay:
                context.wake_at(context.now + delay)
            if context.explain:
                name = context.cluster.devices[self._device[task]].name
                context.explain(f"{context.label(task)} -> {name}: {delay:.6g} s after it is ready")
        while self._held and self._held[0][0] <= context.now:
            task = heappop(self._held)[1]
            context.place(task, self._device[task])

    def _plan(self, context: SchedulingContext) -> None:
        """Delays of the first phases of the jobs that arrived."""
        numbers: list[int] = []
        shop = Shop()
        ranks: list[float] = []
        starts: list[int] = []
        for job in context.arrived:
            tasks, graph = context.tasks_of(job), context.jobs[job].graph
            stages = Stages(graph, context.cost_matrix(job))
            self._device |= zip(tasks, stages.device, strict=True)
            starts += [len(numbers) + i for i, first in enumerate(stages.is_first) if first]
            shop.add(stages, graph.successors)
            ranks += stages.rank
            numbers += tasks
        delays = [0.0] * len(numbers)
        best, began = shop.run(delays)
        for first in sorted(starts, key=lambda i: (-ranks[i], i)):
            longest = best - began[first] - ranks[first]
            tried = delays.copy()
            for step in range(1, self.steps + 1 if longest > 0 else 1):
                tried[first] = longest * step / self.steps
                makespan, begins = shop.run(tried)
                if makespan < best * (1 - 1e-9):
                    best, began, delays = makespan, begins, tried.copy()
        self._delays |= {numbers[i]: delay for i, delay in enumerate(delays) if delay}


class Shop:
    """Tasks on devices that share their rate, in seconds; a fluid model of jobs that are alone."""

    def __init__(self) -> None:
        self._device: list[int] = []
        self._seconds: list[float] = []
        self._successors: list[list[int]] = []
        self._parents: list[int] = []

    def add(self, stages: Stages, successors: Sequence[Sequence[int]]) -> None:
        """Add the tasks of a job."""
        base = len(self._device)
        self._device += stages.device
        self._seconds += [phases[0] for phases in stages.phases]
        self._successors += [[base + j for j in after] for after in successors]
        self._parents += [0] * len(successors)
        for after in self._successors[base:]:
            for j in after:
                self._parents[j] += 1

    def run(self, delays: Sequence[float]) -> tuple[float, list[float]]:
        """The makespan, and when each task begins.

        Args:
            delays: of each task, from when it is ready.
        """
        devices = max(self._device) + 1
        # A device's clock goes at its tasks' common rate: a task ends when the clock has gone on by its seconds.
        clock = [0.0] * devices
        running: list[list[tuple[float, int]]] = [[] for _ in range(devices)]
        pending = self._parents.copy()
        began = [math.inf] * len(pending)
        waiting = [(delays[task], task) for task, count in enumerate(pending) if not count]
        waiting.sort()
        now = 0.0
        while True:
            while waiting and waiting[0][0] <= now:
                _, task = heappop(waiting)
                began[task], device = now, self._device[task]
                heappush(running[device], (clock[device] + self._seconds[task], task))
            ends = [
                now + (tasks[0][0] - clock[device]) * len(tasks) if tasks else math.inf
                for device, tasks in enumerate(running)
            ]
            moment = min(*ends, waiting[0][0] if waiting else math.inf)
            if moment == math.inf:
                return now, began
            for device, tasks in enumerate(running):
                if tasks:
                    ending = ends[device] <= moment
                    # Exactly at its end, not a rounding before it.
                    clock[device] = (
                        tasks[0][0] if ending else clock[device] + (moment - now) / len(tasks)
                    )
            now = moment
            for device, tasks in enumerate(running):
                while tasks and tasks[0][0] <= clock[device]:
                    for after in self._successors[heappop(tasks)[1]]:
                        pending[after] -= 1
                        if not pending[after]:
                            heappush(waiting, (now + delays[after], after))
