"""Training steps one after the other as one graph: each reads what the one before made of the weights."""

from __future__ import annotations

import dataclasses

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import UPDATED, Operator, Tensor


def unrolled(graph: DataflowGraph, steps: int) -> DataflowGraph:
    """So many steps as one graph.

    Weights are the graph's own; inputs, results and everything that is computed end in ``#`` and the number of their
    step, from 0, but what the last step makes of the weights.

    Args:
        graph: of one step.
        steps: how many.

    Raises:
        InvalidInput: fewer than one step, or a graph that changes no weight.
    """
    if steps < 1:
        raise InvalidInput(f"'{graph.name}' is to be repeated {steps} times; give 1 or more steps")
    if not graph.updates:
        raise InvalidInput(
            f"'{graph.name}' changes no weight, so nothing goes from one step to the next; take model.training=true"
        )
    if steps == 1:
        return graph
    tensors: list[Tensor] = [row for row in graph.tensors if row.role == "weight"]
    numbers = {row.name: number for number, row in enumerate(tensors)}
    now = {t: numbers[graph.tensors[t].name] for t in graph.weights}  # each weight as it is
    operators: list[Operator] = []
    reads, writes, results = [], [], []
    for step in range(steps):
        values = dict(now)

        def made(tensor: int, values: dict[int, int] = values, step: int = step) -> int:
            row = graph.tensors[tensor]
            is_left = step == steps - 1 and row.name.endswith(UPDATED)
            name = row.name if is_left else f"{row.name}#{step}"
            tensors.append(dataclasses.replace(row, name=name))
            values[tensor] = len(tensors) - 1
            return values[tensor]

        for tensor in graph.inputs:
            made(tensor)
        for number, operator in enumerate(graph.operators):
            operators.append(dataclasses.replace(operator, name=f"{operator.name}#{step}"))
            reads.append([values[t] for t in graph.reads[number]])
            writes.append([made(t) for t in graph.writes[number]])
        results += [
            {**row, "tensor": f"{row['tensor']}#{step}"} if "tensor" in row else dict(row)
            for row in graph.results
        ]
        for tensor, weight in graph.updates.items():
            now[weight] = values[tensor]
    return DataflowGraph(graph.name, operators, tensors, reads, writes, results, graph.batch)
