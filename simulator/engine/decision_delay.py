"""Decisions that take simulated time: a part of the engine that delays the scheduler's verbs.

The scheduler is asked as ever, and its verbs answer its own questions at once. Then they are undone and
kept until the decision's cost has passed; meanwhile the scheduler is busy and is not asked, and what it
did not decide goes on. When the cost has passed, after the events of that instant, the verbs take effect
as far as they still can, and the scheduler is asked anew if anything happened while it was busy. The
semantics are stated in docs/semantics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from heapq import heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.clock import Moment
from simulator.context.packing import Message, obstacle
from simulator.engine.decision_cost import DecisionCost

if TYPE_CHECKING:
    from simulator.engine.setting import EngineRun


class Placement(NamedTuple):
    """A task in a device's queue."""

    device: int
    rank: float
    sequence: int
    placed_at: float


class Change(NamedTuple):
    """What a decision does with one task."""

    task: int
    before: Placement | None
    after: Placement | None
    rank: float | None
    """As the scheduler gave it."""
    ready: bool
    """Whether the task was ready at the decision."""
    up: bool
    """Whether its new device was."""


class DecisionDelay:
    """Lets a run's decisions take effect when their cost has passed.

    Args:
        run: the simulation.
        cost: what a decision costs.
    """

    keeps_jobs = True

    def __init__(self, run: EngineRun, cost: DecisionCost) -> None:
        self._run = run
        self._cost = cost
        self._busy = False
        self._freed = False
        self._news = False  # whether anything happened since the scheduler was asked
        self._known: set[int] = set()  # ready tasks that it has been told of
        # By task: where it was before the decision.
        self._undecided: dict[int, Placement | None] = {}
        self._ranks: dict[int, float | None] = {}
        self._asking = False
        self._wakes: list[float] = []
        self._changes: list[Change] = []
        # What the decision does beside; of messages where they lie, of rejections when their jobs were done
        # and what was on its way for them.
        self._packs: list[tuple[int, Message]] = []
        self._sends: list[tuple[int, int]] = []
        self._rejections: dict[int, tuple[str, float, tuple[int, int] | None]] = {}
        self._evictions: list[tuple[int, int]] = []
        self._charged = 0.0

    # -- the loop -------------------------------------------------------------------------------

    def may_decide(self, news: bool) -> bool:
        """Whether the scheduler is to be asked at this instant, at which there is ``news`` or none."""
        self._news |= news
        if self._freed:
            self._freed = self._busy = False
            self._take_effect()
        if self._busy:
            return False
        news, self._news = self._news, False
        return news

    def decide(self, ask: Callable[[], None]) -> None:
        """Let the scheduler decide, and put off what it decided."""
        run = self._run
        run.finished.sort()
        tasks = self._considered()
        requests, packed = list(run.requested), dict(run.packed)
        evicted = 0 if run.memory is None else run.memory.evicted
        before = run.deciding_seconds
        self._asking = True
        run.noted = self._note
        ask()
        run.noted = None
        self._asking = False
        pairs = sum(len(run.able(task)) for task in tasks)
        cost = self._cost.seconds(len(tasks), pairs, run.deciding_seconds - before)
        if cost > 0:
            self._charged += cost
            self._put_off(evicted)
            if self._packs or self._sends:
                run.packed = packed
                run.book_again(requests)
            self._busy = True
            run.clock.at(run.now + cost, [self._on_free])
        else:
            self._wake_up()
            self._packs, self._sends = [], []
        self._undecided.clear()
        self._ranks.clear()

    def _considered(self) -> Collection[int]:
        """The tasks that the decision is about."""
        run = self._run
        if run.is_static:
            arrived = [task for job in run.arrived for task in run.tasks_of(job)]
            return {*arrived, *run.lost}
        self._known.update(run.placeable)
        self._known = {
            t
            for t in self._known
            if run.task_device[t] < 0 and run.is_ready(t) and not run.is_barred(t)
        }
        return self._known

    def _on_free(self, _: Moment) -> None:
        self._freed = True

    # -- verbs ----------------------------------------------------------------------------------

    def _note(self, task: int, rank: float | None) -> None:
        """The placement of a task is about to change."""
        self._undecided.setdefault(task, self._placement(task))
        if self._run.task_device[task] < 0:  # it is being placed
            self._ranks[task] = rank

    @property
    def holds_back(self) -> bool:
        """Whether what the scheduler does now is to be undone, and done when the cost has passed."""
        return self._asking

    def packs(self, parcel: Message) -> None:
        """A message is asked for."""
        if self._asking:
            self._packs.append((self._run.tensor_home[parcel.tensors[0]], parcel))

    def sends(self, job: int, space: int) -> None:
        """A job's inputs are sent ahead."""
        if self._asking:
            self._sends.append((job, space))

    def rejects(self, job: int, reason: str) -> None:
        """A job is about to be refused."""
        if self._asking:
            run = self._run
            self._rejections[job] = (reason, run.done_at[job], run.coming.get(job))

    def wake(self, moment: float) -> None:
        """The scheduler is to be asked at a moment: from its decision's effect on."""
        if self._busy and moment <= self._run.now:
            self._news = True
            return
        self._wakes.append(moment)
        if not self._asking:
            self._wake_up()

    def _wake_up(self) -> None:
        for moment in self._wakes:
            self._run.wake(max(moment, self._run.now))
        self._wakes.clear()

    def _placement(self, task: int) -> Placement | None:
        """Where a task stands; None if nowhere."""
        run = self._run
        if run.task_device[task] < 0:
            return None
        return Placement(
            run.task_device[task], run.task_rank[task], run.task_sequence[task], run.placed_at[task]
        )

    # -- between a decision and its effect ------------------------------------------------------

    def _put_off(self, evicted: int) -> None:
        """Undo what was decided now, and keep it; ``evicted`` weights had been before. Messages and what was sent
        ahead are left to be taken back.
        """
        run = self._run
        for job, (_, done_at, coming) in self._rejections.items():
            run.take_back_rejection(job, done_at, coming)
        for job, _ in self._sends:
            run.coming.pop(job, None)
        changes = [
            Change(
                task,
                before,
                after,
                self._ranks.get(task),
                not run.pending[task],
                after is not None and run.is_up(after.device),
            )
            for task, before in self._undecided.items()
            for after in [self._placement(task)]
            if before is not None or after is not None
        ]
        for change in changes:
            if change.after is not None:
                run.withdraw(change.task)
        if run.memory is not None:
            self._evictions = run.memory.take_back_evictions(evicted)
        for change in changes:
            if change.before is not None:
                self._restore(change.task, change.before)
        self._changes = sorted(
            changes, key=lambda c: (-1 if c.after is None else c.after.sequence, c.task)
        )

    def _restore(self, task: int, where: Placement) -> None:
        """Put a task back to where it stood in a queue."""
        run, device = self._run, where.device
        run.task_device[task], run.task_rank[task] = device, where.rank
        run.task_sequence[task], run.placed_at[task] = where.sequence, where.placed_at
        run.accept(task, device, where.rank)
        queue = run.queues[device]
        run.tail_rank[device] = max(where.rank, run.tail_rank[device] if queue else -math.inf)
        heappush(queue, (where.rank, where.sequence, task))
        run.occupy(device)
        run.stale[device] = True

    def _take_effect(self) -> None:
        """Do now what was decided: as far as tasks are where they were, have not started, and still are
        ready if they were, on devices that still are up if they were. Tasks that the latter two hinder
        come back through ``lost``. Weights are evicted that are still there and that nobody needs; jobs are
        refused and sent ahead that still wait; of a message goes what still may.
        """
        run = self._run
        run.last_news = run.now
        changes = [c for c in self._changes if self._is_possible(c)]
        self._changes = []
        for change in changes:
            if change.before is not None:
                run.withdraw(change.task)
        for number, space in self._evictions:
            run.memory.evict_weight(number, space)  # type: ignore[union-attr]
        self._serve()
        lost = []
        for change in changes:
            if change.after is None:
                continue
            unready = change.ready and run.pending[change.task]
            if unready or (change.up and not run.is_up(change.after.device)):
                lost.append(change.task)
            else:
                run.place(change.task, change.after.device, change.rank)
        if lost:
            run.lost = sorted({*run.lost, *lost})
            self._news = True
        for source, parcel in self._packs:
            space = parcel.destination
            asked = {request[:2] for request in run.requested}
            left = [
                (tensor, space)
                for tensor in parcel.tensors
                if run.tensor_home[tensor] == source
                and run.job_of_tensor(tensor) not in run.failed_jobs
                and not obstacle(run, tensor, space, (tensor, space) in asked)
            ]
            if left:
                run.pack(left)
        self._packs, self._sends, self._rejections, self._evictions = [], [], {}, []
        self._wake_up()

    def _serve(self) -> None:
        """Refuse jobs and send their inputs ahead where they still wait."""
        run = self._run
        for job, (reason, *_) in self._rejections.items():
            if run.is_waiting(job):
                run.reject(job, reason)
        for job, space in self._sends:
            if not run.is_waiting(job) or job in run.coming:
                continue
            here = run.inputs_in(job)
            if here is None or space in here:
                run.delivered.append(job)
                self._news = True
            else:
                run.send(job, space)

    def _is_possible(self, change: Change) -> bool:
        run, task, before = self._run, change.task, change.before
        if run.task_job[task] in run.failed_jobs:
            return False
        if before is None:
            return True
        here = run.task_device[task] == before.device and run.task_sequence[task] == before.sequence
        return here and not run.has_started(task)

    # -- the end --------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What a trace's description says of it."""
        return {"decision_cost": self._cost.report() | {"charged_s": self._charged}}
