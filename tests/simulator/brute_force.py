"""The best of all plans of a tiny graph: every placement with every order that the graph allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from simulator.engine.evaluator import Evaluator
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Job


def linear_extensions(graph: DataflowGraph) -> Iterator[tuple[int, ...]]:
    """Every topological order of a graph's operators."""
    for order in itertools.permutations(range(len(graph))):
        at = {operator: k for k, operator in enumerate(order)}
        if all(at[j] < at[i] for i, parents in enumerate(graph.predecessors) for j in parents):
            yield order


def optimum(
    job: Job | DataflowGraph,
    cluster: Cluster,
    costs: CostTable,
    movement: str = "push",
    contention: str = "none",
) -> float:
    """The smallest makespan of all static plans, seconds."""
    evaluator = Evaluator(job, cluster, costs, movement=movement, contention=contention)
    graph = evaluator.jobs[0].graph
    able = [np.flatnonzero(np.isfinite(row)).tolist() for row in costs[graph].seconds]
    orders = list(linear_extensions(graph))
    return min(
        evaluator.evaluate(list(device), list(order))
        for device in itertools.product(*able)
        for order in orders
    )
