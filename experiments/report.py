"""A sweep's report: ``report/`` with ``index.html``, the main table as files, and figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import tables
from experiments.atomic import write_text
from experiments.plots.gantt import describe, draw_stacked
from experiments.plots.makespan import draw_makespans
from experiments.plots.overall import draw_gaps, draw_pairs, draw_profile
from experiments.results import read_document
from experiments.standings import Contest, Setting, Standing, Standings
from simulator.errors import InvalidInput
from simulator.trace import Trace

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_FEW = 60
"""Characters of a model's name kept in a file's name."""


@dataclass(frozen=True)
class _Section:
    """Figures under the question that they answer."""

    question: str
    stems: tuple[Path, ...]


def write_report(
    standings: Standings,
    folder: Path,
    cells: Path | None = None,
    baseline: str | None = None,
    manifest: Mapping[str, Any] | None = None,
    title: str = "Comparison of schedulers",
) -> Path:
    """Write the report into ``folder``; ``index.html`` comes last and names only what is there.

    Args:
        standings: what to report.
        folder: ``report/``, made if need be; figures of an earlier report are removed.
        cells: folder with a folder for each cell, for Gantt charts of those that kept their trace.
        baseline: the scheduler that answers compare with.
        manifest: the sweep's ``manifest.json``, for where it comes from.
        title: of the page.

    Returns:
        The path of ``index.html``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    caption = tables.caption(standings)
    frame = tables.main_frame(standings, baseline)
    write_text(folder / "table_main.csv", frame.to_csv(index=False))
    write_text(folder / "table_main.md", tables.markdown(standings, caption))
    write_text(folder / "table_main.tex", tables.latex(standings, caption))
    sections, warnings = _draw(standings, folder, cells)
    page = _page(standings, sections, warnings, baseline, manifest or {}, title, caption)
    index = write_text(folder / "index.html", page)
    kept = {stem.name for section in sections for stem in section.stems}
    for path in folder.glob("fig_*"):
        if path.name.removesuffix(path.suffix) not in kept:
            path.unlink()
    return index


def _draw(
    standings: Standings, folder: Path, cells: Path | None
) -> tuple[list[_Section], list[str]]:
    several = len(standings.settings) > 1
    stems: list[Path] = []
    for setting in standings.settings:
        contests = [contest for contest in standings.contests if contest.setting == setting]
        name = f"_{_slug(standings.setting_label(setting))}" if several else ""
        stems.append(_free(folder / f"fig_makespan{name}", stems))
        draw_makespans(standings, contests, stems[-1])
    sections = [_Section("How long does each scheduler take?", tuple(stems))]
    compared = [c for c in standings.contests if len(c.standings) > 1 or c.best_device_s > 0]
    if compared:
        profile, pairs = folder / "fig_profile", folder / "fig_pairs"
        draw_profile(standings, profile)
        draw_pairs(standings, pairs)
        sections.append(_Section("Who is best overall?", (profile,)))
        sections.append(_Section("Pair by pair?", (pairs,)))
    if draw_gaps(standings, folder / "fig_gap"):
        sections.append(_Section("How far from the best possible?", (folder / "fig_gap",)))
    drawn: list[Path] = []
    warnings = []
    for contest in standings.contests if cells is not None else ():
        assert cells is not None
        stem = _free(folder / f"fig_gantt_{_slug(standings.label(contest, True))}", drawn)
        try:
            if _draw_gantts(standings, contest, cells, stem):
                drawn.append(stem)
        except InvalidInput as error:
            warnings.append(f"No Gantt chart of {standings.label(contest, True)}: {error}")
    if drawn:
        sections.append(_Section("Why? The best and the worst schedule", tuple(drawn)))
    return sections, warnings


def _draw_gantts(standings: Standings, contest: Contest, cells: Path, stem: Path) -> bool:
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
    caption = (
        f"Schedules{seed} of {standings.label(contest, True)}: above {pair[0].scheduler}, the best of "
        f"{len(contest.standings)} schedulers by makespan"
        + (f"; below {pair[1].scheduler}, the slowest" if len(pair) > 1 else "")
        + ". n = 1 simulated run each, at predicted operator times. Rows: device slots, then link "
        "directions; colours: the operator kinds that take most time; thin line: makespan. Below, what the slots' time went "
        "to (idle causes: docs/traces.md)."
    )
    labels = [describe(trace) for trace in traces]
    draw_stacked(traces, labels, stem, bounds, caption=caption)
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
    standings: Standings,
    sections: list[_Section],
    warnings: list[str],
    baseline: str | None,
    manifest: Mapping[str, Any],
    title: str,
    caption: str,
) -> str:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    headings, body = tables.rounded_rows(standings)
    left = headings.index("scheduler") + 1
    rows: list[dict[str, Any]] = []
    previous: list[str] | None = None
    for cells in body:
        first = cells[: left - 1] != previous
        previous = cells[: left - 1]
        alone = cells[left - 1].startswith(tables.BEST_DEVICE)
        style = " ".join(name for name, on in (("first", first), ("reference", alone)) if on)
        rows.append(
            {"cells": cells if first else [""] * (left - 1) + cells[left - 1 :], "style": style}
        )
    return template.render(
        title=title,
        description=str(manifest.get("description") or ""),
        answers=tables.answers(standings, baseline),
        settings=[_setting(setting) for setting in standings.settings],
        warnings=[*tables.cautions(standings), *warnings],
        headings=headings,
        left=left,
        rows=rows,
        verdicts=[
            f"{standings.label(contest, True)}: {tables.same(contest)}"
            for contest in standings.contests
            if contest.verdict is not None
        ],
        caption=caption,
        sections=[
            {
                "question": section.question,
                "figures": [
                    {
                        "stem": stem.name,
                        "caption": stem.with_name(f"{stem.name}.txt").read_text().strip(),
                    }
                    for stem in section.stems
                ],
            }
            for section in sections
        ],
        failures=standings.failures,
        cells=standings.cells,
        provenance=[
            (name, manifest[key])
            for name, key in (
                ("command", "command"),
                ("finished", "finished"),
                ("revision", "revision"),
                ("code", "code"),
            )
            if manifest.get(key)
        ],
    )


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "cluster": f"Cluster {setting.cluster}"
        if setting.cluster
        else "Instances with given times",
        "profiles": setting.profiles,
        "rules": tables.rules(setting),
        "uncalibrated": tables.UNCALIBRATED in setting.profiles,
    }


def _slug(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", name).strip("_.")[:_FEW] or "unnamed"


def _free(stem: Path, taken: list[Path]) -> Path:
    """The stem, numbered where two names became the same file's."""
    number, free = 1, stem
    while free in taken:
        number += 1
        free = stem.with_name(f"{stem.name}_{number}")
    return free
