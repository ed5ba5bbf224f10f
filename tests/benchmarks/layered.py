"""The graph of the speed claims: random layers, eight devices of different speeds, a fixed plan.

64 tasks a layer, each with 1 to 5 parents (3 on average) in the two layers before; run times are
log-normal work over the device's speed; a transfer between two devices takes 0.057 s on average
against 0.6 s for a task, so links are busy and not saturated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.cluster import Cluster, fully_connected
from simulator.costs import CostTable
from simulator.graph import DataflowGraph, from_edges

SPEEDS = (1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 3.0, 4.0)
BANDWIDTH = 1e6
"""Bytes per second of every link; there is one for every pair of devices."""


@dataclass
class Layered:
    """A graph and a plan for it.

    Attributes:
        work: float64[tasks], seconds at speed 1.
        edges: (from, to, bytes); each edge is a tensor of its own.
    """

    work: np.ndarray
    edges: list[tuple[int, int, float]]

    @cached_property
    def graph(self) -> DataflowGraph:
        """The graph for the engine."""
        return from_edges("layered", len(self.work), self.edges)

    @cached_property
    def cluster(self) -> Cluster:
        """One memory space for each device."""
        return fully_connected("eight", len(SPEEDS), BANDWIDTH)

    @cached_property
    def costs(self) -> CostTable:
        """Seconds on every device."""
        return CostTable.of(self.graph, self.work[:, None] / np.array(SPEEDS))

    @cached_property
    def plan(self) -> tuple[list[int], list[int]]:
        """Device of every task and the order in which they were planned: decreasing upward rank,
        earliest finish, behind what the device has already.
        """
        tasks = len(self.work)
        children: list[list[tuple[int, float]]] = [[] for _ in range(tasks)]
        parents: list[list[tuple[int, float]]] = [[] for _ in range(tasks)]
        for a, b, size in self.edges:
            children[a].append((b, size / BANDWIDTH))
            parents[b].append((a, size / BANDWIDTH))
        rank = (self.work * np.mean([1 / speed for speed in SPEEDS])).tolist()
        for task in range(tasks - 1, -1, -1):
            rank[task] += max((delay + rank[child] for child, delay in children[task]), default=0.0)
        order = sorted(range(tasks), key=lambda task: (-rank[task], task))
        free = [0.0] * len(SPEEDS)
        device, finish = [0] * tasks, [0.0] * tasks
        work = self.work.tolist()
        for task in order:
            best = (float("inf"), 0)
            for p, speed in enumerate(SPEEDS):
                start = free[p]
                for parent, delay in parents[task]:
                    arrival = finish[parent] + (delay if device[parent] != p else 0.0)
                    if arrival > start:
                        start = arrival
                best = min(best, (start + work[task] / speed, p))
            finish[task], device[task] = best
            free[device[task]] = finish[task]
        return device, order

    def dependencies(self) -> tuple[list[float], list[list[tuple[int, float]]], list[int]]:
        """The plan as bare lists: seconds of each task, what follows it as (task, delay), and how
        many things each waits for; the task before it on its device is one of them.
        """
        device, order = self.plan
        seconds = [w / SPEEDS[p] for w, p in zip(self.work.tolist(), device, strict=True)]
        after: list[list[tuple[int, float]]] = [[] for _ in seconds]
        needs = [0] * len(seconds)
        for a, b, size in self.edges:
            after[a].append((b, 0.0 if device[a] == device[b] else size / BANDWIDTH))
            needs[b] += 1
        last: dict[int, int] = {}
        for task in order:
            if device[task] in last:
                after[last[device[task]]].append((task, 0.0))
                needs[task] += 1
            last[device[task]] = task
        return seconds, after, needs


def layered(tasks: int, seed: int = 0, width: int = 64) -> Layered:
    """A graph of ``tasks`` tasks."""
    rng = np.random.default_rng(seed)
    work = rng.lognormal(0.0, 0.5, tasks)
    pairs = []
    for task in range(width, tasks):
        layer = task // width
        first, end = max(0, layer - 2) * width, layer * width
        count = min(int(rng.integers(1, 6)), end - first)
        chosen = rng.choice(end - first, size=count, replace=False) + first
        pairs += [(parent, task) for parent in chosen.tolist()]
    size = rng.lognormal(0.0, 0.5, len(pairs)) * 0.05 * BANDWIDTH
    edges = [(a, b, bytes_) for (a, b), bytes_ in zip(pairs, size.tolist(), strict=True)]
    return Layered(work, edges)
