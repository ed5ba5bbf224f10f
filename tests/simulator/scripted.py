"""Schedulers for tests: fixed plans, random conduct, and a log of what any scheduler did."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.context.scheduler import Scheduler


class StaticPlan(Scheduler):
    """Places every task of a job when it arrives, as told: ``plan[job][operator] = (device, rank)``.

    A plan shorter than the workload is used again from its start.
    """

    name: ClassVar[str] = "static_plan"
    static: ClassVar[bool] = True

    def __init__(self, *plan: list[tuple[int, float]]) -> None:
        self.plan = plan

    def decide(self, context: SchedulingContext) -> None:
        for job in context.arrived:
            rows = self.plan[job % len(self.plan)]
            for task, (device, rank) in zip(context.tasks_of(job), rows, strict=True):
                context.place(task, device, rank)


class RandomPlan(Scheduler):
    """Places every task of a job when it arrives, anywhere, in an order that the graph allows; later
    jobs go between the tasks of earlier ones.
    """

    name: ClassVar[str] = "random_plan"
    static: ClassVar[bool] = True

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def decide(self, context: SchedulingContext) -> None:
        for job in context.arrived:
            offset = self.random.uniform(0, 3)
            tasks = context.tasks_of(job)
            ranks = [offset + i for i in range(len(tasks))]
            devices = [
                self.random.choice([d for d, s in enumerate(context.seconds(t)) if s < math.inf])
                for t in tasks
            ]
            if self.random.random() < 0.5:
                context.place_job(job, devices, ranks)
                continue
            for task, device, rank in zip(tasks, devices, ranks, strict=True):
                context.place(task, device, rank)


class Script(Scheduler):
    """Calls ``act(context, n)`` at its n-th decision, n from 0."""

    name: ClassVar[str] = "script"

    def __init__(self, act: Callable[[SchedulingContext, int], None]) -> None:
        self.act = act
        self.calls = 0

    def decide(self, context: SchedulingContext) -> None:
        self.calls += 1
        self.act(context, self.calls - 1)


class WhenReady(Scheduler):
    """Places every task on a given device once it is ready: ``devices[operator]``."""

    name: ClassVar[str] = "when_ready"

    def __init__(self, devices: list[int]) -> None:
        self.devices = devices

    def decide(self, context: SchedulingContext) -> None:
        for task in context.ready:
            context.place(task, self.devices[context.operator_of(task)])


class Erratic(Scheduler):
    """Uses every verb at random: places before or after tasks are ready, in front of others, takes
    queued tasks back, wakes itself. Its ranks never contradict the graph.

    Args:
        seed: of its conduct.
        only_ready: place ready tasks only, with any rank; otherwise ranks follow a linear extension.
    """

    name: ClassVar[str] = "erratic"

    def __init__(self, seed: int, only_ready: bool) -> None:
        self.random = random.Random(seed)
        self.only_ready = only_ready
        self.free: list[int] = []
        self.rank: dict[int, float] = {}
        self.wakes = 0

    def decide(self, context: SchedulingContext) -> None:
        pick = self.random
        for job in context.arrived:
            offset = pick.uniform(0, 3)
            for task in context.tasks_of(job):
                # The index of an operator is its place in a linear extension of its graph.
                self.rank[task] = offset + context.operator_of(task)
                if not self.only_ready:
                    self.free.append(task)
        if context.lost or context.failed:
            self.free = [t for t in self.free if context.job_of(t) not in context.failed]
            if self.only_ready:
                self.free = [t for t in self.free if context.is_ready(t)]
            else:
                self.free += context.lost
        if self.only_ready:
            self.free += context.placeable
        queued = [t for t in sorted(self.rank) if context.is_queued(t)]
        if queued and pick.random() < 0.3:
            for task in pick.sample(queued, pick.randint(1, min(3, len(queued)))):
                context.withdraw(task)
                self.free.append(task)
        pick.shuffle(self.free)
        kept = []
        for task in self.free:
            able = [d for d, s in enumerate(context.seconds(task)) if s != float("inf")]
            if pick.random() < 0.3 and self.wakes < 1000:
                kept.append(task)
                continue
            device = pick.choice(able)
            if pick.random() < 0.2:  # an idea given up at once
                context.place(task, pick.choice(able), self.rank[task])
                context.withdraw(task)
            if self.only_ready:
                context.place(task, device, pick.choice([None, pick.uniform(0, 50)]))
            else:
                context.place(task, device, self.rank[task])
        self.free = kept
        if kept:
            self.wakes += 1
            context.wake_at(context.now + pick.choice([0.0, 0.5, 1.0, 7.25]))


class RandomPacks(Scheduler):
    """Another scheduler; after it some of what was asked for, and some of what nobody asked for yet,
    is packed at random.

    Args:
        inner: the scheduler that places.
        seed: of its conduct.
        ahead: how often the inputs of a task in no queue are brought somewhere.
    """

    name: ClassVar[str] = "random_packs"
    needs: ClassVar[frozenset[str]] = frozenset({"pack"})

    def __init__(self, inner: Scheduler, seed: int, ahead: float = 0.3) -> None:
        self.inner = inner
        self.needs = self.needs | inner.needs  # type: ignore[misc]
        self.random = random.Random(seed)
        self.ahead = ahead

    def begin(self, context: SchedulingContext) -> None:
        self.inner.begin(context)

    def decide(self, context: SchedulingContext) -> None:
        self.inner.decide(context)
        pick = self.random
        parcels: dict[tuple[int, int], set[int]] = {}
        for asked in context.requests():
            if pick.random() < 0.7:
                parcels.setdefault((asked.source, asked.destination), set()).add(asked.tensor)
        space = pick.randrange(len(context.cluster.spaces))
        for job in range(len(context.jobs)):
            for task in context.tasks_of(job):
                if context.device_of(task) >= 0 or pick.random() > self.ahead:
                    continue
                for tensor, _, source, written in context.inputs(task):
                    lies = written < math.inf and source not in (EVERYWHERE, space)
                    if lies and context.copy_time(tensor, space) is None:
                        parcels.setdefault((source, space), set()).add(tensor)
        for (_, destination), tensors in parcels.items():
            rest = sorted(tensors)
            pick.shuffle(rest)
            while rest:
                count = pick.randint(1, len(rest))
                context.pack([(tensor, destination) for tensor in rest[:count]])
                rest = rest[count:]


@dataclass
class Decision:
    """One call of ``decide``: when, and the verbs in order as (verb, arguments)."""

    time: float
    verbs: list[tuple[str, tuple[object, ...]]] = field(default_factory=list)


class Recorded(Scheduler):
    """Another scheduler, with a log of its decisions; ``watch`` sees the context after each."""

    name: ClassVar[str] = "recorded"

    def __init__(
        self,
        inner: Scheduler,
        before: Callable[[SchedulingContext], None] = lambda context: None,
    ) -> None:
        self.inner = inner
        self.needs = inner.needs  # type: ignore[misc]
        self.before = before
        self.decisions: list[Decision] = []

    def begin(self, context: SchedulingContext) -> None:
        for verb in ("place", "withdraw", "wake_at", "pack"):
            self._tap(context, verb)
        self.inner.begin(context)

    def _tap(self, context: SchedulingContext, verb: str) -> None:
        real = getattr(context, verb)

        def logged(*arguments: object, **options: object) -> None:
            real(*arguments, **options)
            row = (*arguments, *options.values())
            self.decisions[-1].verbs.append((verb, row))

        setattr(context, verb, logged)

    def decide(self, context: SchedulingContext) -> None:
        self.decisions.append(Decision(context.now))
        self.before(context)
        self.inner.decide(context)
