"""A multi-exit network's graph, taken apart into layers and heads and put together for one placement.

The graph is one that was traced with all its exits, whose results are their logits from first to last.
What only one exit needs is its head; what a later exit needs too is a layer. The final head belongs to the
last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.arithmetic import operator_priced_flops
from scenarios.serving.exit_positions import ExitNetwork, Placement
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.segments import Segments, coarsen


@dataclass(frozen=True)
class ExitJob:
    """What runs for the samples that leave at one exit.

    Attributes:
        graph: its segments, one for each tier that they see.
        costs: of the segments.
        tiers: of the segments, 0 to 2.
    """

    graph: DataflowGraph
    costs: GraphCosts
    tiers: tuple[int, ...]


class ExitGraph:
    """A multi-exit network's graph by layers and heads.

    Args:
        graph: traced with a head after every layer.

    Attributes:
        graph: the same.
        layers: operators of layers 1 to L; the last one's include the final head.
        heads: operators of the heads after layers 1 to L - 1.
        sizes: bytes that layers 1 to L read of what lies before them: the input first.

    Raises:
        InvalidInput: the graph has one exit only, or its exits are not one behind the other.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        position = {tensor.name: i for i, tensor in enumerate(graph.tensors)}
        self._logits = [
            position[str(result["tensor"])] for result in graph.results if "tensor" in result
        ]
        if len(self._logits) < 2:
            raise InvalidInput(
                f"Model '{graph.name}' has no early exits: its forward must return the logits of every "
                "exit, first to last, such as model=multi_exit does"
            )
        needed = [self._needed(tensor) for tensor in self._logits]
        later: list[set[int]] = [set() for _ in needed]
        for number in range(len(needed) - 2, -1, -1):
            later[number] = later[number + 1] | needed[number + 1]
        layers, heads, before = [], [], set[int]()
        for number, (own, others) in enumerate(zip(needed, later, strict=True)):
            last = number == len(needed) - 1
            layer = (own if last else own & others) - before
            if not layer:
                raise InvalidInput(
                    f"Model '{graph.name}': exit {number + 1} has no layer of its own before it; exits "
                    "lie one behind the other"
                )
            layers.append(tuple(sorted(layer)))
            if not last:
                heads.append(tuple(sorted(own - others)))
            before |= layer
        self.layers = tuple(layers)
        self.heads = tuple(heads)
        self.sizes = tuple(self._size_before(number) for number in range(len(layers)))

    def _needed(self, tensor: int) -> set[int]:
        """Operators that a tensor depends on."""
        start = self.graph.producer[tensor]
        found = {start} if start >= 0 else set()
        waiting = list(found)
        while waiting:
            new = set(self.graph.predecessors[waiting.pop()]) - found
            found |= new
            waiting += new
        return found

    def _size_before(self, layer: int) -> float:
        """Bytes that cross where the network is cut before a layer, counted from 0."""
        behind = {operator for row in self.layers[layer:] for operator in row}
        ahead = {operator for row in self.layers[:layer] for operator in row}
        inputs = set(self.graph.inputs)
        return float(
            sum(
                self.graph.tensors[tensor].bytes
                for tensor in {t for operator in behind for t in self.graph.reads[operator]}
                if tensor in inputs or self.graph.producer[tensor] in ahead
            )
        )

    @cached_property
    def _flops(self) -> list[float]:
        return [float(operator_priced_flops(operator)) for operator in self.graph.operators]

    def network(
        self, costs: GraphCosts, cluster: Cluster, tiers: Sequence[str], report_bytes: float = 0.0
    ) -> ExitNetwork:
        """Times, bytes and operations for the search of positions.

        Args:
            costs: of the graph on the cluster's devices.
            cluster: with one device or several equal ones in each tier's memory.
            tiers: memory spaces of terminal, edge and cloud.
            report_bytes: what the terminal sends for every sample, whatever exit it takes.

        Raises:
            InvalidInput: a tier is no memory space of the cluster or has no device.
        """
        spaces, devices = tier_devices(cluster, tiers)
        overhead = np.array([cluster.devices[device].launch_overhead for device in devices])
        seconds = costs.seconds[:, devices] + overhead
        outside = np.zeros_like(seconds)
        if costs.in_range is not None:
            outside = np.where(costs.in_range[:, devices], 0.0, seconds)

        def rows(values: np.ndarray, parts: Sequence[Sequence[int]]) -> np.ndarray:
            return np.array([values[list(part)].sum(axis=0) for part in parts]).T

        flops = np.array(self._flops)[:, None]
        answer = {self.graph.tensors[tensor].bytes for tensor in self._logits}
        return ExitNetwork(
            layer_s=rows(seconds, self.layers),
            head_s=rows(seconds, self.heads),
            sizes=self.sizes,
            layer_flops=rows(flops, self.layers)[0],
            head_flops=rows(flops, self.heads)[0],
            answer_bytes=max(answer),
            routes={
                (a, b): cluster.route(spaces[a], spaces[b])
                for a in range(3)
                for b in range(3)
                if spaces[a] != spaces[b]
            },
            report_bytes=report_bytes,
            layer_outside_s=rows(outside, self.layers),
            head_outside_s=rows(outside, self.heads),
        )

    def job(
        self, placement: Placement, leaves: int, costs: GraphCosts, overhead: np.ndarray
    ) -> ExitJob:
        """What runs for samples that leave after a layer.

        Args:
            placement: where the network is cut and where its exits are.
            leaves: an exit of the placement, or the number of layers.
            costs: of the graph.
            overhead: float64[devices], a launch's.
        """
        operators: list[int] = []
        starts: list[int] = []
        tiers: list[int] = []
        for layer in range(1, leaves + 1):
            tier = placement.tier(layer)
            if not tiers or tiers[-1] != tier:
                starts.append(len(operators))
                tiers.append(tier)
            operators += self.layers[layer - 1]
            if layer in placement.exits:
                operators += self.heads[layer - 1]
        found = self._coarse(operators, starts, leaves)
        rows = GraphCosts(
            costs.seconds[operators],
            None if costs.spread is None else costs.spread[operators],
            None if costs.in_range is None else costs.in_range[operators],
            None if costs.cached is None else costs.cached[operators],
        )
        return ExitJob(found.graph, found.costs(rows, overhead), tuple(tiers))

    def _coarse(self, operators: Sequence[int], starts: Sequence[int], leaves: int) -> Segments:
        graph = self.graph
        kept = sorted(
            {t for o in operators for t in (*graph.reads[o], *graph.writes[o])} | {*graph.inputs}
        )
        position = {tensor: i for i, tensor in enumerate(kept)}
        logits = self._logits[leaves - 1]
        fine = DataflowGraph(
            f"{graph.name} exit {leaves}",
            [graph.operators[o] for o in operators],
            [graph.tensors[t] for t in kept],
            [[position[t] for t in graph.reads[o]] for o in operators],
            [[position[t] for t in graph.writes[o]] for o in operators],
            [{"tensor": graph.tensors[logits].name, "views": []}],
            graph.batch,
        )
        return coarsen(fine, starts)


def tier_devices(cluster: Cluster, tiers: Sequence[str]) -> tuple[list[int], list[int]]:
    """The memory space and the first device of each tier.

    Raises:
        InvalidInput: there are not three tiers, or one is no memory space of the cluster or has no device.
    """
    if len(tiers) != 3:
        raise InvalidInput(f"Early exit takes three tiers, got {', '.join(tiers) or 'none'}")
    spaces, devices = [], []
    for name in tiers:
        if name not in cluster.space_index:
            raise InvalidInput(
                f"Cluster '{cluster.name}' has no memory space '{name}' for a tier; it has "
                f"{', '.join(cluster.space_index)}; name them: tiers=[...], or take cluster=tiers"
            )
        space = cluster.space_index[name]
        if space not in cluster.space_of:
            raise InvalidInput(f"Memory space '{name}' of cluster '{cluster.name}' has no device")
        spaces.append(space)
        devices.append(cluster.space_of.index(space))
    return spaces, devices
