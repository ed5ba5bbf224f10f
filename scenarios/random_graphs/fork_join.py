"""Fork-join graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number, check_size


@dataclass(frozen=True)
class ForkJoin:
    """``stages`` forks into ``width`` chains of ``length`` tasks; a join is the next stage's fork.

    Attributes:
        stages, width, length: at least 1 each; stages * width * length + stages + 1 tasks.
    """

    stages: int
    width: int
    length: int

    def __post_init__(self) -> None:
        for name in ("stages", "width", "length"):
            check_number(name, getattr(self, name), 1, MOST_TASKS)
        tasks = self.stages * (self.width * self.length + 1) + 1
        check_size(tasks, self.stages * self.width * (self.length + 1))

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        names, edges = ["fork0"], []
        for stage in range(self.stages):
            fork = len(names) - 1
            join = fork + self.width * self.length + 1
            for chain in range(self.width):
                before = fork
                for step in range(self.length):
                    task = len(names)
                    names.append(f"s{stage}c{chain}.{step}")
                    edges.append((before, task))
                    before = task
                edges.append((before, join))
            names.append(f"join{stage}")
        return Shape.of(edges, np.ones(len(names)), names=names)
