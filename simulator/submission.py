"""How operators get onto a device: each when it can start, or submitted ahead of what the host knows.

A host that submits work to an accelerator learns of an operator's end only ``completion_latency``
seconds after it. It may have ``issue_depth`` operators for each slot submitted and not known to be
complete: with 1 it waits for each operator, as naive code does; with more the device goes on by itself
from one operator to the next. Where the latency is 0 nothing is gained by submitting ahead, so an
operator is submitted when it can start (:class:`Synchronous`), whatever the depth.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

import simpy

if TYPE_CHECKING:
    from simulator.simulation import Simulation


class Feeder(Protocol):
    """One device's way of getting its operators."""

    def feed(self) -> None:
        """Let begin what can, after anything has changed."""
        ...

    def ended(self, task: int) -> None:
        """The device has ended a task now."""
        ...

    def known(self, task: int) -> float:
        """The host learns of an end now; returns when that end was, seconds."""
        ...

    def end_of(self, task: int) -> float | None:
        """When the device ended a task that the host does not know to be finished; None: it has not."""
        ...

    def reset(self) -> None:
        """The device has lost everything that it had begun or was submitted."""
        ...


def feeder(run: Simulation, device: int) -> Feeder:
    """What a device's latency asks for."""
    if run.cluster.devices[device].completion_latency > 0:
        return Asynchronous(run, device)
    return Synchronous(run, device)


class Synchronous:
    """The head of the queue begins when a slot is free and it lacks nothing; ends are known at once."""

    def __init__(self, run: Simulation, device: int) -> None:
        self._run = run
        self._device = device
        self._slots = run._free_slots[device]

    def feed(self) -> None:
        """See :class:`Feeder`."""
        run, device, slots = self._run, self._device, self._slots
        while slots:
            task = run._head(device)
            if task < 0 or run._pending[task] or not run._admits(task, device):
                return
            run._take(device)
            run._execute(task, device, heappop(slots))

    def ended(self, task: int) -> None:
        """See :class:`Feeder`."""
        self._run._due.append(task)

    def known(self, task: int) -> float:
        """See :class:`Feeder`."""
        heappush(self._slots, self._run._slot[task])
        return self._run.now

    def end_of(self, task: int) -> None:
        """See :class:`Feeder`."""
        return

    def reset(self) -> None:
        """See :class:`Feeder`."""
        self._slots[:] = range(self._run._slots[self._device])


class Asynchronous:
    """Submits ahead: at most ``issue_depth`` operators for each slot are not known to be complete.

    The head of the queue is submitted once each of its predecessors is known to be finished, or has
    been submitted to this device as well, and the data of those that are known is here. Slots take
    submitted operators strictly in the order of submission, the first of them when its predecessors
    on this device have ended. What is submitted can no longer be withdrawn or overtaken.
    """

    def __init__(self, run: Simulation, device: int) -> None:
        description = run.cluster.devices[device]
        self._run = run
        self._device = device
        self._slots = run._free_slots[device]
        self._window = description.issue_depth * description.slots
        self._latency = description.completion_latency
        self._waiting: deque[int] = deque()  # submitted, in no slot yet
        self._unknown = 0  # submitted and not known to be complete
        self._end: dict[int, float] = {}  # of those that have ended
        # What the host knows: when it submitted those, and the last end in each slot.
        self._submitted_at: dict[int, float] = {}
        self._known_end = [0.0] * description.slots
        # By task: its predecessors that are submitted here and not known to be complete, and how many
        # of those have ended.
        self._submitted: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def feed(self) -> None:
        """See :class:`Feeder`."""
        self._submit_heads()
        while self._slots and self._waiting:
            task = self._waiting[0]
            if self._run._pending[task] > self._ended.get(task, 0):
                return
            self._waiting.popleft()
            self._run._execute(task, self._device, heappop(self._slots))

    def _submit_heads(self) -> None:
        run, device = self._run, self._device
        while self._unknown < self._window:
            task = run._head(device)
            if task < 0 or run._pending[task] > self._submitted.get(task, 0):
                return
            if not run._admits(task, device):
                return
            run._take(device)
            self._unknown += 1
            self._waiting.append(task)
            self._submitted_at[task] = run.now
            for successor in run._successors(task):
                self._submitted[successor] = self._submitted.get(successor, 0) + 1

    def ended(self, task: int) -> None:
        """See :class:`Feeder`."""
        run = self._run
        now = self._end[task] = run._clock._now
        heappush(self._slots, run._slot[task])
        for successor in run._successors(task):
            self._ended[successor] = self._ended.get(successor, 0) + 1
        run._touched.add(self._device)
        run._clock.at(now + self._latency, self._on_known, task)

    def _on_known(self, event: simpy.Event) -> None:
        task = event._value
        # Not if the device has failed in between.
        if task in self._end and self._end[task] + self._latency == self._run._clock._now:
            self._run._due.append(task)

    def reset(self) -> None:
        """See :class:`Feeder`."""
        self._slots[:] = range(self._run._slots[self._device])
        for column in (self._end, self._submitted_at, self._submitted, self._ended):
            column.clear()
        self._waiting.clear()
        self._unknown = 0

    def known(self, task: int) -> float:
        """See :class:`Feeder`."""
        self._unknown -= 1
        for successor in self._run._successors(task):
            for count in (self._submitted, self._ended):
                count[successor] -= 1
                if not count[successor]:
                    del count[successor]
        del self._submitted_at[task]
        end = self._known_end[self._run._slot[task]] = self._end.pop(task)
        return end

    def end_of(self, task: int) -> float | None:
        """See :class:`Feeder`."""
        return self._end.get(task)

    def project(self) -> float:
        """Believed time at which a task behind everything queued here could begin.

        From what the host knows: submissions, ends that it has learnt of, and that the others were
        not over a latency ago.
        """
        run, device = self._run, self._device
        free = self._known_end.copy()
        heapify(free)
        known: list[float] = []  # when the host learns of those in the window
        last = 0.0
        ends: dict[int, float] = {}

        def append(task: int, begin: float, at_least: float) -> float:
            start = max(last, heappop(free), begin)
            end = max(start + run.seconds(task)[device], at_least)
            ends[task] = run._expected[task] = end
            heappush(free, end)
            heappush(known, end + self._latency)
            return start

        for task, moment in self._submitted_at.items():
            parents = [ends[p] for p in run._predecessors(task) if p in ends]
            last = append(task, max([moment, *parents]), run.now - self._latency)
        for _, _, task in sorted(run._queues[device]):
            begin = run._data_expected(task, device)
            if len(known) == self._window:
                begin = max(begin, heappop(known))
            last = append(task, begin, 0.0)
        window = known[0] if len(known) == self._window else run.now
        return max(last, free[0], window)
