"""A graph that is put together operator by operator, each on a device and in a slot of its schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scenarios.partition.operator_parts import reading
from scenarios.partition.view_rules import Cut, View, seen_through
from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator, Tensor, TensorSpec

AUXILIARY = -1


class Seen(NamedTuple):
    """A tensor as an operator reads it."""

    tensor: int
    views: tuple[View, ...] = ()


class Assembly:
    """Operators and tensors so far. All columns have an entry for each operator.

    Attributes:
        device: where each one runs.
        turn: its place among those of its device: any keys that can be compared.
        origin: the operator that it copies, or :data:`AUXILIARY`.
    """

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.reads: list[Sequence[int]] = []
        self.writes: list[Sequence[int]] = []
        self.device: list[int] = []
        self.turn: list[Any] = []
        self.origin: list[int] = []

    def tensor(self, tensor: Tensor) -> int:
        """Add an input or a weight."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def operator(
        self,
        operator: Operator,
        reads: Sequence[int],
        writes: Sequence[Tensor],
        device: int,
        turn: Any,
        origin: int = AUXILIARY,
    ) -> list[int]:
        """Add an operator; returns the tensors that it writes."""
        first = len(self.tensors)
        self.tensors += writes
        made = list(range(first, len(self.tensors)))
        self.operators.append(operator)
        self.reads.append(reads)
        self.writes.append(made)
        self.device.append(device)
        self.turn.append(turn)
        self.origin.append(origin)
        return made

    def spec(self, seen: Seen) -> TensorSpec | None:
        """What an operator sees; None of tensors that have bytes alone."""
        stored = self.tensors[seen.tensor].spec
        return None if stored is None else seen_through(stored, seen.views)

    def cut(self, seen: Seen, begin: int, end: int) -> Seen:
        """Elements of a flat tensor."""
        return Seen(seen.tensor, (*seen.views, Cut(0, begin, end).view))

    def made(
        self,
        name: str,
        kind: str,
        target: str,
        seen: Sequence[Seen],
        size: float,
        out: TensorSpec | None,
        device: int,
        turn: Any,
        attributes: Mapping[str, Any] | None = None,
        args: Sequence[Any] | None = None,
    ) -> int:
        """Add an auxiliary operator that writes one tensor.

        Args:
            name: of operator and tensor.
            kind: canonical kind.
            target: ATen operator.
            seen: what it reads.
            size: bytes of what it writes.
            out: what it writes; None if what it reads has no specs either.
            device: where it runs.
            turn: its place there.
            attributes: of the operator.
            args: of its template, ``None`` for the leaves alone; a list takes all leaves.
        """
        distinct = list(dict.fromkeys(s.tensor for s in seen))
        operator = Operator(name, kind, outputs=() if out is None else (out,), target=target)
        if out is not None:
            leaves = [
                {"read": distinct.index(s.tensor), "views": [list(view) for view in s.views]}
                for s in seen
            ]
            template: dict[str, Any] = {
                "args": leaves if args is None else [leaves, *args],
                "kwargs": {},
            }
            specs = [self.spec(s) for s in seen]
            stored = tuple(spec for t in distinct if (spec := self.tensors[t].spec))
            operator = dataclasses.replace(operator, attributes=dict(attributes or {}))
            operator = reading(operator, template, [s for s in specs if s], stored)
        (written,) = self.operator(
            operator, distinct, [Tensor(name, "activation", size, out)], device, turn
        )
        return written

    def added(self, name: str, one: Seen, other: Seen, device: int, turn: Any) -> int:
        """The sum of two tensors of one layout."""
        out, size = self._like(one)
        return self.made(
            name, "add", "aten.add.Tensor", [one, other], size, out, device, turn, {"scalar": False}
        )

    def copied(self, name: str, seen: Seen, device: int, turn: Any) -> int:
        """A copy of what is seen of a tensor."""
        out, size = self._like(seen)
        return self.made(name, "copy", "aten.clone.default", [seen], size, out, device, turn)

    def joined(self, name: str, seen: Sequence[Seen], device: int, turn: Any) -> int:
        """Flat tensors one behind the other."""
        outs = [self._like(s) for s in seen]
        size = sum(bytes_ for _, bytes_ in outs)
        specs = [out for out, _ in outs if out is not None]
        out = None
        if specs:
            out = TensorSpec((sum(spec.elements for spec in specs),), specs[0].dtype)
        return self.made(
            name, "cat", "aten.cat.default", seen, size, out, device, turn, {"dim": 0}, [0]
        )

    def _like(self, seen: Seen) -> tuple[TensorSpec | None, float]:
        spec = self.spec(seen)
        if spec is None:
            return None, self.tensors[seen.tensor].bytes
        out = TensorSpec(spec.shape, spec.dtype) if seen.views else spec
        return out, float(out.bytes)

    def graph(
        self, name: str, results: Sequence[Mapping[str, Any]], batch: int | None
    ) -> DataflowGraph:
        """The graph."""
        return DataflowGraph(
            name, self.operators, self.tensors, self.reads, self.writes, results, batch
        )

    @property
    def order(self) -> np.ndarray:
        """int64[operators]: all operators by turn."""
        turns = sorted(range(len(self.turn)), key=self.turn.__getitem__)
        return np.array(turns, dtype=np.int64)
