"""A training step taken apart: forward, backward and update operators, and where each backward operator belongs.

Every operator has an *anchor*: the forward operator whose work it undoes or whose weight it changes. A pipeline that
cuts the forward pass between two operators cuts the backward pass and the updates at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph

FORWARD, BACKWARD, UPDATE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Step:
    """The parts of a training step.

    Attributes:
        graph: of one step; its only result is the loss, or what stands for it.
        phase: int8[operators]: :data:`FORWARD`, :data:`BACKWARD` or :data:`UPDATE`.
        anchor: int64[operators], a forward operator for each one; forward operators are their own.
        weight_only: bool[operators], backward operators that serve nothing but updates.
        updates: for each weight that the step changes the tensor that it becomes.
    """

    graph: DataflowGraph
    phase: np.ndarray
    anchor: np.ndarray
    weight_only: np.ndarray
    updates: dict[int, int]

    @classmethod
    def of(cls, graph: DataflowGraph) -> Step:
        """Take a step apart.

        Raises:
            InvalidInput: the graph is of no training step.
        """
        updates = {weight: tensor for tensor, weight in graph.updates.items()}
        seeds = {reader for tensor in graph.outputs for reader in graph.consumers[tensor]}
        if not seeds or not updates:
            raise InvalidInput(
                f"Graph '{graph.name}' is no training step: nothing follows on its loss or no weight changes; take "
                "model.training=true"
            )
        if len(graph.outputs) > 1:
            raise InvalidInput(
                f"Graph '{graph.name}' has {len(graph.outputs)} losses, of several steps or micro-batches; give one "
                "step, model.steps=1"
            )
        changed = set(updates.values())
        phase = np.zeros(len(graph), dtype=np.int8)
        for operator in range(len(graph)):
            before = graph.predecessors[operator]
            if operator in seeds or any(phase[p] != FORWARD for p in before):
                writes_state = not changed.isdisjoint(graph.writes[operator])
                phase[operator] = UPDATE if writes_state else BACKWARD
        weight_only = _weight_only(graph, phase)
        return cls(graph, phase, _anchors(graph, phase, weight_only), weight_only, updates)

    @cached_property
    def forward(self) -> list[int]:
        """The forward operators, in order."""
        return np.flatnonzero(self.phase == FORWARD).tolist()

    def stages(self, starts: ArrayLike) -> np.ndarray:
        """int64[operators]: the stage of each one.

        Args:
            starts: the first forward operator of each stage, ascending, the first 0.
        """
        return np.searchsorted(np.asarray(starts), self.anchor, side="right") - 1

    def by_anchor(self, values: np.ndarray) -> np.ndarray:
        """Sums over the operators of each anchor: float[operators, ...] to float[forward operators, ...]."""
        place = np.searchsorted(self.forward, self.anchor)
        total = np.zeros((len(self.forward), *values.shape[1:]))
        np.add.at(total, place, values)
        return total


def _weight_only(graph: DataflowGraph, phase: np.ndarray) -> np.ndarray:
    """Backward operators that give a weight's gradient and nothing else, sums of its parts among them."""
    found = np.zeros(len(graph), dtype=bool)
    for operator in range(len(graph) - 1, -1, -1):
        after = graph.successors[operator]
        found[operator] = (
            phase[operator] == BACKWARD
            and bool(after)
            and all(
                phase[s] == UPDATE or (found[s] and graph.operators[s].kind in _ON_GRADIENTS)
                for s in after
            )
        )
    return found


_ON_GRADIENTS = ("add", "copy", "sum", "to")
"""Kinds of operators between a product that is a weight's gradient and the weight's update."""


def _anchors(graph: DataflowGraph, phase: np.ndarray, weight_only: np.ndarray) -> np.ndarray:
    """See the module docstring.

    A weight's gradient and update belong to an operator that reads the weight, any other backward operator to the last
    one that made something, or reads a weight, that it reads; but to none behind those that its gradients come from,
    so that stages follow each other backward as they do forward.
    """
    anchor = np.arange(len(graph))
    last = int(np.flatnonzero(phase == FORWARD)[-1])
    weights = set(graph.weights)
    readers = {w: [r for r in graph.consumers[w] if phase[r] == FORWARD] for w in weights}
    served: list[set[int]] = [set() for _ in range(len(graph))]
    for operator in range(len(graph) - 1, -1, -1):
        if phase[operator] == UPDATE:
            served[operator] = {
                w for w in weights.intersection(graph.reads[operator]) if readers[w]
            }
        elif weight_only[operator]:
            served[operator] = set().union(*(served[s] for s in graph.successors[operator]))
    for operator in np.flatnonzero(phase != FORWARD).tolist():
        before = graph.predecessors[operator]
        bound = min((int(anchor[p]) for p in before if phase[p] != FORWARD), default=last)
        made = [p for p in before if phase[p] == FORWARD] if not served[operator] else []
        for weight in served[operator] or weights.intersection(graph.reads[operator]):
            made += [r for r in readers[weight] if r <= bound]
        anchor[operator] = min(bound, max(made, default=bound))
    return anchor


__all__ = ["BACKWARD", "FORWARD", "UPDATE", "Step"]
