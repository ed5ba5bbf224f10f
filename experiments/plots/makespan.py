"""Makespan of every scheduler on every model: bars with their intervals, a panel for each model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.comparison.bootstrap import METHOD
from experiments.comparison.contests import BEST_DEVICE, Contest, Standing, Standings
from experiments.comparison.names import proper
from experiments.comparison.rounding import time_unit
from experiments.comparison.tables import main_frame
from experiments.plots.looks import USUAL, Look, Style, name_rows
from experiments.plots.style import (
    caption,
    count_of,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    shorten,
    text_colour,
)

_INTERVAL = "#333333"
_TALLEST = 9.0
"""Inches of a page."""
_BELOW = 0.6
"""Inches of the legend and the last axis."""


def pages(contests: Sequence[Contest], look: Look = USUAL) -> Iterator[Sequence[Contest]]:
    """The contests of one figure after the other: as many panels as a page is tall for."""
    columns = _columns(look)
    most = max(1, int((_TALLEST - _BELOW) / _panel_height(len(_order(contests))))) * columns
    # Of even size: not one full page and a single panel after it.
    count = math.ceil(len(contests) / most)
    size = math.ceil(len(contests) / count / columns) * columns
    for first in range(0, len(contests), size):
        yield contests[first : first + size]


def _columns(look: Look) -> int:
    return 1 if look.narrow else 3


def _panel_height(schedulers: int) -> float:
    return 0.58 + 0.17 * schedulers


def draw_makespans(
    standings: Standings, contests: Sequence[Contest], stem: Path, look: Look = USUAL
) -> list[Path]:
    """A panel for each contest, a bar for each scheduler, in one order throughout.

    Whiskers are 95% intervals of the draws, without draws of the mean over seeds; the dashed line is the best device
    alone, the dotted one the lower bound. Panels have time axes of their own, from 0.

    Returns:
        Paths of .pdf, .png, .csv and the caption's .txt.
    """
    from matplotlib.lines import Line2D

    # One order for all pages of a setting.
    alike = [c for c in standings.contests if c.setting == contests[0].setting]
    here = {standing.scheduler for contest in contests for standing in contest.standings}
    names = [name for name in _order(alike) if name in here]
    styles = look.styles([*names, BEST_DEVICE])
    columns = min(_columns(look), len(contests))
    rows = math.ceil(len(contests) / columns)
    with figure_style():
        height = rows * _panel_height(len(names)) + _BELOW
        figure = new_figure(look.width(), height)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for panel, contest in zip(panels, contests, strict=False):
            factor, unit = time_unit([contest.best.makespan_s])
            highest = 0.0
            for row, name in enumerate(names):
                standing = contest.find(name)
                if standing is not None:
                    highest = max(highest, _bar(panel, row, standing, styles[name], factor))
            best_device, bound = contest.best_device_s * factor, contest.bound_s * factor
            limit = highest
            if math.isfinite(best_device) and best_device <= 2.0 * highest:
                panel.axvline(best_device, color="black", linewidth=0.9, linestyle=(0, (4, 2)))
                limit = max(limit, best_device)
            if math.isfinite(bound):
                panel.axvline(bound, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
            panel.set_xlim(0, limit * 1.04)
            panel.set_ylim(len(names) - 0.4, -0.6)
            name_rows(panel.yaxis, names, styles)
            panel.tick_params(axis="y", length=0)
            panel.set_title(shorten(proper(standings.label(contest)), 30))
            panel.set_xlabel(f"makespan [{unit.replace('us', 'µs')}]")
        for panel in panels[len(contests) :]:
            panel.set_axis_off()
        handles: list[Any] = [
            Line2D([], [], color="black", lw=0.9, ls=(0, (4, 2)), label="best device alone"),
            Line2D([], [], color="black", lw=0.9, ls=(0, (1, 1.2)), label="lower bound"),
        ]
        if any(s.span for contest in contests for s in contest.standings):
            handles.append(Line2D([], [], color=_INTERVAL, lw=1.2, label="95% interval"))
        legend_below(figure, handles, 3)
        data = main_frame(replace(standings, contests=tuple(contests)))
        return save_figure(figure, stem, data, _caption(contests))


def _bar(panel: Any, row: int, standing: Standing, style: Style, factor: float) -> float:
    makespan = standing.makespan_s * factor
    panel.barh(
        row,
        makespan,
        height=0.84 if style.own else 0.72,
        color=style.colour,
        hatch=style.hatch,
        edgecolor="black" if style.own else text_colour(style.colour),
        linewidth=1.0 if style.own else 0.3,
    )
    span = standing.span
    if span is None:
        return makespan
    low, high = span.low * factor, span.high * factor
    # White under the whisker: it must be seen on hatches and dark colours.
    for colour, width in (("white", 2.6), (_INTERVAL, 1.2)):
        panel.plot([low, high], [row, row], color=colour, linewidth=width, solid_capstyle="butt")
    return max(makespan, high)


def _order(contests: Sequence[Contest]) -> list[str]:
    """Schedulers by mean ratio to the best of each contest, the best first."""
    ratios: dict[str, list[float]] = {}
    for contest in contests:
        for standing in contest.standings:
            ratio = standing.makespan_s / contest.best.makespan_s
            ratios.setdefault(standing.scheduler, []).append(ratio)
    return sorted(ratios, key=lambda name: (sum(ratios[name]) / len(ratios[name]), name))


def _caption(contests: Sequence[Contest]) -> str:
    setting = contests[0].setting
    draws = [contest.draws for contest in contests]
    intervals = any(standing.span for contest in contests for standing in contest.standings)
    if max(draws):
        statistic = (
            f"Mean; whiskers: middle 95% of {count_of(draws, 'draw')} of predictor error and noise"
        )
    elif intervals:
        statistic = f"Mean; whiskers: its 95% interval over the seeds ({METHOD})"
    else:
        statistic = "Mean; no draws and fewer than 5 seeds, so no interval"
    where = f"on {setting.cluster}" if setting.cluster else "at given times"
    rules = ", ".join(
        part for part in (setting.workload, setting.movement, setting.contention) if part
    )
    return caption(
        f"Simulated makespan {where} ({rules})",
        count_of([contest.seeds for contest in contests], "seed") + " a panel",
        statistic,
        "Dashed: best single device, where not beyond twice the longest bar; dotted: lower bound.",
        f"Devices: {setting.profiles}." if setting.profiles else "",
    )
