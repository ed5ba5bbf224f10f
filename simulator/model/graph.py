"""Dataflow graphs: operators, the tensors between them, and one JSON form.

A :class:`DataflowGraph` is what every other part of the program speaks about: tracing makes it,
cost models price it, planners read its index arrays and the engine executes it. It is immutable and
topologically ordered: operator ``i`` only reads tensors written by operators ``< i``.

JSON form (``hetsim.graph/1``), the keys of one document::

    {"format": "hetsim.graph/1", "name": str, "batch": int | null,
     "tensors":   [{"name": str, "role": "input" | "weight" | "activation",
                    "shape": [int], "dtype": str, "strides": [int]?   (absent: contiguous)
                    "bytes": float?                                   (instead of shape and dtype)}],
     "operators": [{"name": str, "kind": str, "target": str, "template": {...}, "attributes": {...},
                    "inputs": [spec], "outputs": [spec], "reads": [tensor name], "writes": [tensor name]}],
     "results":   [{"tensor": name, "views": [...]} | {"value": ...}],
     "unchecked": str?}        (why a traced graph was not held against its module, where it was not)

Operators may stand in any order in the file; they are sorted when it is read.

Argument template (what :func:`calibration.kernels.build` makes runnable)::

    {"args": [node], "kwargs": {name: node}}
    node = null | bool | int | float | str | [node]
         | {"read": r, "views": [view]}       the operator's r-th read tensor, seen through views
         | {"dtype": str} | {"device": true} | {"layout": str} | {"memory_format": str}
         | {"float": "inf" | "-inf" | "nan"}
    view = [target, args, kwargs]             with {"self": true} where the tensor goes, or ["getitem", i]

``inputs`` are the tensors as the kernel sees them (after the views), one for each ``read`` leaf of the
template from left to right; ``reads`` are the distinct stored tensors behind them. An operator that changes a
tensor in place reads that first and writes what becomes of it; its ``outputs`` are the part that it writes, and
``inputs`` have for the first leaf the part that it reads, or nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.csr import CSR, python_integers

if TYPE_CHECKING:
    import networkx

FORMAT = "hetsim.graph/1"
Role = Literal["input", "weight", "activation"]
ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "float32": 4,
    "tf32": 4,  # in measurement tables: float32 whose products are rounded
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


_ROLES: Mapping[str, int] = {"activation": 0, "input": 1, "weight": 2}
MOST_EDGES = 2**31 - 1
MOST_BYTES = 2.0**63
"""Larger tensors are taken for errors of a file."""


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(int(length), 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, element type and layout of a tensor. ``strides=None`` means contiguous."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str, strides: Sequence[int]) -> TensorSpec:
        """The spec of a tensor with these strides: row-major ones become None.

        The stride of a dimension of length 1 has no meaning and is written as the row-major one.
        """
        row_major = contiguous_strides(shape)
        actual = tuple(
            default if length == 1 else int(step)
            for length, step, default in zip(shape, strides, row_major, strict=True)
        )
        return cls(tuple(map(int, shape)), dtype, None if actual == row_major else actual)

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements, whatever the layout.

        Raises:
            InvalidInput: the element type is unknown.
        """
        try:
            return self.elements * ITEM_BYTES[self.dtype]
        except KeyError:
            known = ", ".join(ITEM_BYTES)
            raise InvalidInput(
                f"Unknown element type {_short(self.dtype)}. Known: {known}"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """The spec as a JSON object; contiguous strides are left out."""
        document: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype}
        if self.strides is not None:
            document["strides"] = list(self.strides)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TensorSpec:
        """Read :meth:`to_json`'s form; a shape that is not of non-negative integers is refused."""
        if not isinstance(document, Mapping) or not {"shape", "dtype"} <= document.keys():
            raise InvalidInput(f"A tensor needs 'shape' and 'dtype', got {_short(document)}")
        shape, dtype, strides = document["shape"], document["dtype"], document.get("strides")
        for numbers in (shape, [] if strides is None else strides):
            if not isinstance(numbers, list) or not all(map(_is_length, numbers)):
                raise InvalidInput(
                    f"Shapes and strides are lists of integers from 0 to 2^63, got {_short(document)}"
                )
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            known = ", ".join(ITEM_BYTES)
            raise InvalidInput(f"Unknown element type {_short(dtype)}. Known: {known}")
        if strides is None:
            return cls(tuple(shape), dtype)
        if len(strides) != len(shape):
            raise InvalidInput(f"Strides and shape have different lengths in {_short(document)}")
        return cls.of(shape, dtype, strides)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named value of a graph: a job's input, a weight, or what an operator wrote.

    ``bytes`` is what a transfer of it moves; bare instances have bytes and no spec. ``value`` is there
    for constants that a model's code makes and no module holds: the base64 of their elements.
    """

    name: str
    role: Role
    bytes: float
    spec: TensorSpec | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One kernel call. See the module docstring for ``template``, ``inputs`` and ``reads``."""

    name: str
    kind: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    template: Mapping[str, Any] | None = None
    reads: tuple[TensorSpec, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether it changes the first tensor that it reads (``aten.copy_.default``), which is what it writes then."""
        parts = self.target.split(".")
        return len(parts) == 3 and parts[1].endswith("_") and not parts[1].endswith("__")


class DataflowGraph:
    """An immutable, topologically ordered graph of operators.

    Args:
        name: what tables and plots call it.
        operators: in topological order.
        tensors: every value; names are unique.
        reads: for each operator the indices of the distinct tensors it reads.
        writes: for each operator the indices of the tensors it writes.
        results: how the model's outputs are made of tensors (JSON form above); the tensors named
            here are the graph's outputs.
        batch: the batch size it was made for, where it has one.
        inner_bytes: for each operator what it keeps for itself while it runs, beside what it reads and
            writes; nothing unless given.
        inner_written: for each operator the bytes that it writes in all for itself, memory that is used twice
            counted twice; nothing unless given.

    Raises:
        InvalidInput: a duplicate name, an index out of range, a tensor written twice or never, an
            operator before its producer, or bytes that are negative or not finite.
    """

    def __init__(
        self,
        name: str,
        operators: Sequence[Operator],
        tensors: Sequence[Tensor],
        reads: Sequence[Sequence[int]],
        writes: Sequence[Sequence[int]],
        results: Sequence[Mapping[str, Any]] = (),
        batch: int | None = None,
        inner_bytes: Sequence[float] = (),
        inner_written: Sequence[float] = (),
    ) -> None:
        self.name = name
        self.inner_bytes: tuple[float, ...] = tuple(inner_bytes)
        self.inner_written: tuple[float, ...] = tuple(inner_written)
        self.operators: Sequence[Operator] = tuple(operators)
        self.tensors: Sequence[Tensor] = tuple(tensors)
        self.results = tuple(results)
        self.batch = batch
        self.unchecked: str | None = None
        """Why a traced graph was not held against its module, where it was not; no part of the graph."""
        # The arrays are what there is; tuples are made of them for those who ask.
        self.reads_csr = CSR.from_rows(reads)
        self.writes_csr = CSR.from_rows(writes)
        self._role = np.array([_ROLES[tensor.role] for tensor in self.tensors], dtype=np.int8)
        self.tensor_bytes = np.array([tensor.bytes for tensor in self.tensors], dtype=np.float64)
        """float64[tensors]: bytes of every tensor."""
        self.tensor_bytes.setflags(write=False)
        if not self._is_sound():
            self._refuse(reads, writes)

    @classmethod
    def _bare(
        cls,
        name: str,
        operators: BareOperators,
        source: np.ndarray,
        target: np.ndarray,
        size: np.ndarray,
    ) -> DataflowGraph:
        """A graph of valid parts: tensor ``k`` is written by ``source[k]``, read by ``target[k]``."""
        graph = cls.__new__(cls)
        number = np.arange(len(size), dtype=np.int32)
        graph.name = name
        graph.inner_bytes = graph.inner_written = ()
        graph.operators = operators
        graph.tensors = BareTensors(operators, source, target, size)
        graph.results = ()
        graph.batch = None
        graph.unchecked = None
        graph.reads_csr = CSR.group(target, number, len(operators))
        graph.writes_csr = CSR.group(source, number, len(operators))
        graph._role = np.zeros(len(size), dtype=np.int8)
        graph.tensor_bytes = size
        return graph

    def __len__(self) -> int:
        return len(self.operators)

    def __repr__(self) -> str:
        return f"DataflowGraph({self.name!r}, {len(self)} operators, {len(self.edge_source)} edges)"

    # -- index arrays ---------------------------------------------------------------------------
    #
    # ``*_csr`` and the arrays are for vectorised and compiled code, the tuples for loops in Python.
    # Each is made when it is first asked for.

    @cached_property
    def _integers(self) -> np.ndarray:
        return python_integers(max(len(self), len(self.tensors)))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the distinct tensors it reads, in the order in which they were given."""
        return self.reads_csr.rows(self._integers)

    @cached_property
    def writes(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the tensors it writes."""
        return self.writes_csr.rows(self._integers)

    @cached_property
    def tensor_producer(self) -> np.ndarray:
        """int32[tensors]: the operator that writes each tensor, -1 for inputs and weights."""
        producer = np.full(len(self.tensors), -1, dtype=np.int32)
        producer[self.writes_csr.values] = self.writes_csr.row_of
        producer.setflags(write=False)
        return producer

    @cached_property
    def producer(self) -> tuple[int, ...]:
        """:attr:`tensor_producer` as a tuple."""
        return tuple(self.tensor_producer.tolist())

    @cached_property
    def consumers_csr(self) -> CSR:
        """:attr:`consumers` as arrays."""
        return self.reads_csr.transposed(len(self.tensors))

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the operators that read it, ascending."""
        return self.consumers_csr.rows_of_few(self._integers)

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tensor = self.reads_csr.values
        source = self.tensor_producer[tensor]
        kept = source >= 0
        columns = (source[kept], self.reads_csr.row_of[kept], tensor[kept])
        order = np.lexsort(columns[::-1])
        edges = tuple(column[order].astype(np.int64) for column in columns)
        for column in edges:
            column.setflags(write=False)
        return edges[0], edges[1], edges[2]

    @property
    def edge_source(self) -> np.ndarray:
        """int64[edges], sorted by (source, target, tensor): the producing operator."""
        return self._edges[0]

    @property
    def edge_target(self) -> np.ndarray:
        """int64[edges]: the consuming operator."""
        return self._edges[1]

    @property
    def edge_tensor(self) -> np.ndarray:
        """int64[edges]: the tensor that moves; two operators may share several tensors."""
        return self._edges[2]

    @cached_property
    def edges_by_target(self) -> np.ndarray:
        """int64[edges]: the edges by (target, source, tensor)."""
        return np.argsort(self.edge_target, kind="stable")

    @cached_property
    def edges_by_tensor(self) -> np.ndarray:
        """int64[edges]: the edges by (tensor, target)."""
        return np.argsort(self.edge_tensor, kind="stable")

    @cached_property
    def successors_csr(self) -> CSR:
        """:attr:`successors` as arrays."""
        return self.predecessors_csr.transposed(len(self))

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the distinct operators that read something it wrote, ascending."""
        return self.successors_csr.rows(self._integers)

    @cached_property
    def predecessors_csr(self) -> CSR:
        """:attr:`predecessors` as arrays."""
        source = self.tensor_producer[self.reads_csr.values]
        kept = source >= 0
        return CSR.group(self.reads_csr.row_of[kept], source[kept], len(self)).distinct()

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the distinct operators whose tensors it reads, ascending."""
        return self.predecessors_csr.rows(self._integers)

    @property
    def in_degree(self) -> np.ndarray:
        """int64[operators]: how many distinct predecessors each operator waits for."""
        return self.predecessors_csr.lengths

    @cached_property
    def activations_csr(self) -> CSR:
        """:attr:`activations_read` as arrays."""
        if not self.weights:
            return self.reads_csr
        kept = self._role[self.reads_csr.values] != _ROLES["weight"]
        values = self.reads_csr.values[kept]
        return CSR.group(self.reads_csr.row_of[kept], values, len(self))

    @cached_property
    def activations_read(self) -> tuple[tuple[int, ...], ...]:
        """For each operator the tensors it reads that may have to move: all but weights."""
        if not self.weights:
            return self.reads
        return self.activations_csr.rows(self._integers)

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Tensors that a job brings with it."""
        return tuple(np.flatnonzero(self._role == _ROLES["input"]).tolist())

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Tensors shared by every job of the model; tied weights stand here once."""
        return tuple(np.flatnonzero(self._role == _ROLES["weight"]).tolist())

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Tensors that a job must deliver, ascending."""
        if not self.results:
            return ()
        index = {tensor.name: i for i, tensor in enumerate(self.tensors)}
        return tuple(sorted({index[r["tensor"]] for r in self.results if "tensor" in r}))

    @cached_property
    def changed(self) -> frozenset[int]:
        """Tensors that an operator changes in place: the first that it reads."""
        if isinstance(self.operators, BareOperators):
            return frozenset()
        return frozenset(
            row[0]
            for operator, row in zip(self.operators, self.reads, strict=True)
            if operator.in_place and row
        )

    @property
    def operator_names(self) -> list[str]:
        """Names of all operators."""
        if isinstance(self.operators, BareOperators):
            return self.operators.names()
        return [operator.name for operator in self.operators]

    @property
    def operator_kinds(self) -> list[str]:
        """Kinds of all operators."""
        if isinstance(self.operators, BareOperators):
            return ["task"] * len(self)
        return [operator.kind for operator in self.operators]

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights, each counted once."""
        return float(sum(self.tensor_bytes[list(self.weights)]))

    def networkx(self) -> networkx.MultiDiGraph:
        """A view for analysis: nodes are operator indices, edges carry ``tensor`` and ``bytes``."""
        import networkx as nx

        graph = nx.MultiDiGraph(name=self.name)
        for index, operator in enumerate(self.operators):
            graph.add_node(index, name=operator.name, kind=operator.kind)
        for source, target, tensor in zip(*(c.tolist() for c in self._edges), strict=True):
            value = self.tensors[tensor]
            graph.add_edge(source, target, tensor=value.name, bytes=value.bytes)
        return graph

    # -- JSON -----------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The document described in the module docstring."""
        names = [tensor.name for tensor in self.tensors]
        tensors = []
        for tensor in self.tensors:
            row: dict[str, Any] = {"name": tensor.name, "role": tensor.role}
            row |= {"bytes": tensor.bytes} if tensor.spec is None else tensor.spec.to_json()
            if tensor.value is not None:
                row["value"] = tensor.value
            tensors.append(row)
        operators = []
        for operator, reads, writes in zip(self.operators, self.reads, self.writes, strict=True):
            operators.append(
                {
                    "name": operator.name,
                    "kind": operator.kind,
                    "target": operator.target,
                    "template": operator.template,
                    "attributes": dict(operator.attributes),
                    "inputs": [spec.to_json() for spec in operator.inputs],
                    "outputs": [spec.to_json() for spec in operator.outputs],
                    "reads": [names[i] for i in reads],
                    "writes": [names[i] for i in writes],
                }
            )
        document = {
            "format": FORMAT,
            "name": self.name,
            "batch": self.batch,
            "tensors": tensors,
            "operators": operators,
            "results": [dict(result) for result in self.results],
        }
        return document if self.unchecked is None else document | {"unchecked": self.unchecked}

    @classmethod
    def from_json(cls, document: Any) -> DataflowGraph:
        """Read the JSON form; operators are sorted topologically, ties by their order in the file.

        Raises:
            InvalidInput: what is wrong and where; a cycle is printed operator by operator.
        """
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            found = (
                document.get("format") if isinstance(document, dict) else type(document).__name__
            )
            text = repr(found)
            shown = text if len(text) <= 80 else text[:77] + "..."
            raise InvalidInput(f"Not a graph of format '{FORMAT}' (found {shown})")
        for key in ("name", "tensors", "operators"):
            if key not in document:
                raise InvalidInput(f"The graph document lacks the key '{key}'")
        graph_name = _string(document, "name", "A graph")
        batch = document.get("batch")
        if batch is not None and (not _is_length(batch) or not batch):
            raise InvalidInput(
                f"Graph '{graph_name}' has batch {_short(batch)}, not an integer >= 1"
            )
        index: dict[str, int] = {}
        tensors: list[Tensor] = []
        for row in _rows(document, "tensors"):
            name = _string(row, "name", "A tensor")
            if name in index:
                raise InvalidInput(f"Tensor '{name}' stands twice in the graph")
            index[name] = len(tensors)
            if row.get("role") not in ("input", "weight", "activation"):
                raise InvalidInput(
                    f"Tensor '{name}' has role {_short(row.get('role'))}; known: input, weight, "
                    "activation"
                )
            spec = None if "bytes" in row else TensorSpec.from_json(row)
            size = row["bytes"] if spec is None else spec.bytes
            if (
                not isinstance(size, int | float)
                or isinstance(size, bool)
                or not size <= MOST_BYTES
            ):
                raise InvalidInput(
                    f"Tensor '{name}' has bytes {_short(size)}, not a number of them"
                )
            value = row.get("value")
            if value is not None:
                value = _string(row, "value", f"Tensor '{name}'")
            tensors.append(Tensor(name, row["role"], float(size), spec, value))
        rows = _rows(document, "operators")
        reads = [_indices(row, "reads", index) for row in rows]
        writes = [_indices(row, "writes", index) for row in rows]
        names = [_string(row, "name", "An operator") for row in rows]
        _check_writes(names, tensors, writes)  # first: it could be taken for a cycle
        operators = []
        for position in topological_order(names, reads, writes):
            row = rows[position]
            what = f"Operator '{names[position]}'"
            operators.append(
                (
                    Operator(
                        name=names[position],
                        kind=_string(row, "kind", what),
                        inputs=_specs(row, "inputs", what),
                        outputs=_specs(row, "outputs", what),
                        attributes=_mapping(row, "attributes", what) or {},
                        target=_string(row, "target", what) if "target" in row else "",
                        template=_mapping(row, "template", what),
                        reads=tuple(s for i in reads[position] if (s := tensors[i].spec)),
                    ),
                    reads[position],
                    writes[position],
                )
            )
        results = _rows(document, "results") if "results" in document else []
        graph = cls(
            graph_name,
            [operator for operator, _, _ in operators],
            tensors,
            [r for _, r, _ in operators],
            [w for _, _, w in operators],
            results,
            batch,
        )
        if document.get("unchecked") is not None:
            graph.unchecked = _string(document, "unchecked", f"Graph '{graph_name}'")
        return graph

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON form: the graph's identity across runs and files."""
        document = self.to_json()
        document.pop("unchecked", None)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> DataflowGraph:
        """Read a graph file.

        Raises:
            InvalidInput: the file is missing, truncated or not a graph.
        """
        try:
            return cls.from_json(json.loads(Path(path).read_text()))
        except OSError as error:
            raise InvalidInput(f"Cannot read graph file {path}: {error.strerror}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{path} is not JSON ({error}); was it truncated?") from None

    # -- validation -----------------------------------------------------------------------------

    def _is_sound(self) -> bool:
        """Whether everything that :meth:`_refuse` can refuse is in order; vectorised."""
        operators, tensors = len(self.operators), len(self.tensors)
        reads, writes = self.reads_csr, self.writes_csr
        size = self.tensor_bytes
        if not operators or not operators == len(reads) == len(writes):
            return False
        known = {tensor.name for tensor in self.tensors}
        names = {operator.name for operator in self.operators}
        if len(known) != tensors or len(names) != operators:
            return False
        if not (np.isfinite(size) & (size >= 0)).all():
            return False
        for entries in (reads.values, writes.values):
            if len(entries) and not (entries.min() >= 0 and entries.max() < tensors):
                return False
        times_written = np.bincount(writes.values, minlength=tensors)
        if (times_written != (self._role == _ROLES["activation"])).any():
            return False
        if (self.tensor_producer[reads.values] >= reads.row_of).any():
            return False
        if len(reads.distinct().values) != len(reads.values):
            return False
        wanted = [result["tensor"] for result in self.results if "tensor" in result]
        return all(isinstance(name, str) and name in known for name in wanted)

    def _refuse(
        self, all_reads: Sequence[Sequence[int]], all_writes: Sequence[Sequence[int]]
    ) -> None:
        """Find the first thing that is wrong and say it."""
        if not len(self.operators) == len(all_reads) == len(all_writes):
            raise InvalidInput(f"Graph '{self.name}': operators, reads and writes differ in length")
        if not self.operators:
            raise InvalidInput(f"Graph '{self.name}' has no operators")
        if len({tensor.name for tensor in self.tensors}) != len(self.tensors):
            raise InvalidInput(f"Graph '{self.name}': two tensors have the same name")
        once: set[str] = set()
        for operator in self.operators:
            if operator.name in once:
                raise InvalidInput(
                    f"Graph '{self.name}': two operators have the name '{operator.name}'"
                )
            once.add(operator.name)
        for value in self.tensors:
            if not (math.isfinite(value.bytes) and value.bytes >= 0):
                raise InvalidInput(f"Tensor '{value.name}' has {value.bytes} bytes")
        _check_writes([operator.name for operator in self.operators], self.tensors, all_writes)
        written = [tensor.role != "activation" for tensor in self.tensors]
        for operator, reads, writes in zip(self.operators, all_reads, all_writes, strict=True):
            for tensor in reads:
                if not 0 <= tensor < len(self.tensors):
                    raise InvalidInput(
                        f"Operator '{operator.name}' reads tensor {tensor}, not there"
                    )
                if not written[tensor]:
                    name = self.tensors[tensor].name
                    raise InvalidInput(
                        f"Operator '{operator.name}' reads '{name}' before it is written; "
                        "operators must stand in topological order"
                    )
            if len(set(reads)) != len(reads):
                raise InvalidInput(f"Operator '{operator.name}' lists a read tensor twice")
            for tensor in writes:
                written[tensor] = True
        for value, done in zip(self.tensors, written, strict=True):
            if not done:
                raise InvalidInput(f"No operator writes the tensor '{value.name}'")
        known = {tensor.name for tensor in self.tensors}
        for result in self.results:
            wanted = result.get("tensor")
            if "tensor" in result and not (isinstance(wanted, str) and wanted in known):
                raise InvalidInput(
                    f"The result {_short(wanted)} of graph '{self.name}' is not a tensor of it"
                )


def _check_writes(
    names: Sequence[str], tensors: Sequence[Tensor], writes: Sequence[Sequence[int]]
) -> None:
    """Refuse operators that write what is not there, or no activation, or written already."""
    done = [tensor.role != "activation" for tensor in tensors]
    for name, row in zip(names, writes, strict=True):
        for tensor in row:
            if not 0 <= tensor < len(tensors):
                raise InvalidInput(f"Operator '{name}' writes tensor {tensor}, not there")
            if done[tensor]:
                raise InvalidInput(
                    f"Operator '{name}' writes '{tensors[tensor].name}', which is an input, a weight "
                    "or already written"
                )
            done[tensor] = True


def topological_order(
    names: Sequence[str], reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]]
) -> list[int]:
    """Positions of operators so that producers stand first; ties keep their given order.

    Raises:
        InvalidInput: there is a cycle; it is named operator by operator.
    """
    producer = {tensor: position for position, ts in enumerate(writes) for tensor in ts}
    pairs = [(producer[t], p) for p, ts in enumerate(reads) for t in ts if t in producer]
    source, target = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return _sorted_topologically(names, source, target)


def _sorted_topologically(
    names: Sequence[str], source: np.ndarray, target: np.ndarray
) -> list[int]:
    """:func:`topological_order` of edges ``source[k] -> target[k]``."""
    import heapq

    if (source < target).all():
        return list(range(len(names)))
    children = CSR.group(source, target, len(names)).rows()
    pending = np.bincount(target, minlength=len(names)).tolist()
    queue = [position for position, count in enumerate(pending) if not count]
    order = []
    while queue:
        position = heapq.heappop(queue)
        order.append(position)
        for child in children[position]:
            pending[child] -= 1
            if not pending[child]:
                heapq.heappush(queue, child)
    if len(order) == len(names):
        return order
    # Every operator left has a parent that is left too: walking parents must run into a cycle.
    parents = CSR.group(target, source, len(names)).distinct().rows()
    left = {position for position, count in enumerate(pending) if count}
    path, seen = [min(left)], set()
    while path[-1] not in seen:
        seen.add(path[-1])
        path.append(next(parent for parent in parents[path[-1]] if parent in left))
    cycle = path[path.index(path[-1]) :][::-1]
    if len(cycle) > 10:
        shown = [*(names[i] for i in cycle[:5]), "...", *(names[i] for i in cycle[-4:])]
    else:
        shown = [names[position] for position in cycle]
    raise InvalidInput(f"The graph has a cycle: {' -> '.join(shown)}; remove one of these edges")


class BareOperators(Sequence[Operator]):
    """Operators of kind ``task`` and nothing but a name, made when they are asked for.

    Args:
        order: int[operators], the given number of each operator.
        names: by given number; None for ``t0``, ``t1``, ...
    """

    def __init__(self, order: np.ndarray | range, names: Sequence[str] | None) -> None:
        self._order = order
        self._names = names

    def name(self, index: int) -> str:
        """Name of one operator."""
        number = int(self._order[index])
        return f"t{number}" if self._names is None else self._names[number]

    def names(self) -> list[str]:
        """Names of all operators."""
        order = self._order.tolist() if isinstance(self._order, np.ndarray) else self._order
        if self._names is None:
            return [f"t{number}" for number in order]
        return [self._names[number] for number in order]

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Operator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Operator, ...]: ...
    def __getitem__(self, index: int | slice) -> Operator | tuple[Operator, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        return Operator(self.name(index), "task")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((BareOperators, len(self)))


class BareTensors(Sequence[Tensor]):
    """One tensor for each edge of a bare graph, made when it is asked for.

    Args:
        operators: between which they move.
        source: int32[tensors], who writes each.
        target: int32[tensors], who reads each.
        size: float64[tensors], bytes.
    """

    def __init__(
        self, operators: BareOperators, source: np.ndarray, target: np.ndarray, size: np.ndarray
    ) -> None:
        self._operators = operators
        self._source = source
        self._target = target
        self._size = size

    def __len__(self) -> int:
        return len(self._size)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]
        ends = (self._operators.name(end[number]) for end in (self._source, self._target))
        label = f"{'->'.join(ends)}#{number}"
        return Tensor(label, "activation", float(self._size[number]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((BareTensors, len(self)))


def from_edges(
    name: str,
    tasks: int,
    edges: Iterable[tuple[int, int, float]],
    names: Sequence[str] | None = None,
) -> DataflowGraph:
    """A bare graph: ``tasks`` operators of kind ``task`` and ``edges`` of (from, to, bytes).

    Each edge is a tensor of its own. Task numbers must be a topological order already, or the
    tasks are renumbered and keep their names (``t0``, ``t1``, ... unless given).

    Raises:
        InvalidInput: an edge out of range, a cycle, bytes that are negative or not finite, or names
            that repeat.
    """
    rows = list(edges)
    for source, target, _ in rows:
        if not (0 <= source < tasks and 0 <= target < tasks):
            raise InvalidInput(f"Edge [{source}, {target}] names a task outside 0..{tasks - 1}")
    sources, targets, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    return from_arrays(
        name,
        tasks,
        np.array(sources),
        np.array(targets),
        np.array(sizes, dtype=np.float64),
        names,
    )


def from_arrays(
    name: str,
    tasks: int,
    source: np.ndarray,
    target: np.ndarray,
    size: np.ndarray,
    names: Sequence[str] | None = None,
) -> DataflowGraph:
    """:func:`from_edges` of columns, for graphs of millions of edges.

    No object is made for a task or an edge: a million tasks with three million edges take a second
    and some 100 MB.

    Args:
        name: of the graph.
        tasks: how many there are.
        source: int[edges], the task that each edge comes from.
        target: int[edges], the task that it goes to.
        size: float[edges], bytes.
        names: of the tasks; None for ``t0``, ``t1``, ...

    Raises:
        InvalidInput: as :func:`from_edges`; or columns that are no integers or differ in length.
    """
    source, target = np.asarray(source), np.asarray(target)
    size = np.array(size, dtype=np.float64)
    if not (len(source) == len(target) == len(size)):
        raise InvalidInput(
            f"Graph '{name}': the edges' columns have {len(source)}, {len(target)} and {len(size)} "
            "entries"
        )
    if tasks < 1:
        raise InvalidInput(f"Graph '{name}' has no operators")
    if max(tasks, len(size)) > MOST_EDGES:
        raise InvalidInput(f"Graph '{name}' has more than {MOST_EDGES} operators or edges")
    for column in (source, target):
        if len(column) and column.dtype.kind not in "iu":
            raise InvalidInput(
                f"Graph '{name}': the ends of edges are {column.dtype}, not integers"
            )
    outside = (source < 0) | (source >= tasks) | (target < 0) | (target >= tasks)
    if outside.any():
        first = int(np.argmax(outside))
        raise InvalidInput(
            f"Edge [{source[first]}, {target[first]}] names a task outside 0..{tasks - 1}"
        )
    if names is not None and (len(names) != tasks or len(set(names)) != tasks):
        twice = next((n for n, count in Counter(names).items() if count > 1), None)
        raise InvalidInput(
            f"Graph '{name}': {len(names)} names were given for {tasks} operators"
            if twice is None
            else f"Graph '{name}': two operators have the name '{twice}'"
        )
    names = None if names is None else list(names)
    source, target = source.astype(np.int32), target.astype(np.int32)
    order: np.ndarray | range = range(tasks)
    if not (source < target).all():
        sequence = _sorted_topologically(BareOperators(order, names).names(), source, target)
        order = np.array(sequence, dtype=np.int32)
        position = np.empty(tasks, dtype=np.int32)
        position[order] = np.arange(tasks, dtype=np.int32)
        source, target = position[source], position[target]
    for column in (source, target, size):
        column.setflags(write=False)
    operators = BareOperators(order, names)
    graph = DataflowGraph._bare(name, operators, source, target, size)
    wrong = ~(np.isfinite(size) & (size >= 0))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidInput(f"Tensor '{graph.tensors[first].name}' has {size[first]} bytes")
    return graph


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _rows(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = document[key]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"The graph's '{key}' must be a list of objects")
    return rows


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _mapping(row: Mapping[str, Any], key: str, what: str) -> dict[str, Any] | None:
    value = row.get(key)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{what} needs an object '{key}', got {_short(value)}")
    return value


def _specs(row: Mapping[str, Any], key: str, what: str) -> tuple[TensorSpec, ...]:
    value = row.get(key, [])
    if not isinstance(value, list):
        raise InvalidInput(f"{what} needs a list '{key}', got {_short(value)}")
    return tuple(map(TensorSpec.from_json, value))


def _string(row: Mapping[str, Any], key: str, what: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise InvalidInput(f"{what} needs a text '{key}', got {_short(value)}")
    return value


def _indices(row: Mapping[str, Any], key: str, index: Mapping[str, int]) -> list[int]:
    names = row.get(key, [])
    unknown = names
    if isinstance(names, list):
        unknown = [n for n in names if not isinstance(n, str) or n not in index]
        if not unknown:
            return [index[name] for name in names]
    raise InvalidInput(
        f"Operator '{row.get('name')}' has {key} {_short(unknown)}, not tensors of the graph"
    )
