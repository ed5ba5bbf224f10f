"""What planners share that search: the plan of a job at its arrival, found by trying many.

A search starts from the plans of other schedulers (its *seeds*) and never returns a worse one, as the
evaluator of fixed plans sees it (:mod:`simulator.engine.evaluator`). On an idle cluster, where what
happens is what is believed, that is the makespan which the engine gives under ``none`` and ``fifo``.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from abc import abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from simulator.context import SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.engine.evaluator import CONTENTIONS, Evaluator, evaluable
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.csr import CSR
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Certificate, Plan
from simulator.model.workload import Job
from simulator.planners.communication import Communication
from simulator.planners.list_planner import Choice, Draft, ListPlanner
from simulator.planners.timeline import Timeline

LIST_SEEDS = ("heft", "cpop", "peft")
"""Static list schedulers whose plans are seeds, HEFT's first."""


@dataclass(frozen=True)
class Outcome:
    """What was decided about a job.

    Attributes:
        choices: operators in the order in which they are booked, and where.
        text: the best seed and what was found, for people.
        certificate: what is proved about what was found.
    """

    choices: tuple[tuple[int, Choice], ...]
    text: str
    certificate: Certificate | None


@dataclass(frozen=True)
class Problem:
    """One job to be planned.

    Attributes:
        job: arrives now.
        cluster: as believed: every device at its own rate.
        seconds: float64[operators, devices], launch overhead included, ``inf`` where a device cannot
            run an operator, or is down while another one could.
        available: float64[slots], when each is free of what was planned before.
        evaluator: for plans of this job behind that.
        seeds: evaluated, the best first.
    """

    job: Job
    cluster: Cluster
    seconds: np.ndarray
    available: np.ndarray
    evaluator: Evaluator
    seeds: tuple[Plan, ...]

    @property
    def graph(self) -> DataflowGraph:
        """The job's graph."""
        return self.job.graph

    @property
    def able(self) -> CSR:
        """For each operator the devices it may be put on."""
        rows, columns = np.nonzero(np.isfinite(self.seconds))
        return CSR.group(rows, columns.astype(np.int32), len(self.seconds))


class _Sketch(Draft):
    """A draft that places nothing, upon a copy of the timelines."""

    def __init__(
        self,
        context: SchedulingContext,
        job: int,
        planner: ListPlanner[Any],
        lines: list[list[Timeline]],
    ) -> None:
        super().__init__(
            context, job, planner._communication, copy.deepcopy(lines), planner.insertion
        )
        self.choices_made: list[tuple[int, Choice]] = []

    def book(self, operator: int, choice: Choice) -> None:
        self.choices_made.append((operator, choice))
        super().book(operator, choice)

    @property
    def explained(self) -> bool:
        return False

    def explain(self, operator: int, why: str, choice: Choice, decided: str) -> None:
        pass

    def _place(self, task: int, device: int, rank: float) -> None:
        pass


class SearchPlanner(ListPlanner[None]):
    """Plans a job when it arrives, by search.

    A job that finds devices planned for earlier ones is planned behind these, and takes the gaps only
    where HEFT's plan in them ends sooner, as planned, than what was found. Links are then believed to
    be idle. What devices and links do otherwise (rates that are shared, ``fair`` links, late knowledge
    of completions) is not known to the search: it believes devices at their own rates, and ``fair``
    links to be ``none``.

    Args:
        budget: plans to evaluate for each job, seeds included.
        seed: of the search.
    """

    settings: ClassVar[tuple[str, str] | None] = None
    """Movement and contention that are believed; None: those of the run."""

    def __init__(self, budget: int, seed: int) -> None:
        super().__init__(insertion=True)
        for what, value, least in (("budget", budget, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInput(
                    f"Scheduler '{self.name}' has {what} {value!r}; give an integer of at least {least}"
                )
        self.budget = budget
        self.seed = seed
        self.outcomes: dict[int, Outcome] = {}
        """By job."""
        self._known: dict[tuple[Hashable, ...], Outcome] = {}

    @abstractmethod
    def search(self, problem: Problem, rng: np.random.Generator) -> Plan:
        """A plan no worse than the best seed."""

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        super().begin(context)
        self._context = context
        self._believed = evaluable(context.cluster)

    def recall(self, other: Scheduler) -> None:
        """See :class:`simulator.context.scheduler.Scheduler`."""
        if isinstance(other, SearchPlanner):
            self._known = other._known

    def rank(self, graph: DataflowGraph, seconds: np.ndarray, communication: Communication) -> None:
        """See :class:`ListPlanner`; a search has no ranking."""

    def plan(self, draft: Draft, ranking: None) -> None:
        """See :class:`ListPlanner`."""
        context = self._context
        number = draft.job
        seconds = without_the_down(context, np.array(draft.seconds))
        key = self._key(context.jobs[number], number, seconds)
        if key not in self._known:
            self._known[key] = self._plan(draft, seconds)
        outcome = self._known[key]
        self.outcomes[number] = outcome
        if context.explain:
            context.explain(f"job {number}: {outcome.text}{self.remark(outcome)}")
        first = context.tasks_of(number)[0]
        for operator, choice in outcome.choices:
            draft.book(operator, choice)
            if context.explain:
                end, device, _, start = choice
                context.explain(
                    f"{context.label(first + operator)} -> {context.cluster.devices[device].name}: "
                    f"{start:.6g} to {end:.6g}"
                )

    def remark(self, outcome: Outcome) -> str:
        """What else there is to say about a job's plan."""
        return f" ({self.budget} evaluations)"

    def _key(self, job: Job, number: int, seconds: np.ndarray) -> tuple[Hashable, ...]:
        """All that a plan depends on, the options apart."""
        context = self._context
        booked = tuple((line.end, *line.gaps) for lines in self._timelines for line in lines)
        down = tuple(d for d in range(seconds.shape[1]) if not context.is_up(d))
        return (
            job.graph,
            number,
            context.now,
            job.origin,
            job.destination,
            context.movement,
            context.contention,
            seconds.tobytes(),
            booked,
            down,
        )

    def _plan(self, draft: Draft, seconds: np.ndarray) -> Outcome:
        sketch = self._sketch("heft", draft.job, self._timelines)
        problem = self._problem(draft.job, seconds, sketch)
        found = self.search(problem, np.random.default_rng([self.seed, draft.job]))
        best = problem.seeds[0]
        text = f"{best.origin} {best.makespan_s:.6g} -> {found.makespan_s:.6g}"
        if (problem.available > self._context.now).any():
            into_gaps = end_of(sketch, problem)
            if into_gaps < found.makespan_s:
                text += f", heft in gaps {into_gaps:.6g} is taken"
                return Outcome(tuple(sketch.choices_made), text, found.certificate)
        return Outcome(tuple(self._choices(problem, found)), text, found.certificate)

    def _sketch(self, name: str, job: int, lines: list[list[Timeline]]) -> _Sketch:
        # Schedulers are planners' users; only seeds are the other way round.
        from simulator.schedulers import create

        planner = create(name)
        assert isinstance(planner, ListPlanner)
        planner.begin(self._context)
        sketch = _Sketch(self._context, job, planner, lines)
        ranking = planner.rank(sketch.graph, self._context.cost_matrix(job), planner._communication)
        planner.plan(sketch, ranking)
        return sketch

    def _problem(self, number: int, seconds: np.ndarray, heft: _Sketch) -> Problem:
        context = self._context
        movement, contention = self.settings or (context.movement, context.contention)
        if contention not in CONTENTIONS:
            contention = "none"
        job = dataclasses.replace(context.jobs[number], arrival=context.now)
        free = np.array([line.end for lines in self._timelines for line in lines])
        costs = CostTable.of(job.graph, seconds)
        evaluator = Evaluator(
            job,
            self._believed,
            costs,
            movement=movement,
            contention=contention,
            available=free,
        )
        plans: list[tuple[str, np.ndarray, np.ndarray]] = []
        lists = [("heft", heft)]
        lists += [(name, self._sketch(name, number, self._timelines)) for name in LIST_SEEDS[1:]]
        for name, sketch in lists:
            # As its queues would run: by start, and then in the order of planning.
            rows = sorted(sketch.choices_made, key=lambda row: row[1][3])
            order = np.array([operator for operator, _ in rows])
            plans.append((name, np.array(sketch.device), order))
        by_heft = plans[0][2]
        fastest = seconds.argmin(axis=1)
        plans.append(("each on its fastest", fastest, by_heft))
        plans += _single_devices(seconds, self._believed)
        evaluated = [
            evaluator.plan(name, device, order) for name, device, order in plans[: self.budget]
        ]
        seeds = tuple(sorted(evaluated, key=lambda plan: plan.makespan_s))
        return Problem(job, self._believed, seconds, free, evaluator, seeds)

    def _choices(self, problem: Problem, plan: Plan) -> Iterator[tuple[int, Choice]]:
        """The operators of a plan in the order of their starts, with slots."""
        schedule = problem.evaluator.schedule(plan.device, plan.order)
        position = np.empty(len(plan.order), dtype=np.int64)
        position[plan.order] = np.arange(len(plan.order))
        free = [[line.end for line in lines] for lines in self._timelines]
        for operator in np.lexsort((position, schedule.start)).tolist():
            device, start = int(plan.device[operator]), float(schedule.start[operator])
            end = float(schedule.finish[operator])
            slots = free[device]
            # Of the slots free by then the one that was busy last: gaps stay few and wide.
            slot = max((s for s, t in enumerate(slots) if t <= start), key=slots.__getitem__)
            slots[slot] = end
            yield operator, (end, device, slot, start)


def without_the_down(context: SchedulingContext, seconds: np.ndarray) -> np.ndarray:
    """The times, ``inf`` on devices that are down for what others can run."""
    down = [d for d in range(seconds.shape[1]) if not context.is_up(d)]
    if not down:
        return seconds
    up = [d for d in range(seconds.shape[1]) if context.is_up(d)]
    others = np.isfinite(seconds[:, up]).any(axis=1)
    seconds = seconds.copy()
    seconds[np.ix_(others, down)] = math.inf
    return seconds


def end_of(sketch: _Sketch, problem: Problem) -> float:
    """When a sketched job would be done, its results delivered."""
    job, cluster = problem.job, problem.cluster
    end = max(sketch.finish)
    if job.destination is None:
        return end
    wanted = cluster.space_index[job.destination]
    graph = job.graph
    for tensor in graph.outputs:
        writer = graph.producer[tensor]
        if writer >= 0:
            home = cluster.space_of[sketch.device[writer]]
            way = 0.0
            if home != wanted:
                way = cluster.route(home, wanted).seconds(float(graph.tensor_bytes[tensor]))
            end = max(end, sketch.finish[writer] + way)
    return end


def _single_devices(
    seconds: np.ndarray, cluster: Cluster
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Everything on one device, in the graph's order, for each that can run everything; equal devices
    of one memory once.
    """
    found, seen = [], set()
    order = np.arange(len(seconds))
    for number, device in enumerate(cluster.devices):
        column = seconds[:, number]
        kind = device.space, device.slots, column.tobytes()
        if np.isfinite(column).all() and kind not in seen:
            seen.add(kind)
            found.append((f"all on {device.name}", np.full(len(seconds), number), order))
    return found
