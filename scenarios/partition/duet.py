"""DUET's coarse partition with its greedy correction."""

from __future__ import annotations

from typing import ClassVar

from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.placement import LEAST_GAIN, Placement
from scenarios.partition.subgraphs import runs
from simulator.model.plan import Plan
from simulator.model.segments import coarsen


class Duet(Partitioner):
    """Places sequential runs and branches whole: each on its fastest device, then moved one by one.

    After DUET (IPDPS 2021), of which the abstract was readable: coarse subgraphs of little traffic, profiled, and a
    greedy correction. Subgraphs are gone through by decreasing time, again and again; one moves wherever that shortens
    the makespan at once.
    """

    name: ClassVar[str] = "duet"

    def plan(self, problem: Problem) -> Plan:
        """See :class:`Partitioner`."""
        parts = {g: runs(g, seconds=problem.costs[g].seconds) for g in problem.graphs}
        segments = {graph: coarsen(graph, parts=part) for graph, part in parts.items()}
        placement = Placement(problem, segments)
        device = placement.fastest.copy()
        order = placement.order(device)
        best = placement.evaluate(device, order)
        longest = sorted(range(len(placement)), key=lambda t: -float(placement.seconds[t].min()))
        moved = True
        while moved:
            moved = False
            for task in longest:
                for place in placement.able[task]:
                    held, device[task] = int(device[task]), place
                    makespan = placement.evaluate(device, order)
                    if makespan < best * (1.0 - LEAST_GAIN):
                        best, moved = makespan, True
                    else:
                        device[task] = held
        return placement.plan(self.name, device, order, best)
