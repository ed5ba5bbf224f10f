"""Ranks of list schedulers: means over the devices that can run an operator, and longest paths.

Source: Topcuoglu, Hariri, Wu, "Performance-Effective and Low-Complexity Task Scheduling for
Heterogeneous Computing", IEEE TPDS 13(3):260-274, 2002, doi:10.1109/71.993206.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.model.graph import DataflowGraph
from simulator.planners.communication import Communication, mean_edge_seconds
from simulator.planners.priorities import rounded_all


def mean_seconds(seconds: np.ndarray) -> list[float]:
    """Mean time of every operator over the devices that can run it; seconds [operators, devices]."""
    finite = np.isfinite(seconds)
    totals = np.where(finite, seconds, 0.0).sum(axis=1)
    return (totals / finite.sum(axis=1)).tolist()


def upward_rank(mean: Sequence[float], edges: Sequence[dict[int, float]]) -> list[float]:
    """Length of the longest path from each operator to the end, its own mean time included.

    Args:
        mean: seconds of every operator, topologically ordered.
        edges: for each operator its successors with mean transfer seconds.
    """
    rank = list(mean)
    for i in range(len(rank) - 1, -1, -1):
        if edges[i]:
            rank[i] += max(seconds + rank[j] for j, seconds in edges[i].items())
    return rank


def downward_rank(mean: Sequence[float], edges: Sequence[dict[int, float]]) -> list[float]:
    """Length of the longest path from the beginning to each operator, its own mean time left out.

    Args:
        mean: seconds of every operator, topologically ordered.
        edges: for each operator its successors with mean transfer seconds.
    """
    rank = [0.0] * len(mean)
    for i, own in enumerate(mean):
        end = rank[i] + own
        for j, seconds in edges[i].items():
            if end + seconds > rank[j]:
                rank[j] = end + seconds
    return rank


def upward_ranks(
    graph: DataflowGraph, seconds: np.ndarray, communication: Communication
) -> list[float]:
    """Upward rank of every operator, rounded; seconds [operators, devices]."""
    edges = mean_edge_seconds(graph, communication)
    return rounded_all(np.array(upward_rank(mean_seconds(seconds), edges)))


def path_lengths(
    graph: DataflowGraph, seconds: np.ndarray, communication: Communication
) -> tuple[list[float], list[float]]:
    """Length of the longest path through every operator, from beginning to end, and of its part before
    the operator; both rounded. Seconds [operators, devices].
    """
    mean, edges = mean_seconds(seconds), mean_edge_seconds(graph, communication)
    before = np.array(downward_rank(mean, edges))
    return rounded_all(np.array(upward_rank(mean, edges)) + before), rounded_all(before)


def longest_ways(graph: DataflowGraph, lengths: Sequence[float]) -> list[float]:
    """From each operator to the end, its own length included; transfers take nothing."""
    way = list(lengths)
    successors = graph.successors
    for i in range(len(way) - 1, -1, -1):
        if successors[i]:
            way[i] += max(way[j] for j in successors[i])
    return way
