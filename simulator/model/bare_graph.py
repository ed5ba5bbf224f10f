"""Operators and tensors of graphs that have nothing but names, edges and bytes: made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from simulator.model.operator import Operator, Tensor


class BareOperators(Sequence[Operator]):
    """Operators of kind ``task`` and nothing but a name, made when they are asked for.

    Args:
        order: int[operators], the given number of each operator.
        names: by given number; None for ``t0``, ``t1``, ...
    """

    def __init__(self, order: np.ndarray | range, names: Sequence[str] | None) -> None:
        self._order = order
        self._names = names

    def name(self, index: int) -> str:
        """Name of one operator."""
        number = int(self._order[index])
        return f"t{number}" if self._names is None else self._names[number]

    def names(self) -> list[str]:
        """Names of all operators."""
        order = self._order.tolist() if isinstance(self._order, np.ndarray) else self._order
        if self._names is None:
            return [f"t{number}" for number in order]
        return [self._names[number] for number in order]

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Operator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Operator, ...]: ...
    def __getitem__(self, index: int | slice) -> Operator | tuple[Operator, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        return Operator(self.name(index), "task")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((BareOperators, len(self)))


class BareTensors(Sequence[Tensor]):
    """One tensor for each edge of a bare graph, made when it is asked for.

    Args:
        operators: between which they move.
        source: int32[tensors], who writes each.
        target: int32[tensors], who reads each.
        size: float64[tensors], bytes.
    """

    def __init__(
        self, operators: BareOperators, source: np.ndarray, target: np.ndarray, size: np.ndarray
    ) -> None:
        self._operators = operators
        self._source = source
        self._target = target
        self._size = size

    def __len__(self) -> int:
        return len(self._size)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Tensor, ...]: ...
    def __getitem__(self, index: int | slice) -> Tensor | tuple[Tensor, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        number = range(len(self))[index]
        ends = (self._operators.name(end[number]) for end in (self._source, self._target))
        label = f"{'->'.join(ends)}#{number}"
        return Tensor(label, "activation", float(self._size[number]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((BareTensors, len(self)))

    def __iter__(self) -> Iterator[Tensor]:
        names = self._operators.names()
        columns = (column.tolist() for column in (self._source, self._target, self._size))
        for number, (source, target, size) in enumerate(zip(*columns, strict=True)):
            yield Tensor(f"{names[source]}->{names[target]}#{number}", "activation", float(size))
