"""Files of PyTorch's ExecutionTraceObserver: which tensors each operator reads and writes.

A tensor is known there by a number and its storage by another one; views share the storage. A node's ``rf_id`` is the
``Record function id`` of the same call in the profiler's trace. Read are the schemas 1.0.2 to 1.1.x.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.graph_files.values import shown
from simulator.errors import InvalidInput
from simulator.model.operator import TensorSpec

SCHEMAS = ("1.0.2", "1.0.3", "1.0.4", "1.1.")
DTYPES: Mapping[str, str] = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
"""Element types by their names in C++."""
_MOST = 2**40


@dataclass(frozen=True)
class Leaf:
    """A tensor among a call's arguments or results."""

    spec: TensorSpec
    storage: int | None = None


Call = tuple[str, tuple[Leaf, ...], tuple[Leaf, ...]]
"""Name, tensors read and tensors written."""


def read_execution_trace(document: Any) -> dict[int, Call]:
    """The calls of a file by their ``rf_id``.

    Raises:
        InvalidInput: it is no such file, of another schema, or malformed; names the node.
    """
    if not is_execution_trace(document):
        raise InvalidInput(
            "It is no file of PyTorch's ExecutionTraceObserver (an object with 'schema' and 'nodes')"
        )
    schema = document["schema"]
    if not (isinstance(schema, str) and schema.startswith(SCHEMAS)):
        raise InvalidInput(
            f"Execution traces of schema {shown(schema)} are not read, 1.0.2 to 1.1 are; record it anew"
        )
    found: dict[int, Call] = {}
    for node in document["nodes"]:
        try:
            attributes = {entry["name"]: entry.get("value") for entry in node["attrs"]}
            number = attributes.get("rf_id")
            if isinstance(number, int) and number:
                read, written = (tuple(_leaves(node[side])) for side in ("inputs", "outputs"))
                found[number] = (str(node["name"]), read, written)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise InvalidInput(f"Node {shown(node)} of the execution trace is malformed") from None
    return found


def is_execution_trace(document: Any) -> bool:
    """Whether a JSON document is meant as an ExecutionTraceObserver's."""
    return (
        isinstance(document, Mapping)
        and "schema" in document
        and isinstance(document.get("nodes"), list)
    )


def _leaves(side: Mapping[str, Any]) -> Iterator[Leaf]:
    """The tensors of one side of a node, those in lists among them."""
    columns = [side[key] for key in ("types", "values", "shapes", "strides")]
    for kind, value, shape, strides in zip(*columns, strict=True):
        if kind.startswith("Tensor("):
            kinds, rows = [kind], [(value, shape, strides)]
        elif kind.startswith("GenericList[Tensor("):
            kinds = kind[len("GenericList[") : -1].split(",")
            rows = list(zip(value, shape, strides, strict=True))
        else:
            continue
        for name, (ids, lengths, steps) in zip(kinds, rows, strict=True):
            if (spec := spec_of(name[len("Tensor(") : -1], lengths, steps)) is not None:
                if type(ids[1]) is not int:
                    raise ValueError("a storage is known by a number")
                yield Leaf(spec, ids[1])


def spec_of(kind: str, lengths: Any, strides: Any) -> TensorSpec | None:
    """The spec of a tensor by the C++ name of its elements' type; None where the type is unknown.

    Raises:
        InvalidInput: lengths are none, or too large.
    """
    dtype = DTYPES.get(kind)
    if dtype is None:
        return None
    for numbers in (lengths, strides or []):
        right = isinstance(numbers, list) and len(numbers) <= 64
        if not (right and all(type(n) is int and 0 <= n <= _MOST for n in numbers)):
            raise InvalidInput(
                f"A tensor has shape or strides {shown(numbers)}, not lengths up to 2^40"
            )
    spec = TensorSpec(tuple(lengths), dtype)
    if strides and len(strides) == len(lengths):
        spec = TensorSpec.of(lengths, dtype, strides)
    if spec.elements > _MOST:
        raise InvalidInput(f"A tensor of shape {shown(lengths)} has more than 2^40 elements")
    return spec
