"""The graph of the speed claims: random layers, eight devices of different speeds, a fixed plan.

64 tasks a layer, each with 1 to 5 parents (3 on average) in the two layers before; run times are
log-normal work over the device's speed; a transfer between two devices takes 0.057 s on average
against 0.6 s for a task, so links are busy and not saturated. The plan is list scheduling by upward
rank and earliest finish, behind what a device has already.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from simulator.model.cluster import Cluster, Device, Link, MemorySpace, fully_connected
from simulator.model.costs import CostTable
from simulator.model.csr import CSR
from simulator.model.graph import DataflowGraph, from_arrays

SPEEDS = (1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 3.0, 4.0)
BANDWIDTH = 1e6
"""Bytes per second of every link."""


@dataclass(frozen=True)
class Dependencies:
    """A plan as bare arrays, which the reference loops execute.

    Attributes:
        seconds: float64[tasks], run time of each on its device.
        after: for each task what follows it; the next task of its device is among that.
        delay: float64[entries of after], transfer seconds; 0 for none.
        needs: int32[tasks], how many things each waits for.
    """

    seconds: np.ndarray
    after: CSR
    delay: np.ndarray
    needs: np.ndarray

    def lists(self) -> tuple[list[float], list[list[tuple[int, float]]], list[int]]:
        """The same for loops in Python: seconds, (task, delay) of each task, needs."""
        to, delay = self.after.values.tolist(), self.delay.tolist()
        pairs = list(zip(to, delay, strict=True))
        bounds = self.after.offsets.tolist()
        after = [pairs[a:b] for a, b in itertools.pairwise(bounds)]
        return self.seconds.tolist(), after, self.needs.tolist()


@dataclass
class Layered:
    """A graph and a plan for it.

    Attributes:
        work: float64[tasks], seconds at speed 1.
        source, target: int32[edges]; each edge is a tensor of its own.
        size: float64[edges], bytes.
    """

    work: np.ndarray
    source: np.ndarray
    target: np.ndarray
    size: np.ndarray

    @property
    def edges(self) -> list[tuple[int, int, float]]:
        """(from, to, bytes)."""
        columns = (self.source, self.target, self.size)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def graph(self) -> DataflowGraph:
        """The graph for the engine."""
        return from_arrays("layered", len(self.work), self.source, self.target, self.size)

    @cached_property
    def cluster(self) -> Cluster:
        """One memory space for each device, a link for every pair."""
        return fully_connected("eight", len(SPEEDS), BANDWIDTH)

    @cached_property
    def star(self) -> Cluster:
        """One memory space for each device, joined by an up and a down link to one without."""
        devices = range(len(SPEEDS))
        return Cluster(
            "star",
            [MemorySpace("hub"), *(MemorySpace(f"m{i}") for i in devices)],
            [Device(f"P{i + 1}", f"m{i}") for i in devices],
            [Link(f"l{i}", ("hub", f"m{i}"), BANDWIDTH) for i in devices],
        )

    @cached_property
    def costs(self) -> CostTable:
        """Seconds on every device."""
        return CostTable.of(self.graph, self.work[:, None] / np.array(SPEEDS))

    @cached_property
    def plan(self) -> tuple[np.ndarray, np.ndarray]:
        """int32[tasks] device of every task; int64[tasks], the order in which they were planned."""
        from tests.benchmarks.list_schedule import earliest_finish, upward_rank

        mean_inverse = 0.0
        for speed in SPEEDS:
            mean_inverse += 1.0 / speed / len(SPEEDS)
        remote = (len(SPEEDS) - 1) / len(SPEEDS)  # share of pairs on different devices
        delay = self.size / BANDWIDTH
        by_target = CSR.group(self.target, np.arange(len(self.size)), len(self.work))
        parents = (by_target.offsets, by_target.values)
        rank = upward_rank(self.work * mean_inverse, *parents, self.source, delay * remote)
        order = np.argsort(-rank, kind="stable")
        device = earliest_finish(self.work, *parents, self.source, delay, np.array(SPEEDS), order)
        return device, order

    def dependencies(self) -> Dependencies:
        """The plan as bare arrays."""
        device, order = self.plan
        seconds = self.work / np.array(SPEEDS)[device]
        delay = np.where(device[self.source] == device[self.target], 0.0, self.size / BANDWIDTH)
        # Behind each task the next one of its device.
        queues = [order[device[order] == p] for p in range(len(SPEEDS))]
        before = np.concatenate([queue[:-1] for queue in queues])
        behind = np.concatenate([queue[1:] for queue in queues])
        source = np.concatenate([self.source, before])
        target = np.concatenate([self.target, behind])
        delay = np.concatenate([delay, np.zeros(len(before))])
        entries = np.argsort(source, kind="stable")
        tasks = len(self.work)
        after = CSR.group(source[entries], target[entries], tasks)
        needs = np.bincount(target, minlength=tasks).astype(np.int32)
        return Dependencies(seconds, after, delay[entries], needs)

    def save(self, path: Path) -> None:
        """Write graph and plan, so that other processes need not make them."""
        device, order = self.plan
        np.savez(
            path,
            work=self.work,
            source=self.source,
            target=self.target,
            size=self.size,
            device=device,
            order=order,
        )

    @classmethod
    def load(cls, path: Path) -> Layered:
        """Read what :meth:`save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            case = cls(file["work"], file["source"], file["target"], file["size"])
            case.plan = (file["device"], file["order"])  # kept where the property would keep it
        return case


def layered(tasks: int, seed: int = 0, width: int = 64) -> Layered:
    """A graph of ``tasks`` tasks; of some 15 s for a million."""
    rng = np.random.default_rng(seed)
    parents = []
    counts = np.zeros(tasks, dtype=np.int64)
    for task in range(width, tasks):
        layer = task // width
        first, end = max(0, layer - 2) * width, layer * width
        count = min(int(rng.integers(1, 6)), end - first)
        parents.append(rng.choice(end - first, size=count, replace=False) + first)
        counts[task] = count
    source = np.concatenate(parents) if parents else np.zeros(0)
    work = rng.lognormal(0.0, 0.5, tasks)
    size = rng.lognormal(0.0, 0.5, len(source)) * 0.05 * BANDWIDTH
    target = np.repeat(np.arange(tasks, dtype=np.int32), counts)
    return Layered(work, source.astype(np.int32), target, size)
