"""Bare scheduling instances: times and edges without a model behind them.

JSON form::

    {"name": str?, "cost": [[seconds on each device] for each task],
     "edges": [[from, to, seconds when the devices differ]],
     "names": [str for each task]?, "half_duplex": bool?}

``null`` in ``cost`` means that the device cannot run the task; with ``half_duplex`` both directions
between two devices share one channel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.graph_files import FORMS, is_workflow, names_a_graph, refuse_unknown_json
from scenarios.graph_files.recorded import (
    is_recorded,
    read_replay,
    refuse_part,
    split_part,
    suffix_of,
)
from scenarios.graph_files.values import file_bytes, parse_json
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster, fully_connected
from simulator.model.costs import MOST_SECONDS, CostTable
from simulator.model.graph import DataflowGraph, from_edges
from simulator.support.atomic_io import write_whole


def load_instance(
    path: str | Path, half_duplex: bool = False, say: Callable[[str], None] = lambda line: None
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """Read a bare instance: its graph, a fully connected cluster and its times; or a trace to replay
    (:mod:`scenarios.graph_files.recorded`).

    Args:
        path: of the file; of a trace perhaps with the part that is meant, ``trace.json@3``.
        half_duplex: both directions between two devices share one channel.
        say: called with a line on what a trace says or does not.

    Raises:
        InvalidInput: the file is missing, truncated or not of the form above; or a graph without
            times, see :mod:`scenarios.graph_files`.
    """
    path, part = split_part(path)
    if suffix_of(path) == ".onnx":
        raise InvalidInput(f"{path} is a model, without devices or times: model.graph={path}")
    document = None
    if not names_a_graph(path) and suffix_of(path) != ".et":
        data = file_bytes(path)
        try:
            document = parse_json(data)
        except InvalidInput as error:
            if suffix_of(path) == ".json":
                raise InvalidInput(f"{path}: {error}") from None
            raise InvalidInput(
                f"{path} is of no form that is known: a bare instance is JSON with 'cost' and 'edges', a task "
                f"graph {FORMS}"
            ) from None
    try:
        if is_recorded(path, document):
            return read_replay(path, part, document, say)
        refuse_part(part)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if document is None or is_workflow(document):
        raise InvalidInput(
            f"{path} is a task graph without devices; add them: family=file family.devices=4 (what "
            "else there is: conf/family/file.yaml)"
        )
    try:
        refuse_unknown_json(document)
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
    names = document.get("names")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(label, str) for label in names)
    ):
        raise InvalidInput("'names' must be a list of texts, one for each task")
    shared = document.get("half_duplex", False)
    if not isinstance(shared, bool):
        raise InvalidInput(f"'half_duplex' is true or false, not {_shown(shared)}")
    name = str(document.get("name", name))
    graph = from_edges(name, len(rows), [(a, b, float(c)) for a, b, c in edges], names)
    matrix = np.array([[math.inf if v is None else float(v) for v in row] for row in rows])
    # The graph may have renumbered its tasks; their names still tell which row is whose.
    row_of = {label: row for row, label in enumerate(names or (f"t{i}" for i in range(len(rows))))}
    order = [row_of[label] for label in graph.operator_names]
    cluster = fully_connected(name, matrix.shape[1], half_duplex=half_duplex or shared)
    return graph, cluster, CostTable.of(graph, matrix[order])


def instance_to_json(graph: DataflowGraph, cluster: Cluster, costs: CostTable) -> dict[str, Any]:
    """The JSON document of a bare instance: reading it gives the same graph, cluster and times.

    Raises:
        InvalidInput: it says more than the form can: memories that devices share, links that are
            missing, differ or have latencies, several slots, or operators with more than a name.
    """
    one = all(
        device.slots == 1 and device.launch_overhead == 0 and device.completion_latency == 0
        for device in cluster.devices
    )
    alike = {(link.bandwidth, link.latency, link.half_duplex) for link in cluster.links}
    apart = len(set(cluster.space_of)) == len(cluster.devices) == len(cluster.spaces)
    if not (one and apart and len(alike) <= 1 and cluster.joins(range(len(cluster.spaces)))):
        raise InvalidInput(
            f"Cluster '{cluster.name}' is no bare instance's: those have one memory for each device "
            "and the same link between any two"
        )
    bandwidth, latency, half_duplex = next(iter(alike), (1.0, 0.0, False))
    bare = not (graph.weights or graph.inputs) and len(graph.tensors) == len(graph.edge_source)
    if latency or not bare:
        raise InvalidInput(
            f"Graph '{graph.name}' on cluster '{cluster.name}' is no bare instance: each of its "
            "tensors must go from one task to one other, without latency"
        )
    seconds = (graph.tensor_bytes[graph.edge_tensor] / bandwidth).tolist()
    document: dict[str, Any] = {
        "name": graph.name,
        "cost": [
            [None if value == math.inf else value for value in row]
            for row in costs[graph].seconds.tolist()
        ],
        "edges": [
            list(edge)
            for edge in zip(
                graph.edge_source.tolist(), graph.edge_target.tolist(), seconds, strict=True
            )
        ],
    }
    if graph.operator_names != [f"t{task}" for task in range(len(graph))]:
        document["names"] = graph.operator_names
    if half_duplex:
        document["half_duplex"] = True
    return document


def save_instance(
    path: str | Path, graph: DataflowGraph, cluster: Cluster, costs: CostTable
) -> None:
    """Write a bare instance for :func:`load_instance`, whole or not at all.

    Raises:
        InvalidInput: see :func:`instance_to_json`; or the file cannot be written.
    """
    # One task and one edge a line, for people and for diff.
    parts = []
    for key, value in instance_to_json(graph, cluster, costs).items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "]"
        parts.append(f'"{key}": {text}')
    write_whole(path, ("{" + ",\n ".join(parts) + "}\n").encode())


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
