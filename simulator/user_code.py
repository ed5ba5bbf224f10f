"""Code of a user's own: loading it by path, and the line of it at which an error arose."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from simulator.errors import HetsimError, InvalidInput

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


def load_file(file: Path, what: str) -> ModuleType:
    """Run a Python file as a module, with its neighbours importable while it loads.

    A file that has not changed is run once.

    Args:
        file: its path.
        what: it is needed for, such as ``scheduler 'mine.py:Mine'``.

    Raises:
        InvalidInput: there is no such file, or it cannot be run.
    """
    file = file.expanduser().resolve()
    if not file.is_file():
        raise InvalidInput(f"Cannot load {what}: there is no file {file}")
    _files.add(str(file))
    content = hashlib.sha256(str(file).encode() + file.read_bytes()).hexdigest()[:12]
    name = f"_hetsim_{file.stem}_{content}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"Cannot load {what}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code
        del sys.modules[name]
        raise InvalidInput(f"Cannot load {what}: {_text(error)}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(file.parent))
    return module


def import_module(name: str, what: str) -> ModuleType:
    """A module of a package that is not this project's own.

    Raises:
        InvalidInput: it cannot be imported.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(f"Cannot import '{name}' for {what}: {error}") from error
        raise InvalidInput(
            f"Cannot import '{name}' for {what}: no module named '{error.name}'; for a file that is not "
            "importable write path/to/file.py:Name"
        ) from None
    except Exception as error:  # user code
        raise InvalidInput(f"Cannot import '{name}' for {what}: {_text(error)}") from error
    if module.__file__ is not None:
        _files.add(module.__file__)
    return module


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
