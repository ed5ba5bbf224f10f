"""The model that probes of the runner execute: EfficientNet-B0, a part of the panel, which has some two hundred
operators of all sorts in 20 ms.

A chain of equal operators would say too little: what wakes a worker up, and what lies between two kernels, is found
in code and caches that a model's own operators have just used for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scenarios.model_config import InputConfig, ModelConfig, graph_of, load_model
from simulator.model.costs import CostTable
from simulator.model.segments import coarsen
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload

if TYPE_CHECKING:
    from calibration.runner import Machine
    from simulator.context.scheduler import Scheduler

PROBED = ModelConfig(
    "probed", "scenarios.models.panel.EfficientNet", inputs=[InputConfig([1, 3, 224, 224])]
)


class ProbedModel:
    """The model on a machine, operator by operator and, where that is asked for, as one segment.

    Args:
        machine: it is loaded on it.
        joined: whether it is executed as one segment, too.

    Attributes:
        cluster: the machine's.
        graph: the model's.
    """

    def __init__(self, machine: Machine, joined: bool = False) -> None:
        from calibration.sequential import named_inputs, weights_of

        self._machine = machine
        self.cluster = machine.cluster
        self.graph = graph_of(PROBED)
        module, given = load_model(PROBED)
        weights = weights_of(module, self.graph)
        machine.load(self.graph, weights)
        self._segment = coarsen(self.graph)
        if joined:
            machine.load(self._segment.graph, weights, self._segment)
        self._inputs = named_inputs(self.graph, list(given.args))

    @property
    def spare_cores(self) -> int:
        """See :attr:`calibration.runner.Machine.spare_cores`."""
        return self._machine.spare_cores

    def trace(
        self,
        arrivals: Sequence[float],
        scheduler: Scheduler,
        joined: bool = False,
        beliefs: np.ndarray | None = None,
    ) -> Trace:
        """Of executions that arrive at these seconds, in order.

        Args:
            arrivals: of the executions.
            scheduler: a fresh one.
            joined: as one segment.
            beliefs: float64[operators, devices] seconds that it believes in; one and the same for all unless given.
        """
        graph = self._segment.graph if joined else self.graph
        if beliefs is None:
            beliefs = np.full((len(graph), len(self.cluster.devices)), 1e-3)
        costs = CostTable.of(graph, beliefs)
        jobs = self.workload(arrivals, joined)
        return self._machine.run(jobs, costs, scheduler, {graph: self._inputs}).trace

    def workload(self, arrivals: Sequence[float], joined: bool = False) -> Workload:
        """Executions that arrive at these seconds."""
        graph, host = self._segment.graph if joined else self.graph, self.cluster.host
        return Workload([Job(graph, at, origin=host, destination=host) for at in arrivals])

    def run(
        self, arrivals: Sequence[float], scheduler: Scheduler, joined: bool = False
    ) -> ExecutionTimes:
        """Times of :meth:`trace`."""
        rows = self.trace(arrivals, scheduler, joined).executions
        operators = len(self._segment.graph if joined else self.graph)
        start, finish = np.empty((2, len(arrivals), operators))
        start[rows["job"], rows["operator"]] = rows["start"]
        finish[rows["job"], rows["operator"]] = rows["finish"]
        device = np.empty(len(arrivals), dtype=np.int64)
        device[rows["job"]] = rows["device"]
        return ExecutionTimes(start, finish, device)

    def one_by_one(
        self, device: int, arrivals: Sequence[float], joined: bool = False
    ) -> ExecutionTimes:
        """The same on one device."""
        from calibration.one_by_one import OneByOne

        return self.run(arrivals, OneByOne([device] * len(arrivals)), joined)


@dataclass(frozen=True)
class ExecutionTimes:
    """Of executions of a model.

    Attributes:
        start, finish: float64[executions, operators] seconds.
        device: int[executions], of the last operator.
    """

    start: np.ndarray
    finish: np.ndarray
    device: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """float64[executions, operators]."""
        return self.finish - self.start
