"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import CannotWrite, InvalidInput


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without an error.

    An error in the block leaves what was there before and no temporary file. The temporary name keeps
    the suffix, which tells some writers their format.

    Raises:
        CannotWrite: the disk is full, say, or the folder cannot be written to.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except CannotWrite:
        raise
    except OSError as error:
        raise CannotWrite.of(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_whole(path: str | Path, data: bytes) -> Path:
    """Write a file; returns its path, ``~`` resolved.

    Raises:
        InvalidInput: it cannot be written; says why.
    """
    path = Path(path).expanduser()
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except CannotWrite as error:
        raise InvalidInput(str(error)) from None
    return path
