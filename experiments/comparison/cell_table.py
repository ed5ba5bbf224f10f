"""Every cell of a sweep as data of the report's page: columns to sort and filter, and where its files lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.comparison.contests import Standings
from experiments.comparison.rounding import time_unit
from experiments.runs.results import FAMILY_COLUMNS, read_document

if TYPE_CHECKING:
    import pandas as pd

_ALWAYS = ("model", "scheduler")
_WORDS = (
    *("model", "batch", "cluster", "scheduler", "partition", "workload", "movement", "contention", "noise"),
    *("memory", "decision_cost", "cost_model", "profiles", *FAMILY_COLUMNS),
    *("seed_workload", "seed_noise", "seed_search", "status", "stale"),
)  # fmt: skip
"""Columns of labels and settings; of those that do not vary only :data:`_ALWAYS` are shown."""
_SECONDS = {
    "makespan_s": "makespan",
    "mean_delay_s": "mean delay",
    "p99_delay_s": "p99 delay",
    "decision_s": "decisions",
    "iteration_s": "iteration",
}
_SHARES = {
    "gap_to_bound": "gap to bound",
    "success_rate": "in time",
    "utilisation": "utilisation",
    "extrapolated_share": "extrapolated",
}
_OTHERS = {
    "ratio_to_best": "ratio to best",
    "speedup": "speedup",
    "energy_j": "energy [J]",
    "cost": "cost",
}
_REQUESTS = ("mean_delay_s", "p99_delay_s", "success_rate")


def cell_table(
    results: pd.DataFrame, standings: Standings, cells: Path, requests: bool = False
) -> dict[str, Any]:
    """The data of the page's table of cells.

    Args:
        results: a row for each cell.
        standings: of the same sweep, for the ratio to the best of each instance.
        cells: the folder with a folder for each cell.
        requests: whether the cells serve requests, which have delays in place of makespans.

    Returns:
        ``columns``: each with ``name`` and ``values`` (numbers, or indices into ``levels``; of makespans also
        ``low`` and ``high``); ``cells``: names of their folders; ``trace`` and ``result``: whether the cell
        has that file; ``gantt``: cells whose Gantt chart the page can draw, none yet; ``results``: whether there is
        a ``results.csv``; ``commands``: what repeats each alone, as indices into ``words``; ``errors`` of failed
        cells by their number.
    """
    frame = results.copy()
    names = [str(cell) for cell in frame["cell"]]
    if requests:
        metrics = [_metrics(cells / name) for name in names]
        frame = frame.drop(columns=["makespan_s", "gap_to_bound", "speedup"], errors="ignore")
        for key in _REQUESTS:
            frame[key] = [entry.get(key, math.nan) for entry in metrics]
    else:
        best = _ratios(standings)
        frame["ratio_to_best"] = [best.get(name, math.nan) for name in names]
        if {"makespan_s", "bound_s"} <= set(frame):
            with np.errstate(divide="ignore", invalid="ignore"):
                frame["gap_to_bound"] = frame["makespan_s"] / frame["bound_s"] - 1
    if "stale" in frame:
        frame["stale"] = frame["stale"].fillna("")
    columns = [
        _levels(key.replace("seed_", "seed."), [str(value) for value in frame[key]])
        for key in _WORDS
        if key in frame and (key in _ALWAYS or _varies(frame, key))
    ]
    for key, title in _SECONDS.items():
        if key in frame and frame[key].notna().any():
            factor, unit = time_unit(frame[key].dropna())
            column = {"name": f"{title} [{unit}]", "values": _numbers(frame[key] * factor)}
            bounds = ("makespan_low_s", "makespan_high_s")
            if key == "makespan_s" and set(bounds) <= set(frame) and frame[bounds[0]].notna().any():
                low, high = (_numbers(frame[bound] * factor) for bound in bounds)
                column |= {"low": low, "high": high}
            columns.append(column)
    columns += [
        {"name": name, "values": _numbers(frame[key])}
        for key, name in _OTHERS.items()
        if key in frame and frame[key].fillna(0).any()
    ]
    columns += [
        {"name": f"{title} [%]", "values": _numbers(100 * frame[key])}
        for key, title in _SHARES.items()
        if key in frame and frame[key].fillna(0).any()
    ]
    texts = [_read(cells / name / "command.txt") for name in names]
    words = {
        word: n for n, word in enumerate(dict.fromkeys(w for t in texts for w in t.split(" ")))
    }
    errors = frame["error"].fillna("").tolist() if "error" in frame else []
    return {
        "columns": columns,
        "cells": names,
        "trace": [int((cells / name / "trace.json").is_file()) for name in names],
        "result": [int((cells / name / "result.json").is_file()) for name in names],
        "gantt": [],
        "results": int((cells.parent / "results.csv").is_file()),
        "words": list(words),
        "commands": [[words[word] for word in text.split(" ")] for text in texts],
        "errors": {number: str(error) for number, error in enumerate(errors) if error},
    }


def _ratios(standings: Standings) -> dict[str, float]:
    """Makespan over the smallest of the same instance, by cell."""
    found: dict[str, float] = {}
    for contest in standings.contests:
        makespans = np.stack([standing.makespans for standing in contest.standings])
        for standing, ratios in zip(contest.standings, makespans / makespans.min(0), strict=True):
            found |= dict(zip(standing.cells, ratios.tolist(), strict=False))
    return found


def _varies(frame: pd.DataFrame, key: str) -> bool:
    # A failed cell may not know its profiles.
    known = frame[frame["status"] == "done"] if key == "profiles" else frame
    return int(known[key].nunique(dropna=False)) > 1


def _levels(name: str, values: Sequence[str]) -> dict[str, Any]:
    levels = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return {"name": name, "levels": list(levels), "values": [levels[value] for value in values]}


def _numbers(values: Iterable[float]) -> list[float | None]:
    """Four digits, which keep the page small; the files have all."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _metrics(folder: Path) -> Mapping[str, Any]:
    path = folder / "result.json"
    found: Mapping[str, Any] = read_document(path).get("metrics", {}) if path.is_file() else {}
    return found
