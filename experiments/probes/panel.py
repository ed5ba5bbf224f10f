"""The panel of operators on a machine, as often as it is asked for.

A model that is executed again and again finds more than its weights in the caches: buffers that its tensors are
given again, and the code of its kernels. Behind something else that filled the caches all its operators take longer,
convolutions too: on an Intel Xeon EfficientNet-B0 took 11% longer behind the rest of the panel than in a row with
itself, MobileNetV2 10%. What the panel is held for is runs of one model in a row. So its parts
(:func:`panel_parts`) are executed each in a row, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.probes.cache_now import CacheProbes
from experiments.probes.side_by_side import SideBySide
from scenarios.model_config import InputConfig, ModelConfig, graph_of, load_model
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job, Workload

if TYPE_CHECKING:
    from calibration.runner import Machine
    from simulator.model.trace import Trace

PANEL = ModelConfig(
    "panel",
    "scenarios.models.panel.Panel",
    inputs=[
        InputConfig([1, 3, 224, 224]),
        InputConfig([1, 64, 112, 112]),
        InputConfig([1, 3, 224, 224]),
        InputConfig([1, 3, 224, 224]),
        InputConfig([1, 3, 224, 224]),
        InputConfig([1, 64, 55, 55]),
        InputConfig([1, 1024]),
    ],
)

SMALL = ("resnet", "efficientnet")
"""Models of the panel, where their operators' names begin, that are executed in a row each by itself; the rest, layers
of models that are larger than caches, is one part."""

SHARE = 0.15
"""Of the time of the runs, that the panel may take once it has run :data:`LEAST_RUNS` times."""
LEAST_RUNS = 8

UNCOUNTED = 1
"""Executions of a part before each that counts."""


@cache
def panel_parts() -> Mapping[DataflowGraph, np.ndarray]:
    """The panel's parts, of each which of the panel's operators it has: int[operators], ascending."""
    graph = graph_of(PANEL)
    begins = [re.split("[./]", name)[0] for name in graph.operator_names]
    of = np.array([begin if begin in SMALL else "large" for begin in begins])
    rows = {name: np.flatnonzero(of == name) for name in (*SMALL, "large")}
    return {part_of(graph, name, mine.tolist()): mine for name, mine in rows.items()}


def beside_itself(part: DataflowGraph, cluster: Cluster, lengths: Sequence[float]) -> SideBySide:
    """A part on all devices at once, behind as many executions as where it runs alone.

    Args:
        part: of the panel.
        cluster: of the devices.
        lengths: seconds that it takes on each of them, about.
    """
    return SideBySide.of(part, cluster, lengths, UNCOUNTED)


def run_seconds(said: np.ndarray, cluster: Cluster) -> float:
    """What :meth:`PanelRuns.run` takes, less what devices cost each other.

    Args:
        said: float64[operators, devices] seconds.
        cluster: of the devices.
    """
    total = float((UNCOUNTED + 1) * said.sum())
    if said.shape[1] > 1:
        for part, rows in panel_parts().items():
            each = said[rows].sum(axis=0).tolist()
            total += beside_itself(part, cluster, each).length(each)
    return total


def part_of(graph: DataflowGraph, name: str, operators: Sequence[int]) -> DataflowGraph:
    """Some operators of a graph, with the tensors that they read and write.

    Args:
        graph: any.
        name: of the part.
        operators: positions, ascending; all of what these read is an input, a weight, or written by one of them.
    """
    used = sorted({t for i in operators for t in (*graph.reads[i], *graph.writes[i])})
    position = {tensor: number for number, tensor in enumerate(used)}
    names = {graph.tensors[tensor].name for tensor in used}
    return DataflowGraph(
        name,
        [graph.operators[i] for i in operators],
        [graph.tensors[tensor] for tensor in used],
        [[position[tensor] for tensor in graph.reads[i]] for i in operators],
        [[position[tensor] for tensor in graph.writes[i]] for i in operators],
        [result for result in graph.results if result.get("tensor") in names],
    )


class PanelRuns:
    """The panel on a machine.

    Args:
        machine: the panel is loaded on it.

    Attributes:
        parts: of the panel.
        alone: for each device of all runs float64[operators] seconds, the others idle.
        beside: the same with each part on all devices at once; nothing where there is one device.
        gaps: of the runs of ``alone`` float64[operators] seconds between the end of the operator before and an
            operator's start; 0 before the first of a part.
        caches: what the machine's caches keep, as often.
    """

    def __init__(self, machine: Machine) -> None:
        from calibration.sequential import weights_of

        self.machine = machine
        self.parts = tuple(panel_parts())
        self._devices = len(machine.cluster.devices)
        # Nobody is to choose by these.
        self._costs = CostTable(
            {part: GraphCosts(np.full((len(part), self._devices), 1e-3)) for part in self.parts}
        )
        module, inputs = load_model(PANEL)
        named = _like_measured(graph_of(PANEL), list(inputs.args))
        self.inputs = {
            part: {part.tensors[i].name: named[part.tensors[i].name] for i in part.inputs}
            for part in self.parts
        }
        for part in self.parts:
            machine.load(part, weights_of(module, part))
        self.caches = CacheProbes(machine)
        self.clear()

    def clear(self) -> None:
        """Forget the runs so far."""
        self.alone: list[list[np.ndarray]] = [[] for _ in range(self._devices)]
        self.beside: list[list[np.ndarray]] = [[] for _ in range(self._devices)]
        self.gaps: list[list[np.ndarray]] = [[] for _ in range(self._devices)]
        self.caches.clear()
        self._spent = 0.0

    def seconds(self) -> np.ndarray:
        """float64[1 or 2, devices, runs, operators] of all complete runs: :attr:`alone` and, where there are
        several devices, :attr:`beside`.
        """
        worlds = [self.alone, self.beside] if self._devices > 1 else [self.alone]
        complete = min(len(runs) for world in worlds for runs in world)
        return np.array([[runs[:complete] for runs in world] for world in worlds])

    def gap_seconds(self) -> np.ndarray:
        """float64[devices, runs, operators] of :attr:`gaps`, of the runs of :meth:`seconds`."""
        complete = self.seconds().shape[2]
        return np.array([runs[:complete] for runs in self.gaps])

    def is_due(self, seconds: float) -> bool:
        """Whether to run it again, so many seconds of other runs having passed."""
        return len(self.alone[0]) < LEAST_RUNS or self._spent <= SHARE * seconds

    def run(self) -> None:
        """What caches keep (:mod:`experiments.probes.cache_now`), each part in a row on each device alone, then on all
        beside each other (:mod:`experiments.probes.side_by_side`).
        """
        began = time.monotonic()
        self.caches.run()
        self._spent += time.monotonic() - began
        devices = range(self._devices)
        alone = {part: [self._on(device, part) for device in devices] for part in self.parts}
        for device in devices:
            self.alone[device].append(_in_order({p: on[device][0] for p, on in alone.items()}))
            self.gaps[device].append(_in_order({p: on[device][1] for p, on in alone.items()}))
        if self._devices == 1:
            return
        beside = {
            part: self._beside(part, [float(seconds.sum()) for seconds, _ in on])
            for part, on in alone.items()
        }
        for device in devices:
            self.beside[device].append(_in_order({p: on[device] for p, on in beside.items()}))

    def _on(self, device: int, part: DataflowGraph) -> tuple[np.ndarray, np.ndarray]:
        """float64[operators] seconds of the last execution in a row on a device, and of the gaps before them."""
        host = self.machine.cluster.host
        for _ in range(UNCOUNTED + 1):
            jobs = Workload([Job(part, origin=host, destination=host)])
            rows = self._executed(jobs, [device]).executions
        order = np.argsort(rows["operator"])
        start, finish = rows["start"][order], rows["finish"][order]
        return finish - start, np.append(0.0, start[1:] - finish[:-1])

    def _beside(self, part: DataflowGraph, lengths: Sequence[float]) -> list[np.ndarray]:
        """For each device float64[operators] seconds while the others are busy with the part, too."""
        together = beside_itself(part, self.machine.cluster, lengths)
        trace = self._executed(together.jobs, together.devices)
        took = trace.executions["finish"] - trace.executions["start"]
        return [took[rows] for rows in together.rows(trace)]

    def _executed(self, jobs: Workload, devices: Sequence[int]) -> Trace:
        """Executions of a part, each on its device."""
        from calibration.one_by_one import OneByOne

        trace = self.machine.run(jobs, self._costs, OneByOne(devices), self.inputs).trace
        self._spent += trace.makespan
        return trace


def _in_order(found: Mapping[DataflowGraph, np.ndarray]) -> np.ndarray:
    """float64[operators] in the panel's order, from those of its parts."""
    seconds = np.empty(sum(len(part) for part in found))
    for part, rows in panel_parts().items():
        seconds[rows] = found[part]
    return seconds


def _like_measured(graph: DataflowGraph, tensors: list[Any]) -> Mapping[str, Any]:
    """Inputs by name; what is pooled is as it was when the profiles were measured."""
    from calibration.random_tensors import random_reads
    from calibration.sequential import named_inputs

    named = named_inputs(graph, tensors)
    for operator, reads in zip(graph.operators, graph.reads, strict=True):
        if operator.kind == "max_pool2d" and reads[0] in graph.inputs:
            (named[graph.tensors[reads[0]].name],) = random_reads(operator)
    return named
