"""What static list schedulers share: the plan of a job grows by one task at a time."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from simulator.context import SchedulingContext
from simulator.planners.communication import Communication
from simulator.planners.timeline import Timeline
from simulator.scheduler import Scheduler

Choice = tuple[float, int, int, float]
"""A task on a device: end, device, slot and start. The smallest of several ends first; ties go to the
smaller device."""


class Draft:
    """The plan of one job while it is made, behind and between the plans of earlier jobs.

    Transfers are believed as ``push`` without contention, and outputs to be wanted where they are
    written. Devices that are down get only what nothing else can run.

    Attributes:
        graph: the job's graph.
        job: its number.
        seconds: believed, [operator][device], ``inf`` where a device cannot run it.
        communication: transfer times.
        finish: planned, by operator; 0 before it is booked.
        device: by operator, -1 before it is booked.
    """

    def __init__(
        self,
        context: SchedulingContext,
        job: int,
        communication: Communication,
        timelines: list[list[Timeline]],
        insertion: bool,
    ) -> None:
        self._context = context
        self._timelines = timelines
        self._insertion = insertion
        self.communication = communication
        self.job = job
        self.graph = context.jobs[job].graph
        self.seconds: list[list[float]] = context.cost_matrix(job).tolist()
        self.finish = [0.0] * len(self.graph)
        self.device = [-1] * len(self.graph)
        origin = context.jobs[job].origin
        self._origin = -1 if origin is None else context.cluster.space_index[origin]
        self._space_of = context.cluster.space_of
        self._spaces = sorted({*self._space_of})
        self._size = self.graph.tensor_bytes.tolist()
        self._up = [context.is_up(device) for device in range(len(self._space_of))]
        self._some_down = not all(self._up)
        self._first = context.tasks_of(job)[0]
        self.booked: list[tuple[int, float]] = []
        """Tasks and planned starts, in the order of planning."""

    def data_at(self, operator: int) -> list[float]:
        """By memory space: when the inputs of an operator are there, as far as their producers are
        booked; what all devices have is there now.
        """
        now = self._context.now
        arrivals = [now] * len(self._context.cluster.spaces)
        producer, wires, spaces = self.graph.producer, self.communication.wires, self._spaces
        for tensor in self.graph.activations_read[operator]:
            source = producer[tensor]
            if source >= 0:
                if self.device[source] < 0:
                    continue
                since, home = self.finish[source], self._space_of[self.device[source]]
            elif self._origin >= 0:
                since, home = now, self._origin
            else:
                continue
            latency, bandwidth = wires(home)
            amount = self._size[tensor]
            for space in spaces:
                arrival = since + (latency[space] + amount / bandwidth[space])
                if arrival > arrivals[space]:
                    arrivals[space] = arrival
        return arrivals

    def choices(self, operator: int) -> list[Choice]:
        """Where an operator could run and when: its earliest finish on every device."""
        row, up, timelines = self.seconds[operator], self._up, self._timelines
        avoid = self._some_down and any(up[d] and s < math.inf for d, s in enumerate(row))
        arrivals, space_of, insertion = self.data_at(operator), self._space_of, self._insertion
        found = []
        for device, duration in enumerate(row):
            if duration == math.inf or (avoid and not up[device]):
                continue
            ready, lines = arrivals[space_of[device]], timelines[device]
            start, slot = lines[0].earliest(ready, duration, insertion), 0
            for index in range(1, len(lines)):
                other = lines[index].earliest(ready, duration, insertion)
                if other < start:
                    start, slot = other, index
            found.append((start + duration, device, slot, start))
        return found

    def book(self, operator: int, choice: Choice) -> None:
        """Put an operator where ``choice`` says, and place its task there."""
        end, device, slot, start = choice
        self._timelines[device][slot].book(start, self.seconds[operator][device])
        self.finish[operator], self.device[operator] = end, device
        task = self._first + operator
        self.booked.append((task, start))
        self._context.place(task, device, rank=start)

    def explain(self, operator: int, why: str, choice: Choice, choices: list[Choice]) -> None:
        """Say what was chosen from what, if somebody listens."""
        context = self._context
        if context.explain:
            end, device, _, start = choice
            name = context.cluster.devices[device].name
            others = ", ".join(f"{other[0]:.6g}" for other in choices if other[1] != device)
            context.explain(
                f"{context.label(self._first + operator)} ({why}) -> {name} at {start:.6g}: "
                f"{end:.6g} < {others or 'no other'}"
            )


class ListPlanner(Scheduler):
    """Plans a job when it arrives, one task after the other. Later jobs use the gaps that earlier
    plans leave. What a fault takes is placed anew on the device on which it would be done first, at
    its planned rank.

    Args:
        insertion: use gaps between tasks planned already; otherwise append.
    """

    static: ClassVar[bool] = True

    def __init__(self, insertion: bool = True) -> None:
        self.insertion = insertion
        self._timelines: list[list[Timeline]] = []
        self._plans: dict[int, list[tuple[int, float]]] = {}  # tasks and ranks in order of planning

    def begin(self, context: SchedulingContext) -> None:
        """Lay out an empty plan of every slot."""
        self._communication = Communication(context.cluster)
        self._timelines = [
            [Timeline() for _ in range(device.slots)] for device in context.cluster.devices
        ]

    @abstractmethod
    def plan(self, draft: Draft) -> None:
        """Book every operator of a job, each after its predecessors."""

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for job in context.arrived:
            draft = Draft(context, job, self._communication, self._timelines, self.insertion)
            self.plan(draft)
            self._plans[job] = draft.booked
        if context.lost:
            self._repair(context)

    def _repair(self, context: SchedulingContext) -> None:
        """Place lost tasks; what is queued of their jobs enters its queue again, so that all stand in
        the order of the plan.
        """
        lost = set(context.lost)
        for job in sorted({context.job_of(task) for task in lost}):
            for task, rank in self._plans[job]:
                device = context.device_of(task)
                if task in lost:
                    seconds = context.seconds(task)
                    able = context.able(task)
                    ends = [(context.available(d) + seconds[d], d) for d in able]
                    end, device = min(ends)
                    if end == math.inf:  # all that can run it are down
                        _, device = min((seconds[d], d) for d in able)
                elif context.is_queued(task):
                    context.withdraw(task)
                else:
                    continue
                context.place(task, device, rank)
