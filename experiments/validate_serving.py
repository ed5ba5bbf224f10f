"""Serving held against this machine: ``python -m experiments.validate_serving``.

One stream of requests is replayed at several loads under every scheduler twice: for real, by the wall
clock, on this machine's devices, and simulated with the times of the profiles that the cluster names; and
all of it ``repeats`` times, which says how well the machine itself repeats it.
Prints throughput and delays of both, with predicted intervals, and leaves ``outputs/validation_serving/<name>/``: ``report.md``, a
figure, and for each run both traces. Finished runs are kept; the same command goes on with the others.
"""

from __future__ import annotations

from experiments.runs.help import answered

if __name__ == "__main__" and answered("validate_serving"):
    raise SystemExit

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

from experiments.probes.machine_speed import check_speed
from experiments.probes.phases import Phases
from experiments.probes.within_segments import task_seconds
from experiments.runs import atomic, catalog
from experiments.runs.cell import label_of, scheduler_of
from experiments.runs.command import Invocation, sweeping_main
from experiments.runs.configs import Scenario
from experiments.runs.console import make_console
from experiments.runs.file_name import folder_name
from experiments.runs.grid import compose_grid
from experiments.runs.own_settings import key_of, read_own
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import ROOT, code_digest, digest, digest_files
from experiments.runs.results import read_document
from experiments.runs.this_machine import cluster_here, differences_here
from experiments.runs.world import World, source_digests
from experiments.serving_validation.figures import Figures, measure_machine
from experiments.serving_validation.outcome import ServingCase, drawn_figures, figures_of, stretched
from experiments.serving_validation.prediction import ServingPrediction, requests_of
from experiments.serving_validation.site import Site
from simulator.context.scheduler import Scheduler
from simulator.errors import HetsimError, InvalidInput
from simulator.model.workload import Workload

FORMAT = "hetsim.serving_case/3"
MOST_OF_A_BURST = 5000
"""Requests."""


@dataclass
class ServingSettings:
    """What ``conf/validate_serving.yaml`` holds; see there."""

    scheduler: str
    cluster: list[str]
    workload: str
    mix: str
    max_batch: int
    name: str
    loads: list[float]
    seconds: float
    repeats: int
    draws: int
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
        if self.draws < 0 or self.draws == 1:
            raise InvalidInput(f"draws={self.draws}: an interval needs at least 2; 0 for none")
        check_speed(self.speed)
        folder_name("name", self.name)


@dataclass(frozen=True)
class Contestant:
    """A scheduler, before it is run."""

    label: str
    scenario: Scenario
    make: Callable[[], Scheduler]


def read_settings(overrides: Sequence[str]) -> tuple[ServingSettings, list[str]]:
    """Settings of the command, and the overrides that describe scenarios, the defaults added.

    Raises:
        InvalidInput: a value of the wrong type or out of range.
    """
    document = OmegaConf.load(catalog.CONF / "validate_serving.yaml")
    settings, rest = read_own(
        ServingSettings, overrides, document, apart=("scheduler", "cluster", "workload")
    )
    settings.check()
    named = {key_of(word) for word in rest}
    defaults = {
        "scheduler": settings.scheduler,
        "workload": settings.workload,
    }
    rest += [f"{group}={words}" for group, words in defaults.items() if group not in named]
    if "cluster" not in named:
        rest += cluster_here(settings.cluster)
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
    for cell in compose_grid(overrides, config_dirs, takes=("output_dir",)).cells:
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
            return scheduler_of(scenario, config_dirs)

        make()  # a misspelt option should not have to wait for a model
        found.append(Contestant(label_of(scenario, config_dirs), scenario, make))
    for a, b in itertools.pairwise(found):
        first, second = (replace(c.scenario, scheduler=found[0].scenario.scheduler) for c in (a, b))
        if asdict(first) != asdict(second):
            raise InvalidInput(
                "Schedulers are compared on the same requests: vary the scheduler alone, and give each "
                "of the others a name=... of its own"
            )
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
    return digest([config, scheduler, rate, requests, settings.seconds, settings.draws, mine])


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
        prediction = ServingPrediction(scenario, world)
        site = Site(prediction, machine, settings.inputs, at_speed, config_dirs)
        if figures is None:
            step("measuring capacity", 0, total)
            figures = measure_machine(site, _base(scenario, world, MOST_OF_A_BURST), key)
        new = [c for c in contestants if c.label not in figures.dispatch_s]
        figures.dispatch_s |= {c.label: task_seconds(machine, c.make) for c in new}
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_json(folder / "machine.json", asdict(figures))
        prediction.price(figures.segment_s, figures.joining_s, figures.wake_s)
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
                case = _measure(
                    site, contestant, workload, load, run, figures, settings.draws, cell
                )
                atomic.write_json(
                    cell / "result.json", {"format": FORMAT, "key": case_key, "case": asdict(case)}
                )
            elif case.phases is not None:
                site.remember(Phases.of_json(case.phases))
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
    draws: int,
    cell: Path,
) -> ServingCase:
    overhead = figures.dispatch_s[contestant.label]
    warm_up = contestant.scenario.workload.warm_up_s
    # Ten times of what the overload takes to serve, at least.
    limit = 60.0 + 10.0 * max(workload.jobs[-1].arrival, len(workload) / figures.capacity_per_s)
    with site.timed(overhead) as around:
        measured = site.run(workload, contestant.make(), overhead, limit).trace
    (conditions,) = around
    prediction, setting = site.prediction, (overhead, conditions)
    steady = prediction.steady(workload, contestant.make(), *setting)
    drawn = prediction.drawn(workload, contestant.make, *setting, steady, draws) if draws else ()
    each = [figures_of(trace, warm_up) for trace in drawn]
    simulated, low, high = drawn_figures(each) if each else (figures_of(steady, warm_up), {}, {})
    told = prediction.told(workload, contestant.make, *setting, measured, steady)
    own_speed, own_phases = (figures_of(trace, warm_up) for trace in told)
    measured.save(cell / "measured")
    steady.save(cell / "simulated")
    return ServingCase(
        load,
        contestant.label,
        figures_of(measured, warm_up),
        simulated,
        measured.wallclock.get("joining_seconds", 0.0),
        None if conditions.speed is None else conditions.speed.to_json(),
        run,
        low,
        high,
        figures_of(steady, warm_up),
        own_speed,
        own_phases,
        None if conditions.speed is None else conditions.phases.to_json(),
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
    from experiments.serving_validation.report import print_report, write_report

    console = make_console()
    settings, overrides = read_settings(invocation.overrides)
    contestants = plan(overrides, invocation.config_dirs)
    folder = Path(contestants[0].scenario.output_dir) / "validation_serving" / settings.name
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return sweeping_main(
        "experiments.validate_serving",
        command,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
