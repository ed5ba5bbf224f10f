"""The page of a report: static, opened from disk, with nothing loaded from elsewhere."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.comparison.answers import label_lines, rules, validity_lines
from experiments.comparison.contests import BEST_DEVICE, Setting, Standings
from experiments.comparison.markup import TextTable
from experiments.comparison.terminal import UNCALIBRATED
from experiments.plots.interactive import (
    INSTALL,
    gantt_figure,
    interactive_figures,
    plotly_script,
)
from experiments.plots.looks import Style
from experiments.runs.atomic import finite, write_text
from simulator.errors import InvalidInput
from simulator.model.trace import Trace

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_SCRIPT = Path(__file__).with_name("report.js")
ROWS = 300
"""Rows of a table on the page; its files have all."""
_CONTESTS = 48
_GANTTS = 100
"""Cells whose Gantt chart is prepared: each takes some 0.05 seconds."""
_TITLES = {
    "table_overall": "Over all models and settings",
    "table_main": "Schedulers",
    "table_pairs": "Pairs of schedulers",
    "table_factors": "What each factor changes",
    "table_by_factor": "Schedulers at each value of each factor",
    "table_requests": "Schedulers by the delays of requests",
}


@dataclass(frozen=True)
class Section:
    """Figures under the question that they answer."""

    question: str
    stems: tuple[Path, ...]


@dataclass(frozen=True)
class Interaction:
    """What the page's script shows.

    Attributes:
        cells: the table of :func:`experiments.comparison.cell_table.cell_table`; None: no table.
        figures: of plotly.js, by the question of the section that they belong to.
        plotly: whether plotly.js goes into the page.
        note: what to install for more; empty where nothing is missing.
    """

    cells: Mapping[str, Any] | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    plotly: bool = False
    note: str = ""


def interactive(
    table: dict[str, Any],
    standings: Standings,
    styles: Mapping[str, Style],
    folder: Path,
    cells: Path,
    requests: bool = False,
) -> Interaction:
    """Write the Gantt charts that the page draws when asked, and choose its interactive figures.

    Args:
        table: of all cells.
        standings: of the same sweep.
        styles: of every scheduler and of the best device.
        folder: of the report; those of the first cells that kept their trace go to ``gantt/CELL.js``.
        cells: with a folder for each cell.
        requests: whether they serve requests, for which there are no interactive figures of makespans.
    """
    charts = folder / "gantt"
    for path in charts.glob("*.js"):
        path.unlink()
    if plotly_script() is None:
        return Interaction(table, note=INSTALL)
    kept = [name for name, kept in zip(table["cells"], table["trace"], strict=True) if kept]
    drawn = []
    for name in kept[:_GANTTS]:
        with contextlib.suppress(InvalidInput):  # a damaged trace; the command makes another
            figure = _island(gantt_figure(Trace.load(cells / name)))
            write_text(charts / f"{name}.js", f"gantt({_island(name)}, {figure});\n")
            drawn.append(name)
    figures = {} if requests else interactive_figures(standings, styles)
    return Interaction({**table, "gantt": drawn}, figures, plotly=bool(figures or drawn))


def render(
    standings: Standings,
    manifest: Mapping[str, Any],
    title: str,
    said: Sequence[str],
    written: Mapping[str, TextTable],
    sections: Sequence[Section],
    methods: str,
    warnings: Sequence[str] = (),
    left_out: Sequence[str] = (),
    verdicts: Sequence[str] = (),
    interaction: Interaction | None = None,
) -> str:
    """The page.

    Args:
        standings: what it is of: clusters, failures.
        manifest: the sweep's, for where it comes from.
        title: of the page.
        said: the answers, first.
        written: tables by the names of their files.
        sections: figures, which are in the page's folder already.
        methods: the paragraph for a methods section.
        warnings: what the figures leave out.
        left_out: what was not drawn, with the reason.
        verdicts: of models and settings where there is nothing to choose.
        interaction: what can be sorted, filtered and hovered over; nothing unless given.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False, lstrip_blocks=True
    )
    environment.filters["island"] = lambda document: Markup(_island(document))
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    shown = said if len(said) <= _CONTESTS else said[:_CONTESTS]
    interaction = interaction or Interaction()
    tables = [_html_table(name, written[name]) for name in _TITLES if name in written]
    drawn = [section.question for section in sections]
    # Where there were too many for a picture to be drawn, they come first all the same.
    questions = dict.fromkeys([*(q for q in interaction.figures if q not in drawn), *drawn])
    stems: dict[str, list[Path]] = {question: [] for question in questions}
    for section in sections:
        stems[section.question] += section.stems
    pictured = [
        {
            "id": f"figure-{number}",
            "question": question,
            "interactive": interaction.figures.get(question),
            "figures": [
                {"stem": s.name, "caption": s.with_name(f"{s.name}.txt").read_text().strip()}
                for s in stems[question]
            ],
        }
        for number, question in enumerate(questions, 1)
    ]
    script = _SCRIPT.read_text(encoding="utf-8") if interaction.cells is not None else ""
    return template.render(
        title=title,
        description=str(manifest.get("description") or ""),
        compared=label_lines(standings),
        answers=shown,
        validity=validity_lines(standings),
        more_answers=len(said) - len(shown),
        settings=[_setting(setting) for setting in standings.settings[:_CONTESTS]],
        warnings=warnings,
        tables=tables,
        verdicts=verdicts,
        methods=methods.splitlines(),
        left_out=left_out,
        sections=pictured,
        failures=standings.failures,
        cells=standings.cells,
        table=interaction.cells,
        script=Markup(script),
        plotly=Markup(plotly_script() or "") if interaction.plotly else "",
        install=interaction.note,
        provenance=[
            (name, manifest[name])
            for name in ("command", "finished", "revision", "code")
            if manifest.get(name)
        ],
    )


def _island(document: Any) -> str:
    """JSON that can stand in a ``script`` element: no text in it ends the element or begins another."""
    text = json.dumps(finite(document), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _html_table(name: str, table: TextTable) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    previous: list[str] | None = None
    for cells in table.rows[:ROWS]:
        group = list(cells[: table.groups])
        first = bool(table.groups) and group != previous
        previous = group
        alone = cells[table.left - 1].startswith(BEST_DEVICE)
        style = " ".join(word for word, on in (("first", first), ("reference", alone)) if on)
        shown = cells if first else ["" for _ in group] + list(cells[table.groups :])
        rows.append({"cells": shown, "style": style})
    return {
        "name": name,
        "title": _TITLES[name],
        "headings": table.headings,
        "left": table.left,
        "rows": rows,
        "more": len(table.rows) - len(rows),
        "caption": table.caption,
    }


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "cluster": f"Cluster {setting.cluster}"
        if setting.cluster
        else "Instances with given times",
        "profiles": setting.profiles,
        "rules": rules(setting),
        "uncalibrated": UNCALIBRATED in setting.profiles,
    }
