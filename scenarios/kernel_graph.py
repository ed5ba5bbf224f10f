"""Calls of ATen operators, as an FX graph has them, to operators of a dataflow graph.

Of the calls

* views (anything whose result shares its argument's storage) cost nothing and are folded into the
  arguments of whatever reads them;
* dropout that does nothing, assertions, copies that keep the layout and conversions to the type that
  a tensor has already disappear;
* a copy that changes layout or type is an operator of kind ``copy``;
* a write into a part of a tensor (:mod:`scenarios.in_place`) is an operator whose target changes the first tensor
  that it reads, in place. What it makes of that tensor is a tensor of its own, ``cache:updated`` of a weight or an
  input ``cache``, in the same memory. The operator's ``outputs`` are the part that is written, its ``inputs`` have
  of the tensor no more than the part that it reads: what moves is priced, and no more;
* in training graphs a copy into a tensor is what is copied, whatever lay there before;
* whatever neither a result nor a buffer of the module comes of goes.
"""

from __future__ import annotations

import base64
import math
import operator as python_operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from cost_models.canonical import attributes_of, bind_arguments, kind_of
from cost_models.optimizer_steps import SCHEMAS, UPDATED
from scenarios.in_place import Write, Writes
from scenarios.refusals import no_aten_call
from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec

MODULE_PATH = "hetsim.module"
"""Annotation of a node (``torch.fx.traceback.annotate``) with the path of the module that calls it."""
# A constant made by a model's code travels inside the graph document, up to this many bytes.
_LARGEST_CONSTANT = 16 * 2**20
_DROPOUT = frozenset({"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"})


@dataclass(frozen=True)
class Seen:
    """A stored tensor (index into the graph's tensors) behind views."""

    tensor: int
    views: tuple[Any, ...] = ()

    def through(self, view: Any) -> Seen:
        """The same tensor behind one view more."""
        return Seen(self.tensor, (*self.views, view))


class GraphBuilder:
    """Makes a graph of the ATen calls of an FX graph, node by node.

    Args:
        name: the graph's name.
        batch: the batch size that it was made for, where it has one.
        clones: keep calls of ``clone`` that change no layout: nothing in an inference needs them, an
            operation in place keeps what its backward kernel reads by them.
    """

    def __init__(self, name: str, batch: int | None, clones: bool = False) -> None:
        self._name = name
        self._batch = batch
        self._clones = clones
        self._tensors: list[Tensor] = []
        self._names: set[str] = set()
        self._operators: list[Operator] = []
        self._reads: list[list[int]] = []
        self._writes: list[list[int]] = []
        self._values: dict[torch.fx.Node, Any] = {}
        self.in_place = Writes()

    # -- inputs and weights ---------------------------------------------------------------------

    def add_tensor(self, name: str, role: Any, spec: TensorSpec, content: str | None = None) -> int:
        """Note a tensor under its name, or one like it where that is taken; returns its index."""
        self._tensors.append(Tensor(self._unique(name), role, float(spec.bytes), spec, content))
        return len(self._tensors) - 1

    def _unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate

    # -- calls ----------------------------------------------------------------------------------

    def call(self, node: torch.fx.Node) -> None:
        """Note what a ``call_function`` node does.

        Raises:
            InvalidInput: it is no ATen operator, or depends on data.
        """
        if node.target is python_operator.getitem:
            source, index = self._values[node.args[0]], node.args[1]  # type: ignore[index]
            if isinstance(source, Seen):
                self._values[node] = source.through(["getitem", index])
            else:
                self._values[node] = source[index]
            return
        target, result = str(node.target), node.meta.get("val")
        if why := no_aten_call(node):
            raise InvalidInput(why)
        if not _tensors_in(result):
            # Assertions and the like, and numbers that depend on data: refused where they are used.
            self._values[node] = result
            return
        write = self.in_place.made.get(node)
        same = None if write is not None else self._unchanged(node)
        if write is not None:
            self._write(node, write)
        elif (begun := self.in_place.part_of.get(node)) is not None:
            whole: Seen = self._values[node.args[0]]  # type: ignore[index]
            self._values[node] = Seen(self._values[begun].tensor, whole.views)
        elif same is not None:
            self._values[node] = same
        elif (source := _viewed(node)) is not None:
            self._values[node] = self._view(node, source)
        else:
            self._operator(node, target)

    def _unchanged(self, node: torch.fx.Node) -> Any:
        """The value of the argument that this call hands on as it is, or None."""
        source = _source(node)
        if not isinstance(source, torch.fx.Node):
            return None
        name = _name(node)
        before, after = source.meta.get("val"), node.meta["val"]
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            return None
        copies = kind_of(str(node.target)) == "copy" or name in ("lift_fresh_copy", "type_as")
        copies &= not (self._clones and name == "clone") and node not in self.in_place.copies
        dropped = name in _DROPOUT and not _arguments(node)["train"]
        shared = _storage(before) == _storage(after)
        offset = before.storage_offset() == after.storage_offset()
        if not (copies or dropped or (shared and offset)) or _lazy(before) != _lazy(after):
            return None
        if spec_of(before) == spec_of(after):
            return self._values[source]
        if name == "copy" and _alike(before, after) and all(_written(node, u) for u in node.users):
            # The layout of what is written into a part of a tensor is of no account.
            node.meta["val"] = before
            return self._values[source]
        return None

    def _view(self, node: torch.fx.Node, source: torch.fx.Node) -> Seen:
        def convert(value: Any) -> Any:
            if value is source:
                return {"self": True}
            return self._node(value, None)

        assert isinstance(node.target, torch._ops.OpOverload)
        seen: Seen = self._values[source]
        args = [convert(value) for value in node.args]
        kwargs = {name: self._node(value, None) for name, value in node.kwargs.items()}
        return seen.through([str(node.target), args, kwargs])

    def _operator(self, node: torch.fx.Node, target: str) -> None:
        args, kwargs = list(node.args), dict(node.kwargs)
        results = node.meta["val"]
        kwargs.pop("pin_memory", None)
        if target == "aten._native_batch_norm_legit_no_training.default":
            # What functionalisation makes of the eager call, whose kernel is another one on GPUs.
            x, weight, bias, mean, variance, momentum, epsilon = args
            args = [x, weight, bias, mean, variance, False, momentum, epsilon, True]
            target, results = "aten.batch_norm.default", results[:1]
        if target == "aten.copy.default":
            self._values[node] = self._overwritten(node)
            return
        reads: list[int] = []
        inputs: list[TensorSpec] = []
        leaves = (reads, inputs)
        template = {
            "args": [self._node(value, leaves) for value in args],
            "kwargs": {name: self._node(value, leaves) for name, value in kwargs.items()},
        }
        written = _tensors_in(results)
        outputs = tuple(map(spec_of, written))
        kind, attributes = describe(target, template, inputs, outputs)
        operator = Operator(
            name=self._unique(_readable(node, kind)),
            kind=kind,
            inputs=tuple(inputs),
            outputs=outputs,
            attributes=attributes,
            target=target,
            template=template,
            reads=tuple(_required(self._tensors[tensor].spec) for tensor in reads),
        )
        tensors = self._append(operator, reads)
        if isinstance(node.meta["val"], torch.Tensor):
            self._values[node] = Seen(tensors[0])
        else:
            remaining = iter(tensors)
            self._values[node] = _nested(results, remaining)

    def _write(self, node: torch.fx.Node, write: Write) -> None:
        changed: Seen = self._values[write.args[0]]
        stored = self._tensors[changed.tensor]
        reads: list[int] = []
        inputs: list[TensorSpec] = []
        leaves = (reads, inputs)
        args = [self._node(value, leaves) for value in write.args]
        if write.view is not None:
            target, rest = write.view
            args[0]["views"].append(
                [target, [{"self": True}, *(self._node(value, None) for value in rest)], {}]
            )
        template = {
            "args": args,
            "kwargs": {name: self._node(value, leaves) for name, value in write.kwargs.items()},
        }
        part = (
            inputs[0]
            if write.region == inputs[0].shape
            else TensorSpec(write.region, inputs[0].dtype)
        )
        known, others = [part, *inputs[1:]], inputs[1:]
        kind, attributes = describe(
            write.target, template, known if write.reads else others or known, [part]
        )
        operator = Operator(
            name=self._unique(_readable(node, kind)),
            kind=kind,
            inputs=tuple(known if write.reads else others),
            outputs=(part,),
            attributes=attributes,
            target=write.target,
            template=template,
            reads=tuple(_required(self._tensors[tensor].spec) for tensor in reads),
        )
        label = f"{operator.name}:out"
        if stored.role != "activation":
            label = f"{stored.name}{UPDATED}"
        written = self.add_tensor(label, "activation", _required(stored.spec))
        self._operators.append(operator)
        self._reads.append(reads)
        self._writes.append([written])
        self._values[node] = Seen(written, changed.views)
        if write.view is None:
            return
        whole: Seen = self._values[node.args[0]]  # type: ignore[index]
        self._values[node] = Seen(written, whole.views)

    def _overwritten(self, node: torch.fx.Node) -> Seen:
        """``copy(self, src)``: the elements of ``src`` in the shape, type and order of dimensions of
        ``self``, none of whose elements are read.
        """
        source, made = _source(node), node.meta["val"]
        order = sorted(range(made.dim()), key=lambda i: (-made.stride(i), i))
        seen: Seen = self._values[source]
        value = source.meta["val"]
        for target, argument, apply in (
            ("aten.expand.default", list(made.shape), torch.Tensor.expand),
            ("aten.permute.default", order, torch.Tensor.permute),
        ):
            viewed = apply(value, argument)
            if spec_of(viewed) != spec_of(value):
                seen = seen.through([target, [{"self": True}, argument], {}])
                value = viewed
        (written,) = self.add_operator(
            "aten._to_copy.default",
            [(seen, spec_of(value))],
            {
                "dtype": constant(made.dtype),
                "memory_format": constant(torch.contiguous_format),
            },
            _path(node),
            (TensorSpec(spec_of(value).shape, spec_of(made).dtype),),
        )
        # Rows of a part of a larger tensor have gaps between them, which a copy has not.
        dense = torch.empty(value.shape, device="meta")
        found = Seen(written)
        if order != sorted(order):
            inverse = [order.index(i) for i in range(len(order))]
            dense = dense.permute(inverse)
            found = found.through(["aten.permute.default", [{"self": True}, inverse], {}])
        node.meta["val"] = made.as_strided(dense.shape, dense.stride(), 0)
        return found

    def _append(self, operator: Operator, reads: list[int]) -> list[int]:
        tensors = []
        for index, spec in enumerate(operator.outputs):
            label = (
                f"{operator.name}:{index}" if len(operator.outputs) > 1 else f"{operator.name}:out"
            )
            tensors.append(self.add_tensor(label, "activation", spec))
        self._operators.append(operator)
        self._reads.append(reads)
        self._writes.append(tensors)
        return tensors

    def add_operator(
        self,
        target: str,
        leaves: Sequence[tuple[Seen, TensorSpec]],
        constants: Mapping[str, Any],
        path: str,
        outputs: tuple[TensorSpec, ...],
    ) -> list[int]:
        """Append an operator that no node stands for; returns the tensors that it writes.

        Args:
            target: what it calls.
            leaves: its positional arguments, each a tensor behind views and its spec there.
            constants: its arguments by name, in the form of templates.
            path: begins its name, unless empty; what kind it is ends it.
            outputs: what it writes.
        """
        reads: list[int] = []
        inputs: list[TensorSpec] = []
        template = {
            "args": [self._leaf(seen, spec, (reads, inputs)) for seen, spec in leaves],
            "kwargs": dict(constants),
        }
        kind, attributes = describe(target, template, inputs, outputs)
        operator = Operator(
            name=self._unique(f"{path}/{kind}" if path else kind),
            kind=kind,
            inputs=tuple(inputs),
            outputs=outputs,
            attributes=attributes,
            target=target,
            template=template,
            reads=tuple(_required(self._tensors[tensor].spec) for tensor in reads),
        )
        return self._append(operator, reads)

    def rename(self, tensor: int, name: str) -> None:
        """Give a tensor another name, or one like it where that is taken."""
        if self._tensors[tensor].name == name:
            return
        self._tensors[tensor] = replace(self._tensors[tensor], name=self._unique(name))

    def updated(self, path: str, value: Any) -> list[int]:
        """The tensor that a buffer becomes; its name says so where an operator writes just that."""
        seen = self._values.get(value) if isinstance(value, torch.fx.Node) else None
        if not isinstance(seen, Seen):
            return []
        if not seen.views and self._tensors[seen.tensor].role == "activation":
            self.rename(seen.tensor, f"{path}{UPDATED}")
        return [seen.tensor]

    def _node(self, value: Any, leaves: tuple[list[int], list[TensorSpec]] | None) -> Any:
        """A call's argument in the form of templates; tensors are noted in ``leaves``."""
        if isinstance(value, torch.fx.Node):
            found = self._values[value]
            if isinstance(found, Seen) and isinstance(value.meta["val"], list | tuple):
                found = [found.through(["getitem", i]) for i in range(len(value.meta["val"]))]
            if isinstance(found, list):
                return [
                    self._leaf(part, spec, leaves)
                    for part, spec in zip(found, map(spec_of, value.meta["val"]), strict=True)
                ]
            if isinstance(found, Seen):
                return self._leaf(found, spec_of(value.meta["val"]), leaves)
            return constant(found)
        if isinstance(value, list | tuple):
            return [self._node(part, leaves) for part in value]
        return constant(value)

    def _leaf(
        self, seen: Seen, spec: TensorSpec, leaves: tuple[list[int], list[TensorSpec]] | None
    ) -> Any:
        if leaves is None:
            raise InvalidInput("it has a view of two tensors")
        reads, inputs = leaves
        if seen.tensor not in reads:
            reads.append(seen.tensor)
        inputs.append(spec)
        return {"read": reads.index(seen.tensor), "views": list(seen.views)}

    def result(self, value: Any) -> dict[str, Any]:
        """One of the graph's results: a tensor behind views, or a constant."""
        if isinstance(value, torch.fx.Node):
            seen = self._values[value]
            if isinstance(seen, Seen):
                return {"tensor": self._tensors[seen.tensor].name, "views": list(seen.views)}
            value = seen
        return {"value": constant(value)}

    def pruned(
        self, results: Sequence[Mapping[str, Any]], kept: Collection[int] = ()
    ) -> DataflowGraph:
        """The graph without operators that reach no result and weights that nobody reads.

        Args:
            results: how the graph's results are made of tensors.
            kept: further tensors whose operators stay.
        """
        index = {tensor.name: i for i, tensor in enumerate(self._tensors)}
        wanted = {index[result["tensor"]] for result in results if "tensor" in result}
        wanted.update(kept)
        alive = [False] * len(self._operators)
        for position in reversed(range(len(self._operators))):
            if wanted.intersection(self._writes[position]):
                alive[position] = True
                wanted.update(self._reads[position])
        living = [position for position, lives in enumerate(alive) if lives]
        self._order_writes(living)
        wanted.update(tensor for position in living for tensor in self._writes[position])
        renumbered: dict[int, int] = {}
        for position, tensor in enumerate(self._tensors):
            if position in wanted or tensor.role == "input":
                renumbered[position] = len(renumbered)
        return DataflowGraph(
            self._name,
            [self._operators[position] for position in living],
            [self._tensors[position] for position in renumbered],
            [[renumbered[tensor] for tensor in self._reads[position]] for position in living],
            [[renumbered[tensor] for tensor in self._writes[position]] for position in living],
            results,
            self._batch,
        )

    def _order_writes(self, living: Sequence[int]) -> None:
        """Let what is written in place wait for whoever reads what was there before: it reads a result of theirs."""
        if not any(self._operators[position].in_place for position in living):
            return
        producer = {t: position for position in living for t in self._writes[position]}
        before: dict[int, set[int]] = {}
        for position in living:
            parents = {producer[t] for t in self._reads[position] if t in producer}
            before[position] = parents.union(*(before[parent] for parent in parents))
            if not self._operators[position].in_place:
                continue
            changed = self._reads[position][0]
            for reader in living:
                if (
                    reader < position
                    and changed in self._reads[reader]
                    and reader not in before[position]
                ):
                    self._reads[position].append(self._writes[reader][0])
                    before[position] |= {reader} | before[reader]
            specs = tuple(_required(self._tensors[t].spec) for t in self._reads[position])
            self._operators[position] = replace(self._operators[position], reads=specs)


def describe(
    target: str,
    template: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> tuple[str, dict[str, Any]]:
    """Canonical kind and attributes of a call."""
    schema: Sequence[tuple[str, Any]]
    if target in SCHEMAS:
        schema = SCHEMAS[target]
    else:
        _, packet, overload = target.split(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload)
        schema = [(a.name, a.default_value) for a in operation._schema.arguments]
    arguments = bind_arguments(schema, template["args"], template["kwargs"])
    spatial = len(inputs[1].shape) - 2 if len(inputs) > 1 else None
    kind = kind_of(target, spatial, arguments.get("transposed") is True)
    return kind, attributes_of(kind, arguments, inputs, outputs)


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The argument whose storage all of a call's results share, if there is one."""
    storages = {_storage(tensor) for tensor in _tensors_in(node.meta["val"])}
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor) and storages == {_storage(value)}:
            return source
    return None


def _nested(results: Any, tensors: Iterator[int]) -> Any:
    """Results in their structure, each tensor replaced by what the graph calls it."""
    if isinstance(results, torch.Tensor):
        return Seen(next(tensors))
    if isinstance(results, list | tuple):
        return [_nested(part, tensors) for part in results]
    return results


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors_in(part)]
    return []


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _name(node: torch.fx.Node) -> str:
    """The ATen name of a call without its overload."""
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._schema.name.removeprefix("aten::")


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """A call's arguments by their names in the schema."""
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = [(a.name, a.default_value) for a in node.target._schema.arguments]
    return bind_arguments(schema, node.args, node.kwargs)


def _source(node: torch.fx.Node) -> Any:
    """The argument whose elements a copy takes: ``src`` of ``copy(self, src)``, else the first one."""
    arguments = _arguments(node)
    return arguments["src"] if _name(node) == "copy" else next(iter(arguments.values()), None)


def _lazy(tensor: torch.Tensor) -> tuple[bool, bool]:
    """Whether a tensor's elements are to be conjugated and negated when they are read."""
    return tensor.is_conj(), tensor.is_neg()


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _written(node: torch.fx.Node, user: torch.fx.Node) -> bool:
    """Whether a call reads a tensor just to write it into a part of another."""
    if not isinstance(user.target, torch._ops.OpOverload) or not _name(user).endswith("_scatter"):
        return False
    arguments = _arguments(user)
    return arguments.get("src") is node and arguments["self"] is not node


def _readable(node: torch.fx.Node, kind: str) -> str:
    """An operator's name: the path of the module that makes the call, and the kind."""
    path = _path(node)
    return f"{path}/{kind}" if path else kind


def _path(node: torch.fx.Node) -> str:
    """The path of the module that makes a call."""
    path = str((node.meta.get("custom") or {}).get(MODULE_PATH, ""))
    for location, _ in (node.meta.get("nn_module_stack") or {}).values():
        path = location
    # A module that is called more than once has "@1" and so on after its path.
    return path.split("@")[0]


def content_of(tensor: torch.Tensor, name: str) -> str:
    """A constant's elements as base64, row-major and little-endian."""
    if isinstance(tensor, FakeTensor):
        raise InvalidInput(
            f"the constant '{name}' has no data; make it a buffer of the module (register_buffer)"
        )
    if tensor.numel() * tensor.element_size() > _LARGEST_CONSTANT:
        raise InvalidInput(
            f"the constant '{name}' of shape {list(tensor.shape)} is too large to travel inside a "
            "graph; make it a buffer of the module (register_buffer)"
        )
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode()


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, element type and strides of a tensor.

    Raises:
        InvalidInput: a size depends on the data.
    """
    return TensorSpec.of(
        [_size(n) for n in tensor.shape],
        str(tensor.dtype).removeprefix("torch."),
        [_size(n) for n in tensor.stride()],
    )


def _size(number: int | torch.SymInt) -> int:
    if isinstance(number, torch.SymInt):
        known = number.node.maybe_as_int()
        if known is None:
            raise InvalidInput(
                "a tensor has a size that depends on its data (as boolean indexing, nonzero, and lengths "
                "computed from tensors make); such a model has no single graph"
            )
        return int(known)
    return int(number)


def _required(spec: TensorSpec | None) -> TensorSpec:
    assert spec is not None  # every tensor of a traced graph has one
    return spec


def constant(value: Any) -> Any:
    """A constant in the form of templates."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": True}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise InvalidInput(
            "it computes with a Python number or a length that depends on its data (as item(), tolist(), "
            "int() and float() of a tensor make); keep it a tensor, or give it as an input of fixed size"
        )
    kind = getattr(
        value, "class_fqn", type(value).__name__
    )  # of an object, such as a torch.Generator
    raise InvalidInput(f"an argument of type {kind} cannot be kept in a graph; leave it out")
