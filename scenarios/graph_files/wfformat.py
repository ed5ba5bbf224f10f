"""Workflows in WfCommons' WfFormat (https://github.com/wfcommons/WfFormat), versions 1.0 to 1.6.

A task's work is its ``runtimeInSeconds`` (``runtime`` up to 1.3), whatever machine it ran on; an edge's
data are the bytes of the files that its producer writes and its consumer reads (``sizeInBytes``; ``size``
up to 1.3, bytes as WfCommons' own migration takes it). Files that no task writes are there from the start
and cost nothing. Cores, memory, energy and machines are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.graph_files.values import EQUAL_DATA, EQUAL_WORK, moved_bytes, number_of, shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput

ONE_LIST = ("1.0", "1.1", "1.2", "1.3", "1.4")
"""Versions in which a task says everything of itself; later ones part what it is from how it ran."""
VERSIONS = (*ONE_LIST, "1.5", "1.6")


def read_wfformat(document: Any) -> Shape:
    """The graph of a document; without any runtimes every task has work 1.

    Raises:
        InvalidInput: says what is wrong and with which task.
    """
    version = document.get("schemaVersion") if isinstance(document, Mapping) else None
    if isinstance(version, float):
        version = str(version)
    if version not in VERSIONS:
        raise InvalidInput(
            f"WfFormat of schemaVersion {shown(version)} is not read, {', '.join(VERSIONS)} are"
        )
    workflow = _mapping(document.get("workflow"), "'workflow'")
    old = version in ONE_LIST
    part = workflow if old else _mapping(workflow.get("specification"), "'specification'")
    listed = "jobs" if old and "tasks" not in part else "tasks"  # up to 1.2
    tasks = _rows(part.get(listed), f"'{listed}'")
    if not tasks:
        raise InvalidInput("The workflow has no tasks")
    check_size(len(tasks), 0)
    names = [_text(task, "id" if "id" in task or not old else "name", "A task") for task in tasks]
    index: dict[str, int] = {}
    for number, name in enumerate(names):
        if name in index:
            raise InvalidInput(f"Two tasks have the id {shown(name)}")
        index[name] = number
    if old:  # these refer to tasks by name, or by id
        for number, task in enumerate(tasks):
            index.setdefault(_text(task, "name", f"Task {shown(names[number])}"), number)
    edges: dict[tuple[int, int], None] = {}
    for number, task in enumerate(tasks):
        what = f"Task {shown(names[number])}"
        for key in ("parents", "children"):
            for other in _texts(task.get(key, []), f"{what}: '{key}'"):
                if other not in index:
                    raise InvalidInput(f"{what} names {shown(other)} in '{key}', which is no task")
                pair = (index[other], number) if key == "parents" else (number, index[other])
                edges[pair] = None
    check_size(len(tasks), len(edges))
    files = _own_files(tasks, names) if old else _listed_files(part, tasks, names)
    data = moved_bytes(list(edges), *files, names)
    runtimes = _runtimes(workflow, tasks, index, old)
    if None in runtimes and any(value is not None for value in runtimes):
        raise InvalidInput(
            f"Task {shown(names[runtimes.index(None)])} has no runtimeInSeconds, though others have"
        )
    notes = []
    if None in runtimes:
        notes.append(f"no task has a runtime: {EQUAL_WORK}")
    if edges and data is None:
        notes.append(f"no edge moves a file with a size: {EQUAL_DATA}")
    work = [1.0 if value is None else value for value in runtimes]
    return Shape.of(list(edges), work, data or [0.0] * len(edges), names, notes)


_Files = tuple[list[dict[str, float | None]], list[dict[str, float | None]]]


def _own_files(tasks: list[Mapping[str, Any]], names: list[str]) -> _Files:
    """For each task the files that it writes and those that it reads, with their bytes."""
    written: list[dict[str, float | None]] = [{} for _ in tasks]
    read: list[dict[str, float | None]] = [{} for _ in tasks]
    for number, task in enumerate(tasks):
        what = f"Task {shown(names[number])}"
        for file in _rows(task.get("files", []), f"{what}: 'files'"):
            name = _text(file, "name", f"A file of {what}")
            key = next((key for key in ("sizeInBytes", "size") if key in file), None)
            size = None if key is None else number_of(file[key], f"{what}: {key} of {shown(name)}")
            path = f"{file.get('path') or ''}{name}"
            link = file.get("link")
            if link not in ("input", "output"):
                raise InvalidInput(
                    f"{what}: file {shown(name)} has link {shown(link)}, not input or output"
                )
            (written if link == "output" else read)[number][path] = size
    return written, read


def _listed_files(
    part: Mapping[str, Any], tasks: list[Mapping[str, Any]], names: list[str]
) -> _Files:
    """The same where all files stand in a list of their own."""
    sizes = _sizes(part)
    found: dict[str, list[dict[str, float | None]]] = {
        key: [{} for _ in tasks] for key in ("outputFiles", "inputFiles")
    }
    for number, task in enumerate(tasks):
        what = f"Task {shown(names[number])}"
        for key, rows in found.items():
            for name in _texts(task.get(key, []), f"{what}: '{key}'"):
                if name not in sizes:
                    raise InvalidInput(f"{what} names file {shown(name)}, which 'files' lacks")
                rows[number][name] = sizes[name]
    return found["outputFiles"], found["inputFiles"]


def _sizes(part: Mapping[str, Any]) -> dict[str, float]:
    """Bytes of each file by its id."""
    return {
        (name := _text(file, "id", "A file")): number_of(
            file.get("sizeInBytes"), f"File {shown(name)}: sizeInBytes"
        )
        for file in _rows(part.get("files", []), "'files'")
    }


def _runtimes(
    workflow: Mapping[str, Any], tasks: list[Mapping[str, Any]], index: Mapping[str, int], old: bool
) -> list[float | None]:
    """Seconds of each task, None where the file does not say."""
    found: list[float | None] = [None] * len(tasks)
    rows = tasks
    if not old:
        execution = _mapping(workflow.get("execution", {}), "'execution'")
        rows = _rows(execution.get("tasks", []), "'tasks' of 'execution'")
    for number, row in enumerate(rows):
        if not old:
            name = _text(row, "id", "An executed task")
            if name not in index:
                raise InvalidInput(f"'execution' names {shown(name)}, which is no task")
            number = index[name]
        key = "runtime" if old and "runtimeInSeconds" not in row else "runtimeInSeconds"
        if key in row or not old:
            found[number] = number_of(row.get(key), f"Task {number}: {key}")
    return found


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{what} of a WfFormat file must be an object, not {shown(value)}")
    return value


def _rows(value: Any, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise InvalidInput(f"{what} must be a list of objects, not {shown(value)}")
    return value


def _text(row: Mapping[str, Any], key: str, what: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{what} needs a text '{key}', got {shown(value)}")
    return value


def _texts(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise InvalidInput(f"{what} must be a list of texts, not {shown(value)}")
    return value
