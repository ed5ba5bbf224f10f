"""Times of a step over several devices, from those of the step of one micro-batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from scenarios.partition.partitioner import Problem
from scenarios.training.collectives import all_reduce_seconds
from scenarios.training.parallelism import Parallel
from scenarios.training.step import BACKWARD, UPDATE, Step
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Tensor


def costs_of(
    made: Parallel, costs: GraphCosts, problem: Problem, communicator: int | None
) -> GraphCosts:
    """Times of a step over several devices: those of the step's operators, and of what was added beside them.

    Sums and copies of a graph whose times are given with it take none: nobody knows them.
    """
    cluster = problem.cluster
    added = np.flatnonzero(made.origin < 0).tolist()
    rows = _auxiliary_costs(made.graph, added, problem) if problem.prices is not None else {}

    def column(name: str, blank: float) -> np.ndarray | None:
        known = getattr(costs, name)
        if known is None:
            return None
        values: np.ndarray = known[made.origin]
        values[added] = blank
        for operator in added:
            row = rows.get(_key(made.graph, operator))
            if row is not None and (given := getattr(row[0], name)) is not None:
                values[operator] = given[row[1]]
        return values

    seconds = column("seconds", 0.0)
    assert seconds is not None
    if communicator is not None:
        seconds[:, communicator] = np.inf
        for operator in added:
            if made.graph.operators[operator].kind == "all_reduce":
                ranks = [
                    cluster.space_of[int(made.device[made.graph.producer[t]])]
                    for t in made.graph.reads[operator]
                ]
                size = float(made.graph.tensor_bytes[made.graph.reads[operator][0]])
                seconds[operator] = np.inf
                seconds[operator, communicator] = _reduced(cluster, ranks, size)
    return GraphCosts(
        seconds, column("spread", 0.0), column("in_range", True), column("cached", 1.0)
    )


def repeated(costs: GraphCosts, steps: int) -> GraphCosts:
    """Times of so many steps in a row, those of each one."""
    return _changed(costs, lambda column: np.concatenate([column] * steps))


def first_rows(costs: GraphCosts, count: int) -> GraphCosts:
    """Times of the first operators, of several steps those of the first one."""
    return _changed(costs, lambda column: column[:count])


def _changed(costs: GraphCosts, change: Callable[[np.ndarray], np.ndarray]) -> GraphCosts:
    names = [field.name for field in dataclasses.fields(costs)]
    known = {name: column for name in names if (column := getattr(costs, name)) is not None}
    return GraphCosts(**{name: change(column) for name, column in known.items()})


def _reduced(cluster: Cluster, spaces: Sequence[int], size: float) -> float:
    """The closed form of a ring over some memories."""
    ring = [*spaces[1:], spaces[0]]
    routes = [cluster.route(a, b) for a, b in zip(spaces, ring, strict=True)]
    slowest = min(route.bandwidth for route in routes)
    latency = max(route.latency for route in routes)
    return all_reduce_seconds(size, len(spaces), slowest, latency)


def _key(graph: DataflowGraph, operator: int) -> tuple[object, ...]:
    row = graph.operators[operator]
    return row.kind, row.inputs, row.outputs, tuple(sorted(map(str, row.attributes.items())))


def _auxiliary_costs(
    graph: DataflowGraph, added: Sequence[int], problem: Problem
) -> dict[tuple[object, ...], tuple[GraphCosts, int]]:
    """Times of the operators that were added, each distinct one priced once."""
    chosen: dict[tuple[object, ...], int] = {}
    for operator in added:
        if graph.operators[operator].kind != "all_reduce":
            chosen.setdefault(_key(graph, operator), operator)
    if not chosen:
        return {}
    tensors: list[Tensor] = []
    reads, writes = [], []
    for operator in chosen.values():
        first = len(tensors)
        tensors += [
            dataclasses.replace(graph.tensors[t], name=f"{len(tensors) + n}", role="input")
            for n, t in enumerate(graph.reads[operator])
        ]
        reads.append(list(range(first, len(tensors))))
        first = len(tensors)
        tensors += [
            dataclasses.replace(graph.tensors[t], name=f"{len(tensors) + n}")
            for n, t in enumerate(graph.writes[operator])
        ]
        writes.append(list(range(first, len(tensors))))
    operators = [graph.operators[operator] for operator in chosen.values()]
    alone = DataflowGraph(f"{graph.name}/sums", operators, tensors, reads, writes)
    priced = problem.price([alone])[alone]
    return {key: (priced, position) for position, key in enumerate(chosen)}


def proportional(step: Step, costs: GraphCosts, parts: int) -> tuple[Step, GraphCosts]:
    """A step of a part of the batch where nobody can trace or price another batch: times and activations in proportion.

    Weights, their gradients and updates stay as they are.
    """
    graph = step.graph
    kept = set(graph.weights) | {
        t for o in np.flatnonzero(step.phase == UPDATE).tolist() for t in graph.writes[o]
    }
    for operator in np.flatnonzero(step.phase == BACKWARD).tolist():
        for t in graph.writes[operator]:
            if graph.consumers[t] and all(
                step.phase[r] == UPDATE or step.weight_only[r] for r in graph.consumers[t]
            ):
                kept.add(t)
    tensors = [
        row if t in kept else dataclasses.replace(row, bytes=row.bytes / parts, spec=None)
        for t, row in enumerate(graph.tensors)
    ]
    batch = None
    made = DataflowGraph(
        graph.name, graph.operators, tensors, graph.reads, graph.writes, graph.results, batch
    )
    share = np.where(step.phase == UPDATE, 1.0, 1.0 / parts)[:, None]
    return Step.of(made), dataclasses.replace(costs, seconds=costs.seconds * share)


__all__ = ["costs_of", "first_rows", "proportional", "repeated"]
