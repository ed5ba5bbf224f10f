"""Saved folders are data: which code they name may run.

A scenario that was read from a folder names classes by path. Such a path is honoured where this project,
the user's folder of configs (``--config-dir``) or the command line names it too; else only with
``trust=true``, once it has been shown.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.runs import catalog
from experiments.runs.command import user_folders
from experiments.runs.configs import Scenario
from experiments.runs.world import class_paths, texts
from simulator.errors import InvalidInput
from simulator.schedulers import available
from simulator.support import own_code


def admit(
    scenarios: Iterable[Scenario],
    folder: str | Path,
    config_dirs: Sequence[Path] = (),
    trust: bool = False,
    typed: Sequence[str] = (),
) -> None:
    """Let scenarios that a saved folder holds name code, or refuse them before any of it is imported.

    Args:
        scenarios: as they were read.
        folder: the folder or file that they were read from.
        config_dirs: the user's folders of configs, from the command line.
        trust: whether code that nothing else names may run; it is shown first.
        typed: overrides of the command line.

    Raises:
        InvalidInput: the folder names code of its own, and ``trust`` was not given.
    """
    named = {path: None for scenario in scenarios for path in _named(scenario)}
    if not named:
        return
    known = _known(config_dirs, typed)
    foreign = [path for path in named if catalog.resolve_class_path(path, config_dirs) not in known]
    if not foreign:
        return
    shown = "; ".join(map(_shown, (catalog.resolve_class_path(p, config_dirs) for p in foreign)))
    if not trust:
        raise InvalidInput(
            f"{folder} names code of its own, {shown}. A saved folder is data and its code is not run: "
            "give the folder of configs that names it (--config-dir FOLDER), or read the code and add "
            "trust=true"
        )
    print(f"trust=true: {folder} names code that will run: {shown}", file=sys.stderr, flush=True)


def folders_of(
    command: str, folder: str | Path, config_dirs: Sequence[Path], trust: bool
) -> tuple[Path, ...]:
    """The user's folders of configs: those of this command line, or with ``trust`` those that a saved
    command names, which are shown.
    """
    saved = [] if config_dirs or not trust else user_folders(shlex.split(command))
    for path in saved:
        print(f"trust=true: {folder} was made with configs in {path}", file=sys.stderr, flush=True)
    return (*config_dirs, *saved)


def _named(scenario: Scenario) -> list[str]:
    """Class paths of a scenario that are not the shipped schedulers' and models' own."""
    given = [*class_paths(scenario.scheduler), *class_paths(scenario.partition)]
    found = [path for path in given if _may_exist(path)]
    if not scenario.bare:
        found += [scenario.model.target]
        found += filter(_may_exist, texts(scenario.model.arguments))
    return found


def _may_exist(text: str) -> bool:
    """Whether a text may name code: an option ``edge.gpu0`` does where there is a module ``edge``."""
    path = own_code.parse(text)
    return path is not None and (bool(path.file) or own_code.exists(path.module))


def _known(config_dirs: Sequence[Path], typed: Sequence[str]) -> set[str]:
    found = {f"{kind.__module__}.{kind.__qualname__}" for kind in available().values()}
    for group in ("scheduler", "partition", "model"):
        for entry in catalog.entries(group):
            found |= set(texts(entry.content))
    for folder in config_dirs:
        for path in sorted(folder.rglob("*.yaml")):
            found |= set(texts(catalog.read(path)))
    found |= {value for word in typed for value in _values(word)}
    return {catalog.resolve_class_path(path, config_dirs) for path in found if own_code.parse(path)}


def _values(word: str) -> list[str]:
    """What an override sets; of a list or a sweep each."""
    value: str = word.partition("=")[2]
    return [part.strip(" '\"[]") for part in value.split(",")]


def _shown(path: str) -> str:
    file: Any = own_code.origin(path)
    return f"{path} ({file})" if file is not None and str(file) not in path else path
