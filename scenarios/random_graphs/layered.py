"""Random layered graphs, as most papers on list scheduling draw them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number, check_size


@dataclass(frozen=True)
class Layered:
    """Layers of tasks, edges from each layer to the next.

    As in Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002, section 5.2: the width of a layer is drawn
    with mean ``alpha`` * sqrt(n), so that there are some sqrt(n) / ``alpha`` layers. Each task but
    those of the first layer has 1 to 2 * ``degree`` - 1 parents (all of the layer above if it has
    fewer), each number and each choice equally likely.

    Attributes:
        n: tasks.
        alpha: above 1 the graph is wide, below it is long.
        degree: parents on average.
    """

    n: int
    alpha: float
    degree: int

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, MOST_TASKS)
        check_number("alpha", self.alpha, 0, 1000, above=True)
        check_number("degree", self.degree, 1, 1000)
        check_size(self.n, self.n * self.degree)

    def draw(self, draws: Draws) -> Shape:
        """One such graph; tasks are numbered layer by layer."""
        mean = max(1, round(self.alpha * math.sqrt(self.n)))
        edges: list[tuple[int, int]] = []
        above = range(0)
        while above.stop < self.n:
            width = 1 + draws.below(2 * mean - 1)
            layer = range(above.stop, min(self.n, above.stop + width))
            if above:
                for task in layer:
                    count = min(len(above), 1 + draws.below(2 * self.degree - 1))
                    parents = sorted(draws.distinct(count, len(above)))
                    edges += [(above.start + parent, task) for parent in parents]
            above = layer
        return Shape.of(edges, np.ones(self.n))
