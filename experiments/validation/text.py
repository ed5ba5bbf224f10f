"""A validation in words and tables: what is printed, and ``report.md``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.probes.machine_speed import SORTS, MachineSpeed
from experiments.probes.overhead import corun_text
from experiments.runs.this_machine import busy_text, drift_text
from experiments.validation.cases import (
    Case,
    ModelValidation,
    Validation,
    against_itself,
    repeatability,
)
from experiments.validation.figures import kinds_of, summary
from experiments.validation.pairs import SEPARATE, Reliability, pairs, reliability
from experiments.validation.simulated_vs_measured import INTERVAL
from experiments.validation.verdict import verdict
from experiments.validation.waterfall import STEPS, mean_steps

SURE = 0.9
"""P(win) from which the answer says how often it came true."""
MOST_LINES = 60
"""Cases up to which each is printed; of more, a line for each model and number of jobs."""
_HEADINGS = ("decis.", "oper.", "co-run", "transf.", "disp.", "rep.")


def case_file_name(case: Case) -> str:
    """What files of a case are called."""
    text = f"{case.model}-{case.scheduler}" + (f"-x{case.jobs}" if case.jobs > 1 else "")
    return re.sub(r"[^\w.=,+-]+", "_", text).strip("_")


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
    if np.isfinite(figures["slowness"]):
        other = "unscaled" if figures["at_speed"] else "steady"
        lines.append(
            f"operators took {figures['slowness'] - 1:+.1%} on this machine against when the profiles were "
            "measured, by a panel of others (median over the models), which the prediction "
            + (
                "takes into account; at the profiles' speed"
                if figures["at_speed"]
                else "does not know; with each model's share of it taken out"
            )
            + f" the mean error is {figures['mean_absolute_error_' + other]:.1%}, the bias "
            f"{figures['mean_signed_error_' + other]:+.1%}"
            + (
                ", with one factor for all sorts of operators "
                f"{figures['mean_absolute_error_one_factor']:.1%} and "
                f"{figures['mean_signed_error_one_factor']:+.1%}"
                if np.isfinite(figures["mean_absolute_error_one_factor"])
                else ""
            )
            + (
                ", with cold code not told apart "
                f"{figures['mean_absolute_error_without_cold']:.1%} and "
                f"{figures['mean_signed_error_without_cold']:+.1%}"
                if np.isfinite(figures["mean_absolute_error_without_cold"])
                else ""
            )
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
    if "mean_regret_by_draws" in figures:
        lines.append(
            "asked for the mean of its draws instead of its one run, simulation names "
            f"{figures['separate_pairs_in_the_same_order_by_draws']} of the {figures['separate_pairs']}; "
            f"choosing by it costs {figures['mean_regret_by_draws']:.1%}, at worst "
            f"{figures['worst_regret_by_draws']:.1%}"
        )
    if sure := [one for one in reliability(pairs(validation.cases)) if one.low >= SURE]:
        lines.append(
            f"of {sum(one.pairs for one in sure)} pairs for which P(win) is .9 or more, "
            f"{sum(one.right for one in sure)} came out so; of the {sum(one.separate for one in sure)} "
            f"among them that differ by more than {SEPARATE - 1:.0%}, "
            f"{sum(one.separate_right for one in sure)}"
        )
    if figures["intervals"]:
        lines.append(
            f"{figures['covered']} of {figures['intervals']} measured makespans lie in the predicted "
            f"{INTERVAL:.0%} interval"
        )
    return lines


def print_report(validation: Validation, folder: Path, console: Console) -> None:
    """The answer, one line a case, operator errors, and where everything lies."""
    first, *others = answers(validation)
    console.print(f"[bold]{first}[/bold]")
    for line in others:
        console.print(line)
    console.print()
    console.print(verdict_table(validation.cases, against_itself(validation)))
    console.print()
    few = len(validation.cases) <= MOST_LINES
    console.print(_case_table(validation) if few else _setting_table(validation.cases))
    console.print(
        "error: simulated over measured, minus one; the columns after it add up to measured minus "
        "simulated, % of measured: other decisions, operator times alone, their slowdown while others "
        "run, transfers, what the runner needs beyond the modelled overhead, and all repeats instead of the "
        "one that was taken apart",
        style="dim",
    )
    console.print()
    if few:
        console.print(_kind_table(validation))
    console.print(
        "the runner's overhead per operator, modelled as launch overhead, us: "
        + _microseconds(validation, "operator")
    )
    for part in _parts(validation):
        console.print(f"{part.what}, as {part.taken_as}, us: {_microseconds(validation, part.of)}")
    console.print("every run gave the module's own result (torch.testing.assert_close)")
    if seen := conditions(validation):
        console.print(f"this host: {'; '.join(seen)}", style="yellow", markup=False, soft_wrap=True)
    console.print(f"wrote {folder}/report.md", style="dim", soft_wrap=True)


def verdict_table(cases: Sequence[Case], itself: Sequence[Case] = ()) -> Table:
    """The verdict for a console; see :func:`experiments.validation.verdict.verdict`."""
    table = Table(box=None, pad_edge=False)
    for heading in ("verdict", "reached", "to reach", "holds", "the machine itself"):
        table.add_column(heading)
    for line in verdict(cases, itself):
        colour = {"yes": "green", "no": "red", "-": "dim"}[line.word]
        word = f"[{colour}]{line.word}[/{colour}]"
        table.add_row(line.what, line.reached, line.target, word, line.itself)
    return table


class _Part(NamedTuple):
    """A part of the runner's overhead that not every machine has."""

    of: str
    what: str
    taken_as: str


_COPY = _Part("copy", "per copy beyond what its link's figures say", "latency")
_COPY_TOLD = _COPY._replace(taken_as="the latency that schedulers are told of")
_COPY_LAUNCH = _Part(
    "copy_launch",
    "of the interpreter before a copy goes, and again when it has come",
    "launch overhead of the links",
)
_SUBMITTED = (
    _Part("ahead", "per operator that was submitted behind another", "launch overhead"),
    _Part("completion", "until the host acts on an end", "completion latency"),
    _Part("issue", "of the host to launch an operator on a stream", "issue overhead"),
)


def _parts(validation: Validation) -> list[_Part]:
    """Those that were found."""
    overheads = [case.overhead for case in validation.cases]
    found = [_COPY] if any(overhead.copy for overhead in overheads) else []
    if any(overhead.copy_launch for overhead in overheads):
        found = [_COPY_TOLD, _COPY_LAUNCH]
    if any(overhead.completion is not None for overhead in overheads):
        found += [p for p in _SUBMITTED if any(getattr(o, p.of) is not None for o in overheads)]
    return found


def _microseconds(validation: Validation, of: str) -> str:
    """A part of the runner's overhead under each scheduler, the mean over the models."""
    found: dict[str, list[float]] = {}
    for model in validation.models:
        for label, overhead in model.overheads.items():
            if (seconds := getattr(overhead, of)) is not None:
                found.setdefault(label, []).append(seconds)
    return ", ".join(f"{label} {np.mean(seconds) * 1e6:.0f}" for label, seconds in found.items())


def _case_table(validation: Validation) -> Table:
    unseen = any(np.isfinite(case.unseen_error) for case in validation.cases)
    table = Table(box=None, pad_edge=False)
    table.add_column("model", max_width=22)
    table.add_column("scheduler")
    headings = ["sim. ms", "real ms", "A/A", "error", *(["unseen"] * unseen)]
    for heading in (*headings, *_HEADINGS):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = ""
    for model in validation.models:
        for case in model.cases:
            table.add_row(
                case.setting if case.setting != shown else "",
                case.scheduler,
                f"{case.simulated_s * 1e3:.4g}",
                f"{case.measured_s * 1e3:.4g}",
                f"{repeatability(case, model.statistic):.1%}",
                f"{case.error:+.1%}",
                *([f"{case.unseen_error:+.1%}"] if unseen else []),
                *_step_cells(case),
            )
            shown = case.setting
    return table


def _step_cells(case: Case) -> list[str]:
    return [f"{case.steps[step] / case.measured_s * 100:+.1f}" for step in STEPS]


def _setting_table(cases: Sequence[Case]) -> Table:
    """One line for each model and number of jobs: means over its schedulers."""
    table = Table(box=None, pad_edge=False)
    table.add_column("model", max_width=22)
    for heading in ("cases", "mean", "worst", "of"):
        table.add_column(heading, justify="left" if heading == "of" else "right")
    for heading in ("bias", *_HEADINGS):
        table.add_column(heading, justify="right", no_wrap=True)
    for setting in dict.fromkeys(case.setting for case in cases):
        mine = [case for case in cases if case.setting == setting]
        worst = max(mine, key=lambda case: abs(case.error))
        steps = mean_steps([case.steps for case in mine], [case.measured_s for case in mine])
        table.add_row(
            setting,
            str(len(mine)),
            f"{np.mean([abs(case.error) for case in mine]):.1%}",
            f"{worst.error:+.1%}",
            worst.scheduler,
            f"{np.mean([case.error for case in mine]):+.1%}",
            *(f"{steps[step] * 100:+.1f}" for step in STEPS),
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
            rows = [row for row in kinds_of(model) if row.device == device][: most + 1]
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


def markdown(validation: Validation, command: str, drawn: Sequence[Case]) -> str:
    """``report.md``.

    Args:
        validation: with at least one case.
        command: that repeats it.
        drawn: cases that have a Gantt chart.
    """
    cases = validation.cases
    lines = ["# Simulation held against hardware", "", f"`{command}`", ""]
    lines += [f"- {answer}" for answer in answers(validation)]
    lines += ["", "| verdict | reached | to reach | holds | the machine itself |"]
    lines += ["|---|--:|--:|---|--:|"]
    lines += [
        f"| {v.what} | {v.reached} | {v.target} | {v.word} | {v.itself} |"
        for v in verdict(cases, against_itself(validation))
    ]
    lines += ["", "The machine itself: its even repeats for a prediction of its odd ones."]
    lines += ["", "![cases](fig_cases.png)", "", "![waterfall](fig_waterfall.png)", ""]
    if len(cases) > len({case.setting for case in cases}):
        lines += ["![pairs](fig_pairs.png)", ""]
    lines += [
        "## Cases",
        "",
        "Makespans in ms. `A/A`: the statistic over even against odd repeats. The last six columns "
        "add up to measured minus simulated, in % of measured. Schedulers with a link: both runs on "
        "one axis.",
        "",
        f"| model | scheduler | simulated | {INTERVAL:.0%} | measured | A/A | error | unseen | "
        f"{' | '.join(STEPS)} |",
        "|---|---|--:|--:|--:|--:|--:|--:|" + "--:|" * len(STEPS),
    ]
    for model in validation.models:
        for case in model.cases:
            linked = f"[{case.scheduler}](gantt-{case_file_name(case)}.png)"
            cells = [
                case.setting,
                linked if case in drawn else case.scheduler,
                f"{case.simulated_s * 1e3:.4g}",
                f"{case.low_s * 1e3:.4g} to {case.high_s * 1e3:.4g}"
                if np.isfinite(case.low_s)
                else "",
                f"{case.measured_s * 1e3:.4g}",
                f"{repeatability(case, model.statistic):.1%}",
                f"{case.error:+.1%}",
                f"{case.unseen_error:+.1%}" if np.isfinite(case.unseen_error) else "",
                *_step_cells(case),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += _reliability_lines(reliability(pairs(cases)))
    lines += _operator_lines(validation)
    lines += _runner_lines(validation)
    return "\n".join(lines)


def _reliability_lines(groups: Sequence[Reliability]) -> list[str]:
    if not groups:
        return []
    lines = [
        "",
        "## P(win), and how often it came true",
        "",
        "Pairs of schedulers by the share of paired draws in which the favoured one is shorter, and in how "
        "many of them it was on hardware.",
        "",
        f"| P(win) | pairs | stated, mean | came true | of those that differ by more than {SEPARATE - 1:.0%} |",
        "|---|--:|--:|--:|--:|",
    ]
    for one in groups:
        said = "1: every draw" if one.low == one.high else f"{one.low:g} to {one.high:g}"
        apart = (
            f"{one.separate_right} of {one.separate} ({one.separate_right / one.separate:.1%})"
            if one.separate
            else ""
        )
        lines.append(
            f"| {said} | {one.pairs} | {one.stated:.1%} | {one.right} ({one.right / one.pairs:.1%}) | "
            f"{apart} |"
        )
    return lines


def _operator_lines(validation: Validation) -> list[str]:
    lines = [
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
        for row in kinds_of(model):
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
    return lines


def _runner_lines(validation: Validation) -> list[str]:
    labels = list(dict.fromkeys(label for m in validation.models for label in m.overheads))
    lines = [
        "",
        "## The runner",
        "",
        "Microseconds per operator between two kernels, measured on EfficientNet-B0 "
        "before each model and modelled as launch overhead, here for the fewest jobs:",
        "",
        "| model | repeats | busy cores before | slower by | "
        + " | ".join(
            [
                *SORTS,
                "cold code, us",
                "cold kind, us",
                "traffic",
                "beside others",
                "noise",
                "half kept, MiB",
                "taken",
                "hand-over",
            ]
        )
        + f" | {' | '.join(labels)} |",
        "|---|--:|--:|--:|" + "--:|" * (len(SORTS) + 8 + len(labels)),
    ]
    for model in validation.models:
        values = _overhead_cells(model, labels, "operator")
        lines.append(
            f"| {model.model} | {model.repeats} | {model.busy:.2f} | "
            f"{_speed_cells(model)} | {' | '.join(values)} |"
        )
    lines += _reading_lines(validation)
    for part in _parts(validation):
        lines += [
            "",
            f"Microseconds {part.what}, found in the same runs and modelled as {part.taken_as}:",
            "",
            f"| model | {' | '.join(labels)} |",
            "|---|" + "--:|" * len(labels),
        ]
        for model in validation.models:
            values = _overhead_cells(model, labels, part.of)
            lines.append(f"| {model.model} | {' | '.join(values)} |")
    return [
        *lines,
        "",
        "Every run gave the module's own result (`torch.testing.assert_close`).",
        "",
    ]


def _overhead_cells(model: ModelValidation, labels: Sequence[str], of: str) -> list[str]:
    """A part of the runner's overhead under each scheduler, microseconds; nothing under one that the model lacks."""
    found = model.overheads
    seconds = [getattr(found[name], of) if name in found else None for name in labels]
    return ["" if each is None else f"{each * 1e6:.1f}" for each in seconds]


def _speed_cells(model: ModelValidation) -> str:
    """How much slower the machine was, over all and by sort of operators, and convolutions that do nothing but move,
    what its workers cost each other, how far its caches keep half of the weights, and how much of what it does not
    find a use leaves there.
    """
    cells = [f"{model.on_average(model.slowness) - 1:+.1%}"]
    if "speed" in model.machine:
        speed = MachineSpeed.from_json(model.machine["speed"])
        for sort in SORTS:
            known = [device[sort] for device in speed.slowness if sort in device]
            cells.append(f"{np.mean(known) - 1:+.0%}" if known else "")
        cells += (
            [f"{us:.0f}" for us in np.mean(speed.cold, axis=0) * 1e6] if speed.cold else ["", ""]
        )
        cells.append(f"{np.mean(speed.traffic):+.0%}" if speed.traffic else "")
        cells.append(corun_text(speed.corun))
        cells.append(f"{speed.noise:.1%}")
    else:
        cells += [""] * (len(SORTS) + 5)
    cells.append("/".join(f"{curve.distance(0.5) / 2**20:.0f}" for curve in model.caches.values()))
    taken = [" ".join(f"{share:.2f}" for share in curve.taken) for curve in model.caches.values()]
    cells.append("/".join(taken))
    cells.append("" if model.handover is None else f"{model.handover * 1e6:.0f}")
    return " | ".join(cells)


def _reading_lines(validation: Validation) -> list[str]:
    """What inputs cost that are not at hand; nothing where nobody looked."""
    models = [model for model in validation.models if model.reading]
    if not models:
        return []
    points = [2.0**k for k in (22, 23, 24, 25, 26)]
    heads = [*(f"{point / 2**20:.0f} MiB" for point in points), "elsewhere"]
    lines = [
        "",
        "Microseconds that a megabyte of inputs takes longer that were touched last so many bytes ago, and more where "
        "another device wrote them, found on EfficientNet-B0 among the runs:",
        "",
        f"| model | device | {' | '.join(heads)} |",
        "|---|---|" + "--:|" * len(heads),
    ]
    for model in models:
        for device, curve in zip(model.devices, model.reading, strict=True):
            costs = [*(curve.cost(point) for point in points), curve.elsewhere]
            cells = [f"{cost * 1e12:.0f}" for cost in costs]
            lines.append(f"| {model.model} | {device} | {' | '.join(cells)} |")
    return lines


def _machine_lines(models: Sequence[ModelValidation]) -> list[str]:
    found: dict[str, None] = {}
    for model in models:
        machine = {
            key: value
            for key, value in model.machine.items()
            if key
            not in (
                "workers",
                "slowness",
                "speed",
                "without_cold",
                "handover_s",
                "overhead_s",
                "flush_denormal",
            )
        }
        found[", ".join(f"{key} {value}" for key, value in machine.items())] = None
    return [f"Measured on: {text}." for text in found]


def conditions(validation: Validation) -> list[str]:
    """What was not as it should be on this host, each with what to do: another torch, denormal numbers, a speed that
    changed, other processes.
    """
    speeds = [
        float(np.mean(MachineSpeed.from_json(model.machine["speed"]).whole))
        for model in validation.models
        if "speed" in model.machine
    ]
    busiest = max(model.busy for model in validation.models)
    drift = max(speeds) / min(speeds) - 1 if speeds else 0.0
    return [
        *(
            f"{text}: calibrate it again" if text.startswith("profile ") else text
            for text in differences(validation)
        ),
        *(text for text in (drift_text(drift), busy_text(busiest)) if text),
    ]


def differences(validation: Validation) -> list[str]:
    """Where its profiles and its runs do not compare as they are, in sentences."""
    return list(dict.fromkeys(text for model in validation.models for text in model.differences))
