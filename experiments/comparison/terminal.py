"""The comparison in the terminal, at most 100 columns wide: the answer first."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from experiments.comparison.answers import (
    answers,
    baseline_of,
    cautions,
    interval_note,
    label_lines,
    rules,
    same,
    validity_lines,
)
from experiments.comparison.contests import GIVEN, Contest, Setting, Standing, Standings
from experiments.comparison.overall import Overall
from experiments.comparison.paired_tests import CORRECTION
from experiments.comparison.pairs import PairTests
from experiments.comparison.rounding import fit, time_unit
from experiments.comparison.tables import (
    COLUMNS,
    best_device_cells,
    mark,
    overall_table,
    p_text,
    standing_cells,
)
from experiments.runs.console import WIDTH

MOST_ROWS = 12
"""Schedulers of one model shown in the terminal; the files hold all."""
MOST_CONTESTS = 12
"""With more models and settings their own tables are in the files only."""
UNCALIBRATED = "datasheet"
_COMPACT = ("makespan", "[95%]", "vs best", "gap", "util", "P(best)")
_ONLY_IN_FILES = ("n", "to bound", "decisions")
_LEFT = (0, 1, 3)
"""Columns aligned to the left: model, scheduler, interval."""


@dataclass(frozen=True)
class _Row:
    """A line of the terminal's table; a single cell is a note across all columns."""

    model: str
    cells: tuple[str, ...]
    style: str = ""
    mark: str = ""


def terminal_table(
    standings: Standings,
    baseline: str | None = None,
    wall_s: float | None = None,
    failures_file: str = "failures.csv",
    rerun: str | None = None,
    summary: tuple[Overall, PairTests] | None = None,
) -> list[Text]:
    """Lines of at most 100 columns: answers, a table for each setting, legend.

    Args:
        standings: what to show.
        baseline: the scheduler that answers compare with.
        summary: schedulers over all instances and their pairs, shown where there are several models
            and settings.
        wall_s: seconds that the sweep took; the sum over its cells unless given.
        failures_file: where failed cells are listed.
        rerun: command that runs the failed cells again.
    """
    lines = [line for text in label_lines(standings) for line in wrapped(text, "yellow")]
    over_all = []
    if summary is not None and len(standings.contests) > 1 and len(standings.schedulers) > 1:
        over_all = _over_all(*summary, baseline)
    many = len(standings.contests) > MOST_CONTESTS
    sentences = answers(standings, baseline)
    if many:
        lines += over_all
    for sentence in sentences[:MOST_ROWS]:
        lines += wrapped(sentence, "bold")
    if len(sentences) > MOST_ROWS:
        lines.append(Text(f"... and {len(sentences) - MOST_ROWS} more in the report", "dim"))
    for line in validity_lines(standings):
        lines += wrapped(line, "yellow" if _unvalidated(standings) else "dim")
    if not many:
        lines += over_all
    if many:
        lines += _many(standings)
    for setting in () if many else standings.settings:
        contests = [c for c in standings.contests if c.setting == setting]
        lines += [*_header(setting), Text()]
        lines += [*_setting_table(standings, contests, baseline), Text()]
    lines += _legend(standings, wall_s)
    lines += failure_lines(standings, failures_file, rerun)
    return lines


def _over_all(overall: Overall, pairs: PairTests, baseline: str | None) -> list[Text]:
    """Schedulers over all instances, and which of them the best is separable from."""
    table = overall_table(overall)
    # The table's files have the rest.
    columns = [i for i, name in enumerate(table.headings) if name not in _ONLY_IN_FILES]
    rows = [[row[i] for i in columns] for row in table.rows]
    best = rows[0][0]
    verdicts = {
        frozenset((str(pair["scheduler"]), str(pair["against"]))): pair
        for pair in pairs.frame.to_dict("records")
    }
    reference = baseline or best
    headings = [*(table.headings[i] for i in columns), f"against {fit(reference, 16)}"]
    for cells in rows:
        found = verdicts.get(frozenset((cells[0], reference)))
        cells.append("" if found is None else _verdict_text(cells[0], found))
    keep = [row for row in rows if row[0] == reference or row in rows[: MOST_ROWS - 1]]
    widths = [max(len(row[i]) for row in [headings, *keep]) for i in range(len(headings))]
    widths[0] = max(9, min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)))
    lines = []
    for row in [headings, *keep]:
        padded = [
            fit(cell, width).ljust(width) if i in (0, 2, len(row) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        style = "dim" if row is headings else "bold" if row[0] == best else ""
        lines.append(Text("  ".join(padded).rstrip(), style))
    if len(keep) < len(rows):
        lines.append(Text(f"... {len(rows) - len(keep)} more in table_overall.csv", "dim"))
    note = (
        f"over {overall.instances} instances of {overall.contests} models and settings; against "
        f"{reference}: 95% interval of the mean ratio, {len(pairs.frame)} tests ({CORRECTION}), n = "
        f"{pairs.units} {pairs.unit_text}"
    )
    return [*lines, *wrapped(note, "dim"), Text()]


def _verdict_text(scheduler: str, row: Mapping[Hashable, Any]) -> str:
    verdict = str(row["verdict"])
    if verdict == "shorter":
        verdict = "shorter" if row["scheduler"] == scheduler else "longer"
    p = p_text(float(row["p"]))
    return verdict if p == "-" else f"{verdict}, p {p}"


def _many(standings: Standings) -> list[Text]:
    """Instead of a table for each: the clusters, and what varies."""
    varied = ", ".join(factor.name for factor in standings.factors)
    text = f"{len(standings.contests)} models and settings ({varied} vary), each in table_main.csv"
    return [*cluster_lines(standings), *wrapped(text, "dim"), Text()]


def cluster_lines(standings: Standings) -> list[Text]:
    """The clusters and their profiles."""
    lines: list[Text] = []
    for text in dict.fromkeys(_cluster_text(setting) for setting in standings.settings):
        lines += wrapped(text)
    for line in lines:
        line.highlight_words([f"{UNCALIBRATED}: uncalibrated"], "yellow")
    return lines


def _header(setting: Setting) -> list[Text]:
    text = _cluster_text(setting)
    together = f"{text}   {rules(setting)}"
    lines = [Text(together)] if len(together) <= WIDTH else wrapped(text)
    if len(together) > WIDTH:
        lines += wrapped(f"  {rules(setting)}")
    for line in lines:
        line.highlight_words([f"{UNCALIBRATED}: uncalibrated"], "yellow")
    return lines


def _cluster_text(setting: Setting) -> str:
    if setting.cost_model == GIVEN:
        return "Instances with given times"
    profiles = setting.profiles.replace(f"({UNCALIBRATED}", f"({UNCALIBRATED}: uncalibrated")
    return f"Cluster {setting.cluster}" + (f": {profiles}" if profiles else "")


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
            rows.append(
                _Row(name, standing_cells(contest, standing, factor), style, mark(standing))
            )
        rows.append(_Row("", best_device_cells(contest, factor), "dim"))
    room = WIDTH - max((len(row.mark) - 1 for row in rows if row.mark), default=0)
    headings = ["model", "scheduler", *COLUMNS]
    headings[2] = f"makespan {unit}"
    if _total(_widths(headings, rows)) > room:
        headings[4:6] = _COMPACT[2:4]
    by_model = _total(_widths(headings, rows)) > room
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
    widths[1] = min(widths[1], room - (_total(widths) - widths[1]))
    lines = [_line(_Row(headings[0], tuple(headings[1:]), "dim"), widths)]
    for row in rows:
        if len(row.cells) == 1 and len(row.cells[0]) + widths[0] + 2 > WIDTH:
            # A reason is not cut off.
            first, *more = wrapped(
                f"{row.model.ljust(widths[0])}  {row.cells[0].strip()}", row.style
            )
            lines += [first, *more]
        else:
            lines.append(_line(row, widths))
    return lines


def _shown(contest: Contest, reference: Standing | None) -> tuple[list[Standing], int]:
    """The best schedulers and, always, the one that they are compared with, which then is last."""
    everyone = list(contest.standings)
    if len(everyone) <= MOST_ROWS:
        return everyone, 0
    shown = everyone[: MOST_ROWS - 1]
    last = reference if reference is not None and reference not in shown else everyone[-1]
    return [*shown, last], len(everyone) - MOST_ROWS


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


def _line(row: _Row, widths: Sequence[int]) -> Text:
    if not row.cells:
        return Text(fit(row.model, WIDTH), row.style)
    front = [fit(row.model, widths[0]).ljust(widths[0])] if widths[0] else []
    if len(row.cells) == 1:
        return Text("  ".join([*front, row.cells[0]])[:WIDTH], row.style)
    cells = [
        fit(cell, width).ljust(width) if column in _LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row.cells, widths[1:], strict=True), start=1)
    ]
    return Text(("  ".join([*front, *cells]) + f" {row.mark}").rstrip(), row.style)


def _unvalidated(standings: Standings) -> bool:
    return any(s.unvalidated for c in standings.contests for s in c.standings)


def _legend(standings: Standings, wall_s: float | None) -> list[Text]:
    notes = []
    if any(s.separable is False for c in standings.contests for s in c.standings):
        notes.append("~ not separable from the best")
    if _unvalidated(standings):
        notes.append("! not validated")
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
    lines += _joined([interval_note(standings), f"{standings.cells} cells, {failed} failed{took}"])
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


def failure_lines(standings: Standings, failures_file: str, rerun: str | None) -> list[Text]:
    """What failed, why, and the command that runs it again."""
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
