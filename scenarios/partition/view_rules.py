"""What views do to shapes, strides and cuts, without torch.

A part of an operator may read a part of a stored tensor through the operator's own views, where a cut of what is seen
is a cut of what is stored. :func:`cut_before` finds that cut; :func:`seen_through` gives the layout that a kernel sees.
Views that are not known here (and cuts that no single dimension of the stored tensor has) give None: the whole
tensor is read, and cut behind its views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.model.operator import TensorSpec, contiguous_strides

View = Sequence[Any]


@dataclass(frozen=True)
class Cut:
    """The elements ``begin`` to ``end`` (without it) of a dimension."""

    dim: int
    begin: int
    end: int

    @property
    def length(self) -> int:
        """How many there are."""
        return self.end - self.begin

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor that is cut so."""
        return (*shape[: self.dim], self.length, *shape[self.dim + 1 :])

    @property
    def view(self) -> list[Any]:
        """The cut as a view of a template."""
        return ["aten.slice.Tensor", [{"self": True}, self.dim, self.begin, self.end], {}]


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """Strides of a tensor, the row-major ones written out."""
    return spec.strides or contiguous_strides(spec.shape)


def sliced(spec: TensorSpec, cut: Cut) -> TensorSpec:
    """What a view of a cut shows: the strides stay."""
    return TensorSpec.of(cut.of(spec.shape), spec.dtype, strides_of(spec))


def dense_like(spec: TensorSpec, shape: Sequence[int]) -> TensorSpec:
    """A tensor without gaps whose dimensions lie in the order in which another's do."""
    if spec.strides is None:
        return TensorSpec(tuple(shape), spec.dtype)
    strides, old = [0] * len(shape), strides_of(spec)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda d: (old[d], -d)):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return TensorSpec.of(shape, spec.dtype, strides)


def seen_through(spec: TensorSpec, views: Sequence[View]) -> TensorSpec | None:
    """What a kernel sees of a stored tensor; None where a view is not known here."""
    specs = _steps(spec, views)
    return None if specs is None else specs[-1]


def cut_before(
    spec: TensorSpec, views: Sequence[View], cut: Cut
) -> tuple[Cut, tuple[View, ...]] | None:
    """The cut of a stored tensor that shows a cut of what is seen of it.

    Args:
        spec: of the stored tensor.
        views: through which it is seen.
        cut: of what is seen.

    Returns:
        The cut of the stored tensor, and the views that show the same of that part alone; None if there is none.
    """
    specs = _steps(spec, views)
    if specs is None:
        return None
    changed: list[View] = []
    position = len(views)
    while position:
        position -= 1
        group: list[View] = [views[position]]
        if views[position][0] == "getitem" and position:
            position -= 1
            group.insert(0, views[position])
        found = _before(specs[position], specs[position + len(group)], group, cut)
        if found is None:
            return None
        cut, group = found
        changed[:0] = group
    return cut, tuple(changed)


def _steps(spec: TensorSpec, views: Sequence[View]) -> list[TensorSpec] | None:
    """The tensor before all views and behind each; of a view that gives several and its ``getitem`` the last counts."""
    found = [spec]
    position = 0
    while position < len(views):
        view = views[position]
        index = None
        if position + 1 < len(views) and views[position + 1][0] == "getitem":
            index = int(views[position + 1][1])
        after = _after(found[-1], view, index)
        if after is None:
            return None
        if index is not None:
            found.append(after)
        found.append(after)
        position += 1 if index is None else 2
    return found


def _argument(view: View, position: int, name: str, default: Any = None) -> Any:
    args, kwargs = view[1], view[2]
    return args[position] if position < len(args) else kwargs.get(name, default)


def _after(spec: TensorSpec, view: View, index: int | None) -> TensorSpec | None:
    name, shape, strides = view[0], list(spec.shape), list(strides_of(spec))
    rank = len(shape)
    if name == "getitem" or not (view[1] and isinstance(view[1][0], dict)):
        return None
    order = _order(view, rank)
    if order is not None:
        shape, strides = [shape[d] for d in order], [strides[d] for d in order]
    elif name in ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"):
        sizes = _sizes(shape, view[1][1])
        return TensorSpec.of(sizes, spec.dtype, _viewed(shape, strides, sizes))
    elif name == "aten.unsqueeze.default":
        dim = view[1][1] % (rank + 1)
        shape.insert(dim, 1)
        strides.insert(dim, 1)
    elif name in ("aten.select.int", "aten.unbind.int", "aten.squeeze.dim"):
        dim = _argument(view, 1, "dim", 0) % rank
        if (name == "aten.unbind.int") != (index is not None):
            return None
        if name != "aten.squeeze.dim" or shape[dim] == 1:
            del shape[dim], strides[dim]
    elif name == "aten.slice.Tensor":
        dim, begin, end, step = _slice(view, shape)
        shape[dim] = max(0, -(-(end - begin) // step))
        strides[dim] *= step
    elif name in ("aten.split.Tensor", "aten.split_with_sizes.default") and index is not None:
        dim, size = _argument(view, 2, "dim", 0) % rank, view[1][1]
        if isinstance(size, int):
            size = [min(size, shape[dim] - b) for b in range(0, shape[dim], size)]
        shape[dim] = size[index]
    elif name == "aten.expand.default":
        sizes = list(view[1][1])
        if len(sizes) != rank:
            return None
        for dim, size in enumerate(sizes):
            if size not in (-1, shape[dim]):
                shape[dim], strides[dim] = size, 0
    else:
        return None
    return TensorSpec.of(shape, spec.dtype, strides)


def _order(view: View, rank: int) -> list[int] | None:
    """The dimensions before, in their order behind, of a view that permutes them."""
    order = list(range(rank))
    if view[0] == "aten.transpose.int":
        a, b = view[1][1] % rank, view[1][2] % rank
        order[a], order[b] = order[b], order[a]
    elif view[0] == "aten.t.default":
        order.reverse()
    elif view[0] == "aten.permute.default":
        order = [d % rank for d in view[1][1]]
    else:
        return None
    return order


def _slice(view: View, shape: Sequence[int]) -> tuple[int, int, int, int]:
    dim = _argument(view, 1, "dim", 0) % len(shape)
    length = shape[dim]
    begin, end, step = (
        _argument(view, n, name) for n, name in ((2, "start"), (3, "end"), (4, "step"))
    )
    begin = min(length, max(0, (begin or 0) + (length if (begin or 0) < 0 else 0)))
    end = length if end is None else min(length, max(begin, end + (length if end < 0 else 0)))
    return dim, begin, end, step or 1


def _sizes(shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    known = math.prod(size for size in sizes if size != -1)
    return [math.prod(shape) // max(known, 1) if size == -1 else size for size in sizes]


def _viewed(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> Sequence[int]:
    """Strides of a tensor seen in other sizes; row-major ones where it has to be copied for that."""
    # Runs of dimensions that lie without gaps, the last first: elements and innermost stride.
    runs: list[list[int]] = []
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= length
        else:
            runs.append([length, stride])
    found: list[int] = []
    runs.reverse()
    left, step = runs.pop() if runs else (1, 1)
    for size in reversed(sizes):
        if left == 1 and size > 1 and runs:
            left, step = runs.pop()
        if size > 1 and left % size:
            return contiguous_strides(sizes)
        found.append(step)
        left, step = left // max(size, 1), step * max(size, 1)
    return found[::-1]


def _before(
    spec: TensorSpec, after: TensorSpec, group: list[View], cut: Cut
) -> tuple[Cut, list[View]] | None:
    """A cut behind one view as a cut before it, and the view as it is of that part."""
    view, shape = group[0], spec.shape
    name, rank, dim = view[0], len(shape), cut.dim
    order = _order(view, rank)
    if order is not None:
        return Cut(order[dim], cut.begin, cut.end), group
    if name in ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"):
        found = _cut_of_sizes(shape, after.shape, cut)
        sizes = list(cut.of(after.shape))
        return None if found is None else (found, [[name, [view[1][0], sizes], view[2]]])
    if name == "aten.expand.default":
        sizes = [cut.length if d == dim and n != -1 else n for d, n in enumerate(view[1][1])]
        kept = shape[dim] == after.shape[dim]
        return (cut, [[name, [view[1][0], sizes], view[2]]]) if kept else None
    if name == "aten.unsqueeze.default":
        own = view[1][1] % (rank + 1)
        return None if dim == own else (Cut(dim - (dim > own), cut.begin, cut.end), group)
    own = _argument(view, 2 if "split" in name else 1, "dim", 0) % rank
    if len(after.shape) < rank:
        return Cut(dim + (dim >= own), cut.begin, cut.end), group
    return None if dim == own else (cut, group)


def _cut_of_sizes(shape: Sequence[int], sizes: Sequence[int], cut: Cut) -> Cut | None:
    """A cut of a tensor seen in other sizes as a cut of one dimension of it."""
    outer, inner = math.prod(sizes[: cut.dim]), math.prod(sizes[cut.dim + 1 :])
    for dim, length in enumerate(shape):
        if length > 1 and math.prod(shape[:dim]) == outer:
            step = math.prod(shape[dim + 1 :])
            begin, end = cut.begin * inner, cut.end * inner
            if step and not begin % step and not end % step and end <= length * step:
                return Cut(dim, begin // step, end // step)
    return None


__all__ = ["Cut", "View", "cut_before", "dense_like", "seen_through", "sliced", "strides_of"]
