"""Transfer times as a planner sees them: no contention, every route alone."""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property

from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph


class Communication:
    """Seconds to move bytes between memory spaces and, on average, between devices."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

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
        """Mean latency and seconds per byte of all ordered pairs of different devices."""
        cluster = self.cluster
        count = len(cluster.devices)
        if count < 2:
            return 0.0, 0.0
        # Between twins every route is the same: one of each two kinds of spaces is looked at.
        devices = Counter(cluster.space_of)
        kinds: dict[int, list[int]] = {}
        for space in sorted(devices):
            kinds.setdefault(cluster.twins[space], []).append(space)
        latencies, inverses = [], []
        for sources in kinds.values():
            for destinations in kinds.values():
                ends = (sources[0], destinations[0])
                pairs = sum(devices[s] for s in sources) * sum(devices[d] for d in destinations)
                if sources is destinations:
                    if len(sources) == 1:
                        continue
                    ends = (sources[0], sources[1])
                    pairs -= sum(devices[s] ** 2 for s in sources)
                route = cluster.route(*ends)
                latencies.append(pairs * route.latency)
                inverses.append(pairs / route.bandwidth)
        total = count * (count - 1)
        return math.fsum(latencies) / total, math.fsum(inverses) / total

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
