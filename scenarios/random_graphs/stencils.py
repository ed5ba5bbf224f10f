"""Grids that are updated step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import MOST_TASKS, Shape, check_number, check_size


@dataclass(frozen=True)
class Stencil1D:
    """A row of cells; each step of a cell reads it and its two neighbours of the step before.

    Attributes:
        width: cells.
        steps: of time, at least 1; width * steps tasks.
    """

    width: int
    steps: int

    def __post_init__(self) -> None:
        check_number("width", self.width, 1, MOST_TASKS)
        check_number("steps", self.steps, 1, MOST_TASKS)
        check_size(self.width * self.steps, 3 * self.width * self.steps)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        return _stencil((self.width,), self.steps)


@dataclass(frozen=True)
class Stencil2D:
    """A square of cells; each step of a cell reads it and its four neighbours of the step before.

    Attributes:
        width: cells along a side.
        steps: of time, at least 1; width^2 * steps tasks.
    """

    width: int
    steps: int

    def __post_init__(self) -> None:
        check_number("width", self.width, 1, MOST_TASKS)
        check_number("steps", self.steps, 1, MOST_TASKS)
        check_size(self.width**2 * self.steps, 5 * self.width**2 * self.steps)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        return _stencil((self.width, self.width), self.steps)


def _stencil(sides: tuple[int, ...], steps: int) -> Shape:
    cells = np.arange(np.prod(sides)).reshape(sides)
    pairs = [np.stack([cells.ravel(), cells.ravel()])]
    for axis, length in enumerate(sides):
        upper = np.take(cells, range(1, length), axis).ravel()
        lower = np.take(cells, range(length - 1), axis).ravel()
        pairs += [np.stack([lower, upper]), np.stack([upper, lower])]
    once = np.concatenate(pairs, axis=1)
    once = once[:, np.lexsort((once[0], once[1]))]
    edges = [once + np.array([[step], [step + 1]]) * cells.size for step in range(steps - 1)]
    joined = np.concatenate(edges, axis=1) if edges else np.zeros((2, 0), dtype=np.int64)
    names = [
        f"s{step}c{','.join(map(str, cell))}"
        for step in range(steps)
        for cell in np.ndindex(*sides)
    ]
    return Shape.of(joined.T, np.ones(len(names)), names=names)
