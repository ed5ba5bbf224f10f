"""The main table: in the terminal the answer first, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.text import Text

from experiments.standings import BEST_DEVICE, GIVEN, Contest, Setting, Standing, Standings
from experiments.statistics import SAME, Comparison
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
MOST_ROWS = 12
"""Schedulers of one model shown in the terminal; the files hold all."""
UNCALIBRATED = "datasheet"
_DEFAULT_BASELINE = "fcfs"
_USUAL_COST_MODELS = ("boosted", GIVEN, "")
_TIME_UNITS = ((1e1, 1.0, "s"), (1e-4, 1e3, "ms"), (0.0, 1e6, "us"))


# -- the answer ---------------------------------------------------------------------------------


def baseline_of(contest: Contest, baseline: str | None) -> Standing | None:
    """What the best scheduler of a contest is compared with.

    The baseline asked for; else ``fcfs``, else the slowest. Where that is the best itself, the next.
    """
    if len(contest.standings) < 2:
        return None
    chosen = contest.find(baseline or _DEFAULT_BASELINE)
    if chosen is None:
        chosen = contest.standings[-1]
    return contest.standings[1] if chosen is contest.best else chosen


def check_baseline(standings: Standings, baseline: str | None) -> None:
    """Refuse a baseline that no contest has.

    Raises:
        InvalidInput: names those there are.
    """
    if baseline is not None and baseline not in standings.schedulers:
        known = ", ".join(standings.schedulers)
        raise InvalidInput(f"No scheduler '{baseline}' to compare with; this sweep has: {known}")


def answers(standings: Standings, baseline: str | None = None) -> list[str]:
    """A sentence for each contest in which schedulers differ; one sentence if they do in none."""
    sentences = [
        f"{standings.label(contest, True)}: {answer(contest, baseline)}"
        for contest in standings.contests
        if contest.verdict is None and len(contest.standings) > 1
    ]
    if not sentences and standings.contests:
        if any(len(contest.standings) > 1 for contest in standings.contests):
            sentences = ["no scheduler stands out: all are within 1% of one another on every model"]
        else:
            sentences = ["one scheduler: nothing to compare; add others with scheduler=a,b"]
    return sentences


def answer(contest: Contest, baseline: str | None = None) -> str:
    """Who wins, by how much, how sure, and who cannot be told apart from the winner."""
    reference = baseline_of(contest, baseline)
    assert reference is not None
    best = contest.best
    result = contest.against(best, reference)
    by = f"{_percent(result.estimate)}{_range(result)}"
    if result.separable is False:
        text = f"{best.scheduler} is {by} ahead of {reference.scheduler}, not separable"
        text += f" (P(win) {_probability(result.probability)})"
    else:
        text = f"{best.scheduler} beats {reference.scheduler} by {by}"
        if result.probability is not None:
            text += f", P(win) {_probability(result.probability, spaced=True)}"
    if result.seeds_interval is not None:
        low, high = result.seeds_interval.low, result.seeds_interval.high
        text += f", mean of {contest.seeds} seeds [{_number(low)}, {_number(high)}]"
    near = [s.scheduler for s in contest.standings if s.separable is False and s is not reference]
    if near:
        text += f"; {_listed([best.scheduler, *near])} not separable"
    if contest.speedup(best) < 1.0 + SAME:
        text += f"; none is faster than {contest.best_device} alone"
    return text


def _range(result: Comparison) -> str:
    if result.interval is None:
        return ""
    return f" [{_number(result.interval.low)}, {_number(result.interval.high)}]"


# -- in the terminal ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A line of the terminal's table; a single cell is a note across all columns."""

    model: str
    cells: tuple[str, ...]
    style: str = ""
    mark: str = ""


_FULL = ("makespan", "[95%]", "vs best device", "gap to bound", "util", "P(best)")
_COMPACT = ("makespan", "[95%]", "vs best", "gap", "util", "P(best)")


def terminal_table(
    standings: Standings,
    baseline: str | None = None,
    wall_s: float | None = None,
    failures_file: str = "failures.csv",
    rerun: str | None = None,
) -> list[Text]:
    """Lines of at most 100 columns: answers, a table for each setting, legend.

    Args:
        standings: what to show.
        baseline: the scheduler that answers compare with.
        wall_s: seconds that the sweep took; the sum over its cells unless given.
        failures_file: where failed cells are listed.
        rerun: command that runs the failed cells again.
    """
    lines: list[Text] = []
    sentences = answers(standings, baseline)
    for sentence in sentences[:MOST_ROWS]:
        lines += wrapped(sentence, "bold")
    if len(sentences) > MOST_ROWS:
        lines.append(Text(f"... and {len(sentences) - MOST_ROWS} more in the report", "dim"))
    for setting in standings.settings:
        contests = [c for c in standings.contests if c.setting == setting]
        lines += _header(setting)
        lines.append(Text())
        lines += _setting_table(standings, contests, baseline)
        lines.append(Text())
    lines += _legend(standings, wall_s)
    lines += _failures(standings, failures_file, rerun)
    return lines


def rules(setting: Setting) -> str:
    """How a setting moves data and what else is not as usual: ``push, fifo``."""
    contention = setting.contention if setting.contention != "none" else "no contention"
    parts = [
        setting.workload if setting.workload != "single" else "",
        setting.movement,
        contention,
        f"noise {setting.noise}" if setting.noise != "none" else "",
        f"memory {setting.memory}" if setting.memory != "unlimited" else "",
        f"decisions cost {setting.decision_cost}" if setting.decision_cost != "none" else "",
        setting.cost_model if setting.cost_model not in _USUAL_COST_MODELS else "",
    ]
    return ", ".join(part for part in parts if part)


def _header(setting: Setting) -> list[Text]:
    profiles = setting.profiles.replace(f"({UNCALIBRATED}", f"({UNCALIBRATED}: uncalibrated")
    text = f"Cluster {setting.cluster}" + (f": {profiles}" if profiles else "")
    if setting.cost_model == GIVEN:
        text = "Instances with given times"
    together = f"{text}   {rules(setting)}"
    lines = [Text(together)] if len(together) <= WIDTH else wrapped(text)
    if len(together) > WIDTH:
        lines += wrapped(f"  {rules(setting)}")
    for line in lines:
        line.highlight_words([f"{UNCALIBRATED}: uncalibrated"], "yellow")
    return lines


def _setting_table(
    standings: Standings, contests: Sequence[Contest], baseline: str | None
) -> list[Text]:
    factor, unit = time_unit([c.best.makespan_s for c in contests])
    rows: list[_Row] = []
    for contest in contests:
        label = standings.label(contest)
        if contest.verdict is not None:
            rows.append(_Row(label, (same(contest, factor, unit),)))
            continue
        shown, hidden = _shown(contest, baseline_of(contest, baseline))
        for number, standing in enumerate(shown):
            if hidden and number == len(shown) - 1:
                rows.append(_Row("", (f"... {hidden} more in table_main.csv",), "dim"))
            style = "bold" if standing is contest.best else ""
            name = label if not number else ""
            rows.append(_Row(name, _cells(contest, standing, factor), style, _mark(standing)))
        rows.append(_Row("", _best_device(contest, factor), "dim"))
    headings = ["model", "scheduler", *_FULL]
    headings[2] = f"makespan {unit}"
    if _total(_widths(headings, rows)) > WIDTH:
        headings[4:6] = _COMPACT[2:4]
    by_model = _total(_widths(headings, rows)) > WIDTH
    if by_model:
        # The model gets a line of its own, its schedulers are set in below it.
        spread = [_Row(row.model, ()) for row in rows if row.model]
        own = iter(spread)
        rows = [
            line
            for row in rows
            for line in (
                *([next(own)] if row.model else []),
                replace(row, model="", cells=(f"  {row.cells[0]}", *row.cells[1:])),
            )
        ]
        headings[0], headings[1] = "model", "  scheduler"
    widths = _widths(headings, rows)
    if by_model:
        widths[0] = 0
    widths[1] = min(widths[1], WIDTH - (_total(widths) - widths[1]))
    lines = [_line(_Row(headings[0], tuple(headings[1:]), "dim"), widths)]
    return lines + [_line(row, widths) for row in rows]


def _shown(contest: Contest, reference: Standing | None) -> tuple[list[Standing], int]:
    """The best schedulers and, always, the one that they are compared with, which then is last."""
    everyone = list(contest.standings)
    if len(everyone) <= MOST_ROWS:
        return everyone, 0
    shown = everyone[: MOST_ROWS - 1]
    last = reference if reference is not None and reference not in shown else everyone[-1]
    return [*shown, last], len(everyone) - MOST_ROWS


def _cells(contest: Contest, standing: Standing, factor: float) -> tuple[str, ...]:
    makespan = standing.makespan_s * factor
    share = "-" if standing.best_share is None else _probability(standing.best_share)
    return (
        standing.scheduler,
        _figure(makespan),
        _interval_text(standing, makespan, factor),
        _ratio(contest.speedup(standing)),
        _gap(contest.gap(standing)),
        "-" if math.isnan(standing.utilisation) else f"{standing.utilisation:.0%}",
        share,
    )


def _mark(standing: Standing) -> str:
    return "~" if standing.separable is False else ""


def same(contest: Contest, factor: float | None = None, unit: str = "") -> str:
    """Why there is nothing to choose in a contest whose verdict is not None."""
    if factor is None:
        factor, unit = time_unit([contest.best.makespan_s])
    makespan = contest.best.makespan_s * factor
    count = len(contest.standings)
    return f"{count} schedulers within {SAME:.0%} of {_figure(makespan)} {unit}: {contest.verdict}"


def _best_device(contest: Contest, factor: float) -> tuple[str, ...]:
    if math.isnan(contest.best_device_s):
        return (f"{BEST_DEVICE}: none can run all of it alone",)
    makespan = contest.best_device_s * factor
    alone = contest.alone
    share = alone.best_share if alone is not None else None
    return (
        f"{BEST_DEVICE} {contest.best_device}".strip(),
        _figure(makespan),
        _interval_text(alone, makespan, factor) if alone is not None else "",
        "1.00x",
        "-",
        "-",
        "-" if share is None else _probability(share),
    )


def _interval_text(standing: Standing, makespan: float, factor: float) -> str:
    if standing.interval is None:
        return ""
    decimals = _decimals(makespan)
    low, high = standing.interval.low * factor, standing.interval.high * factor
    return f"[{low:.{decimals}f}, {high:.{decimals}f}]"


def _widths(headings: Sequence[str], rows: Sequence[_Row]) -> list[int]:
    widths = [len(heading) for heading in headings]
    for row in rows:
        widths[0] = max(widths[0], len(row.model))
        if len(row.cells) > 1:
            for column, cell in enumerate(row.cells, start=1):
                widths[column] = max(widths[column], len(cell))
    return widths


def _total(widths: Sequence[int]) -> int:
    """Columns that a line takes: two between cells, two for the mark at its end."""
    shown = [width for width in widths if width]
    return sum(shown) + 2 * (len(shown) - 1) + 2


_LEFT = (0, 1, 3)
"""Columns aligned to the left: model, scheduler, interval."""


def _line(row: _Row, widths: Sequence[int]) -> Text:
    if not row.cells:
        return Text(_fit(row.model, WIDTH), row.style)
    front = [_fit(row.model, widths[0]).ljust(widths[0])] if widths[0] else []
    if len(row.cells) == 1:
        return Text("  ".join([*front, row.cells[0]])[:WIDTH], row.style)
    cells = [
        _fit(cell, width).ljust(width) if column in _LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row.cells, widths[1:], strict=True), start=1)
    ]
    return Text(("  ".join([*front, *cells]) + f" {row.mark}").rstrip(), row.style)


def _legend(standings: Standings, wall_s: float | None) -> list[Text]:
    notes = []
    if any(s.separable is False for c in standings.contests for s in c.standings):
        notes.append("~ not separable from the best")
    extrapolated = [
        c.extrapolated_share for c in standings.contests if not math.isnan(c.extrapolated_share)
    ]
    bare = all(not c.setting.profiles or c.setting.cost_model == GIVEN for c in standings.contests)
    if extrapolated and not bare:
        share = sum(extrapolated) / len(extrapolated)
        text = f"time in measured range {1 - share:.0%}, extrapolated {share:.0%}"
        if max(extrapolated) > share + 0.05:
            worst = max(standings.contests, key=lambda c: c.extrapolated_share)
            text += f" ({max(extrapolated):.0%} for {worst.model})"
        notes.append(text)
    lines = _joined(notes)
    failed = len(standings.failures)
    seconds = standings.wall_s if wall_s is None else wall_s
    took = (
        ""
        if math.isnan(seconds)
        else f", {seconds:.1f} s" + (" of computing" if wall_s is None else "")
    )
    lines += _joined([_interval_note(standings), f"{standings.cells} cells, {failed} failed{took}"])
    for caution in cautions(standings):
        lines += wrapped(caution, "yellow")
    if not bare:
        lines += _joined(
            [
                "times are of the profiled devices, not of this machine; to profile this one:",
                "  python -m experiments.calibrate device=cpu",
            ]
        )
    return lines


def cautions(standings: Standings) -> list[str]:
    """What the numbers leave out."""
    notes = []
    without = sorted({name for contest in standings.contests for name in contest.interval_without})
    if without:
        notes.append(
            f"the interval leaves out the unknown error of {', '.join(without)}: it is too narrow"
        )
    biased = [
        standings.label(contest, True)
        for contest in standings.contests
        if any(standing.biased for standing in contest.standings)
    ]
    if biased:
        notes.append(
            f"makespan outside its own interval ({_listed(biased)}): a profile's times are known to be "
            "off to one side; go by the interval"
        )
    left_out = sum(contest.seeds_left_out for contest in standings.contests)
    if left_out:
        notes.append(f"{left_out} seeds left out: not every scheduler of their model finished them")
    notes += [
        f"{standings.label(contest, True)}: {', '.join(contest.absent)} left out, no seed in common "
        "with the rest"
        for contest in standings.contests
        if contest.absent
    ]
    return notes


def _interval_note(standings: Standings) -> str:
    draws = sorted({contest.draws for contest in standings.contests})
    if not any(draws):
        known = any(s.interval for c in standings.contests for s in c.standings)
        return "interval: of each cell's own draws" if known else "no interval: no draws"
    seeds = sorted({contest.seeds for contest in standings.contests})
    each = f"{draws[0]}" if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    note = f"interval: predictor error (correlated by kind) + noise, {each} draws"
    if seeds[-1] > 1:
        note += (
            f" pooled over {seeds[-1] if len(seeds) == 1 else f'{seeds[0]} to {seeds[-1]}'} seeds"
        )
    return note


def _failures(standings: Standings, failures_file: str, rerun: str | None) -> list[Text]:
    if not standings.failures:
        return []
    causes: dict[str, list[str]] = {}
    for failure in standings.failures:
        causes.setdefault(failure.error, []).append(failure.what)
    lines: list[Text] = []
    for error, cells in list(causes.items())[:3]:
        lines += wrapped(f"failed {len(cells)}x: {error} (first: {cells[0]})", "red")
    if len(causes) > 3:
        lines.append(Text(f"... and {len(causes) - 3} other errors", "red"))
    lines += wrapped(f"all failed cells: {failures_file}", "red")
    if rerun:
        lines += wrapped(f"run them again: {rerun}", "red")
    return lines


def _joined(notes: Sequence[str]) -> list[Text]:
    """Notes side by side where they fit into a line, else below one another."""
    notes = [note for note in notes if note]
    together = "     ".join(notes)
    texts = [together] if notes and len(together) <= WIDTH else notes
    return [line for text in texts for line in wrapped(text, "dim")]


def wrapped(text: str, style: str = "") -> list[Text]:
    """Lines of at most 100 columns, broken between words; what is too long stays whole."""
    if len(text) <= WIDTH:
        return [Text(text, style)]
    lines, line = [], ""
    # Intervals and options in parentheses stay in one piece.
    for word in re.findall(r"\s*(?:\[[^\]]{0,30}\]|\([^)]{0,40}\)|[^\s\[(]|[\[(])+", text):
        if line and len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "  " + word.lstrip()
        else:
            line += word
    return [Text(part, style) for part in [*lines, line]]


# -- as files -----------------------------------------------------------------------------------


def main_frame(standings: Standings, baseline: str | None = None) -> pd.DataFrame:
    """Every scheduler of every contest, the best device included, unrounded: ``table_main.csv``."""
    import pandas as pd

    rows = []
    for contest in standings.contests:
        everyone = [*contest.standings, *([contest.alone] if contest.alone is not None else [])]
        reference = contest.find(baseline or _DEFAULT_BASELINE) or contest.standings[-1]
        for standing in everyone:
            against = contest.against(contest.best, standing)
            relative = contest.against(standing, reference)
            span = standing.interval
            rows.append(
                {
                    **{key: getattr(contest.setting, key) for key in vars(contest.setting)},
                    "model": contest.model,
                    "batch": contest.batch,
                    "scheduler": standing.scheduler,
                    "rank": everyone.index(standing) + 1,
                    "makespan_s": standing.makespan_s,
                    "makespan_low_s": span.low if span else None,
                    "makespan_high_s": span.high if span else None,
                    "best_device": contest.best_device,
                    "best_device_s": contest.best_device_s,
                    "vs_best_device": contest.speedup(standing),
                    "bound_s": contest.bound_s,
                    "gap_to_bound": contest.gap(standing),
                    "utilisation": standing.utilisation,
                    "p_best": standing.best_share,
                    "best_beats_it": against.probability,
                    "separable_from_best": standing.separable,
                    "reference": reference.scheduler,
                    "shorter_than_reference": relative.reduction,
                    "shorter_low": relative.interval.low if relative.interval else None,
                    "shorter_high": relative.interval.high if relative.interval else None,
                    "p_beats_reference": relative.probability,
                    "seeds_low": relative.seeds_interval.low if relative.seeds_interval else None,
                    "seeds_high": relative.seeds_interval.high if relative.seeds_interval else None,
                    "seeds": contest.seeds,
                    "draws": len(standing.draws),
                    "extrapolated_share": contest.extrapolated_share,
                }
            )
    return pd.DataFrame(rows)


def rounded_rows(standings: Standings) -> tuple[list[str], list[list[str]]]:
    """Headings and rounded rows of the main table; one time unit throughout."""
    factor, unit = time_unit([c.best.makespan_s for c in standings.contests])
    several = len(standings.settings) > 1
    headings = ["model", *(["setting"] if several else []), "scheduler", f"makespan {unit}"]
    headings += list(_FULL[1:])
    rows = []
    for contest in standings.contests:
        front = [standings.label(contest)]
        front += [standings.setting_label(contest.setting)] if several else []
        for standing in contest.standings:
            cells = _cells(contest, standing, factor)
            rows.append([*front, *cells[:-1], f"{cells[-1]} {_mark(standing)}".rstrip()])
        last = _best_device(contest, factor)
        if len(last) > 1:
            rows.append([*front, *last])
    return headings, rows


def markdown(standings: Standings, caption: str) -> str:
    """The main table in Markdown."""
    headings, rows = rounded_rows(standings)
    left = headings.index("scheduler")
    rule = ["---" if i <= left else "---:" for i in range(len(headings))]
    lines = [caption, "", *("| " + " | ".join(_markdown(c) for c in r) + " |" for r in [headings])]
    lines.append("| " + " | ".join(rule) + " |")
    lines += ["| " + " | ".join(_markdown(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def latex(standings: Standings, caption: str) -> str:
    """The main table in LaTeX with booktabs."""
    headings, rows = rounded_rows(standings)
    left = headings.index("scheduler")
    columns = "".join("l" if i <= left else "r" for i in range(len(headings)))
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table*}",
        "\\centering",
        f"\\caption{{{_latex(caption)}}}",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(_latex(heading) for heading in headings) + " \\\\",
    ]
    previous = None
    for row in rows:
        if row[:left] != previous:
            lines.append("\\midrule")
        shown = row if row[:left] != previous else [""] * left + row[left:]
        previous = row[:left]
        lines.append(" & ".join(_latex(cell) for cell in shown) + " \\\\")
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{table*}"]
    return "\n".join(lines) + "\n"


def caption(standings: Standings) -> str:
    """What the figures of the main table are and rest on."""
    profiles = "; ".join(
        dict.fromkeys(f"{s.cluster}: {s.profiles}" for s in standings.settings if s.profiles)
    )
    text = (
        f"Makespan at predicted operator times of {len(standings.contests)} "
        f"{'model' if len(standings.contests) == 1 else 'models and settings'} under "
        f"{len(standings.schedulers)} schedulers. "
        f"{_interval_note(standings)[:1].upper()}{_interval_note(standings)[1:]} (2.5 to 97.5%). "
        "P(best): share of the paired draws in which it is the shortest; ~: not separable from the "
        "best (which beats it in less than 95% of them). vs best device: time of everything on the "
        "best single device over the makespan. gap to bound: makespan over the lower bound, minus 1."
    )
    return text + (f" Devices: {profiles}." if profiles else "")


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("~", "\\~").replace("_", "\\_").replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"$\sim$", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def _latex(text: str) -> str:
    text = text.replace("<= ", "\0")
    return "".join(_LATEX.get(character, character) for character in text).replace("\0", r"$\le$ ")


# -- numbers ------------------------------------------------------------------------------------


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Factor and name of the unit for a column of makespans: ms unless all are far from it."""
    values = sorted(seconds)
    middle = values[len(values) // 2] if values else 1.0
    return next((factor, unit) for least, factor, unit in _TIME_UNITS if middle >= least)


def _decimals(value: float) -> int:
    return 0 if value >= 1000 else 1 if value >= 10 else 2 if value >= 1 else 3


def _figure(value: float) -> str:
    return f"{value:.{_decimals(value)}f}"


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}x"


def _gap(value: float) -> str:
    if math.isnan(value):
        return "-"
    if abs(value) < 1e-9:
        return "optimal"
    # Rounded up, to stay true. Below 0 only where noise made operators faster than the bound's times.
    return f"<= {math.ceil(100 * value - 1e-6)}%"


def _probability(value: float | None, spaced: bool = False) -> str:
    """``.97``; ``>.99`` instead of a certainty that draws cannot give."""
    assert value is not None
    if value > 0.99:
        return "> .99" if spaced else ">.99"
    return f"{value:.2f}".removeprefix("0")


def _percent(share: float) -> str:
    return f"{_number(share)}%"


def _number(share: float) -> str:
    """A share in percent: whole, but for less than 10% with one decimal."""
    value = 100 * share
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} others"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _fit(text: str, width: int) -> str:
    """The text, its middle left out where it is too long: options stand at the end."""
    if len(text) <= width or width < 5:
        return text[:width]
    half = (width - 1) // 2
    return text[: width - 1 - half] + "…" + text[-half:]
