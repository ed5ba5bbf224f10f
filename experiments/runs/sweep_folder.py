"""The folder that a sweep leaves, read again."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runs.own_schedulers import same_class
from experiments.runs.results import load_results
from experiments.runs.yaml_files import reading, yaml_text
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd


def read_sweep(folder: Path) -> pd.DataFrame:
    """A sweep's results, one row a cell.

    Raises:
        InvalidInput: there is no such folder, it is no sweep's, or the sweep has not ended.
    """
    if not folder.is_dir():
        raise InvalidInput(f"There is no folder {folder}.{others_beside(folder)}")
    if not (folder / "results.parquet").is_file():
        if (folder / "cells").is_dir() or (folder / "grid.yaml").is_file():
            raise InvalidInput(
                f"{folder} has no results.parquet yet: the sweep was interrupted; the command that "
                f"began it goes on where it stopped"
            )
        raise InvalidInput(
            f"{folder} is neither a sweep's folder (results.parquet) nor a run's (result.json)."
            f"{others_beside(folder)}"
        )
    return load_results(folder)


def choices_of(folder: Path) -> dict[str, dict[str, str]]:
    """Value of each axis for every cell that a sweep asked for; empty where it left no ``grid.yaml``.

    Raises:
        InvalidInput: its ``grid.yaml`` is damaged.
    """
    cells = read_grid(folder).get("cells")
    return cells if isinstance(cells, dict) else {}


def read_grid(folder: Path) -> dict[str, Any]:
    """A sweep's ``grid.yaml``; empty where there is none.

    Raises:
        InvalidInput: it is damaged.
    """
    import yaml  # type: ignore[import-untyped]

    path = folder / "grid.yaml"
    if not path.is_file():
        return {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with reading(path):
            document = yaml.load(yaml_text(path), Loader=loader)
    except InvalidInput as error:
        raise InvalidInput(f"{error} Remove it, and the sweep's command writes it anew") from None
    return document if isinstance(document, dict) else {}


def label_named(
    name: str, labels: Mapping[str, str], choices: Mapping[str, Mapping[str, str]]
) -> str:
    """The label of the scheduler that a sweep's command called so: a class path, say.

    Args:
        name: as it was typed.
        labels: of the scheduler, by cell.
        choices: value of each axis, by cell.

    Returns:
        ``name`` itself if it is a label, or is none of one scheduler alone.
    """
    if name in labels.values():
        return name
    found = {
        label
        for cell, label in labels.items()
        if same_class(choices.get(cell, {}).get("scheduler", "")) == same_class(name)
    }
    return found.pop() if len(found) == 1 else name


def others_beside(folder: Path) -> str:
    """What lies beside a folder that is missing or the wrong one."""
    beside = folder if folder.is_dir() else folder.parent
    if not beside.is_dir():
        return ""
    names = sorted(
        child.name
        for child in beside.iterdir()
        if child.is_dir()
        and ((child / "results.parquet").is_file() or (child / "result.json").is_file())
    )
    if not names:
        return ""
    near = get_close_matches(folder.name, names, n=3) or names[:3]
    return f" There: {', '.join(str(beside / name) for name in near)}"
