"""ONNX models (``.onnx``) as dataflow graphs that cost models price as they do traced ones.

Shapes come from ONNX's own shape inference; weights are not needed, so external data are never opened. Folded as in
traced graphs: views (``Reshape``, ``Transpose``, ``Slice``, ``Split``, ...) into what reads them, where a copy is not
needed; computations on constants and shapes; ``Dropout`` and ``Identity``; and what exporters write for one operator
(:mod:`scenarios.graph_files.onnx_patterns`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.canonical import attributes_of
from scenarios.graph_files.onnx_kinds import Call, call_of
from scenarios.graph_files.onnx_patterns import join_patterns
from scenarios.graph_files.values import shown
from scenarios.random_graphs.shape import check_size
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Role, Tensor, TensorSpec, contiguous_strides

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    14: "complex64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    19: "float8_e5m2",
}
"""Element types by their numbers in ``onnx.TensorProto``."""
_PASSED = ("Identity", "Dropout")
_RESHAPED = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_VIEWS = (*_RESHAPED, "Transpose", "Slice", "Split", "Expand")
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_MOST_ELEMENTS = 2**40


def read_onnx(data: bytes, name: str, sizes: str | None = None) -> DataflowGraph:
    """The graph of a model.

    Args:
        data: of the file.
        name: the graph's.
        sizes: of dimensions that have names: ``N:8+seq:128``.

    Raises:
        InvalidInput: the package ``onnx`` is missing; it is no model, has a dimension without a size or an operator
            whose shapes ONNX cannot infer, or depends on data (``If``, ``Loop``).
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        raise InvalidInput(
            "Reading ONNX takes the package onnx: pip install 'hetsim[onnx]'"
        ) from None
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError):
        raise InvalidInput("It is no ONNX model; was it truncated?") from None
    if not model.graph.node or not model.opset_import:
        raise InvalidInput("It is no ONNX model, or one without operators")
    check_size(len(model.graph.node), 0)
    _give_sizes(model, _sizes(sizes))
    try:
        if model.functions:
            from onnx import inliner

            model = inliner.inline_local_functions(model)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # what its C++ raises has no common class
        text = " ".join(str(error).split())
        raise InvalidInput(f"ONNX cannot infer its shapes: {text[:200]}") from None
    return _Builder(model, name).graph()


def _sizes(text: str | None) -> dict[str, int]:
    found = {}
    for part in text.split("+") if text else ():
        name, colon, size = part.rpartition(":")
        if not (colon and name and size.isascii() and size.isdecimal() and 0 < int(size) < 2**40):
            raise InvalidInput(f"{shown(part)} gives no dimension a size; write FILE@N:8+seq:128")
        found[name] = int(size)
    return found


def _give_sizes(model: Any, sizes: Mapping[str, int]) -> None:
    """Replace named dimensions of the inputs by sizes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    known: dict[str, None] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        for position, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.HasField("dim_value") and dimension.dim_value > 0:
                continue
            label = "".join((dimension.dim_param or f"{value.name}_{position}").split())
            known[label] = None
            if label in sizes:
                dimension.dim_value = sizes[label]
    lacking = [label for label in known if label not in sizes]
    if lacking:
        given = "+".join(f"{label}:8" for label in known)
        raise InvalidInput(
            f"Dimension {shown(lacking[0])} of an input has no size; give it one: FILE@{given}"
        )
    if foreign := [label for label in sizes if label not in known]:
        raise InvalidInput(
            f"No input has a dimension {shown(foreign[0])}; those without a size: {', '.join(known) or 'none'}"
        )
    if sizes:  # what else is written there still has the names
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


@dataclass(frozen=True)
class _Seen:
    """A stored tensor (index) as a reader sees it."""

    tensor: int
    spec: TensorSpec


class _Node:
    """An ONNX node with what is known of its inputs: a :class:`~scenarios.graph_files.onnx_kinds.Node`."""

    def __init__(self, proto: Any, builder: _Builder) -> None:
        from onnx.helper import get_attribute_value

        self.op_type: str = proto.op_type
        self.inputs: list[str] = list(proto.input)
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        self.outputs = [name for name in proto.output if name]
        self.label = proto.name or proto.op_type
        self._builder = builder
        self.attributes: dict[str, Any] = {}
        for attribute in proto.attribute:
            value = get_attribute_value(attribute)
            self.attributes[attribute.name] = (
                value.decode(errors="replace") if isinstance(value, bytes) else value
            )
        self.attributes["constant"] = [name in builder.constants for name in self.inputs]
        self.domain = proto.domain
        self.version = builder.version

    def spec(self, position: int) -> TensorSpec:
        if position >= len(self.inputs):
            raise InvalidInput(
                f"Operator {shown(self.label)} ({self.op_type[:40]!r}) lacks an input"
            )
        return self._builder.spec(self.inputs[position], self.label)

    def numbers(self, position: int) -> list[float] | None:
        return self._builder.numbers(self.inputs[position]) if position < len(self.inputs) else None


class _Builder:
    """Makes a graph of an ONNX model, node by node."""

    def __init__(self, model: Any, name: str) -> None:
        self._graph = model.graph
        self._name = name
        self.version = max(
            (o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0
        )
        self._types: dict[str, TensorSpec | None] = {}
        self.constants: dict[str, Any] = {}
        """Constants by name, with their ``TensorProto`` where the file has it."""
        self._values: dict[str, _Seen] = {}
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._reads: list[list[int]] = []
        self._writes: list[list[int]] = []
        self._names: Counter[str] = Counter()

    def graph(self) -> DataflowGraph:
        """The whole graph."""
        graph = self._graph
        for value in (*graph.value_info, *graph.output, *graph.input):
            self._types[value.name] = _spec_of(value)
        for tensor in graph.initializer:
            self._types[tensor.name] = _spec(list(tensor.dims), tensor.data_type, tensor.name)
            self.constants[tensor.name] = tensor
        for tensor in graph.sparse_initializer:
            raise InvalidInput(
                f"Its weight {shown(tensor.values.name)} is sparse, which is not read"
            )
        for value in graph.input:
            if value.name not in self.constants:
                spec = self.spec(value.name, "the model")
                self._values[value.name] = _Seen(self._add(value.name, "input", spec), spec)
        nodes = [_Node(proto, self) for proto in self._named_constants()]
        named = {value.name for value in graph.output}
        skipped = join_patterns(nodes, self.constants, named, self._types)
        for number, node in enumerate(nodes):
            if number not in skipped:
                node.attributes["constant"] = [name in self.constants for name in node.inputs]
                self._node(node)
        if not self._operators:
            raise InvalidInput("Nothing in it depends on an input")
        used = {tensor for row in self._reads for tensor in row}
        wanted = {self._values[o.name].tensor for o in graph.output if o.name in self._values}
        wanted.update(tensor for row in self._writes for tensor in row if tensor not in used)
        results = [
            {"tensor": self._tensors[tensor].name, "views": []}
            for tensor in sorted(wanted)
            if self._tensors[tensor].role == "activation"
        ]
        return DataflowGraph(
            self._name, self._operators, self._tensors, self._reads, self._writes, results
        )

    def _named_constants(self) -> list[Any]:
        """The nodes but those that hold a constant, which are noted."""
        left = []
        for proto in self._graph.node:
            if proto.op_type != "Constant" or proto.domain not in ("", "ai.onnx"):
                left.append(proto)
                continue
            held = next((a.t for a in proto.attribute if a.name == "value"), None)
            for name in proto.output:
                self.constants[name] = held
                if held is not None:
                    self._types[name] = _spec(list(held.dims), held.data_type, name)
        return left

    # -- values ---------------------------------------------------------------------------------

    def spec(self, name: str, reader: str) -> TensorSpec:
        """Shape and type of a value as its readers see it."""
        if name in self._values:
            return self._values[name].spec
        found = self._types.get(name)
        if found is None:
            raise InvalidInput(
                f"The shape of {shown(name)}, which {shown(reader)} reads or writes, cannot be inferred; export the model with fixed "
                "shapes (dynamo=True, no dynamic_axes) or simplify it (onnxsim)"
            )
        return found

    def numbers(self, name: str) -> list[float] | None:
        """The elements of a small constant."""
        held = self.constants.get(name)
        if held is None or math.prod(held.dims) > 64 or held.data_location == 1:
            return None
        from onnx import numpy_helper

        try:
            return [float(number) for number in numpy_helper.to_array(held).reshape(-1).tolist()]
        except (ValueError, TypeError, RuntimeError):
            return None

    def _add(self, name: str, role: Role, spec: TensorSpec) -> int:
        self._tensors.append(Tensor(name, role, float(spec.bytes), spec))
        return len(self._tensors) - 1

    def _read(self, name: str, reader: _Node) -> _Seen:
        if name in self.constants and name not in self._values:
            spec = self.spec(name, reader.label)
            self._values[name] = _Seen(self._add(name, "weight", spec), spec)
        if name not in self._values:
            raise InvalidInput(
                f"Operator {shown(reader.label)} reads {shown(name)}, which nothing before it writes"
            )
        return self._values[name]

    # -- nodes ----------------------------------------------------------------------------------

    def _node(self, node: _Node) -> None:
        kind = node.op_type
        if kind in _CONTROL:
            raise InvalidInput(
                f"Operator {shown(node.label)} ({kind[:40]!r}) runs what depends on data; such a model has no single graph"
            )
        given = [name for name in node.inputs if name]
        if kind in ("Shape", "Size") or all(name in self.constants for name in given):
            self.constants.update(dict.fromkeys(node.outputs))
            return
        source = node.inputs[0] if node.inputs else ""
        if source not in self.constants and source:
            if kind in _PASSED:
                self._values[node.outputs[0]] = self._read(source, node)
                return
            if kind in _VIEWS or self._selects(node):
                self._view(node, self._read(source, node))
                return
            if kind == "Cast":
                self._cast(node, self._read(source, node))
                return
        call = call_of(node) if node.domain in ("", "ai.onnx") else None
        if call is None:
            positions = [position for position, name in enumerate(node.inputs) if name]
            call = Call(f"onnx.{node.domain}.{kind}", positions)
        self._emit(node, call)

    def _selects(self, node: _Node) -> bool:
        """Whether a ``Gather`` takes one index that is known, which is a view."""
        return (
            node.op_type == "Gather"
            and node.attributes["constant"][1:] == [True]
            and node.spec(1).elements == 1
        )

    def _emit(self, node: _Node, call: Call) -> None:
        seen = [self._read(node.inputs[position], node) for position in call.inputs]
        inputs = tuple(call.specs.get(place, s.spec) for place, s in enumerate(seen))
        outputs = tuple(self.spec(name, node.label) for name in node.outputs)
        try:
            attributes = attributes_of(call.kind, call.arguments, inputs, outputs)
        except (LookupError, ValueError, TypeError):
            raise InvalidInput(
                f"Operator {shown(node.label)} ({node.op_type[:40]!r}) has inputs that do not fit it"
            ) from None
        written = [
            self._add(n, "activation", s) for n, s in zip(node.outputs, outputs, strict=True)
        ]
        self._append(node, call.kind, attributes, inputs, outputs, seen, written)
        for name, tensor, spec in zip(node.outputs, written, outputs, strict=True):
            self._values[name] = _Seen(tensor, spec)

    def _append(
        self,
        node: _Node,
        kind: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        seen: Sequence[_Seen],
        written: list[int],
    ) -> None:
        reads = list(dict.fromkeys(s.tensor for s in seen))
        self._names[node.label] += 1
        count = self._names[node.label]
        name = node.label if count == 1 else f"{node.label}#{count}"
        specs = (self._tensors[tensor].spec for tensor in reads)
        self._operators.append(
            Operator(
                name,
                kind,
                tuple(inputs),
                tuple(outputs),
                dict(attributes),
                reads=tuple(spec for spec in specs if spec is not None),
            )
        )
        self._reads.append(reads)
        self._writes.append(written)

    def _cast(self, node: _Node, source: _Seen) -> None:
        output = self.spec(node.outputs[0], node.label)
        if output.dtype == source.spec.dtype:
            self._values[node.outputs[0]] = source
        else:
            self._values[node.outputs[0]] = self._copied(node, source, output.dtype)

    def _copied(self, node: _Node, source: _Seen, dtype: str) -> _Seen:
        """A copy of a tensor, row-major."""
        output = TensorSpec(source.spec.shape, dtype)
        label = node.outputs[0]
        tensor = self._add(label, "activation", output)
        attributes = attributes_of("copy", {}, (source.spec,), (output,))
        self._append(node, "copy", attributes, (source.spec,), (output,), [source], [tensor])
        return _Seen(tensor, output)

    def _view(self, node: _Node, source: _Seen) -> None:
        """Outputs that lie in their source's memory; of a reshape that cannot, in a copy's."""
        before = source.spec
        steps = before.strides or contiguous_strides(before.shape)
        for name in node.outputs:
            shape = self.spec(name, node.label).shape
            strides: Sequence[int] | None
            if node.op_type in _RESHAPED:
                strides = _reshaped(before.shape, steps, shape)
                if strides is None:
                    source = self._copied(node, source, before.dtype)
                    strides = contiguous_strides(shape)
            elif node.op_type == "Transpose":
                order = node.attributes.get("perm") or range(len(steps))[::-1]
                strides = [steps[i] for i in order] if sorted(order) == [*range(len(steps))] else ()
            elif node.op_type == "Gather":
                axis = int(node.attributes.get("axis", 0)) % max(len(steps), 1)
                kept = [*steps[:axis], *([0] * len(node.spec(1).shape)), *steps[axis + 1 :]]
                strides = kept
            elif node.op_type == "Expand":
                wide = [0] * (len(shape) - len(steps)) + list(steps)
                old = [1] * (len(shape) - len(steps)) + list(before.shape)
                strides = [s if n == m else 0 for s, n, m in zip(wide, old, shape, strict=True)]
            else:  # Slice, Split
                strides = self._stepped(node, steps)
            if len(strides) != len(shape):
                raise InvalidInput(
                    f"Operator {shown(node.label)} ({node.op_type[:40]!r}) has inputs that do not fit it"
                )
            self._values[name] = _Seen(source.tensor, TensorSpec.of(shape, before.dtype, strides))

    def _stepped(self, node: _Node, steps: Sequence[int]) -> list[int]:
        """Strides of a slice."""
        found = list(steps)
        factors = node.numbers(4) if node.op_type == "Slice" else None
        axes = node.numbers(3) or range(len(factors or ()))
        for axis, factor in zip(axes, factors or (), strict=False):
            if -len(found) <= int(axis) < len(found):
                found[int(axis)] *= abs(int(factor))
        return found


def _spec_of(value: Any) -> TensorSpec | None:
    """The spec of a ``ValueInfoProto``; None where a size is not known."""
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
    return None if min(sizes, default=0) < 0 else _spec(sizes, kind.elem_type, value.name)


def _spec(sizes: list[int], number: int, name: str) -> TensorSpec | None:
    if number not in DTYPES:
        return None
    if min(sizes, default=0) < 0 or math.prod(sizes) > _MOST_ELEMENTS:
        raise InvalidInput(
            f"{shown(name)} has shape {shown(sizes)}, not lengths of at most 2^40 elements"
        )
    return TensorSpec(tuple(sizes), DTYPES[number])


def _reshaped(old: Sequence[int], steps: Sequence[int], new: Sequence[int]) -> list[int] | None:
    """Strides of a view of another shape on the same memory; None where there is none, so that a copy is needed."""
    if math.prod(old) == 0 or math.prod(new) != math.prod(old):
        return list(contiguous_strides(new)) if math.prod(new) == math.prod(old) else None
    found: list[int] = []
    remaining = list(reversed(new))
    at = 0
    for position in reversed(range(len(old))):
        # Runs of dimensions that lie behind each other in memory are one.
        if position == len(old) - 1:
            length, step = 1, steps[position] if old else 1
        length *= old[position]
        ends = position == 0 or (old[position - 1] != 1 and steps[position - 1] != length * step)
        if not ends:
            continue
        inner = 1
        while at < len(remaining) and (inner < length or remaining[at] == 1):
            found.append(inner * step)
            inner *= remaining[at]
            at += 1
        if inner != length:
            return None
        if position:
            length, step = 1, steps[position - 1]
    found += [1] * (len(remaining) - at) if not old else []
    return found[::-1] if len(found) == len(new) else None
