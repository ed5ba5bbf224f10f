"""Slices of a recurrent network's time: consecutive steps on each device, and tasks that follow each other through.

The steps of one task are serial, so that a second device gains it nothing; with several tasks one device does the
first steps of the next task while another goes on with the last one. With A, B and x for both slices and the state
that crosses, K tasks take ``A + x + B + (K - 1) max(A, x, B)``: with r for the ratio of both devices' speeds, the saving
over the fast one alone tends to ``1 / (1 + r)``. After thesis 004, reconstructed.

No graph is transformed. Steps and layers are found in the graph (:mod:`scenarios.partition.recurrence`), boundaries by
the contiguous partition of :mod:`simulator.planners.contiguous`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.partition.recurrence import recurrence
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.planners.contiguous import Parts, front

BY = ("steps", "wavefronts", "layers")
MOST_DEVICES = 5
"""Devices whose orders are all tried."""
EVALUATED = 4
"""Boundaries that are evaluated of each order of devices, those of the least time by the closed form."""


class RnnSlices(Partitioner):
    """Slices a recurrent network among devices. See the module docstring.

    Args:
        by: what slices consist of: ``steps`` of time; ``wavefronts``, diagonals of layers by steps, whose cells need
            nothing of each other; ``layers``, the baseline: every step of some layers.
        devices: names of those that get a slice, in whatever order is best; all that can run the graph unless given.
            Fewer, down to one, are tried as well.

    Raises:
        InvalidInput: an unknown way to slice.
    """

    name: ClassVar[str] = "rnn_slices"

    def __init__(self, by: str = "steps", devices: Sequence[str] | None = None) -> None:
        if by not in BY:
            raise InvalidInput(f"Partition 'rnn_slices' has by={by}; known: {', '.join(BY)}")
        self.by, self.devices = by, devices

    def plan(self, problem: Problem) -> Plan:
        """See :class:`scenarios.partition.partitioner.Partitioner`.

        Raises:
            InvalidInput: several graphs, one without recurrent steps, too many devices, or an unknown one.
        """
        graph, jobs = problem.graph, len(problem.jobs)
        found = recurrence(graph)
        diagonal = found.step + found.layer
        unit = {"steps": found.step, "wavefronts": diagonal, "layers": found.layer}[self.by]
        # Within a device: step by step, or by diagonals, which let a higher layer's first cells go on earlier.
        orders = [np.lexsort((found.layer, key)) for key in (found.step, diagonal)]
        evaluator = problem.evaluator()
        best: tuple[float, Plan] | None = None
        for devices, starts in self._candidates(problem, unit, jobs):
            part = np.searchsorted(starts, unit, side="right") - 1
            device = np.array(devices)[part]
            for order in orders:
                every = (np.arange(jobs)[:, None] * len(graph) + order).reshape(-1)
                plan = evaluator.plan(self.name, np.tile(device, jobs), every)
                if best is None or plan.makespan_s < best[0]:
                    names = [problem.cluster.devices[d].name for d in devices]
                    slices = dict(zip(names, map(int, starts), strict=True))
                    notes = {"by": self.by, "units": int(unit.max()) + 1, "first_unit": slices}
                    best = plan.makespan_s, replace(plan, notes=notes)
        assert best is not None  # a single device is among the candidates
        return best[1]

    def _candidates(
        self, problem: Problem, unit: np.ndarray, jobs: int
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(devices, first unit of each) of single devices, and of the best boundaries for each order of several."""
        graph, cluster = problem.graph, problem.cluster
        overhead = np.array([device.launch_overhead for device in cluster.devices])
        seconds = problem.costs[graph].seconds + overhead
        units = int(unit.max()) + 1
        times = np.zeros((units, len(cluster.devices)))
        np.add.at(times, unit, seconds)
        able = self._able(problem)
        seen = set()
        for count in range(1, min(len(able), units) + 1):
            for devices in itertools.permutations(able, count):
                kind = tuple((cluster.space_of[d], times[:, d].tobytes()) for d in devices)
                if kind in seen:  # of equal devices in one memory one order is as good as another
                    continue
                seen.add(kind)
                moved = [
                    crossing(problem, graph, unit, pair) for pair in itertools.pairwise(devices)
                ]
                parts: list[Parts] = front(times[:, devices], np.array(moved).reshape(-1, units))
                parts.sort(key=lambda p: p.pipelined(jobs))
                yield from ((devices, p.starts) for p in parts[:EVALUATED])

    def _able(self, problem: Problem) -> list[int]:
        cluster, able = problem.cluster, problem.able()
        if self.devices is not None:
            for name in self.devices:
                if cluster.device_index.get(name) not in able:
                    raise InvalidInput(
                        f"Partition 'rnn_slices' names device '{name}', which cannot run '{problem.graph.name}' or is "
                        f"not in cluster '{cluster.name}'; able: {', '.join(cluster.devices[d].name for d in able)}"
                    )
            able = [cluster.device_index[name] for name in self.devices]
        if not 1 <= len(able) <= MOST_DEVICES:
            raise InvalidInput(
                f"Partition 'rnn_slices' tries all orders of 1 to {MOST_DEVICES} devices, cluster '{cluster.name}' has "
                f"{len(able)} that can run '{problem.graph.name}'; name them in partition.options.devices"
            )
        return able


def crossing(
    problem: Problem, graph: DataflowGraph, unit: np.ndarray, pair: tuple[int, int]
) -> np.ndarray:
    """float[units]: seconds of all tensors that cross from one device to the other if it begins with each unit."""
    source, target = (problem.cluster.space_of[device] for device in pair)
    seconds = np.zeros(int(unit.max()) + 1)
    if source == target:
        return seconds
    route = problem.cluster.route(source, target)
    last: dict[int, int] = {}
    for operator, tensor in zip(
        graph.edge_target.tolist(), graph.edge_tensor.tolist(), strict=True
    ):
        last[tensor] = max(last.get(tensor, 0), int(unit[operator]))
    for tensor, read in last.items():
        written = int(unit[graph.producer[tensor]])
        seconds[written + 1 : read + 1] += route.seconds(float(graph.tensor_bytes[tensor]))
    return seconds
