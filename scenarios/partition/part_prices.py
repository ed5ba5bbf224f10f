"""Believed times of parts of operators, each distinct one priced once, many at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from scenarios.partition.partitioner import Problem
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Role, Tensor, TensorSpec

Key = tuple[object, ...]


class PartPrices:
    """Times of operators that are in no graph yet.

    Args:
        problem: whose prices these are; the operators of its graphs are known from the start.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._known: dict[Key, np.ndarray] = {}
        for graph in problem.graphs:
            for operator, row in zip(graph.operators, problem.costs[graph].seconds, strict=True):
                self._known[key_of(operator)] = row
        self._overhead = np.array([d.launch_overhead for d in problem.cluster.devices])

    def seconds(self, operators: Sequence[Operator]) -> np.ndarray:
        """float64[operators, devices], launch overheads included.

        Raises:
            InvalidInput: nobody can price a part (:meth:`Problem.price`).
        """
        return self._rows(operators) + self._overhead

    def costs(self, graph: DataflowGraph) -> CostTable:
        """The times of a transformed graph."""
        return CostTable.of(graph, self._rows(graph.operators))

    def _rows(self, operators: Sequence[Operator]) -> np.ndarray:
        keys = [key_of(operator) for operator in operators]
        new = {k: o for k, o in zip(keys, operators, strict=True) if k not in self._known}
        if new:
            graph = _catalogue(list(new.values()))
            self._known.update(zip(new, self._problem.price([graph])[graph].seconds, strict=True))
        return np.array([self._known[key] for key in keys])


def key_of(operator: Operator) -> Key:
    """What an operator's time depends on."""
    attributes = repr(sorted(operator.attributes.items()))
    return operator.kind, operator.inputs, operator.outputs, attributes


def _catalogue(operators: Sequence[Operator]) -> DataflowGraph:
    """A graph of operators that have nothing to do with each other."""
    tensors: list[Tensor] = []

    def added(specs: Sequence[TensorSpec], role: Role) -> list[int]:
        first = len(tensors)
        tensors.extend(Tensor(f"{first + n}", role, float(s.bytes), s) for n, s in enumerate(specs))
        return list(range(first, len(tensors)))

    reads = [added(operator.inputs, "input") for operator in operators]
    writes = [added(operator.outputs, "activation") for operator in operators]
    named = [dataclasses.replace(o, name=f"{n}") for n, o in enumerate(operators)]
    return DataflowGraph("parts of operators", named, tensors, reads, writes)
