"""What a trace keeps of a graph, so that every figure can be worked out from the trace alone.

A record is a mapping, JSON-ready, with the keys

``name``, ``batch``
    of the graph; ``batch`` is null where it has none.
``operators``, ``kinds``
    of every operator, in the graph's order.
``bytes``, ``roles``
    of every tensor; ``roles`` is one text with a letter each: ``i`` input, ``w`` weight, ``a``
    activation.
``reads``, ``writes``
    ``{"count": [int], "tensor": [int]}``: how many tensors each operator reads (writes), and these
    tensors, one operator after another.
``results``
    the tensors that a job must deliver.
``weights``
    names of the tensors of role ``w``, in order: graphs of one model share weights by name.
``inner``
    bytes that each operator keeps for itself while it runs; empty, or not there, where none does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.csr import CSR
from simulator.model.graph import DataflowGraph
from simulator.model.operator import MOST_BYTES


class GraphRecord(Mapping[str, Any]):
    """The record of a graph, each key worked out when somebody asks: a run that nobody saves does
    not pay for it.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = _KEYS[key](self._graph)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def __repr__(self) -> str:
        return f"GraphRecord({self._graph.name!r})"

    @cached_property
    def arrays(self) -> GraphArrays:
        """The record as index arrays, without the lists in between."""
        graph = self._graph
        result, weight = (np.zeros(len(graph.tensor_bytes), dtype=bool) for _ in range(2))
        result[list(graph.outputs)] = True
        weight[list(graph.weights)] = True
        reads, writes = graph.reads_csr, graph.writes_csr
        return GraphArrays(
            graph.tensor_bytes,
            weight,
            result,
            graph.tensor_producer,
            reads.row_of,
            reads.values,
            writes.row_of,
            writes.values,
            self["weights"],
            np.array(graph.inner_bytes, dtype=np.float64),
        )


_KEYS: Mapping[str, Callable[[DataflowGraph], Any]] = {
    "name": lambda graph: graph.name,
    "batch": lambda graph: graph.batch,
    "operators": lambda graph: graph.operator_names,
    "kinds": lambda graph: graph.operator_kinds,
    "bytes": lambda graph: graph.tensor_bytes.tolist(),
    "roles": lambda graph: _roles(graph),
    "reads": lambda graph: _rows(graph.reads_csr),
    "writes": lambda graph: _rows(graph.writes_csr),
    "results": lambda graph: list(graph.outputs),
    "weights": lambda graph: [graph.tensors[i].name for i in graph.weights],
    "inner": lambda graph: list(graph.inner_bytes),
}
_OPTIONAL = frozenset({"inner"})


def _roles(graph: DataflowGraph) -> str:
    letters = np.full(len(graph.tensor_bytes), ord("a"), dtype=np.uint8)
    letters[list(graph.inputs)] = ord("i")
    letters[list(graph.weights)] = ord("w")
    return letters.tobytes().decode("ascii")


def _rows(rows: CSR) -> dict[str, list[int]]:
    return {"count": rows.lengths.tolist(), "tensor": rows.values.tolist()}


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """A record as arrays.

    Attributes:
        bytes: float64[tensors].
        weight, result: bool[tensors].
        producer: int[tensors], the operator that writes it, -1 for inputs and weights.
        read_operator, read_tensor: int[reads], by operator.
        write_operator, write_tensor: int[writes], by operator.
        weight_names: of the weights, in order of tensor.
        inner: float64[operators], bytes; or none.
    """

    bytes: np.ndarray
    weight: np.ndarray
    result: np.ndarray
    producer: np.ndarray
    read_operator: np.ndarray
    read_tensor: np.ndarray
    write_operator: np.ndarray
    write_tensor: np.ndarray
    weight_names: Sequence[str]
    inner: np.ndarray

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> GraphArrays:
        """The arrays of a record; one that is read again and again keeps them."""
        size = np.array(record["bytes"], dtype=np.float64)
        result = np.zeros(len(size), dtype=bool)
        result[np.array(record["results"], dtype=np.int64)] = True
        reads, writes = _entries(record["reads"]), _entries(record["writes"])
        producer = np.full(len(size), -1, dtype=np.int64)
        producer[writes[1]] = writes[0]
        weight = np.frombuffer(record["roles"].encode("ascii"), dtype=np.uint8) == ord("w")
        inner = np.array(record.get("inner", ()), dtype=np.float64)
        return cls(size, weight, result, producer, *reads, *writes, record["weights"], inner)


def _entries(rows: Mapping[str, Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Row and value of every entry."""
    count = np.array(rows["count"], dtype=np.int64)
    return np.repeat(np.arange(len(count)), count), np.array(rows["tensor"], dtype=np.int64)


def arrays_of(record: Mapping[str, Any]) -> GraphArrays:
    """The arrays of a record, kept by those that can keep them."""
    return record.arrays if isinstance(record, GraphRecord) else GraphArrays.of(record)


def check_record(record: Any, where: str) -> None:
    """Refuse a record, read from a file, that contradicts itself.

    Args:
        record: as JSON gave it.
        where: what the message calls it.

    Raises:
        InvalidInput: names what is wrong.
    """
    needed = [key for key in _KEYS if key not in _OPTIONAL]
    missing = [key for key in needed if not isinstance(record, dict) or key not in record]
    if missing:
        raise InvalidInput(f"{where} lacks {', '.join(missing)}; simulate the run again")
    operators, tensors = record["operators"], record["bytes"]
    for key in ("operators", "kinds", "weights"):
        _check(isinstance(record[key], list) and _all(record[key], str), where, key)
    _check(isinstance(tensors, list) and _all(tensors, int, float), where, "bytes")
    _check(all(0 <= size <= MOST_BYTES for size in tensors), where, "bytes")
    inner = record.get("inner", [])
    _check(isinstance(inner, list) and _all(inner, int, float), where, "inner")
    right = len(inner) in (0, len(operators)) and all(0 <= size <= MOST_BYTES for size in inner)
    _check(right, where, "inner")
    roles = record["roles"]
    _check(isinstance(roles, str) and {*roles} <= {*"iwa"}, where, "roles")
    _check(
        len(roles) == len(tensors) and roles.count("w") == len(record["weights"]), where, "roles"
    )
    _check(len(record["kinds"]) == len(operators), where, "kinds")
    _check_tensors(record["results"], len(tensors), where, "results")
    for key in ("reads", "writes"):
        rows = record[key]
        _check(isinstance(rows, dict) and {"count", "tensor"} <= rows.keys(), where, key)
        counts = rows["count"]
        _check(isinstance(counts, list) and _all(counts, int), where, key)
        _check_tensors(rows["tensor"], len(tensors), where, key)
        right = len(counts) == len(operators) and min(counts, default=0) >= 0
        _check(right and sum(counts) == len(rows["tensor"]), where, key)


def _check(right: bool, where: str, key: str) -> None:
    if not right:
        raise InvalidInput(f"{where} contradicts itself in '{key}'; simulate the run again")


def _check_tensors(values: Any, tensors: int, where: str, key: str) -> None:
    right = isinstance(values, list) and _all(values, int)
    _check(right and (not values or 0 <= min(values) <= max(values) < tensors), where, key)


def _all(values: list[Any], *kinds: type) -> bool:
    return {*map(type, values)} <= {*kinds}
