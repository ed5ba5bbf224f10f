"""A sweep's report: ``report/`` with ``index.html``, the main table as files, and figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.comparison import tables
from experiments.comparison.analysis import Analysis
from experiments.comparison.answers import (
    answers,
    as_sentences,
    cautions,
    label_lines,
    same,
    validity_lines,
)
from experiments.comparison.cell_table import cell_table
from experiments.comparison.contests import BEST_DEVICE, Contest, Standing, Standings
from experiments.comparison.names import proper
from experiments.comparison.overall import by_factor
from experiments.comparison.page import ROWS, Interaction, Section, interactive, render
from experiments.comparison.paper_table import main_latex
from experiments.plots.effects import draw_effects
from experiments.plots.gantt import describe, draw_stacked
from experiments.plots.gap import draw_gaps
from experiments.plots.interactive import GAPS, MAKESPANS, PROFILE
from experiments.plots.looks import USUAL, Look
from experiments.plots.makespan import draw_makespans, pages
from experiments.plots.pairs import draw_pairs
from experiments.plots.planning import draw_planning
from experiments.plots.profile import draw_profile
from experiments.plots.robustness import draw_robustness
from experiments.plots.style import caption
from experiments.plots.winners import draw_winners
from experiments.runs.atomic import write_text
from experiments.runs.results import read_document
from simulator.errors import InvalidInput
from simulator.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

_PICTURES = 12
"""Pictures of single settings, or Gantt charts; with more a report is not read."""
_BARS = 24
"""Models and settings whose makespans are drawn as bars."""
_COLUMNS = 8
_FEW = 60
"""Characters of a model's name kept in a file's name."""


def write_report(
    analysis: Analysis,
    folder: Path,
    cells: Path | None = None,
    baseline: str | None = None,
    manifest: Mapping[str, Any] | None = None,
    title: str = "Comparison of schedulers",
    methods: str = "",
    look: Look = USUAL,
    results: pd.DataFrame | None = None,
) -> tuple[Path, list[str]]:
    """Write the report into ``folder``; ``index.html`` comes last and names only what is there.

    Args:
        analysis: what to report.
        folder: ``report/``, made if need be; figures of an earlier report are removed.
        cells: folder with a folder for each cell, for Gantt charts of those that kept their trace.
        baseline: the scheduler that answers compare with.
        manifest: the sweep's ``manifest.json``, for where it comes from.
        title: of the page.
        methods: the paragraph for a methods section.
        look: width of the figures and the style of every scheduler in them.
        results: a row for each cell, for the table of all cells and the interactive figures.

    Returns:
        The path of ``index.html``, and what was not drawn, with the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = _write_tables(analysis, folder, baseline, look.own)
    write_text(folder / "methods.txt", methods)
    sections, warnings, left_out = _draw(analysis, folder, cells, look)
    caption_validity(sections, analysis.standings)
    interaction = None
    if results is not None and cells is not None:
        table = cell_table(results, analysis.standings, cells)
        styles = look.styles([*analysis.standings.schedulers, BEST_DEVICE])
        interaction = interactive(table, analysis.standings, styles, folder, cells)
    page = _page(
        analysis, written, sections, warnings, baseline, manifest or {}, title, methods, left_out,
        interaction,
    )  # fmt: skip
    index = write_text(folder / "index.html", page)
    kept = {stem.name for section in sections for stem in section.stems} | {*written}
    for path in [*folder.glob("fig_*"), *folder.glob("table_*")]:
        if path.name.removesuffix(path.suffix) not in kept:
            path.unlink()
    return index, left_out


def _write_tables(
    analysis: Analysis, folder: Path, baseline: str | None, own: Sequence[str]
) -> dict[str, tables.TextTable]:
    """Write every table that there is data for; returns them by name."""
    standings = analysis.standings
    written = {"table_main": tables.main_table(standings)}
    frames = {"table_main": tables.main_frame(standings, baseline)}
    if analysis.overall is not None:
        written["table_overall"] = tables.overall_table(analysis.overall)
        frames["table_overall"] = analysis.overall.frame
    if analysis.pairs is not None and len(analysis.pairs.frame):
        written["table_pairs"] = tables.pairs_table(analysis.pairs, analysis.baseline)
        frames["table_pairs"] = analysis.pairs.frame
    if analysis.effects.effects:
        written["table_factors"] = tables.effects_table(analysis.effects)
        frames["table_factors"] = analysis.effects.frame
    frame = by_factor(standings.instances, standings.factors)
    if len(frame) and analysis.overall is not None:
        names = analysis.overall.frame["scheduler"].tolist()
        shown = names[:_COLUMNS]
        written["table_by_factor"] = tables.by_factor_table(frame, shown, len(names) - len(shown))
        frames["table_by_factor"] = frame
    for name, table in written.items():
        written[name] = with_validity(table, standings)
        tex = None
        if name == "table_main":
            notes = [*label_lines(standings), *validity_lines(standings)]
            tex = main_latex(standings, own, notes)
        tables.write_table(folder, name, frames[name], written[name], tex)
    return written


def with_validity(table: tables.TextTable, standings: Standings) -> tables.TextTable:
    """A table whose caption begins with devices of different labels and ends with the validity of all."""
    first, last = label_lines(standings), validity_lines(standings)
    return replace(table, caption=" ".join(as_sentences([*first, table.caption, *last])))


def caption_validity(sections: Sequence[Section], standings: Standings) -> None:
    """Add in which world the devices were validated to the caption of every figure."""
    said = " ".join(as_sentences(validity_lines(standings)))
    for path in {s.with_name(f"{s.name}.txt") for section in sections for s in section.stems}:
        text = path.read_text().strip() if path.is_file() else ""
        if said and text and said.lower() not in text.lower():
            write_text(path, f"{text} {said}\n")


def _draw(
    analysis: Analysis, folder: Path, cells: Path | None, look: Look
) -> tuple[list[Section], list[str], list[str]]:
    """Draw what there is data for; returns sections, warnings and what was left out."""
    standings = analysis.standings
    always = [*([analysis.baseline] if analysis.baseline else []), *look.own]
    sections: list[Section] = []
    left_out: list[str] = []

    def drawn(question: str, name: str, paths: list[Path] | None, why_not: str) -> None:
        if paths:
            sections.append(Section(question, (folder / name,)))
        else:
            left_out.append(why_not)

    several = len(standings.settings) > 1
    stems: list[Path] = []
    drawn_settings = 0
    for setting in standings.settings:
        contests = [contest for contest in standings.contests if contest.setting == setting]
        if len(stems) >= _PICTURES or len(standings.contests) > _BARS:
            continue
        name = f"_{_slug(standings.setting_label(setting))}" if several else ""
        for page in pages(contests, look):
            stems.append(_free(folder / f"fig_makespan{name}", stems))
            draw_makespans(standings, page, stems[-1], look)
        drawn_settings += 1
    if stems:
        sections.append(Section(MAKESPANS, tuple(stems)))
    if drawn_settings < len(standings.settings):
        left_out.append(
            f"makespans of {len(standings.settings) - drawn_settings} settings (table_main.csv has all)"
        )
    instances = standings.instances
    if any(len(c.standings) > 1 or c.best_device_s > 0 for c in standings.contests):
        profile, pairs = folder / "fig_profile", folder / "fig_pairs"
        draw_profile(instances, profile, always, look)
        draw_pairs(instances, pairs, analysis.pairs, always, look)
        sections.append(Section(PROFILE, (profile,)))
        sections.append(Section("Pair by pair?", (pairs,)))
    else:
        left_out.append("profile and pairs (one scheduler)")
    drawn(
        "Which ingredient matters?",
        "fig_factors",
        draw_effects(analysis.effects, folder / "fig_factors", look),
        f"paired differences ({analysis.why_not.get('paired differences', 'none')})",
    )
    drawn(
        "Is better quality worth its planning time?",
        "fig_planning",
        draw_planning(instances, folder / "fig_planning", look),
        "quality against planning time (fewer than two schedulers with a decision time)",
    )
    drawn(
        "Where does each win?",
        "fig_winners",
        None
        if analysis.winners is None
        else draw_winners(analysis.winners, folder / "fig_winners", look),
        f"map of winners ({analysis.why_not.get('map of winners')})",
    )
    drawn(
        "How robust?",
        "fig_robustness",
        None
        if analysis.robustness is None
        else draw_robustness(analysis.robustness, folder / "fig_robustness", always, look),
        f"robustness ({analysis.why_not.get('robustness')})",
    )
    drawn(
        GAPS,
        "fig_gap",
        draw_gaps(standings, folder / "fig_gap", always, look),
        "gap to the bound (no bound)",
    )
    gantts, warnings = _all_gantts(standings, folder, cells, look)
    if analysis.winners is not None and analysis.winners.warning:
        warnings.insert(0, analysis.winners.warning)
    if gantts:
        sections.append(Section("Why? The best and the worst schedule", tuple(gantts)))
    return sections, warnings, left_out


def _all_gantts(
    standings: Standings, folder: Path, cells: Path | None, look: Look
) -> tuple[list[Path], list[str]]:
    drawn: list[Path] = []
    warnings: list[str] = []
    for contest in standings.contests if cells is not None else ():
        assert cells is not None
        if len(drawn) >= _PICTURES:
            warnings.append(f"Gantt charts of the first {_PICTURES} models and settings only")
            break
        stem = _free(folder / f"fig_gantt_{_slug(standings.label(contest, True))}", drawn)
        try:
            if _draw_gantts(standings, contest, cells, stem, look):
                drawn.append(stem)
        except InvalidInput as error:
            warnings.append(f"No Gantt chart of {standings.label(contest, True)}: {error}")
    return drawn, warnings


def _draw_gantts(
    standings: Standings, contest: Contest, cells: Path, stem: Path, look: Look
) -> bool:
    """The best and the slowest schedule of a contest's first seed, where both left their trace."""
    pair: list[Standing] = [contest.best]
    if len(contest.standings) > 1:
        pair.append(contest.standings[-1])
    folders = [cells / standing.cells[0] for standing in pair]
    if not all((folder / "trace.json").is_file() for folder in folders):
        return False
    traces = [Trace.load(folder) for folder in folders]
    seed = " of the first seed" if contest.seeds > 1 else ""
    bounds = {} if contest.seeds > 1 else _bounds(folders[0], contest)
    best, slowest = (proper(standing.scheduler) for standing in (pair[0], pair[-1]))
    text = caption(
        f"Simulated schedules{seed} of {proper(standings.label(contest, True))}: above {best}, the best"
        + (f", below {slowest}, the slowest" if len(pair) > 1 else "")
        + f" of {len(contest.standings)}",
        "1 run each",
        "",
        "Rows: device slots, then link directions; colours: operator kinds; thin line: makespan.",
        "Below: what the slots' time went to (docs/traces.md).",
    )
    labels = [proper(describe(trace)) for trace in traces]
    draw_stacked(traces, labels, stem, bounds, caption=text, width=look.width())
    return True


def _bounds(cell: Path, contest: Contest) -> dict[str, float]:
    """The lower bounds of a cell, by the names that charts give them."""
    if not (cell / "result.json").is_file():
        return {"lower bound": contest.bound_s}
    figures = read_document(cell / "result.json").get("metrics", {})
    found = {
        "critical-path bound": figures.get("critical_path_s"),
        "load bound": figures.get("load_bound_s"),
        "path-and-load bound": figures.get("path_load_bound_s"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _page(
    analysis: Analysis,
    written: Mapping[str, tables.TextTable],
    sections: list[Section],
    warnings: list[str],
    baseline: str | None,
    manifest: Mapping[str, Any],
    title: str,
    methods: str,
    left_out: list[str],
    interaction: Interaction | None,
) -> str:
    standings = analysis.standings
    verdicts = [
        f"{standings.label(contest, True)}: {same(contest)}"
        for contest in standings.contests[:ROWS]
        if contest.verdict is not None
    ]
    return render(
        standings, manifest, title, answers(standings, baseline), written, sections, methods,
        [*cautions(standings, ROWS), *warnings], left_out, verdicts, interaction,
    )  # fmt: skip


def _slug(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", name).strip("_.")[:_FEW] or "unnamed"


def _free(stem: Path, taken: list[Path]) -> Path:
    """The stem, numbered where two names became the same file's."""
    number, free = 1, stem
    while free in taken:
        number += 1
        free = stem.with_name(f"{stem.name}_{number}")
    return free
