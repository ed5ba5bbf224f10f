"""Makespan of every scheduler on every model: bars with their intervals, a panel for each model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.comparison.contests import BEST_DEVICE, Contest, Standing, Standings
from experiments.comparison.rounding import time_unit
from experiments.comparison.tables import main_frame
from experiments.plots.style import (
    TWO_COLUMNS,
    Style,
    count_of,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    scheduler_styles,
    shorten,
    text_colour,
)

_PER_ROW = 3
_INTERVAL = "#333333"


def draw_makespans(standings: Standings, contests: Sequence[Contest], stem: Path) -> list[Path]:
    """A panel for each contest, a bar for each scheduler, in one order throughout.

    Whiskers are 95% intervals of the draws, the dashed line is the best device alone, the dotted one
    the lower bound. Panels have time axes of their own, from 0.

    Returns:
        Paths of .pdf, .png, .csv and the caption's .txt.
    """
    from matplotlib.lines import Line2D

    names = _order(contests)
    styles = scheduler_styles([*names, BEST_DEVICE])
    columns = min(_PER_ROW, len(contests))
    rows = math.ceil(len(contests) / columns)
    height = rows * (0.55 + 0.17 * len(names)) + 0.45
    with figure_style():
        figure = new_figure(TWO_COLUMNS, min(height, 9.0))
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
            panel.set_yticks(range(len(names)), [shorten(name, 24) for name in names])
            panel.tick_params(axis="y", length=0)
            panel.set_title(shorten(standings.label(contest), 30))
            panel.set_xlabel(f"makespan [{unit}]")
        for panel in panels[len(contests) :]:
            panel.set_axis_off()
        handles: list[Any] = [
            Line2D([], [], color="black", lw=0.9, ls=(0, (4, 2)), label="best device alone"),
            Line2D([], [], color="black", lw=0.9, ls=(0, (1, 1.2)), label="lower bound"),
        ]
        if any(s.interval for contest in contests for s in contest.standings):
            handles.append(Line2D([], [], color=_INTERVAL, lw=1.2, label="95% interval"))
        legend_below(figure, handles, 3)
        data = main_frame(replace(standings, contests=tuple(contests)))
        return save_figure(figure, stem, data, _caption(contests))


def _bar(panel: Any, row: int, standing: Standing, style: Style, factor: float) -> float:
    makespan = standing.makespan_s * factor
    panel.barh(
        row,
        makespan,
        height=0.72,
        color=style.colour,
        hatch=style.hatch,
        edgecolor=text_colour(style.colour),
        linewidth=0.3,
    )
    if standing.interval is None:
        return makespan
    low, high = standing.interval.low * factor, standing.interval.high * factor
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
    seeds = count_of([contest.seeds for contest in contests], "seed")
    draws = [contest.draws for contest in contests]
    whiskers = (
        f"Whiskers: 2.5 to 97.5 percentiles of {count_of(draws, 'draw')} of predictor error (correlated by kind) "
        "and noise, pooled over the seeds."
        if max(draws)
        else "No draws, no intervals."
    )
    where = (
        f"on cluster {setting.cluster} ({setting.profiles}"
        if setting.cluster
        else "of bare instances (given times"
    )
    return (
        f"Makespan {where}; {setting.workload}, {setting.movement}, {setting.contention}) at predicted operator times, "
        f"mean of n = {seeds}. {whiskers} Dashed: everything on the best single device (not "
        "drawn where more than twice the longest bar). Dotted: lower bound. Time axes differ between "
        "panels."
    )
