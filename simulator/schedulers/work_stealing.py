"""Work stealing: idle devices take what waits for others.

Sources: Blumofe, Leiserson, "Scheduling Multithreaded Computations by Work Stealing", Journal of the ACM
46(5):720-748, 1999, doi:10.1145/324133.324234 (owners take the newest, thieves the oldest, of a random
victim); the schedulers ``ws`` and ``lws`` of StarPU (the victim with most tasks; one nearby).
"""

from __future__ import annotations

import math
import random
from collections import deque
from typing import ClassVar

from simulator.context import EVERYWHERE, SchedulingContext
from simulator.context.scheduler import Scheduler
from simulator.errors import InvalidInput
from simulator.schedulers._pricing import check_pricing, estimated_finishes

HOMES = ("releaser", "data")
VICTIMS = ("longest", "nearest", "random")
OWNERS = ("newest", "oldest")


class WorkStealing(Scheduler):
    """A ready task goes to the deque of one device; a device with a free slot and an empty deque takes
    the oldest task that it can run from another's.

    A deque is the device's queue. What its owner would begin at once, having a free slot, is not stolen.
    Tasks that nobody released (those without predecessors) are dealt to the devices in turn.

    Args:
        home: whose deque: of the device that ran the predecessor that finished last (``releaser``;
            of several at once the task of largest id), or of a device in the memory where most
            bytes of its inputs lie (``data``; there the releaser, otherwise the shortest deque).
        victim: the ``longest`` deque; the ``nearest`` one, which is the longest in the thief's own memory
            if there is any; or ``random``. Ties: the smaller id.
        owner: runs the ``newest`` or the ``oldest`` task of its deque first.
        gain: steal only what the thief is estimated to be done with before the victim is through with
            its deque; slow devices then leave long tasks alone.
        pricing: of the way of the data, for ``gain``, see :mod:`simulator.schedulers._pricing`.
        seed: of the choice of victims, where it is random; ``seed.search`` unless given.
    """

    name: ClassVar[str] = "work_stealing"

    def __init__(
        self,
        home: str = "releaser",
        victim: str = "longest",
        owner: str = "newest",
        gain: bool = False,
        pricing: str = "per_link",
        seed: int = 0,
    ) -> None:
        for key, value, known in (
            ("home", home, HOMES),
            ("victim", victim, VICTIMS),
            ("owner", owner, OWNERS),
        ):
            if value not in known:
                raise InvalidInput(
                    f"Scheduler 'work_stealing' knows no {key}={value}; known: {', '.join(known)}"
                )
        self.home = home
        self.victim = victim
        self.newest_first = owner == "newest"
        self.gain = gain
        self.pricing = check_pricing(pricing)
        self._random = random.Random(seed)
        self._turn = 0
        self._placed = 0
        self._deques: list[deque[int]] = []  # what is queued on each device, the oldest first
        self._open: list[set[int]] = []  # what is on each device and not finished
        self._device: dict[int, int] = {}

    def begin(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        devices = context.cluster.devices
        self._deques = [deque() for _ in devices]
        self._open = [set() for _ in devices]

    def decide(self, context: SchedulingContext) -> None:
        """See :class:`Scheduler`."""
        for task in context.finished:
            self._forget(task)
        if context.lost or context.failed:
            for task, device in list(self._device.items()):
                if context.device_of(task) != device:
                    self._forget(task)
            for device, line in enumerate(self._deques):
                self._deques[device] = deque(task for task in line if task in self._device)
        released = {
            successor: task
            for task in context.finished
            for successor in self._successors(context, task)
        }
        for task in context.placeable:
            self._push(context, task, released.get(task, -1))
        for thief in context.idle:
            free = context.cluster.devices[thief].slots - len(self._open[thief])
            while free > 0 and self._steal(context, thief):
                free -= 1

    # -- homes ----------------------------------------------------------------------------------

    def _push(self, context: SchedulingContext, task: int, releaser: int) -> None:
        """Put a ready task into the deque of its home."""
        able = context.able(task)
        able = [device for device in able if context.is_up(device)] or able
        last = context.device_of(releaser) if releaser >= 0 else -1
        device, why = last, "released there"
        if self.home == "data" and (near := self._nearest(context, task)):
            near = [device for device in able if device in near]
            if near and last not in near:
                device = min(near, key=lambda d: (len(self._open[d]), d))
                why = "most of its data is there"
        if device not in able:
            device = next((d for d in able if d >= self._turn), able[0])
            self._turn = (device + 1) % len(self._open)
            why = "in turn"
        self._place(context, task, device)
        if context.explain:
            name = context.cluster.devices[device].name
            context.explain(
                f"{context.label(task)} -> {name}: {why}, {len(self._open[device])} on it"
            )

    def _nearest(self, context: SchedulingContext, task: int) -> list[int]:
        """The devices of the memory space where most bytes of a task's inputs lie."""
        sizes: dict[int, float] = {}
        for item in context.inputs(task):
            if item.space != EVERYWHERE:
                sizes[item.space] = sizes.get(item.space, 0.0) + item.bytes
        space = min(sizes, key=lambda s: (-sizes[s], s), default=EVERYWHERE)
        return [d for d, other in enumerate(context.cluster.space_of) if other == space]

    def _successors(self, context: SchedulingContext, task: int) -> list[int]:
        job = context.job_of(task)
        first = context.tasks_of(job)[0]
        return [first + s for s in context.jobs[job].graph.successors[task - first]]

    # -- deques ---------------------------------------------------------------------------------

    def _place(self, context: SchedulingContext, task: int, device: int) -> None:
        self._prune(context, device)
        self._placed += 1
        context.place(task, device, float(-self._placed if self.newest_first else self._placed))
        self._deques[device].append(task)
        self._open[device].add(task)
        self._device[task] = device

    def _forget(self, task: int) -> None:
        device = self._device.pop(task, -1)
        if device >= 0:
            self._open[device].discard(task)

    def _prune(self, context: SchedulingContext, device: int) -> deque[int]:
        """Take what has started off the end at which the owner takes its tasks."""
        line = self._deques[device]
        end = -1 if self.newest_first else 0
        while line and not context.is_queued(line[end]):
            del line[end]
        return line

    def _steal(self, context: SchedulingContext, thief: int) -> bool:
        """Let a device take one task; returns whether there was any to take."""
        space_of, devices = context.cluster.space_of, context.cluster.devices
        prey: list[tuple[bool, int, int, int]] = []  # far away?, minus how many, victim, task
        for victim in range(len(devices)):
            if victim == thief:
                continue
            line = self._prune(context, victim)
            begun = len(self._open[victim]) - len(line)
            spare = len(line) - max(0, devices[victim].slots - begun)
            # An owner that takes the oldest first keeps those, and thieves what comes after them.
            first = 0 if self.newest_first else len(line) - spare
            offered = (line[place] for place in range(first, first + spare))
            task = next((t for t in offered if self._suits(context, t, thief, victim)), None)
            if task is not None:
                far = self.victim == "nearest" and space_of[victim] != space_of[thief]
                prey.append((far, -spare, victim, task))
        if not prey:
            return False
        _, spare, victim, task = self._random.choice(prey) if self.victim == "random" else min(prey)
        context.withdraw(task)
        self._deques[victim].remove(task)
        self._forget(task)
        self._place(context, task, thief)
        if context.explain:
            context.explain(
                f"{devices[thief].name} steals {context.label(task)} from {devices[victim].name}, "
                f"where {-spare} waited"
            )
        return True

    def _suits(self, context: SchedulingContext, task: int, thief: int, victim: int) -> bool:
        # Where decisions take time, a theft may have come too late.
        if context.device_of(task) != victim or not context.is_queued(task):
            return False
        if context.seconds(task)[thief] == math.inf:
            return False
        if not self.gain:
            return True
        ((finish, _),) = estimated_finishes(context, task, [thief], self.pricing)
        return finish < context.available(victim)
