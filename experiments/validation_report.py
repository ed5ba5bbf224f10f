"""What a validation leaves: tables, figures, both traces of every case, a report, and the answer."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments import atomic
from experiments.provenance import revision, versions
from experiments.validation import (
    SEPARATE,
    STEPS,
    Case,
    KindError,
    kendall_tau,
    kind_errors,
    pairs,
    regret,
    repeatability,
)
from simulator.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from experiments.validate import ModelValidation, Validation

FORMAT = "hetsim.validation/1"
QUIET = 0.1
"""Busy cores up to which a machine counts as quiet."""


def write_model(model: ModelValidation, folder: Path) -> None:
    """Both traces and the stacked Gantt charts of a model's cases."""
    from experiments.plots.gantt import draw_stacked

    for case in model.cases:
        name = _file_name(case)
        case.simulated.save(folder / "traces" / name / "simulated")
        case.measured.save(folder / "traces" / name / "measured")
        draw_stacked(
            [case.simulated, case.measured],
            [
                f"simulated: {format_seconds(case.simulated.makespan)}",
                f"measured: {format_seconds(case.measured.makespan)}",
            ],
            folder / f"gantt-{name}",
            title=f"{case.model} under {case.scheduler}: simulated {case.error:+.1%} of measured",
            caption=(
                f"{case.model} under {case.scheduler} on {model.profiles}. Measured: the run whose "
                f"makespan is nearest to the {model.statistic} of {model.repeats} repeats; its bars "
                "are the kernels alone. Simulated bars begin with the runner's overhead of "
                f"{format_seconds(model.dispatch_s[case.scheduler])} per operator."
            ),
        )


def write_report(validation: Validation, folder: Path, command: str) -> None:
    """Tables, the two figures, ``report.md``, and last ``validation.json``."""
    from experiments.plots.validation import draw_cases, draw_pairs

    cases = validation.cases
    found = pairs(cases)
    statistic = ", ".join(dict.fromkeys(model.statistic for model in validation.models))
    for name, table in (
        ("cases", case_frame(validation)),
        ("repeats", _repeat_frame(cases)),
        ("operators", _operator_frame(validation.models)),
        ("kinds", kind_frame(validation.models)),
    ):
        atomic.write_text(folder / f"{name}.csv", table.to_csv(index=False))
    draw_cases(
        cases,
        folder / "fig_cases",
        f"{len(cases)} cases; {statistic} of the measured makespans. Bars: the error in steps that add "
        "up (experiments/validation.py), diamonds their sum.",
    )
    if found:
        draw_pairs(
            found,
            folder / "fig_pairs",
            f"{len(found)} pairs of schedulers on {len(validation.models)} models. Grey: measured "
            "makespans within 5%.",
        )
    atomic.write_text(folder / "report.md", markdown(validation, command))
    atomic.write_json(folder / "validation.json", document(validation, command))
    atomic.point_to(folder.parent / "latest", folder)


def document(validation: Validation, command: str) -> dict[str, Any]:
    """The figures as one JSON document."""
    return {
        "format": FORMAT,
        "command": command,
        "versions": versions(),
        "revision": revision(),
        "cores": len(os.sched_getaffinity(0)),
        "summary": summary(validation),
        "models": [
            {
                "model": model.model,
                "graph": model.graph.digest,
                "operators": len(model.graph),
                "devices": list(model.devices),
                "profiles": model.profiles,
                "statistic": model.statistic,
                "repeats": model.repeats,
                "busy_cores_before": model.busy,
                "profile_differences": list(model.differences),
                "dispatch_s": model.dispatch_s,
            }
            for model in validation.models
        ],
        "cases": case_frame(validation).to_dict(orient="records"),
    }


def summary(validation: Validation) -> dict[str, Any]:
    """The few figures that answer the question."""
    cases = validation.cases
    errors = np.array([case.error for case in cases])
    unseen = np.array([case.unseen_error for case in cases])
    intervals = [case for case in cases if np.isfinite(case.low_s)]
    found = pairs(cases)
    separate = [pair for pair in found if pair.separate]
    told_apart = [pair for pair in found if pair.told_apart]
    losses = list(regret(cases).values())
    return {
        "cases": len(cases),
        "mean_absolute_error": float(np.abs(errors).mean()),
        "worst_absolute_error": float(np.abs(errors).max()),
        "mean_signed_error": float(errors.mean()),
        "mean_absolute_error_unseen": float(np.abs(unseen).mean()),
        "worst_absolute_error_unseen": float(np.abs(unseen).max()),
        "intervals": len(intervals),
        "covered": sum(case.covered for case in intervals),
        "pairs": len(found),
        "separate_pairs": len(separate),
        "separate_pairs_in_the_same_order": sum(pair.agrees for pair in separate),
        "pairs_told_apart": len(told_apart),
        "pairs_told_apart_in_the_same_order": sum(pair.agrees for pair in told_apart),
        "kendall_tau": kendall_tau(found),
        "mean_regret": float(np.mean(losses)),
        "worst_regret": float(np.max(losses)),
    }


def case_frame(validation: Validation) -> pd.DataFrame:
    """One row a case; errors and steps are shares of the measured makespan."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "model": case.model,
                "scheduler": case.scheduler,
                "simulated_s": case.simulated_s,
                "low_s": case.low_s,
                "high_s": case.high_s,
                "unseen_s": case.unseen_s,
                "measured_s": case.measured_s,
                "measured_median_s": float(np.median(case.repeats_s)),
                "measured_p90_s": float(np.quantile(case.repeats_s, 0.9)),
                "repeats": len(case.repeats_s),
                "repeatability": repeatability(case, model.statistic),
                "error": case.error,
                "unseen_error": case.unseen_error,
                **{
                    f"{step.replace('-', '_')}_share": case.steps[step] / case.measured_s
                    for step in STEPS
                },
                "dispatch_s": model.dispatch_s[case.scheduler],
            }
            for model in validation.models
            for case in model.cases
        ]
    )


def _repeat_frame(cases: Sequence[Case]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (case.model, case.scheduler, number, makespan)
        for case in cases
        for number, makespan in enumerate(case.repeats_s.tolist())
    ]
    return pd.DataFrame(rows, columns=["model", "scheduler", "repeat", "makespan_s"])


def _operator_frame(models: Sequence[ModelValidation]) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (
            model.model,
            device,
            operator.name,
            operator.kind,
            model.predicted[number, column],
            model.alone[number, column],
        )
        for model in models
        for column, device in enumerate(model.devices)
        for number, operator in enumerate(model.graph.operators)
    ]
    columns = ["model", "device", "operator", "kind", "predicted_s", "measured_s"]
    return pd.DataFrame(rows, columns=columns)


def kind_frame(models: Sequence[ModelValidation]) -> pd.DataFrame:
    """One row a model, device and kind; ``all`` is every kind of a device together."""
    import pandas as pd

    return pd.DataFrame(
        [{"model": model.model, **vars(row)} for model in models for row in _kinds(model)]
    )


def _kinds(model: ModelValidation) -> list[KindError]:
    return kind_errors(model.graph, model.predicted, model.alone, model.devices)


# -- text -----------------------------------------------------------------------------------------


def answers(validation: Validation) -> list[str]:
    """The answer in sentences."""
    figures = summary(validation)
    models = len(validation.models)
    statistic = ", ".join(dict.fromkeys(model.statistic for model in validation.models))
    lines = [
        f"Simulated against measured makespan, {figures['cases']} cases of {models} models: mean error "
        f"{figures['mean_absolute_error']:.1%}, worst {figures['worst_absolute_error']:.1%}, bias "
        f"{figures['mean_signed_error']:+.1%} ({statistic} of the repeats on both sides)"
    ]
    if np.isfinite(figures["mean_absolute_error_unseen"]):
        lines.append(
            "from profiles that never saw the model: mean error "
            f"{figures['mean_absolute_error_unseen']:.1%}, worst "
            f"{figures['worst_absolute_error_unseen']:.1%}"
        )
    if figures["separate_pairs"]:
        lines.append(
            f"the winner is named in {figures['separate_pairs_in_the_same_order']} of "
            f"{figures['separate_pairs']} pairs that differ by more than {SEPARATE - 1:.0%} (Kendall "
            f"tau over all {figures['pairs']}: {figures['kendall_tau']:.2f}); choosing by simulation "
            f"costs {figures['mean_regret']:.1%} on average, at worst {figures['worst_regret']:.1%}"
        )
    if figures["pairs_told_apart"]:
        lines.append(
            f"of {figures['pairs_told_apart']} pairs that simulation tells apart by more than "
            f"{SEPARATE - 1:.0%}, {figures['pairs_told_apart_in_the_same_order']} came out in that order"
        )
    if figures["intervals"]:
        lines.append(
            f"{figures['covered']} of {figures['intervals']} measured makespans lie in the predicted "
            "95% interval"
        )
    return lines


def print_report(validation: Validation, folder: Path, console: Console) -> None:
    """The answer, one line a case, operator errors, and where everything lies."""
    first, *others = answers(validation)
    console.print(f"[bold]{first}[/bold]")
    for line in others:
        console.print(line)
    console.print()
    console.print(_case_table(validation))
    console.print(
        "error: simulated over measured, minus one; the columns after it add up to measured minus "
        "simulated, % of measured: other decisions, operator times alone, their slowdown while others "
        "run, and what the runner needs beyond the modelled overhead",
        style="dim",
    )
    console.print()
    console.print(_kind_table(validation))
    overheads = ", ".join(
        f"{label} {np.mean([m.dispatch_s[label] for m in validation.models]) * 1e6:.0f}"
        for label in _labels(validation)
    )
    console.print(
        f"the runner's overhead per operator, modelled as launch overhead, us: {overheads}"
    )
    console.print("every run gave the module's own result (torch.testing.assert_close)")
    for text in _differences(validation):
        console.print(f"[yellow]{text}: measure it again[/yellow]", soft_wrap=True)
    busiest = max(model.busy for model in validation.models)
    if busiest > QUIET:
        console.print(
            f"[yellow]other processes kept {busiest:.1f} cores of this machine busy: repeat this when it "
            "is quiet[/yellow]"
        )
    console.print(f"wrote {folder}/report.md", style="dim", soft_wrap=True)


def _case_table(validation: Validation) -> Table:
    unseen = any(np.isfinite(case.unseen_error) for case in validation.cases)
    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    table.add_column("scheduler")
    headings = ["sim. ms", "real ms", "A/A", "error", *(["unseen"] * unseen)]
    for heading in (*headings, "decis.", "oper.", "co-run", "runner"):
        table.add_column(heading, justify="right", no_wrap=True)
    for model in validation.models:
        for number, case in enumerate(model.cases):
            table.add_row(
                case.model if not number else "",
                case.scheduler,
                f"{case.simulated_s * 1e3:.4g}",
                f"{case.measured_s * 1e3:.4g}",
                f"{repeatability(case, model.statistic):.1%}",
                f"{case.error:+.1%}",
                *([f"{case.unseen_error:+.1%}"] if unseen else []),
                *(f"{case.steps[step] / case.measured_s * 100:+.1f}" for step in STEPS),
            )
    return table


def _kind_table(validation: Validation, most: int = 4) -> Table:
    """Operator errors of the kinds that take most time."""
    table = Table(
        title="operators, predicted over measured alone, minus one",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for heading in ("model", "device", "kind"):
        table.add_column(heading)
    for heading in ("operators", "measured ms", "of the sum", "median", "mean", "median |.|"):
        table.add_column(heading, justify="right")
    for model in validation.models:
        shown = ""
        for device in model.devices:
            rows = [row for row in _kinds(model) if row.device == device][: most + 1]
            for number, row in enumerate(rows):
                table.add_row(
                    "" if shown else model.model,
                    "" if number else device,
                    row.kind,
                    str(row.operators),
                    f"{row.measured_s * 1e3:.4g}",
                    *(f"{value:+.1%}" for value in (row.total, row.median, row.mean)),
                    f"{row.median_absolute:.1%}",
                )
                shown = model.model
    return table


def markdown(validation: Validation, command: str) -> str:
    """``report.md``."""
    lines = ["# Simulation held against hardware", "", f"`{command}`", ""]
    lines += [f"- {answer}" for answer in answers(validation)]
    lines += ["", "![cases](fig_cases.png)", ""]
    if len(validation.cases) > len(validation.models):
        lines += ["![pairs](fig_pairs.png)", ""]
    lines += [
        "## Cases",
        "",
        "Makespans in ms. `A/A`: the statistic over even against odd repeats. The last four columns "
        "add up to measured minus simulated, in % of measured.",
        "",
        "| model | scheduler | simulated | 95% | measured | A/A | error | unseen | decisions | "
        "operators | co-run | runner |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for model in validation.models:
        for case in model.cases:
            cells = [
                case.model,
                f"[{case.scheduler}](gantt-{_file_name(case)}.png)",
                f"{case.simulated_s * 1e3:.4g}",
                f"{case.low_s * 1e3:.4g} to {case.high_s * 1e3:.4g}"
                if np.isfinite(case.low_s)
                else "",
                f"{case.measured_s * 1e3:.4g}",
                f"{repeatability(case, model.statistic):.1%}",
                f"{case.error:+.1%}",
                f"{case.unseen_error:+.1%}" if np.isfinite(case.unseen_error) else "",
                *(f"{case.steps[step] / case.measured_s * 100:+.1f}" for step in STEPS),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Operators",
        "",
        "Predicted over measured time, minus one; measured with the other workers idle.",
        "",
        "| model | device | kind | operators | measured ms | of the sum | median | mean | "
        "median absolute |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for model in validation.models:
        for row in _kinds(model):
            cells = [
                model.model,
                row.device,
                row.kind,
                str(row.operators),
                f"{row.measured_s * 1e3:.4g}",
                *(f"{value:+.1%}" for value in (row.total, row.median, row.mean)),
                f"{row.median_absolute:.1%}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## The runner", ""]
    lines += [
        "Microseconds per operator between two kernels, measured on a chain of simple operators "
        "before each model and modelled as launch overhead:",
        "",
        "| model | repeats | busy cores before | " + " | ".join(_labels(validation)) + " |",
        "|---|--:|--:|" + "--:|" * len(_labels(validation)),
    ]
    for model in validation.models:
        values = [
            f"{model.dispatch_s[label] * 1e6:.1f}" if label in model.dispatch_s else ""
            for label in _labels(validation)
        ]
        lines.append(
            f"| {model.model} | {model.repeats} | {model.busy:.2f} | {' | '.join(values)} |"
        )
    if differences := _differences(validation):
        lines += ["", *(f"- {text}." for text in differences)]
    lines += ["", "Every run gave the module's own result (`torch.testing.assert_close`).", ""]
    return "\n".join(lines)


def _differences(validation: Validation) -> list[str]:
    return list(dict.fromkeys(text for model in validation.models for text in model.differences))


def _labels(validation: Validation) -> list[str]:
    return list(dict.fromkeys(label for m in validation.models for label in m.dispatch_s))


def _file_name(case: Case) -> str:
    return re.sub(r"[^\w.=,+-]+", "_", f"{case.model}-{case.scheduler}").strip("_")
