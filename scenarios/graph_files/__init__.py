"""Task graphs from files that say nothing of devices: STG, DOT, WfFormat."""

from __future__ import annotations

import json
from pathlib import Path

from scenarios.graph_files.dot import read_dot
from scenarios.graph_files.stg import read_stg
from scenarios.graph_files.wfformat import read_wfformat
from scenarios.random_graphs.shape import Shape
from simulator.errors import InvalidInput

FORMS = "an .stg of the Standard Task Graph Set, a .dot of Graphviz, or a .json of WfFormat"
__all__ = ["FORMS", "is_bare_instance", "read_dot", "read_graph", "read_stg", "read_wfformat"]


def read_graph(path: str | Path) -> Shape:
    """The task graph of a file; its name says its form (``.stg``, ``.dot`` or ``.gv``, ``.json``).

    Raises:
        InvalidInput: the file cannot be read, or is of none of these forms.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not text in UTF-8; was it damaged?") from None
    suffix = path.suffix.lower()
    try:
        if suffix == ".stg":
            return read_stg(text)
        if suffix in (".dot", ".gv"):
            return read_dot(text)
        if suffix == ".json":
            return read_wfformat(_json(text))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    raise InvalidInput(f"{path} is no graph file that is known: {FORMS}")


def is_bare_instance(path: str | Path) -> bool:
    """Whether a file brings times of devices along: JSON that is no WfFormat, or not JSON at all.

    What is neither is refused by :func:`scenarios.load_instance`, which says why.
    """
    path = Path(path)
    if path.suffix.lower() in (".stg", ".dot", ".gv"):
        return False
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True
    return not (isinstance(document, dict) and "workflow" in document and "cost" not in document)


def _json(text: str) -> object:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"It is not JSON ({error}); was it truncated?") from None
    return document
