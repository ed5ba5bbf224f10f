"""What a host knows of a device that it submits operators to ahead of what it knows, in both worlds.

A host that submits work to an accelerator learns of an operator's end only ``completion_latency``
seconds after it. It may have ``issue_depth`` operators for each slot submitted and not known to be
complete. The head of a device's queue is submitted once there is room in that window and each of its
predecessors is known to be finished, or has been submitted to this device as well, and the data of
those that are known is here. What is submitted can no longer be withdrawn or overtaken.

Submitting takes the host ``issue_overhead`` seconds, one operator of the device after the other. The device cannot
begin with an operator before: it is the host that short operators wait for.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.context import SchedulingContext
    from simulator.model.cluster import Device


class IssueWindow:
    """The operators of one device that were submitted and are not known to be complete.

    Args:
        run: whose queues they are taken from.
        device: index in its cluster.
        description: the device as it is, or as it is believed to be.
    """

    def __init__(self, run: SchedulingContext, device: int, description: Device) -> None:
        self._run = run
        self._device = device
        self._room = description.issue_depth * description.slots
        self._latency = description.completion_latency
        self._overhead = description.issue_overhead
        self._issued = 0.0  # when the host has done with the last that was submitted
        self._submitted_at: dict[int, float] = {}  # when the host has done with each
        self._known_end = [0.0] * description.slots  # the last in each slot that the host knows of
        # By task: its predecessors that are submitted here and not known to be complete.
        self._submitted: dict[int, int] = {}

    def head(self) -> int:
        """The task that is next in the queue, if it may be submitted as soon as its data is here; -1 if not."""
        if len(self._submitted_at) == self._room:
            return -1
        task = self._run.head(self._device)
        if task < 0 or self._run.pending[task] > self._submitted.get(task, 0):
            return -1
        return task

    def submit(self, task: int) -> float:
        """The task at the head of the queue is submitted now; returns when the device can begin with it."""
        self._issued = max(self._issued, self._run.now) + self._overhead
        self._submitted_at[task] = self._issued
        for successor in self._run.successors_of(task):
            self._submitted[successor] = self._submitted.get(successor, 0) + 1
        return self._issued

    def known(self, task: int, slot: int, end: float) -> None:
        """The host learns now that a task ended in a slot at ``end``."""
        for successor in self._run.successors_of(task):
            self._submitted[successor] -= 1
            if not self._submitted[successor]:
                del self._submitted[successor]
        del self._submitted_at[task]
        self._known_end[slot] = end

    def oldest(self) -> tuple[int, float]:
        """The task that was submitted first, and the earliest that it can have begun; -1 if there is none."""
        for task, moment in self._submitted_at.items():
            return task, max(moment, min(self._known_end))
        return -1, 0.0

    def clear(self) -> None:
        """The device has lost everything that it was submitted."""
        self._submitted_at.clear()
        self._submitted.clear()
        self._issued = 0.0

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
            ends[task] = run.expected_finish[task] = end
            heappush(free, end)
            heappush(known, end + self._latency)
            return start

        for task, moment in self._submitted_at.items():
            parents = [ends[p] for p in run.predecessors_of(task) if p in ends]
            last = append(task, max([moment, *parents]), run.now - self._latency)
        issued = self._issued
        for _, _, task in sorted(run.queues[device]):
            begin = run.data_expected(task, device)
            submitted = heappop(known) if len(known) == self._room else run.now
            if not run.pending[task]:  # or else it may be submitted behind what it waits for
                submitted = max(submitted, begin)
            issued = max(issued, submitted) + self._overhead
            last = append(task, max(begin, issued), 0.0)
        window = known[0] if len(known) == self._room else run.now
        return max(last, free[0], max(issued, window) + self._overhead)
