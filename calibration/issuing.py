"""A device that operators are issued to ahead of what the host knows: ``issue_depth`` on hardware.

The device's worker executes what was submitted to it, one operator after the other, without asking anybody: on a CPU
it calls kernels, for a GPU it launches them on a stream, whose results later operators may be launched on before they
are there. A second thread learns of the ends in their order, applies them, and lets the scheduler decide; what it
decides is what the worker is submitted next. What may be submitted when is the simulator's own rule
(:mod:`simulator.devices.issue_window`). The time from an operator's end until that thread has acted on it is the device's
``completion_latency``; that of the cluster is what schedulers believe.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from calibration.stream_clock import Mark, StreamClock
from calibration.workers import Worker
from simulator.devices.issue_window import IssueWindow

if TYPE_CHECKING:
    from calibration.hardware_run import HardwareRun


class Issued(NamedTuple):
    """An operator that was called, or launched."""

    task: int
    start: float
    """When its worker began with it, or had launched it (``time.perf_counter``)."""
    finish: float | Mark
    """When it ended, or the point of the stream at which it will have."""
    written: tuple[torch.Tensor, ...]


class Issuing:
    """The operators of one such device during one run.

    Args:
        run: of which it is a part.
        worker: the device's.
    """

    def __init__(self, run: HardwareRun, worker: Worker) -> None:
        self.window = IssueWindow(run, worker.device, run.cluster.devices[worker.device])
        self._run = run
        self._worker = worker
        self._device = worker.device
        self._submitted: deque[int] = deque()  # the worker has not begun with them
        self._parked = False  # the worker waits for more of them
        self._issued: queue.SimpleQueue[Issued | None] = queue.SimpleQueue()
        self.launched = 0
        """Operators that were launched on a stream, which goes on meanwhile."""
        self.launching_seconds = 0.0
        """Of its worker, for these."""

    def start(self) -> None:
        """Start the thread that learns of ends: here and not on the worker's, whose core it would be bound to."""
        name = f"{self._worker.name} (ends)"
        self._learner = threading.Thread(target=self._learn, name=name, daemon=True)
        self._learner.start()

    def feed(self) -> None:
        """Submit what may be; under the run's lock."""
        run, window, device = self._run, self.window, self._device
        while (task := window.head()) >= 0 and run._has_inputs(task, device):
            run._take(device)
            window.submit(task)
            self._submitted.append(task)
        if self._submitted:
            self.wake()

    def wake(self) -> None:
        """Let the worker look what there is; under the run's lock."""
        if self._parked:
            self._parked = False
            self._worker.bell.ring()

    def work(self) -> None:
        """Execute what is submitted until the run is over, on the worker's thread."""
        try:
            self._issue()
        finally:
            self._issued.put(None)
            self._learner.join()

    def _issue(self) -> None:
        run, worker, submitted = self._run, self._worker, self._submitted
        call = run._caller(worker, awaits=False)
        clock = None if worker.stream is None else StreamClock(worker.stream)
        while not run._over:
            try:
                task = submitted.popleft()
            except IndexError:
                if clock is not None:
                    clock.rests()
                if self._parks():
                    worker.bell.wait()
                continue
            start, finish, written = call(task)
            # Before the host knows: what is submitted behind it reads them here.
            run._keep(task, self._device, written)
            if clock is None:
                self._issued.put(Issued(task, start, finish, written))
            else:
                self._issued.put(Issued(task, finish, clock.mark(), written))
                self.launched += 1
                self.launching_seconds += time.perf_counter() - start
            del written

    def _parks(self) -> bool:
        with self._run._lock:
            self._parked = not self._submitted and not self._run._over
            return self._parked

    def _learn(self) -> None:
        """Tell the run of every end, in their order."""
        run, end = self._run, 0.0
        try:
            while (issued := self._issued.get()) is not None:
                if not run._over:
                    end = self._tell(issued, end)
                del issued
        except Exception as error:
            with run._lock:
                run._stop(error)

    def _tell(self, issued: Issued, before: float) -> float:
        """Tell the run of an end; returns when that was. Takes the end of the one before."""
        task, start, finish, written = issued
        if isinstance(finish, Mark):
            finish = self._reached(task, finish)
            # It begins when it has been launched and the one before has ended.
            start = min(max(start, before), finish)
        run, origin = self._run, self._run._origin
        with run._lock:
            if not run._over:
                self.window.known(task, self._worker.slot, finish - origin)
                run._learnt(self._worker, task, start - origin, finish - origin, written)
        return finish

    def _reached(self, task: int, mark: Mark) -> float:
        try:
            return mark.wait()
        except Exception as error:
            raise self._run._failure(task, self._worker, error) from error
