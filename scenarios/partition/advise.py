"""Advice from features alone: no operator is timed.

What is known are FLOPs, bytes, levels and paths of the graph, and of devices the peak rates and links that a data
sheet has. After the outline of thesis 004 (Chinese, 2023), reconstructed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cost_models.arithmetic import operator_bytes, operator_priced_flops
from scenarios.partition.device_profiles import profiles_of
from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.subgraphs import Phase, phases
from simulator.analysis.dependency_matrix import Paths, dependency_matrix, levels
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan


@dataclass(frozen=True)
class Advice:
    """Where a phase should run.

    Attributes:
        phase: of the graph.
        devices: of each of its runs.
    """

    phase: Phase
    devices: tuple[int, ...]


def at_peak(graph: DataflowGraph, cluster: Cluster) -> np.ndarray:
    """float64[operators, devices]: seconds at the devices' peak rates, the larger of arithmetic and traffic.

    Raises:
        InvalidInput: the graph has no shapes, or a device no profile.
    """
    if not all(operator.outputs for operator in graph.operators):
        raise InvalidInput(
            f"Graph '{graph.name}' has no shapes, so nothing can be advised; take a traced model"
        )
    flops = np.array([operator_priced_flops(operator) for operator in graph.operators])
    size = np.array([operator_bytes(operator) for operator in graph.operators])
    dtypes = [operator.outputs[0].dtype for operator in graph.operators]
    columns = []
    for profile in profiles_of(cluster, "Advice"):
        rates = profile.roofline.flops_per_s
        peak = np.array([rates.get(dtype, rates["float32"]) for dtype in dtypes])
        columns.append(np.maximum(flops / peak, size / profile.roofline.bandwidth))
    return np.stack(columns, axis=1)


def advise(graph: DataflowGraph, cluster: Cluster) -> list[Advice]:
    """Where each phase should run.

    A sequential phase goes to the device of the least time at peak rates. So does a multi-path one as a whole;
    of its runs, the longest first (of equal ones that on more paths), each goes where it would be done soonest, its
    inputs and results crossing where that is another memory.
    """
    seconds = at_peak(graph, cluster)
    paths = Paths.of(graph).through
    found = []
    for phase in phases(graph):
        members = np.concatenate(phase.runs)
        home = int(seconds[members].sum(axis=0).argmin())
        devices = [home] * len(phase.runs)
        if phase.parallel:
            times = [seconds[run].sum(axis=0) for run in phase.runs]
            free = np.zeros(len(cluster.devices))
            longest = sorted(
                range(len(times)), key=lambda n: (-times[n][home], -paths[int(phase.runs[n][0])])
            )
            for number in longest:
                ways = _crossing(graph, phase.runs[number], cluster, home)
                ends = free + times[number] + ways
                devices[number] = int(ends.argmin())
                free[devices[number]] = ends.min()
        found.append(Advice(phase, tuple(devices)))
    return found


def _crossing(graph: DataflowGraph, run: np.ndarray, cluster: Cluster, home: int) -> np.ndarray:
    """float64[devices]: seconds that a run's inputs and results take to each device's memory and back home."""
    inside = set(run.tolist())
    read = {t for o in inside for t in graph.activations_read[o] if graph.producer[t] not in inside}
    written = {
        t
        for o in inside
        for t in graph.writes[o]
        if t in graph.outputs or not inside.issuperset(graph.consumers[t])
    }
    here = cluster.space_of[home]
    found = np.zeros(len(cluster.devices))
    for device, there in enumerate(cluster.space_of):
        if there != here:
            for tensors, ends in ((read, (here, there)), (written, (there, here))):
                route = cluster.route(*ends)
                found[device] += sum(route.seconds(float(graph.tensor_bytes[t])) for t in tensors)
    return found


class Advise(Partitioner):
    """Places the phases of a graph by its features and the devices' peak rates; see :func:`advise`.

    All jobs of a graph are placed alike, their operators level by level.
    """

    name: ClassVar[str] = "advise"

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`."""
        devices = {graph: self._devices(graph, problem.cluster) for graph in problem.graphs}
        level = {graph: levels(dependency_matrix(graph)) for graph in problem.graphs}
        graphs: Sequence[DataflowGraph] = [job.graph for job in problem.jobs]
        job = np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs])
        order = np.lexsort((np.concatenate([level[graph] for graph in graphs]), job))
        names = tuple(device.name for device in problem.cluster.devices)
        device = np.concatenate([devices[graph] for graph in graphs])
        return Plan(self.name, tuple(graphs), names, device, order)

    @staticmethod
    def _devices(graph: DataflowGraph, cluster: Cluster) -> np.ndarray:
        device = np.zeros(len(graph), dtype=np.int64)
        for advice in advise(graph, cluster):
            for run, place in zip(advice.phase.runs, advice.devices, strict=True):
                device[run] = place
        return device
