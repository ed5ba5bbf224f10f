"""Complete trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scenarios.random_graphs.draws import Draws
from scenarios.random_graphs.shape import Shape, check_number, check_size


@dataclass(frozen=True)
class OutTree:
    """A tree whose root starts everything: each task but a leaf has ``arity`` children.

    Attributes:
        levels: at least 1; (arity^levels - 1) / (arity - 1) tasks.
        arity: at least 2.
    """

    levels: int
    arity: int

    def __post_init__(self) -> None:
        _check(self.levels, self.arity)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        tasks = _tasks(self.levels, self.arity)
        children = np.arange(1, tasks)
        parents = (children - 1) // self.arity
        return Shape.of(np.stack([parents, children], axis=1), np.ones(tasks))


@dataclass(frozen=True)
class InTree:
    """A reduction: :class:`OutTree` with every edge turned round.

    Attributes:
        levels: at least 1.
        arity: at least 2.
    """

    levels: int
    arity: int

    def __post_init__(self) -> None:
        _check(self.levels, self.arity)

    def draw(self, draws: Draws) -> Shape:
        """The graph; nothing of it is random."""
        tasks = _tasks(self.levels, self.arity)
        sources = np.arange(tasks - 1)
        targets = tasks - 1 - (tasks - 2 - sources) // self.arity
        return Shape.of(np.stack([sources, targets], axis=1), np.ones(tasks))


def _check(levels: int, arity: int) -> None:
    check_number("levels", levels, 1, 64)
    check_number("arity", arity, 2, 1000)
    tasks = _tasks(levels, arity)
    check_size(tasks, tasks)


def _tasks(levels: int, arity: int) -> int:
    tasks: int = (arity**levels - 1) // (arity - 1)
    return tasks
