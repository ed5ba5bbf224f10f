"""What a list algorithm knows of one graph, shared by its planned and its on-line form."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from simulator.model.graph import DataflowGraph

Option = TypeVar("Option", bound=tuple[Any, ...])
"""A task on a device: its end in seconds, the device, and whatever else belongs to it."""


class Ranking:
    """Priorities and order of one graph's operators; made once for all jobs of the graph.

    Args:
        order: every operator, each after its predecessors: the order of planning.
        priorities: of every operator, larger first: the order of ready tasks.
    """

    def __init__(self, order: Sequence[int], priorities: Sequence[float]) -> None:
        self.order = order
        self.priorities = priorities

    def why(self, operator: int) -> str:
        """The numbers behind an operator's place in the order."""
        return f"rank {self.priorities[operator]:.6g}"

    def choose(self, operator: int, options: Sequence[Option]) -> Option:
        """The device for an operator: of the earliest end (ties: the smaller one)."""
        return min(options)

    def score(self, operator: int, option: Option) -> float:
        """What :meth:`choose` compares, seconds."""
        end: float = option[0]
        return end


def decreasing(priorities: Sequence[float]) -> list[int]:
    """Operators by decreasing priority, ties by the smaller one. No successor may come before its
    predecessor in priority.
    """
    return sorted(range(len(priorities)), key=lambda i: (-priorities[i], i))


def ready_first(graph: DataflowGraph, priorities: Sequence[float]) -> list[int]:
    """The order in which a queue of ready operators empties that gives out the largest priority (ties:
    the smaller operator), each making its successors ready when it leaves.
    """
    successors, pending = graph.successors, graph.in_degree.tolist()
    queue = [(-priorities[i], i) for i, count in enumerate(pending) if not count]
    heapify(queue)
    order = []
    while queue:
        operator = heappop(queue)[1]
        order.append(operator)
        for successor in successors[operator]:
            pending[successor] -= 1
            if not pending[successor]:
                heappush(queue, (-priorities[successor], successor))
    return order


def places(order: Sequence[int]) -> list[float]:
    """A priority that keeps a list's order: how many operators stand behind each."""
    behind = [0.0] * len(order)
    for place, operator in enumerate(order, 1):
        behind[operator] = float(len(order) - place)
    return behind
