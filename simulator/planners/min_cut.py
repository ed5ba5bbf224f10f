"""The best cut of one job between a device and a server, as a minimum cut of its graph.

C. Hu, W. Bao, D. Wang and F. Liu, *Dynamic adaptive DNN surgery for inference acceleration on the edge* (DADS),
INFOCOM 2019: an edge from the source to an operator weighs its time on the server, one to the sink its time on
the device, a dependency what its tensor takes to cross; nothing that a server made is read by the device. A tensor
with several readers is behind a node of its own and so crosses once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.model.graph import DataflowGraph

DEVICE, SERVER = -1, -2


class Cut(NamedTuple):
    """A cut.

    Attributes:
        seconds: of the operators on either side and of the tensors that cross, summed.
        local: bool[operators], those on the device: with an operator all that it depends on.
    """

    seconds: float
    local: np.ndarray


def min_cut(
    graph: DataflowGraph,
    local: ArrayLike,
    remote: ArrayLike,
    upload: ArrayLike,
    inside: range | None = None,
) -> Cut:
    """The cut of least serial time.

    Args:
        graph: of the job.
        local: float[operators], seconds on the device; ``inf`` where it cannot run one.
        remote: float[operators], seconds on the server.
        upload: float[tensors], seconds that each takes to cross; inputs begin at the device.
        inside: the operators to be divided; those before them are local, those behind them remote. All unless
            given.

    Raises:
        networkx.NetworkXUnbounded: some operator can run on neither side.
    """
    import networkx as nx

    here, there, across = (
        np.asarray(column, dtype=np.float64).tolist() for column in (local, remote, upload)
    )
    block = range(len(graph)) if inside is None else inside

    def side(operator: int) -> int:
        return operator if operator in block else DEVICE if operator < block.start else SERVER

    network = nx.DiGraph()
    network.add_nodes_from((DEVICE, SERVER))
    for operator in block:
        _connect(network, DEVICE, operator, there[operator])
        _connect(network, operator, SERVER, here[operator])
    weights = frozenset(graph.weights)
    for tensor, readers in enumerate(graph.consumers):
        producer = side(graph.producer[tensor])
        ends = {side(reader) for reader in readers}
        if tensor in weights or producer == SERVER or ends <= {DEVICE}:
            continue
        between = ("tensor", tensor)
        _connect(network, producer, between, across[tensor])
        for reader in ends:
            network.add_edge(between, reader)  # without a capacity: infinite
            if reader >= 0 and producer >= 0:
                network.add_edge(reader, producer)
    seconds, (kept, _) = nx.minimum_cut(
        network, DEVICE, SERVER, flow_func=nx.algorithms.flow.boykov_kolmogorov
    )
    chosen = np.zeros(len(graph), dtype=bool)
    chosen[: block.start] = True
    chosen[[operator for operator in block if operator in kept]] = True
    outside = sum(here[: block.start]) + sum(there[block.stop :])
    return Cut(float(seconds) + outside, chosen)


def _connect(network: object, tail: object, head: object, capacity: float) -> None:
    """Add an edge; one of infinite capacity has none in networkx."""
    finite = {"capacity": capacity} if np.isfinite(capacity) else {}
    network.add_edge(tail, head, **finite)  # type: ignore[attr-defined]


def articulation_points(graph: DataflowGraph) -> list[int]:
    """Operators that all data passes: every other one is before or behind it, and no tensor goes round it; ascending.

    A cut that has one of them on the device has all before it there, so that cuts may be sought between two
    neighbours alone. Operators that read weights alone are passed over: they can run anywhere.
    """
    count = len(graph)
    over = np.zeros(count + 2, dtype=np.int64)  # by how many edges an operator is passed
    fed = [bool(row) for row in graph.activations_read]
    for operator, row in enumerate(graph.activations_read):
        for tensor in row:
            over[graph.producer[tensor] + 1] += 1
            over[operator] -= 1
    for operator in range(count):
        if fed[operator] and not graph.successors[operator]:
            over[operator + 1] += 1
            over[count] -= 1
    passed = np.cumsum(over)[:count]
    return [operator for operator in range(count) if fed[operator] and passed[operator] == 0]


__all__ = ["Cut", "articulation_points", "min_cut"]
