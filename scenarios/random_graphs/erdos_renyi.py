"""Random graphs without any structure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import Shape, check_number, check_size


@dataclass(frozen=True)
class ErdosRenyi:
    """Each pair of tasks is joined with the same probability, from the smaller number to the greater.

    Erdos and Renyi's G(n, p) under an order of the tasks (Cordeiro et al., SIMUTools 2010); as the
    tasks are alike, an order drawn as well would change nothing. Tasks may have no edge at all.

    Attributes:
        n: tasks.
        p: probability of each edge.
    """

    n: int
    p: float

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, 20_000)
        check_number("p", self.p, 0, 1)
        check_size(self.n, self.p * self.n * (self.n - 1) / 2)

    def draw(self, draws: Draws) -> Shape:
        """One such graph."""
        targets = [
            task + 1 + np.flatnonzero(draws.uniform(self.n - task - 1) < self.p)
            for task in range(self.n)
        ]
        source = np.repeat(np.arange(self.n), [len(row) for row in targets])
        pairs = np.stack([source, np.concatenate(targets)], axis=1)
        return Shape.of(pairs, np.ones(self.n))
