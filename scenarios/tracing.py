"""Models to graphs: any ``torch.nn.Module`` traced into a :class:`DataflowGraph`.

The module is exported by ``torch.export`` on tensors without data and functionalised
(``run_decompositions({})``), which leaves the calls that eager PyTorch makes: one convolution, one
linear layer, one attention each. Of those calls

* views (anything whose result shares its argument's storage) cost nothing and are folded into the
  arguments of whatever reads them;
* dropout of a model in evaluation mode, assertions, copies that keep the layout and conversions to
  the type that a tensor has already disappear;
* a copy that changes layout or type is an operator of kind ``copy``;
* whatever nothing reads goes.

What remains are the kernels, in the order in which eager PyTorch runs them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import logging
import math
import operator as python_operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, OutputKind

from cost_models.canonical import attributes_of, bind_arguments, kind_of
from simulator.errors import InvalidInput
from simulator.family import GraphFamily
from simulator.graph import DataflowGraph, Operator, Tensor, TensorSpec

# A constant made by a model's code travels inside the graph document, up to this many bytes.
_LARGEST_CONSTANT = 16 * 2**20
_DROPOUT = frozenset({"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"})


def trace_model(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    batch: int | None = None,
) -> DataflowGraph:
    """Trace a module in evaluation mode into a graph of its kernels.

    The graph's inputs are named as ``forward`` names them, weights by their path in the module (the
    first one where a tensor has several, as tied weights do). ``graph.results`` lists the outputs
    in the flattened order of ``torch.utils._pytree``.

    Args:
        module: any module, with or without data (built under ``FakeTensorMode``). Its training flags
            are put back afterwards.
        example_inputs: a tensor, a sequence of positional arguments, or a mapping of arguments by
            name.
        kwargs: further arguments by name.
        name: the graph's name; the class's name unless given.
        batch: the batch size that the inputs have, recorded in the graph.

    Raises:
        InvalidInput: torch cannot export the model (its reason is quoted), or the exported model
            has a step that is no ATen operator.
    """
    name = name or type(module).__name__
    args, named = _arguments(example_inputs, kwargs)
    with _evaluated(module):
        program = _export(module, args, named, name)
    try:
        return _Converter(program, module, name, batch).graph()
    except InvalidInput as error:
        raise InvalidInput(f"Model '{name}' cannot be traced: {error}") from error


def trace_family(
    make: Callable[[int], tuple[torch.nn.Module, tuple[Sequence[Any], Mapping[str, Any]]]],
    name: str | None = None,
    batches: tuple[int, int, int] = (2, 3, 5),
) -> GraphFamily:
    """Trace a model at three batch sizes into its graphs at all of them.

    Args:
        make: gives for a batch size the module and its inputs as (positional, by name).
        name: the graphs' name; the class's name unless given.
        batches: two that determine the family and a third that checks it; at least 2, since batch 1
            lets torch take shortcuts that hold there alone.

    Raises:
        InvalidInput: the model cannot be exported, or its graph is not affine in the batch.
    """
    graphs = []
    for batch in batches:
        module, (args, kwargs) = make(batch)
        graphs.append(trace_model(module, args, kwargs=kwargs, name=name, batch=batch))
    return GraphFamily.from_graphs(*graphs)


def _arguments(
    example_inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = dict(kwargs or {})
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), named
    if isinstance(example_inputs, Mapping):
        return (), {**example_inputs, **named}
    return tuple(example_inputs), named


@contextlib.contextmanager
def _evaluated(module: torch.nn.Module) -> Iterator[None]:
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in flags:
            part.training = training


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Without the warnings, logs and listings that torch writes beside the error it raises.

    Yields what would have gone to standard error.
    """
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    written = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(written):
            warnings.simplefilter("ignore")
            yield written
    finally:
        log.setLevel(level)


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> torch.export.ExportedProgram:
    _register_fake_attributes(module)
    with _quiet() as written, torch.no_grad():
        try:
            program = torch.export.export(module, args, kwargs, strict=False)
            return program.run_decompositions({})
        except Exception as error:  # torch raises dozens of types here, user code any other
            reason = _reason(error, written.getvalue())
            raise InvalidInput(f"Model '{name}' cannot be exported: {reason}") from error


def _reason(error: Exception, written: str) -> str:
    """The first paragraph of torch's message on one line, with the line of code it concerns."""
    lines = str(error).strip().splitlines()
    paragraph = itertools.takewhile(str.strip, lines)
    reason = " ".join(line.strip() for line in paragraph) or "no message"
    if len(reason) > 600:
        reason = reason[:597] + "..."
    # Torch lists the program up to the failure, each step below "# File: <where>, code: <line>".
    places = re.findall(r"# File: (.+?), code: (.+)", written)
    where = f", in `{places[-1][1].strip()}` ({places[-1][0]})" if places else ""
    return f"{type(error).__name__}: {reason}{where}"


def _register_fake_attributes(module: torch.nn.Module) -> None:
    """Make plain tensor attributes of a module without data buffers of the same name.

    As constants they would be executed while the program is decomposed, and an operator on fake
    constants alone crashes torch 2.13.
    """
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, FakeTensor):
                delattr(part, name)
                part.register_buffer(name, value, persistent=False)


@dataclass(frozen=True)
class _Seen:
    """A stored tensor (index into the graph's tensors) behind views."""

    tensor: int
    views: tuple[Any, ...] = ()

    def through(self, view: Any) -> _Seen:
        return _Seen(self.tensor, (*self.views, view))


class _Converter:
    """Turns one exported program into a graph."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        module: torch.nn.Module,
        name: str,
        batch: int | None,
    ) -> None:
        self._program = program
        self._module = module
        self._name = name
        self._batch = batch
        self._tensors: list[Tensor] = []
        self._names: set[str] = set()
        self._operators: list[Operator] = []
        self._reads: list[list[int]] = []
        self._writes: list[list[int]] = []
        self._values: dict[torch.fx.Node, Any] = {}

    def graph(self) -> DataflowGraph:
        results: list[dict[str, Any]] = []
        nodes = list(self._program.graph.nodes)
        self._add_inputs([node for node in nodes if node.op == "placeholder"])
        for node in nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                results = self._results(node)
            elif node.op == "get_attr":
                raise InvalidInput(
                    f"it has control flow over submodules ('{node.target}'), which has no single "
                    "graph of kernels"
                )
        return self._pruned(results)

    # -- inputs and weights ---------------------------------------------------------------------

    def _add_inputs(self, placeholders: Sequence[torch.fx.Node]) -> None:
        canonical = _canonical_names(self._module)
        specs = self._program.graph_signature.input_specs
        stored: dict[str, int] = {}
        for node, spec in zip(placeholders, specs, strict=True):
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                self._values[node] = value
                continue
            if spec.kind == InputKind.USER_INPUT:
                self._values[node] = _Seen(self._add_tensor(node.name, "input", _spec(value)))
                continue
            target = canonical.get(str(spec.target), str(spec.target))
            if target not in stored:
                content = None
                if spec.kind == InputKind.CONSTANT_TENSOR and target not in canonical:
                    content = _content(self._program.constants[str(spec.target)], target)
                stored[target] = self._add_tensor(target, "weight", _spec(value), content)
            self._values[node] = _Seen(stored[target])

    def _add_tensor(
        self, name: str, role: Any, spec: TensorSpec, content: str | None = None
    ) -> int:
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

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is python_operator.getitem:
            source, index = self._values[node.args[0]], node.args[1]  # type: ignore[index]
            if isinstance(source, _Seen):
                self._values[node] = source.through(["getitem", index])
            else:
                self._values[node] = source[index]
            return
        target = str(node.target)
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise InvalidInput(
                f"it uses '{target}', which is no ATen operator; only those can be measured and run"
            )
        if not _tensors_in(node.meta.get("val")):
            return  # assertions and the like
        same = self._unchanged(node)
        if same is not None:
            self._values[node] = same
        elif (source := _viewed(node)) is not None:
            self._values[node] = self._view(node, source)
        else:
            self._operator(node, target)

    def _unchanged(self, node: torch.fx.Node) -> Any:
        """The value of the argument that this call hands on as it is, or None."""
        assert isinstance(node.target, torch._ops.OpOverload)
        name = node.target._schema.name.removeprefix("aten::")
        if not node.args or not isinstance(node.args[0], torch.fx.Node):
            return None
        before, after = node.args[0].meta.get("val"), node.meta["val"]
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            return None
        copies = kind_of(str(node.target)) == "copy" or name in ("lift_fresh_copy", "type_as")
        dropped = name in _DROPOUT and not _argument(node, "train")
        shared = _storage(before) == _storage(after)
        offset = before.storage_offset() == after.storage_offset()
        if (copies or dropped or (shared and offset)) and _spec(before) == _spec(after):
            return self._values[node.args[0]]
        return None

    def _view(self, node: torch.fx.Node, source: torch.fx.Node) -> _Seen:
        def convert(value: Any) -> Any:
            if value is source:
                return {"self": True}
            return self._node(value, None)

        assert isinstance(node.target, torch._ops.OpOverload)
        seen: _Seen = self._values[source]
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
        reads: list[int] = []
        inputs: list[TensorSpec] = []
        leaves = (reads, inputs)
        template = {
            "args": [self._node(value, leaves) for value in args],
            "kwargs": {name: self._node(value, leaves) for name, value in kwargs.items()},
        }
        written = _tensors_in(results)
        outputs = tuple(map(_spec, written))
        kind, attributes = _describe(target, template, inputs, outputs)
        name = self._unique(_readable(node, kind))
        tensors = []
        for index, spec in enumerate(outputs):
            label = f"{name}:{index}" if len(outputs) > 1 else f"{name}:out"
            tensors.append(self._add_tensor(label, "activation", spec))
        self._operators.append(
            Operator(
                name=name,
                kind=kind,
                inputs=tuple(inputs),
                outputs=outputs,
                attributes=attributes,
                target=target,
                template=template,
                reads=tuple(_required(self._tensors[tensor].spec) for tensor in reads),
            )
        )
        self._reads.append(reads)
        self._writes.append(tensors)
        if isinstance(node.meta["val"], torch.Tensor):
            self._values[node] = _Seen(tensors[0])
        else:
            remaining = iter(tensors)
            self._values[node] = _nested(results, remaining)

    def _node(self, value: Any, leaves: tuple[list[int], list[TensorSpec]] | None) -> Any:
        """A call's argument in the form of templates; tensors are noted in ``leaves``."""
        if isinstance(value, torch.fx.Node):
            found = self._values[value]
            if isinstance(found, _Seen) and isinstance(value.meta["val"], list | tuple):
                found = [found.through(["getitem", i]) for i in range(len(value.meta["val"]))]
            if isinstance(found, list):
                return [
                    self._leaf(part, spec, leaves)
                    for part, spec in zip(found, map(_spec, value.meta["val"]), strict=True)
                ]
            if isinstance(found, _Seen):
                return self._leaf(found, _spec(value.meta["val"]), leaves)
            return _constant(found)
        if isinstance(value, list | tuple):
            return [self._node(part, leaves) for part in value]
        return _constant(value)

    def _leaf(
        self, seen: _Seen, spec: TensorSpec, leaves: tuple[list[int], list[TensorSpec]] | None
    ) -> Any:
        if leaves is None:
            raise InvalidInput("it has a view of two tensors")
        reads, inputs = leaves
        if seen.tensor not in reads:
            reads.append(seen.tensor)
        inputs.append(spec)
        return {"read": reads.index(seen.tensor), "views": list(seen.views)}

    # -- results --------------------------------------------------------------------------------

    def _results(self, node: torch.fx.Node) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        values = node.args[0]
        assert isinstance(values, list | tuple)
        specs = self._program.graph_signature.output_specs
        for value, spec in zip(values, specs, strict=True):
            if spec.kind != OutputKind.USER_OUTPUT:
                continue  # what the model's buffers would become: nothing keeps them here
            if isinstance(value, torch.fx.Node):
                seen = self._values[value]
                if isinstance(seen, _Seen):
                    found.append(
                        {"tensor": self._tensors[seen.tensor].name, "views": list(seen.views)}
                    )
                    continue
                value = seen
            found.append({"value": _constant(value)})
        return found

    def _pruned(self, results: list[dict[str, Any]]) -> DataflowGraph:
        """The graph without operators that reach no result and weights that nobody reads."""
        index = {tensor.name: i for i, tensor in enumerate(self._tensors)}
        wanted = {index[result["tensor"]] for result in results if "tensor" in result}
        alive = [False] * len(self._operators)
        for position in reversed(range(len(self._operators))):
            if wanted.intersection(self._writes[position]):
                alive[position] = True
                wanted.update(self._reads[position])
        kept = [position for position, lives in enumerate(alive) if lives]
        wanted.update(tensor for position in kept for tensor in self._writes[position])
        renumbered: dict[int, int] = {}
        for position, tensor in enumerate(self._tensors):
            if position in wanted or tensor.role == "input":
                renumbered[position] = len(renumbered)
        return DataflowGraph(
            self._name,
            [self._operators[position] for position in kept],
            [self._tensors[position] for position in renumbered],
            [[renumbered[tensor] for tensor in self._reads[position]] for position in kept],
            [[renumbered[tensor] for tensor in self._writes[position]] for position in kept],
            results,
            self._batch,
        )


def _describe(
    target: str,
    template: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> tuple[str, dict[str, Any]]:
    """Canonical kind and attributes of a call."""
    _, packet, overload = target.split(".")
    schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
    arguments = bind_arguments(
        [(argument.name, argument.default_value) for argument in schema.arguments],
        template["args"],
        template["kwargs"],
    )
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
        return _Seen(next(tensors))
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


def _argument(node: torch.fx.Node, name: str) -> Any:
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = [(a.name, a.default_value) for a in node.target._schema.arguments]
    return bind_arguments(schema, node.args, node.kwargs)[name]


def _readable(node: torch.fx.Node, kind: str) -> str:
    """An operator's name: the path of the module that makes the call, and the kind."""
    path = ""
    for location, _ in (node.meta.get("nn_module_stack") or {}).values():
        path = location
    # A module that is called more than once has "@1" and so on after its path.
    path = path.split("@")[0]
    return f"{path}/{kind}" if path else kind


def _canonical_names(module: torch.nn.Module) -> dict[str, str]:
    """For every path of every tensor that a module holds the first path of the same tensor."""
    first: dict[int, str] = {}
    names: dict[str, str] = {}
    for name, tensor in _held(module):
        names[name] = first.setdefault(id(tensor), name)
    return names


def _held(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
    for path, part in module.named_modules(remove_duplicate=False):
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}" if path else name, value


def _content(tensor: torch.Tensor, name: str) -> str:
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


def _spec(tensor: torch.Tensor) -> TensorSpec:
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
                "a tensor has a size that depends on its data (as boolean indexing "
                "and nonzero make); such a model has no single graph"
            )
        return int(known)
    return int(number)


def _required(spec: TensorSpec | None) -> TensorSpec:
    assert spec is not None  # every tensor of a traced graph has one
    return spec


def _constant(value: Any) -> Any:
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
        raise InvalidInput(f"a number depends on its data ({value})")
    raise InvalidInput(f"an argument of type {type(value).__name__} cannot be kept in a graph")
