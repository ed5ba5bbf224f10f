"""Operators in an order in which producers stand first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.csr import CSR


def topological_order(
    names: Sequence[str], reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]]
) -> list[int]:
    """Positions of operators so that producers stand first; ties keep their given order.

    Raises:
        InvalidInput: there is a cycle; it is named operator by operator.
    """
    producer = {tensor: position for position, ts in enumerate(writes) for tensor in ts}
    pairs = [(producer[t], p) for p, ts in enumerate(reads) for t in ts if t in producer]
    source, target = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    return sorted_topologically(names, source, target)


def sorted_topologically(names: Sequence[str], source: np.ndarray, target: np.ndarray) -> list[int]:
    """:func:`topological_order` of edges ``source[k] -> target[k]``."""
    if (source < target).all():
        return list(range(len(names)))
    children = CSR.group(source, target, len(names)).rows()
    pending = np.bincount(target, minlength=len(names)).tolist()
    queue = [position for position, count in enumerate(pending) if not count]
    order = []
    while queue:
        position = heapq.heappop(queue)
        order.append(position)
        for child in children[position]:
            pending[child] -= 1
            if not pending[child]:
                heapq.heappush(queue, child)
    if len(order) == len(names):
        return order
    # Every operator left has a parent that is left too: walking parents must run into a cycle.
    parents = CSR.group(target, source, len(names)).distinct().rows()
    left = {position for position, count in enumerate(pending) if count}
    path, seen = [min(left)], set()
    while path[-1] not in seen:
        seen.add(path[-1])
        path.append(next(parent for parent in parents[path[-1]] if parent in left))
    cycle = path[path.index(path[-1]) :][::-1]
    if len(cycle) > 10:
        shown = [*(names[i] for i in cycle[:5]), "...", *(names[i] for i in cycle[-4:])]
    else:
        shown = [names[position] for position in cycle]
    raise InvalidInput(f"The graph has a cycle: {' -> '.join(shown)}; remove one of these edges")
