"""The operators of a traced iteration as a dataflow graph, for other devices than those that were traced.

Operators are those that no other operator calls; views and allocations are none. Kind, shapes and attributes are those
of a graph traced here, where the trace was recorded with shapes and cost models know the kind. Any other operator is of
kind :data:`~cost_models.measured.KIND`, which keeps its measured time.

Who reads what whom comes from an ExecutionTraceObserver's file where there is one. Without it each operator reads the
result of the one before it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.measured import KIND, attributes
from scenarios.graph_files.aten_calls import Priced, costs_nothing, element_type, leaves_of, priced
from scenarios.graph_files.execution_trace import Call, Leaf
from scenarios.graph_files.kineto import Event, Iteration
from scenarios.graph_files.values import shown
from scenarios.random_graphs.shape import Shape, check_size
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Role, Tensor, TensorSpec


@dataclass(frozen=True)
class _Step:
    """An operator of the graph to be."""

    event: Event
    read: tuple[Leaf, ...]
    written: tuple[Leaf, ...] | None
    seconds: float
    priced: Priced | None


@dataclass(frozen=True)
class Operators:
    """A graph with what was measured of it.

    Attributes:
        graph: of the iteration.
        seconds: float64[operators], measured: of an operator's kernels where it launched any, else its own.
        notes: for people: what the trace does not say, and what was taken instead.
    """

    graph: DataflowGraph
    seconds: np.ndarray
    notes: tuple[str, ...]

    def shape(self) -> Shape:
        """Tasks whose work is their measured seconds, and edges with their bytes."""
        graph = self.graph
        edges = np.stack([graph.edge_source, graph.edge_target], axis=1)
        sizes = graph.tensor_bytes[graph.edge_tensor]
        return Shape.of(edges, self.seconds, sizes, graph.operator_names, self.notes)


def read_operators(
    iteration: Iteration, name: str, calls: Mapping[int, Call] | None = None
) -> Operators:
    """The operators of an iteration.

    Args:
        iteration: as traced.
        name: the graph's.
        calls: of an ExecutionTraceObserver, by ``rf_id``.

    Raises:
        InvalidInput: shapes are malformed, or the calls are of another run.
    """
    check_size(len(iteration.operators), 0)
    steps = _steps(iteration, calls)
    if not steps:
        raise InvalidInput(f"There is no operator but views within '{iteration.name}'")
    graph = _graph(name, steps, sum(step.seconds for step in steps if step.priced is not None))
    seconds = np.array([step.seconds for step in steps])
    busy = sum(
        event.end - event.begin for event in iteration.operators if event.lane == iteration.thread
    )
    notes = [
        f"{1 - busy / iteration.range_s:.1%} of '{iteration.name}' is the host's own time between operators, which is left out"
    ]
    if calls is None:
        notes.append(
            "no ExecutionTraceObserver's file lies beside it: each operator is taken to read the result of the one before"
        )
    return Operators(graph, seconds, tuple(notes))


def _steps(iteration: Iteration, calls: Mapping[int, Call] | None) -> list[_Step]:
    dtype = element_type(iteration.operators)
    on_gpu = _kernel_seconds(iteration)
    steps = []
    for number, event in enumerate(iteration.operators):
        if costs_nothing(event):
            continue
        read, written = leaves_of(event, dtype), None
        if calls is not None:
            call = calls.get(event.arguments.get("Record function id", -1))
            if call is None or call[0] != event.name:
                raise InvalidInput(
                    f"The ExecutionTraceObserver's file lacks the call of {shown(event.name)}; was it recorded in "
                    "another run?"
                )
            _, read, written = call
        seconds = on_gpu.get(number, event.end - event.begin)
        steps.append(_Step(event, read, written, seconds, priced(event, read, written)))
    return steps


def _kernel_seconds(iteration: Iteration) -> dict[int, float]:
    """Seconds of the kernels that each operator, by position, launched."""
    begins: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, event in enumerate(iteration.operators):
        begins[event.lane].append((event.begin, number))
    launched_by: dict[object, int] = {}
    for call in iteration.calls:
        own = begins[call.lane]
        at = bisect_right(own, (call.begin, math.inf)) - 1
        if at >= 0 and call.begin <= iteration.operators[own[at][1]].end:
            launched_by[call.correlation] = own[at][1]
    found: defaultdict[int, float] = defaultdict(float)
    for kernel in iteration.kernels:
        if kernel.correlation in launched_by:
            found[launched_by[kernel.correlation]] += kernel.end - kernel.begin
    return dict(found)


def _graph(name: str, steps: Sequence[_Step], priced_s: float) -> DataflowGraph:
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    reads: list[list[int]] = []
    writes: list[list[int]] = []
    stored: dict[int, int] = {}
    """By storage the tensor that lies there now."""
    seen: Counter[str] = Counter()

    def add(label: str, role: Role, spec: TensorSpec | None) -> int:
        tensors.append(Tensor(label, role, float(spec.bytes) if spec else 0.0, spec))
        return len(tensors) - 1

    for position, step in enumerate(steps):
        known = step.priced
        seen[step.event.name] += 1
        label = f"{step.event.name.removeprefix('aten::')}#{seen[step.event.name]}"
        embeds = known is not None and known.kind.startswith("embedding")
        read: list[int] = []
        if not any(leaf.storage is not None for leaf in step.read) and position:
            read.append(writes[-1][0])
        for number, leaf in enumerate(step.read):
            if leaf.storage is not None and leaf.storage in stored:
                read.append(stored[leaf.storage])
                continue
            if leaf.storage is None and number == 0 and position:
                continue  # the result of the one before
            role: Role = "input" if (number == 0) != embeds else "weight"
            tensor = add(f"{label}:in{number}", role, leaf.spec)
            if leaf.storage is not None:
                stored[leaf.storage] = tensor
            read.append(tensor)
        outputs = (
            known.outputs if known is not None else tuple(leaf.spec for leaf in step.written or ())
        )
        storages = [leaf.storage for leaf in step.written or ()]
        if step.event.name.endswith("_") and step.read and not storages:
            storages, outputs = [step.read[0].storage], (step.read[0].spec,)
        written = []
        for number, spec in enumerate(outputs):
            written.append(add(f"{label}:{number}", "activation", spec))
        written = written or [add(f"{label}:0", "activation", None)]
        stored.update(
            (storage, tensor)
            for storage, tensor in zip(storages, written, strict=False)
            if storage is not None
        )
        read = list(dict.fromkeys(read))
        kept = {} if known is not None else attributes(step.seconds, priced_s)
        operators.append(
            Operator(
                label,
                known.kind if known is not None else KIND,
                known.inputs if known is not None else (),
                outputs,
                known.attributes if known is not None else kept,
                reads=tuple(s for tensor in read if (s := tensors[tensor].spec) is not None),
            )
        )
        reads.append(read)
        writes.append(written)
    used = {tensor for row in reads for tensor in row}
    results = [
        {"tensor": tensors[tensor].name, "views": []}
        for row in writes
        for tensor in row
        if tensor not in used
    ]
    return DataflowGraph(name, operators, tensors, reads, writes, results)
