"""What a validation of serving leaves and prints: the answer, a table, a figure, a report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.probes.machine_speed import SORTS, MachineSpeed
from experiments.probes.overhead import corun_text
from experiments.runs import atomic
from experiments.runs.provenance import revision, versions
from experiments.serving_validation.figures import Figures, settled
from experiments.serving_validation.outcome import (
    FIGURES,
    INTERVAL,
    TOLD,
    ServingCase,
    answers,
    averaged,
    by_the_others,
    case_frame,
    summary,
    taken_apart,
)
from simulator.model.units import format_seconds
from simulator.support.csv_text import csv_text

FORMAT = "hetsim.serving_validation/3"
DOUBTFUL = 1.1
"""Times that a measured and a simulated capacity may differ without a word: twice what they did where nothing else ran."""
HEADINGS = ("load", "scheduler", "", *FIGURES.values(), "batch")


def write_report(
    runs: Sequence[ServingCase],
    figures: Figures,
    profiles: str,
    differences: Sequence[str],
    folder: Path,
    command: str,
) -> None:
    """``cases.csv``, the figure, ``report.md``, and last ``validation.json``."""
    from experiments.plots.serving_validation import draw_serving_validation

    cases = averaged(runs)
    frame = case_frame(runs)
    atomic.write_text(folder / "runs.csv", csv_text(frame.columns, frame.itertuples(index=False)))
    atomic.write_text(folder / "command.txt", command + "\n")
    requests = sum(run.measured["requests"] for run in runs)
    draw_serving_validation(
        cases,
        folder / "fig_serving",
        f"{len(cases)} cases, {len(runs)} runs, {requests} requests in each world. Capacity one at a time: "
        f"{figures.capacity_per_s:.4g}/s measured. Shaded: 12%. {profiles}".strip(),
    )
    atomic.write_text(folder / "report.md", markdown(runs, figures, profiles, differences, command))
    atomic.write_json(
        folder / "validation.json",
        {
            "format": FORMAT,
            "command": command,
            "versions": versions(),
            "revision": revision(),
            "cores": len(os.sched_getaffinity(0)),
            "profiles": profiles,
            "differences": list(differences),
            "machine": asdict(figures),
            "summary": summary(cases),
            "the_machine_itself": summary(by_the_others(runs)),
            "runs": [asdict(run) for run in runs],
        },
    )


def rows_of(case: ServingCase) -> list[tuple[str, ...]]:
    """Measured, simulated, the ends of the predicted interval and the error of a case, as text under ``HEADINGS``."""
    found = []
    for name, values in (("measured", case.measured), ("simulated", case.simulated)):
        texts = [_shown(figure, values.get(figure)) for figure in FIGURES]
        load = f"{case.load:g}" if name == "measured" else ""
        scheduler = case.scheduler if name == "measured" else ""
        found.append((load, scheduler, name, *texts, f"{values['mean_batch']:.2f}"))
    for name, ends in (("from", case.low), ("to", case.high)):
        if ends:
            found.append(("", "", name, *(_shown(f, ends.get(f)) for f in FIGURES), ""))
    errors = [case.error(figure) for figure in (*FIGURES, "mean_batch")]
    texts = ["-" if error != error else f"{error:+.1%}" for error in errors]
    found.append(("", "", "error", *texts))
    return found


def _shown(figure: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if figure.endswith("per_s") else format_seconds(value)


def foundations(figures: Figures) -> list[str]:
    """What the simulation was given of this machine, in sentences."""
    joining = [s for sizes in figures.joining_s.values() for s in sizes.values()]
    most = f", at most {format_seconds(max(joining))} for a batch's inputs" if joining else ""
    dispatch = ", ".join(f"{label} {s * 1e6:.0f}" for label, s in figures.dispatch_s.items())
    error = figures.simulated_capacity_per_s / figures.capacity_per_s - 1
    return [
        f"capacity one request at a time: {figures.capacity_per_s:.4g}/s measured, "
        f"{figures.simulated_capacity_per_s:.4g}/s simulated ({error:+.1%}) "
        + (
            f"for a machine whose operators took longer on average than the profiles say: {_slower(figures)}"
            if figures.speed is not None
            else "at the profiles' speed"
        ),
        f"the runner's overhead, modelled: per task, us: {dispatch}; per operator within one "
        f"{figures.segment_s * 1e6:.1f} us{most}",
        *_sharing(figures),
    ]


def doubts(figures: Figures) -> list[str]:
    """Why the loads may not be what they are called, in sentences."""
    found = []
    if not settled(figures.capacities_per_s):
        each = ", ".join(f"{rate:.4g}" for rate in figures.capacities_per_s)
        found.append(
            f"the capacity did not settle: {each}/s one after the other, of which the median is taken"
        )
    share = figures.capacity_per_s / figures.simulated_capacity_per_s
    if not 1.0 / DOUBTFUL <= share <= DOUBTFUL:
        found.append(
            f"a load of 1 is {share:.2f} of the simulated capacity: either the simulation is wrong, or something "
            "else ran while the capacity was measured; again=true measures it again"
        )
    return found


def _sharing(figures: Figures) -> list[str]:
    found = []
    corun = (figures.speed or {}).get("corun")
    if corun is not None:
        found.append(f"{corun_text(corun)} longer for each other busy device beside the bursts")
    if figures.wake_s is not None:
        costs = " and ".join(format_seconds(s) for s in sorted(set(figures.wake_s)))
        found.append(f"up to {costs} longer after a rest")
    return (
        [f"an execution takes, by the panel and a part of it: {', '.join(found)}"] if found else []
    )


def _slower(figures: Figures) -> str:
    speed = MachineSpeed.from_json(figures.speed or {})
    by_sort = {
        sort: [device[sort] for device in speed.slowness if sort in device] for sort in SORTS
    }
    found = [f"{sort} {mean(s) - 1:+.0%}" for sort, s in by_sort.items() if s]
    if speed.cold:
        behind, kind = (mean(costs) * 1e6 for costs in zip(*speed.cold, strict=True))
        found.append(f"light ones behind long ones up to {behind:.0f} + {kind:.0f} us")
    if speed.traffic:
        found.append(f"convolutions by their traffic up to {mean(speed.traffic):+.0%} more")
    return ", ".join(found)


def markdown(
    runs: Sequence[ServingCase],
    figures: Figures,
    profiles: str,
    differences: Sequence[str],
    command: str,
) -> str:
    """The report."""
    cases = averaged(runs)
    lines = [
        "# Serving, simulated and measured",
        "",
        f"`{command}`",
        "",
        *(f"- {line}" for line in (*answers(runs), *foundations(figures))),
        f"- times of the simulation: {profiles or 'unknown'}; load average of the machine before: "
        f"{figures.load_average:.2f}",
        *(f"- {text}" for text in (*differences, *doubts(figures))),
        "- every answer equals the module's own on the request's input (torch.testing.assert_close)",
        "",
        "![Delays and throughput against the load](fig_serving.png)",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    for case in cases:
        lines += ["| " + " | ".join(row) + " |" for row in rows_of(case)]
    steps = _step_rows(cases)
    if steps:
        lines += [
            "",
            "Where the error of the mean delay comes from: measured minus simulated in per cent of measured, taken apart. "
            "`speed`: each model's executions take on average what they took in the run; `phases`: from moment to "
            "moment; `rest`: all else.",
            "",
            "| load | scheduler | measured - simulated | "
            + " | ".join((*TOLD.values(), "rest"))
            + " |",
        ]
        lines += ["|" + "---|" * (4 + len(TOLD)), *steps]
    by_model = _model_rows(cases)
    if by_model:
        lines += [
            "",
            "Mean delay by model:",
            "",
            "| load | scheduler | model | measured | simulated |",
        ]
        lines += ["|" + "---|" * 5, *by_model]
    return "\n".join(lines) + "\n"


def _step_rows(cases: Sequence[ServingCase]) -> list[str]:
    found = []
    for case in cases:
        steps = taken_apart(case)
        if steps is not None:
            texts = [f"{step:+.1%}" for step in (sum(steps.values()), *steps.values())]
            found.append(f"| {case.load:g} | {case.scheduler} | {' | '.join(texts)} |")
    return found


def _model_rows(cases: Sequence[ServingCase]) -> list[str]:
    found = []
    for case in cases:
        simulated: Mapping[str, Any] = case.simulated.get("by_model", {})
        for model, values in case.measured.get("by_model", {}).items():
            other = simulated.get(model, {}).get("mean_delay_s")
            texts = [_shown("delay", value) for value in (values["mean_delay_s"], other)]
            found.append(
                f"| {case.load:g} | {case.scheduler} | {model} | {texts[0]} | {texts[1]} |"
            )
    return found


def print_report(
    runs: Sequence[ServingCase], figures: Figures, folder: Path, console: Console
) -> None:
    """The answer, one table, and where everything lies."""
    first, *others = answers(runs)
    console.print(first, style="bold", markup=False)
    for line in (*others, *foundations(figures)):
        console.print(line, markup=False)
    console.print()
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        justify: Any = "left" if 0 < number < 3 else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    for case in averaged(runs):
        for row in rows_of(case):
            table.add_row(*row, style="dim" if row[2] in ("from", "to", "error") else None)
    console.print(table)
    console.print(
        f"from, to: the predicted {INTERVAL:.0%} interval of a run; error: simulated over measured, minus one; the "
        "same arrivals in both worlds, means over all runs of a case; every answer is the module's own "
        "(torch.testing.assert_close)",
        style="dim",
    )
    for text in doubts(figures):
        console.print(f"[yellow]{text}[/yellow]")
    if figures.load_average > 0.5:
        console.print(
            f"[yellow]the load average of this machine was {figures.load_average:.1f}: repeat this when "
            "it is quiet[/yellow]"
        )
    console.print(f"wrote {folder}/report.md", style="dim", soft_wrap=True)
