"""Who waits for room in a memory space, and in which order it is let in.

Copies and weights wait in one line for each space, in the order in which the queues of its devices need
them: by (rank, placement) of the first task that asked. They also leave room for the outputs of the tasks up
to that one in these queues; only when nothing else is left to happen they do not. Jobs' inputs and results
to be delivered are first in line, what no placed task wants there yet is last. Inputs whose room is limited
wait in a line of their own, in the order of asking. While there is room for everything, order does not matter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from simulator.memory.room import Room

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun

Order = tuple[float, int]
"""(rank, placement) of a task in its device's queue."""
FIRST: Order = (-math.inf, 0)
"""Of what jobs ask for: their inputs, and results to be delivered."""
LAST: Order = (math.inf, 0)
"""Of a message that brings what no placed task wants there yet."""


def order_of(run: SimulatedRun, task: int) -> Order:
    """Where a placed task stands in its queue."""
    return run.task_rank[task], run.task_sequence[task]


@dataclass(eq=False, slots=True)
class Waiting:
    """Something that waits in a space's line; ``order`` is that of the task that asked for it."""

    order: Order
    bytes: int
    wanted: Callable[[], bool]
    take: Callable[[], None]
    cancel: Callable[[], None]
    describe: Callable[[], str]
    take_apart: Callable[[], None] | None = None
    """Of a message of several tensors: let each of them wait alone."""
    inputs: int = 0
    """Of its bytes those of inputs of requests that wait, where their room is limited."""


class Lines:
    """One for each memory space, and one for inputs where they have a limit of their own.

    Args:
        room: of the spaces.
        ask_scheduler: called when something has to wait, or goes on that had to: it may decide once more.
    """

    def __init__(self, room: Room, ask_scheduler: Callable[[], None]) -> None:
        spaces = range(len(room.capacity))
        self._room = room
        self._ask_scheduler = ask_scheduler
        # In line: order, number, what waits.
        self._lines: list[list[tuple[Order, int, Waiting]]] = [[] for _ in spaces]
        self._inputs: list[deque[Waiting]] = [deque() for _ in spaces]  # the first to ask first
        self._numbered = 0
        self._asking: list[tuple[int, Waiting]] = []  # at this instant, of a space
        # By space: queued tasks with their order and the bytes that they will write; and all these bytes.
        self._queued: list[dict[int, tuple[Order, int]]] = [{} for _ in spaces]
        self.to_write = [0 for _ in spaces]

    # -- tasks that will write ------------------------------------------------------------------

    def queue(self, task: int, space: int, order: Order, size: int) -> None:
        """A task that will write so many bytes has entered a queue of the space's devices."""
        self._queued[space][task] = (order, size)
        self.to_write[space] += size

    def unqueue(self, task: int, space: int) -> None:
        """It has left it, started or withdrawn."""
        self.to_write[space] -= self._queued[space].pop(task)[1]

    def queued_bytes(self, task: int, space: int) -> int:
        """What a queued task will write."""
        return self._queued[space][task][1]

    def queued_order(self, task: int, space: int) -> Order | None:
        """Where a task stands, if it is queued in this space."""
        found = self._queued[space].get(task)
        return None if found is None else found[0]

    # -- what waits -----------------------------------------------------------------------------

    def ask(self, space: int, waiting: Waiting) -> None:
        """Something wants room as soon as the decision of this instant is made."""
        self._asking.append((space, waiting))

    def settle(self) -> None:
        """Let those go on for which there is room; who asked at this instant stands in line else."""
        self._serve()
        while self._asking:
            asking, self._asking = self._asking, []
            self._line_up(asking)

    def _line_up(self, asking: list[tuple[int, Waiting]]) -> None:
        """Let those go on that ask at this instant, or stand in line."""
        room = self._room
        wanted, inputs = self.to_write.copy(), room.inputs.copy()
        for space, waiting in asking:
            wanted[space] += waiting.bytes
            inputs[space] += waiting.inputs
        calm = [
            not line
            and not self._inputs[s]
            and room.fits(s, wanted[s])
            and inputs[s] <= room.most_inputs[s]
            for s, line in enumerate(self._lines)
        ]
        for space, waiting in asking:
            if calm[space]:
                waiting.take()
            elif waiting.inputs:
                self._inputs[space].append(waiting)
            else:
                self._numbered += 1
                heappush(self._lines[space], (waiting.order, self._numbered, waiting))
        if not all(calm):
            self._serve()
            left = {entry[2] for line in self._lines for entry in line}
            if any(waiting in left for _, waiting in asking):
                self._ask_scheduler()

    def _serve(self) -> None:
        """Let those at the heads of the lines go on for which there is room."""
        moved = True
        while moved:
            moved = False
            for space, line in enumerate(self._lines):
                while line:
                    _, _, waiting = line[0]
                    if not waiting.wanted():
                        heappop(line)
                        waiting.cancel()
                    elif self._may_go(space, waiting):
                        heappop(line)
                        waiting.take()
                    else:
                        break
                    moved = True
            for space, first_in_line in enumerate(self._inputs):
                while first_in_line:
                    waiting = first_in_line[0]
                    wanted = waiting.wanted()
                    if wanted and not self._may_come(space, waiting):
                        break
                    first_in_line.popleft()
                    if wanted:
                        waiting.take()
                    else:
                        waiting.cancel()
                    moved = True

    def _may_come(self, space: int, waiting: Waiting) -> bool:
        """Whether there is room for inputs beside all that is to be written."""
        inputs = self._room.inputs[space] + waiting.inputs
        return inputs <= self._room.most_inputs[space] and self._room.fits(
            space, waiting.bytes + self.to_write[space]
        )

    def _may_go(self, space: int, waiting: Waiting) -> bool:
        """Whether there is room for it beside the outputs that are to be written before."""
        if not self._room.fits(space, waiting.bytes):
            return False
        before = sum(size for at, size in self._queued[space].values() if at <= waiting.order)
        return self._room.fits(space, waiting.bytes + before)

    def relax(self) -> bool:
        """Nothing is left to happen: let something go on that waited for others' sake, if it can.

        A message that cannot is taken apart.
        """
        for space, line in enumerate(self._lines):
            for entry in sorted(line, key=lambda entry: entry[:2]):
                waiting = entry[2]
                if waiting.wanted() and self._room.fits(space, waiting.bytes):
                    line.remove(entry)
                    heapify(line)
                    waiting.take()
                    self._ask_scheduler()
                    return True
        return self._take_apart()

    def _take_apart(self) -> bool:
        """Let the tensors of the first message that waits in a line go on one by one."""
        for first_in_line in self._inputs:
            for waiting in first_in_line:
                if waiting.take_apart is not None and waiting.wanted():
                    first_in_line.remove(waiting)
                    waiting.take_apart()
                    self._ask_scheduler()
                    return True
        for line in self._lines:
            for entry in sorted(line, key=lambda entry: entry[:2]):
                waiting = entry[2]
                if waiting.take_apart is not None and waiting.wanted():
                    line.remove(entry)
                    heapify(line)
                    waiting.take_apart()
                    self._ask_scheduler()
                    return True
        return False

    def waiting_in(self, space: int) -> Iterator[Waiting]:
        """What waits for room in a space and is still wanted, in order."""
        in_line = [entry[2] for entry in sorted(self._lines[space], key=lambda entry: entry[:2])]
        return (w for w in (*in_line, *self._inputs[space]) if w.wanted())
