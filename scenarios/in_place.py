"""Writes into a part of a tensor, found in an exported graph.

``torch.export`` makes of ``cache.index_copy_(...)`` and ``out[:, t] = h`` calls that give a whole new tensor; eager
PyTorch writes the part. Each call of the exported graph says which call of the module it comes from. Where that one
changes its argument, and nothing reads afterwards what was there before, the write is taken for what it is.

A write to a whole tensor (``relu_``, ``add_``) moves as much in place as it does elsewhere and stays a call that makes
a new tensor. What the module's own code does out of place (``torch.index_copy``) stays so as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from simulator.model.operator import Operator

# Calls that write the elements that an index names, and the calls that read just those.
_GATHERS: Mapping[str, str] = {
    "index_copy": "index_select",
    "index_add": "index_select",
    "index_reduce": "index_select",
    "index_fill": "index_select",
    "scatter": "gather",
    "scatter_add": "gather",
    "scatter_reduce": "gather",
    "index_put": "index",
    "put": "take",
}
_SCATTERS: Mapping[str, str] = {
    "aten.slice_scatter.default": "aten.slice.Tensor",
    "aten.select_scatter.default": "aten.select.int",
    "aten.diagonal_scatter.default": "aten.diagonal.default",
    "aten.as_strided_scatter.default": "aten.as_strided.default",
}
"""Calls that make a tensor of another with a part replaced, and the view that shows the part."""
_OVERWRITES = frozenset(
    ["copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "index_copy", "index_fill"]
)  # fmt: skip


@dataclass(frozen=True)
class Write:
    """One write in place.

    Attributes:
        target: the call that makes it.
        args: its positional arguments, what it changes first.
        kwargs: those by name.
        view: of the first argument, what is written; None where the argument is that itself.
        region: shape of what is written.
        reads: whether what is overwritten is read first.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    view: tuple[str, tuple[Any, ...]] | None
    region: tuple[int, ...]
    reads: bool


@dataclass(frozen=True)
class Writes:
    """The writes of a graph.

    Attributes:
        made: by the node that stands for each.
        part_of: nodes that only say what a write makes of the whole tensor: of each the node of the write.
        copies: nodes that copy what is overwritten later, or what they copy to is: nobody may leave them out.
    """

    made: Mapping[torch.fx.Node, Write] = field(default_factory=dict)
    part_of: Mapping[torch.fx.Node, torch.fx.Node] = field(default_factory=dict)
    copies: frozenset[torch.fx.Node] = frozenset()


def writes_of(nodes: Sequence[torch.fx.Node]) -> Writes:
    """The writes in place that an exported graph's calls come from."""
    number = {node: position for position, node in enumerate(nodes)}
    groups: dict[str, list[torch.fx.Node]] = {}
    for node in nodes:
        origin = _origin(node)
        if origin is not None and Operator("", "", target=str(origin.target)).in_place:
            groups.setdefault(origin.name, []).append(node)
    last_read: dict[int, int] = {}
    for node in nodes:
        own = _storage(node)
        for source in node.all_input_nodes:
            storage = _storage(source)
            if storage is not None and storage != own:
                last_read[storage] = number[node]
    made: dict[torch.fx.Node, Write] = {}
    part_of: dict[torch.fx.Node, torch.fx.Node] = {}
    came_from: dict[int, int] = {}  # storage of what a write makes, to what it makes it of
    for group in groups.values():
        scatters = [node for node in group if str(node.target) in _SCATTERS]
        call = _call(group, bool(scatters)) or next(iter(scatters), None)
        if call is None:
            continue
        changed = call.args[0]
        assert isinstance(changed, torch.fx.Node)
        before = _storage(changed)
        ends = max(number[node] for node in group)
        if before is None or last_read.get(before, -1) > ends:
            continue
        made[call] = _write(call)
        for node in scatters:
            if node is not call:
                part_of[node] = call
        for node in (call, *scatters):
            after = _storage(node)
            if after is not None:
                came_from[after] = before

    def root(storage: int | None) -> int | None:
        while storage in came_from:
            storage = came_from[storage]
        return storage

    written = {root(storage) for storage in came_from}
    copies = {
        node
        for node in nodes
        if node.op == "call_function"
        and node not in made
        and any(root(_storage(end)) in written for end in (node, *node.all_input_nodes[:1]))
    }
    return Writes(made, part_of, frozenset(copies))


def _origin(node: torch.fx.Node) -> Any:
    """Where a node comes from: something with a ``name`` and a ``target``; None where that is not known."""
    sources = node.meta.get("from_node") or ()
    return sources[-1] if node.op == "call_function" and sources else None


def _call(group: Sequence[torch.fx.Node], scattered: bool) -> torch.fx.Node | None:
    """Of the nodes of one write the one that has the arguments of the module's own call."""
    target = str(_origin(group[0]).target)
    _, name, overload = target.split(".")
    operation = getattr(getattr(torch.ops.aten, name), overload)
    written = [a for a in operation._schema.arguments if a.alias_info and a.alias_info.is_write]
    plain = name.removesuffix("_")
    if len(written) != 1 or written[0] is not operation._schema.arguments[0]:
        return None
    if not scattered and plain != "copy" and plain not in _GATHERS:
        return None
    expected = [a.name for a in operation._schema.arguments]
    for node in group:
        if not isinstance(node.target, torch._ops.OpOverload) or not node.args:
            continue
        found = node.target._schema
        if found.name.removeprefix("aten::").removesuffix("_functional") != plain:
            continue
        booleans = plain == "index_put" and any(
            isinstance(index, torch.fx.Node)
            and index.meta["val"].dtype in (torch.bool, torch.uint8)
            for index in node.args[1]  # type: ignore[union-attr]
        )
        # How many elements a mask names depends on data.
        if [a.name for a in found.arguments] == expected and not booleans:
            return node
    return None


def _write(node: torch.fx.Node) -> Write:
    assert isinstance(node.target, torch._ops.OpOverload)
    changed = node.args[0]
    assert isinstance(changed, torch.fx.Node)
    if str(node.target) in _SCATTERS:
        view = _SCATTERS[str(node.target)], (*node.args[2:], *node.kwargs.values())
        value = node.args[1]
        assert isinstance(value, torch.fx.Node)
        shape = tuple(value.meta["val"].shape)
        return Write("aten.copy_.default", (changed, value), {}, view, shape, False)
    origin = _origin(node)
    plain = str(origin.target).split(".")[1].removesuffix("_")
    named = (
        dict(zip((a.name for a in node.target._schema.arguments), node.args, strict=False))
        | node.kwargs
    )
    reads = plain not in _OVERWRITES
    if plain in ("scatter", "index_put", "put"):
        reads = bool(named.get("accumulate")) or "reduce" in named
    return Write(str(origin.target), node.args, node.kwargs, None, _region(plain, named), reads)


def _region(plain: str, named: Mapping[str, Any]) -> tuple[int, ...]:
    """Shape of what a call writes."""
    shape = tuple(named["self"].meta["val"].shape)
    gather = _GATHERS.get(plain)
    if gather in ("gather", "take"):
        return tuple(named["index"].meta["val"].shape)
    if gather == "index_select":
        rows, dim = named["index"].meta["val"].numel(), named["dim"]
        return tuple(rows if i == dim % len(shape) else n for i, n in enumerate(shape))
    if gather == "index":
        indices = [None if i is None else tuple(i.meta["val"].shape) for i in named["indices"]]
        given = [i for i in indices if i is not None]
        left = [n for i, n in enumerate(shape) if i >= len(indices) or indices[i] is None]
        return (*torch.broadcast_shapes(*given), *left)
    return shape


def _storage(node: Any) -> int | None:
    """What tells the memory of a node's tensor from that of others; None where it has not one tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)
