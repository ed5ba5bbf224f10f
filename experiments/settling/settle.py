"""What to measure next so that a verdict that is not separable becomes one.

Two schedulers are compared on the same draws of operator times. Which of these times decide which is
the faster? Those that lie on one critical path and not on the other. This module finds the contest,
follows both critical paths, and names the operators whose measurement would take most off the variance
of the difference, by :mod:`experiments.settling.narrowing`; :mod:`experiments.settling.settled` measures them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import OmegaConf

from experiments.calibrating.operators import CLEARING_SECONDS
from experiments.comparison.contests import GIVEN, Contest, Standings
from experiments.comparison.leaderboard import standings
from experiments.comparison.statistics import FEWEST_DRAWS, SEPARABLE, probability_shorter
from experiments.runs import catalog, own_schedulers
from experiments.runs.cell import Runs, label_of
from experiments.runs.command import plain
from experiments.runs.configs import Scenario, SchedulerConfig
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.results import read_document
from experiments.runs.sweep_folder import choices_of, label_named, read_sweep
from experiments.runs.trust import admit, folders_of
from experiments.runs.world import World
from experiments.settling.narrowing import (
    Unknowns,
    choose,
    expected_probability,
    probability_above_zero,
)
from simulator.analysis.critical import critical_path
from simulator.errors import InvalidInput
from simulator.model.cluster import Cluster
from simulator.model.operator import Operator
from simulator.model.trace import Trace

if TYPE_CHECKING:
    from cost_models.profile import Profile, RowKey

PATHS = 8
"""Draws whose critical paths are followed, beside that of the believed times."""
DRAWS = 200
"""Of a contest that had none."""
NOISE_RUNS = 60
"""Runs of each scheduler that tell what of the variance is noise."""
UNKNOWN_REPEAT = 0.05
"""Standard deviation of a measurement's log error where nobody has measured twice."""
COLUMNS = ("group", "sensitivity", "shared", "own", "repeat", "seconds", "measured", "operator")
"""Of what is unknown of an operator on a profile."""
VISITS = (6, 24)
"""Fewest and most visits to an operator; between them, as many as the profile's others had."""


@dataclass(frozen=True)
class Question:
    """Two schedulers that are to be told apart.

    Attributes:
        contest: what it is about, as ``compare`` calls it.
        scenarios: of the one and of the other; they differ in nothing else.
        labels: of the two schedulers.
        config_dirs: the user's folders of configs.
        others: further contests of the sweep that are not separable.
    """

    contest: str
    scenarios: tuple[Scenario, Scenario]
    labels: tuple[str, str]
    config_dirs: tuple[Path, ...]
    others: tuple[str, ...] = ()

    @property
    def turned(self) -> Question:
        """The same with the two schedulers in the other order."""
        (a, b), (first, second) = self.scenarios, self.labels
        return replace(self, scenarios=(b, a), labels=(second, first))


@dataclass(frozen=True)
class Candidate:
    """A distinct operator on a profile.

    Attributes:
        profile: its name.
        operator: the first of the graph with this row.
        row: what names it in a measurement table.
        seconds: that measuring it takes.
        share: of the variance of the difference that it takes off in its turn.
    """

    profile: str
    operator: Operator
    row: RowKey
    seconds: float
    share: float


@dataclass(frozen=True)
class Settlement:
    """What there is to measure, and what is expected of it.

    Attributes:
        question: the first of its schedulers is the one that is ahead now.
        validity: in which world its devices were validated, one line.
        ahead: by how much, as a share of the other's makespan; the mean over the draws.
        now: P(win) over the draws, times priced as the question's scenarios say.
        looked_up: the same with the times that are measured already looked up; None where none is, or
            they were looked up before.
        normal: the same if the difference were normal, of the mean and the variance below.
        known, operators: distinct (operator, profile) pairs whose time is measured, and all of them.
        variance: of the difference over the draws in seconds squared, times looked up.
        from_noise: the share of it that comes from noise between runs and from what simulation is off by beyond
            operator times. The rest comes from operator times.
        linear: the standard deviation that sensitivities give those operator times, over the one that
            is seen. They say how the rest is shared out, not how much it is.
        after: the variance that is left once ``choices`` are measured.
        expected: P(win) then of whoever is ahead then, as of a normal difference that now is above 0 as
            often as the draws are.
        choices: what to measure, in the order of what it does for its seconds.
        visits: of each.
        states: by profile, the cache state in which the graph is priced and measured; None where the
            profile knows of none.
    """

    question: Question
    validity: str
    ahead: float
    now: float
    looked_up: float | None
    normal: float
    known: int
    operators: int
    variance: float
    from_noise: float
    linear: float
    after: float
    expected: float
    choices: tuple[Candidate, ...]
    visits: Mapping[str, int]
    states: Mapping[str, str | None]

    @property
    def seconds(self) -> float:
        """That measuring takes, without starting processes."""
        return sum(choice.seconds for choice in self.choices)


# -- the question -------------------------------------------------------------------------------------


def question_of(
    folder: str | Path,
    pair: Sequence[str] | None = None,
    contest: str | None = None,
    config_dirs: Sequence[Path] = (),
    trust: bool = False,
) -> Question:
    """The verdict of a sweep that is not separable, or two schedulers in place of a run's own.

    Args:
        folder: of a sweep or of a run.
        pair: labels of two schedulers; of a sweep the best and the first that is not separable from it
            unless given.
        contest: which of a sweep's contests, by its label or its model; the first that is not separable
            unless given.
        config_dirs: the user's folders of configs.
        trust: whether code that the folder alone names may run.

    Raises:
        InvalidInput: no such folder, contest or scheduler; everything is separable; times are given
            and not predicted; or the folder names code of its own.
    """
    folder = Path(folder).expanduser()
    if pair is not None and (len(pair) != 2 or pair[0] == pair[1]):
        raise InvalidInput(f"pair={','.join(pair)}: a pair is two schedulers, e.g. pair=heft,donf")
    if (folder / "result.json").is_file():
        return _of_run(folder, pair, config_dirs, trust)
    results, choices = read_sweep(folder), choices_of(folder)
    table = standings(results, choices)
    if pair is not None:
        labels = dict(zip(results["cell"], results["scheduler"], strict=True))
        pair = [label_named(name, labels, choices) for name in pair]
    if not table.contests:
        raise InvalidInput(f"No cell of {folder} has finished: there is no verdict to settle")
    if all(one.setting.cost_model == GIVEN for one in table.contests):
        raise InvalidInput(
            f"The times in {folder} are given with the graphs, not predicted by profiles: there is nothing "
            "to measure. Settle a sweep over model= and cluster="
        )
    found, names = _chosen(table, folder, pair, contest)
    documents = [
        read_document(folder / "cells" / found.find(name).cells[0] / "result.json")  # type: ignore[union-attr]
        for name in names
    ]
    folders = folders_of(documents[0].get("command", ""), folder, config_dirs, trust)
    first, second = (scenario_of(document) for document in documents)
    admit((first, second), folder, folders, trust)
    others = [
        table.label(other, True)
        for other in table.contests
        if other is not found and other.open_pair is not None
    ]
    return Question(
        table.label(found, True), (first, second), (names[0], names[1]), folders, tuple(others)
    )


def _chosen(
    table: Standings, folder: Path, pair: Sequence[str] | None, contest: str | None
) -> tuple[Contest, Sequence[str]]:
    contests = list(table.contests)
    if contest is not None:
        contests = [c for c in contests if contest in (table.label(c, True), c.model)]
        if not contests:
            labels = "; ".join(table.label(c, True) for c in table.contests)
            raise InvalidInput(f"{folder} has no contest '{contest}'; it has: {labels}")
    if pair is not None:
        for name in pair:
            if name not in table.schedulers:
                raise InvalidInput(
                    f"{folder} has no scheduler '{name}'; it has: {', '.join(table.schedulers)}"
                )
        both = [c for c in contests if all(c.find(name) for name in pair)]
        if not both:
            raise InvalidInput(f"No contest of {folder} has both {pair[0]} and {pair[1]}")
        return both[0], pair
    for found in contests:
        if found.open_pair is not None:
            return found, found.open_pair
    raise InvalidInput(
        f"No verdict of {folder} is open: who differs by more than 1% is separable, or there are no draws. "
        f"For two schedulers of your own choice: pair={','.join(table.schedulers[:2])}"
    )


def _of_run(
    folder: Path, pair: Sequence[str] | None, config_dirs: Sequence[Path], trust: bool
) -> Question:
    if pair is None:
        raise InvalidInput(
            f"{folder} is one run, which has nothing to be told apart from; name two schedulers, e.g. "
            "pair=heft,donf, or a sweep's folder"
        )
    scenario = scenario_of(read_document(folder / "result.json"))
    path = folder / "command.txt"
    command = path.read_text() if path.is_file() else ""
    folders = folders_of(command, folder, config_dirs, trust)
    schedulers = []
    for name in pair:
        entry = own_schedulers.entry_of("scheduler", name, folders)
        if entry is None:
            raise catalog.unknown("scheduler", name, folders)
        typed = OmegaConf.merge(OmegaConf.structured(SchedulerConfig), entry.content)
        scheduler = OmegaConf.to_object(typed)
        assert isinstance(scheduler, SchedulerConfig)
        schedulers.append(scheduler)
    first, second = (replace(scenario, scheduler=scheduler) for scheduler in schedulers)
    admit((first, second), folder, folders, trust)
    labels = (label_of(first, folders), label_of(second, folders))
    name = f"{scenario.model.name}, {scenario.cluster.name}"
    return Question(name, (first, second), labels, folders)


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """The scenario of a ``result.json``.

    Raises:
        InvalidInput: its times are given, not predicted, or it is of another command.
    """
    config = document.get("config")
    if not isinstance(config, Mapping) or "simulation" not in config:
        raise InvalidInput("This result.json is of another command; name a sweep or a run")
    if "model" not in config:
        raise InvalidInput(
            "The times of this run are given with its graph, not predicted by a profile: there is "
            "nothing to measure. Settle a run of model= on cluster="
        )
    typed = OmegaConf.merge(OmegaConf.structured(Scenario), config)
    assert OmegaConf.is_dict(typed)
    return plain(typed, Scenario).settled()  # type: ignore[arg-type]


# -- simulating ---------------------------------------------------------------------------------------


def with_lookup(scenario: Scenario) -> Scenario:
    """The scenario with measured times looked up."""
    return replace(scenario, cost_model=replace(scenario.cost_model, lookup=True))


class Pair:
    """Two schedulers on one world.

    Raises:
        InvalidInput: the draws of the scenarios say nothing of predictors' errors.
    """

    def __init__(self, question: Question, *, lookup: bool) -> None:
        scenarios = [self._drawn(scenario) for scenario in question.scenarios]
        if lookup:
            scenarios = [with_lookup(scenario) for scenario in scenarios]
        self.scenario = scenarios[0]
        self.world: World = prepare(self.scenario, question.config_dirs)
        self.runs = [Runs(scenario, self.world, question.config_dirs) for scenario in scenarios]
        for runs in self.runs:
            runs.nominal()  # what a scheduler plans it plans with the times it believes

    @staticmethod
    def _drawn(scenario: Scenario) -> Scenario:
        simulation = scenario.simulation
        if simulation.replaces_predictor_error:
            raise InvalidInput(
                f"The draws of simulation.noise={simulation.noise} have that error in place of the "
                "predictors' own, and no measuring narrows it; sweep without 'systematic'"
            )
        if simulation.horizon is not None:
            raise InvalidInput(
                "A run that is ended has no makespan to compare; leave the horizon out"
            )
        if simulation.draws >= FEWEST_DRAWS:
            return scenario
        return replace(scenario, simulation=replace(simulation, draws=DRAWS))

    def draws(self) -> tuple[np.ndarray, np.ndarray]:
        """Makespans of both in seconds, float64[draws] each; draws without an end are left out."""
        found = np.array([list(runs.draws()) for runs in self.runs])
        found = found[:, np.isfinite(found).all(axis=0)]
        if found.shape[1] < FEWEST_DRAWS:
            raise InvalidInput("Too few draws of these schedulers finish to tell them apart")
        return found[0], found[1]

    def noise_variance(self) -> float:
        """Of the difference between the two with believed times, and noise and discrepancy alone, seconds squared."""
        own = self.scenario.simulation.discrepancy
        discrepancy = sum((own * runs.nominal().makespan) ** 2 for runs in self.runs)
        noise = self.world.noise_of_draws(self.scenario.simulation)
        if noise is None:
            return discrepancy
        makespans = np.array(
            [
                [
                    runs.run(noise, runs.seed_of_draw(number)).makespan
                    for number in range(NOISE_RUNS)
                ]
                for runs in self.runs
            ]
        )
        return discrepancy + float(np.var(makespans[1] - makespans[0], ddof=1))

    def sensitivity(self) -> np.ndarray:
        """float64[operators, devices]: seconds that the second's makespan gains on the first's for each
        unit of the log of a time; the mean over believed and drawn times.
        """
        pricer, world = self.world.pricer, self.world
        assert pricer is not None
        tables = [world.costs, *pricer.draws(world.costs, PATHS, self.scenario.seed.noise)]
        shape = world.costs[world.graph].seconds.shape
        total = np.zeros(shape)
        for actual in tables:
            for runs, sign in zip(self.runs, (-1.0, 1.0), strict=True):
                trace = runs.run(actual, self.scenario.seed.noise)
                total += sign * path_seconds(trace, world.cluster, shape)
        found: np.ndarray = total / len(tables)
        return found


def path_seconds(trace: Trace, cluster: Cluster, shape: tuple[int, ...]) -> np.ndarray:
    """float64[operators, devices]: seconds of a run's critical path that grow with an operator's time.

    By so much a small relative change of that time changes the makespan. Launch overhead stays as it is.

    Args:
        trace: whose jobs are all of one graph.
        cluster: it ran on.
        shape: numbers of operators and devices.
    """
    seconds = np.zeros(shape)
    rows = trace.executions
    for step in critical_path(trace):
        if step.what == "execution":
            device = int(rows["device"][step.row])
            grows = step.finish - step.start - cluster.devices[device].launch_overhead
            seconds[int(rows["operator"][step.row]), device] += max(grows, 0.0)
    return seconds


# -- what to measure ----------------------------------------------------------------------------------


def settle(
    question: Question, budget: float = math.inf, show: Callable[[str], None] = lambda line: None
) -> Settlement:
    """What to measure so that the two become separable.

    Args:
        question: which two, on what.
        budget: seconds that measuring may take.
        show: called with a line of progress.

    Raises:
        InvalidInput: they are separable already, they never differ, the error of a profile is not known,
            or it is missing.
    """
    show(f"drawing {question.labels[0]} and {question.labels[1]} on {question.contest}")
    asked = Pair(question, lookup=question.scenarios[0].cost_model.lookup)
    first, second = asked.draws()
    now = probability_shorter(first, second)
    if now < 0.5:
        return settle(question.turned, budget, show)
    if now >= SEPARABLE:
        raise InvalidInput(
            f"{question.labels[0]} and {question.labels[1]} on {question.contest} are separable: P(win) "
            f"{now:.2f}. There is nothing to settle"
        )
    if np.allclose(first, second, rtol=1e-9):
        raise InvalidInput(
            f"{question.labels[0]} and {question.labels[1]} take the same time in every draw on "
            f"{question.contest}: no measuring tells them apart"
        )
    show("following critical paths")
    pair = asked if asked.scenario.cost_model.lookup else Pair(question, lookup=True)
    states = states_of(pair)
    candidates, unknowns, visits = _candidates(pair, states)
    looked_up = None
    if pair is not asked and unknowns.measured.any():
        first, second = pair.draws()
        looked_up = probability_shorter(first, second)
    mean, variance = float((second - first).mean()), float((second - first).var(ddof=1))
    noise = min(pair.noise_variance(), variance)
    # Looking up what was measured may be enough.
    settled = looked_up is not None and max(looked_up, 1 - looked_up) >= SEPARABLE
    chosen = [] if settled else choose(unknowns, budget)
    linear = unknowns.variance()
    left = [linear, *(choice.variance for choice in chosen)]
    # Sensitivities share out what operator times make of the variance; its size is what draws show.
    times = (variance - noise) / linear if linear else 0.0
    after = variance - times * (linear - left[-1])
    return Settlement(
        question=question,
        validity=asked.world.validity().line,
        ahead=mean / float(second.mean()),
        now=now,
        looked_up=looked_up,
        normal=probability_above_zero(mean, variance),
        known=int(unknowns.measured.sum()),
        operators=len(candidates),
        variance=variance,
        from_noise=noise / variance,
        linear=math.sqrt(linear / (variance - noise)) if variance > noise else math.inf,
        after=after,
        expected=expected_probability(
            _mean_of(now if looked_up is None else looked_up, variance, len(first)), variance, after
        ),
        choices=tuple(
            replace(
                candidates[choice.operator], share=times * (before - choice.variance) / variance
            )
            for before, choice in zip(left, chosen, strict=False)
        ),
        visits=visits,
        states=states,
    )


def _mean_of(probability: float, variance: float, draws: int) -> float:
    """The mean with which a normal difference of that variance is above 0 as often as the draws."""
    bounded = min(max(probability, 0.5 / draws), 1 - 0.5 / draws)
    return math.sqrt(variance) * NormalDist().inv_cdf(bounded)


def states_of(pair: Pair) -> dict[str, str | None]:
    """By profile, the cache state in which a pair's graph is priced on it."""
    from cost_models.cached_graphs import cache_state

    profiles = load_profiles(pair.scenario.cluster, pair.scenario.cost_model)
    graph = pair.world.graph
    return {
        name: cache_state(graph, profile) or profile.cache
        for name, profile in sorted(profiles.items())
    }


def _candidates(
    pair: Pair, states: Mapping[str, str | None]
) -> tuple[list[Candidate], Unknowns, dict[str, int]]:
    """Every distinct operator on every profile, what is unknown of it, and visits by profile."""
    from cost_models.profile import row_keys
    from cost_models.uncertainty import POOLED

    world, model = pair.world, pair.scenario.cost_model
    profiles = load_profiles(pair.scenario.cluster, model)
    keys = row_keys(world.graph.operators)
    distinct = list(dict.fromkeys(keys))
    position = {key: number for number, key in enumerate(distinct)}
    number_of = np.array([position[key] for key in keys])
    operators = [world.graph.operators[keys.index(key)] for key in distinct]
    sensitivity = pair.sensitivity()
    found: list[Candidate] = []
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    groups: dict[tuple[str, str], int] = {}
    visits = {}
    for name, profile in sorted(profiles.items()):
        devices = [n for n, device in enumerate(world.cluster.devices) if device.profile == name]
        each = np.bincount(
            number_of, weights=sensitivity[:, devices].sum(axis=1), minlength=len(distinct)
        )
        residuals = profile.residuals_for(model.name)
        if not residuals:
            if np.abs(each).max(initial=0.0) == 0.0:
                continue  # neither path runs through it
            raise InvalidInput(
                f"Nobody knows how wrong '{name}' ({profile.label}) is, so nothing says what measuring it "
                f"would narrow. Calibrate it first: python -m experiments.calibrate name={name} "
                "device=cpu|cuda:0 budget=15min, on that device"
            )
        measured = profile.is_measured(distinct, states[name])
        priced = profile.price_rows(
            distinct, model=model.name, cache=states[name], lookup=True
        ).seconds
        visits[name] = visits_of(profile, states[name])
        for number, key in enumerate(distinct):
            kind = operators[number].kind
            source = residuals.get(kind) or residuals.get(POOLED)
            repeat = profile.repeat_error.get(kind) or profile.repeat_error.get(POOLED)
            runs_here = bool(np.isfinite(priced[number])) and operators[number].template is not None
            seconds = seconds_of(profile, float(priced[number]), visits[name])
            again = UNKNOWN_REPEAT**2 if repeat is None else repeat.within_variance
            row = (
                groups.setdefault((name, kind), len(groups)),
                each[number],
                source.bias_variance if source else 0.0,
                source.within_variance if source else 0.0,
                again if runs_here or measured[number] else math.inf,
                seconds if runs_here else math.inf,
                # Without a second half draws take the error of a prediction.
                bool(measured[number]) and repeat is not None,
                number,
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            found.append(Candidate(name, operators[number], key, seconds, 0.0))
    assert world.pricer is not None
    together = world.pricer.correlations
    correlation = {}
    for ((one, kind), a), ((other, same), b) in itertools.combinations(groups.items(), 2):
        entry = together.of(one, other, kind)
        if kind == same and (entry.shared or entry.own):
            correlation[a, b] = entry.shared, entry.own
    arrays = {name: np.array(values) for name, values in columns.items()}
    return found, Unknowns(**arrays, correlation=correlation), visits


def on_gpu(profile: Profile) -> bool:
    """Whether a profile is of a CUDA device, by its name."""
    return any(word in profile.name for word in ("nvidia", "tesla", "geforce", "rtx"))


def visits_of(profile: Profile, state: str | None) -> int:
    """Visits to an operator: as many as the profile's others had in a cache state, since a minimum
    falls with their number, within :data:`VISITS`.
    """
    from calibration.timing import TIMINGS

    fewest, most = VISITS
    table = profile.measurements
    if table is None or "repeats" not in table or not len(table):
        return fewest
    if state is not None:
        table = table[table["cache"] == state]
    return int(min(max(math.ceil(table["repeats"].median() / TIMINGS), fewest), most))


def seconds_of(profile: Profile, seconds: float, visits: int) -> float:
    """That so many visits to an operator of so many seconds take."""
    from calibration.timing import LONG, SHORT, TIMINGS, TIMINGS_LONGER

    # Two that say how long it takes; then each timed call comes after one that warms up.
    calls = 2 + 2 * (TIMINGS if seconds < SHORT else TIMINGS_LONGER if seconds < LONG else 1)
    return visits * (CLEARING_SECONDS["cuda" if on_gpu(profile) else "cpu"] + calls * seconds)


# -- words --------------------------------------------------------------------------------------------


def shapes_text(operator: Operator) -> str:
    """``1x64x56x56, 64x64x1x1 -> 1x64x56x56``."""
    from cost_models.pricing import shapes_text as text_of

    return text_of([s.shape for s in operator.inputs], [s.shape for s in operator.outputs])


def kernels_text(choices: Sequence[Candidate]) -> str:
    """``14 kernels (9 conv2d, 5 linear)``."""
    kinds = Counter(choice.operator.kind for choice in choices)
    parts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{len(choices)} kernel{'s' if len(choices) != 1 else ''} ({parts})"
