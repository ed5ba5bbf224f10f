"""Traces of many runs in two small files: ``traces.parquet`` and ``runs.parquet``.

A row of ``traces.parquet`` is an execution; start and finish are whole tenths of nanoseconds, and how long before
its start a task was ready and was placed whole microseconds. ``runs.parquet`` has what a run's
executions have in common, as JSON: its jobs, its transfers (few or none within one memory space) and
its ``meta`` without the graphs, which whoever reads the files knows.

What does not fit, such as lost executions or batches, is refused: validation has neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs import atomic
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.graph_record import GraphRecord
from simulator.model.trace import COLUMNS, Table, Trace, execution_table

TICK, MICROSECOND = 1e-10, 1e-6
_INTEGERS = {
    "run": "int32",
    "job": "int32",
    "operator": "int32",
    "device": "int16",
    "slot": "int16",
    "start_100ps": "int64",
    "finish_100ps": "int64",
    "ready_before_us": "int64",
    "placed_before_us": "int64",
}


def write_traces(folder: Path, traces: Mapping[str, Trace]) -> None:
    """Write traces by name, both files whole or not at all.

    Raises:
        InvalidInput: a trace has lost executions or batches.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[np.ndarray]] = {name: [] for name in _INTEGERS}
    runs = []
    for number, (name, trace) in enumerate(traces.items()):
        for column, values in _columns(trace, name).items():
            columns[column].append(values)
        columns["run"].append(np.full(len(trace.executions["job"]), number))
        runs.append({"name": name, "description": json.dumps(_described(trace), sort_keys=True)})
    table = pa.table(
        {
            name: np.concatenate([np.zeros(0, np.int64), *parts]).astype(_INTEGERS[name])
            for name, parts in columns.items()
        }
    )
    times = [name for name in _INTEGERS if name.endswith(("_100ps", "_us"))]
    with atomic.replacing(folder / "traces.parquet") as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=19,
            use_dictionary=[name for name in _INTEGERS if name not in times],
            column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED"),
        )
    with atomic.replacing(folder / "runs.parquet") as temporary:
        schema = pa.schema([("name", pa.string()), ("description", pa.string())])
        pq.write_table(pa.Table.from_pylist(runs, schema), temporary, compression="zstd")


def read_traces(folder: Path, graphs: Mapping[str, Sequence[DataflowGraph]]) -> dict[str, Trace]:
    """What :func:`write_traces` wrote.

    Args:
        folder: with the two files.
        graphs: for each trace that is wanted, by name, the graphs of its jobs.

    Raises:
        InvalidInput: a file is missing or damaged, or lacks a trace.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(folder / "traces.parquet")
        runs = pq.read_table(folder / "runs.parquet").to_pylist()
        columns = {name: table[name].to_numpy().astype(np.int64) for name in _INTEGERS}
        described = {run["name"]: (i, json.loads(run["description"])) for i, run in enumerate(runs)}
    except (OSError, pa.ArrowInvalid, KeyError, ValueError) as error:
        raise InvalidInput(f"Cannot read the traces in {folder}: {error}") from None
    ends = np.searchsorted(columns["run"], np.arange(len(runs) + 1))
    found = {}
    for name, of_jobs in graphs.items():
        if name not in described:
            raise InvalidInput(f"{folder} has no trace '{name}'")
        number, description = described[name]
        mine = slice(ends[number], ends[number + 1])
        try:
            found[name] = _restored(
                {key: values[mine] for key, values in columns.items()}, description, of_jobs
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"The trace '{name}' in {folder} does not fit its graph: {error}"
            ) from None
    return found


def _columns(trace: Trace, name: str) -> Table:
    rows = trace.executions
    if len(trace.members["job"]) != len(rows["job"]) or (rows["status"] != "finished").any():
        raise InvalidInput(f"The trace '{name}' has batches or lost executions; keep it whole")
    start = np.rint(rows["start"] / TICK)
    return {
        "job": rows["job"],
        "operator": rows["operator"],
        "device": rows["device"],
        "slot": rows["slot"],
        "start_100ps": start,
        "finish_100ps": np.rint(rows["finish"] / TICK),
        # Rounded down: nothing may be ready after its start.
        "ready_before_us": np.floor((rows["start"] - rows["ready"]) / MICROSECOND).clip(0),
        "placed_before_us": np.floor((rows["start"] - rows["placed"]) / MICROSECOND).clip(0),
    }


def _described(trace: Trace) -> dict[str, Any]:
    meta = {key: value for key, value in trace.meta.items() if key != "graphs"}
    return {
        "meta": meta,
        "jobs": {key: _listed(values) for key, values in trace.jobs.items()},
        "transfers": {key: _listed(values) for key, values in trace.transfers.items()},
    }


def _listed(values: np.ndarray) -> list[Any]:
    # Infinite deadlines: JSON has no number for them.
    return [
        None if isinstance(value, float) and not np.isfinite(value) else value
        for value in values.tolist()
    ]


def _restored(rows: Table, described: Mapping[str, Any], graphs: Sequence[DataflowGraph]) -> Trace:
    def table(name: str) -> Table:
        return {
            key: np.array(
                [np.inf if v is None else v for v in described[name][key]],
                dtype=str if kind == "U" else kind,
            )
            for key, kind in COLUMNS[name].items()
        }

    jobs = table("jobs")
    different = list(dict.fromkeys(graphs))
    if len(jobs["job"]) != len(graphs):
        raise ValueError(f"{len(jobs['job'])} jobs of {len(graphs)} graphs")
    counts = np.array([len(graph) for graph in graphs])
    if (rows["operator"] >= counts[rows["job"]]).any() or len(rows["job"]) != counts.sum():
        raise ValueError(f"{len(rows['job'])} executions of {counts.sum()} operators")
    first = np.concatenate([[0], np.cumsum(counts)])
    start = rows["start_100ps"] * TICK
    executions = execution_table(
        first[rows["job"]] + rows["operator"],
        rows["job"],
        rows["operator"],
        rows["device"],
        rows["slot"],
        start - rows["ready_before_us"] * MICROSECOND,
        start - rows["placed_before_us"] * MICROSECOND,
        start,
        rows["finish_100ps"] * TICK,
    )
    members = {"execution": executions["execution"], "job": executions["job"]}
    meta = {**described["meta"], "graphs": [GraphRecord(graph) for graph in different]}
    return Trace(executions, members, jobs, table("transfers"), meta)
