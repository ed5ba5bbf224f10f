"""Files of what ran elsewhere, or of a model from elsewhere, read by their suffix and content.

=================================================  =======================  ============  ===========
file                                               replay (``instance=``)   priced        task graph
=================================================  =======================  ============  ===========
``.json`` of PyTorch's profiler                    yes                      yes           yes
``.et`` of Chakra                                  yes                      no            yes
``.onnx``                                          no                       yes           no
``.json`` of a graph (``graph.json`` of a run)     no                       yes           no
=================================================  =======================  ============  ===========

Behind ``@`` a path may say which part is meant: ``trace.json@3`` is ``ProfilerStep#3``, ``trace.json@forward`` the last
``record_function("forward")``, ``net.onnx@N:8+seq:128`` gives sizes to dimensions that have names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios.graph_files.chakra import chakra_instance, chakra_shape, read_chakra
from scenarios.graph_files.execution_trace import Call, is_execution_trace, read_execution_trace
from scenarios.graph_files.kineto import Iteration, is_kineto, read_kineto
from scenarios.graph_files.kineto_replay import replay
from scenarios.graph_files.values import file_bytes, parse_json
from scenarios.random_graphs.shape import Shape
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph

OBSERVED = ".et.json"
"""Ends the name of an ExecutionTraceObserver's file beside ``trace.json``: ``trace.et.json``."""
_log = logging.getLogger(__name__)


def split_part(path: str | Path) -> tuple[Path, str | None]:
    """A file, and which part of it is meant: what stands behind the last ``@``, where the whole is no file."""
    path = Path(path).expanduser()
    name, at, part = path.name.rpartition("@")
    if path.exists() or not (at and name and part):
        return path, None
    return path.with_name(name), part


def suffix_of(path: Path) -> str:
    """The part of a file's name that says its form, in lower case, without ``.gz``."""
    path = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return path.suffix.lower()


def files_of(path: str | Path) -> list[Path]:
    """The files that reading one takes: itself, and an ExecutionTraceObserver's beside it."""
    path, _ = split_part(path)
    beside = _beside(path)
    return [path] if beside is None else [path, beside]


def read_graph_file(path: str | Path) -> DataflowGraph:
    """The graph of a model's file, for cost models to price.

    Raises:
        InvalidInput: it cannot be read, is of no form that is known, or says no shapes.
    """
    path, part = split_part(path)
    suffix = suffix_of(path)
    if suffix not in (".onnx", ".json"):
        raise InvalidInput(
            f"{path} is no graph that cost models can price: an .onnx, a .json of PyTorch's profiler recorded with shapes, or "
            "a graph.json of a run"
        )
    data = file_bytes(path)
    try:
        if suffix == ".onnx":
            from scenarios.graph_files.onnx_graph import read_onnx

            return read_onnx(data, path.stem, part)
        document = parse_json(data)
        if not is_kineto(document):
            _refuse_observed(document)
            refuse_part(part)
            return DataflowGraph.from_json(document)
        from scenarios.graph_files.kineto_operators import read_operators

        iteration = read_kineto(document, part)
        found = read_operators(iteration, named(path, part), _calls(path))
        if not any(operator.inputs for operator in found.graph.operators):
            raise InvalidInput(
                "It was recorded without shapes, so that nothing can be priced; record it by "
                f"profile(record_shapes=True), or replay its times: instance={path}"
            )
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    _log.warning("%s: %s", path, "; ".join(found.notes))
    return found.graph


def holds_graph(path: Path) -> bool:
    """Whether a file is a model's graph, ``.onnx`` or a run's ``graph.json``, and no instance or trace to be replayed."""
    suffix = suffix_of(path)
    if suffix != ".json":
        return suffix == ".onnx"
    document = parse_json(file_bytes(path))
    return isinstance(document, dict) and "operators" in document


def is_recorded(path: Path, document: Any) -> bool:
    """Whether a file, JSON already read, is a trace: of PyTorch's profiler or observer, or of Chakra."""
    return suffix_of(path) == ".et" or is_kineto(document) or is_execution_trace(document)


def read_replay(
    path: Path, part: str | None, document: Any, say: Callable[[str], None]
) -> tuple[DataflowGraph, Cluster, CostTable]:
    """What a trace says ran, where and for how long. Arguments as :func:`read_recorded_shape`."""
    if suffix_of(path) == ".et":
        refuse_part(part)
        return chakra_instance(read_chakra(file_bytes(path)), path.stem, say)
    iteration = _iteration(document, part)
    say(f"{path}: '{iteration.name}' took {iteration.seconds:.6g} s when it was recorded")
    return replay(iteration, named(path, part))


def read_recorded_shape(path: Path, part: str | None, document: Any) -> Shape:
    """The tasks of a trace with their measured seconds, whatever ran them.

    Args:
        path: of the file.
        part: of it, see the module docstring.
        document: as JSON gave it; None of other files.

    Raises:
        InvalidInput: says what is wrong.
    """
    if suffix_of(path) == ".et":
        refuse_part(part)
        return chakra_shape(read_chakra(file_bytes(path)))
    from scenarios.graph_files.kineto_operators import read_operators

    return read_operators(_iteration(document, part), named(path, part), _calls(path)).shape()


def named(path: Path, part: str | None) -> str:
    """What tables call the graph of a file."""
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    return stem if part is None else f"{stem}@{part}"


def _iteration(document: Any, part: str | None) -> Iteration:
    _refuse_observed(document)
    return read_kineto(document, part)


def _refuse_observed(document: Any) -> None:
    if is_execution_trace(document):
        raise InvalidInput(
            f"It is an ExecutionTraceObserver's file, which has no times; call it NAME{OBSERVED}, lay it beside the "
            "profiler's NAME.json, and name that"
        )


def refuse_part(part: str | None) -> None:
    """Refuse a part of a file that has none."""
    if part is not None:
        raise InvalidInput(f"It has no parts to choose from; leave out '@{part}'")


def _beside(path: Path) -> Path | None:
    if suffix_of(path) != ".json" or path.name.endswith((OBSERVED, f"{OBSERVED}.gz")):
        return None
    stem = named(path, None)
    names = (f"{stem}{OBSERVED}", f"{stem}{OBSERVED}.gz")
    return next((found for name in names if (found := path.with_name(name)).is_file()), None)


def _calls(path: Path) -> Mapping[int, Call] | None:
    beside = _beside(path)
    if beside is None:
        return None
    try:
        return read_execution_trace(parse_json(file_bytes(beside)))
    except InvalidInput as error:
        raise InvalidInput(f"{beside.name} beside it: {error}") from None
