"""The measurement table: the only door between hardware and cost models.

A Parquet file or a DataFrame with these columns (``REQUIRED`` and ``OPTIONAL``):

==============  ===================  ==============================================================
device          string               profile name
kind, dtype     string               canonical operator, element type
inputs          list<list<int64>>    shapes, weights among them
outputs         list<list<int64>>    shapes
attributes      string (JSON)        stride, padding, ...; ``layouts`` where an input is not
                                     contiguous: for each input its dimensions, slowest first
seconds         double               the statistic used
source          string               what measured it
statistic       string               ``minimum``, ``p10`` or ``median``
spread          double               standard deviation of log seconds over the samples
repeats         int64                samples behind the row
cache           string               ``graph``, ``warm``, ``cold``
threads         int64                intra-op threads
host_seconds    double               host dispatch time
minimum_s, p10_s, median_s  double   the three statistics
half_a_s, half_b_s          double   the statistic over even and over odd processes (A/A)
architectures   list<string>         models in which the operator occurs; empty: a sampled shape
versions        string (JSON)        what it was measured with
==============  ===================  ==============================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simulator.errors import InvalidInput
from simulator.model.operator import ITEM_BYTES, Operator, TensorSpec
from simulator.support.atomic_io import replacing

AWAITED = "awaited"
"""The state of an operator that is launched and awaited (:mod:`calibration.timing`)."""
_SHAPES = pa.list_(pa.list_(pa.int64()))
FEATURES = {
    "kind": pa.string(),
    "dtype": pa.string(),
    "inputs": _SHAPES,
    "outputs": _SHAPES,
    "attributes": pa.string(),
}
"""What a prediction needs."""
REQUIRED = {"device": pa.string(), **FEATURES, "seconds": pa.float64(), "source": pa.string()}
OPTIONAL = {
    "statistic": pa.string(),
    "spread": pa.float64(),
    "repeats": pa.int64(),
    "cache": pa.string(),
    "threads": pa.int64(),
    "host_seconds": pa.float64(),
    "minimum_s": pa.float64(),
    "p10_s": pa.float64(),
    "median_s": pa.float64(),
    "half_a_s": pa.float64(),
    "half_b_s": pa.float64(),
    "architectures": pa.list_(pa.string()),
    "versions": pa.string(),
}
Measurements = pd.DataFrame | str | Path


def load(measurements: Measurements, *, timed: bool = True) -> pd.DataFrame:
    """A validated copy of a table, from a DataFrame or a Parquet file.

    Args:
        measurements: the table or its path.
        timed: whether ``seconds`` (and ``device``, ``source``) must be there; False for predicting.

    Raises:
        InvalidInput: the file is missing, truncated or not Parquet; a column is missing or unknown;
            a time is NaN, infinite or not above zero; a shape, element type or attribute is no such.
    """
    where = "The measurement table"
    if not isinstance(measurements, pd.DataFrame):
        path = Path(measurements)
        where = str(path)
        try:
            frame = pq.read_table(path).to_pandas()
        except FileNotFoundError:
            raise InvalidInput(f"No measurement table at {path}") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(
                f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}); was it truncated?"
            ) from None
    else:
        frame = measurements.copy()
    needed = REQUIRED if timed else FEATURES
    for column in needed:
        if column not in frame.columns:
            raise InvalidInput(f"{where} lacks the column '{column}'")
    for column in frame.columns:
        if column not in REQUIRED and column not in OPTIONAL:
            known = ", ".join([*REQUIRED, *OPTIONAL])
            raise InvalidInput(f"{where} has an unknown column '{column}'; known: {known}")
    frame = frame.reset_index(drop=True)
    for column in ("inputs", "outputs"):
        frame[column] = [_shapes(v, column, row, where) for row, v in enumerate(frame[column])]
    _check_values(frame, where, timed)
    return frame


def _shapes(value: Any, column: str, row: int, where: str) -> tuple[tuple[int, ...], ...]:
    try:
        shapes = tuple(tuple(int(n) for n in shape) for shape in value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{where}: row {row} has no list of shapes in '{column}'") from None
    if any(n < 0 for shape in shapes for n in shape):
        raise InvalidInput(f"{where}: row {row} has a negative dimension in '{column}'")
    return shapes


def _check_values(frame: pd.DataFrame, where: str, timed: bool) -> None:
    def first(bad: Iterable[Any]) -> int | None:
        rows = np.flatnonzero(np.asarray(bad, dtype=bool))
        return int(rows[0]) if len(rows) else None

    if timed:
        seconds = pd.to_numeric(frame["seconds"], errors="coerce")
        row = first(~np.isfinite(seconds) | (seconds <= 0))
        if row is not None:
            kind, value = frame["kind"][row], frame["seconds"][row]
            raise InvalidInput(
                f"{where}: row {row} ({kind}) has seconds = {value}; a measured time is finite and "
                "above zero. Drop the row or measure it again"
            )
        frame["seconds"] = seconds.astype(np.float64)
    row = first([not isinstance(k, str) or not k for k in frame["kind"]])
    if row is not None:
        raise InvalidInput(f"{where}: row {row} has no operator kind")
    row = first(~frame["dtype"].isin(list(ITEM_BYTES)))
    if row is not None:
        raise InvalidInput(
            f"{where}: row {row} has the unknown element type '{frame['dtype'][row]}'; known: "
            f"{', '.join(ITEM_BYTES)}"
        )
    for text in frame["attributes"].unique():
        try:
            good = isinstance(json.loads(text), dict)
        except (TypeError, ValueError):
            good = False
        if not good:
            row = first(frame["attributes"] == text)
            raise InvalidInput(
                f"{where}: row {row} has attributes that are no JSON object: {text!r}"
            )


def write(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table as Parquet, whole or not at all.

    Raises:
        InvalidInput: it is not a valid table (see :func:`load`).
    """
    frame = load(frame)
    types = {**REQUIRED, **OPTIONAL}
    schema = pa.schema([(column, types[column]) for column in types if column in frame.columns])
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(None), temporary, compression="zstd")


# -- rows from operators ------------------------------------------------------------------------------


def layout_of(spec: TensorSpec) -> list[int] | None:
    """Dimensions from slowest to fastest, or None if the tensor is contiguous."""
    if spec.strides is None:
        return None
    strides = spec.strides
    order = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
    expanded = [d for d in order if strides[d] == 0 and spec.shape[d] > 1]
    dense = [d for d in order if d not in expanded]
    expected, contiguous = 1, not expanded and dense == list(range(len(strides)))
    for d in reversed(dense):
        contiguous &= spec.shape[d] == 1 or strides[d] == expected
        expected *= spec.shape[d]
    # A dimension of stride 0 is broadcast; -1 - d tells it apart.
    return None if contiguous else [-1 - d if d in expanded else d for d in order]


def dtype_of(operator: Operator) -> str:
    """The element type that names an operator: that of its first floating-point tensor."""
    specs = (*operator.outputs, *operator.inputs)
    floating = [spec.dtype for spec in specs if "float" in spec.dtype]
    return floating[0] if floating else (specs[-1].dtype if specs else "float32")


def row_of(operator: Operator) -> dict[str, Any]:
    """The feature columns of one operator."""
    attributes = dict(operator.attributes)
    layouts = [layout_of(spec) for spec in operator.inputs]
    if any(layout is not None for layout in layouts):
        attributes["layouts"] = layouts
    return {
        "kind": operator.kind,
        "dtype": dtype_of(operator),
        "inputs": tuple(spec.shape for spec in operator.inputs),
        "outputs": tuple(spec.shape for spec in operator.outputs),
        "attributes": json.dumps(attributes, sort_keys=True, separators=(",", ":")),
    }


def rows_of(operators: Sequence[Operator]) -> pd.DataFrame:
    """A table without seconds, to predict from: one row per operator, in order."""
    return pd.DataFrame([row_of(operator) for operator in operators], columns=list(FEATURES))


def telling(rows: pd.DataFrame, cache: str | None) -> np.ndarray:
    """bool[rows]: which rows a model that prices a cache state is fitted to.

    Kernels in other states of the caches take about as long, and tell of it. What an operator takes that is
    launched and awaited has both in it: neither tells of the other.

    Args:
        rows: a valid table.
        cache: the state to be priced; None where the table has none.
    """
    if cache is None or "cache" not in rows:
        return np.ones(len(rows), dtype=bool)
    found: np.ndarray = (rows["cache"] == AWAITED).to_numpy() == (cache == AWAITED)
    return found


def identities(rows: pd.DataFrame) -> np.ndarray:
    """int64[rows]: equal numbers for rows that a cost model cannot tell apart, cache state aside."""
    known: dict[tuple[Any, ...], int] = {}
    columns = (rows[column] for column in FEATURES)
    return np.array(
        [known.setdefault(key, len(known)) for key in zip(*columns, strict=True)], dtype=np.int64
    )
