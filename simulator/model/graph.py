"""Dataflow graphs: operators, the tensors between them, and one JSON form.

A :class:`DataflowGraph` is what every other part of the program speaks about: tracing makes it,
cost models price it, planners read its index arrays and the engine executes it. It is immutable and
topologically ordered: operator ``i`` only reads tensors written by operators ``< i``.

JSON form (``hetsim.graph/1``), the keys of one document::

    {"format": "hetsim.graph/1", "name": str, "batch": int | null,
     "tensors":   [{"name": str, "role": "input" | "weight" | "activation",
                    "shape": [int], "dtype": str, "strides": [int]?   (absent: contiguous)
                    "bytes": float?                                   (instead of shape and dtype)
                    "part": {"of": name, "views": [view]}?}],         (a weight cut from the module's)
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
A written tensor named after a weight, ``fc.weight:updated``, is what becomes of it, and must arrive wherever it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.bare_graph import BareOperators, BareTensors
from simulator.model.csr import CSR, python_integers
from simulator.model.operator import (
    MOST_BYTES,
    MOST_EDGES,
    ROLES,
    UPDATED,
    Operator,
    Part,
    Tensor,
    TensorSpec,
    indices,
    is_length,
    mapping,
    objects,
    short,
    specs,
    string,
    unowned_state,
)
from simulator.model.topological_order import sorted_topologically, topological_order

if TYPE_CHECKING:
    import networkx

FORMAT = "hetsim.graph/1"


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
            operator before its producer, bytes that are negative or not finite, or state without an owner
            (:func:`simulator.model.operator.unowned_state`).
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
        self._role = np.array([ROLES[tensor.role] for tensor in self.tensors], dtype=np.int8)
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
        kept = self._role[self.reads_csr.values] != ROLES["weight"]
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
        return tuple(np.flatnonzero(self._role == ROLES["input"]).tolist())

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Tensors shared by every job of the model; tied weights stand here once."""
        return tuple(np.flatnonzero(self._role == ROLES["weight"]).tolist())

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Tensors that a job must deliver, ascending."""
        if not self.results:
            return ()
        index = {tensor.name: i for i, tensor in enumerate(self.tensors)}
        return tuple(sorted({index[r["tensor"]] for r in self.results if "tensor" in r}))

    @cached_property
    def updates(self) -> Mapping[int, int]:
        """For each written tensor that a weight becomes for the next step (``fc.weight:updated``) the weight."""
        if not self.weights:
            return {}
        weights = {self.tensors[t].name: t for t in self.weights}
        return {
            tensor: weights[name]
            for tensor, row in enumerate(self.tensors)
            if row.name.endswith(UPDATED) and (name := row.name.removesuffix(UPDATED)) in weights
        }

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
            if tensor.part is not None:
                row["part"] = tensor.part.to_json()
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
        graph_name = string(document, "name", "A graph")
        batch = document.get("batch")
        if batch is not None and (not is_length(batch) or not batch):
            raise InvalidInput(
                f"Graph '{graph_name}' has batch {short(batch)}, not an integer >= 1"
            )
        index: dict[str, int] = {}
        tensors: list[Tensor] = []
        for row in objects(document, "tensors"):
            name = string(row, "name", "A tensor")
            if name in index:
                raise InvalidInput(f"Tensor '{name}' stands twice in the graph")
            index[name] = len(tensors)
            if row.get("role") not in ("input", "weight", "activation"):
                raise InvalidInput(
                    f"Tensor '{name}' has role {short(row.get('role'))}; known: input, weight, "
                    "activation"
                )
            spec = None if "bytes" in row else TensorSpec.from_json(row)
            size = row["bytes"] if spec is None else spec.bytes
            if (
                not isinstance(size, int | float)
                or isinstance(size, bool)
                or not size <= MOST_BYTES
            ):
                raise InvalidInput(f"Tensor '{name}' has bytes {short(size)}, not a number of them")
            value = row.get("value")
            if value is not None:
                value = string(row, "value", f"Tensor '{name}'")
            part = None if row.get("part") is None else Part.from_json(row["part"], name)
            if part is not None and row["role"] != "weight":
                raise InvalidInput(f"Tensor '{name}' is a part of '{part.of}' and no weight")
            tensors.append(Tensor(name, row["role"], float(size), spec, value, part))
        rows = objects(document, "operators")
        reads = [indices(row, "reads", index) for row in rows]
        writes = [indices(row, "writes", index) for row in rows]
        names = [string(row, "name", "An operator") for row in rows]
        _check_writes(names, tensors, writes)  # first: it could be taken for a cycle
        operators = []
        for position in topological_order(names, reads, writes):
            row = rows[position]
            what = f"Operator '{names[position]}'"
            operators.append(
                (
                    Operator(
                        name=names[position],
                        kind=string(row, "kind", what),
                        inputs=specs(row, "inputs", what),
                        outputs=specs(row, "outputs", what),
                        attributes=mapping(row, "attributes", what) or {},
                        target=string(row, "target", what) if "target" in row else "",
                        template=mapping(row, "template", what),
                        reads=tuple(s for i in reads[position] if (s := tensors[i].spec)),
                    ),
                    reads[position],
                    writes[position],
                )
            )
        results = objects(document, "results") if "results" in document else []
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
            graph.unchecked = string(document, "unchecked", f"Graph '{graph_name}'")
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
        if (times_written != (self._role == ROLES["activation"])).any():
            return False
        if (self.tensor_producer[reads.values] >= reads.row_of).any():
            return False
        if len(reads.distinct().values) != len(reads.values):
            return False
        wanted = [result["tensor"] for result in self.results if "tensor" in result]
        if not all(isinstance(name, str) and name in known for name in wanted):
            return False
        return unowned_state(self.tensors) is None

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
                    f"The result {short(wanted)} of graph '{self.name}' is not a tensor of it"
                )
        unowned = unowned_state(self.tensors)
        if unowned is not None:
            raise InvalidInput(f"Graph '{self.name}' has state without an owner: {unowned}")


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
        sequence = sorted_topologically(BareOperators(order, names).names(), source, target)
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
