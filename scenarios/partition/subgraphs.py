"""Subgraphs around key operators, and the phases of a graph: what a CPU-GPU partition places as one.

A *run* is a path on which nothing forks or joins. A subgraph is a key operator with the element-wise ones that follow it
in its run. Phases alternate: what every path passes through is *sequential*; between two such runs lies a
*multi-path* region, one run a branch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost_models.graph_features import computes
from simulator.model.cluster import Cluster
from simulator.model.costs import GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.segments import Segments, coarsen


@dataclass(frozen=True)
class Phase:
    """A part of a graph that all of what comes before and behind it is before and behind.

    Attributes:
        runs: int64[operators] each, ascending: one of a sequential phase, one a branch of a multi-path one.
        parallel: whether it is multi-path.
    """

    runs: tuple[np.ndarray, ...]
    parallel: bool


def runs(
    graph: DataflowGraph, cut: np.ndarray | None = None, seconds: np.ndarray | None = None
) -> np.ndarray:
    """int64[operators]: the run of each operator.

    Args:
        graph: of operators or of subgraphs.
        cut: bool[operators], those that begin a new run.
        seconds: float64[operators, devices]; a run ends, too, where no device can go on with it.
    """
    run = np.empty(len(graph), dtype=np.int64)
    able = np.ones((len(graph), 1), dtype=bool) if seconds is None else np.isfinite(seconds)
    on: list[np.ndarray] = []  # of each run the devices that can run all of it
    for operator, parents in enumerate(graph.predecessors):
        follows = len(parents) == 1 and len(graph.successors[parents[0]]) == 1
        if follows and (cut is None or not cut[operator]):
            run[operator] = run[parents[0]]
            both = on[run[operator]] & able[operator]
            if both.any():
                on[run[operator]] = both
                continue
        run[operator] = len(on)
        on.append(able[operator])
    return run


def key_subgraphs(graph: DataflowGraph, seconds: np.ndarray | None = None) -> np.ndarray:
    """int64[operators]: the subgraph of each operator: a key operator and what streams behind it in its run.

    Forks and joins are borders of runs and so of subgraphs. Arguments as :func:`runs`.
    """
    return runs(graph, computes(graph), seconds)


def phases(graph: DataflowGraph) -> list[Phase]:
    """The phases of a graph, in order.

    What every path from a source to a sink passes through are the dominators of a sink behind all sinks (Lengauer,
    Tarjan 1979); an operator lies in the region behind the last of them that dominates it.
    """
    import networkx as nx

    count = len(graph)
    source, sink = count, count + 1
    between = nx.DiGraph()
    between.add_edges_from(zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True))
    between.add_edges_from((source, v) for v in range(count) if not graph.predecessors[v])
    between.add_edges_from((v, sink) for v in range(count) if not graph.successors[v])
    above = nx.immediate_dominators(between, source)
    trunk = [sink]
    while trunk[-1] != source:
        trunk.append(above[trunk[-1]])
    place = {operator: number for number, operator in enumerate(reversed(trunk))}
    region = np.zeros(count, dtype=np.int64)  # twice the place in the trunk, and one more beside it
    for operator in range(count):
        if operator in place:
            region[operator] = 2 * place[operator]
        else:
            parent = above[operator]
            # Parents that are no part of the trunk stand before, since operators are in topological order.
            region[operator] = 2 * place[parent] + 1 if parent in place else region[parent]
    parallel = region % 2 == 1
    # Neighbours on the trunk without a region between them are one phase.
    filled = np.unique(region)
    start = np.diff(filled, prepend=-1) % 2 == 1
    start[0] = True
    phase = (np.cumsum(start) - 1)[np.searchsorted(filled, region)]
    run = runs(graph, np.zeros(count, dtype=bool))
    run[~parallel] = -1 - phase[~parallel]
    found = []
    for number in range(int(phase.max()) + 1):
        members = np.flatnonzero(phase == number)
        rows = tuple(members[run[members] == r] for r in dict.fromkeys(run[members].tolist()))
        found.append(Phase(rows, bool(parallel[members[0]])))
    return found


def least_crossing(cluster: Cluster, size: np.ndarray) -> np.ndarray:
    """Seconds of ``size`` bytes (float64[n]) over the fastest route between memories of two devices; 0 where all
    devices share one.
    """
    spaces = sorted({*cluster.space_of})
    ways = [cluster.route(a, b) for a in spaces for b in spaces if a != b]
    if not ways:
        return np.zeros_like(size)
    return np.min([way.latency + size / way.bandwidth for way in ways], axis=0)


def merge_short(
    graph: DataflowGraph, parts: np.ndarray, costs: GraphCosts, cluster: Cluster, eps: float
) -> Segments:
    """Join subgraphs that take less time than the transfer of what they write with a neighbour.

    With the one subgraph that reads it; where several do, with the one that it reads from. Either keeps the partition
    acyclic, and pairs are joined one at a time until none is short.

    Args:
        graph: of all operators.
        parts: int64[operators], the subgraphs.
        costs: of the operators.
        cluster: its links.
        eps: how many times the transfer a subgraph must take to stay; 0 joins none.
    """
    segments = coarsen(graph, parts=parts)
    forwards = True
    while len(segments.graph) > 1:
        coarse = segments.graph
        seconds = segments.costs(costs).seconds
        fastest = seconds.min(axis=1)
        written = np.array([coarse.tensor_bytes[list(row)].sum() for row in coarse.writes])
        short = np.flatnonzero(fastest < eps * least_crossing(cluster, written))
        neighbours = coarse.successors if forwards else coarse.predecessors
        joined = np.arange(len(coarse))
        free = np.ones(len(coarse), dtype=bool)
        for part in short.tolist():
            if len(neighbours[part]) != 1:
                continue
            (other,) = neighbours[part]
            together = np.isfinite(seconds[part] + seconds[other]).any()
            if free[part] and free[other] and together:
                joined[part] = joined[other] = min(part, other)
                free[[part, other]] = False
        if free.all():
            if not forwards:
                break
            forwards = False
            continue
        segments = coarsen(graph, parts=joined[segments.owner])
        forwards = True
    return segments
