"""Requests simulated as this machine was found to serve them, for serving held against the machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.probes.machine_speed import MachineSpeed, profiles_of
from experiments.probes.overhead import Overhead, with_overhead
from experiments.probes.phases import Phases, SpeedPath, windowed
from experiments.probes.resting import with_waking
from experiments.runs.configs import Scenario
from experiments.runs.pricing import load_profiles
from experiments.runs.world import NoisyTable, World
from experiments.serving_validation.outcome import with_joining
from experiments.validation.simulated_vs_measured import SlowedNoise
from scenarios.requests import RequestGraphs
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.graph import DataflowGraph
from simulator.model.noise import NoiseModel
from simulator.model.trace import Trace
from simulator.model.workload import Workload

WINDOW_S = 0.2
"""In which a run's own speed is taken for one: some ten executions, about as long as phases last."""


@dataclass(frozen=True)
class Conditions:
    """What the machine was found to be around a run.

    Attributes:
        speed: how much longer operators take on average than the profiles say, and what busy devices cost each
            other; None: as the profiles and the cluster say.
        phases: how that wandered before and after the run.
        known: the same with what it did around the runs before.
    """

    speed: MachineSpeed | None = None
    phases: Phases = field(default_factory=Phases)
    known: Phases = field(default_factory=Phases)


class ServingPrediction:
    """Simulates the requests of a world on this machine.

    Args:
        scenario: any of the contestants'.
        world: of the scenario.

    Attributes:
        costs: times of tasks as schedulers believe them: the profiles', with what :meth:`price` was told.
        profiles: of the cluster, by name.

    Raises:
        InvalidInput: the world's jobs are no requests.
    """

    def __init__(self, scenario: Scenario, world: World) -> None:
        self.scenario = scenario
        self.world = world
        self.requests = requests_of(world)
        self.profiles = load_profiles(scenario.cluster, scenario.cost_model)
        self.price(0.0, {})

    def cluster(self, overhead: float) -> Cluster:
        """The cluster with an overhead for each task added to every device."""
        return with_overhead(self.world.cluster, Overhead(overhead))

    def price(
        self,
        segment_s: float,
        joining: Mapping[str, Mapping[str, float]],
        wake_s: Sequence[float] | None = None,
    ) -> None:
        """Let the times contain what the runner needs within a segment and before a batch, and what waking a device
        costs; None leaves the cluster's.
        """
        self._wake_s = wake_s
        self._segment_s = segment_s
        self._joining = {
            graph: joining.get(name, {}).get(str(batch), 0.0)
            for name, model in self.requests.models.items()
            for batch, graph in model.graphs.items()
        }
        self.costs: CostTable = self._priced(None)

    def steady(
        self, workload: Workload, scheduler: Scheduler, overhead: float, conditions: Conditions
    ) -> Trace:
        """One run at the mean speed from beginning to end, the runner's overhead included."""
        return self._simulate(
            workload, scheduler, overhead, conditions, self._priced(conditions.speed)
        )

    def drawn(
        self,
        workload: Workload,
        make: Callable[[], Scheduler],
        overhead: float,
        conditions: Conditions,
        steady: Trace,
        count: int,
    ) -> Iterator[Trace]:
        """Runs as they might be: each with the predictors' errors, measured noise, another mean speed that the panel
        might have shown, and phases as there have been, for twice as long as at the mean speed. None where all of that
        is certain.

        By what predictors err on average is not drawn: the panel's operators are held against the same profiles, and
        the speed has it.
        """
        seed, speed = self.scenario.seed.noise, conditions.speed
        simulation = replace(self.scenario.simulation, draws=count)
        drawn: list[CostTable | NoiseModel | None] = [
            *self.world.draws(replace(self.scenario, simulation=simulation))
        ]
        if not drawn and conditions.known.stretches:
            drawn = [None] * count
        # Runs of the panel that follow each other are alike, so that they say too little of how sure their mean is.
        noise = max(speed.noise if speed else 0.0, conditions.known.noise)
        priced = self._priced(speed)
        tables = [table for draw in drawn if (table := _table_of(draw)) is not None]
        longer = {}
        for graph, entry in priced.items():
            plain = self.world.costs[graph].seconds
            usual = np.mean([table[graph].seconds for table in tables], axis=0) if tables else plain
            ones = np.ones_like(plain)
            longer[graph] = np.divide(entry.seconds, usual, out=ones, where=np.isfinite(plain))
        for number, draw in enumerate(drawn):
            rng = np.random.default_rng([seed, number])
            slowness = float(np.exp(noise * rng.standard_normal()))
            path = conditions.known.path(2.0 * steady.makespan, rng)
            by = {graph: slowness * path.fastest * factor for graph, factor in longer.items()}
            actual = _at_speed(self.world.costs if draw is None else draw, by)
            yield self._simulate(
                workload, make(), overhead, conditions, actual, path, seed + number + 1
            )

    def told(
        self,
        workload: Workload,
        make: Callable[[], Scheduler],
        overhead: float,
        conditions: Conditions,
        measured: Trace,
        steady: Trace,
    ) -> tuple[Trace, Trace]:
        """What would have been simulated by one who knew how fast the machine was during a run.

        Args:
            workload: of the run.
            make: gives a fresh scheduler.
            overhead: the runner's for a task, seconds.
            conditions: around the run.
            measured: the run.
            steady: as simulated at the mean speed.

        Returns:
            The run with every model's executions as long on average as they were, and that in the phases that there
            were, :data:`WINDOW_S` at a time.
        """
        priced = self._priced(conditions.speed)
        usual = _by_model(steady, priced)
        own = _by_model(measured, priced)
        # What executions take beside each other and after a rest is in both.
        by_model = {
            name: own[name].slowness / usual[name].slowness if name in usual else 1.0
            for name in own
        }
        scaled = CostTable(
            {
                graph: replace(entry, seconds=entry.seconds * by_model.get(graph.name, 1.0))
                for graph, entry in priced.items()
            }
        )
        speeds = self._simulate(workload, make(), overhead, conditions, scaled)
        rows = measured.executions
        took = rows["finish"] - rows["start"]
        each = np.zeros(len(took))
        for model in own.values():
            each[model.rows] = took[model.rows] / (model.said * model.slowness)
        path = windowed(rows["start"], rows["finish"], each, WINDOW_S)
        fast = scaled.scaled(path.fastest)
        return speeds, self._simulate(workload, make(), overhead, conditions, fast, path)

    def _priced(self, speed: MachineSpeed | None) -> CostTable:
        """Times of tasks, on a machine of that speed."""
        pricer = self.world.pricer
        assert pricer is not None
        fine = pricer.price(self.requests.fine)
        if speed is not None:
            profiles = profiles_of(self.world.cluster, self.profiles)
            fine = CostTable(
                {
                    graph: replace(
                        costs,
                        seconds=costs.seconds * speed.factors(graph, profiles, costs.seconds),
                    )
                    for graph, costs in fine.items()
                }
            )
        costs = self.requests.costs(fine, self.cluster(self._segment_s))
        return with_joining(costs, self._joining)

    def _simulate(
        self,
        workload: Workload,
        scheduler: Scheduler,
        overhead: float,
        conditions: Conditions,
        actual: CostTable | NoiseModel,
        path: SpeedPath | None = None,
        seed: int = 0,
    ) -> Trace:
        """What busy devices cost each other is of the same panel runs as the speed: it changes within the hour, and
        a speed alone and a cost beside that were measured at different times are of no time the machine was in.
        """
        simulation, speed = self.scenario.simulation, conditions.speed
        caches = {space: curves[0] for space, curves in speed.reuse.items()} if speed else {}
        corun = speed.corun if speed else None
        cluster = with_overhead(self.world.cluster, Overhead(overhead), corun=corun, caches=caches)
        return simulate(
            workload,
            cluster if self._wake_s is None else with_waking(cluster, self._wake_s),
            self.costs,
            scheduler,
            actual=actual,
            movement=simulation.movement,
            contention=simulation.contention,
            faults=None if path is None else path.faults(cluster),
            seed=seed,
        )


def requests_of(world: World) -> RequestGraphs:
    """The graphs of a world's requests.

    Raises:
        InvalidInput: its jobs are no requests.
    """
    if world.requests is None:
        raise InvalidInput(
            "The workload has neither a mix of models nor batches; give workload.mix or "
            "workload.max_batch"
        )
    return world.requests


def _table_of(draw: CostTable | NoiseModel | None) -> CostTable | None:
    """The drawn times without the noise around them; None where none were drawn."""
    if isinstance(draw, NoisyTable):
        return draw.table
    return draw if isinstance(draw, CostTable) else None


def _at_speed(
    draw: CostTable | NoiseModel, factors: Mapping[DataflowGraph, np.ndarray]
) -> CostTable | NoiseModel:
    if not isinstance(draw, CostTable):
        return SlowedNoise(draw, factors)
    return CostTable(
        {g: replace(entry, seconds=entry.seconds * factors[g]) for g, entry in draw.items()}
    )


@dataclass(frozen=True)
class _Executions:
    """Those of a trace that served one model.

    Attributes:
        rows: of the trace's executions.
        said: seconds that each was to take.
        slowness: how many times as long all of them took.
    """

    rows: np.ndarray
    said: np.ndarray
    slowness: float


def _by_model(trace: Trace, costs: CostTable) -> dict[str, _Executions]:
    graphs = {(graph.name, graph.batch or 1): graph for graph in costs}
    named = [graphs[str(g["name"]), int(g["batch"] or 1)] for g in trace.meta["graphs"]]
    rows = trace.executions
    served = trace.jobs["graph"][rows["job"]]
    said = np.array(
        [
            costs[named[graph]].seconds[operator, device]
            for graph, operator, device in zip(
                served.tolist(), rows["operator"].tolist(), rows["device"].tolist(), strict=True
            )
        ]
    )
    took = rows["finish"] - rows["start"]
    by_name = sorted(range(len(served)), key=lambda row: named[served[row]].name)
    found = {}
    for name, group in itertools.groupby(by_name, key=lambda row: named[served[row]].name):
        mine = np.array(list(group))
        found[name] = _Executions(mine, said[mine], float(took[mine].sum() / said[mine].sum()))
    return found
