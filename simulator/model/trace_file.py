"""Reading a trace's files: what is damaged, mistyped or impossible is refused before anyone uses it.

That tables point at what there is (jobs, operators, devices) is checked by
:meth:`simulator.model.trace.Trace.load` itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import MOST_SLOTS

MOST_SECONDS = 1e18
"""Times beyond are damage; sums of shorter ones cannot overflow."""


def read_description(path: Path, format_name: str) -> dict[str, Any]:
    """``trace.json`` without its format.

    Raises:
        InvalidInput: it is missing, damaged, of another format, or describes devices or memory
            spaces that cannot be.
    """
    try:
        meta = json.loads(path.read_bytes())
    except OSError:
        raise InvalidInput(f"{path.parent} is no trace: it has no trace.json") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged: {error}") from None
    if not isinstance(meta, dict) or meta.pop("format", None) != format_name:
        raise InvalidInput(f"{path} is not of format '{format_name}'")
    _check_description(meta, path)
    return meta


def read_table(path: Path, columns: Mapping[str, str]) -> dict[str, np.ndarray]:
    """A Parquet file with exactly these columns, none with a hole.

    Args:
        path: of the file.
        columns: names and NumPy types in order; ``U`` is text.

    Raises:
        InvalidInput: the file is missing or damaged, or has other columns, types or nulls.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        table.validate(full=True)
    except (OSError, MemoryError, ValueError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:300]
        raise InvalidInput(f"Cannot read {path}: {why}; was it truncated?") from None
    if table.column_names != list(columns):
        raise InvalidInput(
            f"{path} has columns {', '.join(table.column_names)[:300]}; expected {', '.join(columns)}"
        )
    found = {}
    for name, kind in columns.items():
        column = table.column(name)
        wanted = pa.string() if kind == "U" else pa.from_numpy_dtype(np.dtype(kind))
        if column.type != wanted:
            raise InvalidInput(f"{path}: column '{name}' is of type {column.type}, not {wanted}")
        if column.null_count:
            raise InvalidInput(f"{path}: column '{name}' has no value in some rows")
        found[name] = (
            np.array(column.to_pylist() or np.zeros(0, "U1"), dtype=str)
            if kind == "U"
            else column.to_numpy()
        )
    return found


def check_rows(tables: Mapping[str, Mapping[str, np.ndarray]], folder: Path) -> None:
    """Refuse rows that are not numbered as they stand, and times and sizes that cannot be.

    Raises:
        InvalidInput: names the file, the column and the row.
    """
    for name, column in (("executions", "execution"), ("jobs", "job")):
        values = tables[name][column]
        _refuse(folder, name, column, values, values != np.arange(len(values)))
    for name, columns in (
        ("executions", ("ready", "placed", "start", "finish")),
        ("transfers", ("requested", "start", "finish", "bytes")),
        ("jobs", ("arrival",)),
    ):
        for column in columns:
            values = tables[name][column]
            most = 2.0**63 if column == "bytes" else MOST_SECONDS
            _refuse(folder, name, column, values, ~(np.abs(values) <= most))
    for column in ("finish", "deadline"):  # infinite for what never comes
        values = tables["jobs"][column]
        _refuse(folder, "jobs", column, values, ~((values <= MOST_SECONDS) | (values == np.inf)))
        _refuse(folder, "jobs", column, values, values < tables["jobs"]["arrival"])
    finish, status = tables["jobs"]["finish"], tables["jobs"]["status"]
    _refuse(folder, "jobs", "finish", finish, (status != "queued") & (finish == np.inf))
    for name in ("executions", "transfers"):
        start, finish = tables[name]["start"], tables[name]["finish"]
        _refuse(folder, name, "finish", finish, finish < start)
    for column in ("task", "attempt"):
        values = tables["executions"][column]
        _refuse(folder, "executions", column, values, values < 0)
    size = tables["transfers"]["bytes"]
    _refuse(folder, "transfers", "bytes", size, size < 0)
    served = np.zeros(len(tables["jobs"]["job"]), dtype=bool)
    execution, job = tables["members"]["execution"], tables["members"]["job"]
    count = len(tables["executions"]["execution"])
    _refuse(folder, "members", "execution", execution, (execution < 0) | (execution >= count))
    served[job] = True
    led_by = tables["executions"]["job"][execution]
    leader = np.zeros(len(served), dtype=np.int64)
    leader[job] = led_by
    # A job is served by one other or by itself, in all of its executions.
    _refuse(folder, "members", "job", job, leader[job] != led_by)
    idle = (tables["jobs"]["status"] == "finished") & ~served
    _refuse(folder, "jobs", "status", tables["jobs"]["status"], idle)


def _refuse(folder: Path, name: str, column: str, values: np.ndarray, wrong: np.ndarray) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInput(
            f"{folder / name}.parquet: {column} {str(values[row])[:40]} in row {row} cannot be; was it "
            "damaged, or mixed with another trace's files?"
        )


def _check_description(meta: Mapping[str, Any], path: Path) -> None:
    texts = ("devices", "spaces", "channels")
    for key in texts:
        values = meta.get(key)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise InvalidInput(f"{path} has no list '{key}' of names; simulate the run again")
        if len({*values}) < len(values):
            raise InvalidInput(f"{path}: a name stands twice in '{key}'; simulate the run again")
    entries: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        ("slots", lambda value: _is_integer(value) and 1 <= value <= MOST_SLOTS),
        ("space_of", lambda value: _is_integer(value) and 0 <= value < len(meta["spaces"])),
        ("profiles", lambda value: value is None or isinstance(value, str)),
        *(
            (key, lambda value: value is None or _is_amount(value))
            for key in ("power_idle_w", "power_busy_w", "price_per_hour", "capacities_bytes")
        ),
        ("outages", lambda value: _is_outage(value, len(meta["devices"]))),
    )
    for key, is_right in entries:
        values = meta.get(key, [])
        if not isinstance(values, list):
            raise InvalidInput(f"{path} has no list '{key}'; simulate the run again")
        wrong = next((value for value in values if not is_right(value)), _ABSENT)
        if wrong is not _ABSENT:
            raise InvalidInput(f"{path}: {_shown(wrong)} cannot stand in '{key}'")
    horizon = meta.get("horizon_s")
    if horizon is not None and not _is_amount(horizon):
        raise InvalidInput(f"{path}: horizon_s cannot be {_shown(horizon)}")
    labels = meta.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        raise InvalidInput(f"{path}: 'labels' must give a text for each profile")


_ABSENT = object()


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= 2.0**100


def _is_outage(value: Any, devices: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and _is_integer(value[0])
        and 0 <= value[0] < devices
        and _is_amount(value[1])
        and (_is_amount(value[2]) or value[2] == math.inf)
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
