"""Operators and tensors of a dataflow graph, and how their JSON form is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from simulator.errors import InvalidInput

Role = Literal["input", "weight", "activation"]
ITEM_BYTES: Mapping[str, int] = {
    "float64": 8,
    "int64": 8,
    "complex64": 8,
    "float32": 4,
    "tf32": 4,  # in measurement tables: float32 whose products are rounded
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


ROLES: Mapping[str, int] = {"activation": 0, "input": 1, "weight": 2}
UPDATED = ":updated"
"""Ends the name of the tensor that a weight becomes for the next step."""
MOST_EDGES = 2**31 - 1
MOST_BYTES = 2.0**63
"""Larger tensors are taken for errors of a file."""


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(int(length), 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, element type and layout of a tensor. ``strides=None`` means contiguous."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, shape: Sequence[int], dtype: str, strides: Sequence[int]) -> TensorSpec:
        """The spec of a tensor with these strides: row-major ones become None.

        The stride of a dimension of length 1 has no meaning and is written as the row-major one.
        """
        row_major = contiguous_strides(shape)
        actual = tuple(
            default if length == 1 else int(step)
            for length, step, default in zip(shape, strides, row_major, strict=True)
        )
        return cls(tuple(map(int, shape)), dtype, None if actual == row_major else actual)

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements, whatever the layout.

        Raises:
            InvalidInput: the element type is unknown.
        """
        try:
            return self.elements * ITEM_BYTES[self.dtype]
        except KeyError:
            known = ", ".join(ITEM_BYTES)
            raise InvalidInput(
                f"Unknown element type {short(self.dtype)}. Known: {known}"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """The spec as a JSON object; contiguous strides are left out."""
        document: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype}
        if self.strides is not None:
            document["strides"] = list(self.strides)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TensorSpec:
        """Read :meth:`to_json`'s form; a shape that is not of non-negative integers is refused."""
        if not isinstance(document, Mapping) or not {"shape", "dtype"} <= document.keys():
            raise InvalidInput(f"A tensor needs 'shape' and 'dtype', got {short(document)}")
        shape, dtype, strides = document["shape"], document["dtype"], document.get("strides")
        for numbers in (shape, [] if strides is None else strides):
            if not isinstance(numbers, list) or not all(map(is_length, numbers)):
                raise InvalidInput(
                    f"Shapes and strides are lists of integers from 0 to 2^63, got {short(document)}"
                )
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            known = ", ".join(ITEM_BYTES)
            raise InvalidInput(f"Unknown element type {short(dtype)}. Known: {known}")
        if strides is None:
            return cls(tuple(shape), dtype)
        if len(strides) != len(shape):
            raise InvalidInput(f"Strides and shape have different lengths in {short(document)}")
        return cls.of(shape, dtype, strides)


@dataclass(frozen=True, slots=True)
class Part:
    """Where a weight is cut from.

    Attributes:
        of: name of the module's weight.
        views: through which it is seen, as templates have them (:mod:`simulator.model.graph`).
    """

    of: str
    views: tuple[Any, ...]

    def to_json(self) -> dict[str, Any]:
        """``{"of": name, "views": [view]}``."""
        return {"of": self.of, "views": list(self.views)}

    @classmethod
    def from_json(cls, document: Any, tensor: str) -> Part:
        """Read :meth:`to_json`'s form.

        Raises:
            InvalidInput: it is not of that form; names the tensor.
        """
        known = isinstance(document, dict) and document.keys() == {"of", "views"}
        if (
            not known
            or not isinstance(document["of"], str)
            or not isinstance(document["views"], list)
        ):
            raise InvalidInput(
                f"Tensor '{tensor}' is a part {short(document)}, not an object with a text 'of' and a list 'views'"
            )
        return cls(document["of"], tuple(document["views"]))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named value of a graph: a job's input, a weight, or what an operator wrote.

    ``bytes`` is what a transfer of it moves; bare instances have bytes and no spec. ``value`` is there
    for constants that a model's code makes and no module holds: the base64 of their elements. ``part`` is
    there for a weight that is a part of the module's: made once, when weights are loaded.
    """

    name: str
    role: Role
    bytes: float
    spec: TensorSpec | None = None
    value: str | None = None
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One kernel call. See the module docstring for ``template``, ``inputs`` and ``reads``."""

    name: str
    kind: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    template: Mapping[str, Any] | None = None
    reads: tuple[TensorSpec, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether it changes the first tensor that it reads (``aten.copy_.default``), which is what it writes then."""
        parts = self.target.split(".")
        return len(parts) == 3 and parts[1].endswith("_") and not parts[1].endswith("__")


def short(value: Any) -> str:
    """A value in at most 80 characters of JSON, for messages."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def objects(document: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects of a document."""
    rows = document[key]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"The graph's '{key}' must be a list of objects")
    return rows


def is_length(value: Any) -> bool:
    """Whether a value can be a length."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def mapping(row: Mapping[str, Any], key: str, what: str) -> dict[str, Any] | None:
    """An object of a row, or None."""
    value = row.get(key)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{what} needs an object '{key}', got {short(value)}")
    return value


def specs(row: Mapping[str, Any], key: str, what: str) -> tuple[TensorSpec, ...]:
    """The tensor specifications of a row."""
    value = row.get(key, [])
    if not isinstance(value, list):
        raise InvalidInput(f"{what} needs a list '{key}', got {short(value)}")
    return tuple(map(TensorSpec.from_json, value))


def string(row: Mapping[str, Any], key: str, what: str) -> str:
    """A text of a row."""
    value = row.get(key)
    if not isinstance(value, str):
        raise InvalidInput(f"{what} needs a text '{key}', got {short(value)}")
    return value


def indices(row: Mapping[str, Any], key: str, index: Mapping[str, int]) -> list[int]:
    """The numbers of the tensors that a row names."""
    names = row.get(key, [])
    unknown = names
    if isinstance(names, list):
        unknown = [n for n in names if not isinstance(n, str) or n not in index]
        if not unknown:
            return [index[name] for name in names]
    raise InvalidInput(
        f"Operator '{row.get('name')}' has {key} {short(unknown)}, not tensors of the graph"
    )


def unowned_state(tensors: Sequence[Tensor]) -> str | None:
    """What becomes of nothing, or a part of a weight that changes elsewhere but not there; None if all is well."""
    written = {t.name for t in tensors if t.role == "activation" and t.name.endswith(UPDATED)}
    if not written:
        return None
    for name in sorted(written - {f"{t.name}{UPDATED}" for t in tensors if t.role != "activation"}):
        return f"'{name}' says what becomes of '{name.removesuffix(UPDATED)}', which is no weight or input of it"
    # By the module's weight its parts, and whether they change.
    changes: dict[str, dict[str, bool]] = {}
    for t in tensors:
        if t.role == "weight":
            whole = t.name if t.part is None else t.part.of
            changes.setdefault(whole, {})[t.name] = f"{t.name}{UPDATED}" in written
    for whole, parts in changes.items():
        still = [name for name, change in parts.items() if not change]
        if still and len(still) < len(parts):
            return (
                f"'{still[0]}' is part of the weight '{whole}', of which the graph changes other parts; let an operator "
                f"write '{still[0]}{UPDATED}', or read the parts that change"
            )
    return None
