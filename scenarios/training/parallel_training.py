"""Plans of training steps over several devices: pipelines, data parallelism and mixtures, as a partition.

The batch is cut into micro-batches of equal size. Consecutive layers become stages, and devices clusters, so that the
slowest stage or crossing, and with it the steady state, is as fast as possible (:mod:`simulator.planners.stages`,
:mod:`simulator.planners.device_clusters`). The devices of a cluster are replicas of its stage.
:mod:`scenarios.training.parallelism` makes the graph.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from scenarios.partition.partitioner import Partitioner, Problem
from scenarios.training.collectives import ALGORITHMS
from scenarios.training.divided import divided
from scenarios.training.layers import layer_starts, stage_problem
from scenarios.training.parallel_costs import costs_of, first_rows, proportional, repeated
from scenarios.training.parallelism import Layout, Parallel, Reduction, parallelised
from scenarios.training.step import Step
from scenarios.training.steps import rolled, unrolled
from scenarios.training.tensor_parallel import Sharded, sharded
from simulator.analysis.residency import occupancy
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.plan import Plan
from simulator.model.units import format_bytes
from simulator.planners.device_clusters import CLUSTERS, LAYERS, plan_stages
from simulator.planners.pipeline_schedules import SCHEDULES, schedule
from simulator.planners.stages import Stages, in_order

REDUCTIONS = (*ALGORITHMS, "owner")
TRIED = ("fastest_first", "node", "equal_distribution", "hybrid"), ("one_each",)
"""Clusterings that are held against each other: with replicas, and without."""


@dataclass(frozen=True, eq=False)
class _Micro:
    """The step of one micro-batch, and what can repeat it.

    Attributes:
        problem: what is planned.
        count: micro-batches.
        step: of one, not split into shards.
        costs: times of the step, split if it is.
        workers: the devices of each, one for each shard.
        seconds: float64[operators, workers], times of the step that is not split.
        split: the step in shards.
        communicator: a device that sums gradients.
    """

    problem: Problem
    count: int
    step: Step
    costs: GraphCosts
    workers: Sequence[tuple[int, ...]]
    seconds: np.ndarray
    split: Sharded | None
    communicator: int | None


class ParallelTraining(Partitioner):
    """Spreads a training step over devices. See the module docstring.

    Args:
        schedule: order of the passes (:mod:`simulator.planners.pipeline_schedules`).
        micro_batches: how many of equal size the batch is cut into; None: as many as devices.
        stages: of the pipeline; None: one for each device.
        clusters: which devices share a stage (:data:`simulator.planners.device_clusters.CLUSTERS`); a node are
            devices of one speed. The replicas of a stage share its micro-batches in proportion to their speed.
            ``best``: what the engine finds fastest of :data:`TRIED`, of several numbers of stages unless one is given.
        layers: ``best`` for the clusters, or ``equal`` numbers.
        chunks: of each stage, for ``interleaved``.
        reduction: how replicas sum gradients: ``ring``, ``tree``, ``hierarchical`` or ``owner``.
        bucket_mb: gradients are summed in buckets of at least so many megabytes. The sums run on a spare device of the
            same memory where there is one (a stream, a thread), else between a device's own kernels.
        node_size: consecutive replicas of a node, for ``hierarchical``.
        communicator: a device that sums each bucket as one operator, in the closed form's time.
        recompute: into how many segments each chunk is divided of which only what crosses is kept; None: all is kept.
        devices: those that take part, in the order of the stages; all that can run everything unless given.
        shards: consecutive devices that together do the work of one, each with a part of the features
            (:mod:`scenarios.training.tensor_parallel`); None: 1, of
            :class:`TensorParallel` all devices.

    Raises:
        InvalidInput: an unknown choice or a count below one.
    """

    name: ClassVar[str] = "pipeline"
    shards_unless_given: ClassVar[int | None] = 1
    makes_graphs: ClassVar[bool] = True

    def __init__(
        self,
        schedule: str = "1f1b",
        micro_batches: int | None = 8,
        stages: int | None = None,
        clusters: str = "fastest_first",
        layers: str = "best",
        chunks: int = 1,
        reduction: str = "ring",
        bucket_mb: float = 25.0,
        node_size: int | None = None,
        communicator: str | None = None,
        recompute: int | None = None,
        devices: Sequence[str] | None = None,
        shards: int | None = None,
    ) -> None:
        for what, value, known in (
            ("schedule", schedule, SCHEDULES),
            ("clusters", clusters, ("best", *CLUSTERS)),
            ("layers", layers, LAYERS),
            ("reduction", reduction, REDUCTIONS),
        ):
            if value not in known:
                raise InvalidInput(
                    f"Partition '{self.name}' has {what}={value}; known: {', '.join(known)}"
                )
        for name, count in (
            ("micro_batches", micro_batches),
            ("stages", stages),
            ("chunks", chunks),
            ("recompute", recompute),
            ("shards", shards),
        ):
            if count is not None and count < 1:
                raise InvalidInput(f"Partition '{self.name}' has {name}={count}; give 1 or more")
        self.schedule, self.micro_batches, self.chunks = schedule, micro_batches, chunks
        self.stages, self.clusters, self.layers = stages, clusters, layers
        self.reduction = reduction, bucket_mb * 1e6, node_size
        self.communicator, self.recompute, self.devices = communicator, recompute, devices
        self.shards = shards

    def plan(self, problem: Problem) -> Plan:
        """See :class:`scenarios.partition.partitioner.Partitioner`.

        Raises:
            InvalidInput: several jobs, no training step, a batch that cannot be divided, more stages than layers, a
                memory that a stage does not fit into, or shards that nothing can be split over.
        """
        micro = self._micro(problem)
        tried: dict[object, Plan] = {}
        refused: InvalidInput | None = None
        for stages, clusters in self._choices(len(micro.workers)):
            try:
                starts, found = self._stages(micro, stages, clusters)
                key = tuple(starts), tuple(stage.devices for stage in found.stages)
                if key not in tried:
                    tried[key] = self._planned(micro, starts, found)
            except InvalidInput as error:
                refused = error
        if len(tried) == 1:
            return next(iter(tried.values()))
        if not tried:
            assert refused is not None
            raise refused
        return min(tried.values(), key=problem.makespan)

    def _choices(self, workers: int) -> list[tuple[int, str]]:
        """Numbers of stages and clusterings to be tried."""
        if self.clusters != "best":
            return [(self.stages or (1 if self.clusters == "together" else workers), self.clusters)]
        numbers = (
            [self.stages] if self.stages else [n for n in (1, 2, 4, 8) if n < workers] + [workers]
        )
        return [(number, clusters) for number in numbers for clusters in TRIED[number == workers]]

    def _micro(self, problem: Problem) -> _Micro:
        devices, communicator = self._devices(problem)
        workers = self._workers(devices)
        count = self.micro_batches or len(workers)
        step, costs = self.micro_step(problem, count)
        seconds, split = costs.seconds[:, [worker[0] for worker in workers]], None
        if len(workers[0]) > 1:
            split = sharded(step, len(workers[0]))
            costs = problem.price([split.step.graph])[split.step.graph]
            seconds = split.seconds(costs.seconds, workers)
        return _Micro(problem, count, step, costs, workers, seconds, split, communicator)

    def _planned(self, micro: _Micro, starts: Sequence[int], found: Stages) -> Plan:
        """The plan of some stages."""
        problem, workers, split = micro.problem, micro.workers, micro.split
        clusters = [stage.devices for stage in found.stages][: len(found.stages) // self.chunks]
        layout = self._layout(micro, clusters, starts)
        if split is not None:
            layout = split.laid_out(layout)
        made = parallelised(micro.step if split is None else split.step, layout)
        priced = costs_of(made, micro.costs, problem, micro.communicator)
        problem.know(made.graph, priced)
        order = order_between_kernels(problem, made, priced)
        graph, device = made.graph, made.device
        if (steps := rolled(problem.graph)[1]) > 1:
            priced, order = repeated(priced, steps), in_a_row(order, steps)
            graph, device = unrolled(graph, steps), np.tile(device, steps)
            problem.know(graph, priced)
        names = tuple(device.name for device in problem.cluster.devices)
        operators, forward = micro.step.graph.operators, micro.step.forward
        notes = {
            "schedule": self.schedule,
            "micro_batches": micro.count,
            "stages": [
                ["+".join(names[d] for d in workers[worker]) for worker in cluster]
                for cluster in clusters
            ],
            "starts": [operators[forward[start]].name for start in starts],
            "slowest_s": found.slowest,
        }
        if split is not None:
            notes["split_operators"] = split.splits
        plan = Plan(self.name, (graph,), names, device, order, notes=notes)
        if problem.memory == "limited":
            check_peaks(plan, problem)
        return plan

    def micro_step(self, problem: Problem, micro_batches: int) -> tuple[Step, GraphCosts]:
        """The step of one of so many micro-batches and its times.

        Raises:
            InvalidInput: several jobs, no training step, or a batch that cannot be divided.
        """
        if len(problem.jobs) > 1:
            raise InvalidInput(
                f"Partition '{self.name}' plans one job, a training step, and the workload has {len(problem.jobs)}; take "
                "workload=single"
            )
        graph, _ = rolled(problem.graph)
        whole = Step.of(graph)
        costs = first_rows(problem.costs[problem.graph], len(graph))
        parts = micro_batches
        if parts == 1 and self.schedule != "zb_h1":
            return whole, costs
        if problem.at_batch is None or graph.batch is None:
            return proportional(whole, costs, parts)
        if graph.batch % parts:
            raise InvalidInput(
                f"Batch {graph.batch} of '{graph.name}' cannot be cut into {parts} equal micro-batches; set model.batch "
                f"to a multiple of {parts}, or other micro_batches"
            )
        micro, _ = rolled(problem.at_batch(graph.batch // parts))
        if self.schedule == "zb_h1":
            micro = divided(micro)
        return Step.of(micro), problem.price([micro])[micro]

    def _devices(self, problem: Problem) -> tuple[list[int], int | None]:
        index = problem.cluster.device_index
        for name in (*(self.devices or ()), *([self.communicator] if self.communicator else ())):
            if name not in index:
                raise InvalidInput(
                    f"Partition '{self.name}' names device '{name}', which cluster '{problem.cluster.name}' lacks; it has "
                    f"{', '.join(index)}"
                )
        communicator = None if self.communicator is None else index[self.communicator]
        able = problem.able()
        chosen = able if self.devices is None else [index[name] for name in self.devices]
        for device in chosen:
            if device not in able:
                raise InvalidInput(
                    f"Device '{problem.cluster.devices[device].name}' cannot run every operator of the step; leave it "
                    "out of partition.options.devices"
                )
        return [device for device in chosen if device != communicator], communicator

    def _workers(self, devices: Sequence[int]) -> list[tuple[int, ...]]:
        """Devices in groups of as many as there are shards."""
        shards = self.shards or self.shards_unless_given or len(devices)
        if shards > len(devices):
            raise InvalidInput(
                f"{shards} shards take as many devices, and {len(devices)} can run the step; ask for fewer, or name "
                "others"
            )
        return [tuple(devices[k : k + shards]) for k in range(0, len(devices) - shards + 1, shards)]

    def _stages(self, micro: _Micro, stages: int, clusters: str) -> tuple[list[int], Stages]:
        """The first forward operator of each chunk, by position among the forward operators, and the planner's word."""
        step, workers = micro.step, micro.workers
        if not 1 <= stages <= len(workers):
            each = len(workers[0])
            what = "as many devices" if each == 1 else f"{stages * each} devices"
            raise InvalidInput(
                f"{stages} stages take {what}, and {len(workers) * each} can run the step; ask for fewer, or name "
                "others"
            )
        firsts = layer_starts(step, micro.seconds)
        if stages * self.chunks > len(step.forward):
            raise InvalidInput(
                f"'{step.graph.name}' has {len(step.forward)} forward operators, which cannot be "
                f"{stages * self.chunks} stages, none of them empty"
            )
        asked = stage_problem(
            micro.problem,
            *(step, micro.seconds, workers, micro.count, firsts),
            schedule=self.schedule,
            recomputes=self.recompute is not None,
        )
        speeds = [f"{speed:.9g}" for speed in asked.speed]
        nodes = [speeds.index(speed) for speed in speeds]
        found = plan_stages(asked, stages, clusters, self.layers, nodes)
        if self.chunks > 1:
            order = [stage.devices for stage in found.stages]
            found = in_order(asked, order * self.chunks)
        return [firsts[stage.layers[0]] for stage in found.stages], found

    def _layout(
        self, micro: _Micro, clusters: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> Layout:
        step, workers, micro_batches = micro.step, micro.workers, micro.count
        taken = {device for cluster in clusters for w in cluster for device in workers[w]}
        spare = spare_devices(micro.problem.cluster, taken)
        total = micro.seconds.sum(axis=0)
        rows: list[list[int]] = []
        chosen: list[tuple[int, ...]] = []
        for cluster in clusters:
            if micro_batches < len(cluster):
                raise InvalidInput(
                    f"{len(cluster)} replicas of a stage cannot share {micro_batches} micro-batches; take more "
                    "micro-batches or fewer replicas"
                )
            own = shared_out(micro_batches, 1 / np.maximum(total[list(cluster)], 1e-30))
            rows.append([len(chosen) + position for position in own])
            chosen += [workers[worker] for worker in cluster]
        worker_of = np.array(rows, dtype=np.int64)
        forward = np.array(step.forward)
        part = step.stages(forward[list(starts)])
        segments = None
        if self.recompute is not None:
            bounds = [*starts, len(forward)]
            cuts = [
                begin + (end - begin) * k // self.recompute
                for begin, end in itertools.pairwise(bounds)
                for k in range(self.recompute)
            ]
            segments = step.stages(forward[sorted(set(cuts))])
        return Layout(
            part,
            worker_of,
            chosen,
            schedule(self.schedule, worker_of, self.chunks),
            reduction=Reduction(*self.reduction, micro.communicator, spare),
            recompute=segments,
            asynchronous=self.schedule == "pipedream",
        )


class DataParallel(ParallelTraining):
    """A replica of the model on each device, or on each group of shards. Arguments as of :class:`ParallelTraining`."""

    name: ClassVar[str] = "data_parallel"

    def __init__(
        self,
        micro_batches: int | None = None,
        reduction: str = "ring",
        bucket_mb: float = 25.0,
        node_size: int | None = None,
        communicator: str | None = None,
        recompute: int | None = None,
        devices: Sequence[str] | None = None,
        shards: int | None = None,
    ) -> None:
        super().__init__(
            micro_batches=micro_batches,
            clusters="together",
            reduction=reduction,
            bucket_mb=bucket_mb,
            node_size=node_size,
            communicator=communicator,
            recompute=recompute,
            devices=devices,
            shards=shards,
        )


class TensorParallel(DataParallel):
    """One model over all devices, or, of fewer shards, a replica on each group of them."""

    name: ClassVar[str] = "tensor_parallel"
    shards_unless_given: ClassVar[int | None] = None


def in_a_row(order: np.ndarray, steps: int) -> np.ndarray:
    """The order of a step's operators, again and again."""
    return (order + len(order) * np.arange(steps)[:, None]).ravel()


def shared_out(count: int, speeds: np.ndarray) -> list[int]:
    """Who of some takes each of ``count`` equal things, in proportion to speed: always who would end first."""
    taken = np.zeros(len(speeds))
    found = []
    for _ in range(count):
        chosen = int(np.argmin((taken + 1) / speeds))
        taken[chosen] += 1
        found.append(chosen)
    return found


def order_between_kernels(problem: Problem, made: Parallel, costs: GraphCosts) -> np.ndarray:
    """What computes in the order of its slots, what communicates on the same devices as it can between."""
    computing = np.unique(made.device[~made.communicates])
    if not np.isin(made.device[made.communicates], computing).any():
        return made.order
    cluster, count = problem.cluster, len(problem.cluster.devices)
    twins = [dataclasses.replace(d, name=f"{d.name}'") for d in cluster.devices]
    both = dataclasses.replace(cluster, devices=[*cluster.devices, *twins])
    (job,) = problem.jobs
    beside = dataclasses.replace(problem, cluster=both)
    doubled = GraphCosts(np.hstack([costs.seconds, costs.seconds]))
    evaluator = beside.evaluator(
        dataclasses.replace(job, graph=made.graph), CostTable({made.graph: doubled})
    )
    device = np.where(made.communicates, made.device + count, made.device)
    start = evaluator.schedule(device, made.order).start
    return np.lexsort((np.arange(len(start)), start))


def spare_devices(cluster: Cluster, taken: Collection[int]) -> dict[int, int]:
    """For each device a spare one of its memory, which can sum while it computes: a stream, a thread."""
    spare = [d for d in range(len(cluster.devices)) if d not in taken]
    found: dict[int, int] = {}
    for device in sorted(taken):
        near = [d for d in spare if cluster.space_of[d] == cluster.space_of[device]]
        if near:
            found[device] = near[0]
            spare.remove(near[0])
    return found


def check_peaks(plan: Plan, problem: Problem) -> None:
    """Refuse a plan of which some memory cannot hold the peak.

    Raises:
        InvalidInput: names the memory, its devices, and both numbers of bytes.
    """
    trace = problem.trace(plan, memory="unlimited")
    for space, held in zip(problem.cluster.spaces, occupancy(trace), strict=True):
        if held.peak > space.capacity:
            devices = [d.name for d in problem.cluster.devices if d.space == space.name]
            raise InvalidInput(
                f"What runs on '{', '.join(devices)}' needs {format_bytes(held.peak)} at its peak, and memory "
                f"'{space.name}' holds {format_bytes(space.capacity)}; take more devices or stages, smaller "
                "batches or recompute"
            )


__all__ = [
    "DataParallel",
    "ParallelTraining",
    "TensorParallel",
    "check_peaks",
    "order_between_kernels",
    "shared_out",
    "spare_devices",
]
