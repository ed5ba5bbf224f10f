"""A saved validation worked out again without the hardware, and simulated with what there is today.

Three questions, kept apart: do the report's figures follow from the saved traces? Does the present code
simulate the saved times as the code did then? And what do the present profiles and code predict?
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.probes.overhead import with_overhead
from experiments.runs import atomic
from experiments.runs.prepare import prepare
from experiments.runs.pricing import profile_digests
from experiments.validation.cases import Case, ModelValidation, Validation, against_itself
from experiments.validation.contestants import Contestant
from experiments.validation.figures import figures, summary
from experiments.validation.pairs import pairs
from experiments.validation.saved import load_validation, present_contestant
from experiments.validation.simulated_vs_measured import Prediction, interval_of
from experiments.validation.text import verdict_table
from scenarios.arrivals import build_workload
from simulator.engine.run import simulate
from simulator.errors import HetsimError
from simulator.model.cluster import Cluster
from simulator.model.costs import CostTable

SAME = 1e-6
"""Relative difference up to which a figure counts as the same."""


@dataclass(frozen=True)
class Resimulated:
    """A case simulated today.

    Attributes:
        same_beliefs_s: makespan with the saved operator times; NaN where it cannot be simulated.
        present: the case with what the present profiles predict; None where that cannot be said.
        reason: why not.
    """

    case: Case
    same_beliefs_s: float
    present: Case | None
    reason: str = ""

    @property
    def code_changed(self) -> bool:
        """Whether the present code gives another makespan for the same times."""
        return not _close(self.same_beliefs_s, self.case.simulated_s)

    @property
    def prediction_changed(self) -> bool:
        """Whether the present prediction is another one."""
        return self.present is not None and not _close(
            self.present.simulated_s, self.case.simulated_s
        )


def recheck(
    folder: Path, config_dirs: Sequence[Path], console: Console, trust: bool = False
) -> bool:
    """Check a saved validation and say what changed; returns whether its figures hold.

    Raises:
        InvalidInput: there is none, a file of it is damaged, or it names code of its own.
    """
    validation, document = load_validation(folder, config_dirs, trust)
    differences = list(figure_differences(validation, document))
    count = sum(1 for _ in _leaves(_normal(figures(validation)), ""))
    console.print(f"[bold]{folder}[/bold]: {len(validation.cases)} cases, {document['command']}")
    if differences:
        console.print(
            f"[red]{len(differences)} of {count} figures do not follow from the traces[/red]"
        )
        for text in differences[:10]:
            console.print(f"  {text}", soft_wrap=True)
    else:
        console.print(f"all {count} figures of the report follow from the saved traces")
    again = [case for model in validation.models for case in resimulate(model, config_dirs)]
    _say_code(again, console)
    _say_caches(validation.models, console)
    _say_profiles(validation, again, console)
    return not differences


def figure_differences(validation: Validation, document: dict[str, Any]) -> Iterator[str]:
    """What ``validation.json`` says otherwise than the traces beside it.

    Figures that reports had not yet when it was saved are no difference.
    """
    known = figures(validation)
    found = dict(_leaves(_normal(known), ""))
    saved = dict(_leaves({key: document.get(key) for key in known}, ""))
    for path in sorted(saved):
        mine, theirs = found.get(path), saved.get(path)
        if isinstance(mine, float | int) and isinstance(theirs, float | int):
            if not _close(float(mine), float(theirs)):
                yield f"{path}: {theirs} saved, {mine} from the traces"
        elif mine != theirs:
            yield f"{path}: {theirs} saved, {mine} from the traces"


def resimulate(model: ModelValidation, config_dirs: Sequence[Path]) -> list[Resimulated]:
    """Every case of a model simulated today."""
    found = []
    for contestant, case in zip(model.contestants, model.cases, strict=True):
        present, reason = _present(model, contestant, case, config_dirs)
        found.append(Resimulated(case, same_beliefs_s(model, contestant, case), present, reason))
    return found


def same_beliefs_s(
    model: ModelValidation,
    contestant: Contestant,
    case: Case,
    *,
    profiled_caches: bool = False,
    change: Callable[[Cluster], Cluster] | None = None,
    discrepancy: bool = True,
) -> float:
    """Makespan of a case with the saved operator times; NaN where it cannot be simulated.

    Caches keep of weights what was found among the runs, or what the profiles found (``profiled_caches``). A
    ``change`` of the cluster comes last. Without ``discrepancy`` operators take what was measured one by one.
    """
    scenario = contestant.scenario
    costs = CostTable({model.graph: model.costs})
    told = None if case.believed is None else with_overhead(model.cluster, case.believed)
    caches = {} if profiled_caches else model.caches
    found = (model.handover, model.corun, caches, model.cooling, model.reading)
    cluster = with_overhead(model.cluster, case.overhead, *found)
    host, seed = model.cluster.host, scenario.seed.workload
    try:
        return simulate(
            build_workload(scenario.workload, model.graph, host, seed),
            cluster if change is None else change(cluster),
            costs,
            contestant.make(),
            actual=costs.scaled(model.slowed) if discrepancy else costs,
            believed=told,
            movement=scenario.simulation.movement,
            contention=scenario.simulation.contention,
        ).makespan
    except HetsimError:
        return float("nan")


def _present(
    model: ModelValidation, saved: Contestant, case: Case, config_dirs: Sequence[Path]
) -> tuple[Case | None, str]:
    contestant = present_contestant(saved, config_dirs)
    if isinstance(contestant, str):
        return None, contestant
    try:
        world = prepare(contestant.scenario, config_dirs)
        prediction = Prediction(
            world,
            model.slowed,
            model.handover,
            model.corun,
            model.noise,
            model.reuse,
            model.cooling,
            model.reading,
        )
        simulated = prediction.run(contestant, case.overhead, believed=case.believed)
        low, high, draws_s = case.low_s, case.high_s, case.draws_s
        if not _close(simulated.makespan, case.simulated_s):
            draws_s = prediction.draws(contestant, case.overhead, simulated, case.believed)
            low, high = interval_of(draws_s)
    except HetsimError as error:
        return None, str(error)
    return (
        replace(
            case,
            simulated=simulated,
            simulated_s=simulated.makespan,
            low_s=low,
            high_s=high,
            unseen_s=float("nan"),
            draws_s=draws_s,
        ),
        "",
    )


def _say_code(again: Sequence[Resimulated], console: Console) -> None:
    changed = [one for one in again if one.code_changed]
    if not changed:
        console.print(f"the present code simulates the saved times as then, {len(again)} cases")
        return
    worst = max(changed, key=lambda one: _ratio(one.same_beliefs_s, one.case.simulated_s))
    console.print(
        f"[yellow]the present code simulates the same times otherwise in {len(changed)} of {len(again)} "
        f"cases[/yellow], {worst.case.setting} under {worst.case.scheduler}: "
        f"{worst.case.simulated_s * 1e3:.4g} ms then, {worst.same_beliefs_s * 1e3:.4g} ms now"
    )


def _say_caches(models: Sequence[ModelValidation], console: Console) -> None:
    """What probing the caches among the runs was worth."""
    probed = [model for model in models if model.caches]
    if not probed:
        return
    cases, found = [], []
    for model in probed:
        for contestant, case in zip(model.contestants, model.cases, strict=True):
            simulated_s = same_beliefs_s(model, contestant, case, profiled_caches=True)
            if math.isfinite(simulated_s):
                cases.append(replace(case, simulated_s=simulated_s))
                found.append(case)
    if not cases:
        return
    console.print(
        "with caches that keep what they kept when the profiles were measured, and not what was probed: "
        f"{_agreement(cases)}; as saved: {_agreement(found)}",
        soft_wrap=True,
    )


def _agreement(cases: Sequence[Case]) -> str:
    errors = np.array([case.error for case in cases])
    apart = [pair for pair in pairs(cases) if pair.separate]
    return (
        f"mean error {np.abs(errors).mean():.1%}, bias {errors.mean():+.1%}, the winner of "
        f"{sum(pair.agrees for pair in apart)} of {len(apart)} pairs"
    )


def _say_profiles(validation: Validation, again: Sequence[Resimulated], console: Console) -> None:
    changes = []
    for model in validation.models:
        try:
            now = profile_digests(model.contestants[0].scenario.cluster)
        except HetsimError as error:
            changes.append(str(error))
            continue
        changes += [
            f"profile '{name}' is another one"
            for name, saved in model.profile_digests.items()
            if now.get(name) != saved
        ]
    for text in dict.fromkeys(changes):
        console.print(f"[yellow]{text}[/yellow]", soft_wrap=True)
    if not changes:
        console.print("the profiles are the same")
    lost = [one for one in again if one.present is None]
    if lost:
        console.print(
            f"[yellow]{len(lost)} cases cannot be predicted today[/yellow], the first: {lost[0].reason}",
            soft_wrap=True,
        )
    changed = [one for one in again if one.prediction_changed]
    if not changed:
        if len(lost) < len(again):
            console.print("the present prediction is the saved one")
        return
    worst = max(changed, key=lambda one: _ratio(_present_s(one), one.case.simulated_s))
    console.print(
        f"the present prediction is another one in {len(changed)} of {len(again)} cases, at most by "
        f"{_ratio(_present_s(worst), worst.case.simulated_s):.1%} ({worst.case.setting} under "
        f"{worst.case.scheduler})"
    )
    present = [one.present for one in again if one.present is not None]
    before = summary(validation)
    errors = np.abs([case.error for case in present])
    console.print(
        f"against the saved measurements: mean error {errors.mean():.1%} (was "
        f"{before['mean_absolute_error']:.1%}), worst {errors.max():.1%} (was "
        f"{before['worst_absolute_error']:.1%})"
    )
    console.print(verdict_table(present, against_itself(validation)))


def _present_s(one: Resimulated) -> float:
    assert one.present is not None
    return one.present.simulated_s


def _ratio(a: float, b: float) -> float:
    return abs(a / b - 1.0) if math.isfinite(a) else math.inf


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME, abs_tol=1e-12)


def _normal(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(atomic.finite(value)))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{number}]")
    else:
        yield path, value
