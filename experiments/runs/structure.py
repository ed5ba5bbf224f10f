"""What a graph looks like, times aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost_models.arithmetic import is_known, operator_bytes, operator_flops
from simulator.model.graph import DataflowGraph


def levels(graph: DataflowGraph) -> np.ndarray:
    """int[operators]: edges on the longest path from a source to each operator."""
    level = [0] * len(graph)
    for operator, parents in enumerate(graph.predecessors):
        level[operator] = 1 + max((level[p] for p in parents), default=-1)
    return np.array(level, dtype=np.int64)


def width(graph: DataflowGraph) -> int:
    """The most operators at one distance from the sources; 1 for a chain and nothing else."""
    return int(np.bincount(levels(graph)).max())


@dataclass(frozen=True)
class Structure:
    """What a graph looks like, times aside.

    Attributes:
        depth: operators on the longest path.
        width: the most operators at one distance from the sources.
        flops: of the operators whose work is known.
        unknown: how many operators of each kind have unknown work.
    """

    operators: int
    edges: int
    depth: int
    width: int
    flops: float
    bytes: float
    weight_bytes: float
    unknown: Mapping[str, int]

    @classmethod
    def of(cls, graph: DataflowGraph) -> Structure:
        """The structure of a graph."""
        level = levels(graph)
        traced = all(operator.outputs for operator in graph.operators)
        known = [operator for operator in graph.operators if is_known(operator.kind)]
        unknown = Counter(o.kind for o in graph.operators if not is_known(o.kind)) if traced else {}
        return cls(
            len(graph),
            sum(map(len, graph.successors)),
            int(level.max()) + 1,
            width(graph),
            sum(map(operator_flops, known)) if traced else 0.0,
            sum(map(operator_bytes, graph.operators)) if traced else 0.0,
            graph.weight_bytes,
            unknown,
        )
