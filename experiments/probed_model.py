"""The model that probes of the runner execute: EfficientNet-B0, a part of the panel, which has some two hundred
operators of all sorts in 20 ms.

A chain of equal operators would say too little: what wakes a worker up, and what lies between two kernels, is found
in code and caches that a model's own operators have just used for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scenarios.model_config import InputConfig, ModelConfig, graph_of, load_model
from simulator.costs import CostTable
from simulator.segments import coarsen
from simulator.workload import Job, Workload

if TYPE_CHECKING:
    from calibration.runner import Machine

PROBED = ModelConfig(
    "probed", "scenarios.models.panel.EfficientNet", inputs=[InputConfig([1, 3, 224, 224])]
)


class ProbedModel:
    """The model on a machine, operator by operator and, where that is asked for, as one segment.

    Args:
        machine: it is loaded on it.
        joined: whether it is executed as one segment, too.
    """

    def __init__(self, machine: Machine, joined: bool = False) -> None:
        from calibration.sequential import named_inputs, weights_of

        self._machine = machine
        self.graph = graph_of(PROBED)
        module, given = load_model(PROBED)
        weights = weights_of(module, self.graph)
        machine.load(self.graph, weights)
        self._segment = coarsen(self.graph)
        if joined:
            machine.load(self._segment.graph, weights, self._segment)
        self._inputs = named_inputs(self.graph, list(given.args))

    def seconds(self, devices: Sequence[int], gap: float = 0.0) -> np.ndarray:
        """float64[executions, operators] of an execution on each of these devices in turn, begun so many seconds
        after the run; those on one device follow each other.
        """
        return self._executed(False, devices, gap)

    def joined_seconds(self, device: int) -> float:
        """Of one execution as a single segment."""
        return float(self._executed(True, [device], 0.0)[0, 0])

    def _executed(self, joined: bool, devices: Sequence[int], gap: float) -> np.ndarray:
        from calibration.dispatch import OneByOne

        graph = self._segment.graph if joined else self.graph
        # Nobody is to choose by these.
        here = self._machine.cluster
        costs = CostTable.of(graph, np.full((len(graph), len(here.devices)), 1e-3))
        jobs = Workload([Job(graph, gap, origin=here.host, destination=here.host) for _ in devices])
        trace = self._machine.run(jobs, costs, OneByOne(devices), {graph: self._inputs}).trace
        rows = trace.executions
        found = np.empty((len(devices), len(graph)))
        found[rows["job"], rows["operator"]] = rows["finish"] - rows["start"]
        return found
