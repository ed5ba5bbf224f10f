"""A contestant in both worlds: simulated with the runner's overhead, and run on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.probes.cache_now import Reuse
from experiments.probes.overhead import Corun, Overhead, with_overhead
from experiments.runs import catalog
from experiments.runs.configs import Scenario
from experiments.runs.discrepancy import discrepancies
from experiments.runs.pricing import Pricer, load_profiles
from experiments.runs.world import World
from experiments.validation.contestants import Contestant
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable, GraphCosts
from simulator.model.graph import DataflowGraph
from simulator.model.input_reuse_curve import ReadingCurve
from simulator.model.launch_cold_start import CoolingCurve
from simulator.model.noise import NoiseModel
from simulator.model.trace import Trace
from simulator.model.workload import Job, Workload

if TYPE_CHECKING:
    import torch

    from calibration.runner import Execution, Machine

INTERVAL = 0.9
"""Share of cases that the predicted intervals are to cover."""
ON_GPUS = 1e-3
"""By which results made on a GPU may differ from the module's on a CPU, relative and absolute."""


class Prediction:
    """Simulates the contestants of one model, the runner's overhead included.

    Args:
        world: of the model.
        slowness: how much longer operators take than in the profiles, all of them or
            float64[operators, devices]; what schedulers believe stays the profiles'.
        handover: seconds that the runner's interpreter needs to go on with another worker that had to
            wait for it; None: workers are taken not to wait for each other.
        corun: what a device's tasks take longer for each other busy one of its memory, unless the cluster has
            them share a bandwidth; None takes the cluster's.
        noise: standard deviation of the log of what a makespan is measured as, and of what the machine was
            found to be slower by, beside the predictor's errors; for intervals.
        reuse: what the cache of a memory space keeps of weights, and what else it might have been found to keep,
            for intervals; spaces that are not named keep what the cluster says.
        cooling: of each device, how many times its overhead the runner needs behind an operator of so many
            seconds; none: once behind any.
        reading: of each device, what inputs cost that are not at hand; none: nothing.
    """

    def __init__(
        self,
        world: World,
        slowness: float | np.ndarray = 1.0,
        handover: float | None = None,
        corun: Corun = None,
        noise: float = 0.0,
        reuse: Reuse | None = None,
        cooling: Sequence[CoolingCurve | None] = (),
        reading: Sequence[ReadingCurve | None] = (),
    ) -> None:
        self.world = world
        self.slowness = np.asarray(slowness)
        self.handover = handover
        self.corun = corun
        self.noise = noise
        self.reuse = reuse or {}
        self.cooling = tuple(cooling)
        self.reading = tuple(reading)

    @property
    def costs(self) -> CostTable:
        """What is predicted to happen."""
        return self.world.costs.scaled(self.slowness)

    def cluster(self, overhead: Overhead) -> Cluster:
        """The cluster with what the runner needs added to every device and link."""
        return self._cluster(overhead, 0)

    def believed(self, overhead: Overhead) -> Cluster:
        """The cluster as schedulers are told of it where the runner needs so much."""
        return with_overhead(self.world.cluster, overhead)

    def _cluster(self, overhead: Overhead, draw: int) -> Cluster:
        """The first one with caches as they were found (0), or as they might have been."""
        caches = {
            space: curves[draw and 1 + (draw - 1) % (len(curves) - 1)] if curves[1:] else curves[0]
            for space, curves in self.reuse.items()
        }
        return with_overhead(
            self.world.cluster,
            overhead,
            self.handover,
            self.corun,
            caches,
            self.cooling,
            self.reading,
        )

    def run(
        self,
        contestant: Contestant,
        overhead: Overhead,
        actual: CostTable | NoiseModel | None = None,
        believed: Overhead | None = None,
    ) -> Trace:
        """One simulated run.

        Args:
            contestant: whose.
            overhead: of the runner.
            actual: what happens at the profiles' speed; None: what they say.
            believed: what schedulers are told that the runner needs; None: what it needs.
        """
        return self._run(contestant.make(), contestant, overhead, actual, believed)

    def _run(
        self,
        scheduler: Scheduler,
        contestant: Contestant,
        overhead: Overhead,
        actual: CostTable | NoiseModel | None,
        believed: Overhead | None,
        seed: int = 0,
        draw: int = 0,
    ) -> Trace:
        simulation = contestant.scenario.simulation
        return simulate(
            self.world.workload(contestant.scenario),
            self._cluster(overhead, draw),
            self.world.costs,
            scheduler,
            actual=self._at_speed(actual),
            believed=None if believed is None else self.believed(believed),
            movement=simulation.movement,
            contention=simulation.contention,
            seed=seed,
        )

    def _at_speed(self, actual: CostTable | NoiseModel | None) -> CostTable | NoiseModel | None:
        if (self.slowness == 1.0).all():
            return actual
        if actual is None:
            return self.costs
        if isinstance(actual, CostTable):
            return actual.scaled(self.slowness)
        return SlowedNoise(actual, dict.fromkeys(self.world.costs, self.slowness))

    def draws(
        self,
        contestant: Contestant,
        overhead: Overhead,
        simulated: Trace,
        believed: Overhead | None = None,
    ) -> np.ndarray:
        """float64[draws] makespans under draws of the predictor's errors, those of one setting paired.

        Each is a makespan as it might be measured, on a machine as slow as it might have been found to be, which is
        the same for all contestants, times what a schedule is off by (:mod:`experiments.runs.discrepancy`).

        Args:
            contestant: whose.
            overhead: of the runner.
            simulated: its one run.
            believed: as in :meth:`run`.
        """
        seed = contestant.scenario.seed.noise
        first: Scheduler | None = None
        draws: list[float] = []
        for number, actual in enumerate(self.world.draws(contestant.scenario), 1):
            scheduler = contestant.make()
            if first is not None:
                scheduler.recall(first)
            first = first or scheduler
            trace = self._run(
                scheduler, contestant, overhead, actual, believed, seed + number, number
            )
            draws.append(trace.makespan)
        rng = np.random.default_rng([seed, len(draws)])
        found_slow = np.exp(np.sqrt(2.0) * self.noise * rng.standard_normal(len(draws)))
        own = discrepancies(contestant.scenario.simulation.discrepancy, simulated, len(draws), seed)
        return np.array(draws) * found_slow * own


def interval_of(draws: np.ndarray) -> tuple[float, float]:
    """The interval of the measured makespan from :meth:`Prediction.draws`; NaN without any."""
    if not len(draws):
        return float("nan"), float("nan")
    low, high = np.quantile(draws, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]).tolist()
    return low, high


@dataclass(frozen=True)
class SlowedNoise:
    """Noise on a machine that is slower than its profiles say.

    Attributes:
        noise: around the profiles' times.
        slowness: how many times as long what was drawn takes, all of a graph's operators or each on each device.
    """

    noise: NoiseModel
    slowness: Mapping[DataflowGraph, np.ndarray]

    def realise(
        self,
        graph: DataflowGraph,
        costs: GraphCosts,
        rng: np.random.Generator,
        arrival: float = 0.0,
    ) -> np.ndarray:
        """See :class:`simulator.model.noise.NoiseModel`."""
        return self.noise.realise(graph, costs, rng, arrival) * self.slowness[graph]


def unseen_costs(world: World, scenario: Scenario) -> CostTable:
    """Times from profiles fitted without the model's own operators."""
    profiles = {}
    for name, profile in load_profiles(scenario.cluster, scenario.cost_model).items():
        try:
            model = profile.model_name(scenario.cost_model.name)
            profiles[name] = profile.without(scenario.model.name, (model,))
        except InvalidInput:
            profiles[name] = profile  # it never saw this model
    return Pricer(world.cluster, profiles, scenario.cost_model).price([world.graph])


class Hardware:
    """Runs the contestants of one model for real and checks every result against the module's.

    Args:
        machine: of the world's cluster.
        world: of the model.
        scenario: of the model.
        limit: seconds after which a run is given up.
        config_dirs: the user's configs.

    Attributes:
        denormals: what denormal numbers do to the model's own times; None where it makes next to none.
    """

    def __init__(
        self,
        machine: Machine,
        world: World,
        scenario: Scenario,
        limit: float,
        config_dirs: Sequence[Path] = (),
    ) -> None:
        from calibration.sequential import named_inputs, run_graph, weights_of
        from experiments.validation.denormals import DenormalNumbers
        from scenarios.model_config import graph_of, load_model
        from scenarios.outputs import run_module

        self.machine = machine
        self.graph = world.graph
        self.costs = world.costs
        self.limit = limit
        target = catalog.resolve_class_path(scenario.model.target, config_dirs)
        module, inputs = load_model(replace(scenario.model, target=target))
        with DenormalNumbers() as denormals:
            self.expected: list[Any] = run_module(module, inputs.args, inputs.kwargs)
        self.denormals = denormals.sentence(self.graph.name, machine.flushes_denormals)
        given = [*inputs.args, *inputs.kwargs.values()]
        # Another processor adds up in another order, and a network's layers multiply what that makes.
        one_kind = all(spec.device == "cpu" for spec in machine.specs)
        self._tolerance = None if one_kind else ON_GPUS
        weights = weights_of(module, self.graph)
        if scenario.model.training:
            drawing = next((o.name for o in self.graph.operators if "dropout" in o.kind), None)
            if drawing is not None:
                raise InvalidInput(
                    f"Operator '{drawing}' of '{self.graph.name}' draws random numbers, so that no two runs give the "
                    "same loss; set the model's dropout to 0"
                )
            whole = graph_of(replace(scenario.model, target=target))
            named = _training_inputs(named_inputs(whole, [*given, _target(whole)]), self.graph)
            self.expected = run_graph(self.graph, weights, named)
        else:
            named = named_inputs(self.graph, given)
        self.inputs = {self.graph: named}
        machine.load(self.graph, weights)

    def run(
        self,
        workload: Workload,
        scheduler: Scheduler,
        believed: Cluster,
        movement: str = "push",
        contention: str = "none",
    ) -> Trace:
        """One run.

        Raises:
            ExecutionError: an operator failed, or the results are not the module's.
        """
        execution = self.machine.run(
            workload,
            self.costs,
            scheduler,
            self.inputs,
            believed=believed,
            movement=movement,
            contention=contention,
            limit=self.limit,
        )
        self._check(execution, scheduler)
        return execution.trace

    def one_job(self) -> Workload:
        """A single job of the model."""
        host = self.machine.cluster.host
        return Workload([Job(self.graph, batch=self.graph.batch, origin=host, destination=host)])

    def _check(self, execution: Execution, scheduler: Scheduler) -> None:
        import torch

        from calibration.sequential import results_of
        from simulator.errors import ExecutionError

        for outputs in execution.outputs:
            on_host = {name: tensor.cpu() for name, tensor in outputs.items()}
            try:
                torch.testing.assert_close(
                    results_of(self.graph, on_host),
                    self.expected,
                    rtol=self._tolerance,
                    atol=self._tolerance,
                )
            except AssertionError as error:
                raise ExecutionError(
                    f"'{self.graph.name}' under '{scheduler.name}' does not give the module's result: "
                    f"{' '.join(str(error).split())}"
                ) from None


def _target(graph: DataflowGraph) -> torch.Tensor:
    """What the loss of a training step compares with: zeros, or class 0."""
    import torch

    (spec,) = (graph.tensors[t].spec for t in graph.inputs if graph.tensors[t].name == "target")
    assert spec is not None  # of a traced graph
    return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype))


def _training_inputs(
    whole: Mapping[str, torch.Tensor], graph: DataflowGraph
) -> dict[str, torch.Tensor]:
    """The whole batch's inputs as a graph takes them, which may take each micro-batch's by itself (``x#3``)."""
    found = {}
    for tensor in graph.inputs:
        row = graph.tensors[tensor]
        name, _, number = row.name.partition("#")
        value = whole[name]
        if number and row.spec is not None and tuple(value.shape) != row.spec.shape:
            pairs = enumerate(zip(value.shape, row.spec.shape, strict=True))
            dim, length = next((d, part) for d, (all_, part) in pairs if all_ != part)
            value = value.narrow(dim, int(number) * length, length).contiguous()
        found[row.name] = value
    return found
