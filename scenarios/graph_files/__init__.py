"""Task graphs from files: STG, DOT, Pegasus DAX, WfFormat, and traces of PyTorch and Chakra.

Models and recordings from elsewhere are in :mod:`scenarios.graph_files.recorded`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scenarios.graph_files.dax import read_dax
from scenarios.graph_files.dot import read_dot
from scenarios.graph_files.recorded import (
    holds_graph,
    is_recorded,
    read_graph_file,
    read_recorded_shape,
    refuse_part,
    split_part,
    suffix_of,
)
from scenarios.graph_files.stg import read_stg
from scenarios.graph_files.values import file_bytes, parse_json
from scenarios.graph_files.wfformat import read_wfformat
from scenarios.random_graphs.shape import Shape
from simulator.errors import InvalidInput

FORMS = (
    "an .stg of the Standard Task Graph Set, a .dot of Graphviz, a .dax or .xml of Pegasus, an .et of Chakra, or a "
    ".json of WfFormat or PyTorch's profiler"
)
__all__ = [
    "FORMS",
    "holds_graph",
    "is_workflow",
    "names_a_graph",
    "read_dax",
    "read_dot",
    "read_graph",
    "read_graph_file",
    "read_stg",
    "read_wfformat",
    "refuse_unknown_json",
]


def read_graph(path: str | Path) -> Shape:
    """The task graph of a file; its name says its form (``.stg``, ``.dot`` or ``.gv``, ``.dax`` or ``.xml``,
    ``.et``, ``.json``; each perhaps gzipped, ``.gz``).

    Raises:
        InvalidInput: the file cannot be read, is of none of these forms, or is a bare instance.
    """
    path, part = split_part(path)
    suffix = suffix_of(path)
    if suffix not in (*_READERS, ".json", ".et"):
        raise InvalidInput(f"{path} is no graph file that is known: {FORMS}")
    data = file_bytes(path)
    try:
        document = parse_json(data) if suffix == ".json" else None
        if is_recorded(path, document):
            return read_recorded_shape(path, part, document)
        refuse_part(part)
        return _of_json(document) if suffix == ".json" else _READERS[suffix](data)
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not text in UTF-8; was it damaged?") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def names_a_graph(path: Path) -> bool:
    """Whether a file's name says that it is a task graph without devices; that of JSON says nothing."""
    return suffix_of(path) in _READERS


def is_workflow(document: Any) -> bool:
    """Whether a JSON document is meant as WfFormat."""
    return isinstance(document, dict) and "workflow" in document and "cost" not in document


def refuse_unknown_json(document: Any) -> None:
    """Refuse JSON that is neither WfFormat nor a bare instance (:mod:`scenarios.instances`).

    Raises:
        InvalidInput: says so.
    """
    if not (isinstance(document, dict) and ("workflow" in document or "cost" in document)):
        raise InvalidInput(
            "It is JSON of no form that is known: neither WfFormat (an object with 'workflow') nor a bare "
            "instance (an object with 'cost' and 'edges') nor a trace of PyTorch's profiler ('traceEvents')"
        )


def _of_json(document: Any) -> Shape:
    refuse_unknown_json(document)
    if not is_workflow(document):
        raise InvalidInput("It brings devices and times along; leave out the family")
    return read_wfformat(document)


def _of_text(read: Callable[[str], Shape]) -> Callable[[bytes], Shape]:
    return lambda data: read(data.decode("utf-8-sig"))


_READERS: dict[str, Callable[[bytes], Shape]] = {
    ".stg": _of_text(read_stg),
    ".dot": _of_text(read_dot),
    ".gv": _of_text(read_dot),
    ".dax": read_dax,
    ".xml": read_dax,
}
"""By suffix. JSON may be more than one form."""
