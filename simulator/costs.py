"""Operator times: what a scheduler believes, and what happens.

A :class:`CostTable` is filled before a run; neither the engine nor a scheduler ever calls a predictor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulator.cluster import Cluster
from simulator.errors import InvalidInput
from simulator.graph import DataflowGraph


@dataclass(frozen=True)
class GraphCosts:
    """Times of one graph's operators.

    Attributes:
        seconds: float64[operators, devices]; ``inf`` where a device cannot run an operator.
        spread: float64[operators, devices] standard deviation of log seconds, or None.
        in_range: bool[operators, devices], False where the prediction extrapolates, or None.
    """

    seconds: np.ndarray
    spread: np.ndarray | None = None
    in_range: np.ndarray | None = None


class CostTable(Mapping[DataflowGraph, GraphCosts]):
    """Times of every operator of every graph of a workload on every device of a cluster.

    Raises:
        InvalidInput: a shape that is not [operators, devices], a NaN, a time below zero, or an
            operator that no device can run.
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

    def __iter__(self) -> Iterator[DataflowGraph]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @classmethod
    def of(cls, graph: DataflowGraph, seconds: np.ndarray) -> CostTable:
        """The table of one graph from a plain matrix of seconds [operators, devices]."""
        return cls({graph: GraphCosts(np.asarray(seconds, dtype=np.float64))})

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
    bad = np.argwhere(np.isnan(seconds) | (seconds < 0))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInput(
            f"Time of operator '{graph.operators[row].name}' on device {column} is "
            f"{seconds[row, column]}; times are seconds >= 0"
        )
    stuck = np.flatnonzero(~np.isfinite(seconds).any(axis=1))
    if len(stuck):
        operator = graph.operators[int(stuck[0])]
        raise InvalidInput(
            f"No device of the cluster can run operator '{operator.name}' (kind {operator.kind})"
        )


class NoiseModel(Protocol):
    """Turns believed times into those that happen."""

    def realise(
        self, graph: DataflowGraph, costs: GraphCosts, rng: np.random.Generator
    ) -> np.ndarray:
        """Actual seconds [operators, devices] of one job; called once a job, in order of arrival."""
        ...


@dataclass(frozen=True)
class LogNormalNoise:
    """Independent log-normal noise of median 1: ``seconds * exp(sigma * N(0, 1))``.

    ``sigma=None`` takes each operator's own measured spread.
    """

    sigma: float | None = None

    def __post_init__(self) -> None:
        if self.sigma is not None and not 0 <= self.sigma < np.inf:
            raise InvalidInput(f"Noise needs a sigma >= 0, got {self.sigma}")

    def realise(
        self, graph: DataflowGraph, costs: GraphCosts, rng: np.random.Generator
    ) -> np.ndarray:
        """See :class:`NoiseModel`."""
        sigma = costs.spread if self.sigma is None else np.float64(self.sigma)
        if sigma is None:
            raise InvalidInput(
                f"Noise from measured spread asked for, but the times of graph '{graph.name}' have "
                "none; give a sigma"
            )
        return costs.seconds * np.exp(sigma * rng.standard_normal(costs.seconds.shape))
