"""The models of a mix on this machine, for serving held against it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.probes.machine_speed import MachineSpeed, PanelTimes
from experiments.probes.panel import PanelRuns
from experiments.probes.phases import Phases
from experiments.probes.resting import wake_seconds
from experiments.probes.within_segments import start_seconds
from experiments.runs import catalog
from experiments.runs.world import models_of
from experiments.serving_validation.prediction import Conditions, ServingPrediction
from simulator.context.scheduler import Scheduler
from simulator.errors import ExecutionError
from simulator.model.graph import DataflowGraph
from simulator.model.workload import Workload

if TYPE_CHECKING:
    import torch

    from calibration.runner import Execution, Machine

PANEL_RUNS = 12
"""Of the panel that says how fast the machine is and what its devices cost each other, before and again after a run."""
RTOL, ATOL = 1e-4, 1e-4
"""Of an answer against the module's own: larger batches let kernels add up in another order."""


class Site:
    """The models of a mix on this machine.

    Args:
        prediction: of their requests; it says what schedulers believe.
        machine: made for its cluster.
        inputs: different ones of each model.
        at_speed: whether the simulation is of a machine as fast as this one is now.
        config_dirs: the user's configs.
    """

    def __init__(
        self,
        prediction: ServingPrediction,
        machine: Machine,
        inputs: int,
        at_speed: bool,
        config_dirs: Sequence[Path],
    ) -> None:
        from calibration.sequential import weights_of
        from scenarios.model_config import load_model

        scenario, world = prediction.scenario, prediction.world
        self.prediction = prediction
        self.machine = machine
        self.requests = prediction.requests
        self._panel = PanelRuns(machine) if at_speed else None
        self._known = Phases()
        self._said = PanelTimes(world.cluster, prediction.profiles, scenario.cost_model)
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

    def waking(self) -> list[float] | None:
        """What waking each device costs, in seconds, until it starts and in what it executes first; None where the
        profiles' speed is taken.
        """
        if self._panel is None:
            return None
        start = start_seconds(self.machine)
        return [start + longer for longer in wake_seconds(self.machine)]

    def _speed(self, overhead: float) -> MachineSpeed:
        """The mean of the panel's runs so far."""
        assert self._panel is not None
        alone, beside = self._panel.alone, self._panel.beside
        caches = self._panel.caches.runs()
        return self._said.speed(alone, beside, lambda s: float(s.mean()), overhead, caches=caches)

    @contextlib.contextmanager
    def timed(self, overhead: float) -> Iterator[list[Conditions]]:
        """Holds, when it is left, what the machine was found to be before and after what was done in it; as the
        profiles say where their speed is taken.
        """
        found: list[Conditions] = []
        panel = self._panel
        if panel is None:
            yield found
            found.append(Conditions())
            return
        panel.clear()
        before = _repeat(panel.run)
        yield found
        after = _repeat(panel.run)
        phases = Phases.of(panel, before, after)
        self.remember(phases)
        found.append(Conditions(self._speed(overhead), phases, self._known))

    def remember(self, phases: Phases) -> None:
        """How the speed wandered around a run: so it may around later ones."""
        self._known += phases

    def run(
        self, workload: Workload, scheduler: Scheduler, overhead: float, limit: float
    ) -> Execution:
        """One real run.

        Raises:
            ExecutionError: something failed, or an answer is not the module's.
        """
        simulation = self.prediction.scenario.simulation
        found = self.machine.run(
            workload,
            self.prediction.costs,
            scheduler,
            self._inputs,
            believed=self.prediction.cluster(overhead),
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
        from scenarios.outputs import run_module

        key = graph, own, turn
        if key not in self._expected:
            given = self._arguments[own][turn]
            self._expected[key] = run_module(self._modules[graph], given.args, given.kwargs)
        return self._expected[key]


def _repeat(run: Callable[[], None]) -> tuple[int, float]:
    """How often, and how many seconds that took."""
    began = time.monotonic()
    for _ in range(PANEL_RUNS):
        run()
    return PANEL_RUNS, time.monotonic() - began


def _named(graph: DataflowGraph, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    from calibration.sequential import named_inputs

    return named_inputs(graph, list(tensors))
