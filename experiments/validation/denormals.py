"""Denormal numbers in what a model computes: kernels of a processor take many times as long on them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

NOTICED = 1e-4
"""Share of denormal numbers: each takes about a hundred cycles, where vectorised kernels need less than one."""
_WIDE = (torch.float32, torch.float64, torch.bfloat16)


class DenormalNumbers(TorchDispatchMode):
    """Counts them in the results of whatever is called meanwhile.

    Attributes:
        share: of all floating-point numbers that were computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._found = 0
        self._numbers = 0

    @property
    def share(self) -> float:
        """See above."""
        return self._found / max(1, self._numbers)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """See :class:`torch.utils._python_dispatch.TorchDispatchMode`."""
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.dtype in _WIDE and not func.is_view:
                size = tensor.abs()
                self._found += int(((size > 0) & (size < torch.finfo(size.dtype).tiny)).sum())
                self._numbers += size.numel()
        return result

    def sentence(self, model: str, flushed: bool) -> str | None:
        """What they do to a model; None where it makes next to none.

        Args:
            model: its name.
            flushed: whether the runner's workers take them for zero.
        """
        if self.share < NOTICED:
            return None
        found = f"{self.share:.2g} of the numbers that '{model}' computes are denormal"
        if flushed:
            return (
                f"{found}: the runner takes them for zero, in a program of yours they make the model several "
                "times slower unless it calls torch.set_flush_denormal(True)"
            )
        return (
            f"{found}, and this processor cannot take them for zero: its kernels run several times slower "
            "than they were measured; take trained weights"
        )
