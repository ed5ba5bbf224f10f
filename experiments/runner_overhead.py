"""What the runner itself needs for an operator under a scheduler: completion, decision and hand-over.

Measured as the gaps between the kernels of a model (:mod:`experiments.probed_model`), alone and as many times at once as
a case has jobs. What calling a kernel in the runner adds to it is part of the kernel, there as in the panel that says
how long kernels take (:mod:`experiments.panel`). A chain of equal kernels says other things: of short ones
half as much, since they leave the interpreter's code in the core's caches and one operator at a time is ready; of
long ones, which push everything out, up to twice as much.

What counts is the mean gap of a run, since a makespan has all of them, and of the runs the 10th percentile, since that is
what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from experiments.probed_model import ProbedModel
from simulator.graph import DataflowGraph
from simulator.trace import Trace

if TYPE_CHECKING:
    from calibration.runner import Machine
    from simulator.scheduler import Scheduler

RUNS = 4
"""Of each scheduler and number of jobs, after one that is not counted."""
QUANTILE = 0.1
"""Of the runs."""


class OverheadProbe:
    """Measures the runner's overhead on a machine.

    Args:
        machine: any; the model is loaded on it.

    Attributes:
        model: that it executes.
    """

    def __init__(self, machine: Machine) -> None:
        self.model = ProbedModel(machine)
        # Schedulers are to choose between these devices as they would: they believe in what was measured on each.
        alone = [
            [self.model.one_by_one(device, [0.0]).seconds[0] for _ in range(RUNS)]
            for device in range(len(machine.cluster.devices))
        ]
        self._beliefs = np.median(alone, axis=1).T

    def seconds(
        self, make_scheduler: Callable[[], Scheduler], jobs: int = 1, runs: int = RUNS
    ) -> float:
        """Seconds between an operator's end and the next one's start on the same worker.

        Args:
            make_scheduler: gives a fresh scheduler for each run.
            jobs: that run at once: deciding takes longer while others wait.
            runs: after one that is not counted.
        """
        means = []
        for _ in range(runs + 1):
            trace = self.model.trace([0.0] * jobs, make_scheduler(), beliefs=self._beliefs)
            means.append(np.mean(gaps(trace, self.model.graph)))
        return max(0.0, float(np.quantile(means[1:], QUANTILE)))


def gaps(trace: Trace, graph: DataflowGraph) -> np.ndarray:
    """Seconds between the end of an execution and the start of the next one on the same slot, where all that one had to
    wait for had ended before: who waits for another worker's operator needs no time of the runner's.

    Args:
        trace: of jobs of one graph.
        graph: theirs.
    """
    rows, found = trace.executions, []
    ends = np.zeros((int(rows["job"].max()) + 1, len(graph)))
    ends[rows["job"], rows["operator"]] = rows["finish"]
    ready = np.array(
        [
            ends[job, graph.predecessors[operator]].max(initial=-np.inf)
            for job, operator in zip(rows["job"], rows["operator"], strict=True)
        ]
    )
    for place in np.unique(np.stack([rows["device"], rows["slot"]]), axis=1).T:
        mine = np.flatnonzero((rows["device"] == place[0]) & (rows["slot"] == place[1]))
        mine = mine[np.argsort(rows["start"][mine])]
        before, after = rows["finish"][mine[:-1]], rows["start"][mine[1:]]
        found.append((after - before)[ready[mine[1:]] <= before])
    return np.concatenate(found)
