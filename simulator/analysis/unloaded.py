"""What requests take on an idle system: the yardstick of how much load slows them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.workload import Job

SAMPLE = 10_000
"""Requests that tell enough of all of them."""


def unloaded_seconds(jobs: Iterable[Job], cluster: Cluster, costs: CostTable) -> dict[str, float]:
    """Mean seconds of requests alone, by the model that they ask for.

    Of one request: the least, over the devices, of its inputs' way to the device's memory, all its operators one
    after another with their launches, and its results' way back.
    """
    known: dict[tuple[int, str | None, str | None], float] = {}
    found: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        key = (id(job.graph), job.origin, job.destination)
        seconds = known.get(key)
        if seconds is None:
            seconds = known[key] = _alone(job, cluster, costs)
        found[job.model or job.graph.name].append(seconds)
    return {model: math.fsum(times) / len(times) for model, times in found.items()}


def _alone(job: Job, cluster: Cluster, costs: CostTable) -> float:
    graph = job.graph
    overhead = np.array([device.launch_overhead for device in cluster.devices])
    totals = (costs[graph].seconds + overhead).sum(axis=0).tolist()
    into = float(graph.tensor_bytes[list(graph.inputs)].sum())
    out = float(graph.tensor_bytes[list(graph.outputs)].sum())

    def way(source: int, destination: int, size: float) -> float:
        return 0.0 if source == destination else cluster.route(source, destination).seconds(size)

    best = math.inf
    for space, total in zip(cluster.space_of, totals, strict=True):
        if job.origin is not None:
            total += way(cluster.space_index[job.origin], space, into)
        if job.destination is not None:
            total += way(space, cluster.space_index[job.destination], out)
        best = min(best, total)
    return best
