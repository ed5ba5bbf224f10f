"""The critical path of a run: the executions and transfers that determined its makespan.

Walking back from the last finish, each step goes to what ended last before the start of where it
stands:

- before an execution: the transfers that brought its inputs, the executions that wrote them, the one
  before it on its slot;
- before a transfer: the one before it on any of its channels if it waited, or else the execution that
  wrote the tensor; where the request came later than that (it takes a placement, under ``pull`` also
  the other predecessors), whatever else the consumer waited for.

Of equal times data comes before the device. A task that starts together with another of its device,
having waited behind it, goes on where that one does. The path ends at a job's arrival. What lies
between a step and the one before it is waiting that no execution and no transfer accounts for: a
decision taken late, room in memory, the device's or the runner's own time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from simulator.analysis.dependencies import Dependencies
from simulator.model.trace import Trace

K = TypeVar("K")
What = Literal["execution", "transfer"]


@dataclass(frozen=True)
class Step:
    """A stretch of the critical path.

    Attributes:
        what: ``execution`` or ``transfer``.
        row: in that table of the trace; of a transfer over several links, one of its rows.
        start, finish: seconds.
        after: what it waited for: ``data``, ``link``, ``device``, or ``arrival`` for the first.
        wait_s: seconds between that and its start.
    """

    what: What
    row: int
    start: float
    finish: float
    after: str
    wait_s: float


_Before = tuple[float, int, What, int, str]
"""When it ended, how much it counts at equal times, what, its number, and why it mattered."""


def critical_path(trace: Trace, dependencies: Dependencies | None = None) -> list[Step]:
    """The steps in order of time; empty if nothing was executed.

    Args:
        trace: of a simulated or a measured run.
        dependencies: of this trace, where somebody has them already.
    """
    if not len(trace.executions["start"]):
        return []
    return _Walk(dependencies or Dependencies.of(trace)).steps()


class _Walk:
    def __init__(self, known: Dependencies) -> None:
        trace, self.known = known.trace, known
        runs, moves = trace.executions, known.crossings
        self.start = runs["start"].tolist()
        self.finish = runs["finish"].tolist()
        self.moved = list(
            zip(*(moves[k].tolist() for k in ("requested", "start", "finish")), strict=True)
        )
        self.arrival = trace.jobs["arrival"].tolist()
        self.job = runs["job"].tolist()
        self.device = runs["device"].tolist()
        self.slot = list(zip(self.device, runs["slot"].tolist(), strict=True))
        self.inputs = _grouped(known.reads["execution"], len(self.start))
        self.crossing = known.read_crossing.tolist()
        self.producer = known.read_producer.tolist()
        self.sender = known.crossing_producer.tolist()
        readers = np.flatnonzero(known.read_crossing >= 0)
        self.readers: dict[int, list[int]] = {}
        for read in readers.tolist():
            execution = int(known.reads["execution"][read])
            self.readers.setdefault(self.crossing[read], []).append(execution)
        self.on_slot = _by_finish(self.slot, self.finish)
        self.on_device = _by_start(self.device, self.start)
        channels: list[list[int]] = [[] for _ in self.moved]
        rows, links = known.crossing_of_row.tolist(), trace.transfers["link"].tolist()
        for crossing, link in zip(rows, links, strict=True):
            channels[crossing].append(link)
        self.channels = channels
        self.on_channel = _by_finish(
            links, [self.moved[crossing][2] for crossing in rows], numbers=rows
        )

    def steps(self) -> list[Step]:
        what, number = self._last()
        found: list[Step] = []
        seen: set[tuple[What, int]] = set()
        while (what, number) not in seen:  # twice only among tasks that take no time
            seen.add((what, number))
            start, finish = self._interval(what, number)
            before = self._before(what, number)
            arrival = self._arrival(what, number)
            ended = max(arrival, before[0]) if before is not None else arrival
            after = "arrival" if before is None or arrival > before[0] else before[4]
            row = number if what == "execution" else int(self.known.crossings["row"][number])
            found.append(Step(what, row, start, finish, after, max(start - ended, 0.0)))
            if before is None or after == "arrival":
                break
            what, number = before[2], before[3]
        return found[::-1]

    def _last(self) -> tuple[What, int]:
        """What ended last of all that counts: a delivery at the makespan, or an execution."""
        makespan = self.known.trace.makespan
        ends = [row[2] for row in self.moved]
        if makespan in ends and makespan not in self.finish:
            return "transfer", ends.index(makespan)
        in_time = [i for i, finish in enumerate(self.finish) if finish <= makespan]
        rows = in_time or range(len(self.finish))
        return "execution", max(rows, key=lambda i: (self.finish[i], i))

    def _interval(self, what: What, number: int) -> tuple[float, float]:
        if what == "execution":
            return self.start[number], self.finish[number]
        return self.moved[number][1], self.moved[number][2]

    def _arrival(self, what: What, number: int) -> float:
        if what == "execution":
            return float(self.arrival[self.job[number]])
        return float(self.arrival[int(self.known.crossings["job"][number])])

    def _before(self, what: What, number: int) -> _Before | None:
        if what == "execution":
            found = self._before_execution(number)
            if found is None or found[0] < self.start[number]:
                # It may have waited behind others that start now, too.
                same = self._together(number)
                found = max(
                    (b for b in [found, *map(self._before_execution, same)] if b is not None),
                    default=None,
                )
            return found
        return self._before_transfer(number)

    def _before_execution(self, number: int) -> _Before | None:
        return max(self._candidates(number, self.start[number]), default=None)

    def _candidates(self, number: int, limit: float) -> list[_Before]:
        """What an execution had to wait for and that had ended by ``limit``."""
        found: list[_Before] = []
        for read in self.inputs[number]:
            crossing, producer = self.crossing[read], self.producer[read]
            if crossing >= 0 and self.moved[crossing][2] <= limit:
                found.append((self.moved[crossing][2], 3, "transfer", crossing, "data"))
            if producer >= 0 and self.finish[producer] <= limit:
                found.append((self.finish[producer], 2, "execution", producer, "data"))
        finishes, numbers = self.on_slot[self.slot[number]]
        previous = bisect_right(finishes, limit)
        while previous and numbers[previous - 1] == number:
            previous -= 1
        if previous:
            found.append((finishes[previous - 1], 1, "execution", numbers[previous - 1], "device"))
        return found

    def _together(self, number: int) -> list[int]:
        starts, numbers = self.on_device[self.device[number]]
        end = bisect_right(starts, self.start[number])
        rows = itertools.takewhile(
            lambda i: self.start[i] == self.start[number], reversed(numbers[:end])
        )
        return [row for row in rows if row != number]

    def _before_transfer(self, number: int) -> _Before | None:
        requested, start, _ = self.moved[number]
        found: list[_Before] = []
        if start > requested:
            for channel in self.channels[number]:
                finishes, numbers = self.on_channel[channel]
                previous = bisect_right(finishes, start)
                if previous:
                    other = numbers[previous - 1]
                    if other != number and self.moved[other][2] > requested:
                        found.append((self.moved[other][2], 4, "transfer", other, "link"))
        if found:
            return max(found)
        sender = self.sender[number]
        if sender >= 0:
            found.append((self.finish[sender], 4, "execution", sender, "data"))
        if sender < 0 or self.finish[sender] < requested:
            for reader in self.readers.get(number, ()):
                found += [b for b in self._candidates(reader, requested) if b[2] == "execution"]
        return max(found, default=None)


def _grouped(row: np.ndarray, rows: int) -> list[list[int]]:
    """For each row the positions that name it."""
    result: list[list[int]] = [[] for _ in range(rows)]
    for position, number in enumerate(row.tolist()):
        result[number].append(position)
    return result


def _by_finish(
    keys: list[K], finish: list[float], numbers: list[int] | None = None
) -> dict[K, tuple[list[float], list[int]]]:
    """For each key the finishes, ascending, and whose they are."""
    found: dict[K, list[tuple[float, int]]] = {}
    for position, key in enumerate(keys):
        number = position if numbers is None else numbers[position]
        found.setdefault(key, []).append((finish[position], number))
    return {
        key: ([f for f, _ in sorted(rows)], [n for _, n in sorted(rows)])
        for key, rows in found.items()
    }


_by_start = _by_finish
