"""Schedulers named by class path where a name is expected: ``scheduler=heft,path/to/file.py:Mine``.

A class path becomes an entry of the config group for the time of a process: its name is the class's own, it has
no options but those that are given. A class without a ``name`` is called like the class. Two that would be
called the same, or one that would be called like an entry, get their origin behind an ``@``: ``Mine@a.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from experiments.runs import catalog

GROUP = "scheduler"


def is_class_path(text: str) -> bool:
    """Whether a name of a scheduler has the form of a class path."""
    return bool(
        re.search(r"\.py(:\w*)?$", text) or re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", text)
    )


def is_own(text: str, config_dirs: Sequence[Path]) -> bool:
    """Whether a scheduler, by name or class path, is found by a class path."""
    entry = catalog.entry(GROUP, text, config_dirs)
    return is_class_path(text) if entry is None else bool(entry.content.get("class_path"))


def content_of(class_path: str, config_dirs: Sequence[Path]) -> dict[str, Any]:
    """The entry that stands for a class path.

    Raises:
        InvalidInput: there is no such scheduler.
    """
    from simulator import schedulers

    kind = schedulers.resolve(catalog.resolve_class_path(class_path, config_dirs))
    # A name that is inherited is another scheduler's.
    name = str(vars(kind).get("name") or kind.__name__)
    if name in catalog.files(GROUP, config_dirs):
        name = f"{name}@{_origin(class_path)}"
    return {"name": name, "class_path": class_path, "options": {}}


def entry_of(group: str, name: str, config_dirs: Sequence[Path]) -> catalog.Entry | None:
    """An entry of a group, or what stands for a scheduler that is named by class path.

    Raises:
        InvalidInput: see :func:`content_of`.
    """
    entry = catalog.entry(group, name, config_dirs)
    if entry is None and group == GROUP and is_class_path(name):
        return catalog.Entry(name, None, content_of(name, config_dirs))
    return entry


def register(names: Iterable[str], config_dirs: Sequence[Path]) -> None:
    """Make Hydra know the class paths among these names of schedulers.

    Raises:
        InvalidInput: see :func:`content_of`.
    """
    known = catalog.files(GROUP, config_dirs)
    for text in names:
        if text in known or not is_class_path(text):
            continue
        # Hydra looks the parts of a path up one by one.
        *folders, last = (part for part in f"{GROUP}/{text}".split("/") if part)
        node = content_of(text, config_dirs)
        ConfigStore.instance().store(last, node, "/".join(folders), GROUP)


def same_class(text: str) -> str:
    """A class path in one form, however its file is written; of anything else itself."""
    file, separator, name = text.rpartition(":")
    if not (separator and file.endswith(".py")):
        return text
    return f"{Path(file).expanduser().resolve()}:{name}"


def told_apart(class_paths: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """By class path a name that no other has, for those that share one.

    Args:
        class_paths: distinct.
        names: theirs.
    """
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        sharing = [c for c, other in zip(class_paths, names, strict=True) if other == name]
        if len(sharing) < 2:
            continue
        plain = name.partition("@")[0]
        depth = 1
        while len({_origin(c, depth) for c in sharing}) < len(sharing) and depth < 50:
            depth += 1
        found |= {c: f"{plain}@{_origin(c, depth)}" for c in sharing}
    return found


def _origin(class_path: str, depth: int = 1) -> str:
    """The file of a class path with so many parts of its path, or its module."""
    file, separator, _ = class_path.rpartition(":")
    if not separator:
        return class_path.rpartition(".")[0]
    return "/".join(Path(file).expanduser().absolute().parts[-depth:])
