"""The form of a task graph, before any device says how long its tasks take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from scenarios.random_graphs.draws import Draws
from simulator.errors import InvalidInput

MOST_TASKS, MOST_EDGES = 1_000_000, 20_000_000
"""Of one graph; more are taken for an error."""


@dataclass(frozen=True)
class Shape:
    """Tasks and edges with their relative weights.

    Attributes:
        tasks: how many there are. Families number them so that every edge goes from a smaller number to
            a greater one; files may not.
        source, target: int64[edges].
        work: float64[tasks], operations of each task, in any unit.
        data: float64[edges], what each edge moves, in any unit.
        names: of the tasks; None for ``t0``, ``t1``, ...
        notes: for people: what a file did not say, and what was taken instead.
        machines: int64[tasks], the kind of device that each task is for; None: any.
        kinds: names of those kinds of devices.
    """

    tasks: int
    source: np.ndarray
    target: np.ndarray
    work: np.ndarray
    data: np.ndarray
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    machines: np.ndarray | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        edges: Sequence[tuple[int, int]] | np.ndarray,
        work: Sequence[float] | np.ndarray,
        data: Sequence[float] | np.ndarray | None = None,
        names: Sequence[str] | None = None,
        notes: Sequence[str] = (),
    ) -> Shape:
        """A shape of its edges as pairs, the same data on each unless given."""
        pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        return cls(
            len(work),
            pairs[:, 0],
            pairs[:, 1],
            np.asarray(work, dtype=np.float64),
            np.ones(len(pairs)) if data is None else np.asarray(data, dtype=np.float64),
            None if names is None else tuple(names),
            tuple(notes),
        )


class Family(Protocol):
    """Parameters of a kind of graph, checked when they are given."""

    def draw(self, draws: Draws) -> Shape:
        """A graph of the family."""
        ...


def check_number(name: str, value: float, low: float, high: float, above: bool = False) -> None:
    """Refuse a parameter outside of [low, high], or of (low, high] if ``above``.

    Raises:
        InvalidInput: names the parameter, the value and the range.
    """
    inside = low < value <= high if above else low <= value <= high
    if not (math.isfinite(value) and inside):
        least = f"above {low:,.10g}" if above else f"at least {low:,.10g}"
        most = "" if high == math.inf else f" and at most {high:,.10g}"
        raise InvalidInput(f"family.{name}={value} must be {least}{most}")


def check_size(tasks: float, edges: float) -> None:
    """Refuse a graph that would be too large.

    Args:
        tasks: how many there will be.
        edges: how many there will be, or are to be expected.

    Raises:
        InvalidInput: says how many and what is allowed.
    """
    for count, most, what in ((tasks, MOST_TASKS, "tasks"), (edges, MOST_EDGES, "edges")):
        if count > most:
            raise InvalidInput(
                f"The graph would have some {count:.3g} {what}; at most {most:,} are drawn"
            )
