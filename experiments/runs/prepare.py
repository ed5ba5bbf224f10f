"""Worlds with a partition: the graphs that a partitioner made, its plan, and their times.

The partitioner sees what a scheduler would believe: predicted times, links at their mean bandwidth. Its plan is held
against each device alone and the better one is taken (:mod:`scenarios.partition.partitioner`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.runs import catalog
from experiments.runs.configs import PartitionConfig, Scenario, contents
from experiments.runs.provenance import digest
from experiments.runs.world import (
    World,
    refuse_extrapolation,
    source_digests,
    unpartitioned,
    worlds,
)
from scenarios.bandwidth import bandwidth_faults, mean_bandwidths
from scenarios.partition.partitioner import Partition, Partitioner, Problem, jobs_of, partition
from simulator.engine.faults import Fault
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, Prices
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Workload
from simulator.support import own_code
from simulator.support.options import construct

Change = Callable[[CostTable], CostTable]
"""Other believed times, whichever graphs they are of."""


def prepare(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> World:
    """The world of a scenario, made now or kept from an earlier one of this process.

    Raises:
        InvalidInput: a name is unknown, a quantity ambiguous, a profile missing, (``strict``) a prediction
            extrapolates, or the partitioner refuses the jobs or the cluster.
    """
    if not scenario.partition.partitions:
        return unpartitioned(scenario, config_dirs)
    made = partitioner_of(scenario, config_dirs)
    world = unpartitioned(dataclasses.replace(scenario, partition=PartitionConfig()), config_dirs)
    simulation = scenario.simulation
    settings = (simulation.movement, simulation.contention, simulation.memory, simulation.weights)
    decided_by = [
        world.key,
        contents(scenario.partition),
        source_digests(scenario, config_dirs).get("partition"),
        contents(scenario.workload),
        settings,
        scenario.seed.workload,
    ]
    key = digest(decided_by)
    found = worlds.get_or_make(
        key, lambda: Partitioned(key, world, partitioned(made, world, scenario))
    )
    if scenario.strict:  # parts of operators are priced, too
        refuse_extrapolation(found)
    return found


class Partitioned(World):
    """A world whose jobs have the graphs of a plan.

    Attributes:
        source: the world before it was partitioned; each device alone runs that.
    """

    def __init__(self, key: str, source: World, made: Partition) -> None:
        plan, costs = made.plan, made.costs
        fine = None if source.requests is None else source.operator_costs
        super().__init__(
            key,
            plan.graphs[0] if source.requests is None else source.graph,
            source.cluster,
            costs,
            source.profiles,
            source.pricer,
            source.requests,
            fine,
            source.notes,
        )
        self.source = source
        self.partition = made

    def workload(self, scenario: Scenario) -> Workload:
        """See :class:`World`."""
        assert self.partition is not None
        return jobs_of(self.partition.plan, self.source.workload(scenario))

    def best_device(self, scenario: Scenario) -> tuple[str, float] | None:
        """See :class:`World`: with the graphs as they were."""
        return self.source.best_device(scenario)


def partitioned(
    made: Partitioner,
    world: World,
    scenario: Scenario,
    cluster: Cluster | None = None,
    change: Change | None = None,
) -> Partition:
    """The plan of a partitioner for a world's jobs, or a device alone where that is better.

    Args:
        made: the partitioner.
        world: as it is without a partition.
        scenario: its workload and simulation.
        cluster: believed instead of the world's, of the same devices.
        change: other believed times.

    Raises:
        InvalidInput: the partitioner refuses the jobs or the cluster.
    """
    simulation = scenario.simulation
    believed = world.cluster if cluster is None else cluster
    varying: Sequence[Fault] = ()
    if not scenario.bare:
        varying = bandwidth_faults(scenario.cluster, world.cluster, scenario.seed.workload)
    prices: Prices | None = world.pricer
    costs = world.costs
    if change is not None:
        prices, costs = _Changed(world.pricer, change), change(costs)
    if world.pricer is None:
        prices = None
    problem = Problem(
        world.workload(scenario),
        mean_bandwidths(believed, varying),
        costs,
        prices,
        simulation.movement,
        simulation.contention,
        simulation.memory,
        simulation.weights,
        world.at_batch,
    )
    return partition(made, problem)


def partitioner_of(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> Partitioner:
    """The partitioner that a scenario names.

    Raises:
        InvalidInput: there is none, it does not take its options, or the scheduler cannot execute its plan.
    """
    config, scheduler = scenario.partition, scenario.scheduler
    what = f"partition '{config.name}'"
    path = catalog.resolve_class_path(config.class_path or "", config_dirs)
    if own_code.parse(path) is None:
        raise InvalidInput(
            f"The {what} names no class: write package.module.Class or path/to/file.py:Class, not '{path}'"
        )
    kind = own_code.load(path, what)
    if not (isinstance(kind, type) and issubclass(kind, Partitioner)):
        raise InvalidInput(
            f"'{path}' is no partitioner: make it a subclass of scenarios.partition.partitioner.Partitioner"
        )
    if scheduler.name != "planned" and not kind.makes_graphs:
        raise InvalidInput(
            f"partition={config.name} decides where every operator runs, and scheduler={scheduler.name} would decide "
            "anew; scheduler=planned executes it"
        )
    if scheduler.options.get("file") is not None and scheduler.name == "planned":
        raise InvalidInput(
            f"partition={config.name} makes a plan, and scheduler.options.file names another; leave one out"
        )
    if scenario.workload.serves and kind.makes_graphs:
        raise InvalidInput(
            f"partition={config.name} makes new graphs, and requests are served by those of their models; take "
            "workload=concurrent with one model"
        )
    if scenario.workload.arrivals == "closed":
        raise InvalidInput(
            f"partition={config.name} plans jobs that are all known before the run, and those of "
            f"workload={scenario.workload.name} follow on answers; take workload=concurrent"
        )
    made: Partitioner = construct(kind, f"Partition '{config.name}'", config.options)
    return made


class _Changed:
    """Prices that are changed in one way."""

    def __init__(self, prices: Prices | None, change: Change) -> None:
        self._prices, self._change = prices, change

    def price(self, graphs: Sequence[DataflowGraph]) -> CostTable:
        """See :class:`Prices`."""
        assert self._prices is not None
        return self._change(self._prices.price(graphs))
