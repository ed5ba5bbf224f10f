"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from simulator.support.atomic_io import replacing


def write_text(path: str | Path, text: str) -> Path:
    """Write ``text`` as UTF-8, whole or not at all; returns the path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, document: Any) -> Path:
    """Write JSON with sorted keys; infinities and NaN become null, which any reader understands.

    Each entry of a mapping has a line, and each entry of these.
    """
    try:
        text = _lines(document, 2)
    except (
        ValueError,
        TypeError,
    ):  # of NaN, say, which is rare; looking for it takes as long as writing
        text = _lines(finite(document), 2)
    return write_text(path, text + "\n")


_encode = json.JSONEncoder(sort_keys=True, allow_nan=False).encode


def _lines(value: Any, levels: int, indent: str = "\n") -> str:
    """JSON; an indent for all levels would take ten times as long."""
    if levels and isinstance(value, dict) and value:
        inner = f"{indent} "
        rows = (
            f"{_encode(str(k))}: {_lines(value[k], levels - 1, inner)}"
            for k in sorted(value, key=str)
        )
        return f"{{{inner}{f',{inner}'.join(rows)}{indent}}}"
    return _encode(value)


def point_to(link: Path, target: Path) -> None:
    """Make ``link`` a relative symbolic link to ``target``, in place of one that is there.

    Where the file system has no symbolic links nothing happens: the link is a convenience.
    """
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(target, link.parent), target_is_directory=True)
        os.replace(temporary, link)
    except OSError:
        temporary.unlink(missing_ok=True)


def finite(value: Any) -> Any:
    """A document with null for infinities and NaN, its keys texts, its tuples lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value
