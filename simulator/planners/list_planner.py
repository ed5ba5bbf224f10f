"""What static list schedulers share: the plan of a job grows by one task at a time."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler, compared
from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication
from simulator.planners.ranking import Ranking
from simulator.planners.timeline import Timeline, Undo

Choice = tuple[float, int, int, float]
"""A task on a device: end, device, slot and start. The smallest of several ends first; ties go to the
smaller device."""

Score = tuple[float, int]
"""What is compared, smaller first, and the device."""


class Draft:
    """The plan of one job while it is made, behind and between the plans of earlier jobs.

    Transfers are believed as ``push`` without contention, and outputs to be wanted where they are
    written. Devices that are down get only what nothing else can run.

    Attributes:
        graph: the job's graph.
        job: its number.
        seconds: believed, ``[operator][device]``, ``inf`` where a device cannot run it.
        communication: transfer times.
        finish: planned, by operator; 0 before it is booked.
        device: by operator, -1 before it is booked.
        some_down: whether a device is down now.
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
        self.some_down = not all(self._up)
        self._first = context.tasks_of(job)[0]
        self.booked: list[tuple[int, Choice]] = []
        """Operators and where they went, in the order of planning."""
        self._tried: list[tuple[int, Timeline, Undo]] = []

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
        avoid = self.some_down and any(up[d] and s < math.inf for d, s in enumerate(row))
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

    def option(self, operator: int, device: int, ready: float) -> Choice:
        """When an operator could run on a device if its data is there at ``ready``."""
        duration, insertion = self.seconds[operator][device], self._insertion
        starts = [line.earliest(ready, duration, insertion) for line in self._timelines[device]]
        start = min(starts)
        return start + duration, device, starts.index(start), start

    def possible(self, operator: int) -> list[float]:
        """Seconds on every device, ``inf`` where it cannot run or should not, since the device is down
        and another is not.
        """
        row, up = self.seconds[operator], self._up
        if self.some_down and any(up[d] and s < math.inf for d, s in enumerate(row)):
            return [s if up[d] else math.inf for d, s in enumerate(row)]
        return row

    def end(self, device: int) -> float:
        """When the first slot of a device has nothing booked any more."""
        return min(line.end for line in self._timelines[device])

    def book(self, operator: int, choice: Choice) -> None:
        """Put an operator where ``choice`` says, and place its task there."""
        end, device, slot, start = choice
        self._timelines[device][slot].book(start, self.seconds[operator][device])
        self.finish[operator], self.device[operator] = end, device
        self.booked.append((operator, choice))
        self._place(self._first + operator, device, start)

    def _place(self, task: int, device: int, rank: float) -> None:
        self._context.place(task, device, rank=rank)

    def try_out(self, operator: int, choice: Choice) -> None:
        """Put an operator where ``choice`` says, until :meth:`undo`."""
        end, device, slot, start = choice
        timeline = self._timelines[device][slot]
        undo = timeline.book(start, self.seconds[operator][device])
        self.finish[operator], self.device[operator] = end, device
        self._tried.append((operator, timeline, undo))

    def undo(self) -> None:
        """Take back all that was tried out."""
        while self._tried:
            operator, timeline, undo = self._tried.pop()
            timeline.undo(undo)
            self.finish[operator], self.device[operator] = 0.0, -1

    @property
    def explained(self) -> bool:
        """Whether somebody listens to :meth:`explain`."""
        return self._context.explain is not None

    def explain(self, operator: int, why: str, choice: Choice, decided: str) -> None:
        """Say what was chosen and what decided, if somebody listens."""
        context = self._context
        if context.explain:
            _, device, _, start = choice
            context.explain(
                f"{context.label(self._first + operator)} ({why}) -> "
                f"{context.cluster.devices[device].name} at {start:.6g}: {decided}"
            )


R = TypeVar("R")


class ListPlanner(Scheduler, Generic[R]):
    """Plans a job when it arrives, one task after the other. Later jobs use the gaps that earlier
    plans leave. What a fault takes is placed anew on the device on which it would be done first, at
    its planned rank.

    Args:
        insertion: use gaps between tasks planned already; otherwise append.
    """

    static: ClassVar[bool] = True

    def __init__(self, insertion: bool = True) -> None:
        self.insertion = insertion
        self._rankings: dict[DataflowGraph, R] = {}
        self._timelines: list[list[Timeline]] = []
        self._plans: dict[int, list[tuple[int, Choice]]] = {}
        self._first_plans: dict[int, list[tuple[int, Choice]]] = {}

    def begin(self, context: SchedulingContext) -> None:
        """Lay out an empty plan of every slot."""
        self._rankings = {}
        self._communication = Communication(context.cluster)
        self._timelines = [
            [Timeline() for _ in range(device.slots)] for device in context.cluster.devices
        ]

    def recall(self, other: Scheduler) -> None:
        """Take over the plans of the first instant's jobs. Nothing has happened before, so they are the same."""
        if isinstance(other, ListPlanner):
            self._first_plans = other._first_plans

    @abstractmethod
    def rank(self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication) -> R:
        """What a graph's plans are made by; asked for once a graph.

        Args:
            graph: the graph.
            seconds: believed, float64[operators, devices], ``inf`` where a device cannot run it.
            communication: transfer times.
        """

    @abstractmethod
    def plan(self, draft: Draft, ranking: R) -> None:
        """Book every operator of a job, each after its predecessors."""

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        first = not self._plans
        for job in context.arrived:
            draft = Draft(context, job, self._communication, self._timelines, self.insertion)
            kept = first and not draft.some_down and not draft.explained
            if kept and job in self._first_plans:
                for operator, choice in self._first_plans[job]:
                    draft.book(operator, choice)
            else:
                graph = draft.graph
                if graph not in self._rankings:
                    seconds = context.cost_matrix(job)
                    self._rankings[graph] = self.rank(graph, seconds, self._communication)
                self.plan(draft, self._rankings[graph])
                if kept:
                    self._first_plans[job] = draft.booked
            self._plans[job] = draft.booked
        if context.lost:
            self._repair(context)

    def _repair(self, context: SchedulingContext) -> None:
        """Place lost tasks; what is queued of their jobs enters its queue again, so that all stand in
        the order of the plan.
        """
        lost = set(context.lost)
        for job in sorted({context.job_of(task) for task in lost}):
            first = context.tasks_of(job)[0]
            for operator, (_, _, _, rank) in self._plans[job]:
                task = first + operator
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


class OrderedPlanner(ListPlanner[Ranking]):
    """A list planner whose order does not depend on where operators go."""

    def choose(
        self, draft: Draft, ranking: Ranking, operator: int, choices: Sequence[Choice]
    ) -> Choice:
        """Where the next operator goes."""
        return ranking.choose(operator, choices)

    def scores(
        self, draft: Draft, ranking: Ranking, operator: int, choices: Sequence[Choice]
    ) -> list[Score]:
        """What :meth:`choose` compares; only for those who listen."""
        return [(ranking.score(operator, choice), choice[1]) for choice in choices]

    def plan(self, draft: Draft, ranking: Ranking) -> None:
        """See :class:`ListPlanner`."""
        explained = draft.explained
        for operator in ranking.order:
            choices = draft.choices(operator)
            best = self.choose(draft, ranking, operator, choices)
            if explained:
                scores = self.scores(draft, ranking, operator, choices)
                draft.explain(operator, ranking.why(operator), best, compared(best[1], scores))
            draft.book(operator, best)
