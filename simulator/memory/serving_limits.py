"""How many requests limited memory serves together, and how much of it their inputs may take.

Where requests are served in a memory space of ``C`` bytes whose devices have ``n`` slots in all:

- the weights of every model that can run there lie there, ``W`` bytes, once for all its batches;
- ``n`` executions may run at once. One of ``b`` items needs its inputs ``I(b)``, and ``A(b)`` at the peak
  of what it writes.

A batch fits if ``W + n (I(b) + A(b)) <= C``: its model's largest one fits into every slot at once. Inputs,
of requests that wait and of those in execution, take at most ``C - W - n max A`` of the largest batches, so that
what is served always finds its room; the others wait where they come from. Where that left less than one
request's inputs, the batches of the largest ``A`` are made smaller.

``A`` is that of the operators one after another in the order in which a device of one slot runs them; on
other devices, which may run several at once, it is the sum of all that they write.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.units import format_bytes
from simulator.model.workload import Workload


@dataclass(frozen=True)
class NodeRoom:
    """What one memory space allows.

    Attributes:
        inputs: bytes that the inputs of requests may take; ``inf`` where nothing is limited.
        fitting: the graphs that fit; None: every one.
    """

    inputs: float = math.inf
    fitting: frozenset[DataflowGraph] | None = None


@dataclass(frozen=True)
class _Need:
    """Of one execution of a graph."""

    inputs: int
    activations: int


def node_rooms(workload: Workload, cluster: Cluster, costs: CostTable) -> list[NodeRoom]:
    """What every memory space of a cluster allows the requests of a workload; weights are resident.

    Raises:
        InvalidInput: the models that can run in a space do not fit there together, one request each.
    """
    devices: list[list[int]] = [[] for _ in cluster.spaces]
    for device, space in enumerate(cluster.space_of):
        devices[space].append(device)
    return [
        _node_room(space, here, workload, cluster, costs)
        if here and cluster.spaces[space].capacity < math.inf
        else NodeRoom()
        for space, here in enumerate(devices)
    ]


def within_nodes(
    workload: Workload, cluster: Cluster, costs: CostTable
) -> tuple[Workload, CostTable]:
    """The workload without the batches and variants that fit nowhere, and costs in which no device can
    run what does not fit beside it.

    Raises:
        InvalidInput: a request fits nowhere alone; or see :func:`node_rooms`.
    """
    rooms = node_rooms(workload, cluster, costs)
    if all(room.fitting is None for room in rooms):
        return workload, costs
    fitting: dict[DataflowGraph, GraphCosts] = dict(costs)
    own = set(workload.asked)
    nowhere = set()
    for graph in workload.graphs:
        believed = costs[graph]
        seconds = believed.seconds.copy()
        for device, space in enumerate(cluster.space_of):
            allowed = rooms[space].fitting
            if allowed is not None and graph not in allowed:
                seconds[:, device] = math.inf
        if np.isfinite(seconds).any(axis=1).all():
            fitting[graph] = replace(believed, seconds=seconds)
            continue
        if graph in own:
            raise _too_large(graph, cluster)
        nowhere.add(graph)
        del fitting[graph]
    left = copy.copy(workload)
    left.batches = {
        graph: {size: g for size, g in prepared.items() if g not in nowhere}
        for graph, prepared in workload.batches.items()
        if graph not in nowhere
    }
    left.variants = {
        graph: [g for g in others if g not in nowhere]
        for graph, others in workload.variants.items()
    }
    return left, CostTable(fitting)


def without_batches(workload: Workload) -> Workload:
    """The jobs alone: what no scheduler of this run makes use of need not fit anywhere."""
    if not workload.batches and not workload.variants:
        return workload
    alone = copy.copy(workload)
    alone.batches, alone.variants = {}, {}
    return alone


def activation_bytes(graph: DataflowGraph, serial: bool) -> int:
    """The most bytes that operators of a graph have written and somebody still wants, results and what
    they keep for themselves included.

    Args:
        graph: the graph.
        serial: its operators run one after another, in the order in which they become ready; otherwise
            all that they write counts.
    """
    size = _shared_bytes(graph)
    inner = [math.ceil(own) for own in graph.inner_bytes] or [0] * len(graph)
    if not serial:
        return sum(size[t] for row in graph.writes for t in row) + sum(inner)
    waits = [len(row) for row in graph.predecessors]
    readers = [len(row) for row in graph.consumers]
    kept = set(graph.outputs) | set(graph.inputs) | set(graph.weights)
    line = deque(operator for operator, count in enumerate(waits) if not count)
    used = most = 0
    while line:
        operator = line.popleft()
        used += sum(size[t] for t in graph.writes[operator])
        most = max(most, used + inner[operator])
        for t in graph.reads[operator]:
            readers[t] -= 1
            if not readers[t] and t not in kept:
                used -= size[t]
        used -= sum(size[t] for t in graph.writes[operator] if not readers[t] and t not in kept)
        for successor in graph.successors[operator]:
            waits[successor] -= 1
            if not waits[successor]:
                line.append(successor)
    return most


def _node_room(
    space: int, devices: Sequence[int], workload: Workload, cluster: Cluster, costs: CostTable
) -> NodeRoom:
    capacity = math.floor(cluster.spaces[space].capacity)
    kinds = [cluster.devices[device] for device in devices]
    slots = sum(device.slots for device in kinds)
    serial = all(device.slots == 1 and not device.completion_latency for device in kinds)
    families = [
        [
            graph
            for graph in family
            if np.isfinite(costs[graph].seconds[:, devices]).any(axis=1).all()
        ]
        for family in _families(workload)
    ]
    need = {
        graph: _Need(_input_bytes(graph), activation_bytes(graph, serial))
        for family in families
        for graph in family
    }

    def beside(graph: DataflowGraph, weights: int) -> bool:
        return weights + slots * (need[graph].inputs + need[graph].activations) <= capacity

    # What does not even fit alone is not served here, and brings no weights.
    families = [
        family for family in families if family and beside(family[0], _weight_bytes(family))
    ]
    weights = _weight_bytes(graph for family in families for graph in family)
    for family in families:
        if not beside(family[0], weights):
            one = family[0]
            raise InvalidInput(
                f"Memory space '{cluster.spaces[space].name}' has {format_bytes(capacity)}: the weights "
                f"of the {len(families)} models that its devices can run take {format_bytes(weights)}, "
                f"and an execution of '{one.name}', of {slots} at once, {format_bytes(need[one].inputs)} of "
                f"inputs and {format_bytes(need[one].activations)} that it writes. Give it a larger capacity, "
                "or serve fewer models"
            )
    families = [[graph for graph in family if beside(graph, weights)] for family in families]
    if not families:
        return NodeRoom(0.0, frozenset())
    own = set(workload.asked)
    # Of each model the largest request, which must stay possible.
    kept = [max((i for i, g in enumerate(f) if g in own), default=0) for f in families]
    least = max(need[family[i]].inputs for family, i in zip(families, kept, strict=True))
    while True:
        largest = [family[-1] for family in families]
        peak = max(need[graph].activations for graph in largest)
        inputs = capacity - weights - slots * peak
        if inputs >= least:
            break
        greedy = [
            family
            for family, i in zip(families, kept, strict=True)
            if need[family[-1]].activations == peak and len(family) > i + 1
        ]
        if not greedy:
            first = next(graph for graph in largest if need[graph].activations == peak)
            raise InvalidInput(
                f"Memory space '{cluster.spaces[space].name}' has {format_bytes(capacity)}: beside "
                f"{format_bytes(weights)} of weights and executions of '{first.name}', {slots} at once, which "
                f"write {format_bytes(peak)} each, there is no room for a request's inputs of "
                f"{format_bytes(least)}. Give it a larger capacity"
            )
        for family in greedy:
            family.pop()
    return NodeRoom(float(inputs), frozenset(graph for family in families for graph in family))


def _families(workload: Workload) -> list[list[DataflowGraph]]:
    """The graphs of each model, the smallest batch first; a variant is a model of its own."""
    found: dict[DataflowGraph, list[DataflowGraph]] = {}
    for graph in workload.asked:
        prepared: Mapping[int, DataflowGraph] = workload.batches.get(graph) or {}
        smallest = prepared.get(min(prepared, default=0), graph)
        family = found.setdefault(smallest, [])
        family += [g for _, g in sorted(prepared.items())] or [graph]
        for variant in workload.variants.get(graph, ()):
            found.setdefault(variant, [variant])
    return [list(dict.fromkeys(family)) for family in found.values()]


def _shared_bytes(graph: DataflowGraph) -> list[int]:
    """Whole bytes of a graph's tensors; of what each request brings or gets, for each item."""
    items = graph.batch or 1
    own = set(graph.inputs) | set(graph.outputs)
    return [
        items * math.ceil(size / items) if tensor in own else math.ceil(size)
        for tensor, size in enumerate(graph.tensor_bytes.tolist())
    ]


def _input_bytes(graph: DataflowGraph) -> int:
    size = _shared_bytes(graph)
    return sum(size[t] for t in graph.inputs if graph.consumers[t])


def _weight_bytes(graphs: Iterable[DataflowGraph]) -> int:
    """Of all graphs, what they share once."""
    found = {
        (graph.name, graph.tensors[t].name, math.ceil(graph.tensors[t].bytes))
        for graph in graphs
        for t in graph.weights
        if graph.consumers[t]
    }
    return sum(size for _, _, size in found)


def _too_large(graph: DataflowGraph, cluster: Cluster) -> InvalidInput:
    largest = max(
        (cluster.spaces[space] for space in {*cluster.space_of}), key=lambda space: space.capacity
    )
    return InvalidInput(
        f"A request of '{graph.name}' fits into no memory: its weights take "
        f"{format_bytes(_weight_bytes([graph]))} beside those of the other models, its inputs "
        f"{format_bytes(_input_bytes(graph))} and what it writes "
        f"{format_bytes(activation_bytes(graph, True))}, at once for every slot of the devices there; the "
        f"largest memory, '{largest.name}', has {format_bytes(largest.capacity)}. Give it a larger capacity"
    )
