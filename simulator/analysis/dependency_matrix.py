"""The dependency matrix of a graph, and what its algebra says: levels, numbers of paths, whether there is a cycle.

``M[i, j]`` is the bytes of the tensors that operator ``i`` writes and ``j`` reads, ``A`` where there are any. Roots are
zero columns, sinks zero rows. ``A`` of an acyclic graph, and of no other, is nilpotent; ``(I - A)^-1`` counts its paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.model.graph import DataflowGraph

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def dependency_matrix(graph: DataflowGraph) -> csr_array:
    """float64[operators, operators], sparse: bytes of the tensors from each operator to each other one.

    A dependency of no bytes is stored as a zero, so that it counts as an edge.
    """
    from scipy.sparse import coo_array

    size = graph.tensor_bytes[graph.edge_tensor]
    ends = graph.edge_source, graph.edge_target
    matrix: csr_array = coo_array((size, ends), shape=(len(graph), len(graph))).tocsr()
    return matrix


def levels(matrix: csr_array) -> np.ndarray:
    """int64[operators]: the longest distance from a root, found by peeling zero columns.

    Args:
        matrix: stored entries are edges, from row to column.

    Returns:
        -1 for what lies on a cycle or behind one: the matrix is nilpotent if there is none.
    """
    count = matrix.shape[0]
    level = np.full(count, -1, dtype=np.int64)
    waiting = np.bincount(matrix.indices, minlength=count)
    front = np.flatnonzero(waiting == 0)
    number = 0
    while len(front):
        level[front] = number
        number += 1
        after = np.concatenate(
            [matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]] for i in front]
        )
        waiting -= np.bincount(after, minlength=count)
        front = np.unique(after[waiting[after] == 0])
    return level


@dataclass(frozen=True)
class Paths:
    """How many paths lead from roots to each operator and from there to sinks; integers of any size."""

    into: tuple[int, ...]
    out: tuple[int, ...]

    @classmethod
    def of(cls, graph: DataflowGraph) -> Paths:
        """The paths of a graph; an operator that is a root, or a sink, has one to itself."""
        into = [0] * len(graph)
        for operator, parents in enumerate(graph.predecessors):
            into[operator] = sum(into[parent] for parent in parents) or 1
        out = [0] * len(graph)
        for operator in reversed(range(len(graph))):
            out[operator] = sum(out[child] for child in graph.successors[operator]) or 1
        return cls(tuple(into), tuple(out))

    @property
    def through(self) -> list[int]:
        """From roots to sinks through each operator."""
        return [a * b for a, b in zip(self.into, self.out, strict=True)]
