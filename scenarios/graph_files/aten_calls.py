"""Calls of ATen operators as the profiler records them, to kinds, shapes and attributes that cost models price.

Nothing runs but shape functions: outputs that no file has are those of PyTorch's ``meta`` device, on which tensors have
no elements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.arithmetic import bytes_moved, flops, is_known
from cost_models.canonical import attributes_of, kind_of
from scenarios.graph_files.execution_trace import Leaf, spec_of
from scenarios.graph_files.kineto import Event
from simulator.errors import InvalidInput
from simulator.model.operator import TensorSpec

_COPIES = frozenset({"aten::copy_", "aten::clone"})
_DROPOUT = frozenset({"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"})
_ELSEWHERE = frozenset({"layout", "device", "pin_memory", "memory_format"})
_SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
}
"""Element types by their numbers in ``c10::ScalarType``."""
_UNFIT = (
    InvalidInput,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
)
"""What shapes raise that do not fit together; and what is not implemented on ``meta``."""


@dataclass(frozen=True)
class Priced:
    """What cost models ask of an operator."""

    kind: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, Any]


def leaves_of(event: Event, dtype: str) -> tuple[Leaf, ...]:
    """The tensors that a call reads, by the profiler's ``record_shapes``; none without it.

    Args:
        event: the call.
        dtype: of tensors in lists, of which the profiler does not say it.

    Raises:
        InvalidInput: a shape is malformed.
    """
    found = []
    for kind, lengths, strides in _arguments(event):
        if kind == "TensorList":
            nested = (
                [spec_of(dtype, row, None) for row in lengths] if isinstance(lengths, list) else []
            )
            found += [Leaf(spec) for spec in nested if spec is not None]
        elif (spec := spec_of(kind, lengths, strides)) is not None:
            found.append(Leaf(spec))
    return tuple(found)


def element_type(events: Sequence[Event]) -> str:
    """The C++ name of the first floating-point type among the events' tensors."""
    floats = {"float", "double", "c10::Half", "c10::BFloat16"}
    kinds = (kind for event in events for kind, _, _ in _arguments(event))
    return next((kind for kind in kinds if kind in floats), "float")


def costs_nothing(event: Event) -> bool:
    """Whether a call makes a view, allocates memory or is dropout outside of training: no operator of a traced graph."""
    name = event.name.removeprefix("aten::")
    if name == event.name:
        return False
    if name.startswith(("empty", "new_empty")) or (name in _DROPOUT and not event.inner):
        return True
    return not _COPIES.intersection(event.inner) and any(
        returned.alias_info is not None and not returned.alias_info.is_write
        for overload in _overloads(name)[:1]
        for returned in overload._schema.returns
    )


def priced(event: Event, read: Sequence[Leaf], written: Sequence[Leaf] | None) -> Priced | None:
    """What cost models ask of a call; None where they do not know its kind, or its shapes are not there.

    Args:
        event: the call.
        read: the tensors that it reads.
        written: those that it writes, where a file says so.
    """
    name = event.name.removeprefix("aten::")
    kinds = [kind for kind, _, _ in _arguments(event)]
    if name == event.name or not read:
        return None
    overload = next((o for o in _overloads(name) if _fits(o._schema.arguments, kinds)), None)
    if overload is None:
        return None
    inputs = tuple(leaf.spec for leaf in read)
    try:
        arguments = _bound(event, overload._schema.arguments, kinds, len(inputs))
        spatial = len(inputs[1].shape) - 2 if len(inputs) > 1 else None
        kind = kind_of(str(overload), spatial, arguments.get("transposed") is True)
        if _COPIES.intersection(event.inner) and name in ("reshape", "flatten", "contiguous", "to"):
            kind = "copy"
        if not is_known(kind):
            return None
        outputs = tuple(leaf.spec for leaf in written or ())
        if kind == "copy" and name in ("reshape", "flatten"):  # the view comes behind the copy
            outputs = (TensorSpec(inputs[0].shape, inputs[0].dtype),)
        elif written is None:
            outputs = _inferred(overload, arguments, inputs)
        attributes = attributes_of(kind, arguments, inputs, outputs)
        flops(kind, inputs, outputs, attributes)
        bytes_moved(kind, inputs, outputs, attributes)
    except _UNFIT:
        return None
    return Priced(kind, inputs, outputs, attributes) if outputs else None


def _arguments(event: Event) -> Iterator[tuple[str, Any, Any]]:
    """Type, shape and strides of every argument."""
    kinds, shapes, strides = (
        event.arguments.get(key, []) for key in ("Input type", "Input Dims", "Input Strides")
    )
    if isinstance(kinds, list) and isinstance(shapes, list) and len(kinds) == len(shapes):
        known = isinstance(strides, list) and len(strides) == len(kinds)
        yield from zip(
            map(str, kinds), shapes, strides if known else [None] * len(kinds), strict=True
        )


def _overloads(name: str) -> list[Any]:
    """The overloads of an ATen operator; none of what is no operator."""
    import torch

    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return []
    return [getattr(packet, overload) for overload in packet.overloads()]


def _fits(schema: Sequence[Any], kinds: Sequence[str]) -> bool:
    """Whether recorded types can be an overload's arguments."""
    if len(schema) != len(kinds) or any(argument.is_out for argument in schema):
        return False
    for argument, kind in zip(schema, kinds, strict=True):
        wanted = str(argument.type)
        if kind == "":
            right = wanted != "Tensor" and not wanted.startswith("List[")
        elif kind == "TensorList":
            right = "List[" in wanted and "Tensor" in wanted
        elif kind in ("Scalar", "ScalarList"):
            right = "Tensor" not in wanted and (("List[" in wanted) == (kind == "ScalarList"))
        else:
            right = wanted in ("Tensor", "Optional[Tensor]")
        if not right:
            return False
    return True


def _bound(
    event: Event, schema: Sequence[Any], kinds: Sequence[str], tensors: int
) -> dict[str, Any]:
    """Arguments by name: numbers as they are, tensors as ``{"read": position}``, or lists of these."""
    texts = event.arguments.get("Concrete Inputs")
    if not isinstance(texts, list) or len(texts) != len(schema):
        texts = [""] * len(schema)
    found: dict[str, Any] = {}
    at = 0
    for argument, kind, text, (_, lengths, _) in zip(
        schema, kinds, texts, _arguments(event), strict=True
    ):
        if kind == "TensorList":
            found[argument.name] = [{"read": at + i} for i in range(len(lengths))]
            at += len(lengths)
        elif kind not in ("", "Scalar", "ScalarList"):
            found[argument.name] = {"read": at}
            at += 1
        else:
            found[argument.name] = _literal(text)
    if at != tensors:
        raise ValueError("the files disagree")
    return found


def _literal(text: Any) -> Any:
    """A number, a truth value or a list of them; None for anything else."""
    if not isinstance(text, str) or len(text) > 10_000:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _inferred(
    overload: Any, arguments: Mapping[str, Any], inputs: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...]:
    """What a call writes, by PyTorch's own shape functions."""
    import torch

    meta = [
        torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        if spec.strides is None
        else torch.empty_strided(
            spec.shape, spec.strides, dtype=getattr(torch, spec.dtype), device="meta"
        )
        for spec in inputs
    ]

    def given(value: Any) -> Any:
        if isinstance(value, dict):
            return meta[value["read"]]
        return [given(part) for part in value] if isinstance(value, list) else value

    called = {n: given(v) for n, v in arguments.items() if n not in _ELSEWHERE}
    if "dtype" in called and called["dtype"] is not None:
        called["dtype"] = getattr(torch, _SCALAR_TYPES[called["dtype"]])
    with torch.no_grad():
        results = overload(**called)
    results = results if isinstance(results, tuple | list) else [results]
    return tuple(
        TensorSpec.of(list(r.shape), str(r.dtype).removeprefix("torch."), list(r.stride()))
        for r in results
        if isinstance(r, torch.Tensor)
    )
