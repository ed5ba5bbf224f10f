"""What a partitioner is, and how its plan is held against each device alone.

A partitioner gets jobs that are all known, a cluster and believed times, and returns a :class:`Plan`: for each job
its graph, perhaps transformed, and a device and a place in the order for every task. Its result is never worse, by
the engine on the full cluster, than everything on the best device: :func:`partition` takes the better one.
"""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from simulator.engine.evaluator import CONTENTIONS, Evaluator, evaluable
from simulator.engine.run import simulate
from simulator.errors import HetsimError, InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts, Prices
from simulator.model.graph import DataflowGraph
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.model.units import format_bytes
from simulator.model.workload import Job, Workload
from simulator.schedulers.planned import Planned


@dataclass(frozen=True)
class Problem:
    """What is to be partitioned.

    Attributes:
        workload: jobs that are all known.
        cluster: devices, memory spaces and links.
        costs: believed times of the jobs' graphs.
        prices: of graphs that a planner makes; None where times are given with the graph.
        movement, contention, memory, weights: of the run (:func:`simulator.simulate`).
        at_batch: gives the jobs' graph at another batch; None where it is there at one alone.
    """

    workload: Workload
    cluster: Cluster
    costs: CostTable
    prices: Prices | None = None
    movement: str = "push"
    contention: str = "fifo"
    memory: str = "unlimited"
    weights: str = "resident"
    at_batch: Callable[[int], DataflowGraph] | None = None
    _priced: dict[DataflowGraph, GraphCosts] = field(default_factory=dict, repr=False)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs, in order of arrival."""
        return tuple(self.workload)

    @property
    def graphs(self) -> tuple[DataflowGraph, ...]:
        """The distinct graphs of the jobs."""
        return self.workload.asked

    @property
    def graph(self) -> DataflowGraph:
        """The graph of all jobs.

        Raises:
            InvalidInput: there are several.
        """
        if len(self.graphs) > 1:
            raise InvalidInput(
                f"This partition takes jobs of one graph; the workload has {len(self.graphs)}: "
                f"{', '.join(graph.name for graph in self.graphs)}"
            )
        return self.graphs[0]

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """Believed times of graphs, those of the jobs among them; each is priced once.

        Raises:
            InvalidInput: times were given with the graph, so that nobody can price another.
        """
        unknown = [
            g for g in dict.fromkeys(graphs) if g not in self.costs and g not in self._priced
        ]
        if unknown:
            if self.prices is None:
                raise InvalidInput(
                    f"The times of '{self.graphs[0].name}' are given with it, so no part of an operator can be "
                    "priced; take a model on devices with profiles"
                )
            self._priced.update(self.prices.price(unknown))
        known = {g: self.costs[g] if g in self.costs else self._priced[g] for g in graphs}
        return CostTable(known)

    def know(self, graph: DataflowGraph, costs: GraphCosts) -> None:
        """Note the believed times of a graph, which need not be priced then."""
        self._priced[graph] = costs

    def evaluator(
        self, jobs: Workload | Job | None = None, costs: CostTable | None = None
    ) -> Evaluator:
        """What evaluates plans quickly, devices at their own rates; under ``fair`` links as under ``none``.

        Args:
            jobs: the workload's unless given.
            costs: of their graphs; the problem's unless given.
        """
        # Jobs that are all there at once are what plans are for; the evaluator takes any.
        contention = self.contention if self.contention in CONTENTIONS else "none"
        overhead = np.array([device.launch_overhead for device in self.cluster.devices])
        table = self.costs if costs is None else costs
        seconds = CostTable({g: GraphCosts(c.seconds + overhead) for g, c in table.items()})
        return Evaluator(
            self.workload if jobs is None else jobs,
            evaluable(self.cluster),
            seconds,
            movement=self.movement,
            contention=contention,
        )

    def makespan(self, plan: Plan) -> float:
        """Seconds of a plan by the engine, on the full cluster.

        Raises:
            HetsimError: it cannot be run.
        """
        return self.trace(plan, self.memory).makespan

    def trace(self, plan: Plan, memory: str) -> Trace:
        """What a plan comes to by the engine, on the full cluster.

        Raises:
            HetsimError: it cannot be run.
        """
        return simulate(
            jobs_of(plan, self.workload),
            self.cluster,
            self.price(plan.graphs),
            Planned(plan),
            movement=self.movement,
            contention=self.contention,
            memory=memory,
            weights=self.weights,
        )

    def able(self) -> list[int]:
        """Devices that can run every operator of every job, ascending."""
        finite = [np.isfinite(self.costs[graph].seconds).all(axis=0) for graph in self.graphs]
        return np.flatnonzero(np.all(finite, axis=0)).tolist()


class Partitioner(ABC):
    """Base of all partitioners; configuration ``partition`` names one by class path.

    Attributes:
        name: what tables call it.
        makes_graphs: it transforms graphs, so that other schedulers may run what it made; else it only decides
            devices and orders, which ``planned`` alone executes.
        beside_devices: everything on one device is an answer, too, and is taken where it is better.
    """

    name: ClassVar[str] = ""
    makes_graphs: ClassVar[bool] = False
    beside_devices: bool = True

    @abstractmethod
    def plan(self, problem: Problem) -> Plan:
        """A plan for all jobs.

        Raises:
            InvalidInput: the jobs or the cluster cannot be partitioned in this way; says why.
        """


@dataclass(frozen=True)
class Partition:
    """What came of a partitioner.

    Attributes:
        plan: the best of its plan and of each device alone, with its makespan by the engine.
        costs: of the plan's graphs.
        makespans: seconds by the engine of the partitioner's own plan and of each device alone.
    """

    plan: Plan
    costs: CostTable
    makespans: Mapping[str, float]

    def summary(self) -> dict[str, Any]:
        """What ``result.json`` says of it."""
        plan = self.plan
        return {
            "origin": plan.origin,
            "makespan_s": plan.makespan_s,
            "planning_s": plan.planning_s,
            **plan.notes,
        }


def partition(partitioner: Partitioner, problem: Problem) -> Partition:
    """The best of a partitioner's plan and of everything on each device, by the engine on the full cluster.

    Raises:
        InvalidInput: the workload's jobs are not all known, the partitioner refuses them, or the plan does not fit
            into limited memory.
    """
    workload = problem.workload
    if workload.reacts or not workload.known:
        raise InvalidInput(
            f"Partition '{partitioner.name}' plans jobs that are all known before the run; take a workload of jobs, "
            "such as workload=concurrent, not a stream of requests"
        )
    problem.cluster.check_connected()
    began = time.perf_counter()
    found = partitioner.plan(problem)
    found.check_devices(problem.cluster)
    if problem.memory == "limited":
        check_memory(found, problem)
    makespans = {partitioner.name: problem.makespan(found)}
    best, least = found, makespans[partitioner.name]
    for plan in alone(problem) if partitioner.beside_devices else ():
        try:
            makespan = problem.makespan(plan)
        except HetsimError:
            if problem.memory != "unlimited":  # one memory may not hold everything
                continue
            raise
        makespans[plan.origin] = makespan
        if makespan < least:
            best, least = plan, makespan
    seconds = time.perf_counter() - began
    plan = dataclasses.replace(
        best,
        makespan_s=least,
        planning_s=seconds,
        notes={**best.notes, "makespans_s": makespans},
    )
    return Partition(plan, problem.price(plan.graphs), makespans)


def alone(problem: Problem) -> Iterator[Plan]:
    """Everything on one device, for each that can run everything; of devices that are alike on the first."""
    seen, cluster = set(), problem.cluster
    ends = {space for job in problem.jobs for space in (job.origin, job.destination)}
    for number in problem.able():
        times = tuple(problem.costs[g].seconds[:, number].tobytes() for g in problem.graphs)
        kind = cluster.kind_of(number, ends), times
        if kind not in seen:
            seen.add(kind)
            name = cluster.devices[number].name
            yield Plan.single(f"all on {name}", problem.jobs, cluster, number)


def jobs_of(plan: Plan, workload: Workload) -> Workload:
    """A workload's jobs with the graphs of a plan."""
    if all(job.graph is graph for job, graph in zip(workload, plan.graphs, strict=True)):
        return workload
    return Workload(
        dataclasses.replace(job, graph=graph)
        for job, graph in zip(workload, plan.graphs, strict=True)
    )


def check_memory(plan: Plan, problem: Problem) -> None:
    """Refuse a plan that puts more weights into a memory than it holds.

    Raises:
        InvalidInput: names the memory and both numbers of bytes.
    """
    cluster = problem.cluster
    held: list[dict[str, float]] = [{} for _ in cluster.spaces]
    first = plan.first_task
    for job, graph in enumerate(plan.graphs):
        for operator, reads in enumerate(graph.reads):
            space = cluster.space_of[int(plan.device[first[job] + operator])]
            for tensor in reads:
                if graph.tensors[tensor].role == "weight":
                    held[space][graph.tensors[tensor].name] = float(graph.tensor_bytes[tensor])
    for memory, weights in zip(cluster.spaces, held, strict=True):
        needed = sum(weights.values())
        if needed > memory.capacity:
            raise InvalidInput(
                f"The partition '{plan.origin}' puts {format_bytes(needed)} of weights into memory '{memory.name}', "
                f"which holds {format_bytes(memory.capacity)}; give the memory more capacity, or devices of other "
                "memories a part"
            )
