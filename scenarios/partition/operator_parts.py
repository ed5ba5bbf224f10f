"""Parts of operators: how an operator is split, and each part as an operator of its own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.partition.part_rules import INNER, Need, PartRule
from scenarios.partition.split_rules import axis_of, is_elementwise
from scenarios.partition.view_rules import Cut, dense_like, strides_of
from simulator.errors import InvalidInput
from simulator.model.operator import Operator, TensorSpec


@dataclass(frozen=True)
class Split:
    """How an operator is split.

    Attributes:
        dim: of its output, or :data:`scenarios.partition.split_rules.INNER`.
        sizes: of the parts along it, elements, in order.
        devices: of the parts.
    """

    dim: int
    sizes: tuple[int, ...]
    devices: tuple[int, ...]

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Begin and end of each part."""
        ends = list(itertools.accumulate(self.sizes))
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def rules(self, operator: Operator) -> list[PartRule]:
        """What the parts of an operator need.

        Raises:
            InvalidInput: its kind or shape forbids the split; names the operator and what is wrong.
        """
        axis = axis_of(operator, self.dim)
        what = (
            f"Operator '{operator.name}' is to be split into {list(self.sizes)} along {axis.name}"
        )
        if len(self.sizes) != len(self.devices) or len(self.sizes) < 2:
            raise InvalidInput(
                f"{what} on {len(self.devices)} devices; give each of two or more a part"
            )
        if min(self.sizes) < 1:
            raise InvalidInput(f"{what}: a share rounds to nothing; leave its device out")
        if sum(self.sizes) != axis.length:
            raise InvalidInput(f"{what}, which has length {axis.length}")
        if any(size % axis.unit for size in self.sizes):
            raise InvalidInput(f"{what}; a group's {axis.unit} channels stay together")
        return [dataclasses.replace(axis.rule(*bounds), outs=axis.outs) for bounds in self.bounds]


def part_of(operator: Operator, rule: PartRule, split: Split, index: int) -> Operator:
    """A part of an operator by itself: shapes, attributes and arguments, its leaves read without views.

    What it is priced as; where it reads through views, strides are filled in later.
    """
    kept = range(len(operator.inputs)) if rule.kept is None else rule.kept
    inputs = [_needed(operator.inputs[leaf], rule.needs[leaf]) for leaf in kept]
    return finished(operator, rule, split, index, inputs, None, ())


def _replaced(node: Any, leaves: list[dict[str, Any]]) -> Any:
    """A template node with its leaves replaced, left to right."""
    if isinstance(node, Mapping):
        if "read" in node:
            return leaves.pop(0)
        return node
    if isinstance(node, list):
        return [_replaced(item, leaves) for item in node]
    return node


def _needed(spec: TensorSpec, need: Need | None) -> TensorSpec:
    if need is None:
        return spec
    shape = list(need.cut.of(spec.shape))
    if need.before or need.after:
        shape[need.cut.dim] += need.before + need.after
        return TensorSpec(tuple(shape), spec.dtype)
    return dense_like(spec, shape)


def finished(
    operator: Operator,
    rule: PartRule,
    split: Split,
    index: int,
    inputs: Sequence[TensorSpec],
    leaves: list[dict[str, Any]] | None,
    stored: tuple[TensorSpec, ...],
) -> Operator:
    """A part of an operator with given inputs; without leaves it is one to be priced, not run."""
    begin, end = split.bounds[index]
    outs = rule.outs or (split.dim,) * len(operator.outputs)
    outputs = tuple(
        spec if dim in (None, INNER) else dense_like(spec, Cut(dim, begin, end).of(spec.shape))
        for dim, spec in zip(outs, operator.outputs, strict=True)
    )
    free = "memory_format" not in (operator.template or {}).get("kwargs", {})
    if free and is_elementwise(operator.kind) and len(inputs[0].shape) == len(outputs[0].shape):
        # What is written lies as what is read does.
        laid = [dense_like(inputs[0], spec.shape) for spec in outputs]
        outputs = tuple(
            dataclasses.replace(new, dtype=spec.dtype)
            for new, spec in zip(laid, outputs, strict=True)
        )
    target, kind = rule.target or (operator.target, operator.kind)
    kept = dict(operator.attributes) if rule.target is None else {}
    name = f"{operator.name}[{index + 1}/{len(split.sizes)}]"
    made = Operator(name, kind, (), outputs, kept | dict(rule.attributes), target)
    template = None
    if leaves is not None:
        given = operator.template or {}
        rest = list(leaves)
        args = _replaced(list(given["args"] if rule.args is None else rule.args), rest)
        kwargs = {key: _replaced(node, rest) for key, node in given.get("kwargs", {}).items()}
        template = {"args": args, "kwargs": kwargs}
    return reading(made, template, inputs, stored)


def reading(
    operator: Operator,
    template: Mapping[str, Any] | None,
    inputs: Sequence[TensorSpec],
    stored: tuple[TensorSpec, ...],
) -> Operator:
    """An operator with other inputs: the attributes that say how these lie follow them."""
    attributes = {key: value for key, value in operator.attributes.items() if key != "strided"}
    if operator.kind == "copy":
        strides = strides_of(inputs[0])
        attributes["order"] = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
    strided = [n for n, spec in enumerate(inputs) if spec.strides is not None]
    if strided:
        attributes["strided"] = strided
    return Operator(
        operator.name,
        operator.kind,
        tuple(inputs),
        operator.outputs,
        attributes,
        operator.target,
        template,
        stored,
    )


def leaves_of(node: Any) -> list[Mapping[str, Any]]:
    """Leaves of a template, or of a node of it, left to right."""
    if isinstance(node, Mapping):
        if "read" in node:
            return [node]
        inner = [*node["args"], *node.get("kwargs", {}).values()] if "args" in node else []
        return [leaf for item in inner for leaf in leaves_of(item)]
    if isinstance(node, list):
        return [leaf for item in node for leaf in leaves_of(item)]
    return []
