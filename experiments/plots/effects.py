"""Which ingredient matters? Paired differences of every factor, as dots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.comparison.effects import Effect, Effects
from experiments.comparison.factors import value_text
from experiments.comparison.paired_tests import CORRECTION, METHOD
from experiments.plots.style import (
    COLOURS,
    TWO_COLUMNS,
    figure_style,
    legend_below,
    new_figure,
    save_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS = 400
"""Single differences drawn in a row; quantiles of them where there are more."""
_MOST = 30


def draw_effects(effects: Effects, stem: Path) -> list[Path] | None:
    """A row for each value of each factor; ingredients above, properties of the problem below."""
    import pandas as pd
    from matplotlib.lines import Line2D

    panels = [
        (title, [e for e in effects.effects if e.ingredient is ingredient])
        for title, ingredient in (
            ("of the scheduler and of the simulation", True),
            ("of the problem", False),
        )
    ]
    left_out = sum(max(len(rows) - _MOST, 0) for _, rows in panels)
    panels = [(title, rows[:_MOST]) for title, rows in panels if rows]
    if not panels:
        return None
    verdicts = {
        (str(row["factor"]), str(row["value"])): str(row["verdict"])
        for row in effects.frame.to_dict("records")
    }
    intervals = {
        (str(row["factor"]), str(row["value"])): (row["ratio_low"], row["ratio_high"])
        for row in effects.frame.to_dict("records")
    }
    with figure_style():
        heights = [len(rows) for _, rows in panels]
        figure = new_figure(TWO_COLUMNS, min(0.75 * len(panels) + 0.24 * sum(heights) + 0.3, 9.0))
        subplots = figure.subplots(
            len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": [h + 1 for h in heights]}
        )[:, 0]
        for axes, (title, rows) in zip(subplots, panels, strict=True):
            _panel(axes, rows, intervals, verdicts)
            if len(panels) > 1:
                axes.set_title(f"factors {title}", loc="left")
        subplots[-1].set_xlabel("makespan with the value / makespan with the other, log scale")
        handles = [
            Line2D([], [], linestyle="", marker=".", color="#888888", markersize=3, label="a pair"),
            Line2D([], [], linestyle="-", marker="D", color=COLOURS[0], markersize=4,
                   label="geometric mean and 95% interval"),
            Line2D([], [], linestyle="-", marker="D", color=COLOURS[0], markersize=4,
                   markerfacecolor="white", label="not separable from 1, or too few"),
        ]  # fmt: skip
        legend_below(figure, handles, 3)
        data = pd.DataFrame(
            [
                {
                    "factor": effect.factor.name,
                    "value": value_text(effect.value),
                    "against": value_text(effect.against),
                    "ratio": ratio,
                }
                for _, rows in panels
                for effect in rows
                for ratio in np.exp(_thinned(effect.logs)).tolist()
            ]
        )
        counts = [len(e.logs) for _, rows in panels for e in rows]
        number = (
            f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        )
        caption = (
            "What each factor changes: makespan with the value over makespan with the other, n = "
            f"{number} pairs a row that agree in everything else, seeds included (dots; of more than "
            f"{_DOTS} their quantiles). Diamonds: geometric means with their 95% interval ({METHOD}; "
            f"{CORRECTION} corrected over {len(effects.frame)} rows); hollow where it holds 1 or pairs are "
            "too few. Left of 1 the value makes it faster."
        )
        if left_out:
            caption += f" {left_out} more rows are in table_factors.csv."
        return save_figure(figure, stem, data, caption)


def _panel(
    axes: Axes,
    rows: Sequence[Effect],
    intervals: dict[tuple[str, str], tuple[float, float]],
    verdicts: dict[tuple[str, str], str],
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    labels = []
    rng = np.random.default_rng(0)
    for number, effect in enumerate(rows):
        dots = np.exp(_thinned(effect.logs))
        axes.plot(
            dots, number + rng.uniform(-0.28, 0.28, len(dots)), linestyle="", marker=".",
            markersize=2, color="#888888", markeredgewidth=0, zorder=2,
        )  # fmt: skip
        key = (effect.factor.name, value_text(effect.value))
        low, high = intervals[key]
        if np.isfinite(low):
            axes.plot([low, high], [number] * 2, color=COLOURS[0], linewidth=1.4, zorder=3)
        decided = verdicts[key] in ("shorter", "longer")
        axes.plot(
            np.exp(effect.logs.mean()), number, marker="D", markersize=4, color=COLOURS[0],
            markerfacecolor=COLOURS[0] if decided else "white", zorder=4,
        )  # fmt: skip
        value, against = value_text(effect.value), value_text(effect.against)
        labels.append(
            f"{shorten(effect.factor.name, 24)}: {shorten(value, 16)} / {shorten(against, 16)}"
        )
        if number % 2:
            axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", zorder=0, linewidth=0)
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (1, 1.2)))
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    low, high = min(low, 0.98), max(high, 1.02)
    axes.set_xlim(low, high)
    if high / low < 8:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    else:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), labels)
    axes.tick_params(axis="y", length=0)


def _thinned(logs: np.ndarray) -> np.ndarray:
    return logs if len(logs) <= _DOTS else np.quantile(logs, np.linspace(0, 1, _DOTS))
