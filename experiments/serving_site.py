"""The models of a mix on this machine and in simulation, for serving held against the machine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments import catalog
from experiments.both_worlds import with_overhead
from experiments.configs import Scenario
from experiments.machine_speed import MachineSpeed, PanelRuns, PanelTimes, profiles_of
from experiments.pricing import load_profiles
from experiments.resting import wake_seconds, with_waking
from experiments.serving_validation import with_joining
from experiments.world import World, models_of
from scenarios.requests import RequestGraphs
from simulator.cluster import Cluster
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import ExecutionError, InvalidInput
from simulator.graph import DataflowGraph
from simulator.scheduler import Scheduler
from simulator.trace import Trace
from simulator.workload import Workload

if TYPE_CHECKING:
    import torch

    from calibration.runner import Execution, Machine
    from calibration.workers import WorkerSpec

PANEL_RUNS = 12
"""Of the panel that says how fast the machine is and what its devices cost each other, before and again after a run."""
RTOL, ATOL = 1e-4, 1e-4
"""Of an answer against the module's own: larger batches let kernels add up in another order."""


class Site:
    """The models of a mix on this machine and in simulation, at the times of the profiles.

    Args:
        scenario: any of the contestants'.
        world: of the scenario.
        machine: made for its cluster.
        workers: where its devices are.
        inputs: different ones of each model.
        at_speed: whether the simulation is of a machine as fast as this one is now.
        config_dirs: the user's configs.
    """

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        machine: Machine,
        workers: Mapping[str, WorkerSpec],
        inputs: int,
        at_speed: bool,
        config_dirs: Sequence[Path],
    ) -> None:
        from calibration.sequential import weights_of
        from scenarios.model_config import load_model

        self.scenario = scenario
        self.world = world
        self.machine = machine
        self.requests = requests_of(world)
        self.costs: CostTable = world.costs
        self._profiles = load_profiles(scenario.cluster, scenario.cost_model)
        self._panel = PanelRuns(machine) if at_speed else None
        self._said = PanelTimes(world.cluster, self._profiles, scenario.cost_model)
        self._inputs: dict[DataflowGraph, list[dict[str, torch.Tensor]]] = {}
        self._modules: dict[DataflowGraph, torch.nn.Module] = {}
        self._arguments: dict[DataflowGraph, list[Any]] = {}
        self._expected: dict[tuple[DataflowGraph, DataflowGraph, int], list[Any]] = {}
        models = models_of(scenario, config_dirs)
        for name, served in self.requests.models.items():
            config = models.get(name)
            if config is None:
                target = catalog.resolve_class_path(scenario.model.target, config_dirs)
                config = replace(scenario.model, target=target)
            module, _ = load_model(config)
            for batch, graph in served.graphs.items():
                segments = served.segments.get(graph)
                fine = graph if segments is None else segments.fine
                machine.load(graph, weights_of(module, fine), segments)
                self._modules[graph] = module
                if batch in self.requests.sizes and name in self.requests.shares:
                    sets = [load_model(config, batch, seed=i)[1] for i in range(inputs)]
                    self._arguments[graph] = sets
                    self._inputs[graph] = [
                        _named(graph, [*given.args, *given.kwargs.values()]) for given in sets
                    ]

    def cluster(self, overhead: float) -> Cluster:
        """The cluster with an overhead for each task added to every device."""
        return with_overhead(self.world.cluster, overhead)

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
        self.costs = self._priced(None)

    def _priced(self, speed: MachineSpeed | None) -> CostTable:
        """Times of tasks, on a machine of that speed."""
        pricer = self.world.pricer
        assert pricer is not None
        fine = pricer.price(self.requests.fine)
        if speed is not None:
            profiles = profiles_of(self.world.cluster, self._profiles)
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

    def waking(self) -> list[float] | None:
        """What waking each device costs, in seconds; None where the profiles' speed is taken."""
        return None if self._panel is None else wake_seconds(self.machine)

    def _speed(self, overhead: float) -> MachineSpeed:
        """The mean of the panel's runs so far."""
        assert self._panel is not None
        alone, beside = self._panel.alone, self._panel.beside
        caches = self._panel.caches.runs()
        return self._said.speed(alone, beside, lambda s: float(s.mean()), overhead, caches=caches)

    @contextlib.contextmanager
    def timed(self, overhead: float) -> Iterator[list[MachineSpeed | None]]:
        """Holds, when it is left, how much longer operators took on average before and after what was done
        in it than the profiles say; None where the profiles' speed is taken.
        """
        found: list[MachineSpeed | None] = []
        panel = self._panel
        if panel is None:
            yield found
            found.append(None)
            return
        panel.clear()
        _repeat(panel.run)
        yield found
        _repeat(panel.run)
        found.append(self._speed(overhead))

    def simulate(
        self,
        workload: Workload,
        scheduler: Scheduler,
        overhead: float,
        speed: MachineSpeed | None,
    ) -> Trace:
        """One simulated run on a machine of that speed, the runner's overhead included.

        What busy devices cost each other is of the same panel runs as the speed: it changes within the hour, and
        a speed alone and a cost beside that were measured at different times are of no time the machine was in.
        """
        simulation = self.scenario.simulation
        caches = {space: curves[0] for space, curves in speed.reuse.items()} if speed else {}
        corun = speed.corun if speed else None
        cluster = with_overhead(self.world.cluster, overhead, corun=corun, caches=caches)
        return simulate(
            workload,
            cluster if self._wake_s is None else with_waking(cluster, self._wake_s),
            self.costs,
            scheduler,
            actual=self._priced(speed),
            movement=simulation.movement,
            contention=simulation.contention,
        )

    def run(
        self, workload: Workload, scheduler: Scheduler, overhead: float, limit: float
    ) -> Execution:
        """One real run.

        Raises:
            ExecutionError: something failed, or an answer is not the module's.
        """
        simulation = self.scenario.simulation
        found = self.machine.run(
            workload,
            self.costs,
            scheduler,
            self._inputs,
            believed=self.cluster(overhead),
            movement=simulation.movement,
            contention=simulation.contention,
            limit=limit,
        )
        self._check(workload, found, scheduler)
        return found

    def _check(self, workload: Workload, execution: Execution, scheduler: Scheduler) -> None:
        import torch

        from calibration.sequential import results_of

        turns: Counter[DataflowGraph] = Counter()
        rows = zip(workload, execution.outputs, execution.graphs, strict=True)
        for number, (job, outputs, graph) in enumerate(rows):
            turn = turns[job.graph] % len(self._inputs[job.graph])
            turns[job.graph] += 1
            if execution.trace.jobs["status"][number] != "finished":
                continue
            on_host = {name: tensor.cpu() for name, tensor in outputs.items()}
            try:
                torch.testing.assert_close(
                    results_of(graph, on_host),
                    self._expected_of(graph, job.graph, turn),
                    rtol=RTOL,
                    atol=ATOL,
                )
            except AssertionError as error:
                raise ExecutionError(
                    f"Request {number} for '{job.model}' under '{scheduler.name}' does not get the "
                    f"module's answer: {' '.join(str(error).split())}"
                ) from None

    def _expected_of(self, graph: DataflowGraph, own: DataflowGraph, turn: int) -> list[Any]:
        import torch
        from torch.utils import _pytree as pytree

        key = graph, own, turn
        if key not in self._expected:
            given = self._arguments[own][turn]
            with torch.inference_mode():
                result = self._modules[graph](*given.args, **given.kwargs)
            self._expected[key] = pytree.tree_leaves(result)
        return self._expected[key]


def _repeat(run: Callable[[], None]) -> None:
    for _ in range(PANEL_RUNS):
        run()


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


def _named(graph: DataflowGraph, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    from calibration.sequential import named_inputs

    return named_inputs(graph, list(tensors))
