"""Loads of nodes as CSV: a line a sample, ``time_s`` and a column for each node.

A time that is not after the one above it begins another run.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import InvalidInput
from simulator.support.atomic_io import write_whole
from simulator.support.csv_text import csv_text

SAME = 1e-6
"""Steps of time that differ by less, relatively, are equal."""


@dataclass(frozen=True)
class LoadRecord:
    """Loads of some runs.

    Attributes:
        sample: seconds between two samples.
        nodes: names.
        runs: of each float64[samples, nodes]; the first sample is told at ``sample``.
    """

    sample: float
    nodes: tuple[str, ...]
    runs: Sequence[np.ndarray]


def write_loads(path: str | Path, record: LoadRecord) -> Path:
    """Write a record, whole or not at all; returns the path.

    Raises:
        InvalidInput: the file cannot be written.
    """
    rows = (
        [f"{number * record.sample:.9g}", *(f"{load:.9g}" for load in row)]
        for run in record.runs
        for number, row in enumerate(run.tolist(), 1)
    )
    return write_whole(path, csv_text(["time_s", *record.nodes], rows).encode())


def read_loads(path: str | Path) -> LoadRecord:
    """Read a record.

    Raises:
        InvalidInput: the file cannot be read, has no nodes, or a line is no sample.
    """
    path = Path(path).expanduser()
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"Cannot read loads from {path}: {error}") from None
    if not lines or lines[0][:1] != ["time_s"] or len(lines[0]) < 2:
        raise InvalidInput(
            f"{path} must begin with a line that names its columns: time_s, then a node each"
        )
    names = lines[0][1:]
    if len(set(names)) < len(names):
        raise InvalidInput(f"{path} names a node twice")
    rows = [_row(values, len(names), path, line) for line, values in enumerate(lines[1:], 2)]
    if len(rows) < 2:
        raise InvalidInput(f"{path} has {len(rows)} samples; a record has at least 2")
    sample = rows[1][0] - rows[0][0]
    runs: list[list[list[float]]] = [[rows[0][1]]]
    for line, ((before, _), (time, loads)) in enumerate(itertools.pairwise(rows), 3):
        if time <= before:
            runs.append([loads])
            continue
        if not math.isclose(time - before, sample, rel_tol=SAME * max(1.0, time / abs(sample))):
            raise InvalidInput(
                f"{path}, line {line}: {time - before:g} s after the sample above it, others "
                f"{sample:g} s; samples must be evenly spaced"
            )
        runs[-1].append(loads)
    if sample <= 0:
        raise InvalidInput(f"{path}, line 3: time_s does not rise")
    return LoadRecord(sample, tuple(names), [np.array(run) for run in runs])


def _row(values: Sequence[str], nodes: int, path: Path, line: int) -> tuple[float, list[float]]:
    try:
        time, *loads = map(float, values)
    except ValueError:
        raise InvalidInput(f"{path}, line {line}: a sample consists of numbers") from None
    if len(loads) != nodes or not all(map(math.isfinite, (time, *loads))):
        raise InvalidInput(
            f"{path}, line {line}: needs a time and {nodes} finite loads, has {len(loads)} loads"
        )
    return time, loads
