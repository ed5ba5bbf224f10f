"""Code that is named by path: parsed, imported, and the source files that decide what it does.

A class path is ``package.module.Name`` or ``path/to/file.py:Name``. This module alone imports by such a
name. A module whose sources were changed since it was imported is imported anew.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from simulator.errors import HetsimError, InvalidInput
from simulator.support import own_errors

PROJECT = ("simulator", "cost_models", "scenarios", "calibration", "experiments", "hetsim")
"""Packages of this project: their sources are part of every key of a result already."""


class ClassPath(NamedTuple):
    """A class path in its parts; ``file`` or ``module`` is empty."""

    file: str
    module: str
    name: str


def parse(text: str) -> ClassPath | None:
    """The parts of a class path; None where the text is none.

    ``package.module:Name`` is read as ``package.module.Name``.
    """
    before, colon, name = text.rpartition(":")
    if colon and before.endswith(".py"):
        return ClassPath(before, "", name) if name.isidentifier() else None
    if not colon:
        before, _, name = text.rpartition(".")
    parts = (*before.split("."), name)
    return ClassPath("", before, name) if all(part.isidentifier() for part in parts) else None


def load(text: str, what: str) -> Any:
    """Import a class path; returns what it names.

    Args:
        text: the class path, the file relative to the current folder.
        what: who names it, within a sentence, such as ``scheduler 'mine.Mine'``.

    Raises:
        InvalidInput: it is no class path, there is no such module or file, it fails, or has no such name.
    """
    path = parse(text)
    if path is None:
        raise InvalidInput(
            f"{_first(what)} is neither package.module.Name nor path/to/file.py:Name"
        )
    module = _module(path, what)
    if not callable(getattr(module, path.name, None)):
        offered = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        raise InvalidInput(
            f"{_first(what)}: nothing called '{path.name}' to call there"
            + (f" (there is: {', '.join(offered)})" if offered else "")
        )
    return getattr(module, path.name)


# -- importing ----------------------------------------------------------------------------------

_Stamp = tuple[tuple[str, int, int], ...]
_imported: dict[tuple[str, str], tuple[ModuleType, _Stamp]] = {}
_followed: dict[tuple[tuple[str, str], tuple[str, ...]], _Stamp] = {}


def _key(path: ClassPath) -> tuple[str, str]:
    return str(_absolute(path.file)) if path.file else "", path.module


def _module(path: ClassPath, what: str) -> ModuleType:
    key = _key(path)
    held = _imported.get(key)
    if held is not None and sys.modules.get(held[0].__name__) is held[0]:
        module, stamp = held
        if stamp == _stamp(entry[0] for entry in stamp):
            return module
    if path.file and not _absolute(path.file).is_file():
        raise InvalidInput(f"{_first(what)}: there is no file {_absolute(path.file)}")
    files = [str(file) for file in _sources_of(path)]
    if held is not None:
        _forget({*files, *(entry[0] for entry in held[1])})
    stamp = _stamp(files)
    for file in files:
        own_errors.note(file)
    try:
        # Compiled files know seconds, so a source that was changed twice in one could be mistaken: also one
        # that is imported later, when a function of it is called.
        sys.dont_write_bytecode = True
        module = _run(_absolute(path.file)) if path.file else _import(path.module)
    except HetsimError:
        raise
    except ModuleNotFoundError as error:
        named = path.file or path.module
        raise InvalidInput(
            f"Cannot import '{named}' for {what}: no module named '{error.name}'"
            + (
                ""
                if path.file
                else "; for a file that is not importable write path/to/file.py:Name"
            )
        ) from error
    except Exception as error:  # user code
        raise InvalidInput(f"{_first(what)}: {type(error).__name__}: {error}") from error
    _imported[key] = module, stamp
    return module


def _first(what: str) -> str:
    return what[:1].upper() + what[1:]


def _import(name: str) -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _run(file: Path) -> ModuleType:
    """Run a Python file as a module, its neighbours importable: first of all while it loads."""
    folder = str(file.parent)
    name = f"_hetsim_own_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    _make_way(file.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
    if folder not in sys.path:
        sys.path.append(folder)  # for what its functions import when they are called
    return module


def _make_way(folder: Path) -> None:
    """Forget own modules of other folders that have the name of a neighbour here."""
    near = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] not in near or file is None or _is_project(name):
            continue
        if not _is_installed(Path(file)) and not Path(file).resolve().is_relative_to(folder):
            del sys.modules[name]


def _forget(files: set[str]) -> None:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and str(Path(file).resolve()) in files:
            del sys.modules[name]


def _stamp(files: Iterable[str]) -> _Stamp:
    """Path, time of change in ns and bytes of each file; -1 where it is gone."""
    found = []
    for file in files:
        try:
            stat = os.stat(file)
        except OSError:
            found.append((file, -1, -1))
        else:
            found.append((file, stat.st_mtime_ns, stat.st_size))
    return tuple(found)


# -- what decides what a class does -------------------------------------------------------------


def sources(text: str) -> list[Path]:
    """Source files of a class path: its module's, and those of every module that it imports.

    Imports are followed as far as the user's own code goes: the standard library, installed packages and
    this project are left out. Nothing is imported. The first file is the module's own; it counts also
    where it is installed. Empty for a class of this project, and for what does not exist.
    """
    path = parse(text)
    return [] if path is None else _sources_of(path)


def _sources_of(path: ClassPath) -> list[Path]:
    key = _key(path), tuple(sys.path)
    held = _followed.get(key)
    if not held or held != _stamp(entry[0] for entry in held):
        held = _followed[key] = _stamp(map(str, _follow(path)))
    return [Path(entry[0]) for entry in held]


def _follow(path: ClassPath) -> list[Path]:
    folder = _absolute(path.file).parent if path.file else None
    if path.file:
        todo = [("", _absolute(path.file))]
    elif _is_project(path.module):
        return []
    else:
        todo = _files_of(path.module)[::-1]
    found: dict[Path, None] = {}
    while todo:
        name, file = todo.pop(0)
        if file in found or not file.is_file():
            continue
        found[file] = None
        if _is_installed(file) or file.suffix != ".py":
            continue
        stat = file.stat()
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imports(str(file), package, stat.st_mtime_ns, stat.st_size):
            if not _is_project(imported):
                todo += _files_of(imported, folder, installed=False)
    first, *others = found or [None]
    return [] if first is None else [first, *sorted(others)]  # type: ignore[list-item, type-var]


def exists(module: str) -> bool:
    """Whether the outermost package of a module can be imported; nothing is."""
    return _spec(module.partition(".")[0], None, None) is not None


def origin(text: str) -> Path | None:
    """The file of a class path's module, found without importing anything; None where there is none."""
    path = parse(text)
    if path is None:
        return None
    if path.file:
        file = _absolute(path.file)
        return file if file.is_file() else None
    files = _files_of(path.module)
    return files[-1][1] if files and files[-1][0] == path.module else None


def _files_of(
    module: str, folder: Path | None = None, *, installed: bool = True
) -> list[tuple[str, Path]]:
    """(name, file) of a module and of the packages around it, outermost first, as far as they exist.

    Args:
        module: its dotted name.
        folder: where to look first.
        installed: whether a module may be the standard library's or an installed package's.
    """
    found = []
    parts = module.split(".")
    paths: Any = None
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        spec = _spec(name, paths, folder)
        if spec is None:
            break
        if spec.origin is not None and spec.has_location:
            file = Path(spec.origin).resolve()
            if not installed and _is_installed(file):
                break
            found.append((name, file))
        paths = spec.submodule_search_locations
        if paths is None:
            break
    return found


def _spec(name: str, paths: Any, folder: Path | None) -> ModuleSpec | None:
    try:
        if paths is not None:
            return PathFinder.find_spec(name, paths)
        near = None if folder is None else PathFinder.find_spec(name, [str(folder)])
        # Of a name without dots this imports nothing, and knows packages installed for development.
        return near or importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None


@lru_cache(maxsize=1024)
def _imports(file: str, package: str, mtime_ns: int, size: int) -> tuple[str, ...]:
    """Names that a source file imports, also inside functions and by ``import_module`` of a literal."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (SyntaxError, ValueError):
        return ()
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(
                [*(around if node.level else []), *([node.module] if node.module else [])]
            )
            found |= dict.fromkeys([base, *(f"{base}.{alias.name}" for alias in node.names)])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found[node.args[0].value] = None
    return tuple(name for name in found if all(part.isidentifier() for part in name.split(".")))


def _is_project(name: str) -> bool:
    return name.partition(".")[0] in PROJECT


@lru_cache(maxsize=4096)
def _is_installed(file: Path) -> bool:
    """Whether a file is the standard library's or an installed package's."""
    return any(file.resolve().is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(dict.fromkeys(Path(folder).resolve() for folder in folders))


def _absolute(file: str) -> Path:
    return Path(file).expanduser().resolve()
