"""Values in files that people wrote: numbers checked, anything shown in short."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.errors import InvalidInput

MOST = 1e24
"""Larger amounts of work or data are taken for errors."""
MOST_BYTES = 2**30
"""Of one file, unpacked; more are taken for an error."""
EQUAL_WORK = "each is taken to have work 1"
EQUAL_DATA = "they take equal times where family.ccr is given, and none without it"
"""What stands in for sizes that a file does not have, in words."""


def file_bytes(path: Path) -> bytes:
    """The content of a file, unpacked where it is gzipped.

    Raises:
        InvalidInput: it cannot be read or unpacked, or is too large.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"{path} cannot be unpacked ({error}); was it truncated?") from None
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"{path} holds more than {MOST_BYTES:,} bytes")
    return data


def parse_json(data: bytes | str) -> Any:
    """A JSON document.

    Raises:
        InvalidInput: it is none.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"It is not JSON ({error}); was it truncated?") from None


def moved_bytes(
    edges: Sequence[tuple[int, int]],
    written: Sequence[Mapping[str, float | None]],
    read: Sequence[Mapping[str, float | None]],
    names: Sequence[str],
) -> list[float] | None:
    """Bytes that each edge moves: those of the files that its producer writes and its consumer reads.

    Args:
        edges: positions of producer and consumer.
        written: for each task the files that it writes and their bytes, None where the file does not say.
        read: the same of those that it reads.
        names: of the tasks.

    Returns:
        None if no file that an edge moves has a size.

    Raises:
        InvalidInput: some of these files have a size and others have none.
    """
    found: list[float] = []
    lacking, sized = "", False
    for producer, consumer in edges:
        sizes = []
        for file in written[producer].keys() & read[consumer].keys():
            size = written[producer][file]
            size = read[consumer][file] if size is None else size
            if size is None:
                lacking = f"File {shown(file)}, which task {shown(names[producer])} writes,"
            else:
                sizes.append(size)
        sized |= bool(sizes)
        found.append(math.fsum(sizes))  # rounded once, whatever the order
    if sized and lacking:
        raise InvalidInput(f"{lacking} has no size, though others have; give all or none")
    return found if sized else None


def shown(value: Any) -> str:
    """A value in at most 60 characters, quoted as Python would."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def number_of(value: Any, what: str) -> float:
    """A number from 0 to :data:`MOST`, of a number or a text.

    Raises:
        InvalidInput: it is none; ``what`` begins the sentence.
    """
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not 0 <= number <= MOST:
        raise InvalidInput(f"{what} is {shown(value)}, not a number from 0 to {MOST:g}")
    return number
