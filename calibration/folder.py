"""The folder of a measuring run, as it lies on the disk.

::

    operators.json           what is measured (see calibration.samples)
    plan.json                calibration.plan.MeasurePlan: must agree between calls
    process-0003.json        one per process: versions, cores, clocks, allocator, peaks, transfers
    corun.json               calibration.interference.summary, where it was measured
    reuse.json               calibration.reuse.summary, where it was measured
    part-0003-0012.parquet   samples in the order in which they were taken:
        operator int32       position in operators.json; -1 is the reference operator
        process, round int32
        cache string         graph, warm, cold
        seconds, host_seconds double
        timestamp double     Unix time

Files appear whole. A folder grows: operators are appended, parts and processes added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibration.plan import MeasurePlan
from calibration.samples import OperatorSample, distinct, read_samples, write_samples
from simulator.errors import HetsimError, InvalidInput
from simulator.support.atomic_io import replacing
from simulator.support.environment_diff import differences

REFERENCE = -1
CORUN_FILE, REUSE_FILE = "corun.json", "reuse.json"
RAW_SCHEMA = pa.schema(
    [
        ("operator", pa.int32()),
        ("process", pa.int32()),
        ("round", pa.int32()),
        ("cache", pa.string()),
        ("seconds", pa.float64()),
        ("host_seconds", pa.float64()),
        ("timestamp", pa.float64()),
    ]
)
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet")
_MEASURE_AGAIN = "Delete it and measure again; the samples beside it are kept"
VISITED_FILE = "visited.json"
"""Positions of the operators that are measured now, where these are not all of the folder's."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all.

    Raises:
        HetsimError: it cannot be written, because the disk is full, say.
    """
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise HetsimError(
            f"Cannot write into {path.parent}: {error.strerror}; what is there stays. Mend that and "
            "run the same command again"
        ) from None


def write_json(path: Path, document: Any) -> None:
    """Write JSON that is there whole or not at all."""
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def plan_of(folder: str | Path) -> MeasurePlan:
    """What a folder was measured with.

    Raises:
        InvalidInput: it is not a folder of raw samples, or of a release that this one cannot read.
    """
    path = Path(folder) / "plan.json"
    if not path.exists():
        raise InvalidInput(f"{folder} holds no measuring plan; measure into it first")
    document = read_record(path, "a measuring plan", "measure into another folder")
    try:
        return MeasurePlan.from_json(document)
    except InvalidInput as error:
        raise InvalidInput(
            f"{path} is not a measuring plan: {error}; measure into another folder"
        ) from None


def prepare_folder(
    folder: Path, plan: MeasurePlan, operators: Sequence[OperatorSample]
) -> list[OperatorSample]:
    """Create the folder, or check that it was made for the same plan; returns all operators that it now has.

    Those that it has not yet are appended to its own: positions keep their meaning.

    Raises:
        InvalidInput: it was measured with another plan.
        HetsimError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HetsimError(f"Cannot make the folder {folder}: {error.strerror}") from None
    path = folder / "plan.json"
    operators = distinct(operators)
    if not path.exists():
        write_samples(folder / "operators.json", operators)
        write_json(path, plan.to_json())
        return operators
    old = plan_of(folder).to_json()
    for key, value in plan.to_json().items():
        if old[key] != value:
            raise InvalidInput(
                f"{folder} was measured with {key}={old[key]!r}, not {value!r}; choose another folder"
            )
    begun = read_samples(folder / "operators.json")
    known = {sample.identity for sample in begun}
    more = [sample for sample in operators if sample.identity not in known]
    if more:
        write_samples(folder / "operators.json", [*begun, *more])
    return [*begun, *more]


def refuse_another_machine(folder: Path, here: Mapping[str, str]) -> None:
    """Samples of two processors, or of two releases of torch, would become one table's.

    Args:
        folder: of the run; nothing is refused where nothing was measured.
        here: what a process would measure with now (:func:`calibration.environment.described`).

    Raises:
        InvalidInput: it was measured with something else.
    """
    for record in process_records(folder):
        processor = record.get("gpu", record.get("processor"))
        if found := differences({"processor": processor, **record.get("versions", {})}, here):
            raise InvalidInput(
                f"{folder} was measured with {'; '.join(found)}: such times do not belong into one table. Go on "
                "where it was measured, or choose another folder"
            )


def _parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("part-*.parquet") if _PART.fullmatch(path.name))


def read_raw(folder: str | Path) -> pa.Table:
    """All samples of a folder, in order of process and part.

    Raises:
        InvalidInput: no samples, or a part that cannot be read or holds something else.
    """
    folder = Path(folder)
    parts = _parts(folder)
    if not parts:
        raise InvalidInput(f"{folder} holds no samples; run the measuring step into it first")
    tables = []
    for path in parts:
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(
                f"{path} cannot be read ({error}); delete it and measure again"
            ) from None
        lacking = [name for name in RAW_SCHEMA.names if name not in table.column_names]
        if lacking:
            raise InvalidInput(
                f"{path} lacks the column '{lacking[0]}', so it holds no samples; move it elsewhere"
            )
        tables.append(table.select(RAW_SCHEMA.names).cast(RAW_SCHEMA))
    return pa.concat_tables(tables)


def visits(folder: Path, operators: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each operator was measured, and what one of its calls took.

    Returns:
        int64[operators], its (process, round) pairs; and float64[operators], the mean seconds of a call. Both are 0
        where it was not measured.

    Raises:
        InvalidInput: as :func:`read_raw`, but nothing measured yet is no error.
    """
    if not _parts(folder):
        return np.zeros(operators, dtype=np.int64), np.zeros(operators)
    raw = read_raw(folder)
    position, seconds = raw["operator"].to_numpy(), raw["seconds"].to_numpy()
    mine = position >= 0
    keys = np.stack([raw[c].to_numpy()[mine] for c in ("operator", "process", "round")], axis=1)
    count = np.bincount(np.unique(keys, axis=0)[:, 0], minlength=operators)
    calls = np.bincount(position[mine], minlength=operators)
    whole = np.bincount(position[mine], seconds[mine], minlength=operators)
    return count.astype(np.int64), whole / np.maximum(calls, 1)


def write_visited(folder: Path, positions: Sequence[int] | None) -> None:
    """Note which of a folder's operators the next processes visit; None is all of them.

    Raises:
        HetsimError: it cannot be written.
    """
    if positions is None:
        (folder / VISITED_FILE).unlink(missing_ok=True)
    else:
        write_json(folder / VISITED_FILE, [int(position) for position in positions])


def visited(folder: Path, operators: int) -> np.ndarray:
    """int64[n]: the positions that :func:`write_visited` noted, of so many operators."""
    path = folder / VISITED_FILE
    found = range(operators) if not path.exists() else read_record(path, kind=list)
    if not all(isinstance(position, int) and 0 <= position < operators for position in found):
        raise InvalidInput(f"{path} names operators that the folder has not; {_MEASURE_AGAIN}")
    return np.array(list(found), dtype=np.int64)


def process_records(folder: str | Path) -> list[dict[str, Any]]:
    """The records that the processes wrote about themselves, in order.

    Raises:
        InvalidInput: one of these files is damaged.
    """
    return [read_record(path) for path in sorted(Path(folder).glob("process-*.json"))]


def read_record(
    path: Path, what: str = "such a record", way_out: str = _MEASURE_AGAIN, kind: type = dict
) -> Any:
    """The JSON of a file in a folder of raw samples.

    Args:
        path: of the file.
        what: it is meant to be.
        way_out: what to do if it is damaged.
        kind: what it holds.

    Raises:
        InvalidInput: it cannot be read, or holds something else.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON ({error}); was it truncated? {way_out}") from None
    if not isinstance(document, kind):
        raise InvalidInput(f"{path} is not {what}; {way_out}")
    return document
