"""What can never fit into a memory, found before a run: operators, jobs' inputs and results, weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.errors import InvalidInput
from simulator.memory.weights import weight_store
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.units import exact_bytes
from simulator.model.workload import Kind, Workload


def within_capacity(
    costs: CostTable,
    workload: Workload,
    cluster: Cluster,
    weights: str,
    until: float = math.inf,
) -> CostTable:
    """Costs in which no device can run what its memory cannot hold at once: an operator's weights,
    inputs and outputs. Jobs that arrive later than ``until`` do not matter.

    Raises:
        InvalidInput: an operator, a job's inputs or results, or the weights on demand fit nowhere
            that they can or must lie.
    """
    capacity = np.array(
        [math.floor(s.capacity) if s.capacity < math.inf else math.inf for s in cluster.spaces]
    )
    if not np.isfinite(capacity).any():
        return costs
    kinds = workload.kinds(until)
    _check_jobs(kinds, cluster, capacity, weights)
    fitting = dict(costs)
    for graph in workload.graphs:
        brought = all(origin is not None for asked, origin, _ in kinds if asked is graph)
        need = _operator_bytes(graph, brought)
        believed = costs[graph]
        seconds = believed.seconds.copy()
        seconds[need[:, None] > capacity[list(cluster.space_of)]] = math.inf
        wrong = np.flatnonzero(~np.isfinite(seconds).any(axis=1))
        if len(wrong):
            operator = int(wrong[0])
            able = np.flatnonzero(np.isfinite(believed.seconds[operator]))
            space = max({cluster.space_of[d] for d in able.tolist()}, key=lambda s: capacity[s])
            raise InvalidInput(
                f"Operator '{graph.operators[operator].name}' of '{graph.name}' needs "
                f"{exact_bytes(need[operator])} for its weights, inputs and outputs; the largest memory of a device that can run it, "
                f"'{cluster.spaces[space].name}', has {capacity[space]:.0f}. Take a smaller batch or "
                "a larger memory"
            )
        fitting[graph] = replace(believed, seconds=seconds)
    return CostTable(fitting)


def _operator_bytes(graph: DataflowGraph, inputs: bool) -> np.ndarray:
    """float64[operators]: what must lie in one space for each operator to run.

    Args:
        graph: the graph.
        inputs: count the tensors that a job brings.
    """
    size = np.ceil(graph.tensor_bytes)
    if not inputs:
        size[list(graph.inputs)] = 0.0
    total = np.zeros(len(graph))
    for rows in (graph.reads_csr, graph.writes_csr):
        total += np.bincount(rows.row_of, weights=size[rows.values], minlength=len(graph))
    if graph.inner_bytes:
        total += np.ceil(graph.inner_bytes)
    return total


def _check_jobs(
    kinds: Mapping[Kind, int], cluster: Cluster, capacity: np.ndarray, weights: str
) -> None:
    """Refuse what must lie in one space and is larger than it."""
    stored: dict[int, dict[tuple[str, str], float]] = {}
    for (graph, origin, destination), number in kinds.items():
        size = np.ceil(graph.tensor_bytes)
        results = [t for t in graph.outputs if graph.producer[t] >= 0]
        for what, tensors, place in (
            ("inputs", graph.inputs, origin),
            ("results", results, destination),
        ):
            if place is not None:
                _check_room(
                    f"The {what} of job {number} ('{graph.name}')",
                    float(size[list(tensors)].sum()),
                    cluster,
                    cluster.space_index[place],
                    capacity,
                )
    if weights != "on_demand":
        return
    for graph, space in weight_store(kinds, cluster).items():
        rows = stored.setdefault(space, {})
        for t in graph.weights:
            rows[graph.name, graph.tensors[t].name] = math.ceil(graph.tensors[t].bytes)
    for space, rows in stored.items():
        _check_room("The weights of the workload", sum(rows.values()), cluster, space, capacity)


def _check_room(what: str, size: float, cluster: Cluster, space: int, capacity: np.ndarray) -> None:
    if size > capacity[space]:
        raise InvalidInput(
            f"{what} take {exact_bytes(size)}, and memory space "
            f"'{cluster.spaces[space].name}', where they must lie, has {capacity[space]:.0f}; give it "
            "a larger capacity"
        )
