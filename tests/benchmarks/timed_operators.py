"""Operators timed one by one on this machine, as calibration times them, priced from these times alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from calibration.plan import MeasurePlan
from calibration.process import Visitor
from calibration.samples import OperatorSample
from calibration.timing import CpuTimer
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph

VISITS = 4
"""To each operator in a round, in shuffled order; the median of all timings counts."""


class TimedOperators:
    """Prices operators by timing each distinct one on the core that this process runs on (state ``graph``)."""

    def __init__(self) -> None:
        self._devices = 1
        self._visitor = Visitor(MeasurePlan("cpu", "here", ("graph",)), CpuTimer(("graph",)))
        self._samples: dict[str, OperatorSample] = {}
        self._timed: dict[str, list[float]] = {}

    def on(self, cluster: Cluster) -> TimedOperators:
        """The same times on every device of a cluster."""
        made = copy.copy(self)
        made._devices = len(cluster.devices)
        return made

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """See :class:`simulator.model.costs.Prices`. What is no ATen operator takes nothing."""
        rows = {graph: [_sample(graph, o) for o in range(len(graph))] for graph in graphs}
        known = {s.identity: s for row in rows.values() for s in row if s is not None}
        new = known.keys() - self._samples.keys()
        self._samples |= known
        for key, seconds in self._round(sorted(new)).items():
            self._timed[key] = seconds
        return CostTable({graph: GraphCosts(self._table(row)) for graph, row in rows.items()})

    def again(self) -> float:
        """Another round of all operators; returns how many times as long they took as before."""
        later = self._round(self._timed)
        ratio = _total(later) / _total(self._timed)
        for key, seconds in later.items():
            self._timed[key] += seconds
        return ratio

    def _round(self, keys: Iterable[str]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {key: [] for key in keys}
        order = list(found)
        with torch.inference_mode():
            for visit in range(VISITS):
                random.Random(visit).shuffle(order)
                for key in order:
                    timings = self._visitor.visit(self._samples[key], visit)
                    found[key] += [seconds for _, seconds, _ in timings]
        return found

    def _table(self, row: Sequence[OperatorSample | None]) -> np.ndarray:
        column = [0.0 if s is None else float(np.median(self._timed[s.identity])) for s in row]
        return np.repeat(np.array(column)[:, None], self._devices, axis=1)


def _total(timed: Mapping[str, Sequence[float]]) -> float:
    return float(sum(np.median(seconds) for seconds in timed.values()))


def _sample(graph: DataflowGraph, operator: int) -> OperatorSample | None:
    row, reads = graph.operators[operator], graph.reads[operator]
    if row.template is None:
        return None
    weights = tuple(i for i, t in enumerate(reads) if graph.tensors[t].role == "weight")
    return OperatorSample(row, weights)
