"""Models to graphs: any ``torch.nn.Module`` traced into a :class:`DataflowGraph`.

The module is exported by ``torch.export`` on tensors without data and functionalised
(``run_decompositions({})``), which leaves the calls that eager PyTorch makes: one convolution, one
linear layer, one attention each. What
:mod:`scenarios.kernel_graph` leaves of those calls are the kernels, in the order in which eager
PyTorch runs them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from cost_models.arithmetic import is_known
from cost_models.canonical import kind_of
from scenarios.in_place import writes_of
from scenarios.kernel_graph import GraphBuilder, Seen, content_of, spec_of
from scenarios.outputs import without_fast_path
from scenarios.refusals import check_module, reason_of, watched
from scenarios.verification import check_inference, set_aside
from simulator.errors import InvalidInput
from simulator.model.family import GraphFamily
from simulator.model.graph import DataflowGraph


def trace_model(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    batch: int | None = None,
    check: bool = True,
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
        check: execute graph and module on small inputs and compare them
            (:mod:`scenarios.verification`); where that is not possible ``graph.unchecked`` says why.

    Raises:
        InvalidInput: torch cannot export the model (its reason is quoted), the exported model has a
            step that is no ATen operator, or its graph computes something else than the module.
    """
    name = name or type(module).__name__
    args, named = arguments_of(example_inputs, kwargs)
    check_module(module, (args, named), name)
    with _evaluated(module):
        executed = set_aside(module) if check else "it was not asked for"
        program = _export(module, args, named, name)
    try:
        converter = _Converter(program, module, name, batch)
        graph = converter.graph()
        graph.unchecked = check_inference(graph, executed, args, named, converter.changed)
        return graph
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
            lets torch take shortcuts that hold there alone. Any other batch is traced once when it is
            asked for.

    Raises:
        InvalidInput: the model cannot be exported, or its graph is not affine in the batch.
    """

    def trace(batch: int, check: bool = True) -> DataflowGraph:
        module, (args, kwargs) = make(batch)
        return trace_model(module, args, kwargs=kwargs, name=name, batch=batch, check=check)

    return family_of(trace, batches)


def family_of(
    trace: Callable[[int, bool], DataflowGraph], batches: tuple[int, int, int] = (2, 3, 5)
) -> GraphFamily:
    """The family of what is traced at three batches, the first of which is held against the model.

    Args:
        trace: traces at a batch; the second argument: hold the graph against the model.
        batches: as of :func:`trace_family`.

    Raises:
        InvalidInput: the graph is not affine in the batch.
    """
    family = GraphFamily.from_graphs(*(trace(batch, batch == batches[0]) for batch in batches))
    family.trace = lambda batch: trace(batch, True)
    return family


def arguments_of(
    example_inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and those by name, of inputs in any form that tracing takes."""
    args: tuple[Any, ...] = ()
    named = dict(kwargs or {})
    if isinstance(example_inputs, torch.Tensor):
        args = (example_inputs,)
    elif isinstance(example_inputs, Mapping):
        named = {**example_inputs, **named}
    elif isinstance(example_inputs, Iterable):
        args = tuple(example_inputs)
    else:
        raise InvalidInput(
            "Example inputs are a tensor, a sequence of positional arguments or a mapping of arguments by "
            f"name, not a {type(example_inputs).__name__}"
        )
    seen: set[int] = set()

    def apart(leaf: Any) -> Any:
        # Torch takes a tensor that is given twice for one input.
        again = isinstance(leaf, torch.Tensor) and id(leaf) in seen
        seen.add(id(leaf))
        return leaf.clone() if again else leaf

    return pytree.tree_map(apart, args), pytree.tree_map(apart, named)


@contextlib.contextmanager
def _evaluated(module: torch.nn.Module) -> Iterator[None]:
    """In evaluation mode; what ``forward`` keeps in attributes meanwhile has no data, and is taken away after."""
    flags = [(part, part.training) for part in module.modules()]
    with contextlib.suppress(NotImplementedError):  # an exported module has one mode
        module.eval()
    states = [(vars(part), dict(vars(part))) for part, _ in flags]
    kept = [
        (container, copy.copy(container))
        for _, state in states
        for container in state.values()
        if type(container) in (dict, OrderedDict, defaultdict, list, set)
    ]
    try:
        yield
    finally:
        for attributes, state in states:
            attributes.clear()
            attributes.update(state)
        for container, content in kept:  # in place: handles of hooks know them
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(content)
        for part, training in flags:
            part.training = training


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings, logs and listings that torch writes beside the error it raises."""
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> torch.export.ExportedProgram:
    register_fake_attributes(module)
    with quiet(), torch.no_grad(), without_fast_path():
        try:
            with watched(module):
                program = torch.export.export(module, args, kwargs, strict=False)
            return program.run_decompositions(_decompositions(program))
        except Exception as error:  # torch raises dozens of types here, user code any other
            raise InvalidInput(f"Model '{name}' cannot be exported: {reason_of(error)}") from error


def _decompositions(program: torch.export.ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """How composite operators of unknown work, and ``einsum``, become the calls that they make in eager PyTorch, too;
    empty where a program has none of them.
    """
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    return _composites() if called & _composites().keys() else {}


@functools.cache
def _composites() -> dict[Any, Callable[..., Any]]:
    """Every operator that is only a way to call others, and whose kind says nothing of its work."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return {
        operation: decomposition
        for operation, decomposition in torch.export.default_decompositions().items()
        if isinstance(operation, torch._ops.OpOverload)
        and operation.namespace == "aten"
        and any("Tensor" in str(result.type) for result in operation._schema.returns)
        and ((kind := kind_of(str(operation))) == "einsum" or not is_known(kind))
        and operation.has_kernel_for_dispatch_key(key)
    }


def register_fake_attributes(module: torch.nn.Module) -> None:
    """Make plain tensor attributes of a module without data buffers of the same name.

    As constants they would be executed while the program is decomposed, and an operator on fake
    constants alone crashes torch 2.13.
    """
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, FakeTensor):
                delattr(part, name)
                part.register_buffer(name, value, persistent=False)


class _Converter(GraphBuilder):
    """Turns one exported program into a graph."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        module: torch.nn.Module,
        name: str,
        batch: int | None,
    ) -> None:
        super().__init__(name, batch)
        self._program = program
        self._module = module
        self.changed: dict[str, dict[str, Any]] = {}
        """For buffers and inputs that the module changes what becomes of them, as results."""

    def graph(self) -> DataflowGraph:
        nodes = list(self._program.graph.nodes)
        self._add_inputs([node for node in nodes if node.op == "placeholder"])
        self.in_place = writes_of(nodes)
        for node in nodes:
            if node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                results, kept = self._results(node)
        return self.pruned(results, kept)

    def _add_inputs(self, placeholders: Sequence[torch.fx.Node]) -> None:
        canonical = canonical_names(self._module)
        specs = self._program.graph_signature.input_specs
        stored: dict[str, int] = {}
        for node, spec in zip(placeholders, specs, strict=True):
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                self._values[node] = value
                continue
            if spec.kind == InputKind.USER_INPUT:
                self._values[node] = Seen(self.add_tensor(node.name, "input", spec_of(value)))
                continue
            target = canonical.get(str(spec.target), str(spec.target))
            if target not in stored:
                content = None
                if spec.kind == InputKind.CONSTANT_TENSOR and target not in canonical:
                    content = content_of(self._program.constants[str(spec.target)], target)
                stored[target] = self.add_tensor(target, "weight", spec_of(value), content)
            self._values[node] = Seen(stored[target])

    def _results(self, node: torch.fx.Node) -> tuple[list[dict[str, Any]], list[int]]:
        """The model's results, and the tensors that its buffers and inputs become."""
        values = node.args[0]
        assert isinstance(values, list | tuple)
        outputs = list(zip(values, self._program.graph_signature.output_specs, strict=True))
        kept: list[int] = []
        # What buffers and inputs become is no result, but eager PyTorch makes it.
        for value, spec in outputs:
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                kept += self.updated(str(spec.target), value)
                self.changed[str(spec.target)] = self.result(value)
        made = (value for value, spec in outputs if spec.kind == OutputKind.USER_OUTPUT)
        return [self.result(value) for value in made], kept


def canonical_names(module: torch.nn.Module) -> dict[str, str]:
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
