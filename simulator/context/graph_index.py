"""Plain lists of one graph, shared by all its jobs: what the hot loops read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cached_property

import numpy as np

from simulator.model.costs import GraphCosts, rows_of
from simulator.model.graph import DataflowGraph


class GraphIndex:
    """Plain lists of one graph, shared by all its jobs; what the hot loops read.

    Args:
        graph: the graph.
        costs: believed.
        overhead: float64[devices], launch overhead.
    """

    def __init__(self, graph: DataflowGraph, costs: GraphCosts, overhead: np.ndarray) -> None:
        self.graph = graph
        self.inputs = graph.inputs
        self.outputs = frozenset(graph.outputs)
        self.costs = costs
        self.matrix = overhead + costs.seconds if overhead.any() else costs.seconds
        """float64[operators, devices] believed seconds, the device's launch overhead included."""

    @cached_property
    def successors(self) -> Sequence[Sequence[int]]:
        """See :class:`DataflowGraph`."""
        return self.graph.successors

    @cached_property
    def pending(self) -> list[int]:
        """For each operator the number of its predecessors."""
        counts: list[int] = self.graph.predecessors_csr.lengths.tolist()
        return counts

    @cached_property
    def sources(self) -> list[int]:
        """Operators without predecessors."""
        found: list[int] = np.flatnonzero(self.graph.predecessors_csr.lengths == 0).tolist()
        return found

    @cached_property
    def reads(self) -> Sequence[Sequence[int]]:
        """For each operator the tensors it reads, weights left out."""
        return self.graph.activations_read

    @cached_property
    def writes(self) -> Sequence[Sequence[int]]:
        """See :class:`DataflowGraph`."""
        return self.graph.writes

    @cached_property
    def consumers(self) -> Sequence[Sequence[int]]:
        """See :class:`DataflowGraph`."""
        return self.graph.consumers

    @cached_property
    def updates(self) -> Mapping[int, Sequence[int]]:
        """For each tensor that a weight becomes for the next step the operators that read the weight."""
        return {t: self.graph.consumers[weight] for t, weight in self.graph.updates.items()}

    @cached_property
    def inherits(self) -> Mapping[int, Sequence[int]]:
        """For each operator that reads weights which change the tensors that these become."""
        found: dict[int, list[int]] = {}
        for tensor, readers in self.updates.items():
            for reader in readers:
                found.setdefault(reader, []).append(tensor)
        return found

    @cached_property
    def wanted(self) -> Set[int]:
        """Tensors that must arrive somewhere before the job is done."""
        return self.outputs | self.updates.keys()

    @cached_property
    def bytes(self) -> list[float]:
        """Of every tensor."""
        return self.graph.tensor_bytes.tolist()

    @cached_property
    def seconds(self) -> list[Sequence[float]]:
        """The rows of ``matrix``."""
        return self.costs.lists if self.matrix is self.costs.seconds else rows_of(self.matrix)

    @cached_property
    def able(self) -> list[Sequence[int]]:
        """For each operator the devices that can run it."""
        possible = np.isfinite(self.matrix)
        every = range(possible.shape[1])
        if possible.all():
            return [every] * len(possible)
        return [
            every if whole else np.flatnonzero(row).tolist()
            for whole, row in zip(possible.all(axis=1).tolist(), possible, strict=True)
        ]

    @cached_property
    def shared(self) -> list[bool]:
        """For each tensor whether copies of it may be made for others than one reader."""
        return [
            len(readers) > 1 or tensor in self.outputs
            for tensor, readers in enumerate(self.consumers)
        ]

    @cached_property
    def moved_bytes(self) -> list[float]:
        """Bytes that each operator reads and writes, weights included."""
        graph, size = self.graph, self.graph.tensor_bytes
        moved = np.zeros(len(graph))
        for rows in (graph.reads_csr, graph.writes_csr):
            moved += np.bincount(rows.row_of, weights=size[rows.values], minlength=len(graph))
        return moved.tolist()
