"""Backward convolutions divided into the gradient of their input and that of their weights, for zero-bubble schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

from simulator.model.graph import DataflowGraph
from simulator.model.operator import Operator

_TARGET = "aten.convolution_backward.default"


def divided(graph: DataflowGraph) -> DataflowGraph:
    """A training step in which no backward convolution gives both gradients; its kernel runs twice instead of once.

    Linear layers have a product for each gradient anyway. Kernels of normalisations stay: most of their work is
    common to both.
    """
    operators: list[Operator] = []
    reads: list[tuple[int, ...]] = []
    writes: list[tuple[int, ...]] = []
    for operator, read, written in zip(graph.operators, graph.reads, graph.writes, strict=True):
        mask = operator.attributes.get("output_mask", (False,))
        if operator.target != _TARGET or not mask[0] or not any(mask[1:]):
            operators.append(operator)
            reads.append(read)
            writes.append(written)
            continue
        for name, kept in (("input", [True, False, False]), ("weight", [False, *mask[1:]])):
            chosen = [
                k for k, wanted in enumerate(i for i, m in enumerate(mask) if m) if kept[wanted]
            ]
            operators.append(_part(operator, name, kept, chosen))
            reads.append(read)
            writes.append(tuple(written[k] for k in chosen))
    return DataflowGraph(
        graph.name, operators, graph.tensors, reads, writes, graph.results, graph.batch
    )


def _part(operator: Operator, name: str, mask: list[bool], chosen: list[int]) -> Operator:
    template: dict[str, Any] = dict(operator.template or {})
    template["args"] = [*template["args"][:-1], mask]  # the last argument of the operator
    return dataclasses.replace(
        operator,
        name=f"{operator.name}/{name}",
        outputs=tuple(operator.outputs[k] for k in chosen),
        attributes={**operator.attributes, "output_mask": mask},
        template=template,
    )
