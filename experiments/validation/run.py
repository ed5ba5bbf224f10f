"""Measuring what a validation asks for, as far as it is not there, and holding predictions against it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.progress import TaskID

from experiments.probes.input_distance import reading_curves
from experiments.probes.machine_speed import PanelTimes
from experiments.probes.overhead import Overhead
from experiments.runs.pool import WorkerDiedError, available_cores, work_through
from experiments.runs.prepare import prepare
from experiments.runs.pricing import load_profiles
from experiments.runs.progress import progress_bar
from experiments.runs.provenance import code_digest
from experiments.validation.cases import ModelValidation, Validation
from experiments.validation.contestants import Group, Plan
from experiments.validation.measured_runs import MeasuredRuns, Quota, measure_block
from experiments.validation.predicted_cases import Draws, model_validation
from experiments.validation.settings import ValidateSettings
from experiments.validation.simulated_vs_measured import Prediction
from simulator.errors import HetsimError, InvalidInput
from simulator.model.input_reuse_curve import ReadingCurve

PREPARING_S = 12.0
"""What a visit takes before its first round, until one has said so: loading, and the runner's overheads."""
CASES_PER_PROCESS = 20
"""A process takes seconds to start, which predicting fewer cases would not."""


def validate_plan(
    plan: Plan,
    settings: ValidateSettings,
    folder: Path,
    config_dirs: Sequence[Path],
    console: Console,
) -> tuple[Validation, BaseException | None]:
    """Measure what is not measured yet, and hold the predictions against it.

    Args:
        plan: what is to be run.
        settings: repeats and so on.
        folder: what was measured is kept there, and what lies there already counts.
        config_dirs: the user's configs.
        console: says how far it is.

    Returns:
        What is there, and what stopped it early: an interrupt, or a run that failed.

    Raises:
        HetsimError: something cannot be run at all, and nothing was measured.
    """
    measured = MeasuredRuns(folder)
    _say_what_is_there(plan, measured, console)
    stopped: BaseException | None = None
    try:
        with _progress(console) as step:
            stopped = measure(plan, settings, measured, config_dirs, step)
    except (HetsimError, KeyboardInterrupt) as error:
        stopped = error  # what is finished is reported first
    validation = Validation(_predicted(plan, settings, folder, config_dirs, console))
    if not validation.models and stopped is not None:
        raise stopped
    return validation, stopped


@dataclass(frozen=True)
class _Task:
    """A model to be predicted by whichever process takes it."""

    group: Group
    folder: Path
    held_out: bool
    at_speed: bool
    config_dirs: tuple[Path, ...]
    reading: tuple[ReadingCurve, ...]


def _predict(task: _Task) -> ModelValidation | None:
    return model_validation(
        task.group,
        MeasuredRuns(task.folder),
        Draws(task.folder / "draws" / f"{task.group.key}.json"),
        task.held_out,
        task.at_speed,
        task.config_dirs,
        task.reading,
    )


def readings(plan: Plan, measured: MeasuredRuns) -> dict[str, tuple[ReadingCurve, ...]]:
    """By group what inputs cost that are not at hand, from the probes in the runs of all groups on its cluster."""
    found: dict[str, tuple[ReadingCurve, ...]] = {}
    for group in plan.groups:
        if group.key not in found:
            cluster = group.scenario.cluster
            beside = [other for other in plan.groups if other.scenario.cluster == cluster]
            runs = measured.inputs(beside)
            curves = reading_curves(np.concatenate(runs)) if runs else ()
            found |= {other.key: curves for other in beside}
    return found


def _predicted(
    plan: Plan,
    settings: ValidateSettings,
    folder: Path,
    config_dirs: Sequence[Path],
    console: Console,
) -> list[ModelValidation]:
    """The plan's models of which something was measured, in its order."""
    reading = readings(plan, MeasuredRuns(folder))
    tasks = [
        _Task(
            group,
            folder,
            settings.held_out,
            settings.speed == "now",
            tuple(config_dirs),
            reading[group.key],
        )
        for group in plan.groups
    ]
    workers = max(1, min(available_cores(), plan.cases // CASES_PER_PROCESS))
    found: dict[str, ModelValidation] = {}
    with progress_bar(console) as progress:
        bar = progress.add_task("predicting", total=len(tasks))
        for task, answer in work_through([(t.group.key, t) for t in tasks], _predict, workers):
            if isinstance(answer, WorkerDiedError):
                raise HetsimError(
                    f"The process that predicted {task.group.model} was killed; was there enough memory? "
                    "The runs are kept: the same command goes on"
                )
            if answer is not None:
                found[task.group.key] = answer
            progress.advance(bar)
    return [found[task.group.key] for task in tasks if task.group.key in found]


def measure(
    plan: Plan,
    settings: ValidateSettings,
    measured: MeasuredRuns,
    config_dirs: Sequence[Path],
    step: Callable[[str, int, int | None], None],
) -> BaseException | None:
    """Run the cases that have not been run as often as the settings ask for.

    Without a budget each model is visited once. With one, the time is spread over ``visits`` visits of
    all models in turn, so that what changes over the minutes meets every case. A visit's preparations take
    about as long for all models; a model's share of the rest is in proportion to what a round of its cases
    takes, so that all are repeated about equally often.

    Args:
        plan: what is to be run.
        settings: repeats, budget and so on.
        measured: what is there; grows.
        config_dirs: the user's configs.
        step: told what is being done, how much of it is done, and how much there is of it, if that is known.

    Returns:
        What stopped it early.

    Raises:
        HetsimError: something cannot be run at all.
    """
    visits = 1 if settings.budget_s is None else settings.visits
    spent = sum(measured.spent_s(group) for group in plan.groups)
    began = time.monotonic()
    weights: list[float] = []
    prepared: list[float] = []
    for visit in range(visits):
        for position, group in enumerate(plan.groups):
            open_cases = [
                one
                for one in group.contestants
                if (
                    measured.repeats(group, one.key) < settings.repeats
                    if settings.budget_s is None
                    else measured.count(group, one.key) <= visit
                )
            ]
            if not open_cases:
                continue
            _check_machine(group, measured)
            budget_s = None
            if settings.budget_s is not None:
                weights = weights or _weights(plan.groups, config_dirs, step)
                left = settings.budget_s - spent - (time.monotonic() - began)
                if left <= 0 and visit:
                    return None
                to_come = (visits - visit) * len(plan.groups) - position
                left -= to_come * (fmean(prepared) if prepared else PREPARING_S)
                budget_s = _share(weights, position, visits - visit) * max(left, 0.0)
            block, stopped = measure_block(
                group,
                open_cases,
                {**plan.believed, **measured.believed(group)},
                Quota(settings.repeats, settings.seconds, budget_s),
                settings.warmup if budget_s is None else min(1, settings.warmup),
                settings.cores,
                settings.limit,
                config_dirs,
                lambda done, total, group=group: step(f"running {group.model}", done, total),  # type: ignore[misc]
            )
            if block is not None:
                measured.add(group, block)
                prepared.append(block.prepared_s)
            if stopped is not None:
                return stopped
    return None


def _weights(
    groups: Sequence[Group],
    config_dirs: Sequence[Path],
    step: Callable[[str, int, int | None], None],
) -> list[float]:
    """What a round of each group takes; models are traced on the way, which takes minutes the first time."""
    found = []
    for number, group in enumerate(groups):
        step("planning", number, len(groups))
        found.append(_predicted_s(group, config_dirs))
    step("planning", len(groups), len(groups))
    return found


def _share(weights: Sequence[float], position: int, visits_left: int) -> float:
    """The share of the time left that a group's next block gets.

    Args:
        weights: of all groups.
        position: of the group.
        visits_left: this one among them.
    """
    to_come = sum(weights[position:]) + (visits_left - 1) * sum(weights)
    return weights[position] / to_come


def _predicted_s(group: Group, config_dirs: Sequence[Path]) -> float:
    """Seconds of one round of a group's cases, the panel among them, as simulated."""
    scenario = group.scenario
    world = prepare(scenario, config_dirs)
    profiles = load_profiles(scenario.cluster, scenario.cost_model)
    panel = PanelTimes(world.cluster, profiles, scenario.cost_model)
    prediction = Prediction(world)
    return panel.run_s + sum(prediction.run(one, Overhead()).makespan for one in group.contestants)


def _check_machine(group: Group, measured: MeasuredRuns) -> None:
    """Refuse to go on with what another machine began."""
    from calibration.environment import cpu_model

    for machine in measured.machines(group):
        if any(spec["device"] == "cpu" for spec in machine["workers"].values()) and (
            machine["processor"] != cpu_model()
        ):
            raise InvalidInput(
                f"What is there of '{group.model}' was measured on {machine['processor']}, this machine "
                f"has {cpu_model()}; take another name"
            )


def _say_what_is_there(plan: Plan, measured: MeasuredRuns, console: Console) -> None:
    kept = sum(
        measured.count(group, one.key) > 0 for group in plan.groups for one in group.contestants
    )
    if kept:
        console.print(f"{kept} of {plan.cases} cases are there and are kept")
    codes = {code for group in plan.groups for code in measured.codes(group)}
    if codes - {code_digest()}:
        console.print(
            "[yellow]some were measured with other code than this; another name measures all "
            "anew[/yellow]"
        )


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for planning and one for each model."""
    # A thread that draws would disturb the workers.
    with progress_bar(console, auto_refresh=False) as progress:
        bars: dict[str, TaskID] = {}

        def step(what: str, done: int, total: int | None) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total, refresh=True)

        yield step
