"""Errors in code of a user's own: the line of it at which they arose."""

from __future__ import annotations

import linecache
import os
import site
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from simulator.errors import HetsimError

_ROOT = Path(__file__).resolve().parents[1]
_NOT_OWN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_ROOT / name for name in ("simulator", "scenarios", "cost_models", "calibration")),
        _ROOT / "experiments",
        *(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")),
        *site.getsitepackages(),
    )
)
_files: set[str] = set()
"""Files that were loaded as a user's own code."""


def note(file: str) -> None:
    """A file is a user's own code."""
    _files.add(file)


def own_line(error: BaseException) -> str | None:
    """The innermost line of a user's own code on the way to an error, None if there is none.

    Returns:
        ``file.py, line 12, in decide: `code```.
    """
    for one in _chain(error):
        found: tuple[str, int, str] | None = None
        traceback = one.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if _is_own(code.co_filename):
                found = (code.co_filename, traceback.tb_lineno, f", in {code.co_name}")
            traceback = traceback.tb_next
        if isinstance(one, SyntaxError) and one.filename is not None and _is_own(one.filename):
            found = (one.filename, one.lineno or 1, "")
        if found is not None:
            file, line, where = found
            code_there = linecache.getline(file, line).strip()
            return f"{file}, line {line}{where}" + (f": `{code_there}`" if code_there else "")
    return None


def own_error(error: BaseException) -> str | None:
    """One sentence for an error that arose in a user's own code, its line first; None if it did not."""
    line = own_line(error)
    return None if line is None else f"{line}: {_text(error)}"


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, HetsimError) else f"{type(error).__name__}: {text}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, hidden causes included: who hides one keeps its text alone."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _is_own(file: str) -> bool:
    if file in _files:
        return True
    beside = any(file.startswith(f"{os.path.dirname(own)}{os.sep}") for own in _files)
    return beside and not file.startswith(_NOT_OWN)
