"""Operator times: what a scheduler believes, and what happens.

A :class:`CostTable` is filled before a run; neither the engine nor a scheduler ever calls a predictor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.graph import DataflowGraph

MOST_SECONDS = 1e12
"""Longer times (32,000 years) are taken for errors; sums of shorter ones stay exact enough."""


_MOST_LISTED = 64
"""Devices of which plain lists, the fastest to read, hold the times."""


def rows_of(seconds: np.ndarray) -> list[Sequence[float]]:
    """One sequence of numbers for each row of a matrix: lists, or views where the rows are long."""
    width = seconds.shape[1]
    if width <= _MOST_LISTED:
        rows: list[Sequence[float]] = seconds.tolist()
        return rows
    flat = memoryview(seconds.astype(np.float64, order="C", copy=False).reshape(-1))  # type: ignore[arg-type]
    return [flat[begin : begin + width] for begin in range(0, len(flat), width)]


@dataclass(frozen=True)
class GraphCosts:
    """Times of one graph's operators.

    Attributes:
        seconds: float64[operators, devices]; ``inf`` where a device cannot run an operator.
        spread: float64[operators, devices] standard deviation of log seconds, or None.
        in_range: bool[operators, devices], False where the prediction extrapolates, or None.
        cached: float64[operators, devices], the part of ``seconds`` that is left when all weights
            lie in the cache (:mod:`simulator.devices.weight_cache`), above 0 and at most 1, or None.
    """

    seconds: np.ndarray
    spread: np.ndarray | None = None
    in_range: np.ndarray | None = None
    cached: np.ndarray | None = None

    @cached_property
    def lists(self) -> list[Sequence[float]]:
        """The rows of ``seconds``, shared by all runs."""
        return rows_of(self.seconds)


class Prices(Protocol):
    """Prices graphs that planners make: believed times, never what happens."""

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """Believed seconds of every operator of these graphs on every device of the planner's cluster."""
        ...


class CostTable(Mapping[DataflowGraph, GraphCosts]):
    """Times of every operator of every graph of a workload on every device of a cluster.

    Raises:
        InvalidInput: a shape that is not [operators, devices], a NaN, a time below zero or above
            :data:`MOST_SECONDS`, or an operator that no device can run.
    """

    def __init__(self, entries: Mapping[DataflowGraph, GraphCosts]) -> None:
        self._entries = dict(entries)
        for graph, costs in self._entries.items():
            _check(graph, costs.seconds)

    def __getitem__(self, graph: DataflowGraph) -> GraphCosts:
        try:
            return self._entries[graph]
        except KeyError:
            known = ", ".join(sorted({g.name for g in self._entries}))
            raise InvalidInput(
                f"The cost table has no times for graph '{graph.name}' (it has: {known})"
            ) from None

    def __contains__(self, graph: object) -> bool:
        return graph in self._entries

    def __iter__(self) -> Iterator[DataflowGraph]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @classmethod
    def of(cls, graph: DataflowGraph, seconds: np.ndarray) -> CostTable:
        """The table of one graph from a plain matrix of seconds [operators, devices]."""
        return cls({graph: GraphCosts(np.asarray(seconds, dtype=np.float64))})

    def scaled(self, factor: float | np.ndarray) -> CostTable:
        """The table of devices that take so many times as long, each (float64[devices]) or all alike."""
        if np.all(np.asarray(factor) == 1.0):
            return self
        return CostTable(
            {g: replace(entry, seconds=entry.seconds * factor) for g, entry in self.items()}
        )

    def check_covers(self, cluster: Cluster) -> None:
        """Refuse a table made for another number of devices.

        Raises:
            InvalidInput: names the graph and both numbers.
        """
        for graph, costs in self._entries.items():
            if costs.seconds.shape[1] != len(cluster.devices):
                raise InvalidInput(
                    f"Times of graph '{graph.name}' are for {costs.seconds.shape[1]} devices, cluster "
                    f"'{cluster.name}' has {len(cluster.devices)}"
                )


def _check(graph: DataflowGraph, seconds: np.ndarray) -> None:
    if seconds.ndim != 2 or seconds.shape[0] != len(graph):
        raise InvalidInput(
            f"Times of graph '{graph.name}' have shape {seconds.shape}, expected [{len(graph)}, devices]"
        )
    bad = np.argwhere(~((seconds >= 0) & ((seconds <= MOST_SECONDS) | (seconds == np.inf))))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInput(
            f"Time of operator '{graph.operators[row].name}' on device {column} is "
            f"{seconds[row, column]}; times are seconds >= 0 and at most {MOST_SECONDS:g}"
        )
    stuck = np.flatnonzero(~np.isfinite(seconds).any(axis=1))
    if len(stuck):
        operator = graph.operators[int(stuck[0])]
        raise InvalidInput(
            f"No device of the cluster can run operator '{operator.name}' (kind {operator.kind})"
        )
