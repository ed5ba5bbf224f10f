"""Runs in which decisions take simulated time.

The scheduler is asked as ever, and its verbs answer its own questions at once. Then they are undone and
kept until the decision's cost has passed; meanwhile the scheduler is busy and is not asked, and what it
did not decide goes on. When the cost has passed, after the events of that instant, the verbs take effect
as far as they still can, and the scheduler is asked anew if anything happened while it was busy. The
semantics are stated in docs/semantics.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from heapq import heappush
from typing import Any, NamedTuple

import simpy

from simulator.decision_cost import DecisionCost
from simulator.errors import InvalidInput
from simulator.faulty import FaultySimulation
from simulator.simulation import Setting, Simulation


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


class ChargedSimulation(Simulation):
    """See the module docstring."""

    def __init__(self, setting: Setting) -> None:
        cost = setting.decision_cost
        self._cost = DecisionCost() if cost is None else cost
        beyond = sorted(setting.scheduler.needs & {"evict", "pack"})
        if beyond:
            raise InvalidInput(
                f"Scheduler '{setting.scheduler.name}' needs {', '.join(beyond)}, which takes effect at "
                "once; decisions about placements alone can be charged for: leave out the decision cost"
            )
        self._asking = False
        self._busy = False
        self._freed = False
        self._news = False  # whether anything happened since the scheduler was asked
        self._known: set[int] = set()  # ready tasks that it has been told of
        self._undecided: dict[
            int, Placement | None
        ] = {}  # by task: where it was before the decision
        self._ranks: dict[int, float | None] = {}
        self._wakes: list[float] = []
        self._changes: list[Change] = []
        self._charged = 0.0
        super().__init__(setting)

    # -- the loop -------------------------------------------------------------------------------

    def _apply(self) -> bool:
        self._news |= super()._apply()
        if self._freed:
            self._freed = self._busy = False
            self._take_effect()
        if self._busy:
            return False
        news, self._news = self._news, False
        return news

    def _change(self) -> bool:
        known = self.lost
        changed = super()._change()
        if self.lost is not known:
            self.lost = sorted({*self.lost, *known})
        if self.failed and self.lost:
            self.lost = [t for t in self.lost if self._job[t] not in self._failed_jobs]
        return changed

    def _decide(self) -> None:
        self.finished.sort()
        tasks = self._considered()
        before = self._deciding_seconds
        self._asking = True
        super()._decide()
        self._asking = False
        pairs = sum(len(self.able(task)) for task in tasks)
        cost = self._cost.seconds(len(tasks), pairs, self._deciding_seconds - before)
        if cost > 0:
            self._charged += cost
            self._put_off()
            self._busy = True
            self._clock.at(self.now + cost, self._on_free, None)
        else:
            self._wake_up()
        self._undecided.clear()
        self._ranks.clear()

    def _considered(self) -> Collection[int]:
        """The tasks that the decision is about."""
        if self._scheduler.static:
            arrived = [task for job in self.arrived for task in self.tasks_of(job)]
            return {*arrived, *self.lost}
        self._known.update(self.placeable)
        self._known = {t for t in self._known if self._device[t] < 0 and self.is_ready(t)}
        return self._known

    def _on_free(self, _: simpy.Event) -> None:
        self._freed = True

    # -- verbs ----------------------------------------------------------------------------------

    def place(self, task: int, device: int, rank: float | None = None) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        before = self._placement(task)
        super().place(task, device, rank)
        if self._asking:
            self._undecided.setdefault(task, before)
            self._ranks[task] = rank

    def withdraw(self, task: int) -> None:
        """See :class:`simulator.context.SchedulingContext`."""
        before = self._placement(task)
        super().withdraw(task)
        if self._asking:
            self._undecided.setdefault(task, before)

    def _wake(self, moment: float) -> None:
        self._wakes.append(moment)
        if not self._asking:
            self._wake_up()

    def _wake_up(self) -> None:
        for moment in self._wakes:
            super()._wake(max(moment, self.now))
        self._wakes.clear()

    def _placement(self, task: int) -> Placement | None:
        """Where a task stands; None if nowhere."""
        if not 0 <= task < len(self._device) or self._device[task] < 0:
            return None
        return Placement(
            self._device[task], self._rank[task], self._sequence[task], self._placed_at[task]
        )

    # -- between a decision and its effect ------------------------------------------------------

    def _put_off(self) -> None:
        """Undo what was decided now, and keep it."""
        changes = [
            Change(
                task,
                before,
                after,
                self._ranks.get(task),
                not self._pending[task],
                after is not None and self.is_up(after.device),
            )
            for task, before in self._undecided.items()
            for after in [self._placement(task)]
            if before is not None or after is not None
        ]
        for change in changes:
            if change.after is not None:
                super().withdraw(change.task)
        for change in changes:
            if change.before is not None:
                self._restore(change.task, change.before)
        self._changes = sorted(
            changes, key=lambda c: (-1 if c.after is None else c.after.sequence, c.task)
        )

    def _restore(self, task: int, where: Placement) -> None:
        """Put a task back to where it stood in a queue."""
        device = where.device
        self._device[task], self._rank[task] = device, where.rank
        self._sequence[task], self._placed_at[task] = where.sequence, where.placed_at
        self._accept(task, device)
        queue = self._queues[device]
        self._tail_rank[device] = max(where.rank, self._tail_rank[device] if queue else -math.inf)
        heappush(queue, (where.rank, where.sequence, task))
        self._load[device] += 1
        self._stale[device] = True

    def _take_effect(self) -> None:
        """Do now what was decided: as far as tasks are where they were, have not started, and still are
        ready if they were, on devices that still are up if they were. Tasks that the latter two hinder
        come back through ``lost``.
        """
        changes = [c for c in self._changes if self._is_possible(c)]
        self._changes = []
        for change in changes:
            if change.before is not None:
                super().withdraw(change.task)
        lost = []
        for change in changes:
            if change.after is None:
                continue
            unready = change.ready and self._pending[change.task]
            if unready or (change.up and not self.is_up(change.after.device)):
                lost.append(change.task)
            else:
                super().place(change.task, change.after.device, change.rank)
        if lost:
            self.lost = sorted({*self.lost, *lost})
            self._news = True
        self._wake_up()

    def _is_possible(self, change: Change) -> bool:
        task, before = change.task, change.before
        if self._job[task] in self._failed_jobs:
            return False
        if before is None:
            return True
        here = self._device[task] == before.device and self._sequence[task] == before.sequence
        return here and not self._has_started(task)

    # -- the end --------------------------------------------------------------------------------

    def _report(self) -> dict[str, Any]:
        cost = self._cost.report() | {"charged_s": self._charged}
        return super()._report() | {"decision_cost": cost}


class ChargedFaultySimulation(ChargedSimulation, FaultySimulation):
    """The same where devices and links fail."""

    def _take_effect(self) -> None:
        self._last_news = self.now
        super()._take_effect()
