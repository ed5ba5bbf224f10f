"""Graphs so small that all they touch stays in the cache from one execution to the next.

State ``graph`` holds weights to lie in memory. A recommendation model of a few megabytes finds them in the
last-level cache when it is executed again, and takes half or a third of that time.
"""

from __future__ import annotations

import numpy as np

from cost_models.profile import Profile
from simulator.devices.weight_cache import LOOKED_UP
from simulator.model.graph import DataflowGraph

SHARE = 0.5
"""Of the last-level cache, that one model may count on; the rest is other programs'."""


def touched_bytes(graph: DataflowGraph) -> float:
    """Bytes that one execution touches: weights and activations, of tables the rows that are read.

    Every activation counts as if its memory were not used twice.
    """
    total = 0.0
    for index, tensor in enumerate(graph.tensors):
        readers = graph.consumers[index]
        rows = 0.0
        for position in readers:
            operator = graph.operators[position]
            if operator.kind not in LOOKED_UP or graph.reads[position][0] != index:
                rows = tensor.bytes
                break
            rows += sum(spec.bytes for spec in operator.outputs)
        total += min(rows, tensor.bytes) if readers else tensor.bytes
    return total


def weight_shares(graph: DataflowGraph) -> np.ndarray:
    """float64[operators]: weights' part of the bytes that each operator touches, of tables none."""
    sizes = graph.tensor_bytes
    weights = set(graph.weights)
    shares = np.zeros(len(graph))
    for i, (operator, reads) in enumerate(zip(graph.operators, graph.reads, strict=True)):
        own = rest = 0.0
        for position, tensor in enumerate(reads):
            if tensor not in weights:
                rest += float(sizes[tensor])
            elif operator.kind not in LOOKED_UP or position:
                own += float(sizes[tensor])
        rest += float(sum(sizes[t] for t in graph.writes[i]))
        shares[i] = own / (own + rest) if own else 0.0
    return shares


def has_warm(profile: Profile) -> bool:
    """Whether a profile was also measured with everything in the cache."""
    return profile.cache != "warm" and "warm" in profile.provenance.get("states", ())


def cache_state(graph: DataflowGraph, profile: Profile) -> str | None:
    """``warm`` where all that a graph touches stays in a device's cache, and that state was measured;
    None: the state that the profile prices.
    """
    if profile.cache_bytes is None or not has_warm(profile):
        return None
    return "warm" if touched_bytes(graph) <= SHARE * profile.cache_bytes else None
