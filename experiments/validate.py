"""Simulation held against this machine: ``python -m experiments.validate model=gpt2 scheduler=heft,fcfs``.

Every model runs under every scheduler twice: simulated, from the profiles that the cluster names, and
for real, by the same scheduler on this machine's devices. Leaves ``outputs/validation/<time>/`` with
``report.md``, figures, tables and both traces of every case, and prints the answer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import TaskID

from experiments import atomic, catalog
from experiments.cell import label_of, make_scheduler
from experiments.command import Invocation, sweeping_main
from experiments.configs import Scenario
from experiments.grid import compose_grid
from experiments.own_settings import key_of, read_own
from experiments.pricing import Pricer, load_profiles
from experiments.progress import progress_bar
from experiments.simulate import make_console
from experiments.validation import (
    Case,
    durations,
    error_steps,
    nearest,
    statistic_of,
)
from experiments.world import World, prepare
from simulator.cluster import Cluster
from simulator.costs import CostTable, NoiseModel
from simulator.engine import simulate
from simulator.errors import HetsimError, InvalidInput
from simulator.graph import DataflowGraph
from simulator.scheduler import Scheduler
from simulator.schedulers import create
from simulator.trace import Trace
from simulator.workload import Workload

if TYPE_CHECKING:
    from calibration.runner import Execution, Machine

MOST_REPEATS = 200


@dataclass
class ValidateSettings:
    """What ``conf/validate.yaml`` holds; see there."""

    model: str
    scheduler: str
    cluster: str
    warmup: int
    repeats: int
    seconds: float
    cores: list[int] | None
    limit: float
    held_out: bool

    def check(self) -> None:
        """Refuse numbers that make no validation.

        Raises:
            InvalidInput: names the key.
        """
        if self.warmup < 0 or self.repeats < 2:
            raise InvalidInput(
                f"warmup={self.warmup}, repeats={self.repeats}: give warmup >= 0 and repeats >= 2"
            )
        if not (self.seconds >= 0 and self.limit > 0):
            raise InvalidInput(
                f"seconds={self.seconds}, limit={self.limit}: give seconds >= 0 and limit > 0"
            )


@dataclass(frozen=True)
class Contestant:
    """A scheduler on a model, before it is run."""

    label: str
    scenario: Scenario
    make: Callable[[], Scheduler]


@dataclass(frozen=True)
class ModelValidation:
    """What came of one model.

    Attributes:
        predicted: float64[operators, devices] seconds.
        alone: float64[operators, devices] measured seconds, all operators on that device.
        dispatch_s: the runner's overhead per operator under each scheduler, seconds.
        repeats: measured runs of each case.
        statistic: taken of them.
        profiles: what the prediction rests on.
        busy: cores that other processes kept busy before the runs; NaN where the system does not say.
        differences: in what the profiles were measured with something else than there is here.
    """

    model: str
    graph: DataflowGraph
    devices: tuple[str, ...]
    cases: tuple[Case, ...]
    predicted: np.ndarray
    alone: np.ndarray
    dispatch_s: dict[str, float]
    repeats: int
    statistic: str
    profiles: str
    busy: float
    differences: tuple[str, ...] = ()


@dataclass
class Validation:
    """All of it, model by model."""

    models: list[ModelValidation] = field(default_factory=list)

    @property
    def cases(self) -> list[Case]:
        """Cases of all models."""
        return [case for model in self.models for case in model.cases]


def read_settings(overrides: Sequence[str]) -> tuple[ValidateSettings, list[str]]:
    """Settings of the command, and the overrides that describe scenarios, the defaults added.

    Raises:
        InvalidInput: a value of the wrong type or out of range.
    """
    document = OmegaConf.load(catalog.CONF / "validate.yaml")
    groups = ("model", "scheduler", "cluster")
    settings, rest = read_own(ValidateSettings, overrides, document, apart=groups)
    settings.check()
    named = {key_of(word) for word in rest}
    if "experiment" not in named:  # a preset says itself what it runs
        rest += [f"{group}={getattr(settings, group)}" for group in groups if group not in named]
    return settings, rest


def plan_validation(
    overrides: Sequence[str], config_dirs: Sequence[Path]
) -> list[list[Contestant]]:
    """The contestants, model by model.

    Raises:
        InvalidInput: a name that is unknown, or a scenario that cannot be run on hardware.
    """
    groups: dict[str, list[Contestant]] = {}
    for cell in compose_grid(overrides, config_dirs).cells:
        scenario = cell.scenario
        if scenario.bare:
            raise InvalidInput(
                "Instances and drawn graphs have no kernels to run; validate takes models"
            )
        if scenario.workload.arrivals != "single" or scenario.workload.jobs != 1:
            raise InvalidInput("Validation runs one job at a time; leave workload at single")
        if scenario.simulation.noise != "none":
            raise InvalidInput("Validation holds predictions against runs; leave noise at none")

        def make(scenario: Scenario = scenario) -> Scheduler:
            return make_scheduler(scenario.scheduler, scenario.seed.search, config_dirs)

        make()  # a misspelt option should not have to wait for a model
        label = label_of(scenario.scheduler, config_dirs)
        contestant = Contestant(label, scenario, make)
        key = repr((asdict(scenario.model), asdict(scenario.cluster), asdict(scenario.cost_model)))
        groups.setdefault(key, []).append(contestant)
    return list(groups.values())


# -- one model ------------------------------------------------------------------------------------


class _Prediction:
    """Simulates the contestants of one model, the runner's overhead included."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.workload: Workload = world.workload(scenario)
        self.simulation = scenario.simulation

    def cluster(self, overhead: float) -> Cluster:
        """The cluster with what the runner needs for an operator added to every device."""
        cluster = self.world.cluster
        devices = [
            replace(device, launch_overhead=device.launch_overhead + overhead)
            for device in cluster.devices
        ]
        return replace(cluster, devices=devices)

    def run(
        self,
        contestant: Contestant,
        overhead: float,
        actual: CostTable | NoiseModel | None = None,
        seed: int = 0,
    ) -> Trace:
        """One simulated run."""
        return simulate(
            self.workload,
            self.cluster(overhead),
            self.world.costs,
            contestant.make(),
            actual=actual,
            movement=self.simulation.movement,
            contention=self.simulation.contention,
            seed=seed,
        )

    def interval(self, contestant: Contestant, overhead: float) -> tuple[float, float]:
        """The 95% interval of the makespan from draws of the predictor's errors."""
        seed = contestant.scenario.seed.noise
        draws = [
            self.run(contestant, overhead, actual=actual, seed=seed + number + 1).makespan
            for number, actual in enumerate(self.world.draws(contestant.scenario))
        ]
        if not draws:
            return float("nan"), float("nan")
        low, high = np.percentile(draws, [2.5, 97.5]).tolist()
        return low, high


class _Hardware:
    """Runs contestants for real and checks every result against the module's."""

    def __init__(self, machine: Machine, world: World, scenario: Scenario, limit: float) -> None:
        import torch
        from torch.utils import _pytree as pytree

        from calibration.sequential import named_inputs, weights_of
        from scenarios.model_config import load_model

        self.machine = machine
        self.graph = world.graph
        self.costs = world.costs
        self.simulation = scenario.simulation
        self.limit = limit
        target = catalog.resolve_class_path(scenario.model.target)
        module, inputs = load_model(replace(scenario.model, target=target))
        with torch.inference_mode():
            self.expected = pytree.tree_leaves(module(*inputs.args, **inputs.kwargs))
        given = [*inputs.args, *inputs.kwargs.values()]
        self.inputs = {self.graph: named_inputs(self.graph, given)}
        machine.load(self.graph, weights_of(module, self.graph))

    def run(self, workload: Workload, scheduler: Scheduler, believed: Cluster) -> Trace:
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
            movement=self.simulation.movement,
            contention=self.simulation.contention,
            limit=self.limit,
        )
        self._check(execution, scheduler)
        return execution.trace

    def _check(self, execution: Execution, scheduler: Scheduler) -> None:
        import torch

        from calibration.sequential import results_of
        from simulator.errors import ExecutionError

        for outputs in execution.outputs:
            on_host = {name: tensor.cpu() for name, tensor in outputs.items()}
            try:
                torch.testing.assert_close(results_of(self.graph, on_host), self.expected)
            except AssertionError as error:
                raise ExecutionError(
                    f"'{self.graph.name}' under '{scheduler.name}' does not give the module's result: "
                    f"{' '.join(str(error).split())}"
                ) from None


def validate_model(
    contestants: Sequence[Contestant],
    settings: ValidateSettings,
    config_dirs: Sequence[Path],
    step: Callable[[str, int, int], None],
) -> ModelValidation:
    """Simulate and run one model under all its schedulers.

    Args:
        contestants: of one model, cluster and cost model.
        settings: repeats and so on.
        config_dirs: the user's configs.
        step: told the model, runs done and runs in all.

    Raises:
        HetsimError: something cannot be run, or did not give the module's result.
    """
    from calibration.dispatch import DispatchProbe
    from calibration.environment import described
    from calibration.runner import Machine
    from calibration.workers import workers_for

    scenario = contestants[0].scenario
    world = prepare(scenario, config_dirs)
    profiles = load_profiles(scenario.cluster, scenario.cost_model)
    workers = workers_for(world.cluster, settings.cores)
    statistics = {profile.statistic or "minimum" for profile in profiles.values()}
    if len(statistics) > 1:
        raise InvalidInput(
            f"The profiles of cluster '{world.cluster.name}' hold different statistics "
            f"({', '.join(sorted(statistics))}); fit them with the same one"
        )
    (statistic,) = statistics
    prediction = _Prediction(world, scenario)
    unseen = _unseen_costs(world, scenario) if settings.held_out else None
    busy = busy_cores()
    devices = [device.name for device in world.cluster.devices]
    places = {d.profile: workers[d.name].device for d in world.cluster.devices if d.profile}
    differences = tuple(
        f"profile '{name}' was measured with {text}"
        for name, profile in profiles.items()
        for text in profile.differences(described(places[name]))
    )
    with Machine(world.cluster, workers) as machine:
        probe = DispatchProbe(machine)
        overheads = {c.label: probe.seconds(c.make) for c in contestants}
        plain = probe.seconds(lambda: create("single_device"))
        hardware = _Hardware(machine, world, scenario, settings.limit)

        # What is run in turn: the contestants, then everything on each device alone.
        turns: list[tuple[Callable[[], Scheduler], Cluster]] = [
            (c.make, prediction.cluster(overheads[c.label])) for c in contestants
        ]
        turns += [(_alone(name), prediction.cluster(plain)) for name in devices]

        def round_of_runs() -> list[Trace]:
            return [hardware.run(prediction.workload, make(), cluster) for make, cluster in turns]

        longest = 0.0
        for _ in range(settings.warmup):
            step(scenario.model.name, 0, 1)
            longest = min(trace.makespan for trace in round_of_runs())
        repeats = settings.repeats
        if longest:
            repeats = max(repeats, min(MOST_REPEATS, round(settings.seconds / longest)))
        rounds = []
        for number in range(repeats):
            rounds.append(round_of_runs())
            step(scenario.model.name, number + 1, repeats)

    shape = (len(world.graph), len(devices))
    alone = np.full(shape, np.nan)
    for column in range(len(devices)):
        runs = [traces[len(contestants) + column] for traces in rounds]
        alone[:, column] = statistic_of(durations(runs, *shape)[:, :, column], statistic)
    cases = []
    for position, contestant in enumerate(contestants):
        traces = [traces[position] for traces in rounds]
        repeats_s = np.array([trace.makespan for trace in traces])
        # One run stands for all, so that the steps of the error add up: the nearest to the statistic.
        measured = nearest(traces, float(statistic_of(repeats_s, statistic)))
        overhead = overheads[contestant.label]
        simulated = prediction.run(contestant, overhead)
        low, high = prediction.interval(contestant, overhead)
        cases.append(
            Case(
                scenario.model.name,
                contestant.label,
                simulated,
                measured,
                simulated.makespan,
                low,
                high,
                # The same scheduler with the same beliefs; only what happens is predicted anew.
                prediction.run(contestant, overhead, unseen).makespan if unseen else float("nan"),
                repeats_s,
                measured.makespan,
                error_steps(
                    world.graph,
                    prediction.cluster(overhead),
                    world.costs,
                    simulated.makespan,
                    measured,
                    alone,
                    prediction.simulation.movement,
                    prediction.simulation.contention,
                ),
            )
        )
    return ModelValidation(
        scenario.model.name,
        world.graph,
        tuple(devices),
        tuple(cases),
        world.costs[world.graph].seconds,
        alone,
        overheads,
        repeats,
        statistic,
        world.profile_text,
        busy,
        differences,
    )


def busy_cores(seconds: float = 0.5) -> float:
    """How many cores others keep busy while this process sleeps; NaN where ``/proc/stat`` is not."""
    try:
        before = _processor_ticks()
        time.sleep(seconds)
        after = _processor_ticks()
    except (OSError, ValueError, IndexError):
        return float("nan")
    spent = [b - a for a, b in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]  # idle, and waiting for input or output
    return (1 - idle / sum(spent)) * (os.cpu_count() or 1) if sum(spent) else 0.0


def _processor_ticks() -> list[int]:
    # user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user's.
    return [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _alone(device: str) -> Callable[[], Scheduler]:
    return lambda: create("single_device", device=device)


def _unseen_costs(world: World, scenario: Scenario) -> CostTable:
    """Times from profiles fitted without the model's own operators."""
    profiles = {}
    for name, profile in load_profiles(scenario.cluster, scenario.cost_model).items():
        try:
            model = profile.model_name(scenario.cost_model.name)
            profiles[name] = profile.without(scenario.model.name, (model,))
        except InvalidInput:
            profiles[name] = profile  # it never saw this model
    return Pricer(world.cluster, profiles, scenario.cost_model).price([world.graph])


# -- the command ----------------------------------------------------------------------------------


def validate_command(invocation: Invocation) -> int:
    """Validate all models, write and print the report; returns the exit code."""
    # Read when the libraries load: one intra-op thread for whatever is not a worker, too.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from experiments.validation_report import print_report, write_model, write_report

    console = make_console()
    settings, overrides = read_settings(invocation.overrides)
    groups = plan_validation(overrides, invocation.config_dirs)
    folder = _new_folder(Path(groups[0][0].scenario.output_dir) / "validation")
    atomic.write_text(folder / "command.txt", invocation.command + "\n")
    validation = Validation()
    stopped: BaseException | None = None
    with _progress(console) as step:
        for group in groups:
            try:
                model = validate_model(group, settings, invocation.config_dirs, step)
            except (HetsimError, KeyboardInterrupt) as error:
                stopped = error  # what is finished is reported first
                break
            validation.models.append(model)
            write_model(model, folder)
    if validation.models:
        write_report(validation, folder, invocation.command)
        print_report(validation, folder, console)
    if stopped is not None:
        raise stopped
    return 0


def _new_folder(parent: Path) -> Path:
    stem = time.strftime("%Y%m%d_%H%M%S")
    for number in range(10_000):
        folder = parent / (stem if not number else f"{stem}.{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise RuntimeError(f"cannot make a new folder in {parent}")


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each model."""
    # A thread that draws would disturb the workers.
    with progress_bar(console, auto_refresh=False) as progress:
        bars: dict[str, TaskID] = {}

        def step(model: str, done: int, total: int) -> None:
            if model not in bars:
                bars[model] = progress.add_task(f"running {model}", total=total)
            progress.update(bars[model], completed=done, total=total, refresh=True)

        yield step


HELP = """\
examples:
  model=gpt2,bert_base scheduler=heft,fcfs
  repeats=50 held_out=true           also from profiles fitted without the model's own operators
  cores=[2,3]                        the cores of the workers
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.validate",
        "Run models under schedulers on this machine and hold the simulation against it.",
        HELP,
        validate_command,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
