"""A sealed prediction measured and scored: ``<name>.check-<number>.json`` beside it, a check a file.

The sealed numbers are scored as they stand. Profiles and code may have changed since, which changes what
schedulers believe in the measured runs; the file says so. Every check stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.probes.overhead import Overhead
from experiments.runs import atomic
from experiments.runs.configs import Scenario
from experiments.runs.prepare import prepare
from experiments.runs.pricing import profile_digests
from experiments.runs.provenance import revision, versions
from experiments.runs.trust import admit
from experiments.validation.cases import Case, Validation
from experiments.validation.contestants import Contestant, Plan, contestant, grouped
from experiments.validation.pairs import pairs, regret
from experiments.validation.run import validate_plan
from experiments.validation.saved import scenario_of
from experiments.validation.sealing import (
    RUN_SETTINGS,
    changes_since,
    check_paths,
    read_sealed,
    sealed_path,
)
from experiments.validation.settings import ValidateSettings
from experiments.validation.text import differences, verdict_table

FORMAT = "hetsim.sealed_check/1"


def check_sealed(
    settings: ValidateSettings,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    console: Console,
) -> Path:
    """Measure and score a sealed prediction; returns the file of the score.

    Args:
        settings: of the command; those of the runs are the sealed ones.
        overrides: nothing, or ``output_dir=...``.
        config_dirs: the user's configs.
        console: says what came out.

    Raises:
        InvalidInput: there is no such prediction, it was changed, or this is not a machine for it.
    """
    name = str(settings.check)
    folder = Path(settings.sealed_dir)
    sealed = read_sealed(folder, name)
    output_dir = Path(next((word.partition("=")[2] for word in overrides), "outputs"))
    settings = replace(settings, **{key: sealed["settings"][key] for key in RUN_SETTINGS})
    scenarios = [scenario_of(case["scenario"]) for case in sealed["cases"]]
    admit(scenarios, sealed_path(folder, name), config_dirs, settings.trust)
    contestants = [contestant(scenario, config_dirs) for scenario in scenarios]
    believed = {
        one.key: Overhead.of_json(case)
        for one, case in zip(contestants, sealed["cases"], strict=True)
    }
    plan = Plan(grouped(contestants), None, output_dir, believed)
    changes = changes_since(sealed, [_present(one, config_dirs) for one in contestants])
    for text in changes:
        console.print(f"[yellow]since it was sealed: {text}[/yellow]")
    stamp = time.strftime("%Y%m%d_%H%M%S")
    runs = output_dir / "validation" / f"check-{name}-{stamp}"
    validation, stopped = validate_plan(plan, settings, runs, config_dirs, console)
    if stopped is not None:
        raise stopped  # half a score would be a chosen one
    measured = {
        one.key: case
        for model in validation.models
        for one, case in zip(model.contestants, model.cases, strict=True)
    }
    scored = [
        _scored(case, measured[one.key])
        for case, one in zip(sealed["cases"], contestants, strict=True)
    ]
    numbers = [int(path.name.split("-")[-1].split(".")[0]) for path in check_paths(folder, name)]
    path = folder / f"{name}.check-{max(numbers, default=0) + 1}.json"
    atomic.write_json(path, _document(sealed, scored, validation, changes))
    for text in differences(validation):
        console.print(f"[yellow]{text}[/yellow]", soft_wrap=True)
    _report(validation, runs, console)
    console.print(f"[bold]{name}, sealed {sealed['sealed']}[/bold]")
    console.print(verdict_table(scored))
    console.print(f"wrote {path}", style="dim", soft_wrap=True)
    return path


def _present(one: Contestant, config_dirs: Sequence[Path]) -> dict[str, Any]:
    scenario: Scenario = one.scenario
    return {
        "graph": prepare(scenario, config_dirs).graph.digest,
        "profiles": profile_digests(scenario.cluster),
    }


def _scored(sealed: dict[str, Any], measured: Case) -> Case:
    """The measured case with the sealed prediction."""
    return replace(
        measured,
        model=sealed["model"],
        simulated_s=sealed["simulated_s"],
        low_s=float("nan") if sealed["low_s"] is None else sealed["low_s"],
        high_s=float("nan") if sealed["high_s"] is None else sealed["high_s"],
        overhead=Overhead.of_json(sealed),
        draws_s=np.zeros(0),
    )


def _document(
    sealed: dict[str, Any], scored: Sequence[Case], validation: Validation, changes: Sequence[str]
) -> dict[str, Any]:
    errors = np.abs([case.error for case in scored])
    separate = [pair for pair in pairs(scored) if pair.separate]
    intervals = [case for case in scored if np.isfinite(case.low_s)]
    return {
        "format": FORMAT,
        "name": sealed["name"],
        "sha256": sealed["sha256"],
        "checked": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "changes": list(changes),
        "differences": differences(validation),
        "machine": dict(validation.models[0].machine),
        "busy_cores_before": max(model.busy for model in validation.models),
        "versions": versions(),
        "revision": revision(),
        "score": {
            "cases": len(scored),
            "mean_absolute_error": float(errors.mean()),
            "worst_absolute_error": float(errors.max()),
            "intervals": len(intervals),
            "covered": sum(case.covered for case in intervals),
            "separate_pairs": len(separate),
            "separate_pairs_in_the_same_order": sum(pair.agrees for pair in separate),
            "mean_regret": float(np.mean(list(regret(scored).values()))),
        },
        "cases": [
            {
                "model": case.model,
                "jobs": case.jobs,
                "scheduler": case.scheduler,
                "simulated_s": case.simulated_s,
                "low_s": case.low_s,
                "high_s": case.high_s,
                "measured_s": case.measured_s,
                "repeats": len(case.repeats_s),
                "error": case.error,
                "covered": bool(case.covered),
            }
            for case in scored
        ],
    }


def _report(validation: Validation, folder: Path, console: Console) -> None:
    from experiments.validation.report import write_report

    write_report(validation, folder, f"check of a sealed prediction, {folder.name}")
    console.print(f"with today's prediction: {folder}/report.md", style="dim", soft_wrap=True)
