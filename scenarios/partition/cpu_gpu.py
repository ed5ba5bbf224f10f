"""Key operators to CPUs and GPUs: subgraphs, a start along the critical path, and correction move by move.

After the abstract of Shang, Jiang, Li, Zhu 2023 (J. Computer Applications 43(9), doi
10.11772/j.issn.1001-9081.2022081177: key operators, measured times, critical path, greedy search), with the correction
of DUET (IPDPS 2021); reconstructed. It takes devices of any kind and number.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.placement import Placement
from scenarios.partition.subgraphs import key_subgraphs, merge_short, phases
from simulator.errors import InvalidInput
from simulator.model.plan import Plan


class CpuGpu(Partitioner):
    """Places subgraphs around key operators.

    Each starts on its fastest device; those beside the critical path, longest first, move to where all is done
    soonest. Then the best move of all (a subgraph, the two at an edge, a run) is made as long as one shortens the
    makespan, from there, from everything on the best device, and from HEFT's plan of the subgraphs.

    Args:
        eps: a subgraph is joined with a neighbour where its fastest time is below so many times the transfer of
            what it writes, between the nearest two memories. 0 joins none, which was never worse in what is measured
            (docs/partition_cpu_gpu.md) and takes up to twice as long.
        rounds: moves of one correction at most; twice the subgraphs unless given.

    Raises:
        InvalidInput: a negative option.
    """

    name: ClassVar[str] = "cpu_gpu"

    def __init__(self, eps: float = 0.0, rounds: int | None = None) -> None:
        if eps < 0 or (rounds is not None and rounds < 0):
            raise InvalidInput(
                f"Partition 'cpu_gpu' has eps {eps} and rounds {rounds}; give numbers of at least 0"
            )
        self.eps = eps
        self.rounds = rounds

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`."""
        segments = {}
        for graph in problem.graphs:
            costs = problem.costs[graph]
            parts = key_subgraphs(graph, costs.seconds)
            segments[graph] = merge_short(graph, parts, costs, problem.cluster, self.eps)
        placement = Placement(problem, segments)
        rounds = 2 * len(placement) if self.rounds is None else self.rounds
        starts = [along_critical_path(placement)]
        if placement.singles:
            starts.append(min(placement.singles.values(), key=placement.evaluate))
        ordered = [(start, placement.order(start)) for start in starts]
        ordered.append(placement.listed())
        found = [placement.corrected(device, order, rounds) for device, order in ordered]
        makespan, device, order = min(found, key=lambda row: row[0])
        parallel = [
            sum(phase.parallel for phase in phases(segment.graph)) for segment in segments.values()
        ]
        return placement.plan(self.name, device, order, makespan, multi_path_phases=sum(parallel))


def along_critical_path(placement: Placement) -> np.ndarray:
    """int64[tasks]: the critical path on its tasks' fastest devices, the others where all is done soonest."""
    device = placement.fastest.copy()
    critical = set(placement.critical_path(device))
    others = [task for task in range(len(placement)) if task not in critical]
    for task in sorted(others, key=lambda task: -float(placement.seconds[task].min())):
        makespans = []
        for place in placement.able[task]:
            device[task] = place
            makespans.append((placement.evaluate(device), place))
        device[task] = min(makespans)[1]
    return device
