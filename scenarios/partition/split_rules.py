"""What an operator may be split along, and what a part of it reads.

A split is along a dimension of the output, which every part writes some of, or along :data:`INNER`, the dimension that
a product sums over: then every part writes a summand of all of the output. Rules are of canonical kinds
(those of training steps: :mod:`scenarios.partition.backward_rules`):

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
from dataclasses import dataclass
from typing import Any

from scenarios.partition import backward_rules
from scenarios.partition.part_rules import (
    INNER,
    Need,
    PartRule,
    Rule,
    Rules,
    all_but_one,
    along,
    argument,
    broadcast,
    cutting,
    elementwise,
    leading,
    with_changed,
)
from scenarios.partition.view_rules import Cut
from simulator.errors import InvalidInput
from simulator.model.operator import Operator

NAMES = ("batch", "channels", "rows", "inner")
"""Dimensions by what they are called in configurations."""

_ELEMENTWISE = """
    abs add bitwise_and bitwise_not bitwise_or clamp clamp_max clamp_min copy cos div elu eq erf exp ge gelu gt
    hardsigmoid hardswish hardtanh le leaky_relu log logical_and logical_not logical_or lt masked_fill maximum minimum
    mish mul ne neg pow relu rsqrt rsub sigmoid silu sin softplus sqrt sub tanh where
"""


@dataclass(frozen=True)
class Axis:
    """A dimension along which an operator may be split.

    Attributes:
        dim: of the output, or :data:`INNER`.
        name: of :data:`NAMES`, or ``columns``.
        length: how many elements there are to share.
        unit: shares are multiples of it, such as the channels of a group.
        rule: what the part from ``begin`` to ``end`` needs.
        outs: of each output (:class:`scenarios.partition.part_rules.Rule`).
    """

    dim: int
    name: str
    length: int
    unit: int
    rule: Callable[[int, int], PartRule]
    outs: tuple[int | None, ...]


def axes_of(operator: Operator) -> dict[int, Axis]:
    """The dimensions along which an operator may be split, by number; none of a kind without a rule."""
    rules = _RULES.get(operator.kind)
    if rules is None or not operator.outputs or operator.template is None or operator.in_place:
        return {}
    found = {}
    for dim, (length, unit, rule, given) in rules(operator).items():
        outs = given or (dim,) * len(operator.outputs)
        agree = all(
            out in (None, INNER) or spec.shape[out : out + 1] == (length,)
            for out, spec in zip(outs, operator.outputs, strict=True)
        )
        if agree and length >= 2 * unit:
            found[dim] = Axis(dim, name_of(operator, dim), length, unit, rule, outs)
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
    return _RULES.get(kind) is elementwise


# -- rules by kind ----------------------------------------------------------------------------------


def _inner(operator: Operator, cuts: Mapping[int, int], bias: int | None) -> Rule:
    """Along the inner dimension; ``bias`` is the leaf that only the first summand has, argument of the same number."""
    first, count = next(iter(cuts)), len(operator.inputs)

    def rule(begin: int, end: int) -> PartRule:
        part = cutting(operator, cuts)(begin, end)
        if bias is None or bias >= count or begin == 0:
            return part
        kept = tuple(leaf for leaf in range(count) if leaf != bias)
        return PartRule(part.needs, with_changed(operator, {bias: None}), kept)

    return Rule(operator.inputs[first].shape[cuts[first]], 1, rule)


def _window(
    operator: Operator, dim: int, axis: int, kernel: int, fill: Any, defaults: Sequence[Any]
) -> Rule:
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
        args = with_changed(operator, {len(defaults) - 1: explicit}, defaults)
        return PartRule((need, *others), args, attributes={"padding": explicit}, fill=fill)

    return Rule(operator.outputs[0].shape[dim], 1, rule)


def _convolution(operator: Operator) -> Rules:
    x, weight = operator.inputs[0].shape, operator.inputs[1].shape
    spatial, groups = int(operator.kind[4]), int(operator.attributes["groups"])
    channels = len(x) - spatial - 1
    found: Rules = {0: along(operator, 0, {0: 0})} if channels else {}
    general = operator.target.split(".")[1].startswith(("convolution", "_convolution"))
    outs, ins = weight[0] // groups, weight[1]

    def by_channels(begin: int, end: int) -> PartRule:
        rest = [Need(Cut(0, begin, end)) for _ in operator.inputs[1:]]
        if groups == 1:
            return PartRule((None, *rest))
        need = Need(Cut(channels, begin // outs * ins, end // outs * ins))
        mine = (end - begin) // outs
        args = with_changed(operator, {8 if general else 6: mine})
        return PartRule((need, *rest), args, attributes={"groups": mine})

    found[channels] = Rule(weight[0], 1 if groups == 1 else outs, by_channels)
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


def _pool(operator: Operator) -> Rules:
    rank, spatial = len(operator.outputs[0].shape), int(operator.kind[-2])
    first, attributes = rank - spatial, operator.attributes
    found = {d: along(operator, d, {0: d}) for d in range(first)}
    average = operator.kind.startswith("avg")
    if len(operator.outputs) > 1:  # its indices count through the whole image
        return found
    for axis in range(spatial):
        kernel, padding = attributes["kernel_size"][axis], attributes["padding"][axis]
        # Means are of what was there: neither padding that does not count, nor what a ceiling added, may be explicit.
        uncounted = padding and not argument(operator, 5, True)
        if not (average and (uncounted or attributes.get("ceil_mode"))):
            fill = 0.0 if average else {"float": "-inf"}
            defaults = (None, None, attributes["stride"], attributes["padding"])
            found[first + axis] = _window(operator, first + axis, axis, kernel, fill, defaults)
    return found


def _cell(operator: Operator) -> Rules:
    states = 3 if operator.kind == "lstm_cell" else 2
    if len(operator.inputs[0].shape) != 2:
        return {}
    return {0: along(operator, 0, dict.fromkeys(range(states), 0))}


def _linear(operator: Operator) -> Rules:
    rank = len(operator.outputs[0].shape)
    found = {d: along(operator, d, {0: d}) for d in range(rank - 1)}
    found[rank - 1] = along(operator, rank - 1, {1: 0, 2: 0})
    found[INNER] = _inner(operator, {0: rank - 1, 1: 1}, 2)
    return found


def _addmm(operator: Operator) -> Rules:
    found = {}
    for out, product in ((0, 1), (1, 2)):
        length = operator.outputs[0].shape[out]
        shape = operator.inputs[0].shape
        dim = out - 2 + len(shape)
        cuts = {0: dim} if dim >= 0 and shape[dim] > 1 else {}
        found[out] = Rule(length, 1, cutting(operator, {**cuts, product: out}))
    if not (operator.template or {}).get("kwargs"):  # factors of the summands
        inner = _inner(operator, {1: 1, 2: 0}, None)

        def rule(begin: int, end: int) -> PartRule:
            part = inner.part(begin, end)
            if begin == 0:
                return part
            product = "aten.mm.default", "matmul"
            return PartRule(part.needs, with_changed(operator, {})[1:], (1, 2), target=product)

        found[INNER] = inner._replace(part=rule)
    return found


def _matmul(operator: Operator) -> Rules:
    a, b = operator.inputs[0].shape, operator.inputs[1].shape
    rank = len(operator.outputs[0].shape)
    if min(len(a), len(b)) < 2:
        return {}
    found = {d: broadcast(operator, d, [0, 1]) for d in range(rank - 2)}
    found[rank - 2] = along(operator, rank - 2, {0: len(a) - 2})
    found[rank - 1] = along(operator, rank - 1, {1: len(b) - 1})
    found[INNER] = _inner(operator, {0: len(a) - 1, 1: len(b) - 2}, None)
    return found


def _attention(operator: Operator) -> Rules:
    kwargs = (operator.template or {}).get("kwargs", {})
    rank = len(operator.outputs[0].shape)
    if kwargs.get("enable_gqa"):
        return {}
    found = {d: broadcast(operator, d, range(len(operator.inputs))) for d in range(rank - 2)}
    if not operator.attributes.get("is_causal"):
        masks = range(3, len(operator.inputs))
        rows = {leaf: len(operator.inputs[leaf].shape) - 2 for leaf in (0, *masks)}
        rows = {
            leaf: d for leaf, d in rows.items() if d >= 0 and operator.inputs[leaf].shape[d] > 1
        }
        found[rank - 2] = along(operator, rank - 2, rows)
    return found


def _batch_norm(operator: Operator) -> Rules:
    if argument(operator, 5, True) is not False:
        return {}
    rank = len(operator.outputs[0].shape)
    found = {d: along(operator, d, {0: d}) for d in range(rank) if d != 1}
    rest = dict.fromkeys(range(1, len(operator.inputs)), 0)
    return found | {1: along(operator, 1, {0: 1, **rest})}


def _layer_norm(operator: Operator) -> Rules:
    normalized = argument(operator, 1, [])
    return leading(-len(normalized))(operator)


def _cat(operator: Operator) -> Rules:
    own, every = operator.attributes["dim"], range(len(operator.inputs))
    rank = len(operator.outputs[0].shape)
    less = 1 if operator.kind == "stack" else 0
    if any(len(spec.shape) != rank - less for spec in operator.inputs):
        return {}
    return {
        d: along(operator, d, dict.fromkeys(every, d - (less if d > own else 0)))
        for d in range(rank)
        if d != own
    }


def _reduction(operator: Operator) -> Rules:
    rank, reduced = len(operator.inputs[0].shape), operator.attributes["dim"]
    kept = [d for d in range(rank) if d not in reduced]
    if len(operator.outputs[0].shape) == rank:
        return {d: along(operator, d, {0: d}) for d in kept}
    return {out: along(operator, out, {0: d}) for out, d in enumerate(kept)}


def _embedding(operator: Operator) -> Rules:
    rank = len(operator.outputs[0].shape)
    found = {d: along(operator, d, {1: d}) for d in range(rank - 1)}
    return found | {rank - 1: along(operator, rank - 1, {0: 1})}


_RULES: Mapping[str, Callable[[Operator], Rules]] = {
    **dict.fromkeys([*_ELEMENTWISE.split(), *backward_rules.ELEMENTWISE], elementwise),
    **backward_rules.RULES,
    **{f"conv{n}d": _convolution for n in (1, 2, 3)},
    **{f"{name}_pool{n}d": _pool for n in (1, 2, 3) for name in ("max", "avg")},
    **{f"adaptive_{name}_pool{n}d": leading(-n) for n in (1, 2, 3) for name in ("max", "avg")},
    **dict.fromkeys(["softmax", "safe_softmax", "log_softmax", "cumsum"], all_but_one),
    **dict.fromkeys(["mean", "sum"], _reduction),
    **dict.fromkeys(["layer_norm", "rms_norm"], _layer_norm),
    **dict.fromkeys(["cat", "stack"], _cat),
    **dict.fromkeys(["matmul", "bmm"], _matmul),
    **dict.fromkeys(["lstm_cell", "gru_cell"], _cell),
    "group_norm": leading(1),
    "linear": _linear,
    "addmm": _addmm,
    "scaled_dot_product_attention": _attention,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
}
