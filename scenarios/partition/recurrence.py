"""Time steps and layers of a recurrent network that is unrolled cell by cell, from its graph alone.

Operators of one kind that read the same weights are applications of one *cell*. An application that depends on an
earlier one of its cell is a later time step, whatever the cell is made of; a cell whose first application depends on
another recurrent cell is a layer above it. What is no cell stands with the last cell that it depends on, and what
depends on none, such as an embedding, with the first that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph


@dataclass(frozen=True)
class Recurrence:
    """Where operators stand.

    Attributes:
        step: int64[operators], from 0; no operator depends on a later step.
        layer: int64[operators], from 0; no operator depends on a higher layer.
    """

    step: np.ndarray
    layer: np.ndarray


def recurrence(graph: DataflowGraph) -> Recurrence:
    """Step and layer of every operator.

    Raises:
        InvalidInput: no cell is applied twice, one application after the other.
    """
    cells = _cells(graph)
    count = max(cells, default=-1) + 1
    step = np.full(len(graph), -1, dtype=np.int64)
    layer = step.copy()
    # latest[i, c]: the last step of cell c that operator i depends on or is; -1: none.
    latest = np.full((len(graph), count), -1, dtype=np.int64)
    above = np.full(count, -1, dtype=np.int64)  # the layer of each cell, once met
    recurrent = _recurrent(graph, cells, count)
    for operator, before in enumerate(graph.predecessors):
        inputs = list(before)
        if inputs:
            latest[operator] = latest[inputs].max(axis=0)
            step[operator], layer[operator] = step[inputs].max(), layer[inputs].max()
        cell = cells[operator]
        if cell < 0 or not recurrent[cell]:
            continue
        if above[cell] < 0:
            above[cell] = layer[operator] + 1
        step[operator] = max(step[operator], latest[operator, cell] + 1, 0)
        layer[operator] = max(layer[operator], above[cell])
        latest[operator, cell] = step[operator]
    if not recurrent.any():
        raise InvalidInput(
            f"Graph '{graph.name}' has no recurrent steps: no operator follows another one that reads the same weights. "
            "Take a network that is unrolled cell by cell, such as model=lstm_cells"
        )
    for column in (step, layer):
        last = int(column.max())
        for operator in reversed(range(len(graph))):
            if column[operator] < 0:
                after = [int(column[s]) for s in graph.successors[operator]]
                column[operator] = min(after, default=last)
    return Recurrence(step, layer)


def _cells(graph: DataflowGraph) -> list[int]:
    """For each operator the number of its cell, -1 where it reads no weight."""
    weights = frozenset(graph.weights)
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    found = []
    for kind, row in zip(graph.operator_kinds, graph.reads, strict=True):
        read = tuple(sorted(weights.intersection(row)))
        found.append(numbers.setdefault((kind, read), len(numbers)) if read else -1)
    return found


def _recurrent(graph: DataflowGraph, cells: list[int], count: int) -> np.ndarray:
    """bool[cells]: of which some application depends on an earlier one."""
    met = np.zeros((len(graph), count), dtype=bool)
    found = np.zeros(count, dtype=bool)
    for operator, before in enumerate(graph.predecessors):
        if before:
            met[operator] = met[list(before)].any(axis=0)
        if cells[operator] >= 0:
            found[cells[operator]] |= met[operator, cells[operator]]
            met[operator, cells[operator]] = True
    return found


__all__ = ["Recurrence", "recurrence"]
