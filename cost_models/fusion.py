"""Operators fused as ``torch.compile`` fuses them: a pass over a graph, by inductor's rules for CPUs.

Two things decide what becomes one kernel (torch 2.13, ``torch/_inductor/graph.py``, ``ir.py``,
``scheduler.py``, ``codegen/cpp.py``, default settings without freezing):

* **What is stored.** A point-wise operator is computed inside its readers, again in each of them, unless
  a library's kernel reads it, it is a result, or it has several uses and is costly: an exponential in
  it, more than four tensors read, more than fifty operations. What has accumulated more than twelve
  reads is stored, too. Reductions are stored: of a layer normalisation or a softmax the statistics, of
  which the rest is point-wise.
* **What shares a loop.** Stored values are computed in one kernel if one is made of the other, or both
  of the same tensor, and their loops agree: the same number of elements, or the same rows where one is
  a reduction.

Library kernels (convolutions, products of matrices, attention, recurrent cells) stay alone: nothing is
fused behind them unless weights are frozen. A convolution's weight, and an image that it reads first,
are copied to the channels-last layout at every call.

The graph keeps its tensors: a ``fused`` operator reads and writes those that cross its border. Its
attributes are ``members`` (kinds), and ``flops`` and ``bytes`` of what crosses. It has no template: it
can be priced and simulated, not run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cost_models.arithmetic import flops
from cost_models.canonical import attributes_of
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec

_REUSED_READS, _MOST_READS, _MOST_OPERATIONS = 4, 12, 50
_LARGEST_WINDOW = 25
_LARGEST_GROUP, _BESIDE_EACH_OTHER, _FARTHEST = 64, 16, 64

# Operations of one element; what is not listed is no point-wise operator.
_POINTWISE = {
    **dict.fromkeys(
        [
            "add",
            "sub",
            "mul",
            "div",
            "rsub",
            "maximum",
            "minimum",
            "relu",
            "neg",
            "abs",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "exp",
            "log",
            "tanh",
            "sigmoid",
            "pow",
            "where",
            "masked_fill",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "square",
            "bitwise_not",
            "logical_and",
            "logical_or",
            "logical_not",
            "erf",
            "sin",
            "cos",
            "copy",
            "floor_divide",
            "remainder",
            "clamp_min",
            "clamp_max",
            "tril",
            "triu",
            "isnan",
            "embedding",
            "gather",
            "index",
            "index_select",
            "pad",
            "constant_pad_nd",
            "expm1",
        ],
        2,
    ),
    **dict.fromkeys(["clamp", "hardtanh", "threshold_backward", "leaky_relu", "lerp"], 4),
    **dict.fromkeys(["silu", "hardswish", "hardsigmoid", "softplus", "elu", "gelu"], 8),
    "batch_norm": 12,
}
_MADE_OF_NOTHING = frozenset(
    [
        "arange",
        "full",
        "zeros",
        "ones",
        "empty",
        "full_like",
        "zeros_like",
        "ones_like",
        "scalar_tensor",
        "new_full",
        "new_zeros",
        "new_ones",
        "empty_like",
    ]
)
_COSTLY = frozenset(
    ["exp", "log", "tanh", "sigmoid", "silu", "softplus", "elu", "softmax", "safe_softmax", "expm1"]
)
# How often the operator's own steps use its first input.
_USES = {
    **dict.fromkeys(["gelu", "silu", "hardswish", "softplus", "elu"], 2),
    **dict.fromkeys(["layer_norm", "rms_norm", "softmax", "safe_softmax", "log_softmax"], 2),
}
_ROWS = frozenset(["layer_norm", "rms_norm", "softmax", "safe_softmax", "log_softmax"])
_REDUCTIONS = frozenset(["mean", "sum", "amax", "amin", "prod", "linalg_vector_norm", "any", "all"])
_FINISHED_ELSEWHERE = frozenset(
    ["mean", "linalg_vector_norm"]
)  # a root or a division after the sum
_JOINS = frozenset(["cat", "stack"])
_WINDOWS = frozenset(["max_pool2d", "avg_pool2d"])
_LOOKED_UP = frozenset(["embedding", "gather", "index", "index_select"])
_MOVED = _WINDOWS | _LOOKED_UP | {"pad", "constant_pad_nd"}
_CONVOLUTIONS = frozenset(["conv2d"])


@dataclass(frozen=True)
class _Inline:
    """A value that is not stored: computed by these operators of these tensors."""

    members: frozenset[int]
    reads: frozenset[int]
    operations: int = 0
    costly: bool = False
    elsewhere: frozenset[int] = frozenset()  # of the reads those not at the element's own place
    flat: bool = True  # every read has the same shape: one loop, not one for each dimension


@dataclass
class _Node:
    """A kernel in the making: what it computes, reads and writes, and its loops."""

    members: set[int]
    reads: set[int]
    writes: set[int]
    elements: int
    rows: int = 0  # of a reduction, else 0
    elsewhere: set[int] = field(default_factory=set)
    flat: bool = False
    library: bool = False
    alone: bool = False
    first: int = 0  # where it and what it was joined with stood
    last: int = 0


def fuse(graph: DataflowGraph, channels_last: bool = True) -> DataflowGraph:
    """The graph whose operators are the kernels of the compiled model.

    Operators that nothing is fused with stay as they are.

    Args:
        graph: a traced graph, of an inference.
        channels_last: whether convolutions take copies in that layout, as on CPUs.
    """
    fusion = _Fusion(graph, channels_last)
    return fusion.made(fusion.kernels())


def fused_members(graph: DataflowGraph) -> list[tuple[int, ...]]:
    """For each operator of :func:`fuse`'s graph, in order, the operators that it computes.

    None for a copy to another layout; an operator that is computed again stands in several.
    """
    return [tuple(sorted(node.members)) for node in _Fusion(graph).kernels()]


class _Fusion:
    def __init__(self, graph: DataflowGraph, channels_last: bool = True) -> None:
        self._graph = graph
        self._channels_last = channels_last
        self._tensors: list[Tensor] = list(graph.tensors)
        self._inline: dict[int, _Inline] = {}
        self._nodes: list[_Node] = []
        self._results = frozenset(graph.outputs)
        self._uses = self._count_uses()
        self._copies: dict[int, Operator] = {}
        self._copied: dict[int, int] = {}
        self._row_major: set[int] = set()  # images that are not in the channels-last layout
        self._library_reads: dict[int, list[int]] = {}

    def _count_uses(self) -> list[int]:
        uses = [int(tensor in self._results) for tensor in range(len(self._tensors))]
        for operator, reads in zip(self._graph.operators, self._graph.reads, strict=True):
            for position, tensor in enumerate(reads):
                uses[tensor] += _USES.get(operator.kind, 1) if position == 0 else 1
        return uses

    # -- what is stored -------------------------------------------------------------------------

    def kernels(self) -> list[_Node]:
        """What becomes one kernel each, in topological order."""
        for position in range(len(self._graph)):
            self._operator(position)
            for tensor in self._graph.writes[position]:
                self._settle(tensor)
        for tensor in self._results:
            self._store(tensor)
        return _sorted(self._grouped())

    def _operator(self, position: int) -> None:
        operator = self._graph.operators[position]
        reads, writes = self._graph.reads[position], self._graph.writes[position]
        kind = operator.kind
        if operator.in_place:
            self._library(position)
        elif kind in _MADE_OF_NOTHING:
            self._inline[writes[0]] = _Inline(frozenset([position]), frozenset(), 1)
        elif kind in _POINTWISE:
            self._inline[writes[0]] = self._of(position, reads, _POINTWISE[kind], kind in _COSTLY)
        elif kind in _WINDOWS and self._window(operator) <= _LARGEST_WINDOW:
            self._hint(reads[0])
            work = 2 * self._window(operator)
            self._inline[writes[0]] = self._of(position, reads, work, False)
        elif kind in _ROWS:
            self._by_rows(position)
        elif kind in _REDUCTIONS or _is_mean(operator):
            self._reduction(position)
        elif kind in _JOINS:
            value = self._of(position, reads, 1, False)
            node = _Node(set(value.members), set(value.reads), set(writes), 0, alone=True)
            self._nodes.append(node)
            self._row_major.update(writes)
        else:
            self._library(position)

    def _of(self, position: int, reads: Sequence[int], work: int, costly: bool) -> _Inline:
        operator = self._graph.operators[position]
        moved = operator.kind in _MOVED
        shape = operator.outputs[0].shape
        members, found, elsewhere = {position}, set[int](), set[int]()
        operations, flat = work, not moved
        for tensor in reads:
            value = self._inline.get(tensor)
            spec = self._tensors[tensor].spec
            assert spec is not None  # every tensor of a traced graph has one
            flat &= spec.elements in (1, math.prod(shape))
            if value is None:
                found.add(tensor)
                elsewhere |= {tensor} if moved else set()
                continue
            members |= value.members
            found |= value.reads
            elsewhere |= value.reads if moved else value.elsewhere
            operations += value.operations
            costly |= value.costly
            flat &= value.flat
        return _Inline(
            frozenset(members), frozenset(found), operations, costly, frozenset(elsewhere), flat
        )

    def _by_rows(self, position: int) -> None:
        """Statistics of rows are stored; the rest is point-wise."""
        operator = self._graph.operators[position]
        reads, (written, *_) = self._graph.reads[position], self._graph.writes[position]
        x = operator.inputs[0]
        length = int(operator.attributes.get("normalized_size", x.shape[-1] if x.shape else 1))
        rows = x.elements // max(length, 1)
        value = self._of(position, reads[:1], _POINTWISE["batch_norm"], False)
        whole = operator.kind in ("softmax", "safe_softmax")
        shape = x.shape if whole else (rows,)
        statistics = self._new(
            f"{operator.name}:rows", TensorSpec(shape, operator.outputs[0].dtype)
        )
        self._nodes.append(self._node(value, {statistics}, x.elements, rows))
        rest = self._of(position, [statistics, *(reads[1:] if whole else reads)], 6, False)
        self._inline[written] = rest

    def _reduction(self, position: int) -> None:
        operator = self._graph.operators[position]
        reads, (written, *_) = self._graph.reads[position], self._graph.writes[position]
        value = self._of(position, reads, 1, False)
        finished = operator.kind not in _FINISHED_ELSEWHERE and not _is_mean(operator)
        stored = written if finished else self._new(f"{operator.name}:sum", operator.outputs[0])
        rows = operator.outputs[0].elements
        elements = operator.inputs[0].elements
        self._nodes.append(self._node(value, {stored}, elements, rows))
        if not finished:
            # Channels-last images and their channels are no single loop over what was summed.
            images = len(operator.inputs[0].shape) == 4 and operator.outputs[0].shape[0] > 1
            kept = frozenset([stored])
            apart = kept if images else frozenset[int]()
            self._inline[written] = _Inline(frozenset([position]), kept, 1, elsewhere=apart)

    def _library(self, position: int) -> None:
        operator = self._graph.operators[position]
        reads, writes = self._graph.reads[position], self._graph.writes[position]
        for tensor in reads:
            self._store(tensor)
        needed = list(reads)
        if self._channels_last and operator.kind in _CONVOLUTIONS:
            needed = self._in_channels_last(operator, reads)
        self._library_reads[position] = needed
        self._nodes.append(_Node({position}, set(needed), set(writes), 0, library=True, alone=True))

    def _in_channels_last(self, operator: Operator, reads: Sequence[int]) -> list[int]:
        """What a convolution reads, copied to the channels-last layout where it is not in it."""
        found = list(reads)
        for place, spec in enumerate(operator.inputs[:2]):
            tensor = reads[place]
            row_major = self._tensors[tensor].role != "activation" or tensor in self._row_major
            same = math.prod(spec.shape[2:]) == 1 or spec.shape[1] == 1
            if spec.strides is None and len(spec.shape) == 4 and row_major and not same:
                found[place] = self._copied.get(tensor) or self._copy(tensor, spec)
        return found

    def _copy(self, tensor: int, spec: TensorSpec) -> int:
        a, b, c, d = spec.shape
        seen = TensorSpec.of((a, c, d, b), spec.dtype, (b * c * d, d, 1, c * d))
        made = TensorSpec(seen.shape, spec.dtype)
        name = f"{self._tensors[tensor].name}/channels_last"
        number = self._new(name, made)
        attributes = attributes_of("copy", {}, (seen,), (made,))
        self._copied[tensor] = number
        self._copies[number] = Operator(name, "copy", (seen,), (made,), attributes)
        self._nodes.append(_Node(set(), {tensor}, {number}, spec.elements, alone=True))
        return number

    def _new(self, name: str, spec: TensorSpec) -> int:
        self._tensors.append(Tensor(name, "activation", float(spec.bytes), spec))
        return len(self._tensors) - 1

    @staticmethod
    def _window(operator: Operator) -> int:
        return math.prod(operator.attributes.get("kernel_size", [_LARGEST_WINDOW + 1]))

    def _settle(self, tensor: int) -> None:
        """Store a new value if its uses ask for it."""
        value = self._inline.get(tensor)
        if value is None:
            return
        if self._uses[tensor] > 1:
            readers = [self._graph.operators[o].kind for o in self._graph.consumers[tensor]]
            if any(self._needs_stored(kind) for kind in readers):
                self._hint(tensor)
            large = value.operations > _MOST_OPERATIONS or len(value.reads) > _REUSED_READS
            if value.costly or large:
                self._store(tensor)
        if len(value.reads) > _MOST_READS:
            self._hint(tensor)

    @staticmethod
    def _needs_stored(kind: str) -> bool:
        inline = kind in _POINTWISE or kind in _ROWS or kind in _REDUCTIONS or kind in _JOINS
        return not inline and kind not in ("addmm", "linear")

    def _hint(self, tensor: int) -> None:
        value = self._inline.get(tensor)
        if value is not None and len(value.reads) > 1:
            self._store(tensor)

    def _store(self, tensor: int) -> None:
        value = self._inline.pop(tensor, None)
        if value is None:
            return
        spec = self._tensors[tensor].spec
        elements = spec.elements if spec is not None else 0
        self._nodes.append(self._node(value, {tensor}, elements))

    @staticmethod
    def _node(value: _Inline, writes: set[int], elements: int, rows: int = 0) -> _Node:
        members, reads, elsewhere = set(value.members), set(value.reads), set(value.elsewhere)
        return _Node(members, reads, writes, elements, rows, elsewhere, value.flat)

    # -- what shares a loop ---------------------------------------------------------------------

    def _grouped(self) -> list[_Node]:
        nodes = list(self._nodes)
        for number, node in enumerate(nodes):
            node.first = node.last = number
        while True:
            pairs = self._pairs(nodes)
            if not pairs:
                return nodes
            merged: set[int] = set()
            for _, _, i, j in pairs:
                if i in merged or j in merged or _cycle(nodes, i, j):
                    continue
                nodes[i] = _joined(nodes[i], nodes[j])
                merged |= {i, j}
                nodes[j] = _Node(set(), set(), set(), 0, alone=True)
                break
            if not merged:
                return nodes
            nodes = [node for node in nodes if node.writes]

    def _pairs(self, nodes: Sequence[_Node]) -> list[tuple[float, int, int, int]]:
        """(-shared bytes, distance, earlier, later) of nodes that may become one, best first."""
        touching: dict[int, list[int]] = {}
        for number, node in enumerate(nodes):
            if not node.alone:
                for tensor in node.reads | node.writes:
                    touching.setdefault(tensor, []).append(number)
        found: dict[tuple[int, int], float] = {}
        for tensor, numbers in touching.items():
            for index, i in enumerate(numbers):
                for j in numbers[index + 1 :]:
                    found[i, j] = found.get((i, j), 0.0) + self._tensors[tensor].bytes
        return sorted(
            (-size, j - i, i, j)
            for (i, j), size in found.items()
            if size >= 10 and self._fits(nodes[i], nodes[j])
        )

    @staticmethod
    def _fits(first: _Node, second: _Node) -> bool:
        if len(first.writes) + len(second.writes) > _LARGEST_GROUP:
            return False
        if max(first.last, second.last) - min(first.first, second.first) > _FARTHEST:
            return False
        vertical = bool(first.writes & second.reads)
        if first.writes & second.elsewhere:
            return False
        if not vertical and len(first.writes) + len(second.writes) > _BESIDE_EACH_OTHER:
            return False
        if not first.rows and not second.rows:
            return first.elements == second.elements
        if not first.rows:  # point-wise, then a reduction of it: by rows, where that is a loop
            return vertical and first.elements == second.elements and not first.flat
        if not second.rows:  # a reduction, then something of the same rows
            return vertical and second.elements in (first.elements, first.rows)
        return first.rows == second.rows and (vertical or first.elements == second.elements)

    # -- the new graph --------------------------------------------------------------------------

    def made(self, nodes: Sequence[_Node]) -> DataflowGraph:
        """The graph of these kernels."""
        read_by: dict[int, int] = {}
        for node in nodes:
            for tensor in node.reads - node.writes:
                read_by[tensor] = read_by.get(tensor, 0) + 1
        operators, reads, writes = [], [], []
        for node in nodes:
            outside = sorted(node.reads - node.writes)
            kept = sorted(t for t in node.writes if t in read_by or t in self._results)
            operator = self._made_operator(node, outside, kept)
            if len(node.members) == 1 and operator.kind != "fused":
                (position,) = node.members
                outside = self._library_reads.get(position) or list(self._graph.reads[position])
                kept = list(self._graph.writes[position])
            operators.append(operator)
            reads.append(outside)
            writes.append(kept)
        used = {tensor for row in (*reads, *writes) for tensor in row}
        used.update(i for i, tensor in enumerate(self._tensors) if tensor.role == "input")
        used |= self._results
        number = {tensor: index for index, tensor in enumerate(sorted(used))}
        return DataflowGraph(
            self._graph.name,
            operators,
            [self._tensors[tensor] for tensor in sorted(used)],
            [[number[tensor] for tensor in row] for row in reads],
            [[number[tensor] for tensor in row] for row in writes],
            self._graph.results,
            self._graph.batch,
        )

    def _made_operator(self, node: _Node, reads: Sequence[int], writes: Sequence[int]) -> Operator:
        if not node.members:
            (tensor,) = node.writes
            return self._copies[tensor]
        operators = [self._graph.operators[position] for position in sorted(node.members)]
        if len(operators) == 1:
            (position,) = node.members
            own = self._graph.writes[position]
            if node.library or (
                set(writes) <= set(own) and set(reads) <= {*self._graph.reads[position]}
            ):
                return operators[0]
        inputs, outputs = self._specs(reads), self._specs(writes)
        crossing = sum(self._read_bytes(tensor, node) for tensor in reads)
        attributes = {
            "members": [operator.kind for operator in operators],
            "flops": sum(flops(o.kind, o.inputs, o.outputs, o.attributes) for o in operators),
            "bytes": crossing + float(sum(spec.bytes for spec in outputs)),
        }
        # An operator that is computed again may end several kernels; what each stores is its own.
        stored = self._tensors[writes[0]].name.removesuffix(":out")
        return Operator(f"{stored}/fused", "fused", inputs, outputs, attributes)

    def _specs(self, tensors: Iterable[int]) -> tuple[TensorSpec, ...]:
        specs = (self._tensors[tensor].spec for tensor in tensors)
        return tuple(spec for spec in specs if spec is not None)

    def _read_bytes(self, tensor: int, node: _Node) -> float:
        """Of a table only the rows that are looked up."""
        whole = self._tensors[tensor].bytes
        found = 0.0
        for position in node.members:
            reads, operator = self._graph.reads[position], self._graph.operators[position]
            if tensor in reads:
                rows = operator.kind in _LOOKED_UP and reads[0] == tensor
                part = min(whole, float(operator.outputs[0].bytes)) if rows else whole
                found = max(found, part)
        return found or whole


def _is_mean(operator: Operator) -> bool:
    """Pooling to one pixel is a mean."""
    return operator.kind == "adaptive_avg_pool2d" and operator.outputs[0].shape[-2:] == (1, 1)


def _joined(first: _Node, second: _Node) -> _Node:
    return _Node(
        first.members | second.members,
        first.reads | second.reads,
        first.writes | second.writes,
        max(first.elements, second.elements),
        first.rows or second.rows,
        first.elsewhere | second.elsewhere,
        first.flat and second.flat,
        first=min(first.first, second.first),
        last=max(first.last, second.last),
    )


def _successors(nodes: Sequence[_Node]) -> list[set[int]]:
    writer = {tensor: number for number, node in enumerate(nodes) for tensor in node.writes}
    found: list[set[int]] = [set() for _ in nodes]
    for number, node in enumerate(nodes):
        for tensor in node.reads:
            source = writer.get(tensor, number)
            if source != number:
                found[source].add(number)
    return found


def _cycle(nodes: Sequence[_Node], first: int, second: int) -> bool:
    """Whether a path leads from the one to the other through a third."""
    after = _successors(nodes)
    for start, end in ((first, second), (second, first)):
        waiting = [number for number in after[start] if number != end]
        seen = set(waiting)
        while waiting:
            for number in after[waiting.pop()]:
                if number == end:
                    return True
                if number not in seen:
                    seen.add(number)
                    waiting.append(number)
    return False


def _sorted(nodes: Sequence[_Node]) -> list[_Node]:
    """In topological order, otherwise as they came."""
    import heapq

    after = _successors(nodes)
    waiting = [0] * len(nodes)
    for targets in after:
        for target in targets:
            waiting[target] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(nodes[number])
        for target in after[number]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, target)
    return order
