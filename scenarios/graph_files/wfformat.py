"""Workflows in WfCommons' WfFormat (https://github.com/wfcommons/WfFormat), versions 1.4 to 1.6.

A task's work is its ``runtimeInSeconds``, whatever machine it ran on; an edge's data are the bytes of
the files that its producer writes and its consumer reads. Files that no task writes are there from the
start and cost nothing. Cores, memory, energy and machines are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.graph_files.values import number_of, shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput

VERSIONS = ("1.4", "1.5", "1.6")


def read_wfformat(document: Any) -> Shape:
    """The graph of a document; without any runtimes every task has work 1.

    Raises:
        InvalidInput: says what is wrong and with which task.
    """
    version = document.get("schemaVersion") if isinstance(document, Mapping) else None
    if version not in VERSIONS:
        raise InvalidInput(
            f"WfFormat {shown(version)} is not read, {', '.join(VERSIONS)} are; WfFormat's "
            "wfcommons-migrate-instance.py brings older files up to date"
        )
    workflow = _mapping(document.get("workflow"), "'workflow'")
    old = version == "1.4"
    part = workflow if old else _mapping(workflow.get("specification"), "'specification'")
    tasks = _rows(part.get("tasks"), "'tasks'")
    if not tasks:
        raise InvalidInput("The workflow has no tasks")
    check_size(len(tasks), 0)
    names = [_text(task, "id" if "id" in task or not old else "name", "A task") for task in tasks]
    index: dict[str, int] = {}
    for number, (name, task) in enumerate(zip(names, tasks, strict=True)):
        if name in index:
            raise InvalidInput(f"Two tasks have the id {shown(name)}")
        index[name] = number
        if old:  # 1.4 refers to tasks by name
            index.setdefault(_text(task, "name", f"Task {shown(name)}"), number)
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
    written, read = _files(part, tasks, names, old)
    data = [
        sum(written[source][file] for file in written[source].keys() & read[target])
        for source, target in edges
    ]
    runtimes = _runtimes(workflow, tasks, index, old)
    if None in runtimes and any(value is not None for value in runtimes):
        raise InvalidInput(
            f"Task {shown(names[runtimes.index(None)])} has no runtimeInSeconds, though others have"
        )
    work = [1.0 if value is None else value for value in runtimes]
    return Shape.of(list(edges), work, data, names)


def _files(
    part: Mapping[str, Any], tasks: list[Mapping[str, Any]], names: list[str], old: bool
) -> tuple[list[dict[str, float]], list[set[str]]]:
    """For each task the files that it writes with their bytes, and those that it reads."""
    written: list[dict[str, float]] = [{} for _ in tasks]
    read: list[set[str]] = [set() for _ in tasks]
    sizes = {} if old else _sizes(part)
    for number, task in enumerate(tasks):
        what = f"Task {shown(names[number])}"
        if old:
            for file in _rows(task.get("files", []), f"{what}: 'files'"):
                name = _text(file, "name", f"A file of {what}")
                size = number_of(file.get("sizeInBytes"), f"{what}: sizeInBytes of {shown(name)}")
                link = file.get("link")
                if link == "output":
                    written[number][name] = size
                elif link == "input":
                    read[number].add(name)
                else:
                    raise InvalidInput(
                        f"{what}: file {shown(name)} has link {shown(link)}, not input or output"
                    )
            continue
        for key in ("inputFiles", "outputFiles"):
            for name in _texts(task.get(key, []), f"{what}: '{key}'"):
                if name not in sizes:
                    raise InvalidInput(f"{what} names file {shown(name)}, which 'files' lacks")
                if key == "inputFiles":
                    read[number].add(name)
                else:
                    written[number][name] = sizes[name]
    return written, read


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
        if "runtimeInSeconds" in row or not old:
            found[number] = number_of(
                row.get("runtimeInSeconds"), f"Task {number}: runtimeInSeconds"
            )
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
