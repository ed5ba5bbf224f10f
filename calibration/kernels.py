"""Operators made runnable: the only code that turns a graph's operator into a torch call.

Measuring and executing both go through :func:`build`. The call is described by the operator's
``target`` and ``template`` (format: :mod:`simulator.model.graph`), which are data: names are looked up
among ATen's functional operators, nothing is evaluated or unpickled.

Conventions of templates, for whoever makes operators without tracing a model:

* ``target`` is ``"aten.<name>.<overload>"``, e.g. ``"aten.conv2d.default"``, ``"aten.add.Tensor"``.
  An in-place overload (``aten.index_copy_.default``) is taken where it changes its first argument and nothing else:
  a write into a part of a tensor, whose result is the whole stored tensor. ``out=`` overloads are refused. A step of
  an optimiser is ``"optim.<kind>.default"`` (:mod:`cost_models.optimizer_steps`).
* ``template["args"]`` are the positional arguments in schema order (trailing defaults may be left
  out), ``template["kwargs"]`` the keyword-only ones.
* ``{"read": r, "views": []}`` is the r-th *stored* tensor; ``operator.reads[r]`` is its spec. A list
  of tensors (``cat``) is a list of such leaves. ``operator.inputs`` has one spec for each leaf, after
  its views, in order of appearance. Two leaves may name the same read (``mul(x, x)``).
* A view is ``[target, args, kwargs]`` with ``{"self": true}`` where the tensor goes, e.g.
  ``["aten.transpose.int", [{"self": true}, 1, 2], {}]``; after a splitting view ``["getitem", i]``.
  An operator made for itself needs no views: give the stored tensor the strides that it should have.

:func:`make_operator` writes all of this (kind, attributes and output specs included) from a target
and the tensors' specs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from calibration.optimizer_steps import STEPS
from cost_models.canonical import attributes_of, bind_arguments, kind_of
from cost_models.optimizer_steps import SCHEMAS
from simulator.errors import InvalidInput
from simulator.model.operator import ITEM_BYTES, Operator, TensorSpec

_TARGET = re.compile(r"aten\.(\w+)\.(\w+)")
# They reach outside the tensors they are given, or change more of one than its elements. So do those that give no
# tensor back: one writes a file, others set what the whole process computes with.
_REFUSED = frozenset(
    [
        "from_file",
        "set_data",
        "set_",
        "resize_",
        "resize_as_",
        "resize_as_sparse_",
        "requires_grad_",
        "rename_",
    ]
)

_Reads = Sequence[torch.Tensor]
_Node = Callable[[_Reads], Any]


class Kernel:
    """A runnable operator. Make it with :func:`build`.

    Calls record gradients if the tensors ask for them; wrap them in ``torch.inference_mode()``.
    """

    __slots__ = ("_args", "_changed", "_kwargs", "_operation", "operator")

    def __init__(
        self,
        operator: Operator,
        operation: Callable[..., Any],
        args: Sequence[_Node],
        kwargs: Mapping[str, _Node],
        changed: int | None = None,
    ) -> None:
        self.operator = operator
        self._changed = changed
        self._operation = operation
        self._args = tuple(args)
        self._kwargs = dict(kwargs)

    def __call__(self, *reads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run once.

        Args:
            reads: the stored tensors in the order of ``operator.reads``.

        Returns:
            The tensors it writes, in the order of ``operator.outputs``; of an operator in place the stored tensor that
            it changed.
        """
        args = [node(reads) for node in self._args]
        kwargs = {name: node(reads) for name, node in self._kwargs.items()}
        result = self._operation(*args, **kwargs)
        return _tensors(result) if self._changed is None else (reads[self._changed],)

    def bind(self, *reads: torch.Tensor) -> Callable[[], Any]:
        """The bare kernel call on these tensors, views applied beforehand: what is to be timed.

        Returns:
            A function without arguments whose result is the operation's own (a tensor or several).
        """
        operation = self._operation
        args = tuple(node(reads) for node in self._args)
        kwargs = {name: node(reads) for name, node in self._kwargs.items()}

        def call() -> Any:
            return operation(*args, **kwargs)

        return call


def build(operator: Operator, device: str | torch.device = "cpu") -> Kernel:
    """Make an operator runnable on a device.

    Args:
        operator: one with a target and a template.
        device: where new tensors are made (``"cpu"``, ``"cuda:0"``); the tensors it reads must be
            there too.

    Raises:
        InvalidInput: it has no template, its target is not a functional ATen operator of this
            torch, or its template is malformed.
    """
    if operator.template is None:
        raise InvalidInput(
            f"Operator '{operator.name}' (kind {operator.kind}) has no template; only operators of "
            "traced models can be run"
        )
    place = torch.device(device)
    operation = STEPS.get(operator.target) or resolve(operator.target, in_place=True)
    try:
        args = [_node(node, place) for node in operator.template.get("args", ())]
        kwargs = {
            name: _node(node, place) for name, node in operator.template.get("kwargs", {}).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise InvalidInput(f"Operator '{operator.name}': {error}") from None
        raise InvalidInput(
            f"Operator '{operator.name}' has a malformed template ({error!r})"
        ) from None
    if isinstance(operation, torch._ops.OpOverload) and operation._schema.is_mutable:
        first = next(leaves(operator.template.get("args", ())[:1]), None)
        if first is None:
            raise InvalidInput(
                f"Operator '{operator.name}' changes its first argument, which is none of the tensors that it reads"
            )
        return Kernel(operator, operation, args, kwargs, first)
    return Kernel(operator, operation, args, kwargs)


def resolve(target: str, in_place: bool = False) -> torch._ops.OpOverload:
    """The ATen operator of a name like ``aten.conv2d.default``.

    Args:
        target: the name.
        in_place: take one that changes its first argument and nothing else.

    Raises:
        InvalidInput: there is none, or it changes its arguments.
    """
    match = _TARGET.fullmatch(target)
    packet = None
    if match and match[1] not in _REFUSED:
        packet = getattr(torch.ops.aten, match[1], None)
    if not (match and isinstance(packet, torch._ops.OpOverloadPacket)):
        raise InvalidInput(f"'{target}' is not an ATen operator of torch {torch.__version__}")
    if match[2] not in packet.overloads():
        raise InvalidInput(
            f"'{target}' is not an ATen operator of torch {torch.__version__}; overloads of "
            f"{match[1]}: {', '.join(packet.overloads())}"
        )
    operation: torch._ops.OpOverload = getattr(packet, match[2])
    arguments = operation._schema.arguments
    changes = [a for a in arguments[1:] if a.alias_info is not None and a.alias_info.is_write]
    if operation._schema.is_mutable and not (in_place and arguments and not changes):
        raise InvalidInput(f"'{target}' changes its arguments; only functional operators are run")
    if not any("Tensor" in str(value.type) for value in operation._schema.returns):
        raise InvalidInput(f"'{target}' gives no tensor; only functional operators are run")
    return operation


def view(tensor: torch.Tensor, views: Sequence[Sequence[Any]]) -> torch.Tensor:
    """A stored tensor seen through the views of a template or of a graph's result."""
    seen: torch.Tensor = _views(views, tensor.device)(tensor)
    return seen


def make_operator(target: str, *args: Any, name: str | None = None, **kwargs: Any) -> Operator:
    """An operator that belongs to no model, for sampling and tests.

    Args:
        target: e.g. ``"aten.conv2d.default"``.
        args: arguments in schema order; a tensor is given as its :class:`TensorSpec` (strides
            included), a list of tensors as a list of specs, an element type as ``torch.dtype``.
        name: the operator's name; its kind unless given.
        kwargs: arguments by name.

    Raises:
        InvalidInput: the target is unknown, or torch refuses the arguments (its reason is given).
    """
    reads: list[TensorSpec] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            reads.append(value)
            return {"read": len(reads) - 1, "views": []}
        if isinstance(value, list | tuple):
            return [leaf(item) for item in value]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        return value

    positional = [leaf(value) for value in args]
    named = {key: leaf(value) for key, value in kwargs.items()}
    template = {"args": positional, "kwargs": named}
    operator = Operator(name or target, "", target=target, template=template, reads=tuple(reads))
    outputs = _fake_outputs(operator)
    arguments = bind_arguments(_schema(target), positional, named)
    spatial = len(reads[0].shape) - 2 if reads else None
    kind = kind_of(target, spatial, bool(arguments.get("transposed", False)))
    return Operator(
        name=name or kind,
        kind=kind,
        inputs=tuple(reads),
        outputs=outputs,
        attributes=attributes_of(kind, arguments, reads, outputs),
        target=target,
        template=template,
        reads=tuple(reads),
    )


def _fake_outputs(operator: Operator) -> tuple[TensorSpec, ...]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Torch logs a traceback of its own for every call that it refuses.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    silenced = log.disabled
    log.disabled = True
    try:
        with FakeTensorMode(), torch.no_grad():
            reads = [_empty(spec, torch.device("cpu")) for spec in operator.reads]
            return tuple(map(spec_of, build(operator)(*reads)))
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(f"{operator.target} refuses these arguments: {reason}") from None
    finally:
        log.disabled = silenced


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape, element type and strides of a tensor; row-major strides become None."""
    return TensorSpec.of(tensor.shape, str(tensor.dtype).removeprefix("torch."), tensor.stride())


# -- compiling a template -------------------------------------------------------------------------


def _node(node: Any, device: torch.device) -> _Node:
    if isinstance(node, list):
        parts = [_node(part, device) for part in node]
        if not any(map(_has_read, node)):
            constant = [part(()) for part in parts]
            return lambda reads: constant
        return lambda reads: [part(reads) for part in parts]
    if isinstance(node, dict) and "read" in node:
        r = int(node["read"])
        views = node.get("views") or ()
        if not views:
            return lambda reads: reads[r]
        through = _views(views, device)
        return lambda reads: through(reads[r])
    value = _constant(node, device)
    return lambda reads: value


def _has_read(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_has_read, node))
    return isinstance(node, dict) and "read" in node


def _constant(node: Any, device: torch.device) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, dict) and len(node) == 1:
        ((tag, value),) = node.items()
        if tag == "device":
            return device
        if tag == "float" and value in ("inf", "-inf", "nan"):
            return float(value)
        expected = {
            "dtype": torch.dtype,
            "layout": torch.layout,
            "memory_format": torch.memory_format,
        }
        if tag in expected and isinstance(value, str):
            found = getattr(torch, value, None)
            if isinstance(found, expected[tag]):
                return found
    raise InvalidInput(f"unknown template node {node!r}")


def _views(views: Sequence[Sequence[Any]], device: torch.device) -> Callable[[Any], Any]:
    steps: list[Callable[[Any], Any]] = [_view(step, device) for step in views]

    def through(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return through


def _view(step: Sequence[Any], device: torch.device) -> Callable[[Any], Any]:
    if step[0] == "getitem":
        index = int(step[1])
        return lambda value: value[index]
    target, args, kwargs = step
    operation: Callable[..., Any] = resolve(target)
    if target == "aten.view.default":
        operation = _reshaping
    if any(isinstance(node, dict) and "self" in node for node in kwargs.values()):
        raise InvalidInput(f"view {target} takes its tensor by name")
    places = [i for i, node in enumerate(args) if isinstance(node, dict) and "self" in node]
    if len(places) != 1:
        raise InvalidInput(f"view {target} needs exactly one {{'self': true}}")
    (place,) = places
    before = [_node(node, device)(()) for node in args[:place]]
    after = [_node(node, device)(()) for node in args[place + 1 :]]
    named = {name: _node(node, device)(()) for name, node in kwargs.items()}
    return lambda value: operation(*before, value, *after, **named)


def _reshaping(tensor: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """A view, or a copy of that shape where there is none.

    Attention kernels of a CPU and of a GPU lay their results out differently, so a view that could be had where
    the model was traced is refused elsewhere.
    """
    try:
        return tensor.view(size)
    except RuntimeError:
        return tensor.reshape(size)


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(result, torch.Tensor):
        return (result,)
    # Several results; those that are no tensors (sizes, absent ones) are written nowhere.
    found: list[torch.Tensor] = []
    for item in result:
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            found.extend(_tensors(item))
    return tuple(found)


# -- what a template says -------------------------------------------------------------------------


def leaves(node: Any) -> Iterator[int]:
    """Reads named by a template node, left to right."""
    if isinstance(node, dict):
        if "read" in node:
            yield int(node["read"])
    elif isinstance(node, list):
        for part in node:
            yield from leaves(part)


def arguments_of(operator: Operator) -> dict[str, Any]:
    """An operator's arguments by their names in the schema, as template nodes."""
    template = operator.template or {}
    schema = _schema(operator.target)
    return bind_arguments(schema, template.get("args", ()), template.get("kwargs", {}))


def _schema(target: str) -> Sequence[tuple[str, Any]]:
    """(name, default) of a target's arguments in order."""
    if target in SCHEMAS:
        return SCHEMAS[target]
    return [(a.name, a.default_value) for a in resolve(target, in_place=True)._schema.arguments]


def _empty(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    dtype = dtype_of(spec)
    if spec.strides is None:
        return torch.empty(spec.shape, dtype=dtype, device=device)
    return torch.empty_strided(spec.shape, spec.strides, dtype=dtype, device=device)


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """Torch's element type of a spec.

    Raises:
        InvalidInput: torch has none of this name.
    """
    if spec.dtype not in ITEM_BYTES or not hasattr(torch, spec.dtype):
        raise InvalidInput(f"Unknown element type '{spec.dtype}'. Known: {', '.join(ITEM_BYTES)}")
    found: torch.dtype = getattr(torch, spec.dtype)
    return found
