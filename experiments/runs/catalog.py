"""What there is to choose from: entries of config groups, the project's and the user's."""

from __future__ import annotations

import copy
import functools
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.runs.yaml_files import reading, yaml_text
from scenarios.graph_files.recorded import split_part
from simulator.errors import InvalidInput
from simulator.schedulers import YOUR_OWN

CONF = Path(__file__).resolve().parents[2] / "conf"


@dataclass(frozen=True)
class Entry:
    """One file of a config group.

    Attributes:
        name: what to write behind ``group=``.
        path: of the file; None for what a class path stands for.
        content: the file's keys, interpolations left as they are.
    """

    name: str
    path: Path | None
    content: dict[str, Any]

    @property
    def description(self) -> str:
        """One line, empty where the file has none."""
        return str(self.content.get("description") or "")

    @property
    def source(self) -> str:
        """Where it comes from, empty where the file does not say."""
        return str(self.content.get("source") or "")


def files(group: str, config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Files of a group by name, sorted; the project's come before the user's, as in Hydra."""
    found: dict[str, Path] = {}
    for root in (CONF, *config_dirs):
        found = {**_files_below(os.path.join(root, group)), **found}
    return dict(sorted(found.items()))


def _files_below(folder: str) -> dict[str, Path]:
    """The YAML files of a folder by name; looked for again when a folder of it has changed."""
    times, found = _found.get(folder, ({}, {}))
    if not times or any(_changed(parent, time) for parent, time in times.items()):
        times, found = {}, {}
        for parent, _, names in os.walk(folder):
            times[parent] = os.stat(parent).st_mtime_ns
            inner = parent[len(folder) + 1 :].replace(os.sep, "/")
            for name in names:
                if name.endswith(".yaml"):
                    stem = name.removesuffix(".yaml")
                    found[f"{inner}/{stem}" if inner else stem] = Path(parent, name)
        _found[folder] = times, found
    return found


_found: dict[str, tuple[dict[str, int], dict[str, Path]]] = {}


def _changed(folder: str, time_ns: int) -> bool:
    try:
        return os.stat(folder).st_mtime_ns != time_ns
    except OSError:
        return True


def read(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; a file that has not changed is not parsed again.

    Raises:
        InvalidInput: the file cannot be read as one.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    return copy.deepcopy(_parse(path, stat.st_mtime_ns, stat.st_size))


@functools.lru_cache(maxsize=512)
def _parse(path: Path, mtime_ns: int, size: int) -> dict[str, Any]:
    with reading(path):
        content = OmegaConf.to_container(OmegaConf.load(io.StringIO(yaml_text(path))))
    if not isinstance(content, dict):
        raise InvalidInput(f"{path} holds no mapping")
    return {str(key): value for key, value in content.items()}


def entries(group: str, config_dirs: Sequence[Path] = ()) -> list[Entry]:
    """Every entry of a group, sorted by name."""
    return [Entry(name, path, read(path)) for name, path in files(group, config_dirs).items()]


def entry(group: str, name: str, config_dirs: Sequence[Path] = ()) -> Entry | None:
    """One entry, None if there is none of that name."""
    path = files(group, config_dirs).get(name)
    return None if path is None else Entry(name, path, read(path))


def nearest(name: str, known: Iterable[str]) -> str:
    """``Nearest: a, b. `` for names that resemble ``name``, else empty."""
    near = get_close_matches(name, list(known), n=3)
    return f"Nearest: {', '.join(near)}. " if near else ""


def unknown(group: str, name: str, config_dirs: Sequence[Path] = ()) -> InvalidInput:
    """The refusal of a name that a group lacks."""
    known = files(group, config_dirs)
    own = f"; {YOUR_OWN}" if group == "scheduler" else ""
    return InvalidInput(
        f"No {group.replace('_', ' ')} '{name}'. {nearest(name, known)}Known: {', '.join(known)}{own}"
    )


def instances(config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Files of bare instances by name: JSON in ``conf/instances``, the project's and the user's."""
    found: dict[str, Path] = {}
    for root in (CONF, *config_dirs):
        for path in sorted((root / "instances").glob("*.json")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find_instance(name: str, config_dirs: Sequence[Path] = ()) -> Path:
    """The file of an instance, by name in ``conf/instances`` or by path, which may name a part: ``trace.json@3``.

    Raises:
        InvalidInput: there is none; names the nearest.
    """
    known = instances(config_dirs)
    if name in known:
        return known[name]
    path = find_path(name, config_dirs)
    if path.is_file():
        return path
    file, part = split_part(name)
    if part is not None and (path := find_path(str(file), config_dirs)).is_file():
        return path.with_name(f"{path.name}@{part}")
    raise InvalidInput(
        f"No instance '{name}'. {nearest(name, known)}Known: {', '.join(known)}; or a path to a file"
    )


def find_path(name: str, config_dirs: Sequence[Path] = ()) -> Path:
    """A file or folder in the current folder or a user's config folder; as it is where there is none."""
    paths = [(folder / name).expanduser() for folder in (Path(), *config_dirs)]
    return next((path for path in paths if path.exists()), Path(name))


def resolve_class_path(class_path: str, config_dirs: Sequence[Path] = ()) -> str:
    """``file.py:Class`` with the file found in the current folder or a user's config folder.

    Class paths of packages, and files that are nowhere, come back as they are.
    """
    file, separator, name = class_path.rpartition(":")
    if not separator or not file.endswith(".py"):
        return class_path
    for folder in (Path(), *config_dirs):
        path = folder / Path(file).expanduser()
        if path.is_file():
            return f"{path.resolve()}:{name}"
    return class_path
