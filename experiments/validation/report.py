"""What a validation leaves: tables, figures, both traces of every case, and the report.

Its words are those of :mod:`experiments.validation.text`; what a later check needs is saved by
:mod:`experiments.validation.saved`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.plots.gantt import draw_stacked
from experiments.plots.validation import draw_cases, draw_pairs
from experiments.plots.waterfall import draw_waterfall
from experiments.runs import atomic
from experiments.validation.cases import Case, Validation
from experiments.validation.figures import (
    case_frame,
    figures,
    kind_frame,
    operator_frame,
    repeat_frame,
)
from experiments.validation.pairs import pairs
from experiments.validation.saved import save_validation
from experiments.validation.text import case_file_name, markdown
from simulator.model.units import format_seconds
from simulator.support.csv_text import csv_text

MOST_GANTTS = 30
"""Cases up to which each has a Gantt chart; of more, the worst predicted of each model."""


def with_gantt(cases: Sequence[Case]) -> list[Case]:
    """The cases of which a Gantt chart is drawn."""
    if len(cases) <= MOST_GANTTS:
        return list(cases)
    found = []
    for model in dict.fromkeys(case.model for case in cases):
        mine = [case for case in cases if case.model == model]
        found.append(max(mine, key=lambda case: abs(case.error)))
    return found


def _write_traces(validation: Validation, folder: Path) -> None:
    """Both traces of every case, and the stacked Gantt charts."""
    drawn = with_gantt(validation.cases)
    for model in validation.models:
        for case in model.cases:
            name = case_file_name(case)
            case.simulated.save(folder / "traces" / name / "simulated")
            case.measured.save(folder / "traces" / name / "measured")
            if case not in drawn:
                continue
            draw_stacked(
                [case.simulated, case.measured],
                [
                    f"simulated: {format_seconds(case.simulated.makespan)}",
                    f"measured: {format_seconds(case.measured.makespan)}",
                ],
                folder / f"gantt-{name}",
                title=f"{case.setting} under {case.scheduler}: simulated {case.error:+.1%} of measured",
                caption=(
                    f"{case.setting} under {case.scheduler} on {model.profiles}. Measured: the run "
                    f"whose makespan is nearest to the {model.statistic} of {len(case.repeats_s)} "
                    "repeats; its bars are the kernels alone. Simulated bars begin with the runner's "
                    f"overhead of {format_seconds(case.overhead.operator)} per operator."
                ),
            )


def write_report(validation: Validation, folder: Path, command: str) -> None:
    """Tables, figures, traces, ``report.md``, and last what is saved."""
    cases = validation.cases
    found = pairs(cases)
    statistic = ", ".join(dict.fromkeys(model.statistic for model in validation.models))
    _write_traces(validation, folder)
    for name, table in (
        ("cases", case_frame(validation)),
        ("repeats", repeat_frame(cases)),
        ("operators", operator_frame(validation.models)),
        ("kinds", kind_frame(validation.models)),
    ):
        text = csv_text(table.columns, table.itertuples(index=False))
        atomic.write_text(folder / f"{name}.csv", text)
    draw_cases(
        cases,
        folder / "fig_cases",
        f"{len(cases)} cases; {statistic} of the measured makespans. Bars: the error in steps that add "
        "up (experiments/validation/waterfall.py), diamonds their sum.",
    )
    draw_waterfall(
        cases,
        folder / "fig_waterfall",
        f"{len(cases)} cases; means of each step's share of the measured makespan. From the simulated to "
        "the measured makespan one ingredient after the other is replaced by what was measured "
        "(experiments/validation/waterfall.py).",
    )
    if found:
        draw_pairs(
            found,
            folder / "fig_pairs",
            f"{len(found)} pairs of schedulers on {len(validation.models)} models. Grey: measured "
            "makespans within 5%.",
        )
    atomic.write_text(folder / "report.md", markdown(validation, command, with_gantt(cases)))
    save_validation(validation, folder, command, figures(validation))
