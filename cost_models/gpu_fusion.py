"""Operators fused as compilers for GPUs fuse them: point-wise chains, and epilogues of library kernels.

What is stored and what shares a loop is decided as :mod:`cost_models.fusion` says. Besides, a point-wise operator that
alone reads what a convolution or a product of matrices writes, element by element, is computed by that kernel before it
stores (the epilogues of cuDNN, CUTLASS and TVM); and no convolution copies its arguments to another layout. The
kernel with its epilogue keeps the kernel's time: what else the epilogue reads counts as nothing, so that the fused time
is a lower one. No GPU was measured running these kernels.
"""

from __future__ import annotations

from dataclasses import replace

from cost_models.fusion import fuse
from cost_models.streaming import streams
from simulator.model.graph import DataflowGraph

EPILOGUES = frozenset(
    [
        *("add", "sub", "mul", "div", "relu", "relu6", "hardtanh", "clamp", "clamp_min", "sigmoid"),
        *("tanh", "gelu", "silu", "hardswish", "hardsigmoid", "leaky_relu", "elu", "batch_norm"),
    ]
)
"""Kinds that a library kernel computes of each element before it stores it."""


def fuse_for_gpu(graph: DataflowGraph) -> DataflowGraph:
    """The graph whose operators are the kernels of a model compiled for a GPU; it can be priced, not run.

    Args:
        graph: a traced graph, of an inference.
    """
    return fuse(with_epilogues(graph), channels_last=False)


def with_epilogues(graph: DataflowGraph) -> DataflowGraph:
    """The graph whose library kernels compute what point-wise operators make of their results."""
    outputs = frozenset(graph.outputs)
    # By the tensor that it stores, the kernel that an epilogue may still be added to, and what it reads.
    kernels: dict[int, tuple[int, list[int]]] = {}
    operators, reads = list(graph.operators), [list(row) for row in graph.reads]
    absorbed = set()
    for number, operator in enumerate(graph.operators):
        writes = graph.writes[number]
        if len(writes) != 1 or operator.in_place:
            continue
        if not streams(operator.kind) and operator.kind != "fused":
            kernels[writes[0]] = number, reads[number]
            continue
        if operator.kind not in EPILOGUES:
            continue
        for tensor in graph.reads[number]:
            alone = graph.consumers[tensor] == (number,) and tensor not in outputs
            if tensor in kernels and alone and _same(graph, tensor, writes[0]):
                kernel, read = kernels.pop(tensor)
                # The kernel runs where the last of its epilogue stood: all that it reads is there by then.
                absorbed.add(kernel)
                operators[number] = replace(operators[kernel], template=None)
                others = (other for other in graph.reads[number] if other != tensor)
                reads[number] = list(dict.fromkeys((*read, *others)))
                kernels[writes[0]] = number, reads[number]
                break
    kept = [number for number in range(len(graph)) if number not in absorbed]
    used = {tensor for number in kept for tensor in (*reads[number], *graph.writes[number])}
    used.update(graph.inputs, outputs)
    position = {tensor: index for index, tensor in enumerate(sorted(used))}
    return DataflowGraph(
        graph.name,
        [operators[number] for number in kept],
        [graph.tensors[tensor] for tensor in sorted(used)],
        [[position[tensor] for tensor in reads[number]] for number in kept],
        [[position[tensor] for tensor in graph.writes[number]] for number in kept],
        graph.results,
        graph.batch,
    )


def _same(graph: DataflowGraph, one: int, other: int) -> bool:
    """Whether two tensors have the same elements in the same layout."""
    first, second = graph.tensors[one].spec, graph.tensors[other].spec
    return first is not None and first == second
