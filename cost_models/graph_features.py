"""Features of a graph's operators: work, bytes, place in the graph; and which of them are key operators.

What a partition by structure alone needs, and what people look at before they partition. One row an operator; times
are not among them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.arithmetic import operator_bytes, operator_flops
from cost_models.streaming import streams
from simulator.analysis.dependency_matrix import Paths, dependency_matrix, levels
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.support.atomic_io import replacing


def computes(graph: DataflowGraph) -> np.ndarray:
    """bool[operators]: convolutions, products of matrices, attention, recurrent cells, and whatever is not known to
    take only the time of its bytes.
    """
    return np.array([not streams(kind) for kind in graph.operator_kinds])


def key_operators(graph: DataflowGraph) -> np.ndarray:
    """bool[operators]: those that compute, forks and joins."""
    forks = graph.successors_csr.lengths > 1
    key: np.ndarray = computes(graph) | forks | (graph.in_degree > 1)
    return key


def graph_features(graph: DataflowGraph) -> pd.DataFrame:
    """The features of a traced graph, one row an operator.

    Columns: ``operator``, ``kind``, ``attributes`` (JSON), ``inputs`` and ``outputs`` (shapes), ``dtype``, ``flops``
    (NaN: unknown), ``bytes`` (read and written), ``weight_bytes`` and ``parameters`` (elements) that it reads,
    ``sent_bytes`` (the sum of its row of the dependency matrix: a tensor counts once a reader), ``in_degree``, ``out_degree``, ``level``, ``log2_paths`` (of the
    paths from roots to sinks those through it) and ``key``.

    Raises:
        InvalidInput: the graph has no shapes.
    """
    if not all(operator.outputs for operator in graph.operators):
        raise InvalidInput(
            f"Graph '{graph.name}' has no shapes, so its operators have no features; take a traced model"
        )
    matrix = dependency_matrix(graph)
    weights = frozenset(graph.weights)
    read = [[graph.tensors[t] for t in row if t in weights] for row in graph.reads]
    operators = graph.operators
    return pd.DataFrame(
        {
            "operator": graph.operator_names,
            "kind": graph.operator_kinds,
            "attributes": [json.dumps(dict(o.attributes), sort_keys=True) for o in operators],
            "inputs": [[list(spec.shape) for spec in o.inputs] for o in operators],
            "outputs": [[list(spec.shape) for spec in o.outputs] for o in operators],
            "dtype": [o.outputs[0].dtype for o in operators],
            "flops": [float(operator_flops(o)) for o in operators],
            "bytes": [float(operator_bytes(o)) for o in operators],
            "weight_bytes": [sum(t.bytes for t in row) for row in read],
            "parameters": [sum(t.spec.elements for t in row if t.spec) for row in read],
            "sent_bytes": np.asarray(matrix.sum(axis=1)),
            "in_degree": graph.in_degree,
            "out_degree": graph.successors_csr.lengths,
            "level": levels(matrix),
            "log2_paths": [math.log2(paths) for paths in Paths.of(graph).through],
            "key": key_operators(graph),
        }
    )


def save_features(graph: DataflowGraph, path: str | Path) -> pd.DataFrame:
    """Write the features of a graph as Parquet, whole or not at all, and give them.

    Raises:
        InvalidInput: the graph has no shapes.
        CannotWrite: the disk is full, say.
    """
    features = graph_features(graph)
    with replacing(Path(path).expanduser()) as temporary:
        features.to_parquet(temporary, index=False)
    return features
