"""Results as tables: one row a run or a cell.

Columns: ``cell`` (hash of what decides the result), ``status`` (done, failed), ``error``, ``stale`` (what
changed since, empty of what is up to date); labels
(``model``, ``batch``, ``cluster``, ``scheduler``, ``workload``, ``profiles``); settings
(``movement``, ``contention``, ``noise``, ``memory``, ``decision_cost``, ``cost_model``, ``seed_workload``, ``seed_noise``,
``seed_search``); figures in seconds (``makespan_s`` with its 95% interval ``makespan_low_s`` and
``makespan_high_s``, ``bound_s`` (``binding_bound`` says which of them), ``critical_path_s``, ``best_device_s``, flow times ``mean_flow_s``,
``p50_flow_s``, ``p95_flow_s``, ``p99_flow_s``), ratios (``gap_to_bound``, ``slr``, ``speedup``, ``efficiency``), counts of jobs, ``graph_width``
(the most operators at one distance from the sources; of a single job),
``energy_j`` and ``cost`` (empty where unknown) and shares
(``utilisation``, ``extrapolated_share``); ``interval_without``, the profiles whose errors nobody knows, which the
interval leaves out; where graphs were drawn, ``family`` and each of its parameters that some row has
(``family_n``, ``family_ccr``, ...); where some row is of training steps, their figures (:mod:`simulator.analysis.training_metrics`:
``iteration_s``, ``update_interval_s``, ``micro_batches``, ``micro_batches_per_s``, ``samples_per_s``, ``bubble``, ``communication_s``,
``exposed_communication_s``, ``peak_memory_bytes``); ``decision_s`` and ``wall_s`` of the machine that simulated;
``compared``, how devices of different labels compare; ``validity``, in which world the devices were validated, with ``unvalidated`` where they were not (:mod:`experiments.runs.validity`);
``draws``, the makespans of the draws, paired between the schedulers of one setting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runs import atomic
from experiments.runs.configs import cost_model_text, decision_cost_text, memory_text, noise_text
from scenarios.family_config import FamilyConfig
from simulator.analysis.training_metrics import TrainingMetrics
from simulator.errors import InvalidInput
from simulator.support.csv_text import csv_text

# pandas and pyarrow are imported where they are used: a sweep's workers need neither.
if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

COLUMNS = {
    "cell": "string",
    "status": "string",
    "error": "string",
    "stale": "string",
    "model": "string",
    "batch": "int64",
    "cluster": "string",
    "scheduler": "string",
    "partition": "string",
    "workload": "string",
    "movement": "string",
    "contention": "string",
    "noise": "string",
    "memory": "string",
    "decision_cost": "string",
    "cost_model": "string",
    "seed_workload": "int64",
    "seed_noise": "int64",
    "seed_search": "int64",
    "makespan_s": "double",
    "makespan_low_s": "double",
    "makespan_high_s": "double",
    "bound_s": "double",
    "binding_bound": "string",
    "gap_to_bound": "double",
    "critical_path_s": "double",
    "graph_width": "double",
    "best_device": "string",
    "best_device_s": "double",
    "slr": "double",
    "speedup": "double",
    "efficiency": "double",
    "mean_flow_s": "double",
    "p50_flow_s": "double",
    "p95_flow_s": "double",
    "p99_flow_s": "double",
    "jobs_finished": "double",
    "jobs_failed": "double",
    "jobs_queued": "double",
    "energy_j": "double",
    "cost": "double",
    "transferred_bytes": "double",
    "utilisation": "double",
    "extrapolated_share": "double",
    "profiles": "string",
    "interval_without": "string",
    "decision_s": "double",
    "wall_s": "double",
    "compared": "string",
    "validity": "string",
    "unvalidated": "bool",
    "draws": "list<double>",
}
"""Names and Arrow types, in the order of the files."""

_ARROW = {"int": "int64", "float": "double", "bool": "bool"}
FAMILY_COLUMNS = {"family": "string"} | {
    f"family_{entry.name}": _ARROW.get(str(entry.type).partition(" ")[0], "string")
    for entry in fields(FamilyConfig)
    if entry.name not in ("name", "description", "source")
}
"""Columns of sweeps that draw graphs."""
TRAINING_COLUMNS = {
    name: "double" for name in TrainingMetrics.__annotations__ if name != "training_devices"
}
"""Columns of training steps."""
FURTHER_COLUMNS = FAMILY_COLUMNS | TRAINING_COLUMNS
"""Columns that are there where some row has a value."""


def row_of(document: Mapping[str, Any], stale: str = "") -> dict[str, Any]:
    """The row of a ``result.json``, of a run or of a cell, finished or failed.

    Args:
        document: the file's content.
        stale: what changed since it was made.
    """
    config = document["config"]
    wallclock = document.get("wallclock", {})
    planned = document.get("plan", {}).get("planning_s")
    row: dict[str, Any] = {
        "cell": document["hash"],
        "status": document["status"],
        "error": document.get("error", ""),
        "stale": stale,
        **document["labels"],
        "movement": config["simulation"]["movement"],
        "contention": config["simulation"]["contention"],
        "noise": noise_text(config["simulation"]),
        "memory": memory_text(config["simulation"]),
        "decision_cost": decision_cost_text(config["simulation"]),
        # An instance brings its times along.
        "cost_model": cost_model_text(config.get("cost_model", {"name": "given"})),
        **{f"seed_{key}": seed for key, seed in config["seed"].items()},
        **document.get("metrics", {}),
        "interval_without": ", ".join(document.get("metrics", {}).get("interval_without", [])),
        "partition": config.get("partition", {}).get("name", "none"),
        # Planning a partition is deciding, too.
        "decision_s": wallclock.get("deciding_seconds")
        if planned is None
        else planned + wallclock.get("deciding_seconds", 0.0),
        "compared": document.get("compared", ""),
        "validity": document.get("validity", {}).get("line", ""),
        "unvalidated": not document.get("validity", {}).get("validated", True),
        "draws": document.get("draws"),
    }
    family = config.get("family", {})
    row |= {"family": family.get("name")} | {
        f"family_{key}": ":".join(map(str, value)) if isinstance(value, list) else value
        for key, value in family.items()
        if key != "name"
    }
    if wallclock:
        parts = ("prepare_seconds", "simulate_seconds", "draws_seconds")
        row["wall_s"] = sum(wallclock[part] for part in parts)
    return {name: row.get(name) for name in (*COLUMNS, *FURTHER_COLUMNS)}


AXES = {
    "model": ("model", "instance", "family"),
    "cluster": ("cluster",),
    "workload": ("workload",),
    "scheduler": ("scheduler",),
}
"""Labels, and the axes of a sweep whose files say what the label is."""


def told_apart(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cells of a sweep whose labels differ wherever their files do.

    Two instances, clusters or schedulers may hold the same name; then the label also says which was chosen:
    ``box(cluster=a)``.

    Args:
        documents: of the cells, each with its ``labels`` and ``choices``.
    """
    found = [{**document, "labels": dict(document["labels"])} for document in documents]
    for label, axes in AXES.items():
        for axis in axes:
            chosen: dict[str, dict[str, list[dict[str, Any]]]] = {}
            for document in found:
                choice = document.get("choices", {}).get(axis)
                if choice is not None and label in document["labels"]:
                    by_choice = chosen.setdefault(str(document["labels"][label]), {})
                    by_choice.setdefault(choice, []).append(document)
            for name, by_choice in chosen.items():
                if len(by_choice) > 1:
                    shown = _short(by_choice)
                    for choice, alike in by_choice.items():
                        for document in alike:
                            document["labels"][label] = with_option(name, axis, shown[choice])
    return found


def _short(choices: Iterable[str]) -> dict[str, str]:
    """What was chosen as tables show it: of paths the file's name where that tells them apart."""
    plain = {choice: choice.strip("'\"") for choice in choices}
    stems = {choice: Path(text.rpartition(":")[0] or text).stem for choice, text in plain.items()}
    return stems if len(set(stems.values())) == len(stems) else plain


def with_option(label: str, key: str, value: str) -> str:
    """``box(count=2, cluster=a)``: one more thing that tells a label from others."""
    if label.endswith(")") and "(" in label:
        return f"{label[:-1]}, {key}={value})"
    return f"{label}({key}={value})"


def write_results(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``results.parquet`` and ``results.csv`` (which leaves the draws out)."""
    import pyarrow.parquet as pq

    table = table_of(rows)
    with atomic.replacing(folder / "results.parquet") as temporary:
        pq.write_table(table, temporary)
    frame = table.drop_columns(["draws"]).to_pandas()
    atomic.write_text(
        folder / "results.csv", csv_text(frame.columns, frame.itertuples(index=False))
    )


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the columns above, further ones only where some row has a value."""
    import pyarrow as pa

    types = {"list<double>": pa.list_(pa.float64()), "double": pa.float64()}
    further = {
        name: kind
        for name, kind in FURTHER_COLUMNS.items()
        if any(row.get(name) is not None for row in rows)
    }
    schema = [(name, types.get(kind, kind)) for name, kind in (COLUMNS | further).items()]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(schema))


def load_results(path: str | Path) -> pd.DataFrame:
    """Whatever runs and sweeps left: one row each, in the columns of this module.

    Args:
        path: a run's folder, a sweep's folder, or a folder that holds some of them at any depth
            (``outputs``); the column ``folder`` says where a row comes from.

    Raises:
        InvalidInput: there is nothing of that kind, or a file of it is damaged.
    """
    import pandas as pd

    root = Path(path)
    if not root.is_dir():
        raise InvalidInput(f"There is no folder {root} to read results from")
    frames = [
        frame.assign(folder=str(folder))
        for folder in _result_folders(root)
        if len(frame := _read_folder(folder))
    ]
    if not frames:
        raise InvalidInput(
            f"{root} holds no results; runs have a result.json, sweeps a results.parquet"
        )
    return pd.concat(frames, ignore_index=True)


def _result_folders(root: Path) -> Iterable[Path]:
    """Runs and sweeps at or below ``root``; cells within a sweep belong to the sweep."""
    if (root / "results.parquet").is_file() or (root / "result.json").is_file():
        yield root
        return
    for child in sorted(root.iterdir()):
        if child.is_dir() and not child.is_symlink():
            yield from _result_folders(child)


def _read_folder(folder: Path) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "results.parquet"
    if path.is_file():
        try:
            frame: pd.DataFrame = pq.read_table(path).to_pandas()
        except (OSError, pa.ArrowInvalid) as error:
            raise InvalidInput(f"Cannot read {path}: {error}; was it truncated?") from None
        return frame
    document = read_document(folder / "result.json")
    # A result of another command, such as validate, has a form of its own.
    rows = [row_of(document)] if {"labels", "config", "hash"} <= document.keys() else []
    return table_of(rows).to_pandas()


def read_document(path: Path) -> dict[str, Any]:
    """A ``result.json``.

    Raises:
        InvalidInput: it is missing or damaged.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{path} is damaged: it holds no object")
    return document
