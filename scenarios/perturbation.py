"""Bare instances that are changed a little at a time: what a search over instances moves in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.errors import InvalidInput

LEAST_SECONDS = 0.01
"""Of a task, and of an edge that takes any time; relative to the longest of each."""


@dataclass(frozen=True)
class Instance:
    """A bare instance: times of tasks on devices, and of edges between devices.

    Attributes:
        cost: for each task its seconds on each device; ``inf`` where it cannot run.
        edges: seconds of each edge (from, to); ``from < to``.
    """

    name: str
    cost: tuple[tuple[float, ...], ...]
    edges: Mapping[tuple[int, int], float]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Instance:
        """From the document of :func:`scenarios.instances.instance_to_json`, whose tasks are in a
        topological order.
        """
        return cls(
            str(document["name"]),
            tuple(
                tuple(math.inf if value is None else float(value) for value in row)
                for row in document["cost"]
            ),
            {(a, b): float(seconds) for a, b, seconds in document["edges"]},
        )

    def to_json(self) -> dict[str, Any]:
        """A document for :func:`scenarios.instances.instance_from_json`."""
        return {
            "name": self.name,
            "cost": [[None if s == math.inf else s for s in row] for row in self.cost],
            "edges": [[a, b, seconds] for (a, b), seconds in sorted(self.edges.items())],
        }


@dataclass(frozen=True)
class Range:
    """What an instance may become.

    Attributes:
        longest_task, longest_edge: seconds; nothing gets shorter than :data:`LEAST_SECONDS` of them,
            but for edges of no time.
        graph: whether edges may come and go.
    """

    longest_task: float
    longest_edge: float
    graph: bool = True

    @classmethod
    def of(cls, instance: Instance, graph: bool = True) -> Range:
        """The range in which an instance lies: no time grows beyond its longest.

        Raises:
            InvalidInput: all its times are 0.
        """
        seconds = [s for row in instance.cost for s in row if s < math.inf]
        longest = max(seconds)
        if longest <= 0:
            raise InvalidInput(f"All tasks of '{instance.name}' take no time; nothing can differ")
        return cls(longest, max([*instance.edges.values(), longest]), graph)


def perturbed(instance: Instance, limits: Range, rng: np.random.Generator) -> Instance:
    """An instance that differs in one thing: the time of a task on a device, the speed of a device, the
    time of an edge, or an edge more or less. Times have four significant digits.

    Source of the moves: Coleman, Krishnamachari, "PISA: An Adversarial Approach To Comparing Task Graph
    Scheduling Algorithms", 2024, https://arxiv.org/abs/2403.07120; its networks are related machines,
    here every time is free.
    """
    tasks, devices = len(instance.cost), len(instance.cost[0])
    moves = ["task", "device"]
    if instance.edges:
        moves += ["edge", "edge"]
    if limits.graph and tasks > 1:
        moves += ["add", "remove"] if instance.edges else ["add"]
    move = moves[int(rng.integers(len(moves)))]
    cost, edges = [list(row) for row in instance.cost], dict(instance.edges)
    if move == "task":
        row, device = cost[int(rng.integers(tasks))], int(rng.integers(devices))
        if row[device] < math.inf:
            row[device] = _moved(row[device], limits.longest_task, rng)
    elif move == "device":
        device, factor = int(rng.integers(devices)), math.exp(rng.normal(0.0, 0.5))
        for row in cost:
            if row[device] < math.inf:
                row[device] = _within(row[device] * factor, limits.longest_task)
    elif move == "add":
        a, b = sorted(rng.choice(tasks, size=2, replace=False).tolist())
        edges.setdefault((a, b), _within(limits.longest_edge * rng.random(), limits.longest_edge))
    else:
        ends = sorted(edges)[int(rng.integers(len(edges)))]
        if move == "remove":
            del edges[ends]
        elif rng.random() < 0.1:
            edges[ends] = 0.0
        else:
            edges[ends] = _moved(edges[ends], limits.longest_edge, rng)
    return Instance(instance.name, tuple(map(tuple, cost)), edges)


def _moved(seconds: float, longest: float, rng: np.random.Generator) -> float:
    """A step of a tenth of the range, or to anywhere in it."""
    if rng.random() < 0.2:
        return _within(longest * rng.random(), longest)
    return _within(seconds + longest * rng.normal(0.0, 0.1), longest)


def _within(seconds: float, longest: float) -> float:
    least = LEAST_SECONDS * longest
    return float(f"{min(max(seconds, least), longest):.4g}")
