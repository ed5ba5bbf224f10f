"""Random series-parallel graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number


@dataclass(frozen=True)
class SeriesParallel:
    """Two-terminal series-parallel graphs, grown from one edge.

    Each further task is put on an edge u -> v, all equally likely: in series it splits the edge into
    u -> w -> v, in parallel it makes a second way u -> w -> v beside it. Undoing these steps in any
    order leads back to one edge (Valdes, Tarjan, Lawler, SIAM J. Comput. 11(2), 1982).

    Attributes:
        n: tasks, at least 2.
        parallel: probability of a parallel step.
    """

    n: int
    parallel: float

    def __post_init__(self) -> None:
        check_number("n", self.n, 2, MOST_TASKS)
        check_number("parallel", self.parallel, 0, 1)

    def draw(self, draws: Draws) -> Shape:
        """One such graph; tasks are numbered along an order that all edges follow."""
        edges = [(0, 1)]
        # Where each task stands: a new one directly behind the task that its edge comes from.
        after = {0: 1, 1: -1}
        for task in range(2, self.n):
            number = draws.below(len(edges))
            source, target = edges[number]
            if draws.uniform(1)[0] < self.parallel:
                edges.append((source, task))
            else:
                edges[number] = (source, task)
            edges.append((task, target))
            after[task], after[source] = after[source], task
        position, task = np.empty(self.n, dtype=np.int64), 0
        for place in range(self.n):
            position[task] = place
            task = after[task]
        pairs = position[np.array(edges)]
        return Shape.of(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], np.ones(self.n))
