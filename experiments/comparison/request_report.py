"""The comparison of a sweep of requests: in the terminal, and as ``report/``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from experiments.comparison.answers import incomplete, label_lines, validity_lines
from experiments.comparison.bootstrap import FEWEST, METHOD
from experiments.comparison.cell_table import cell_table
from experiments.comparison.contests import Standings
from experiments.comparison.markup import TextTable
from experiments.comparison.page import Section, interactive, render
from experiments.comparison.report import caption_validity, with_validity
from experiments.comparison.request_comparison import (
    DELAYS,
    SHARE,
    Compared,
    RequestComparison,
    delay_change,
    delay_text,
    sentences,
    share_change,
    share_text,
)
from experiments.comparison.rounding import fit
from experiments.comparison.tables import write_table
from experiments.comparison.terminal import (
    MOST_CONTESTS,
    MOST_ROWS,
    cluster_lines,
    failure_lines,
    wrapped,
)
from experiments.runs.atomic import write_text
from experiments.runs.console import WIDTH

if TYPE_CHECKING:
    import pandas as pd

TABLE = "table_requests"
_SCHEDULER = 9
"""Columns that a scheduler's name has at least."""


def request_lines(
    comparison: RequestComparison,
    standings: Standings,
    failures_file: str,
    rerun: str | None = None,
    wall_s: float | None = None,
) -> list[Text]:
    """Lines of at most 100 columns: sentences, a table for each setting, legend.

    Args:
        comparison: what to show.
        standings: of the same sweep, for its clusters and failures.
        failures_file: where failed cells are listed.
        rerun: command that runs the failed cells again.
        wall_s: seconds that the sweep took; None: nothing was simulated.
    """
    lines = [line for text in label_lines(standings) for line in wrapped(text, "yellow")]
    said = sentences(comparison)
    for sentence in said[:MOST_ROWS]:
        lines += wrapped(sentence, "bold")
    if len(said) > MOST_ROWS:
        lines.append(Text(f"... and {len(said) - MOST_ROWS} more in the report", "dim"))
    for text in validity_lines(standings):
        lines += wrapped(text, "yellow")
    lines += cluster_lines(standings)
    if len(comparison.settings) > MOST_CONTESTS:
        lines += wrapped(f"{len(comparison.settings)} settings, each in {TABLE}.csv", "dim")
    else:
        for name in comparison.settings:
            lines += [Text(), *_setting_lines(name, comparison)]
    lines.append(Text())
    for text in (_legend(comparison), *_cautions(comparison)):
        lines += wrapped(text, "dim")
    for text in incomplete(standings):
        lines += wrapped(text, "yellow")
    took = "" if wall_s is None else f", {wall_s:.1f} s"
    extrapolated = np.nanmean([c.extrapolated_share for c in standings.contests])
    text = f"{standings.cells} cells, {len(standings.failures)} failed{took}; "
    lines += wrapped(f"{text}{extrapolated:.0%} of the time is extrapolated", "dim")
    return [*lines, *failure_lines(standings, failures_file, rerun)]


def _setting_lines(name: str, comparison: RequestComparison) -> list[Text]:
    rows = comparison.of(name)
    cells = [_headings(), *(_cells(row) for row in rows)]
    for row in cells:
        row[-1] = row[-1].partition(" [")[0]  # the files have the interval
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    rest = sum(widths[1:]) + 2 * (len(widths) - 1)
    widths[0] = max(_SCHEDULER, min(widths[0], WIDTH - rest))
    lines = wrapped(name, "bold") if name else []
    for number, row in enumerate(cells):
        padded = [
            fit(cell, width).ljust(width) if i in _LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        style = "dim" if not number or rows[number - 1].is_baseline else ""
        lines.append(Text("  ".join(padded).rstrip()[:WIDTH], style))
    return lines


_LEFT = (0, 2, 4)
"""Columns aligned to the left in the terminal: scheduler and changes of delays."""


def _headings() -> list[str]:
    return ["scheduler", "mean delay", "change", "p99", "change", "in time", "points"]


def _cells(row: Compared) -> list[str]:
    mean, p99, share = (row.figures[name] for name in (*DELAYS, SHARE))
    if row.is_baseline:
        changes = ["baseline", "", ""]
    else:
        mark = " ~" if row.verdict == "~" else ""
        changes = [delay_change(mean) + mark, delay_change(p99), share_change(share)]
    return [
        row.scheduler + (" *" if row.stale else ""),
        *(delay_text(mean), changes[0], delay_text(p99), changes[1]),
        *(share_text(share), changes[2]),
    ]


def _legend(comparison: RequestComparison) -> str:
    seeds = sorted({row.seeds for row in comparison.rows})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    text = (
        f"change: against {comparison.baseline}, the same requests, seed by seed ({each} seeds); of "
        "delays the geometric mean of the ratio, of answers in time percentage points"
    )
    if seeds[-1] < FEWEST:
        return f"{text}; intervals need {FEWEST} seeds"
    return f"{text}; [95% interval of the mean over the seeds, {METHOD}]; ~ it holds no change"


def _cautions(comparison: RequestComparison) -> list[str]:
    return [
        f"{setting or 'this sweep'}: {scheduler} left out, no seed in common with {comparison.baseline}"
        for setting, scheduler in comparison.apart
    ]


def request_frame(comparison: RequestComparison) -> pd.DataFrame:
    """A row for each scheduler in each setting, unrounded."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for row in comparison.rows:
        found: dict[str, Any] = {
            "setting": row.setting,
            "scheduler": row.scheduler,
            "baseline": comparison.baseline,
            "seeds": row.seeds,
            "verdict": "baseline" if row.is_baseline else row.verdict,
            "stale": row.stale,
        }
        for name in (*DELAYS, SHARE):
            figure, what = row.figures[name], "difference" if name == SHARE else "ratio"
            found |= {
                name: figure.value,
                f"{name}_{what}": figure.change,
                f"{name}_{what}_low": figure.low,
                f"{name}_{what}_high": figure.high,
            }
        rows.append(found)
    return pd.DataFrame(rows)


def request_table(comparison: RequestComparison) -> TextTable:
    """The same, rounded."""
    several = len(comparison.settings) > 1
    headings = [*(["setting"] if several else []), *_headings()]
    rows = [[*([row.setting] if several else []), *_cells(row)] for row in comparison.rows]
    caption = (
        "Requests: delays from arrival to answer (unserved ones at their age), and the share answered "
        f"in time. {_legend(comparison)[:1].upper()}{_legend(comparison)[1:]}."
    )
    return TextTable(headings, rows, 1 + several, int(several), caption)


def request_methods(comparison: RequestComparison) -> str:
    """How requests were compared, for a methods section."""
    return (
        f"Requests: delays count from arrival to answer, unserved ones at their age; "
        f"{_legend(comparison)}.\n"
    )


def write_request_report(
    comparison: RequestComparison,
    standings: Standings,
    folder: Path,
    manifest: Mapping[str, Any],
    title: str,
    methods: str,
    figures: Sequence[Path] = (),
    left_out: Sequence[str] = (),
    results: pd.DataFrame | None = None,
) -> Path:
    """Write the report into ``folder``; returns the path of ``index.html``.

    Args:
        comparison: what to report.
        standings: of the same sweep, for its clusters and failures.
        folder: ``report/``; figures and tables of an earlier report are removed.
        manifest: the sweep's ``manifest.json``.
        title: of the page.
        methods: the paragraph for a methods section.
        figures: stems of what was drawn into the folder already.
        left_out: what was not, with the reason.
        results: a row for each cell, for the table of all cells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = with_validity(request_table(comparison), standings)
    write_table(folder, TABLE, request_frame(comparison), table)
    write_text(folder / "methods.txt", methods)
    sections = [Section("Delays and answers in time", (stem,)) for stem in figures]
    caption_validity(sections, standings)
    interaction = None
    if results is not None:
        cells = folder.parent / "cells"
        listed = cell_table(results, standings, cells, requests=True)
        interaction = interactive(listed, standings, {}, folder, cells, requests=True)
    page = render(
        standings, manifest, title, sentences(comparison), {TABLE: table}, sections, methods,
        warnings=[*incomplete(standings, 300), *_cautions(comparison)], left_out=left_out,
        interaction=interaction,
    )  # fmt: skip
    index = write_text(folder / "index.html", page)
    kept = {stem.name for stem in figures} | {TABLE}
    for path in [*folder.glob("fig_*"), *folder.glob("table_*")]:
        if path.name.removesuffix(path.suffix) not in kept:
            path.unlink()
    return index
