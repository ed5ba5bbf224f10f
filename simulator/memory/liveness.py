"""Tensors that exist or are being written, who still wants them, and the room that they hold for it.

A tensor that an operator writes, or a job brings, is wanted in its home until every reader has finished
there or has its copy elsewhere, and no transfer of it is under way; a copy until every reader has finished
or is placed elsewhere; a result until its job is done, at the job's destination or where it was written. What becomes of
a weight for the next step is wanted until it has arrived wherever the weight was read; there it takes the weight's place. Until all that read the weight have finished it may be wanted anywhere and keeps the original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.context import EVERYWHERE
from simulator.memory.room import Room
from simulator.memory.tensor_table import JobTensors

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun


class LiveTensor:
    """A tensor that exists or is being written, and who still wants it."""

    __slots__ = (
        "bytes",
        "copies",
        "flying",
        "heirs",
        "home",
        "idle",
        "input",
        "owed",
        "result",
        "target",
        "unplaced",
        "users",
        "written",
    )

    def __init__(
        self,
        size: int,
        home: int,
        result: bool,
        target: int,
        written: bool,
        brought: bool = False,
    ) -> None:
        self.bytes = size
        self.home = home
        self.input = brought  # by its job
        self.result = result  # and its job is not done
        self.target = target  # space where the job wants it
        self.written = written
        self.unplaced = 0  # readers in no queue
        self.users: dict[int, int] = {}  # space -> placed readers that have not finished
        self.copies: dict[int, bool] = {}  # space -> whether it has arrived
        self.flying = 0  # transfers under way
        self.heirs = 0  # readers of the weight that becomes it that have not finished
        self.owed: set[int] = set()  # spaces where a weight has still to become it
        self.idle: set[int] = set()  # spaces where nobody wants it, and it still lies

    def is_wanted(self, space: int) -> bool:
        """Whether anybody wants it where it or a copy of it lies."""
        if self.unplaced or not self.written or space in self.users:
            return True
        if (self.heirs or self.owed) and space == self.home:
            return True
        delivers = self.result and self.target != EVERYWHERE
        if space != self.home:
            return not self.copies[space] or (delivers and space == self.target)
        if self.flying or not all(self.copies.get(other) for other in self.users):
            return True
        return self.result and not (delivers and self.copies.get(self.target, False))

    @property
    def is_delivered(self) -> bool:
        """Whether it lies where its job wants it, if its job wants it anywhere."""
        wanted = self.result and self.target not in (EVERYWHERE, self.home)
        return self.written and (not wanted or self.copies.get(self.target, False))


class LiveTensors:
    """All of a run but weights.

    Args:
        run: the simulation.
        room: what they occupy.
        tensors: of the run's jobs.
        let_go: called with a tensor that lies nowhere any more.
    """

    def __init__(
        self, run: SimulatedRun, room: Room, tensors: JobTensors, let_go: Callable[[int], None]
    ) -> None:
        self._run = run
        self._let_go = let_go
        self._room = room
        self._tensors = tensors
        self.all: dict[int, LiveTensor] = {}
        """By number."""
        self.have_read: set[int] = set()
        """Tasks that have finished and read weights that change."""

    def hold(self, tensor: int, live: LiveTensor) -> None:
        """Keep account of a tensor whose room was taken, and of its readers."""
        run = self._run
        for reader in self._tensors.readers(tensor):
            if run.is_done(reader):
                continue
            device = run.device_of(reader)
            if device < 0:
                live.unplaced += 1
            else:
                space = run.cluster.space_of[device]
                live.users[space] = live.users.get(space, 0) + 1
        live.heirs = sum(heir not in self.have_read for heir in self._tensors.heirs(tensor))
        self.owe(tensor, live)
        self.all[tensor] = live

    def owe(self, tensor: int, live: LiveTensor, without: int = -1) -> None:
        """Note where a weight has still to become a tensor, for readers other than ``without``."""
        job = self._tensors.job(tensor)
        goals = self._run.state_goals(job, tensor - self._tensors.first(job), without)
        live.owed = {s for s in goals if s != live.home and not live.copies.get(s)}

    def inherited_by(self, task: int) -> list[tuple[int, LiveTensor]]:
        """What becomes of the weights that a task reads, if it is accounted for."""
        live = self.all
        return [(t, live[t]) for t in self._tensors.inherited(task) if t in live]

    def read_by(self, task: int) -> list[tuple[int, LiveTensor]]:
        """The tensors that a task reads and that are accounted for."""
        live = self.all
        return [(t, live[t]) for t in self._tensors.read(task) if t in live]

    def review(self, tensor: int, live: LiveTensor) -> None:
        """Give back the room of what nobody wants, take it for what is wanted again."""
        room = self._room
        holders = live.unplaced, live.users, live.flying, live.result, live.heirs, live.owed
        if live.written and not any(holders):
            for space in (live.home, *live.copies):
                self._leave(tensor, live, space)
            del self.all[tensor]
            self._let_go(tensor)
            return
        for space in (live.home, *live.copies):
            wanted = live.is_wanted(space)
            if wanted and space in live.idle:
                live.idle.discard(space)
                room.pick_up(tensor, space)
                room.inputs[space] += live.input * live.bytes
                room.take(space, live.bytes)
            elif not wanted and space not in live.idle:
                live.idle.add(space)
                room.lay_down(tensor, space, live.bytes)
                self._give_back(live, space)

    def drop(self, tensor: int, space: int) -> None:
        """Let unwanted data go for good."""
        self._room.pick_up(tensor, space)
        live = self.all[tensor]
        live.idle.discard(space)
        if space == live.home:
            # From now on it crosses from where it is still wanted.
            live.home = min(s for s, here in live.copies.items() if here and s not in live.idle)
            del live.copies[live.home]
            self._tensors.move_home(tensor, live.home)
        else:
            del live.copies[space]
            self._tensors.forget_copy(tensor, space)

    def move(self, tensor: int, live: LiveTensor, space: int) -> None:
        """What was sent ahead lies in ``space`` from now on, and no longer where it lay."""
        before = live.home
        del live.copies[space]
        live.home = space
        self._leave(tensor, live, before)
        live.idle.discard(before)

    def lose_copy(self, tensor: int, live: LiveTensor, space: int) -> None:
        """A copy is gone, or does not arrive."""
        live.flying -= not live.copies.pop(space)
        self._leave(tensor, live, space)
        live.idle.discard(space)
        self.review(tensor, live)

    def move_home(self, tensor: int, live: LiveTensor, space: int) -> None:
        """The original is gone; the copy in ``space`` takes its place."""
        self.move(tensor, live, space)
        self.review(tensor, live)

    def lose(self, tensor: int, live: LiveTensor) -> None:
        """The last of a tensor is gone."""
        self._leave(tensor, live, live.home)
        del self.all[tensor]
        self._let_go(tensor)

    def _leave(self, tensor: int, live: LiveTensor, space: int) -> None:
        if space in live.idle:
            self._room.pick_up(tensor, space)
        else:
            self._give_back(live, space)

    def _give_back(self, live: LiveTensor, space: int) -> None:
        self._room.inputs[space] -= live.input * live.bytes
        self._room.give_back(space, live.bytes)
