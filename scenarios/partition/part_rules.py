"""What a part of an operator reads and writes, and the rules that most kinds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from scenarios.partition.view_rules import Cut
from simulator.model.operator import Operator

INNER = -1
"""The dimension that a product sums over."""


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
        outs: of each output (:class:`Rule`); None: all along the split's dimension.
    """

    needs: tuple[Need | None, ...]
    args: Sequence[Any] | None = None
    kept: tuple[int, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = 0.0
    target: tuple[str, str] | None = None
    outs: tuple[int | None, ...] | None = None


class Rule(NamedTuple):
    """A dimension along which an operator may be split.

    Attributes:
        length: how many elements there are to share.
        unit: shares are multiples of it.
        part: what the part from ``begin`` to ``end`` needs.
        outs: for each output the dimension along which parts write pieces of it, :data:`INNER` where each writes a
            summand, None where each writes all of it. None: all outputs as the rule's own dimension says.
    """

    length: int
    unit: int
    part: Callable[[int, int], PartRule]
    outs: tuple[int | None, ...] | None = None


Rules = dict[int, Rule]
"""By dimension of the first output, or :data:`INNER`."""


def cutting(operator: Operator, leaves: Mapping[int, int]) -> Callable[[int, int], PartRule]:
    """Some leaves are cut along a dimension as the output is; all of the others is needed."""
    dims = [leaves.get(leaf) for leaf in range(len(operator.inputs))]

    def part(begin: int, end: int) -> PartRule:
        return PartRule(tuple(None if d is None else Need(Cut(d, begin, end)) for d in dims))

    return part


def along(operator: Operator, out: int, leaves: Mapping[int, int]) -> Rule:
    """Along an output dimension that is some leaves' dimension, too."""
    return Rule(operator.outputs[0].shape[out], 1, cutting(operator, leaves))


def broadcast(operator: Operator, out: int, leaves: Sequence[int]) -> Rule:
    """Along an output dimension with which leaves are aligned from the last; those of length 1 stay whole."""
    rank, found = len(operator.outputs[0].shape), {}
    for leaf in leaves:
        shape = operator.inputs[leaf].shape
        dim = out - rank + len(shape)
        if dim >= 0 and shape[dim] > 1:
            found[leaf] = dim
    return along(operator, out, found)


def elementwise(operator: Operator) -> Rules:
    """Along any dimension."""
    every = range(len(operator.inputs))
    return {d: broadcast(operator, d, every) for d in range(len(operator.outputs[0].shape))}


def leading(kept: int, leaves: int = 1) -> Callable[[Operator], Rules]:
    """Along the first dimensions, which the output and the first leaves share.

    Args:
        kept: how many dimensions, or all but so many (negative).
        leaves: how many share them.
    """

    def rules(operator: Operator) -> Rules:
        rank = len(operator.outputs[0].shape)
        dims = range(kept if kept > 0 else max(rank + kept, 0))
        return {d: along(operator, d, dict.fromkeys(range(leaves), d)) for d in dims}

    return rules


def all_but_one(operator: Operator) -> Rules:
    """Along all dimensions but the operator's own, which every leaf has."""
    own = operator.attributes.get("dim")
    if own is None:
        own = argument(operator, 1, -1)
    rank, every = len(operator.outputs[0].shape), range(len(operator.inputs))
    return {d: along(operator, d, dict.fromkeys(every, d)) for d in range(rank) if d != own % rank}


def argument(operator: Operator, position: int, default: Any) -> Any:
    """A positional argument, as a template's node."""
    args = (operator.template or {}).get("args", ())
    return args[position] if position < len(args) else default


def with_changed(
    operator: Operator, changed: Mapping[int, Any], defaults: Sequence[Any] = ()
) -> list[Any]:
    """Positional arguments with some changed; ``defaults`` stand where the template ends before these."""
    args = list((operator.template or {})["args"])
    args += defaults[len(args) :]
    for position, node in changed.items():
        args[position] = node
    return args
