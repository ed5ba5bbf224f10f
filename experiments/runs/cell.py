"""One simulated scenario: the run itself, its interval, and what it is measured against."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runs import catalog
from experiments.runs.configs import (
    PartitionConfig,
    Scenario,
    SchedulerConfig,
    scheduler_label,
)
from experiments.runs.discrepancy import discrepancies
from experiments.runs.prepare import partitioner_of, prepare
from experiments.runs.provenance import config_digest, revision, versions
from experiments.runs.structure import width
from experiments.runs.validity import Validity
from experiments.runs.world import World
from scenarios.requests import asked_for
from simulator import schedulers
from simulator.analysis.bounds import Bounds
from simulator.analysis.dependencies import Dependencies
from simulator.analysis.metrics import metrics
from simulator.analysis.serving_metrics import serving_metrics
from simulator.analysis.streamed_figures import StreamedFigures
from simulator.analysis.training_metrics import training_metrics
from simulator.analysis.unloaded import SAMPLE, unloaded_seconds
from simulator.context.scheduler import Scheduler
from simulator.engine.run import simulate, simulate_stream
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable
from simulator.model.noise import NoiseModel
from simulator.model.plan import Plan
from simulator.model.trace import Trace
from simulator.model.workload import Workload

FORMAT = "hetsim.result/1"


@dataclass(frozen=True)
class Outcome:
    """What came of one scenario.

    Attributes:
        trace: None where the scenario keeps figures alone.
        draws: makespans in seconds of the draws, paired between schedulers of one world.
        figures: ``makespan_s``, ``bound_s``, ``best_device_s``, ... as in ``result.json``.
        wallclock: seconds that this machine took; they differ from run to run.
    """

    scenario: Scenario
    label: str
    world: World
    trace: Trace | None
    draws: tuple[float, ...]
    figures: Mapping[str, Any]
    wallclock: Mapping[str, float]

    @property
    def validity(self) -> Validity:
        """In which world its devices were validated."""
        planned = self.world.partition is not None or self.scenario.scheduler.name == "planned"
        return self.world.validity(planned)

    def result(self) -> dict[str, Any]:
        """The document of ``result.json``."""
        bare = self.scenario.bare
        config = self.scenario.document()
        return {
            "format": FORMAT,
            "hash": config_digest(config)[:12],
            "status": "done",
            "labels": {
                "model": self.world.graph.name if bare else model_label(self.scenario),
                "batch": self.world.graph.batch or 1,
                "cluster": self.world.cluster.name,
                "scheduler": self.label,
                "workload": self.scenario.workload.name,
                "profiles": self.world.profile_text,
            },
            "config": config,
            "seeds": dataclasses.asdict(self.scenario.seed),
            "versions": versions(),
            "revision": revision(),
            "profiles": [dataclasses.asdict(profile) for profile in self.world.profiles],
            "graph": {"name": self.world.graph.name, "digest": self.world.graph.digest},
            "metrics": dict(self.figures),
            "draws": list(self.draws),
            "wallclock": dict(self.wallclock),
            # Whether the same config gives the same result.
            "reproducible": self.scenario.simulation.decision_cost.charge != "wallclock",
            **({"notes": list(self.world.notes)} if self.world.notes else {}),
            "compared": self.world.compared(self.scenario),
            "validity": dataclasses.asdict(self.validity),
            **({} if self.world.partition is None else {"plan": self.world.partition.summary()}),
        }


def make_scheduler(
    config: SchedulerConfig,
    search_seed: int = 0,
    config_dirs: Sequence[Path] = (),
    plan: Plan | None = None,
) -> Scheduler:
    """A fresh scheduler; one that takes a ``seed`` gets ``seed.search`` unless its options say one, and one that takes
    a ``plan`` gets that of the partition.

    Raises:
        InvalidInput: there is no such scheduler, or it does not take these options.
    """
    path = catalog.resolve_class_path(config.class_path or config.name, config_dirs)
    options = dict(config.options)
    takes = inspect.signature(schedulers.resolve(path)).parameters
    if "seed" in takes:
        options.setdefault("seed", search_seed)
    if "plan" in takes and plan is not None:
        options["plan"] = plan
    return schedulers.create(path, **options)


def scheduler_of(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> Scheduler:
    """A fresh scheduler of a scenario, with the plan of its partition."""
    made = None
    if scenario.partition.partitions:
        made = prepare(scenario, config_dirs).partition
    plan = None if made is None else made.plan
    return make_scheduler(scenario.scheduler, scenario.seed.search, config_dirs, plan)


def check_method(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> None:
    """Refuse a scheduler or a partition that there is not, before any work is done.

    Raises:
        InvalidInput: it is unknown, or does not take its options; or the scheduler does not execute the plan.
    """
    if scenario.partition.partitions:
        partitioner_of(scenario, config_dirs)
    make_scheduler(scenario.scheduler, scenario.seed.search, config_dirs)


def label_of(scenario: Scenario, config_dirs: Sequence[Path] = ()) -> str:
    """The name of a method in tables: scheduler or partition, with the options that differ from its entry. A scheduler
    that runs what a partition made has both: ``heft on tensor_split``.
    """

    def label(group: str, config: SchedulerConfig | PartitionConfig) -> str:
        entry = catalog.entry(group, config.name, config_dirs)
        options = None if entry is None else entry.content.get("options") or {}
        return scheduler_label(config, options)

    scheduler = label("scheduler", scenario.scheduler)
    if not scenario.partition.partitions:
        return scheduler
    partition = label("partition", scenario.partition)
    return partition if scenario.scheduler.name == "planned" else f"{scheduler} on {partition}"


def model_label(scenario: Scenario) -> str:
    """What tables call the model of a scenario that is not bare; of requests the mix that is asked for."""
    try:
        return asked_for(scenario.workload, scenario.model.name)
    except InvalidInput:  # of a run that failed for it
        return scenario.model.name


class Runs:
    """A scenario's scheduler on its world, run as often as asked for; what it plans it plans once.

    Args:
        scenario: settled.
        world: of the scenario.
        config_dirs: the user's folders of configs.

    Raises:
        HetsimError: the faults do not fit the cluster, or the workload cannot be made.
    """

    def __init__(self, scenario: Scenario, world: World, config_dirs: Sequence[Path] = ()) -> None:
        self.scenario, self.world = scenario, world
        self._config_dirs = config_dirs
        self._workload = world.workload(scenario)
        simulation = scenario.simulation
        self._faults = world.faults(scenario)
        self._faults.check(world.cluster)
        self._decision_cost = simulation.decision_cost.build()
        self._first: Scheduler | None = None
        self._nominal: Trace | StreamedFigures | None = None

    def nominal(self, explain: Callable[[str], None] | None = None) -> Trace:
        """The run itself."""
        trace = self._nominal = self.run(*self._itself, explain)
        return trace

    def nominal_figures(self, explain: Callable[[str], None] | None = None) -> StreamedFigures:
        """The figures of the run itself."""
        figures = self._nominal = self.stream(*self._itself, explain)
        return figures

    @property
    def _itself(self) -> tuple[NoiseModel | None, int]:
        """What happens in the run itself, and its seed."""
        return self.world.actual(self.scenario.simulation), self.scenario.seed.noise

    def draws(self) -> Iterator[float]:
        """Makespans in seconds of the draws, each with a seed apart from that of the run itself."""
        run = self.run if self.scenario.keep is None else self.stream
        factors = self._discrepancies()
        for number, actual in enumerate(self.world.draws(self.scenario)):
            yield run(actual, self.seed_of_draw(number)).makespan * factors[number]

    def _discrepancies(self) -> np.ndarray:
        """float64[draws]: what the schedule is off by in each draw; 1 where nobody predicted anything."""
        simulation = self.scenario.simulation
        if self.world.pricer is None or simulation.replaces_predictor_error:
            return np.ones(simulation.draws)
        run = self._nominal
        if run is None:
            run = self.nominal() if self.scenario.keep is None else self.nominal_figures()
        return discrepancies(
            simulation.discrepancy, run, simulation.draws, self.scenario.seed.noise
        )

    def drawn(self) -> Iterator[tuple[float, Mapping[str, Any]]]:
        """Of the same draws the makespan and the figures of requests; none where jobs are no requests."""
        accuracies = self.scenario.workload.accuracies
        run = self.run if self.scenario.keep is None else self.stream
        unloaded = None if self.world.requests is None else self.unloaded()
        factors = self._discrepancies()
        for number, actual in enumerate(self.world.draws(self.scenario)):
            found = run(actual, self.seed_of_draw(number))
            served: Mapping[str, Any] = {}
            if isinstance(found, StreamedFigures):
                served = found.serving(accuracies, unloaded)
            elif unloaded is not None:
                warm_up = self.scenario.workload.warm_up_s
                served = serving_metrics(found, warm_up, accuracies, unloaded)
            yield found.makespan * factors[number], served

    def seed_of_draw(self, number: int) -> int:
        """What a draw's noise is drawn with."""
        return self.scenario.seed.noise + 1_000_003 * (number + 1)

    def run(
        self,
        actual: CostTable | NoiseModel | None,
        seed: int,
        explain: Callable[[str], None] | None = None,
    ) -> Trace:
        """One run in which ``actual`` happens.

        Raises:
            InvalidInput: the scenario keeps no traces.
        """
        if self.scenario.keep is not None:
            raise InvalidInput(
                f"keep={self.scenario.keep} leaves no trace, which this command reads; leave it out"
            )
        return simulate(
            *self._parts(),
            **self._settings(actual, seed, explain),
            engine=self.scenario.simulation.engine,
        )

    def stream(
        self,
        actual: CostTable | NoiseModel | None,
        seed: int,
        explain: Callable[[str], None] | None = None,
    ) -> StreamedFigures:
        """One run in which ``actual`` happens and of which figures alone are kept."""
        return simulate_stream(
            *self._parts(),
            **self._settings(actual, seed, explain),
            warm_up=self.scenario.workload.warm_up_s,
        )

    def _parts(self) -> tuple[Workload, Cluster, CostTable, Scheduler]:
        return self._workload, self.world.cluster, self.world.costs, self._scheduler()

    def _settings(
        self,
        actual: CostTable | NoiseModel | None,
        seed: int,
        explain: Callable[[str], None] | None,
    ) -> dict[str, Any]:
        """The settings of a run, whether its trace or its figures are kept."""
        simulation = self.scenario.simulation
        return {
            "actual": actual,
            "movement": simulation.movement,
            "contention": simulation.contention,
            "memory": simulation.memory,
            "weights": simulation.weights,
            "horizon": simulation.horizon_s,
            "seed": seed,
            "faults": self._faults,
            "decision_cost": self._decision_cost,
            "explain": explain,
        }

    def _scheduler(self) -> Scheduler:
        """A fresh one, that knows what the first one worked out."""
        made = self.world.partition
        scheduler = make_scheduler(
            self.scenario.scheduler,
            self.scenario.seed.search,
            self._config_dirs,
            None if made is None else made.plan,
        )
        if self._first is None:
            self._first = scheduler
        else:
            scheduler.recall(self._first)
        return scheduler

    def unloaded(self) -> dict[str, float]:
        """Seconds of a request on the idle cluster, by model."""
        sample = self._workload.sample(SAMPLE)
        return unloaded_seconds(sample, self.world.cluster, self.world.costs)

    @property
    def scheduler(self) -> Scheduler | None:
        """The first run's scheduler, as that run left it; None before."""
        return self._first

    @property
    def proven_bound_s(self) -> float | None:
        """What the scheduler has proved no makespan can be below; None before a run, or if nothing."""
        return None if self._first is None else self._first.proven_bound_s


def run_scenario(
    scenario: Scenario,
    config_dirs: Sequence[Path] = (),
    explain: Callable[[str], None] | None = None,
) -> Outcome:
    """Simulate a scenario once, then once for each draw of its times.

    Raises:
        HetsimError: a name, a quantity or a combination that cannot be used.
    """
    began = time.perf_counter()
    scenario = scenario.settled()
    # A misspelt option should not have to wait for a model to be traced.
    check_method(scenario, config_dirs)
    world = prepare(scenario, config_dirs)
    runs = Runs(scenario, world, config_dirs)
    prepared = time.perf_counter()
    trace: Trace | None = None
    run: Trace | StreamedFigures
    if scenario.keep is None:
        run = trace = runs.nominal(explain)
    else:
        run = runs.nominal_figures(explain)
    simulated = time.perf_counter()
    drawn = list(runs.drawn())
    draws = tuple(makespan for makespan, _ in drawn)
    if isinstance(run, StreamedFigures):
        figures = _streamed(scenario, world, run, draws, runs.unloaded())
    else:
        figures = _figures(scenario, world, run, draws, runs)
    if world.requests is not None:
        figures["intervals"] = intervals([served for _, served in drawn])
    wallclock = {
        "prepare_seconds": prepared - began,
        "simulate_seconds": simulated - prepared,
        "draws_seconds": time.perf_counter() - simulated,
        **run.wallclock,
        "seconds_per_decision": run.wallclock["deciding_seconds"]
        / max(1.0, run.wallclock["decisions"]),
    }
    label = label_of(scenario, config_dirs)
    return Outcome(scenario, label, world, trace, draws, figures, wallclock)


def _figures(
    scenario: Scenario,
    world: World,
    trace: Trace,
    draws: Sequence[float],
    runs: Runs,
) -> dict[str, Any]:
    proven_bound_s = runs.proven_bound_s
    bounds = world.bounds(scenario)
    # A run that was ended has no makespan to be compared with them.
    ended = scenario.simulation.horizon is not None
    best = None if ended else world.best_device(scenario)
    finished = np.all(trace.jobs["status"] == "finished")
    bound = binding = None
    if bounds is not None:
        bound, binding = bounds.bound_s, bounds.binding
        if proven_bound_s is not None and proven_bound_s > bound * (1 + 1e-6):
            bound, binding = proven_bound_s, f"proved by {scenario.scheduler.name}"
    compared = finished and not ended and bool(bound)
    known = Dependencies.of(trace)
    return {
        **metrics(trace, scenario.workload.warm_up_s, dependencies=known),
        **_trained(world, trace, known),
        **_served(scenario, world, trace, runs),
        "decisions_charged_s": trace.meta.get("decision_cost", {}).get("charged_s", 0.0),
        **_interval(draws),
        "bound_s": None if ended else bound,
        "critical_path_s": None if bounds is None else bounds.critical_path_s,
        "load_bound_s": None if bounds is None else bounds.load_s,
        "path_load_bound_s": None if bounds is None else bounds.path_load_s,
        "binding_bound": None if ended else binding,
        "gap_to_bound": trace.makespan / bound - 1.0 if compared and bound else None,
        # Of several jobs even chains run beside one another.
        "graph_width": width(world.graph) if len(trace.jobs["status"]) == 1 else None,
        **_normalised(world, trace, bounds, None if best is None else best[1]),
        "best_device": None if best is None else best[0],
        "best_device_s": None if best is None else best[1],
        "extrapolated_share": extrapolated_share(world, trace),
        "interval_without": _without_error(scenario, world, draws),
    }


def _interval(draws: Sequence[float]) -> dict[str, float | None]:
    low, high = np.percentile(draws, [2.5, 97.5]).tolist() if draws else (None, None)
    return {"makespan_low_s": low, "makespan_high_s": high}


INTERVALS = (
    *("mean_delay_s", "p50_delay_s", "p95_delay_s", "p99_delay_s"),
    *("served_per_s", "goodput_per_s", "success_rate", "fairness"),
)
"""Figures of requests of which the draws give an interval."""


def intervals(drawn: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By figure the ends of the middle 95% of the draws in which it is known."""
    found = {}
    for name in INTERVALS:
        values = [row[name] for row in drawn if row.get(name) is not None]
        if values:
            found[name] = np.percentile(values, [2.5, 97.5]).tolist()
    return found


def _without_error(scenario: Scenario, world: World, draws: Sequence[float]) -> list[str]:
    if world.pricer and draws and not scenario.simulation.replaces_predictor_error:
        return list(world.pricer.without_error)
    return []


def _streamed(
    scenario: Scenario,
    world: World,
    run: StreamedFigures,
    draws: Sequence[float],
    unloaded: Mapping[str, float],
) -> dict[str, Any]:
    """The figures of a run without a trace; requests have no bounds to be compared with."""
    unknown = (
        *("bound_s", "critical_path_s", "load_bound_s", "path_load_bound_s", "binding_bound"),
        *("gap_to_bound", "graph_width", "slr", "speedup", "efficiency"),
        *("best_device", "best_device_s"),
    )
    return {
        **run.metrics(),
        **run.serving(scenario.workload.accuracies, unloaded),
        "decisions_charged_s": 0.0,
        **_interval(draws),
        **dict.fromkeys(unknown),
        "extrapolated_share": run.extrapolated_share(world.extrapolated),
        "interval_without": _without_error(scenario, world, draws),
    }


def _served(scenario: Scenario, world: World, trace: Trace, runs: Runs) -> dict[str, Any]:
    """Figures of requests (:mod:`simulator.analysis.serving_metrics`); none where jobs are no requests."""
    if world.requests is None:
        return {}
    warm_up = scenario.workload.warm_up_s
    accuracies = scenario.workload.accuracies
    return dict(serving_metrics(trace, warm_up, accuracies, runs.unloaded()))


def _trained(world: World, trace: Trace, known: Dependencies) -> dict[str, Any]:
    """Figures of training steps (:mod:`simulator.analysis.training_metrics`); none of other graphs."""
    if world.requests is not None or not world.graph.updates:
        return {}
    return dict(training_metrics(trace, known) or {})


def _normalised(
    world: World, trace: Trace, bounds: Bounds | None, best_device_s: float | None
) -> dict[str, float | None]:
    """The makespan of one job as papers state it; None for streams of jobs, or where undefined.

    ``slr`` (schedule length ratio): over the longest path of operators alone, each on its fastest
    device. ``speedup``: the best single device's time over it. ``efficiency``: speedup over the number of
    devices.
    """
    makespan, path = trace.makespan, 0.0 if bounds is None else bounds.critical_path_s
    single = trace.jobs["status"].tolist() == ["finished"] and makespan > 0
    speedup = best_device_s / makespan if single and best_device_s is not None else None
    return {
        "slr": makespan / path if single and path > 0 else None,
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / len(world.cluster.devices),
    }


def extrapolated_share(world: World, trace: Trace) -> float:
    """Share of the executed time that rests on predictions outside the measured range."""
    rows = trace.executions
    seconds = rows["finish"] - rows["start"]
    total = float(seconds.sum())
    if not total:
        return 0.0
    jobs = trace.jobs
    extrapolated = 0.0
    # By the graph that ran: of requests it may be a batch's, or another model's.
    graph = jobs["graph"][rows["job"]]
    for number, record in enumerate(trace.meta["graphs"]):
        mine = graph == number
        share = world.extrapolated(record["name"], record["batch"] or 1) if mine.any() else None
        if share is not None:
            extrapolated += float(
                seconds[mine] @ share[rows["operator"][mine], rows["device"][mine]]
            )
    return extrapolated / total
