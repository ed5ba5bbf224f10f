"""Modules run eagerly as their graphs have them, and the tensors and numbers in whatever they give."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from simulator.errors import InvalidInput

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LEAVES = (torch.Tensor, type(None), bool, int, float, *_NUMBERS)
# They hold nothing that was computed.
_PASSED_OVER = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.nn.Module,
    complex,
    str,
    bytes,
    type,
)


@contextlib.contextmanager
def without_fast_path() -> Iterator[None]:
    """Torch's fused fast path of attention off, as before afterwards.

    In evaluation mode ``nn.TransformerEncoder``, its layers and ``nn.MultiheadAttention`` call one kernel
    for a whole layer, which no graph has: its parts could be neither priced nor placed.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Modules called meanwhile run the kernels that their graphs have, in inference mode."""
    with torch.inference_mode(), without_fast_path():
        yield


def run_module(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> list[Any]:
    """A module's results in the order of its graph's, from the kernels that its graph has."""
    with eagerly():
        return leaves_of(module(*args, **(kwargs or {})))


def leaves_of(output: Any) -> list[Any]:
    """A module's output as a flat list: the order in which a graph lists its results.

    Tuples, lists, dicts, NamedTuples and whatever else ``torch.utils._pytree`` knows (``ModelOutput`` of
    transformers) are taken apart in its order, dataclasses in the order of their fields. Of an object of
    any other class (a cache of transformers, a distribution) the tensors among its attributes are taken,
    in the order in which they were set, wherever they are nested.

    Returns:
        Tensors, numbers and None.

    Raises:
        InvalidInput: it holds something whose content cannot be listed, such as a set or a generator.
    """
    found: list[Any] = []
    _collect(output, found, set())
    return found


def _collect(value: Any, found: list[Any], seen: set[int]) -> None:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, _LEAVES):
            found.append(leaf)
        elif isinstance(leaf, _PASSED_OVER) or callable(leaf):
            continue
        elif dataclasses.is_dataclass(leaf):
            for field in dataclasses.fields(leaf):
                _collect(getattr(leaf, field.name), found, seen)
        elif not hasattr(leaf, "__dict__"):
            raise InvalidInput(
                f"its output holds a {type(leaf).__name__}, whose content has no order or cannot be listed; "
                "let it give tensors, or tuples, lists, dicts or dataclasses of them"
            )
        elif id(leaf) not in seen:
            seen.add(id(leaf))
            within: list[Any] = []
            for attribute in vars(leaf).values():
                if not isinstance(attribute, set | frozenset):
                    _collect(attribute, within, seen)
            found += [part for part in within if isinstance(part, torch.Tensor)]
