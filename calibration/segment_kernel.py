"""The kernels of a segment, one after the other on the calling thread, as one that is runnable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from calibration.kernels import Kernel


class Runnable(Protocol):
    """What executes an operator; see :class:`calibration.kernels.Kernel`."""

    def __call__(self, *reads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run once on the tensors it reads; returns those it writes."""
        ...


class RepeatedKernel:
    """A kernel executed several times for one operator; the last results count."""

    __slots__ = ("_extra", "_in_place", "_kernel")

    def __init__(self, kernel: Runnable, times: int) -> None:
        self._kernel = kernel
        self._extra = range(times - 1)
        self._in_place = isinstance(kernel, Kernel) and kernel.operator.in_place

    def __call__(self, *reads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See :class:`Runnable`."""
        if self._in_place:
            # Changed once; the other times something of its size is.
            scratch = (torch.empty_like(reads[0]), *reads[1:])
            for _ in self._extra:
                self._kernel(*scratch)
            return self._kernel(*reads)
        for _ in self._extra:
            self._kernel(*reads)
        return self._kernel(*reads)


class SegmentKernel:
    """Several operators as one. A tensor is freed after the last of them that reads it.

    Args:
        kernels: in the order of execution.
        reads: for each kernel the tensors it reads, as numbers of any kind.
        writes: for each kernel the tensors it writes.
        given: the tensors that a call is handed.
        wanted: the tensors that a call returns.
        weights: tensors that every call reads.
    """

    __slots__ = ("_held", "_steps", "_wanted")

    def __init__(
        self,
        kernels: Sequence[Runnable],
        reads: Sequence[Sequence[int]],
        writes: Sequence[Sequence[int]],
        given: Sequence[int],
        wanted: Sequence[int],
        weights: Mapping[int, torch.Tensor],
    ) -> None:
        needed = dict.fromkeys(tensor for row in reads for tensor in row)
        slots: dict[int, int] = {}
        for tensor in (*given, *needed, *(tensor for row in writes for tensor in row)):
            slots.setdefault(tensor, len(slots))
        self._held: list[torch.Tensor | None] = [weights.get(tensor) for tensor in slots]
        self._wanted = [slots[tensor] for tensor in wanted]
        last: dict[int, int] = {}
        for step, (row, written) in enumerate(zip(reads, writes, strict=True)):
            last |= dict.fromkeys((*row, *written), step)
        ends: list[list[int]] = [[] for _ in kernels]
        for tensor, step in last.items():
            if tensor not in weights and tensor not in wanted:
                ends[step].append(slots[tensor])
        self._steps = [
            (kernel, [slots[t] for t in row], [slots[t] for t in written], freed)
            for kernel, row, written, freed in zip(kernels, reads, writes, ends, strict=True)
        ]

    def __call__(self, *reads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run once on the tensors ``given``; returns those ``wanted``."""
        held = self._held.copy()
        held[: len(reads)] = reads
        for kernel, arguments, results, freed in self._steps:
            written = kernel(*[held[slot] for slot in arguments])  # type: ignore[arg-type]
            for slot, value in zip(results, written, strict=True):
                held[slot] = value
            for slot in freed:
                held[slot] = None
        return tuple([held[slot] for slot in self._wanted])  # type: ignore[misc]
