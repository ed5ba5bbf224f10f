"""Runs of fixed plans whose delays lie in arrays, with what a finish sets off compiled.

The trace is that of :class:`simulator.planned.PlannedSimulation`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from heapq import heappush
from typing import Any

import numpy as np

from simulator import plan_kernels as kernels
from simulator.clock import TASK_ENDS, Occurrence
from simulator.compiling import entry
from simulator.context import SchedulingContext
from simulator.planned import PlannedSimulation


class CompiledPlan(PlannedSimulation):
    """See the module docstring."""

    def _prepare(self) -> None:
        super()._prepare()
        graphs = [job.graph for job in self._workload]
        tasks, edges = sum(map(len, graphs)), sum(len(graph.edge_source) for graph in graphs)
        devices, slots = len(self._slots), sum(self._slots)
        self._arrays = {
            kernels.DEVICE: np.zeros(tasks, dtype=np.int64),
            kernels.OFFSET: np.zeros(tasks + 1, dtype=np.int64),
            kernels.SOURCE: np.zeros(edges, dtype=np.int64),
            kernels.DELAY: np.zeros(edges),
            kernels.SINCE: np.zeros(tasks),
            kernels.DURATION: np.zeros(tasks),
            kernels.START: np.full(tasks, math.inf),
            kernels.FINISH: np.full(tasks, math.inf),
            kernels.WATCHER: np.full(tasks, -1, dtype=np.int64),
            kernels.ORDER: np.zeros(devices, dtype=np.int64),
            kernels.LENGTH: np.zeros(devices, dtype=np.int64),
            kernels.NEXT: np.zeros(devices, dtype=np.int64),
            kernels.FREE: np.array(self._slots, dtype=np.int64),
            kernels.LAST_START: np.zeros(devices),
            kernels.WATCHED: np.full(devices, -1, dtype=np.int64),
            kernels.BESIDE: np.zeros(devices, dtype=np.int64),
            kernels.LOOK: np.zeros(2 * devices, dtype=np.int64),
            kernels.BEGUN: np.zeros(slots, dtype=np.int64),
        }
        self._header = np.zeros(kernels.HEADER, dtype=np.int64)
        for name, column in self._arrays.items():
            self._header[name] = column.ctypes.data
        self._header[kernels.DEVICES] = devices
        self._since, self._duration = self._view(kernels.SINCE), self._view(kernels.DURATION)
        self._offset, self._source = self._view(kernels.OFFSET), self._view(kernels.SOURCE)
        self._delay = self._view(kernels.DELAY)
        self._start_time, self._finish_time = self._view(kernels.START), self._view(kernels.FINISH)
        self._next, self._free = self._view(kernels.NEXT), self._view(kernels.FREE)
        self._last_start = self._view(kernels.LAST_START)

    def _view(self, name: int) -> Any:
        """An array of which Python reads and writes single numbers fast."""
        return memoryview(self._arrays[name])  # type: ignore[arg-type]

    def _add_tasks(self, count: int) -> None:
        SchedulingContext._add_tasks(self, count)  # the rest is there

    def _make_advance(self) -> Callable[[int | None, float], None]:
        run, at, nobody = entry(kernels.advance), self._header.ctypes.data, kernels.NOBODY
        queue, begun, finish_time = self._clock._queue, self._view(kernels.BEGUN), self._finish_time
        # One for all: the queue says whose end it is.
        end_of_task = Occurrence(self._clock, None, None)

        def advance(ended: int | None, now: float) -> None:
            """As in the other way of fixed plans."""
            count = run(at, nobody if ended is None else ended, now)
            while count:
                count -= 1
                task = begun[count]
                heappush(queue, (finish_time[task], TASK_ENDS, task, end_of_task))

        return advance

    def _forget_watchers(self) -> None:
        watched = self._arrays[kernels.WATCHED]
        self._arrays[kernels.WATCHER][watched[watched >= 0]] = -1
        watched[:] = -1

    def _compile(self) -> None:
        super()._compile()
        for device, order in enumerate(self._order):
            # Its memory stays where it is until the next plan makes it longer.
            self._arrays[kernels.ORDER][device], length = order.buffer_info()
            self._arrays[kernels.LENGTH][device] = length

    def _ordered(self, tasks: np.ndarray) -> Any:
        return array("q", tasks.astype(np.int64).tobytes())

    def _add_delays(
        self,
        first: int,
        duration: np.ndarray,
        since: np.ndarray,
        ends: np.ndarray,
        source: np.ndarray,
        delay: np.ndarray,
    ) -> None:
        tasks, edge = slice(first, first + len(ends)), self._offset[first]
        edges = slice(edge, edge + len(source))
        self._arrays[kernels.DEVICE][tasks] = self._placed[-1]
        self._arrays[kernels.DURATION][tasks] = duration
        self._arrays[kernels.SINCE][tasks] = since
        self._arrays[kernels.OFFSET][first + 1 : first + 1 + len(ends)] = ends + edge
        self._arrays[kernels.SOURCE][edges] = source + first
        self._arrays[kernels.DELAY][edges] = delay

    def _forget_delays(self) -> None:
        """Nothing: the loop's arrays take less than the lists."""
