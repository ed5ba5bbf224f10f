"""What ran, for other tools: Chakra's ``.et`` and WfFormat's ``.json`` (Perfetto's is in every run's folder).

Chakra: an execution is a ``COMP_NODE``, a transfer over a link a ``COMM_SEND_NODE`` with its ``comm_size``. ``data_deps``
are those of the graph, by way of the transfer where a tensor moved; ``ctrl_deps`` the execution before it on the slot
of its device. WfFormat 1.5: ``runtimeInSeconds`` is what an execution took, a file each tensor, a machine each device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.graph_files.chakra import SEND, Node, chakra_bytes
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph
from simulator.model.trace import FINISHED, Trace
from simulator.support.atomic_io import write_whole

SUFFIXES = (".et", ".json")
_NO_DATE = "1970-01-01T00:00:00Z"
"""Simulated time has no date, and the same run gives the same bytes."""


def check_export(path: str | Path) -> None:
    """Refuse a file whose suffix names no form.

    Raises:
        InvalidInput: names the forms.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise InvalidInput(
            f"export={path} names no form that is written: an .et is Chakra's, a .json WfFormat's (Perfetto's and the "
            "plan are in the run's folder)"
        )


def export_run(path: str | Path, trace: Trace, graph: DataflowGraph, cluster: Cluster) -> Path:
    """Write a run of one job in the form that the file's suffix names, whole or not at all; returns the path.

    Args:
        path: ``.et`` or ``.json``.
        trace: of the run.
        graph: the job's.
        cluster: that it ran on.

    Raises:
        InvalidInput: the suffix is another, the run had several jobs or did not finish its job, or the file cannot be
            written.
    """
    check_export(path)
    done = trace.executions["status"] == FINISHED
    rows = {name: column[done] for name, column in trace.executions.items()}
    operators = np.sort(rows["operator"])
    if len(trace.jobs["job"]) != 1 or not np.array_equal(operators, np.arange(len(graph))):
        raise InvalidInput(
            "A file of Chakra or WfFormat holds one job, each of whose tasks ran once; take workload=single without faults"
        )
    order = np.argsort(rows["operator"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    if Path(path).suffix.lower() == ".et":
        return write_whole(path, chakra_bytes(_nodes(trace, rows, graph, cluster)))
    document = _wfformat(trace, rows, graph, cluster)
    return write_whole(path, (json.dumps(document, indent=1) + "\n").encode())


def _nodes(
    trace: Trace, rows: Mapping[str, np.ndarray], graph: DataflowGraph, cluster: Cluster
) -> list[Node]:
    moved = {name: column.tolist() for name, column in trace.transfers.items()}
    last: dict[tuple[int, int], int] = {}
    """By tensor and memory space the message that brought it there."""
    sent: list[Node] = []
    for row in sorted(
        range(len(moved["tensor"])),
        key=lambda row: (moved["start"][row], moved["finish"][row], row),
    ):
        tensor, space = moved["tensor"][row], moved["destination"][row]
        producer = graph.producer[tensor]
        before = last.get((tensor, space), producer)
        last[tensor, space] = len(graph) + len(sent)
        seconds = moved["finish"][row] - moved["start"][row]
        sent.append(
            Node(
                len(graph) + len(sent),
                f"{graph.tensors[tensor].name} over {cluster.channels[moved['link'][row]]}",
                SEND,
                data_deps=() if before < 0 else (before,),
                begin_s=moved["start"][row],
                seconds=seconds,
                attributes={"comm_size": round(moved["bytes"][row]), "is_cpu_op": False},
            )
        )
    before_it = _before(rows)
    computed = []
    for operator, name in enumerate(graph.operator_names):
        device = int(rows["device"][operator])
        space = cluster.space_of[device]
        needed = [last.get((t, space), graph.producer[t]) for t in graph.reads[operator]]
        begin, end = float(rows["start"][operator]), float(rows["finish"][operator])
        computed.append(
            Node(
                operator,
                name,
                ctrl_deps=tuple(before_it.get(operator, ())),
                data_deps=tuple(dict.fromkeys(node for node in needed if node >= 0)),
                begin_s=begin,
                seconds=end - begin,
                attributes={"is_cpu_op": False, "device": cluster.devices[device].name},
            )
        )
    return [*computed, *sent]


def _before(rows: Mapping[str, np.ndarray]) -> dict[int, list[int]]:
    """For each operator the one before it on the slot of its device."""
    found: dict[int, list[int]] = {}
    last: dict[tuple[int, int], int] = {}
    for operator in np.lexsort((rows["finish"], rows["start"])).tolist():
        slot = int(rows["device"][operator]), int(rows["slot"][operator])
        if slot in last:
            found[operator] = [last[slot]]
        last[slot] = operator
    return found


def _wfformat(
    trace: Trace, rows: Mapping[str, np.ndarray], graph: DataflowGraph, cluster: Cluster
) -> dict[str, Any]:
    names = graph.operator_names
    tensors = [tensor.name for tensor in graph.tensors]
    specified = [
        {
            "name": name,
            "id": name,
            "parents": [names[parent] for parent in graph.predecessors[task]],
            "children": [names[child] for child in graph.successors[task]],
            "inputFiles": [tensors[tensor] for tensor in graph.reads[task]],
            "outputFiles": [tensors[tensor] for tensor in graph.writes[task]],
        }
        for task, name in enumerate(names)
    ]
    seconds = (rows["finish"] - rows["start"]).tolist()
    machines = [cluster.devices[device].name for device in rows["device"].tolist()]
    executed = [
        {"id": name, "runtimeInSeconds": seconds[task], "machines": [machines[task]]}
        for task, name in enumerate(names)
    ]
    sizes = [int(size) if size.is_integer() else size for size in graph.tensor_bytes.tolist()]
    files = [{"id": name, "sizeInBytes": size} for name, size in zip(tensors, sizes, strict=True)]
    return {
        "name": graph.name,
        "description": f"scheduled by {trace.meta.get('scheduler')} on {cluster.name}",
        "createdAt": _NO_DATE,
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": specified, "files": files},
            "execution": {
                "makespanInSeconds": trace.makespan,
                "executedAt": _NO_DATE,
                "tasks": executed,
                "machines": [{"nodeName": device.name} for device in cluster.devices],
            },
        },
    }
