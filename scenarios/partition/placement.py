"""Placements of subgraphs: what one comes to, its critical path, and how it is corrected move by move."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from scenarios.partition.partitioner import Problem
from scenarios.partition.subgraphs import runs
from simulator.engine.run import simulate
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.model.segments import Segments
from simulator.model.workload import Workload
from simulator.schedulers import create

LEAST_GAIN = 1e-9
"""Share of the makespan by which a move must shorten it: less is rounding."""


class Placement:
    """Subgraphs of all jobs as tasks, which are placed whole.

    Args:
        problem: jobs, cluster, times.
        segments: the subgraphs of each graph of the jobs.

    Attributes:
        seconds: float64[tasks, devices], launches included; ``inf`` where a device cannot run one.
        source, target, bytes: of edges between tasks.
    """

    def __init__(self, problem: Problem, segments: Mapping[DataflowGraph, Segments]) -> None:
        self.problem = problem
        self.segments = [segments[job.graph] for job in problem.jobs]
        overhead = np.array([device.launch_overhead for device in problem.cluster.devices])
        costs = {s.graph: s.costs(problem.costs[s.fine], overhead) for s in segments.values()}
        jobs = [
            dataclasses.replace(job, graph=segment.graph)
            for job, segment in zip(problem.jobs, self.segments, strict=True)
        ]
        self.workload, self.costs = Workload(jobs), CostTable(costs)
        self._evaluator = problem.evaluator(self.workload, self.costs)
        self.first = np.cumsum([0, *(len(job.graph) for job in jobs)])
        self.seconds = np.concatenate([costs[job.graph].seconds for job in jobs]) + overhead
        self.arrival = np.repeat([job.arrival for job in jobs], np.diff(self.first))
        shifts = list(zip(jobs, self.first[:-1], strict=True))
        self.source = np.concatenate([job.graph.edge_source + shift for job, shift in shifts])
        self.target = np.concatenate([job.graph.edge_target + shift for job, shift in shifts])
        self.bytes = np.concatenate([job.graph.tensor_bytes[job.graph.edge_tensor] for job in jobs])
        # Runs of subgraphs, which moves may put elsewhere as a whole.
        self.run = np.concatenate([runs(job.graph) + shift for job, shift in shifts])
        self.able = [np.flatnonzero(np.isfinite(row)).tolist() for row in self.seconds]

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def fastest(self) -> np.ndarray:
        """int64[tasks]: each on its fastest device, of equal ones the first."""
        return self.seconds.argmin(axis=1)

    @cached_property
    def singles(self) -> dict[str, np.ndarray]:
        """Everything on one device, for each that can run everything."""
        devices = self.problem.cluster.devices
        return {devices[d].name: np.full(len(self), d) for d in self.problem.able()}

    @cached_property
    def _ways(self) -> tuple[np.ndarray, np.ndarray]:
        """Latency and seconds a byte from each device to each."""
        cluster = self.problem.cluster
        latency, inverse = np.zeros((2, len(cluster.devices), len(cluster.devices)))
        for a, one in enumerate(cluster.space_of):
            for b, other in enumerate(cluster.space_of):
                if one != other:
                    way = cluster.route(one, other)
                    latency[a, b], inverse[a, b] = way.latency, 1.0 / way.bandwidth
        return latency, inverse

    def bottom_levels(self, device: np.ndarray) -> np.ndarray:
        """float64[tasks]: seconds from each task's start to the end of the longest path behind it, transfers
        included.
        """
        latency, inverse = self._ways
        ends = device[self.source], device[self.target]
        ways = (latency[ends] + self.bytes * inverse[ends]).tolist()
        level = self.seconds[np.arange(len(self)), device].tolist()
        behind = [0.0] * len(level)
        # Edges stand by source, and tasks in topological order: all of a target's are seen before its sources'.
        task = len(level) - 1
        for source, target, way in zip(
            reversed(self.source.tolist()),
            reversed(self.target.tolist()),
            reversed(ways),
            strict=True,
        ):
            while task > source:
                level[task] += behind[task]
                task -= 1
            behind[source] = max(behind[source], way + level[target])
        for rest in range(task, -1, -1):
            level[rest] += behind[rest]
        return np.array(level)

    def order(self, device: np.ndarray) -> np.ndarray:
        """int64[tasks]: jobs by arrival, their tasks by decreasing bottom level."""
        return np.lexsort((-self.bottom_levels(device), self.arrival))

    def critical_path(self, device: np.ndarray) -> list[int]:
        """Tasks on a longest path of a placement, transfers included."""
        level = self.bottom_levels(device)
        latency, inverse = self._ways
        path = [int(level.argmax())]
        while True:
            after = np.flatnonzero(self.source == path[-1])
            if not len(after):
                return path
            targets = self.target[after]
            here, there = device[path[-1]], device[targets]
            ways = latency[here, there] + self.bytes[after] * inverse[here, there]
            path.append(int(targets[(level[targets] + ways).argmax()]))

    def evaluate(self, device: np.ndarray, order: np.ndarray | None = None) -> float:
        """Makespan, seconds, by the evaluator of fixed plans; in :meth:`order` unless another is given."""
        return self._evaluator.evaluate(device, self.order(device) if order is None else order)

    def neighbours(self, device: np.ndarray) -> Iterator[tuple[list[int], list[int]]]:
        """Moves: tasks and the devices that they are put on; those of the critical path first.

        One subgraph; both ends of an edge, to one device or exchanged; a whole run.
        """
        critical = self.critical_path(device)
        for task in dict.fromkeys((*critical, *range(len(self)))):
            for place in self.able[task]:
                if place != device[task]:
                    yield [task], [place]
        for pair in dict.fromkeys(zip(self.source.tolist(), self.target.tolist(), strict=True)):
            one, other = (int(device[task]) for task in pair)
            for place in range(self.seconds.shape[1]):
                if one != place != other and self._can(pair, place):
                    yield [*pair], [place, place]
            if one != other and other in self.able[pair[0]] and one in self.able[pair[1]]:
                yield [*pair], [other, one]
        members: dict[int, list[int]] = {}
        for task, run in enumerate(self.run.tolist()):
            members.setdefault(run, []).append(task)
        for row in members.values():
            if len(row) > 2:  # else it was a task or a pair
                for place in range(self.seconds.shape[1]):
                    if (device[row] != place).any() and self._can(row, place):
                        yield row, [place] * len(row)

    def listed(self) -> tuple[np.ndarray, np.ndarray]:
        """Devices and order of HEFT's plan of the subgraphs, by the engine."""
        problem = self.problem
        trace = simulate(
            self.workload,
            problem.cluster,
            self.costs,
            create("heft"),
            movement=problem.movement,
            contention=problem.contention,
        )
        plan = Plan.executed(trace, [job.graph for job in self.workload])
        return plan.device.copy(), plan.order

    def _can(self, tasks: list[int] | tuple[int, ...], place: int) -> bool:
        return bool(np.isfinite(self.seconds[list(tasks), place]).all())

    def corrected(
        self, device: np.ndarray, order: np.ndarray, rounds: int
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The best strict improvement among all moves, again and again; then the order is renewed if that helps.

        Args:
            device: int[tasks], where the search starts.
            order: int[tasks], in which devices take tasks up.
            rounds: moves at most.

        Returns:
            Makespan, devices and order, none worse than at the start.
        """
        device = device.copy()
        best = self.evaluate(device, order)
        for _ in range(rounds):
            renewed = self.order(device)
            if (makespan := self.evaluate(device, renewed)) < best:
                best, order = makespan, renewed
            least, found = best * (1.0 - LEAST_GAIN), None
            for tasks, places in self.neighbours(device):
                held = device[tasks]
                device[tasks] = places
                makespan = self.evaluate(device, order)
                device[tasks] = held
                if makespan < least:
                    least, found = makespan, (tasks, places)
            if found is None:
                break
            device[found[0]] = found[1]
            best = least
        return best, device, order

    def plan(
        self, origin: str, device: np.ndarray, order: np.ndarray, makespan: float, **notes: object
    ) -> Plan:
        """The plan of operators: every one on the device of its subgraph, subgraph by subgraph."""
        jobs = self.problem.jobs
        owner = np.concatenate(
            [s.owner + first for s, first in zip(self.segments, self.first[:-1], strict=True)]
        )
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        names = tuple(d.name for d in self.problem.cluster.devices)
        return Plan(
            origin,
            tuple(job.graph for job in jobs),
            names,
            device[owner],
            np.argsort(position[owner], kind="stable"),
            makespan,
            notes={"subgraphs": len(self), **notes},
        )
