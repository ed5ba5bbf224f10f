"""Graphs by the parameters of daggen, with which DONF was evaluated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number, check_size
from simulator.errors import InvalidInput

COMPLEXITIES = ("mixed", "n2", "nlogn", "n3")


@dataclass(frozen=True)
class Daggen:
    """Levels whose widths and edges follow from a few shares, as Suter and Hunold's daggen has them.

    The mean width of a level is n^fat, rounded down; each width is drawn within (1 - ``regular``) of
    it, and the last level takes what is left. A task of level i has 1 to 1 + ``density`` * (width of
    level i - 1) parents, at most that width; the level of each parent is drawn from the ``jump``
    levels above, and the parent in it; where it is one already, the next one in that level is taken,
    and none if all are.

    A task works on a matrix of d^2 elements: a * d^2, 2 * a * d^2 * log2(d) or d^3 operations with a
    from 64 to 512; each edge from it moves the matrix, 8 * d^2 bytes. Unlike daggen, which rounds d
    down to multiples of 1024 (0 for small ones) and reads ``--ccr`` as the number of a complexity,
    d is any whole number here and the ratio is met.

    Source: https://github.com/frs69wq/daggen; grid of Lin et al., JCST 34(5), 2019.

    Attributes:
        n: tasks.
        fat: 0 a chain, 1 all tasks in one level.
        density: 0 one parent each, 1 up to all of the level above.
        regular: 1 levels of one width, 0 of anything up to twice the mean.
        jump: how many levels an edge may go down.
        mindata, maxdata: range of d.
        complexity: ``n2``, ``nlogn``, ``n3``, or ``mixed``: each task one of these.
    """

    n: int
    fat: float
    density: float
    regular: float
    jump: int
    mindata: int
    maxdata: int
    complexity: str

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, MOST_TASKS)
        check_number("fat", self.fat, 0, 1, above=True)
        check_number("density", self.density, 0, 1)
        check_number("regular", self.regular, 0, 1)
        check_number("jump", self.jump, 1, MOST_TASKS)
        check_number("mindata", self.mindata, 2, 10**6)
        check_number("maxdata", self.maxdata, self.mindata, 10**6)
        if self.complexity not in COMPLEXITIES:
            raise InvalidInput(
                f"There is no family.complexity={self.complexity}; known: {', '.join(COMPLEXITIES)}"
            )
        check_size(self.n, self.n * (1 + self.density * self.mean_width / 2))

    @property
    def mean_width(self) -> int:
        """n^fat, rounded down; rounded to 9 digits first, so that 10000^0.5 is 100 everywhere."""
        return max(1, math.floor(round(math.pow(self.n, self.fat), 9)))

    def widths(self, draws: Draws) -> list[int]:
        """Tasks of each level."""
        widths: list[int] = []
        left = self.n
        while left:
            share = 1.0 + (1.0 - self.regular) * (2.0 * float(draws.uniform(1)[0]) - 1.0)
            widths.append(min(left, max(1, int(self.mean_width * share))))
            left -= widths[-1]
        return widths

    def draw(self, draws: Draws) -> Shape:
        """One such graph; tasks are numbered level by level."""
        widths = self.widths(draws)
        firsts = [0, *np.cumsum(widths).tolist()]
        edges: list[tuple[int, int]] = []
        for level in range(1, len(widths)):
            above = widths[level - 1]
            for task in range(firsts[level], firsts[level + 1]):
                wanted = min(above, 1 + int(self.density * above * float(draws.uniform(1)[0])))
                parents: set[int] = set()
                for _ in range(wanted):
                    other = max(0, level - 1 - draws.below(self.jump))
                    index = draws.below(widths[other])
                    for step in range(widths[other]):
                        parent = firsts[other] + (index + step) % widths[other]
                        if parent not in parents:
                            parents.add(parent)
                            break
                edges += [(parent, task) for parent in sorted(parents)]
        size = draws.integers(self.mindata, self.maxdata, self.n)
        factor = draws.between(64.0, 512.0, self.n)
        kind = np.full(self.n, COMPLEXITIES.index(self.complexity))
        if self.complexity == "mixed":
            kind = draws.integers(1, 3, self.n)
        elements = (size * size).astype(np.float64)
        # Rounded, as the last digit of a logarithm is not the same everywhere.
        logs = np.array([round(math.log2(d), 9) for d in size.tolist()])
        work = np.choose(
            kind - 1, [factor * elements, 2.0 * factor * elements * logs, elements * size]
        )
        pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
        return Shape.of(pairs, work, 8.0 * elements[pairs[:, 0]])
