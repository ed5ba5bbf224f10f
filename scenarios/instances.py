"""Bare scheduling instances: times and edges without a model behind them.

JSON form::

    {"name": str?, "cost": [[seconds on each device] for each task],
     "edges": [[from, to, seconds when the devices differ]]}

``null`` in ``cost`` means that the device cannot run the task.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cluster import Cluster, fully_connected
from simulator.costs import MOST_SECONDS, CostTable
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph, from_edges


def load_instance(
    path: str | Path, half_duplex: bool = False
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """Read a bare instance: its graph, a fully connected cluster and its times.

    Raises:
        InvalidInput: the file is missing, truncated or not of the form above.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"Cannot read instance {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}); was it truncated?") from None
    try:
        return instance_from_json(document, path.stem, half_duplex)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def instance_from_json(
    document: Any, name: str = "instance", half_duplex: bool = False
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """A bare instance from its JSON document.

    At one byte per second between any two devices, an edge's bytes are its seconds.

    Raises:
        InvalidInput: what is wrong with it.
    """
    if not isinstance(document, Mapping) or not {"cost", "edges"} <= document.keys():
        raise InvalidInput("An instance is an object with 'cost' and 'edges'")
    rows = document["cost"]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise InvalidInput("'cost' must be a list of rows, one for each task")
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise InvalidInput("All rows of 'cost' must have one time for each device")
    for task, row in enumerate(rows):
        for value in row:
            if value is not None and not _is_number(value):
                raise InvalidInput(
                    f"'cost' of task {task} holds {_shown(value)}; times are numbers or null"
                )
            if value is not None and not 0 <= value <= MOST_SECONDS:
                raise InvalidInput(
                    f"'cost' of task {task} holds {_shown(value)}; times are 0 to {MOST_SECONDS:g} s"
                )
    edges = document["edges"]
    if not isinstance(edges, list):
        raise InvalidInput("'edges' must be a list of [from, to, seconds]")
    for edge in edges:
        well_formed = isinstance(edge, list) and len(edge) == 3 and all(map(_is_number, edge))
        if not well_formed or not all(isinstance(end, int) for end in edge[:2]):
            raise InvalidInput(f"Edge {_shown(edge)} is not [from, to, seconds]")
        if not 0 <= edge[2] <= MOST_SECONDS:
            raise InvalidInput(
                f"Edge {_shown(edge)} takes {_shown(edge[2])} s, not 0 to {MOST_SECONDS:g} s"
            )
    name = str(document.get("name", name))
    graph = from_edges(name, len(rows), [(a, b, float(c)) for a, b, c in edges])
    matrix = np.array([[math.inf if v is None else float(v) for v in row] for row in rows])
    # The graph may have renumbered its tasks; their names still tell which row is whose.
    order = [int(operator.name[1:]) for operator in graph.operators]
    cluster = fully_connected(name, matrix.shape[1], half_duplex=half_duplex)
    return graph, cluster, CostTable.of(graph, matrix[order])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
