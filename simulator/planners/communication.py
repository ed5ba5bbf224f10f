"""Transfer times as a planner sees them: no contention, every route alone."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from simulator.cluster import Cluster
from simulator.graph import DataflowGraph


class Communication:
    """Seconds to move bytes between memory spaces and, on average, between devices.

    Attributes:
        latency: float64[spaces, spaces] seconds, 0 on the diagonal.
        per_byte: float64[spaces, spaces] seconds per byte, 0 on the diagonal.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        spaces = len(cluster.spaces)
        self.latency = np.zeros((spaces, spaces))
        self.per_byte = np.zeros((spaces, spaces))
        used = sorted(
            {*cluster.space_of} | ({cluster.space_index[cluster.host]} if cluster.host else set())
        )
        for a in used:
            for b in used:
                if a != b:
                    route = cluster.route(a, b)
                    self.latency[a, b] = route.latency
                    self.per_byte[a, b] = 1.0 / route.bandwidth

    def wires(self, source: int) -> tuple[list[float], list[float]]:
        """Latency and bandwidth from a space to every space, for loops that cannot pay for a call:
        0 and ``inf`` within the space. Spaces of devices and of the host only.
        """
        found = self._wires.get(source)
        if found is None:
            spaces = range(len(self.cluster.spaces))
            latency, bandwidth = [0.0 for _ in spaces], [math.inf for _ in spaces]
            for space in {*self.cluster.space_of} - {source}:
                route = self.cluster.route(source, space)
                latency[space], bandwidth[space] = route.latency, route.bandwidth
            found = self._wires[source] = latency, bandwidth
        return found

    @cached_property
    def _wires(self) -> dict[int, tuple[list[float], list[float]]]:
        return {}

    @cached_property
    def _means(self) -> tuple[float, float]:
        space_of = np.array(self.cluster.space_of)
        count = len(space_of)
        if count < 2:
            return 0.0, 0.0
        pairs = count * (count - 1)
        latency = self.latency[np.ix_(space_of, space_of)].sum() / pairs
        per_byte = self.per_byte[np.ix_(space_of, space_of)].sum() / pairs
        return float(latency), float(per_byte)

    def mean_seconds(self, size: float) -> float:
        """Mean over all ordered pairs of different devices; pairs in one space count as 0."""
        latency, per_byte = self._means
        return latency + size * per_byte


def mean_edge_seconds(graph: DataflowGraph, communication: Communication) -> list[dict[int, float]]:
    """For each operator its successors with the mean seconds of the largest tensor between them."""
    edges: list[dict[int, float]] = [{} for _ in range(len(graph))]
    size = graph.tensor_bytes
    for source, target, tensor in zip(
        graph.edge_source.tolist(),
        graph.edge_target.tolist(),
        graph.edge_tensor.tolist(),
        strict=True,
    ):
        seconds = communication.mean_seconds(float(size[tensor]))
        edges[source][target] = max(edges[source].get(target, 0.0), seconds)
    return edges
