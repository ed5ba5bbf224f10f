"""Serving held against this machine: ``python -m experiments.validate_serving``.

One stream of requests is replayed at several loads under every scheduler twice: for real, by the wall
clock, on this machine's devices, and simulated with the times of the profiles that the cluster names; and
all of it ``repeats`` times, which says how well the machine itself repeats it.
Prints throughput and delays of both and leaves ``outputs/validation_serving/<name>/``: ``report.md``, a
figure, and for each run both traces. Finished runs are kept; the same command goes on with the others.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import OmegaConf

from experiments import atomic, catalog
from experiments.both_worlds import with_overhead
from experiments.cell import label_of, make_scheduler
from experiments.command import Invocation, sweeping_main
from experiments.configs import Scenario
from experiments.grid import compose_grid
from experiments.machine_speed import (
    MachineSpeed,
    PanelRuns,
    PanelTimes,
    check_speed,
    profiles_of,
)
from experiments.own_settings import key_of, read_own
from experiments.pricing import load_profiles
from experiments.progress import progress_bar
from experiments.provenance import ROOT, code_digest, digest, digest_files
from experiments.results import read_document
from experiments.serving_validation import (
    ServingCase,
    all_at_once,
    stretched,
    with_joining,
)
from experiments.simulate import make_console
from experiments.this_machine import differences_here
from experiments.world import World, models_of, prepare, source_digests
from scenarios.requests import RequestGraphs
from simulator.cluster import Cluster
from simulator.costs import CostTable
from simulator.engine import simulate
from simulator.errors import ExecutionError, HetsimError, InvalidInput
from simulator.graph import DataflowGraph
from simulator.scheduler import Scheduler
from simulator.schedulers import create
from simulator.serving_metrics import serving_metrics
from simulator.trace import Trace
from simulator.workload import Job, Workload

if TYPE_CHECKING:
    import torch

    from calibration.runner import Execution, Machine
    from calibration.workers import WorkerSpec

FORMAT = "hetsim.serving_case/1"
BURST_SECONDS = 3.0
"""Of work in a burst that the capacity is measured with, about."""
PANEL_RUNS = 8
"""Of the panel that says how fast the machine is, before and again after a run."""
BURSTS = 3
MOST_OF_A_BURST = 5000
"""Requests."""
JOINS = 7
"""Batches of each size from which the seconds of concatenating their inputs are taken."""
RTOL, ATOL = 1e-4, 1e-4
"""Of an answer against the module's own: larger batches let kernels add up in another order."""


@dataclass
class ServingSettings:
    """What ``conf/validate_serving.yaml`` holds; see there."""

    scheduler: str
    cluster: str
    workload: str
    mix: str
    max_batch: int
    name: str
    loads: list[float]
    seconds: float
    repeats: int
    inputs: int
    cores: list[int] | None
    speed: str
    again: bool

    def check(self) -> None:
        """Refuse numbers that make no validation.

        Raises:
            InvalidInput: names the key.
        """
        if not self.loads or not all(0 < load <= 100 for load in self.loads):
            raise InvalidInput(f"loads={self.loads}: give shares of the capacity above 0")
        if not 0 < self.seconds <= 86_400:
            raise InvalidInput(f"seconds={self.seconds}: give seconds above 0, a day at most")
        for name in ("repeats", "inputs"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)}: give at least 1")
        check_speed(self.speed)
        if not self.name or Path(self.name).name != self.name:
            raise InvalidInput(f"name={self.name}: give the name of a folder, not a path")


@dataclass(frozen=True)
class Contestant:
    """A scheduler, before it is run."""

    label: str
    scenario: Scenario
    make: Callable[[], Scheduler]


@dataclass
class Figures:
    """What was measured of this machine before the cases.

    Attributes:
        key: what it depends on.
        capacity_per_s: requests that it serves one at a time, all devices busy.
        simulated_capacity_per_s: the same, simulated.
        speed: how much longer operators took on average beside the bursts than the profiles say, as
            :meth:`MachineSpeed.to_json` has it; None if the profiles' speed is taken.
        dispatch_s: the runner's overhead per task under each scheduler, seconds.
        segment_s: seconds per operator within a segment beyond the operator's own.
        joining_s: seconds of concatenating a batch's inputs, by model and batch.
        load_average: of the machine over the minute before.
    """

    key: str
    capacity_per_s: float = 0.0
    simulated_capacity_per_s: float = 0.0
    speed: dict[str, Any] | None = None
    dispatch_s: dict[str, float] = field(default_factory=dict)
    segment_s: float = 0.0
    joining_s: dict[str, dict[str, float]] = field(default_factory=dict)
    load_average: float = 0.0


def read_settings(overrides: Sequence[str]) -> tuple[ServingSettings, list[str]]:
    """Settings of the command, and the overrides that describe scenarios, the defaults added.

    Raises:
        InvalidInput: a value of the wrong type or out of range.
    """
    document = OmegaConf.load(catalog.CONF / "validate_serving.yaml")
    groups = ("scheduler", "cluster", "workload")
    settings, rest = read_own(ServingSettings, overrides, document, apart=groups)
    settings.check()
    named = {key_of(word) for word in rest}
    rest += [f"{group}={getattr(settings, group)}" for group in groups if group not in named]
    if "workload" not in named:
        if "workload.mix" not in named:
            rest.append(f"workload.mix='{settings.mix}'")
        if "workload.deadline" not in named:
            rest.append("workload.deadline=null")
    if "workload.max_batch" not in named:
        rest.append(f"workload.max_batch={settings.max_batch}")
    return settings, rest


def plan(overrides: Sequence[str], config_dirs: Sequence[Path]) -> list[Contestant]:
    """The contestants, which meet the same requests.

    Raises:
        InvalidInput: a name that is unknown, or requests that cannot be replayed on hardware.
    """
    found = []
    for cell in compose_grid(overrides, config_dirs).cells:
        scenario = cell.scenario
        if scenario.bare:
            raise InvalidInput(
                "Instances and drawn graphs have no kernels to run; requests are for models"
            )
        if scenario.workload.arrivals in ("single", "closed"):
            raise InvalidInput(
                f"Workload '{scenario.workload.name}' has {scenario.workload.arrivals} arrivals; replay "
                "a stream that does not wait for answers (poisson, gamma, trace)"
            )
        if scenario.simulation.noise != "none" or scenario.simulation.faults:
            raise InvalidInput(
                "Validation holds predictions against runs; leave noise and faults out"
            )

        def make(scenario: Scenario = scenario) -> Scheduler:
            return make_scheduler(scenario.scheduler, scenario.seed.search, config_dirs)

        make()  # a misspelt option should not have to wait for a model
        found.append(Contestant(label_of(scenario.scheduler, config_dirs), scenario, make))
    for a, b in itertools.pairwise(found):
        first, second = (replace(c.scenario, scheduler=found[0].scenario.scheduler) for c in (a, b))
        if asdict(first) != asdict(second):
            raise InvalidInput(
                "Schedulers are compared on the same requests: vary the scheduler alone, and give each "
                "of the others a name=... of its own"
            )
    return found


# -- both worlds ----------------------------------------------------------------------------------


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

    def price(self, segment_s: float, joining: Mapping[str, Mapping[str, float]]) -> None:
        """Let the times contain what the runner needs within a segment and before a batch."""
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
        found.append(
            self._said.speed(panel.alone, panel.beside, lambda s: float(s.mean()), overhead)
        )

    def simulate(
        self,
        workload: Workload,
        scheduler: Scheduler,
        overhead: float,
        speed: MachineSpeed | None,
    ) -> Trace:
        """One simulated run on a machine of that speed, the runner's overhead included."""
        simulation = self.scenario.simulation
        corun = None if speed is None else speed.corun
        return simulate(
            workload,
            with_overhead(self.world.cluster, overhead, corun=corun),
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


def measure_machine(site: Site, base: Workload, key: str) -> Figures:
    """What the cases rest on, the schedulers apart; warms the machine up on the way.

    Args:
        site: the models on the machine.
        base: requests for bursts.
        key: what the figures depend on.

    Raises:
        HetsimError: something cannot be run, or an answer is not the module's.
    """
    from calibration.dispatch import DispatchProbe

    found = Figures(key, load_average=os.getloadavg()[0])
    probe = DispatchProbe(site.machine)
    found.segment_s = probe.segment_seconds(lambda: create("fcfs"))
    plain = probe.seconds(lambda: create("fcfs"))
    found.joining_s = _joining(site, plain)
    site.price(found.segment_s, found.joining_s)
    # Once to learn how many requests make a burst of a few seconds, then in earnest.
    rates: list[float] = []
    with site.timed(plain) as speeds:
        for number in range(BURSTS + 1):
            count = 16 if not number else max(16, round(rates[0] * BURST_SECONDS))
            burst = all_at_once(base, min(count, len(base)))
            trace = site.run(burst, create("fcfs"), plain, 600.0).trace
            rates.append(len(burst) / trace.makespan)
    (speed,) = speeds
    found.speed = None if speed is None else speed.to_json()
    simulated = site.simulate(burst, create("fcfs"), plain, speed)
    found.simulated_capacity_per_s = len(burst) / simulated.makespan
    found.capacity_per_s = float(np.median(rates[1:]))
    return found


def _joining(site: Site, overhead: float) -> dict[str, dict[str, float]]:
    """Median seconds of concatenating the inputs of batches of single items, by model and batch."""
    found: dict[str, dict[str, float]] = {}
    for name, model in site.requests.models.items():
        sizes = sorted(model.graphs)
        if 1 not in site.requests.sizes or name not in site.requests.shares:
            continue
        host = site.world.cluster.host
        job = Job(model.graphs[1], model=name, batch=1, origin=host, destination=host)
        for batch in sizes[1:]:
            workload = Workload([job] * batch, dict.fromkeys(model.graphs.values(), model.graphs))
            seconds = []
            for _ in range(JOINS):
                scheduler = create("fcfs_batching", max_batch=batch)
                trace = site.run(workload, scheduler, overhead, 600.0).trace
                seconds += [row[2] for row in trace.meta["joins"]]
            found.setdefault(name, {})[str(batch)] = float(np.median(seconds))
    return found


# -- the command ----------------------------------------------------------------------------------


def key_of_machine(
    scenario: Scenario,
    settings: ServingSettings,
    places: Sequence[str],
    config_dirs: Sequence[Path],
) -> str:
    """What the figures of a machine, and of its cases under any scheduler, depend on."""
    document = scenario.document()
    del document["scheduler"]
    own = {name: getattr(settings, name) for name in ("inputs", "cores", "speed")}
    sources = source_digests(scenario, config_dirs)
    sources.pop("scheduler", None)
    runner = digest_files(sorted((ROOT / "calibration").glob("*.py")))
    return digest([document, own, sources, list(places), code_digest(), runner])


def key_of_case(
    contestant: Contestant,
    rate: float,
    requests: int,
    settings: ServingSettings,
    figures: Figures,
    config_dirs: Sequence[Path],
) -> str:
    """What a case depends on; ``requests`` were drawn for the highest load."""
    mine = asdict(figures) | {"dispatch_s": figures.dispatch_s[contestant.label]}
    del mine["load_average"]
    scheduler = source_digests(contestant.scenario, config_dirs).get("scheduler")
    config = asdict(contestant.scenario.scheduler)
    return digest([config, scheduler, rate, requests, settings.seconds, mine])


def read_figures(path: Path, key: str) -> Figures | None:
    """What an earlier command measured of this machine, if nothing has changed since."""
    with contextlib.suppress(InvalidInput, TypeError):
        document = read_document(path) if path.is_file() else {}
        if document.get("key") == key:
            return Figures(**document)
    return None


def read_case(path: Path, key: str) -> ServingCase | None:
    """A finished case, if nothing has changed since."""
    with contextlib.suppress(InvalidInput, TypeError, KeyError):
        document = read_document(path) if path.is_file() else {}
        if document.get("key") == key and document.get("format") == FORMAT:
            return ServingCase(**document["case"])
    return None


def validate_serving(
    contestants: Sequence[Contestant],
    settings: ServingSettings,
    folder: Path,
    config_dirs: Sequence[Path],
    step: Callable[[str, int, int], None],
    finished: list[ServingCase],
) -> None:
    """Run and simulate every scheduler at every load, all of them before any is repeated: what changes over
    the minutes meets every case. Runs that are there already are only read.

    Args:
        contestants: the schedulers, on the same requests.
        settings: loads and so on.
        folder: where runs are kept.
        config_dirs: the user's configs.
        step: told what is being done, runs done and runs in all.
        finished: takes every run as soon as it is there.

    Raises:
        HetsimError: something cannot be run, or an answer is not the module's.
    """
    from calibration.dispatch import DispatchProbe
    from calibration.environment import described
    from calibration.runner import Machine
    from calibration.workers import workers_for

    scenario = contestants[0].scenario
    world = prepare(scenario, config_dirs)
    requests_of(world)
    workers = workers_for(world.cluster, settings.cores)
    places = sorted({spec.device for spec in workers.values()})
    schedule = list(itertools.product(range(1, settings.repeats + 1), settings.loads, contestants))
    total = len(schedule)
    here = [str(described(place)) for place in places]
    key = key_of_machine(scenario, settings, here, config_dirs)
    figures = None if settings.again else read_figures(folder / "machine.json", key)
    with Machine(world.cluster, workers, spin=False) as machine:
        step("loading", 0, total)
        at_speed = settings.speed == "now"
        site = Site(scenario, world, machine, workers, settings.inputs, at_speed, config_dirs)
        if figures is None:
            step("measuring capacity", 0, total)
            figures = measure_machine(site, _base(scenario, world, MOST_OF_A_BURST), key)
        new = [c for c in contestants if c.label not in figures.dispatch_s]
        probe = DispatchProbe(machine)
        figures.dispatch_s |= {c.label: probe.seconds(c.make) for c in new}
        atomic.write_json(folder / "machine.json", asdict(figures))
        site.price(figures.segment_s, figures.joining_s)
        needed = max(settings.loads) * figures.capacity_per_s * settings.seconds
        base = _base(scenario, world, round(1.2 * needed) + 50)
        for number, (run, load, contestant) in enumerate(schedule):
            step(f"{contestant.label} at {load:g}", number, total)
            cell = folder / "cells" / f"{load:g}-{_file_name(contestant.label)}" / str(run)
            rate = load * figures.capacity_per_s
            case_key = key_of_case(contestant, rate, len(base), settings, figures, config_dirs)
            case = None if settings.again else read_case(cell / "result.json", case_key)
            if case is None:
                workload = stretched(base, rate, settings.seconds)
                case = _measure(site, contestant, workload, load, run, figures, cell)
                atomic.write_json(
                    cell / "result.json", {"format": FORMAT, "key": case_key, "case": asdict(case)}
                )
            finished.append(case)


def foreign_profiles(
    scenario: Scenario, settings: ServingSettings, config_dirs: Sequence[Path]
) -> tuple[str, ...]:
    """In what the profiles were measured with something else than there is here, in sentences.

    Raises:
        InvalidInput: this machine lacks a device of the cluster.
    """
    from calibration.workers import workers_for

    cluster = prepare(scenario, config_dirs).cluster
    workers = workers_for(cluster, settings.cores)
    places = {d.profile: workers[d.name].device for d in cluster.devices if d.profile}
    return differences_here(load_profiles(scenario.cluster, scenario.cost_model), places)


def _measure(
    site: Site,
    contestant: Contestant,
    workload: Workload,
    load: float,
    run: int,
    figures: Figures,
    cell: Path,
) -> ServingCase:
    overhead = figures.dispatch_s[contestant.label]
    warm_up = contestant.scenario.workload.warm_up_s
    # Ten times of what the overload takes to serve, at least.
    limit = 60.0 + 10.0 * max(workload.jobs[-1].arrival, len(workload) / figures.capacity_per_s)
    with site.timed(overhead) as speeds:
        measured = site.run(workload, contestant.make(), overhead, limit).trace
    (speed,) = speeds
    simulated = site.simulate(workload, contestant.make(), overhead, speed)
    measured.save(cell / "measured")
    simulated.save(cell / "simulated")
    return ServingCase(
        load,
        contestant.label,
        dict(serving_metrics(measured, warm_up)),
        dict(serving_metrics(simulated, warm_up)),
        measured.wallclock.get("joining_seconds", 0.0),
        None if speed is None else speed.to_json(),
        run,
    )


def _base(scenario: Scenario, world: World, jobs: int) -> Workload:
    """The requests, as many as that where the arrivals are drawn."""
    if scenario.workload.arrivals != "trace":
        scenario = replace(scenario, workload=replace(scenario.workload, jobs=jobs))
    return world.workload(scenario)


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in label)


def command(invocation: Invocation) -> int:
    """Validate, write and print the report; returns the exit code."""
    # Read when the libraries load: one intra-op thread for whatever is not a worker, too.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from experiments.serving_validation_report import print_report, write_report

    console = make_console()
    settings, overrides = read_settings(invocation.overrides)
    contestants = plan(overrides, invocation.config_dirs)
    folder = Path(contestants[0].scenario.output_dir) / "validation_serving" / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    differences = foreign_profiles(contestants[0].scenario, settings, invocation.config_dirs)
    for text in differences:
        console.print(f"[yellow]{text}: measure it again[/yellow]")
    runs: list[ServingCase] = []
    stopped: BaseException | None = None
    # A thread that draws would disturb the workers.
    with progress_bar(console, auto_refresh=False) as progress:
        bar = progress.add_task("serving", total=None)

        def step(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total, refresh=True)

        try:
            validate_serving(contestants, settings, folder, invocation.config_dirs, step, runs)
        except (HetsimError, KeyboardInterrupt) as error:
            stopped = error  # what is finished is reported first
    if runs:
        figures = Figures(**read_document(folder / "machine.json"))
        profiles = prepare(contestants[0].scenario, invocation.config_dirs).profile_text
        write_report(runs, figures, profiles, differences, folder, invocation.command)
        print_report(runs, figures, folder, console)
    if stopped is not None:
        raise stopped
    return 0


HELP = """\
examples:
  scheduler=fcfs,task_groups loads=[0.5,0.9] seconds=10
  workload.mix='resnet18:1 googlenet:2' name=two
  workload=trace workload.file=requests.csv        the requests of a file, at these loads
  repeats=5 again=true                             more runs of every case; measure everything again
  cores=[2,3]                                      the cores of the workers
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.validate_serving",
        "Serve requests on this machine and hold the simulation of the same requests against it.",
        HELP,
        command,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
