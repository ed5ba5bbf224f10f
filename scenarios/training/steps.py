"""Training steps one after the other as one graph: each reads what the one before made of the weights."""

from __future__ import annotations

import dataclasses

from simulator.errors import InvalidInput
from simulator.model.graph import DataflowGraph
from simulator.model.operator import UPDATED, Operator, Tensor
from simulator.model.pass_tags import in_step, tags_of


def unrolled(graph: DataflowGraph, steps: int) -> DataflowGraph:
    """So many steps as one graph.

    Weights are the graph's own. Inputs, results and everything that is computed have the number of their step, from 0,
    behind their name, except what the last step makes of the weights. The batch is that of all steps.

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
    names = [operator.name for operator in graph.operators]
    micro_batches = int(tags_of(names)[1].max()) + 1
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
            name = in_step(operator.name, step, micro_batches)
            operators.append(dataclasses.replace(operator, name=name))
            reads.append([values[t] for t in graph.reads[number]])
            writes.append([made(t) for t in graph.writes[number]])
        results += [
            {**row, "tensor": f"{row['tensor']}#{step}"} if "tensor" in row else dict(row)
            for row in graph.results
        ]
        for tensor, weight in graph.updates.items():
            now[weight] = values[tensor]
    batch = None if graph.batch is None else graph.batch * steps
    return DataflowGraph(graph.name, operators, tensors, reads, writes, results, batch)


def rolled(graph: DataflowGraph) -> tuple[DataflowGraph, int]:
    """The step that :func:`unrolled` put in a row, and how many times; any other graph as it is, once."""
    steps = len(graph.outputs)
    count = len(graph) // max(steps, 1)
    ends = [f"#{step}" for step in range(steps) for _ in range(count)]
    names = graph.operator_names
    if steps < 2 or not all(map(str.endswith, names, ends)) or len(ends) != len(graph):
        return graph, 1

    def own(name: str) -> str:
        return name.removesuffix("#0")

    used = {t for o in range(count) for t in (*graph.reads[o], *graph.writes[o])}
    used |= {t for t in graph.inputs if graph.tensors[t].name.endswith("#0")} | set(graph.weights)
    position = {tensor: number for number, tensor in enumerate(sorted(used))}
    return DataflowGraph(
        graph.name,
        [dataclasses.replace(row, name=own(row.name)) for row in graph.operators[:count]],
        [
            dataclasses.replace(graph.tensors[t], name=own(graph.tensors[t].name))
            for t in sorted(used)
        ],
        [[position[t] for t in row] for row in graph.reads[:count]],
        [[position[t] for t in row] for row in graph.writes[:count]],
        [
            {**row, "tensor": own(row["tensor"])}
            for row in graph.results
            if "tensor" in row and row["tensor"].endswith("#0")
        ],
        None if graph.batch is None else graph.batch // steps,
    ), steps
