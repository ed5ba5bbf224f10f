"""How operators get onto a simulated device: each when it can start, or submitted ahead of what the host knows.

With an ``issue_depth`` of 1 the host waits for each operator, as naive code does; with more the device goes on by
itself from one operator to the next (:mod:`simulator.devices.issue_window`). Where the latency is 0 nothing is gained by
submitting ahead, so an operator is submitted when it can start, whatever the depth.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from simulator.clock import Moment
from simulator.devices.issue_window import IssueWindow

if TYPE_CHECKING:
    from simulator.context.simulated import SimulatedRun


def submission_of(run: SimulatedRun, device: int) -> Submission | None:
    """How a device is submitted to ahead; None where an operator is submitted when it can start."""
    if run.real.devices[device].completion_latency > 0:
        return Submission(run, device)
    return None


class Submission:
    """Submits ahead what its :class:`IssueWindow` allows.

    Slots take submitted operators strictly in the order of submission, the first of them when its
    predecessors on this device have ended.
    """

    def __init__(self, run: SimulatedRun, device: int) -> None:
        description = run.real.devices[device]
        self._run = run
        self._device = device
        self._slots = run.free_slots[device]
        self._latency = description.completion_latency
        self.window = IssueWindow(run, device, description)
        self._waiting: deque[int] = deque()  # submitted, in no slot yet
        self._issued: deque[float] = deque()  # when the device can begin with each of them
        self._awaited = 0.0  # the last of these that a slot waited for
        self._end: dict[
            int, float
        ] = {}  # of those that have ended and are not known to be complete
        # By task: how many of its predecessors are among those.
        self._ended: dict[int, int] = {}

    def feed(self) -> None:
        """Let begin what can, after anything has changed."""
        self._submit_heads()
        while self._slots and self._waiting:
            task = self._waiting[0]
            if self._run.pending[task] > self._ended.get(task, 0):
                return
            if self._issued[0] > self._run.now:
                self._wait(self._issued[0])
                return
            self._waiting.popleft()
            self._issued.popleft()
            self._run.execute(task, self._device, heappop(self._slots))

    def _submit_heads(self) -> None:
        run, window = self._run, self.window
        while (task := window.head()) >= 0 and run.admits(task, self._device):
            run.take(self._device)
            self._waiting.append(task)
            self._issued.append(window.submit(task))

    def _wait(self, issued: float) -> None:
        """Come back when the host has done with an operator that a slot waits for."""
        if self._awaited != issued:
            self._awaited = issued
            self._run.clock.at(issued, [self._on_issued])

    def _on_issued(self, _: Moment) -> None:
        self._run.touched.add(self._device)

    def ended(self, task: int) -> None:
        """The device has ended a task now."""
        run = self._run
        now = self._end[task] = run.clock.now
        heappush(self._slots, run.task_slot[task])
        for successor in run.successors_of(task):
            self._ended[successor] = self._ended.get(successor, 0) + 1
        run.touched.add(self._device)
        run.clock.at(now + self._latency, [self._on_known], task)

    def _on_known(self, event: Moment) -> None:
        task = event.subject
        # Not if the device has failed in between.
        if task in self._end and self._end[task] + self._latency == self._run.clock.now:
            self._run.due.append(task)

    def reset(self) -> None:
        """The device has lost everything that it had begun or was submitted."""
        self._end.clear()
        self._ended.clear()
        self._waiting.clear()
        self._issued.clear()
        self.window.clear()

    def known(self, task: int) -> float:
        """The host learns of an end now; returns when that end was, seconds."""
        for successor in self._run.successors_of(task):
            self._ended[successor] -= 1
            if not self._ended[successor]:
                del self._ended[successor]
        end = self._end.pop(task)
        self.window.known(task, self._run.task_slot[task], end)
        return end

    def end_of(self, task: int) -> float | None:
        """When the device ended a task that the host does not know to be finished; None: it has not."""
        return self._end.get(task)
