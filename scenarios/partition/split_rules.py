"""What an operator may be split along, and what a part of it reads.

A split is along a dimension of the output, which every part writes some of, or along :data:`INNER`, the dimension that
a product sums over: then every part writes a summand of all of the output. Rules are of canonical kinds:

===========================================  ===========================================================================
kinds                                        dimensions
===========================================  ===========================================================================
conv1d, conv2d, conv3d                       batch; output channels (whole groups); rows, with halo; input channels
                                             (without groups)
max_pool, avg_pool                           batch, channels; rows, with halo
linear, addmm, matmul, bmm                   batch, rows, columns; the inner one
scaled_dot_product_attention                 batch, heads; queries, unless causal
batch_norm (inference), layer_norm,          those that are not normalised together; channels of a batch norm
softmax, cumsum
adaptive pools, group_norm, cells            batch (pools: channels, too)
embedding, cat, stack, mean, sum             those that are kept as they are; of an embedding the columns, too
element-wise                                 all
===========================================  ===========================================================================

Rows of a window: output rows ``a`` to ``b`` read ``(b - a - 1) * stride + (kernel - 1) * dilation + 1`` input rows. What
of them lies in the padding is made explicit, since a part has padding at one end alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.partition.view_rules import Cut
from simulator.errors import InvalidInput
from simulator.model.operator import Operator

INNER = -1
"""The dimension that a product sums over."""

NAMES = ("batch", "channels", "rows", "inner")
"""Dimensions by what they are called in configurations."""

_ELEMENTWISE = """
    abs add bitwise_and bitwise_not bitwise_or clamp clamp_max clamp_min copy cos div elu eq erf exp ge gelu gt
    hardsigmoid hardswish hardtanh le leaky_relu log logical_and logical_not logical_or lt masked_fill maximum minimum
    mish mul ne neg pow relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where
"""


@dataclass(frozen=True)
class Need:
    """What a part needs of something that its operator reads: a cut of what it sees, with padding before and behind."""

    cut: Cut
    before: int = 0
    after: int = 0


@dataclass(frozen=True)
class PartRule:
    """How a part differs from its operator.

    Attributes:
        needs: for each leaf of the operator's template what is needed of it; None: all.
        args: the positional arguments, where they change.
        kept: the leaves that these still have; None: all.
        attributes: those that change.
        fill: what padding holds, as a template's node.
        target: another operation, with its kind; None: the same.
    """

    needs: tuple[Need | None, ...]
    args: Sequence[Any] | None = None
    kept: tuple[int, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = 0.0
    target: tuple[str, str] | None = None


@dataclass(frozen=True)
class Axis:
    """A dimension along which an operator may be split.

    Attributes:
        dim: of the output, or :data:`INNER`.
        name: of :data:`NAMES`, or ``columns``.
        length: how many elements there are to share.
        unit: shares are multiples of it, such as the channels of a group.
        rule: what the part from ``begin`` to ``end`` needs.
    """

    dim: int
    name: str
    length: int
    unit: int
    rule: Callable[[int, int], PartRule]


def axes_of(operator: Operator) -> dict[int, Axis]:
    """The dimensions along which an operator may be split, by number; none of a kind without a rule."""
    rules = _RULES.get(operator.kind)
    if rules is None or not operator.outputs or operator.template is None or operator.in_place:
        return {}
    shape = operator.outputs[0].shape
    if any(spec.shape != shape for spec in operator.outputs):
        return {}
    found = {}
    for dim, (length, unit, rule) in rules(operator).items():
        if length >= 2 * unit and (dim == INNER or length == shape[dim]):
            found[dim] = Axis(dim, name_of(operator, dim), length, unit, rule)
    return found


def axis_of(operator: Operator, dim: int) -> Axis:
    """One of :func:`axes_of`.

    Raises:
        InvalidInput: the operator has none of this number; names the kind or those that there are.
    """
    found = axes_of(operator)
    if dim in found:
        return found[dim]
    what = "the inner dimension" if dim == INNER else f"dimension {dim}"
    if operator.kind not in _RULES:
        raise InvalidInput(
            f"Operator '{operator.name}' cannot be split: there is no rule for kind '{operator.kind}'"
        )
    known = ", ".join(f"{axis.name} ({axis.dim})" for axis in found.values())
    raise InvalidInput(
        f"Operator '{operator.name}' (kind {operator.kind}, groups, padding and lengths considered) cannot be split "
        f"along {what}; it can along: {known or 'none'}"
    )


def name_of(operator: Operator, dim: int) -> str:
    """What a dimension is called: by its place, images being [n, c, h, w] and sequences [n, tokens, features]."""
    rank = len(operator.outputs[0].shape)
    if dim == INNER:
        return "inner"
    if rank == 1:
        return "channels"
    if rank == 3 and not operator.kind.endswith("1d"):
        return ("batch", "rows", "channels")[dim]
    return ("batch", "channels", "rows", "columns")[min(dim, 3)]


def is_elementwise(kind: str) -> bool:
    """Whether every element of what is written depends on those in the same place."""
    return _RULES.get(kind) is _elementwise


# -- rules by kind ----------------------------------------------------------------------------------

_Rule = tuple[int, int, Callable[[int, int], PartRule]]  # length, unit, what a part needs
_Rules = dict[int, _Rule]


def _cutting(operator: Operator, dims: Sequence[int | None]) -> Callable[[int, int], PartRule]:
    """Leaf by leaf the dimension that is cut as the output is; None: all of it is needed."""

    def rule(begin: int, end: int) -> PartRule:
        return PartRule(tuple(None if d is None else Need(Cut(d, begin, end)) for d in dims))

    return rule


def _along(operator: Operator, out: int, leaves: Mapping[int, int]) -> _Rule:
    """Along an output dimension that is some leaves' dimension, too."""
    dims = [leaves.get(leaf) for leaf in range(len(operator.inputs))]
    return operator.outputs[0].shape[out], 1, _cutting(operator, dims)


def _broadcast(operator: Operator, out: int, leaves: Sequence[int]) -> _Rule:
    """Along an output dimension with which leaves are aligned from the last; those of length 1 stay whole."""
    rank, found = len(operator.outputs[0].shape), {}
    for leaf in leaves:
        shape = operator.inputs[leaf].shape
        dim = out - rank + len(shape)
        if dim >= 0 and shape[dim] > 1:
            found[leaf] = dim
    return _along(operator, out, found)


def _elementwise(operator: Operator) -> _Rules:
    every = range(len(operator.inputs))
    return {d: _broadcast(operator, d, every) for d in range(len(operator.outputs[0].shape))}


def _inner(operator: Operator, cuts: Mapping[int, int], bias: int | None) -> _Rule:
    """Along the inner dimension; ``bias`` is the leaf that only the first summand has, argument of the same number."""
    dims = [cuts.get(leaf) for leaf in range(len(operator.inputs))]
    first = next(iter(cuts))

    def rule(begin: int, end: int) -> PartRule:
        part = _cutting(operator, dims)(begin, end)
        if bias is None or bias >= len(dims) or begin == 0:
            return part
        kept = tuple(leaf for leaf in range(len(dims)) if leaf != bias)
        return PartRule(part.needs, _with(operator, {bias: None}), kept)

    return operator.inputs[first].shape[cuts[first]], 1, rule


def _with(
    operator: Operator, changed: Mapping[int, Any], defaults: Sequence[Any] = ()
) -> list[Any]:
    """Positional arguments with some changed; ``defaults`` stand where the template ends before these."""
    args = list((operator.template or {})["args"])
    args += defaults[len(args) :]
    for position, node in changed.items():
        args[position] = node
    return args


def _argument(operator: Operator, position: int, default: Any) -> Any:
    args = (operator.template or {}).get("args", ())
    return args[position] if position < len(args) else default


def _window(
    operator: Operator, dim: int, axis: int, kernel: int, fill: Any, defaults: Sequence[Any]
) -> _Rule:
    """Along rows that are read through a window; ``axis`` is the number of the spatial dimension.
    ``defaults`` are the positional arguments up to the padding.
    """
    attributes = operator.attributes
    stride, padding = attributes["stride"][axis], attributes["padding"][axis]
    dilation = attributes.get("dilation", [1] * (axis + 1))[axis]
    rank = len(operator.inputs[0].shape)
    length = operator.inputs[0].shape[rank - len(attributes["stride"]) + axis]
    explicit = list(attributes["padding"])
    explicit[axis] = 0

    def rule(begin: int, end: int) -> PartRule:
        first = begin * stride - padding
        last = (end - 1) * stride - padding + (kernel - 1) * dilation + 1
        if first >= length or last <= 0:
            raise InvalidInput(
                f"A part of operator '{operator.name}' would read padding alone; give it more rows"
            )
        cut = Cut(dim, max(first, 0), min(last, length))
        need = Need(cut, cut.begin - first, last - cut.end)
        others = (None,) * (len(operator.inputs) - 1)
        args = _with(operator, {len(defaults) - 1: explicit}, defaults)
        return PartRule((need, *others), args, attributes={"padding": explicit}, fill=fill)

    return operator.outputs[0].shape[dim], 1, rule


def _convolution(operator: Operator) -> _Rules:
    x, weight = operator.inputs[0].shape, operator.inputs[1].shape
    spatial, groups = int(operator.kind[4]), int(operator.attributes["groups"])
    channels = len(x) - spatial - 1
    found: _Rules = {0: _along(operator, 0, {0: 0})} if channels else {}
    general = operator.target.split(".")[1].startswith(("convolution", "_convolution"))
    outs, ins = weight[0] // groups, weight[1]

    def by_channels(begin: int, end: int) -> PartRule:
        rest = [Need(Cut(0, begin, end)) for _ in operator.inputs[1:]]
        if groups == 1:
            return PartRule((None, *rest))
        need = Need(Cut(channels, begin // outs * ins, end // outs * ins))
        mine = (end - begin) // outs
        args = _with(operator, {8 if general else 6: mine})
        return PartRule((need, *rest), args, attributes={"groups": mine})

    found[channels] = weight[0], 1 if groups == 1 else outs, by_channels
    if groups == 1:
        found[INNER] = _inner(operator, {0: channels, 1: 1}, 2)
    if not operator.target.endswith(
        ".padding"
    ):  # a name of a padding cannot become a number on one side
        stride = operator.attributes["stride"]
        defaults = (None, None, None, stride, operator.attributes["padding"])
        for axis in range(spatial):
            dim = channels + 1 + axis
            found[dim] = _window(operator, dim, axis, weight[2 + axis], 0.0, defaults)
    return found


def _pool(operator: Operator) -> _Rules:
    rank, spatial = len(operator.outputs[0].shape), int(operator.kind[-2])
    first, attributes = rank - spatial, operator.attributes
    found = {d: _along(operator, d, {0: d}) for d in range(first)}
    average = operator.kind.startswith("avg")
    if len(operator.outputs) > 1:  # its indices count through the whole image
        return found
    for axis in range(spatial):
        kernel, padding = attributes["kernel_size"][axis], attributes["padding"][axis]
        # Means are of what was there: neither padding that does not count, nor what a ceiling added, may be explicit.
        uncounted = padding and not _argument(operator, 5, True)
        if not (average and (uncounted or attributes.get("ceil_mode"))):
            fill = 0.0 if average else {"float": "-inf"}
            defaults = (None, None, attributes["stride"], attributes["padding"])
            found[first + axis] = _window(operator, first + axis, axis, kernel, fill, defaults)
    return found


def _leading(kept: int) -> Callable[[Operator], _Rules]:
    """Along the first dimensions, which stay as they are; ``kept`` of them, or all but so many (negative)."""

    def rules(operator: Operator) -> _Rules:
        rank = len(operator.outputs[0].shape)
        return {
            d: _along(operator, d, {0: d}) for d in range(kept if kept > 0 else max(rank + kept, 0))
        }

    return rules


def _cell(operator: Operator) -> _Rules:
    states = 3 if operator.kind == "lstm_cell" else 2
    if len(operator.inputs[0].shape) != 2:
        return {}
    return {0: _along(operator, 0, dict.fromkeys(range(states), 0))}


def _linear(operator: Operator) -> _Rules:
    rank = len(operator.outputs[0].shape)
    found = {d: _along(operator, d, {0: d}) for d in range(rank - 1)}
    found[rank - 1] = _along(operator, rank - 1, {1: 0, 2: 0})
    found[INNER] = _inner(operator, {0: rank - 1, 1: 1}, 2)
    return found


def _addmm(operator: Operator) -> _Rules:
    found = {}
    for out, product in ((0, 1), (1, 2)):
        length, unit, _ = _broadcast(operator, out, [0])
        shape = operator.inputs[0].shape
        dim = out - 2 + len(shape)
        cuts = {0: dim} if dim >= 0 and shape[dim] > 1 else {}
        found[out] = length, unit, _along(operator, out, {**cuts, product: out})[2]
    if not (operator.template or {}).get("kwargs"):  # factors of the summands
        columns, _, whole = _inner(operator, {1: 1, 2: 0}, None)

        def rule(begin: int, end: int) -> PartRule:
            part = whole(begin, end)
            if begin == 0:
                return part
            product = "aten.mm.default", "matmul"
            return PartRule(part.needs, _with(operator, {})[1:], (1, 2), target=product)

        found[INNER] = columns, 1, rule
    return found


def _matmul(operator: Operator) -> _Rules:
    a, b = operator.inputs[0].shape, operator.inputs[1].shape
    rank = len(operator.outputs[0].shape)
    if min(len(a), len(b)) < 2:
        return {}
    found = {d: _broadcast(operator, d, [0, 1]) for d in range(rank - 2)}
    found[rank - 2] = _along(operator, rank - 2, {0: len(a) - 2})
    found[rank - 1] = _along(operator, rank - 1, {1: len(b) - 1})
    found[INNER] = _inner(operator, {0: len(a) - 1, 1: len(b) - 2}, None)
    return found


def _attention(operator: Operator) -> _Rules:
    kwargs = (operator.template or {}).get("kwargs", {})
    rank = len(operator.outputs[0].shape)
    if kwargs.get("enable_gqa"):
        return {}
    found = {d: _broadcast(operator, d, range(len(operator.inputs))) for d in range(rank - 2)}
    if not operator.attributes.get("is_causal"):
        masks = range(3, len(operator.inputs))
        rows = {leaf: len(operator.inputs[leaf].shape) - 2 for leaf in (0, *masks)}
        rows = {
            leaf: d for leaf, d in rows.items() if d >= 0 and operator.inputs[leaf].shape[d] > 1
        }
        found[rank - 2] = _along(operator, rank - 2, rows)
    return found


def _batch_norm(operator: Operator) -> _Rules:
    if _argument(operator, 5, True) is not False:
        return {}
    rank = len(operator.outputs[0].shape)
    found = {d: _along(operator, d, {0: d}) for d in range(rank) if d != 1}
    rest = dict.fromkeys(range(1, len(operator.inputs)), 0)
    return found | {1: _along(operator, 1, {0: 1, **rest})}


def _layer_norm(operator: Operator) -> _Rules:
    normalized = _argument(operator, 1, [])
    return _leading(-len(normalized))(operator)


def _one_dimension(operator: Operator) -> _Rules:
    own = operator.attributes.get("dim")
    rank = len(operator.outputs[0].shape)
    return {d: _along(operator, d, {0: d}) for d in range(rank) if d != own}


def _cat(operator: Operator) -> _Rules:
    own, every = operator.attributes["dim"], range(len(operator.inputs))
    rank = len(operator.outputs[0].shape)
    less = 1 if operator.kind == "stack" else 0
    if any(len(spec.shape) != rank - less for spec in operator.inputs):
        return {}
    return {
        d: _along(operator, d, dict.fromkeys(every, d - (less if d > own else 0)))
        for d in range(rank)
        if d != own
    }


def _reduction(operator: Operator) -> _Rules:
    rank, reduced = len(operator.inputs[0].shape), operator.attributes["dim"]
    kept = [d for d in range(rank) if d not in reduced]
    if len(operator.outputs[0].shape) == rank:
        return {d: _along(operator, d, {0: d}) for d in kept}
    return {out: _along(operator, out, {0: d}) for out, d in enumerate(kept)}


def _embedding(operator: Operator) -> _Rules:
    rank = len(operator.outputs[0].shape)
    found = {d: _along(operator, d, {1: d}) for d in range(rank - 1)}
    return found | {rank - 1: _along(operator, rank - 1, {0: 1})}


_RULES: Mapping[str, Callable[[Operator], _Rules]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **{f"conv{n}d": _convolution for n in (1, 2, 3)},
    **{f"{name}_pool{n}d": _pool for n in (1, 2, 3) for name in ("max", "avg")},
    **{f"adaptive_{name}_pool{n}d": _leading(-n) for n in (1, 2, 3) for name in ("max", "avg")},
    **dict.fromkeys(["softmax", "log_softmax", "cumsum"], _one_dimension),
    **dict.fromkeys(["mean", "sum"], _reduction),
    **dict.fromkeys(["layer_norm", "rms_norm"], _layer_norm),
    **dict.fromkeys(["cat", "stack"], _cat),
    **dict.fromkeys(["matmul", "bmm"], _matmul),
    **dict.fromkeys(["lstm_cell", "gru_cell"], _cell),
    "group_norm": _leading(1),
    "linear": _linear,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
}
