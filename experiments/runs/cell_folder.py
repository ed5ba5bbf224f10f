"""The folder that a cell of a sweep leaves, and whether it still holds.

``cells/<hash>/`` is named by the cell's config. Its ``result.json`` also records the digests of the
profiles and of the code that it was made with, the user's own included: where they differ today the cell
is stale, failed ones too.
"""

from __future__ import annotations

import socket
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.runs import atomic
from experiments.runs.catalog import resolve_class_path
from experiments.runs.cell import FORMAT, label_of, model_label, run_scenario
from experiments.runs.command import command_line
from experiments.runs.configs import Scenario
from experiments.runs.grid import Cell
from experiments.runs.provenance import code_digest, revision, versions
from experiments.runs.results import read_document
from experiments.runs.world import source_digests
from scenarios.model_config import ModelConfig, graph_of, is_kept
from simulator.errors import HetsimError, InvalidInput
from simulator.support.own_errors import own_error

State = Literal["missing", "done", "stale", "failed"]


@dataclass(frozen=True)
class CellTask:
    """A cell with all that a worker needs to simulate it."""

    hash: str
    choices: Mapping[str, str]
    scenario: Scenario
    key: Mapping[str, str]
    command: str
    folder: Path
    config_dirs: tuple[Path, ...]
    keep_trace: bool


def task_of(cell: Cell, cells: Path, config_dirs: tuple[Path, ...], keep_trace: bool) -> CellTask:
    """The task of a cell in the folder ``cells``.

    Raises:
        InvalidInput: the cell names a profile, an instance or a file that does not exist.
    """
    key = source_digests(cell.scenario, config_dirs) | {"code": code_digest()}
    command = command_line("experiments.simulate", cell.overrides, config_dirs)
    return CellTask(
        cell.hash,
        cell.choices,
        cell.scenario,
        key,
        command,
        cells / cell.hash,
        config_dirs,
        keep_trace,
    )


def state_of(task: CellTask) -> tuple[State, dict[str, Any] | None, tuple[str, ...]]:
    """What is in a cell's folder: its state, its document, and what has changed since."""
    path = task.folder / "result.json"
    if not path.is_file():
        return "missing", None, ()
    try:
        document = read_document(path)
        key, status = document["key"], document["status"]
    except (InvalidInput, KeyError):
        # Nothing of ours, or damaged: as good as none.
        return "missing", None, ()
    changed = sorted(k for k in {*key, *task.key} if key.get(k) != task.key.get(k))
    if changed:
        return "stale", document, tuple(changed)
    if status == "failed":
        return "failed", document, ()
    kept = task.keep_trace and task.scenario.keep is None
    if kept and not (task.folder / "trace.json").is_file():
        return "missing", None, ()
    return "done", document, ()


def run_cell(task: CellTask) -> dict[str, Any]:
    """Simulate a cell and write its folder; returns the document of its ``result.json``.

    A failure is a result too: its document has the error, ``error.txt`` the traceback.
    """
    try:
        outcome = run_scenario(task.scenario, task.config_dirs)
    except Exception as error:
        text = str(error) if isinstance(error, HetsimError) else f"{type(error).__name__}: {error}"
        return _write_failure(task, own_error(error) or text, traceback.format_exc())
    if task.keep_trace and outcome.trace is not None:
        outcome.trace.save(task.folder)
    document = _with_cell(task, outcome.result())
    (task.folder / "error.txt").unlink(missing_ok=True)
    atomic.write_text(task.folder / "command.txt", task.command + "\n")
    atomic.write_json(task.folder / "result.json", document)
    return document


def cell_files(task: CellTask) -> dict[str, bytes]:
    """Simulate a cell on another machine; returns the files of its folder, which :func:`keep_files` writes.

    Raises:
        InvalidInput: this machine sees other files or another version than the one that asks.
    """
    for folder in task.config_dirs:
        if not folder.is_dir():
            raise InvalidInput(f"{_here()} has no folder {folder}; {_SHARE}")
    key = source_digests(task.scenario, task.config_dirs) | {"code": code_digest()}
    if differ := sorted(name for name in {*key, *task.key} if key.get(name) != task.key.get(name)):
        raise InvalidInput(f"{_here()} has another {', '.join(differ)} than this machine; {_SHARE}")
    with tempfile.TemporaryDirectory(prefix="hetsim-") as made:
        run_cell(replace(task, folder=Path(made)))
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


_SHARE = (
    "install the same version of hetsim there, and keep your own files where all machines see them"
)


def _here() -> str:
    return f"The worker on {socket.gethostname()}"


def keep_files(task: CellTask, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write the folder of a cell, ``result.json`` last; returns that file's document."""
    if "error.txt" not in files:
        (task.folder / "error.txt").unlink(missing_ok=True)
    for name in sorted(files, key="result.json".__eq__):
        with atomic.replacing(task.folder / name) as temporary:
            temporary.write_bytes(files[name])
    return read_document(task.folder / "result.json")


def _write_failure(task: CellTask, error: str, details: str) -> dict[str, Any]:
    """Record that a cell failed; returns the document."""
    scenario = task.scenario
    model, cluster = model_label(scenario), scenario.cluster.name
    if scenario.bare:
        model = cluster = scenario.family.name
        if scenario.instance is not None:
            model = cluster = Path(scenario.instance).stem
    document = {
        "format": FORMAT,
        "hash": task.hash,
        "status": "failed",
        "error": error,
        "labels": {
            "model": model,
            "batch": 1 if scenario.bare else scenario.model.batch,
            "cluster": cluster,
            "scheduler": label_of(scenario, task.config_dirs),
            "workload": scenario.workload.name,
        },
        "config": scenario.document(),
        "versions": versions(),
        "revision": revision(),
    }
    document = _with_cell(task, document)
    atomic.write_text(task.folder / "command.txt", task.command + "\n")
    atomic.write_text(task.folder / "error.txt", details)
    atomic.write_json(task.folder / "result.json", document)
    return document


def _with_cell(task: CellTask, document: dict[str, Any]) -> dict[str, Any]:
    labels = dict(document["labels"])
    # What an axis changes within a model, a cluster or a workload must show in its name, or tables
    # would take different things for one.
    for group in ("model", "cluster", "workload", "family"):
        changed = [
            f"{axis.removeprefix(group + '.')}={value}"
            for axis, value in task.choices.items()
            if axis.startswith(f"{group}.") and axis != "model.batch"
        ]
        if changed:
            label = "model" if group == "family" else group
            labels[label] = f"{labels[label]}({', '.join(changed)})"
    return document | {
        "labels": labels,
        "key": dict(task.key),
        "choices": dict(task.choices),
        "command": task.command,
    }


def trace_graph(task: CellTask) -> str | None:
    """Put the graph of a cell's model into the cache on disk; returns the error if it cannot be."""
    try:
        graph_of(_model(task))
    except HetsimError as error:
        return own_error(error) or str(error)
    return None


def has_graph(task: CellTask) -> bool:
    """Whether the graph of a cell's model is in the cache on disk."""
    return is_kept(_model(task))


def _model(task: CellTask) -> ModelConfig:
    model = task.scenario.model
    return replace(model, target=resolve_class_path(model.target, task.config_dirs))
