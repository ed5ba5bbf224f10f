"""Samples on their way to the disk: kept in memory for seconds, then written as a part."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from calibration.folder import RAW_SCHEMA, write_atomically

PART_SECONDS = 10.0
"""At most this much measuring is lost when a process is killed."""


class Recorder:
    """Collects samples and writes them as parts, at most ``interval`` seconds apart."""

    def __init__(self, folder: Path, process: int, interval: float = PART_SECONDS) -> None:
        self.folder = folder
        self.process = process
        self.interval = interval
        self.rows: list[tuple[int, int, int, str, float, float, float]] = []
        self.parts = 0
        self.taken = 0
        self._written = time.monotonic()

    def add(self, operator: int, round_: int, cache: str, seconds: float, host: float) -> None:
        """Keep one sample."""
        self.taken += 1
        self.rows.append((operator, self.process, round_, cache, seconds, host, time.time()))

    def flush(self, force: bool = False) -> bool:
        """Write a part if one is due; returns whether it did.

        Raises:
            HetsimError: the part cannot be written; its samples are kept for another attempt.
        """
        if not self.rows or not (force or time.monotonic() - self._written > self.interval):
            return False
        columns = [list(column) for column in zip(*self.rows, strict=True)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, schema=RAW_SCHEMA), sink, compression="zstd")
        path = self.folder / f"part-{self.process:04d}-{self.parts:04d}.parquet"
        write_atomically(path, sink.getvalue().to_pybytes())
        self.rows.clear()
        self.parts += 1
        self._written = time.monotonic()
        return True
